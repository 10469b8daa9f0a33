"""Read candidates from text, such as "learner", "first" or "half_life(86400) * thompson(0.3)"."""

import ast
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from windvane import text_form, validation
from windvane.beliefs.adaptive.policies import PredictiveMemory
from windvane.chooser import Chooser
from windvane.errors import SettingError
from windvane.evaluation.learners.candidates import (
    FULL_DIM,
    Candidate,
    FixedCandidate,
    PolicyCandidate,
    make_fixed,
    make_learner,
    make_named,
    make_policy,
    wrap_object,
)
from windvane.evaluation.log_batch import LogFacts
from windvane.names import NAMES

ACCEPTED = (
    'logged, first, random, action=ID, learner, settings such as "halfLife=2 days '
    'explorationPercentage=0.05", "MEMORY * EXPLORATION", full(...), diagonal(...), '
    "predictive(EXPLORATION), logistic(...), poisson(...), or a name that `windvane policies` lists"
)
SETTING_NAME = re.compile(r"(?:^|(?<=[\s,;]))([A-Za-z]+)=")
SETTINGS_OF_LEARNER = ("halfLife", "explorationPercentage", "crossings", "arraySize")
Result = TypeVar("Result")
CALLS = ("learner", "full", "diagonal", "predictive", "logistic", "poisson")


def read_candidate(text: str) -> Candidate:
    """Read a candidate; the error of a text that cannot be read lists what is accepted.

    >>> read_candidate("halfLife=2 days explorationPercentage=0.05").half_life
    '2 days'
    >>> read_candidate("half_life(86400) * randomized(half_normal(0.3))").clock
    'time'
    """
    if not isinstance(text, str):
        raise SettingError(f"policy: must be a text, got {text!r}")
    stripped = text.strip()
    if stripped in ("logged", "first", "random"):
        return make_fixed(stripped)  # type: ignore[arg-type]
    if stripped.startswith("action=") and len(stripped) > len("action="):
        return make_fixed("action", stripped.removeprefix("action="))
    if stripped == "learner":
        return make_learner()
    if SETTING_NAME.match(stripped):
        return _read_settings(stripped)
    if name := _match_name(stripped):
        options = _read_options(stripped[len(name) :], stripped)
        return _call(stripped, make_named, name, **options, text=stripped)
    return _read_expression(stripped)


def as_candidate(candidate: object) -> Candidate:
    """The candidate that a text, a policy, a learner or a candidate stands for."""
    return read_candidate(candidate) if isinstance(candidate, str) else wrap_object(candidate)


def list_candidates(candidates: Sequence[object]) -> list[Candidate]:
    """Read candidates, add those on another clock, and give equal names a number."""
    if isinstance(candidates, str) or not candidates:
        raise SettingError("evaluate: at least one candidate must be given, in a list")
    listed: list[Candidate] = []
    for item in candidates:
        candidate = as_candidate(item)
        listed.append(candidate)
        if not isinstance(candidate, FixedCandidate) and candidate.other_clock is not None:
            listed.append(candidate.other_clock)
    seen: dict[str, int] = {}
    for place, candidate in enumerate(listed):
        seen[candidate.name] = number = seen.get(candidate.name, 0) + 1
        if number > 1:
            listed[place] = replace(candidate, name=f"{candidate.name} #{number}")
    return listed


class _PredictiveMaker:
    """Makes a policy that finds its memory by prediction."""

    def __init__(self, exploration: str, dim: int, floor: float) -> None:
        self.exploration = exploration
        self.dim = dim
        self.floor = floor

    def __call__(self, facts: LogFacts, seed: object) -> Chooser:
        return PredictiveMemory(self.dim, self.exploration, seed=seed, floor=self.floor)  # type: ignore[arg-type]


def _match_name(text: str) -> str:
    """The longest name of a policy at the start of a text, alone or before "("."""
    fitting = [row.name for row in NAMES if text == row.name or text.startswith(f"{row.name}(")]
    return max(fitting, key=len, default="")


def _read_settings(text: str) -> Candidate:
    """Read settings as the service names them, separated by spaces, commas or semicolons."""
    places = list(SETTING_NAME.finditer(text))
    ends = [place.start() for place in places[1:]] + [len(text)]
    settings: dict[str, str] = {}
    for place, end in zip(places, ends, strict=True):
        if place[1] in settings:
            raise SettingError(f"policy: the setting {place[1]} is given twice in {text!r}")
        settings[place[1]] = text[place.end() : end].strip().rstrip(",;").strip()
    names = SETTINGS_OF_LEARNER
    for name in settings:
        if name not in names:
            hint = validation.suggest(name, names, f"; settings of a policy are {', '.join(names)}")
            raise SettingError(f"policy: there is no setting {name!r}{hint}")
    return _call(
        text,
        make_learner,
        half_life=settings.get("halfLife", "auto"),
        exploration_percentage=_read_number(settings.get("explorationPercentage", "0.02"), text),
        crossings=settings.get("crossings", "context*action"),
        array_size=_read_whole(settings.get("arraySize", "0"), text),
        text=text,
    )


def _read_expression(text: str) -> Candidate:
    """Read "MEMORY * EXPLORATION" or a call such as diagonal(MEMORY * EXPLORATION, dim=...)."""
    try:
        tree = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise _refuse(text) from None
    if isinstance(tree, ast.BinOp) and isinstance(tree.op, ast.Mult):
        return _call(text, make_policy, *_read_pair(tree), text=text)
    if not isinstance(tree, ast.Call) or not isinstance(tree.func, ast.Name):
        raise _refuse(text)
    kind = tree.func.id
    if kind not in CALLS:
        raise _refuse(text)
    options = _read_keywords(tree, text)
    if kind == "learner":
        if tree.args:
            raise SettingError(
                f"policy: learner takes half_life=, exploration_percentage= and crossings=, "
                f"got {text!r}"
            )
        return _call(text, make_learner, **options, text=text)
    if len(tree.args) != 1:
        raise SettingError(f"policy: {kind} needs one policy in its brackets, got {text!r}")
    inner = tree.args[0]
    if kind == "predictive":
        exploration = ast.unparse(inner)
        text_form.read_exploration(exploration)
        maker = _call(
            text, _PredictiveMaker, exploration, **({"dim": FULL_DIM, "floor": 0.0} | options)
        )
        maker(LogFacts(1, 1, 1.0), 0)
        return PolicyCandidate(text, text, maker, clock="rounds")
    if not isinstance(inner, ast.BinOp) or not isinstance(inner.op, ast.Mult):
        raise SettingError(f"policy: {kind} needs MEMORY * EXPLORATION, got {text!r}")
    return _call(text, make_policy, *_read_pair(inner), belief=kind, **options, text=text)


def _read_pair(product: ast.BinOp) -> tuple[object, object]:
    return (
        text_form.read_memory(ast.unparse(product.left)),
        text_form.read_exploration(ast.unparse(product.right)),
    )


def _read_options(brackets: str, text: str) -> dict[str, object]:
    """Read the keywords in brackets after a name."""
    if not brackets:
        return {}
    try:
        tree = ast.parse(f"name{brackets}", mode="eval").body
    except SyntaxError:
        raise _refuse(text) from None
    if not isinstance(tree, ast.Call) or tree.args:
        raise _refuse(text)
    return _read_keywords(tree, text)


def _read_keywords(call: ast.Call, text: str) -> dict[str, object]:
    options: dict[str, object] = {}
    for keyword in call.keywords:
        if keyword.arg is None or not isinstance(keyword.value, ast.Constant):
            raise SettingError(f"policy: options must be plain values, got {text!r}")
        options[keyword.arg] = keyword.value.value
    return options


def _call(
    source: str, function: Callable[..., Result], /, *positional: object, **named: object
) -> Result:
    """Call a function that makes a candidate; an unknown option is a mistake of the text."""
    try:
        return function(*positional, **named)
    except TypeError as reason:
        unknown = re.search(r"argument '(\w+)'", str(reason))
        what = f"there is no option {unknown[1]!r}" if unknown else str(reason)
        raise SettingError(f"policy: {what} in {source!r}") from None


def _read_number(value: str, text: str) -> float:
    try:
        return float(value)
    except ValueError:
        raise SettingError(f"policy: {value!r} must be a number in {text!r}") from None


def _read_whole(value: str, text: str) -> int:
    if not value.isdecimal():
        raise SettingError(f"policy: {value!r} must be a whole number in {text!r}")
    return int(value)


def _refuse(text: str) -> SettingError:
    return SettingError(f"policy: {text!r} cannot be read; accepted are {ACCEPTED}")
