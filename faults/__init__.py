"""Faults, and what the service promises under them: `make faults`.

A case starts a service on an empty log, sends traffic, causes faults of one kind, and then checks
every promise in `promises.py`. The programs that start services and databases are those of the
tests.
"""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "tests" / "support"))
