"""Compiled code, loaded from disk in one order: then the same log gives the same bits everywhere.

A process that has just compiled a function may sum in another order than one that loads it, and so
may one that has loaded other functions before.
"""

import fcntl
import subprocess
from pathlib import Path

from windvane._jit import STAMP
from windvane.service.processes import command, environment

RUN = "from windvane.service.loops.warmup import warm; warm()"


def prepare() -> None:
    """Have all that the service needs compiled by another process, once for every version."""
    from windvane import kernels

    place = Path(kernels.learn._cache.cache_path)  # type: ignore[attr-defined]
    made = place / f"windvane.{STAMP[:16]}.whole"
    if made.exists():
        return
    place.mkdir(parents=True, exist_ok=True)
    with open(place / "windvane.whole.lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        if not made.exists():
            subprocess.run(command(RUN), env=environment(), check=True)
            made.touch()


def warm() -> None:
    """Load everything that a loop calls, by a choice, a lesson and a change of settings."""
    from windvane.policy import Policy
    from windvane.service.features.encoder import Encoder
    from windvane.service.loops.settings import Settings
    from windvane.service.schemas import Action

    given = Settings()
    rows = Encoder(given.dim).encode([], [Action("nothing", [])])
    policy = Policy(given.dim, given.memory(), given.exploration(), given.ridge, seed=0, floor=0.1)
    policy.learn(policy.choose_with_propensities(rows)[0], 0.0)
    policy.amend(rows[0], 0.0, 0.0)
    policy.belief = policy.belief
