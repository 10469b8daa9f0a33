"""Candidates: the policies that an evaluation compares, and the texts from which they are read.

A fixed candidate decides by the columns of a log. A learner and a policy learn while the log is
replayed. A text is such as "learner", "first" or "half_life(86400) * thompson(0.3)". The settings
of a learner have the names that they have in a loop, so that a loop and an evaluation read and
write the same text: "halfLife=2 days explorationPercentage=0.05".
"""

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from windvane import validation
from windvane.beliefs.adaptive import Adaptive
from windvane.beliefs.bank.settings import AUTO, EXPLORATION
from windvane.beliefs.glm.policy import GeneralizedPolicy
from windvane.chooser import Chooser
from windvane.errors import SettingError
from windvane.evaluation.log_batch import LogFacts
from windvane.exploration import Exploration
from windvane.features import ALL_CROSSINGS
from windvane.learner import Learner
from windvane.memory import Memory, half_life
from windvane.names import find_name, named
from windvane.policy import Policy

if TYPE_CHECKING:
    from numpy.random import SeedSequence

import ast
import re
from collections.abc import Mapping, Sequence
from typing import TypeVar

from windvane.beliefs.adaptive import PredictiveMemory
from windvane.exploration import read_exploration
from windvane.memory import read_memory
from windvane.names import NAMES

Rule = Literal["logged", "first", "random", "action"]
Clock = Literal["none", "rounds", "time", "rows"]
BeliefName = Literal["full", "diagonal", "logistic", "poisson"]
FULL_DIM = 128  # numbers of an action, from hashed features
DIAGONAL_DIM = 2**20
DEFAULT_DRIFT = 1.0  # the total movement of θ for which a named policy is tuned
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


@dataclass(frozen=True)
class FixedCandidate:
    """A rule that never learns: what was logged, the first action, any action, or one action."""

    name: str
    text: str
    rule: Rule
    action: str = ""  # the id, for the rule "action"


@dataclass(frozen=True)
class LearnerCandidate:
    """A `Learner` with its settings, or a copy of one that has learned already."""

    name: str
    text: str
    half_life: str = AUTO
    exploration: float = EXPLORATION
    crossings: str = ALL_CROSSINGS
    array_size: int = 0
    learner: Learner | None = None
    clock: Clock = "time"
    other_clock: "LearnerCandidate | None" = None  # the same learner on the other clock

    def build(self, seed: int) -> Learner:
        """Make a learner that the replay may change."""
        if self.learner is not None:
            return copy.copy(self.learner)
        return Learner(
            half_life=self.half_life,
            exploration=self.exploration,
            crossings=self.crossings,
            array_size=self.array_size,
            seed=seed,
        )


@dataclass(frozen=True)
class PolicyCandidate:
    """A policy over hashed features."""

    name: str
    text: str
    make: "Callable[[LogFacts, int | SeedSequence], Chooser]"
    clock: Clock
    needs_facts: bool = False
    other_clock: "PolicyCandidate | None" = None  # the same policy on the other clock

    def build(self, facts: LogFacts, seed: int) -> Chooser:
        """Make a policy that the replay may change."""
        return self.make(facts, seed)


Candidate = FixedCandidate | LearnerCandidate | PolicyCandidate


@dataclass(frozen=True)
class PolicyMaker:
    """Makes a policy of a memory and an exploration."""

    belief: BeliefName
    memory: Memory
    exploration: Exploration
    dim: int
    ridge: float
    floor: float

    def __call__(self, facts: LogFacts, seed: "int | SeedSequence") -> Chooser:
        parts = (self.memory, self.exploration, self.ridge, seed, self.floor)
        if self.belief in ("full", "diagonal"):
            return Policy(self.dim, *parts, belief=self.belief)
        scale = self.exploration.factor
        return GeneralizedPolicy(
            self.dim, self.belief, self.memory, scale, self.ridge, seed, self.floor
        )


@dataclass(frozen=True)
class NamedMaker:
    """Makes a named policy, tuned for as many rounds as the log has rows."""

    name: str
    dim: int
    drift: float
    noise: float | None  # None: the standard deviation of the rewards
    link: str
    floor: float

    def __call__(self, facts: LogFacts, seed: "int | SeedSequence") -> Chooser:
        return named(
            self.name,
            dim=self.dim,
            horizon=max(facts.rows, 2),
            drift=self.drift,
            arms=max(facts.most_actions, 2),
            noise=self.noise or facts.reward_deviation or 1.0,
            seed=seed,
            floor=self.floor,
            link=self.link,
        )


@dataclass(frozen=True)
class CopyMaker:
    """Copies a policy that a program gave, with all that it has learned."""

    policy: Chooser

    def __call__(self, facts: LogFacts, seed: "int | SeedSequence") -> Chooser:
        return copy.copy(self.policy)


def make_fixed(rule: Rule, action: str = "") -> FixedCandidate:
    """Make a fixed candidate."""
    text = f"action={action}" if rule == "action" else rule
    return FixedCandidate(text, text, rule, action)


def make_learner(
    half_life: str = AUTO,
    exploration: float = EXPLORATION,
    crossings: str = ALL_CROSSINGS,
    array_size: int = 0,
    text: str = "",
) -> LearnerCandidate:
    """Make a candidate of the settings of a learner; they are checked at once."""
    text = text or "learner"
    candidate = LearnerCandidate(text, text, half_life, exploration, crossings, array_size)
    clock = _find_clock(candidate.build(seed=0))
    candidate = replace(candidate, clock=clock)
    if clock != "rounds":
        return candidate
    other = replace(candidate, name=f"{text}, in time", clock="rows")
    return replace(candidate, name=f"{text}, in rounds", other_clock=other)


def make_policy(
    memory: Memory,
    exploration: Exploration,
    belief: BeliefName = "full",
    dim: int | None = None,
    ridge: float = 1.0,
    floor: float = 0.0,
    text: str = "",
    clock: Clock | None = None,
) -> PolicyCandidate:
    """Make a candidate of a memory and an exploration; they are checked at once."""
    default_dim = DIAGONAL_DIM if belief == "diagonal" else FULL_DIM
    dim = default_dim if dim is None else validation.whole(belief, "dim", dim, least=2)
    _check_link(belief, exploration)
    text = text or _describe(memory, exploration, belief, dim, ridge, floor)
    maker = PolicyMaker(belief, memory, exploration, dim, ridge, floor)
    replace(maker, dim=2)(LogFacts(1, 1, 1.0), 0)
    if clock is None:
        clock = _find_clock_of_memory(memory)
    candidate = PolicyCandidate(text, text, maker, clock)
    span = _find_span(memory) if clock == "rounds" and belief in ("full", "diagonal") else None
    if span is None:
        return candidate
    other = PolicyCandidate(f"{text}, in time", text, replace(maker, memory=span), clock="rows")
    return replace(candidate, name=f"{text}, in rounds", other_clock=other)


def make_named(
    name: str,
    dim: int = FULL_DIM,
    drift: float = DEFAULT_DRIFT,
    noise: float | None = None,
    link: str = "",
    floor: float = 0.0,
    text: str = "",
) -> PolicyCandidate:
    """Make a candidate of a name of the literature; it is checked at once."""
    row = find_name(name)
    validation.positive(name, "drift", drift)
    maker = NamedMaker(name, dim, drift, noise, link, floor)
    replace(maker, dim=2)(LogFacts(100, 2, 1.0), 0)
    clock: Clock = "none" if row.memory == "keep" else "rounds"
    return PolicyCandidate(text or name, text or name, maker, clock, needs_facts=True)


def wrap_object(policy: object) -> Candidate:
    """Make a candidate of a policy or a learner of a program; the object itself never changes."""
    if isinstance(policy, FixedCandidate | LearnerCandidate | PolicyCandidate):
        return policy
    if isinstance(policy, Learner):
        text = repr(policy)
        return LearnerCandidate(
            text,
            text,
            policy.half_life,
            policy.exploration,
            policy.crossings,
            policy.array_size,
            learner=policy,
            clock=_find_clock(policy),
        )
    if isinstance(policy, Chooser):
        is_adaptive = isinstance(policy, Adaptive)
        clock: Clock = "rounds" if is_adaptive else _find_clock_of_memory(policy.memory)
        return PolicyCandidate(repr(policy), repr(policy), CopyMaker(policy), clock)
    raise SettingError(
        f"evaluate: a candidate must be a text, a policy or a learner, got {policy!r}"
    )


def _find_span(memory: Memory) -> Memory | None:
    """The half-life, counted in rows of the log, by which a memory fades; None if there is none.

    γⁿ = 2^(−n/h) with h = log ½ / log γ: of the rows between two accepted ones, each counts.
    """
    if memory.kind.is_timed:
        return memory
    if memory.name == "discount" and not memory.single:
        return half_life(math.log(0.5) / math.log(memory.gamma))
    return None


def _find_clock(learner: Learner) -> Clock:
    if learner.ages_in_rounds:
        return "rounds"
    return "none" if learner.half_life.strip().lower() == "never" else "time"


def _find_clock_of_memory(memory: Memory) -> Clock:
    if memory.kind.is_timed:
        return "time"
    return "none" if memory.kind.clock == "none" else "rounds"


def _check_link(belief: BeliefName, exploration: Exploration) -> None:
    if belief not in ("logistic", "poisson"):
        return
    if not exploration.kind.works_with_link or exploration.pseudo != "normal":
        raise SettingError(
            f"{belief}: the exploration must be perturbed_history(scale), got {exploration!r}"
        )


def _describe(
    memory: Memory,
    exploration: Exploration,
    belief: BeliefName,
    dim: int,
    ridge: float,
    floor: float,
) -> str:
    """The text of a policy, as `read_candidate` reads it."""
    pair = f"{memory!r} * {exploration!r}"
    defaults = {"dim": DIAGONAL_DIM if belief == "diagonal" else FULL_DIM, "ridge": 1.0, "floor": 0}
    settings = {"dim": dim, "ridge": ridge, "floor": floor}
    options = [f"{key}={value!r}" for key, value in settings.items() if value != defaults[key]]
    if belief == "full" and not options:
        return pair
    return f"{belief}({', '.join([pair, *options])})"


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


@dataclass(frozen=True)
class _PredictiveMaker:
    """Makes a policy that finds its memory by prediction."""

    exploration: str
    dim: int
    floor: float

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
