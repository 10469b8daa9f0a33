"""Policies as text, such as "learner", "first" or "half_life(86400) * thompson(0.3)".

The settings of a learner have the names that they have in a loop, so that a loop and an evaluation
read and write the same text: "halfLife=2 days explorationPercentage=0.05".
"""

import ast
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from windvane import validation
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
from windvane.exploration import read_exploration
from windvane.memory import read_memory
from windvane.names import NAMES

ACCEPTED = (
    'logged, first, random, action=ID, learner, settings such as "halfLife=2 days '
    'explorationPercentage=0.05", "MEMORY * EXPLORATION", full(...), diagonal(...), '
    "predictive(EXPLORATION), logistic(...), poisson(...), or a name that `windvane policies` lists"
)
SETTING_NAME = re.compile(r"(?:^|(?<=[\s,;]))([A-Za-z]+)=")
KEYWORDS = {  # of `Learner`, by the names of a loop's settings
    "halfLife": "half_life",
    "explorationPercentage": "exploration",
    "crossings": "crossings",
    "arraySize": "array_size",
}
Result = TypeVar("Result")
CALLS = ("full", "diagonal", "predictive", "logistic", "poisson")


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
    settings = read_settings(stripped)
    if settings is not None:
        keywords = {KEYWORDS[name]: value for name, value in settings.items()}
        return make_learner(**keywords, text=stripped)  # type: ignore[arg-type]
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


def read_settings(text: str) -> dict[str, str | float] | None:
    """Read the settings of a learner by their names in a loop; None if the text is not of one.

    >>> read_settings("halfLife=2 days, explorationPercentage=0.05")
    {'halfLife': '2 days', 'explorationPercentage': 0.05}
    >>> read_settings("learner(half_life='2 days')")
    {'halfLife': '2 days'}
    """
    if SETTING_NAME.match(text):
        return _split_settings(text)
    name, bracket, _ = text.partition("(")
    if name.strip().lower() != "learner":
        return None
    names = {keyword: name for name, keyword in KEYWORDS.items()}
    options = _read_options(text[len(name) :], text) if bracket else {}
    for option in options:
        if option not in names:
            hint = validation.suggest(option, names, f"; options are {', '.join(names)}")
            raise SettingError(f"policy: there is no option {option!r} in {text!r}{hint}")
    return {names[option]: value for option, value in options.items()}  # type: ignore[misc]


def format_settings(settings: Mapping[str, object]) -> str:
    """Write settings so that `read_settings` reads them.

    >>> format_settings({"halfLife": "2 days", "explorationPercentage": 0.05})
    'halfLife=2 days explorationPercentage=0.05'
    """
    return " ".join(f"{name}={value}" for name, value in settings.items())


def read_number(name: str, text: str) -> float:
    """Read the value of a setting or flag that is a number."""
    try:
        return float(text)
    except ValueError:
        raise SettingError(f"policy: {name} must be a number, got {text!r}") from None


def _split_settings(text: str) -> dict[str, str | float]:
    """Read settings that are separated by spaces, commas or semicolons."""
    places = list(SETTING_NAME.finditer(text))
    ends = [place.start() for place in places[1:]] + [len(text)]
    settings: dict[str, str | float] = {}
    for place, end in zip(places, ends, strict=True):
        name, value = place[1], text[place.end() : end].strip().rstrip(",;").strip()
        if name not in KEYWORDS:
            names = ", ".join(KEYWORDS)
            hint = validation.suggest(name, list(KEYWORDS), f"; settings of a policy are {names}")
            raise SettingError(f"policy: there is no setting {name!r}{hint}")
        if name in settings:
            raise SettingError(f"policy: {name} must be given once, got it twice")
        settings[name] = value
        if name == "explorationPercentage":
            settings[name] = read_number(name, value)
        elif name == "arraySize":
            if not value.isdecimal():
                raise SettingError(f"policy: {name} must be a whole number, got {value!r}")
            settings[name] = int(value)
    return settings


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
    if len(tree.args) != 1:
        raise SettingError(f"policy: {kind} needs one policy in its brackets, got {text!r}")
    inner = tree.args[0]
    if kind == "predictive":
        exploration = ast.unparse(inner)
        read_exploration(exploration)
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
        read_memory(ast.unparse(product.left)),
        read_exploration(ast.unparse(product.right)),
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


def _refuse(text: str) -> SettingError:
    return SettingError(f"policy: {text!r} cannot be read; accepted are {ACCEPTED}")
