"""Load compiled code in one order, so that the same log gives the same bits in every process.

A process that has just compiled a function may sum in another order than a process that loads the
function from disk, and so may a process that has loaded other functions before. The functions of
the learner come first. Those of a full belief follow once a loop needs them, and those of a large
full belief once a loop needs those.
"""

import logging
import subprocess
import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING, NamedTuple

from windvane._numba import compile_notice
from windvane._numba.disk_cache import cache_folder, cache_lock, compute_stamp, has_cache_folder
from windvane.beliefs.full.layout import LARGE
from windvane.errors import SettingError
from windvane.service.processes import build_command, build_environment

if TYPE_CHECKING:
    from windvane.service.loops.learner_model import LearnerModel
    from windvane.service.schemas import Action

NO_FOLDER = (
    "serve: compiled code needs a folder that this user can write; set NUMBA_CACHE_DIR to one"
)
LOAD_CODE = "from windvane.service.loops import warmup; warmup.{}()"


class Kernels(NamedTuple):
    """Functions that are compiled together, by the functions of this module that load them."""

    name: str
    parts: tuple[str, ...]  # compiled at the same time, in a process each


LEARNER = Kernels("learner", ("load_ranking", "load_lessons"))
FULL_MODEL = Kernels("full", ("load_full_model",))
LARGE_MODEL = Kernels("large", ("load_large_model",))

logger = logging.getLogger("windvane.service")
_loading_full_model = threading.Lock()
_due: list[Kernels] = []  # after the learner was loaded: what is not loaded yet, in its order


def compile_kernels(kernels: Kernels = LEARNER) -> None:
    """Compile functions in other processes, once for every version."""
    from windvane.beliefs.full.block import refresh

    if not has_cache_folder(refresh):
        raise SettingError(NO_FOLDER)
    folder = cache_folder(refresh)
    marker = folder / f"windvane.{compute_stamp()[:16]}.{kernels.name}"
    if marker.exists():
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SettingError(f"{NO_FOLDER} ({error.strerror})") from None
    with cache_lock(folder, f"windvane.{kernels.name}.lock"):
        if not marker.exists():
            if compile_notice.is_wanted():
                logger.warning("compiling for this processor, once for each version: 5 to 15 s")
            _run_in_children(kernels.parts)
            marker.touch()


def _run_in_children(functions: tuple[str, ...]) -> None:
    """Run functions of this module in a process each, and wait for all of them."""
    environment = build_environment() | {compile_notice.SWITCH: "0"}
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
    """Load all functions that a loop with a diagonal belief calls, before all others."""
    load_ranking()
    load_lessons()
    _due[:] = [FULL_MODEL, LARGE_MODEL]


def prepare_full_model(dim: int) -> None:
    """Compile and load what a full belief needs, the first time that a loop has one.

    Most services have none. A process that has not loaded the learner's functions in order makes no
    promise about bits, and is left alone.
    """
    with _loading_full_model:
        while _due and (_due[0] is FULL_MODEL or dim > LARGE):
            compile_kernels(_due[0])
            for name in _due[0].parts:
                globals()[name]()
            del _due[0]


def load_full_model() -> None:
    """Load what a loop with a full belief calls: a choice, a lesson and a change of settings."""
    _load_policy({"belief": "full"})


def load_large_model() -> None:
    """Load the same for a belief whose matrices change once for several lessons."""
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


def load_ranking() -> None:
    """Load what a loop with a diagonal belief calls to choose and to predict."""
    from windvane.features.packed_features import pack_actions

    model, context, actions = _make_request()
    packed = pack_actions(actions)
    model.rank(context, packed, [0], 0)
    model.estimate_actions(context, actions)


def load_lessons() -> None:
    """Load what a loop with a diagonal belief calls to learn, to explain and to be restored."""
    from windvane.beliefs.bank.lesson_codec import encode_packed_lesson
    from windvane.beliefs.bank.sides import pack_context
    from windvane.features.packed_features import pack_actions
    from windvane.service.loops.model import Moment

    model, context, actions = _make_request()
    packed = pack_actions(actions)
    model.encode_action(context, packed, 0)
    features = encode_packed_lesson(pack_context(context), packed.single[0])
    moment = Moment(0, 0)
    model.learn(features, 0.0, moment)
    model.amend(features, 0.0, moment)
    model.explain(context, actions, 0)
    model.load(model.settings, model.save())


def _make_request() -> "tuple[LearnerModel, list[dict[str, object]], list[Action]]":
    """A new model, a context and the actions of a request."""
    from windvane.service.loops.learner_model import LearnerModel
    from windvane.service.loops.settings import Settings
    from windvane.service.schemas import Action

    context: list[dict[str, object]] = [{"size": 1.0, "place": [1.0, 2.0]}]
    return LearnerModel(Settings()), context, [Action("nothing", [])]
