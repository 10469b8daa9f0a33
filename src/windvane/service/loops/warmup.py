"""Load compiled code in one order, so that the same log gives the same bits in every process.

A process that has just compiled a function may sum in another order than a process that loads the
function from disk, and so may a process that has loaded other functions before.
"""

import logging
import subprocess
from contextlib import ExitStack

from windvane import _compile_notice
from windvane._jit import STAMP, cache_folder, cache_lock, has_cache_folder
from windvane.errors import SettingError
from windvane.service.processes import build_command, build_environment

NO_FOLDER = (
    "serve: compiled code needs a folder that this user can write; set NUMBA_CACHE_DIR to one"
)
LOAD_CODE = "from windvane.service.loops import warmup; warmup.{}()"
PARTS = (
    "load_full_model",
    "load_learner",
    "load_large_model",
)  # compiled at the same time, in a process each

logger = logging.getLogger("windvane.service")


def compile_kernels() -> None:
    """Compile all that the service needs in other processes, once for every version."""
    from windvane import kernels

    if not has_cache_folder(kernels.refresh):
        raise SettingError(NO_FOLDER)
    folder = cache_folder(kernels.refresh)
    marker = folder / f"windvane.{STAMP[:16]}.whole"  # there once everything is compiled
    if marker.exists():
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SettingError(f"{NO_FOLDER} ({error.strerror})") from None
    with cache_lock(folder, "windvane.whole.lock"):
        if not marker.exists():
            if _compile_notice.is_wanted():
                logger.warning("compiling for this processor, once for each version: about 15 s")
            _run_in_children(PARTS)
            marker.touch()


def _run_in_children(functions: tuple[str, ...]) -> None:
    """Run functions of this module in a process each, and wait for all of them."""
    environment = build_environment() | {_compile_notice.SWITCH: "0"}
    with ExitStack() as stack:
        children = []
        for name in functions:
            child = subprocess.Popen(build_command(LOAD_CODE.format(name)), env=environment)
            stack.callback(child.wait)
            stack.callback(child.kill)
            children.append(child)
        for child in children:
            if child.wait():
                raise subprocess.CalledProcessError(child.returncode, child.args)


def load_kernels() -> None:
    """Load all functions that a loop calls."""
    load_full_model()
    load_learner()
    load_large_model()


def load_full_model() -> None:
    """Load what a loop with a full belief calls: a choice, a lesson and a change of settings."""
    _load_policy({"belief": "full"})


def load_large_model() -> None:
    """Load the same for a belief whose matrices change once for several lessons."""
    from windvane._layout import LARGE

    _load_policy({"belief": "full", "dim": LARGE + 1})


def _load_policy(names: dict[str, object]) -> None:
    from windvane.features.encoder import Encoder
    from windvane.service.loops.settings import Settings
    from windvane.service.schemas import Action

    settings = Settings.from_names(names)
    rows = Encoder(settings.dim).encode([], [Action("nothing", [])])
    policy = settings.build_policy()
    policy.learn(policy.choose_with_propensities(rows)[0], 0.0)
    policy.amend(rows[0], 0.0, 0.0)
    policy.belief = policy.belief


def load_learner() -> None:
    """Load all functions that a loop with a diagonal belief calls."""
    from windvane.features.packing import pack_actions
    from windvane.service.loops.learner_model import LearnerModel
    from windvane.service.loops.model import Moment
    from windvane.service.loops.settings import Settings
    from windvane.service.schemas import Action

    settings = Settings()
    model = LearnerModel(settings)
    context, actions = [{"size": 1.0, "place": [1.0, 2.0]}], [Action("nothing", [])]
    moment = Moment(0, 0)
    choice = model.rank(context, pack_actions(actions), [0], 0)
    model.learn(choice.features, 0.0, moment)
    model.amend(choice.features, 0.0, moment)
    model.predict(choice.features, moment)
    model.estimate_actions(context, actions)
    model.explain(context, actions, 0)
    LearnerModel.load(settings, model.save())
