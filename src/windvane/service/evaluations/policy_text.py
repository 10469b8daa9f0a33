"""The policy of a loop as text: settings such as "halfLife=2 days explorationPercentage=0.05".

Of a command line of Vowpal Wabbit, `--epsilon` is taken as the exploration percentage. A flag that
would change the learner is refused, because there is nothing here that it could change.
"""

import ast
import re

from windvane.errors import SettingError
from windvane.service.loops.settings import LoopSettings

SETTING_NAME = re.compile(r"(?:^|(?<=[\s,;]))([A-Za-z]+)=")
POLICY_NAMES = ("halfLife", "explorationPercentage", "crossings", "arraySize")
NUMBERS = ("explorationPercentage", "arraySize")
WHOLE_NUMBERS = ("arraySize",)
NAMES_OF_LEARNER = {  # on the wire, by keyword of `Learner`
    "half_life": "halfLife",
    "exploration": "explorationPercentage",
    "crossings": "crossings",
    "array_size": "arraySize",
}
PROBLEM_FLAGS = ("--cb_explore_adf", "--ccb_explore_adf", "--cb_adf", "--dsjson")
ACCEPTED = (
    'settings such as "halfLife=2 days explorationPercentage=0.05", learner(half_life="2 days"), '
    "or --epsilon with --cb_explore_adf or --ccb_explore_adf"
)


def format_policy(settings: LoopSettings) -> str:
    """The settings of a loop that make its policy, as `read_policy` reads them."""
    values = {
        "halfLife": settings.half_life,
        "explorationPercentage": settings.exploration_percentage,
        "crossings": settings.crossings,
        "arraySize": settings.array_size,
    }
    return " ".join(f"{name}={values[name]}" for name in POLICY_NAMES)


def read_policy(text: str, settings: LoopSettings) -> LoopSettings:
    """The settings of a loop after a policy has been put; those not named stay as they are."""
    stripped = text.strip()
    if stripped.startswith("-"):
        changes = _read_flags(stripped)
    elif SETTING_NAME.match(stripped):
        changes = _read_settings(stripped)
    else:
        changes = _read_learner(stripped)
    for name in changes:
        if name not in POLICY_NAMES:
            raise SettingError(f"policy: a loop takes {', '.join(POLICY_NAMES)}, got {name}")
    return settings.merge(changes)


def reset_policy(settings: LoopSettings) -> LoopSettings:
    """The settings of a loop with the policy of a new loop."""
    new = LoopSettings()
    return settings.merge(
        {"halfLife": new.half_life, "explorationPercentage": new.exploration_percentage}
    )


def _read_flags(text: str) -> dict[str, object]:
    """Read the flags of Vowpal Wabbit that mean something here."""
    words = text.replace("=", " ").split()
    changes: dict[str, object] = {}
    while words:
        flag = words.pop(0)
        if flag == "--epsilon":
            changes["explorationPercentage"] = _read_number(flag, words.pop(0) if words else "")
        elif flag not in PROBLEM_FLAGS:
            raise SettingError(
                f"policy: of Vowpal Wabbit's flags only --epsilon can be taken over, got {flag}; "
                f"accepted are {ACCEPTED}"
            )
    return changes


def _read_settings(text: str) -> dict[str, object]:
    """Read settings as the service names them, separated by spaces, commas or semicolons."""
    places = list(SETTING_NAME.finditer(text))
    ends = [place.start() for place in places[1:]] + [len(text)]
    changes: dict[str, object] = {}
    for place, end in zip(places, ends, strict=True):
        name, value = place[1], text[place.end() : end].strip().rstrip(",;").strip()
        if name in changes:
            raise SettingError(f"policy: {name} must be given once, got it twice")
        changes[name] = _read_number(name, value) if name in NUMBERS else value
    return changes


def _read_learner(text: str) -> dict[str, object]:
    """Read `learner(half_life="2 days", exploration=0.05)`, which is never run."""
    error = SettingError(f"policy: {text[:80]!r} cannot be read; accepted are {ACCEPTED}")
    if text in ("learner", "Learner"):
        return {}
    try:
        tree = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise error from None
    if not isinstance(tree, ast.Call) or not isinstance(tree.func, ast.Name) or tree.args:
        raise error
    if tree.func.id.lower() != "learner":
        raise error
    changes: dict[str, object] = {}
    for keyword in tree.keywords:
        value = keyword.value
        if keyword.arg not in NAMES_OF_LEARNER or not isinstance(value, ast.Constant):
            raise error
        changes[NAMES_OF_LEARNER[keyword.arg]] = value.value
    return changes


def _read_number(name: str, text: str) -> float | int:
    try:
        number = float(text)
    except ValueError:
        raise SettingError(f"policy: {name} must be a number, got {text!r}") from None
    return int(number) if name in WHOLE_NUMBERS and number.is_integer() else number
