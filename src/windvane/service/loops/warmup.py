"""Load compiled code in one order, so that the same log gives the same bits in every process.

A process that has just compiled a function may sum in another order than a process that loads the
function from disk, and so may a process that has loaded other functions before.
"""

import fcntl
import subprocess
from pathlib import Path

from windvane._jit import STAMP
from windvane.service.processes import build_command, build_environment

RUN = "from windvane.service.loops.warmup import load_kernels; load_kernels()"


def compile_kernels() -> None:
    """Compile all that the service needs in another process, once for every version."""
    from windvane import kernels

    directory = Path(kernels.learn._cache.cache_path)  # type: ignore[attr-defined]
    is_complete = directory / f"windvane.{STAMP[:16]}.whole"
    if is_complete.exists():
        return
    directory.mkdir(parents=True, exist_ok=True)
    with open(directory / "windvane.whole.lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        if not is_complete.exists():
            subprocess.run(build_command(RUN), env=build_environment(), check=True)
            is_complete.touch()


def load_kernels() -> None:
    """Load all functions that a loop calls: a choice, a lesson and a change of settings."""
    from windvane.service.features.encoder import Encoder
    from windvane.service.loops.settings import Settings
    from windvane.service.schemas import Action

    settings = Settings()
    rows = Encoder(settings.dim).encode([], [Action("nothing", [])])
    policy = settings.build_policy()
    policy.learn(policy.choose_with_propensities(rows)[0], 0.0)
    policy.amend(rows[0], 0.0, 0.0)
    policy.belief = policy.belief
