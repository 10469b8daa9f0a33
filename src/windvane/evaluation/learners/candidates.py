"""Candidates: the policies that an evaluation compares, and the texts from which they are read.

A fixed candidate decides by the columns of a log. A learner and a policy learn from the log. A text
is such as "learner", "first" or "half_life(86400) * thompson(0.3)". The settings of a learner have
the names that they have in a loop, so that a loop and an evaluation read and write the same text:
"halfLife=2 days explorationPercentage=0.05".
"""

import ast
import copy
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Literal

from windvane import validation
from windvane.beliefs.adaptive import PredictiveMemory
from windvane.beliefs.chooser import Chooser
from windvane.beliefs.glm.policy import GeneralizedPolicy
from windvane.errors import SettingError
from windvane.evaluation.learners.own_policies import (
    FunctionPolicy,
    LogPolicy,
    OwnPolicy,
    can_learn,
    read_own,
)
from windvane.evaluation.log_batch import LogFacts
from windvane.exploration import Exploration, read_exploration
from windvane.features import ALL_CROSSINGS
from windvane.learner import Learner
from windvane.memory import Memory, read_memory
from windvane.names import NAMES, named
from windvane.policy import Policy
from windvane.settings import AUTO, EXPLORATION

if TYPE_CHECKING:
    from numpy.random import SeedSequence

Rule = Literal["logged", "first", "random", "action", "own"]
BeliefName = Literal["full", "diagonal", "logistic", "poisson"]
FULL_DIM = 128  # numbers of an action, from hashed features
DIAGONAL_DIM = 2**20
# What a text may ask for; all of it is checked before anything that the text names is built.
MAX_TEXT_LENGTH = 1024
MAX_TEXT_NODES = 300  # of the syntax tree
MAX_TEXT_DEPTH = 20
MAX_TEXT_NUMBER = 1e15
MAX_GRID_POINTS = 10_000
MAX_DIMS = {"diagonal": 2**30, "predictive": 512}
MAX_FULL_DIM = 1024  # of all other policies, which have matrices (dim, dim)
DEFAULT_LEARNER = "default learner"
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
OPTIONS = {  # by what stands before the brackets of a text
    **dict.fromkeys(("full", "diagonal", "logistic", "poisson"), ("dim", "ridge", "floor")),
    "predictive": ("dim", "floor"),
}
NAMED_OPTIONS = ("dim", "drift", "noise", "link", "floor")


@dataclass(frozen=True)
class FixedCandidate:
    """A rule that never learns: what was logged, the first, any or one action, or an own policy."""

    name: str
    text: str
    rule: Rule
    action: str = ""  # the id, for the rule "action"
    own: OwnPolicy | None = None  # for the rule "own"


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

    def build(self, seed: int) -> Learner:
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
    needs_facts: bool = False


@dataclass(frozen=True)
class ObjectCandidate:
    """A learner of a program: it has rank and reward, or choose and learn."""

    name: str
    text: str
    learner: object


Candidate = FixedCandidate | LearnerCandidate | PolicyCandidate | ObjectCandidate


@dataclass(frozen=True)
class PolicyMaker:
    """Makes a policy of a memory and an exploration."""

    memory: Memory | None  # None: the policy finds its memory by prediction
    exploration: Exploration
    belief: BeliefName = "full"
    dim: int = FULL_DIM
    ridge: float = 1.0
    floor: float = 0.0

    def __call__(self, facts: LogFacts, seed: "int | SeedSequence") -> Chooser:
        exploration, rest = self.exploration, (self.ridge, seed, self.floor)
        if self.memory is None:
            return PredictiveMemory(self.dim, exploration, seed=seed, floor=self.floor)
        if self.belief in ("full", "diagonal"):
            return Policy(self.dim, self.memory, exploration, *rest, belief=self.belief)
        if not exploration.kind.works_with_link or exploration.pseudo != "normal":
            message = "the exploration must be perturbed_history(scale)"
            raise SettingError(f"{self.belief}: {message}, got {exploration!r}")
        return GeneralizedPolicy(self.dim, self.belief, self.memory, exploration.factor, *rest)


@dataclass(frozen=True)
class NamedMaker:
    """Makes a named policy, tuned for as many rounds as the log has rows."""

    name: str
    dim: int = FULL_DIM
    drift: float = DEFAULT_DRIFT
    noise: float | None = None  # None: the standard deviation of the rewards
    link: str = ""
    floor: float = 0.0

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
    candidate.build(seed=0)
    return candidate


def make_policy(maker: PolicyMaker | NamedMaker, text: str) -> PolicyCandidate:
    """Make a candidate of a policy, which is checked at once: a small one is made."""
    replace(maker, dim=2)(LogFacts(100, 2, 1.0), 0)
    return PolicyCandidate(text, text, maker, needs_facts=isinstance(maker, NamedMaker))


def wrap_object(policy: object) -> Candidate:
    """Make a candidate of a policy or a learner of a program; the object itself never changes."""
    if isinstance(policy, Candidate):
        return policy
    if isinstance(policy, Learner):
        settings = policy.half_life, policy.exploration, policy.crossings, policy.array_size
        return LearnerCandidate(repr(policy), repr(policy), *settings, learner=policy)
    if isinstance(policy, Chooser):
        return PolicyCandidate(repr(policy), repr(policy), CopyMaker(policy))
    if isinstance(policy, OwnPolicy):
        return FixedCandidate(policy.name, policy.name, "own", own=policy)
    name = getattr(policy, "__name__", type(policy).__name__)
    if can_learn(policy):
        return ObjectCandidate(name, name, policy)
    if hasattr(policy, "iterate_batches"):
        return wrap_object(LogPolicy(policy))  # type: ignore[arg-type]
    if callable(policy):
        return wrap_object(FunctionPolicy(name, policy))
    raise SettingError(
        f"evaluate: a candidate must be a text, a policy or a learner, got {policy!r}"
    )


def read_candidate(text: str) -> Candidate:
    """Read a candidate; the error of a text that cannot be read lists what is accepted.

    >>> read_candidate("halfLife=2 days explorationPercentage=0.05").half_life
    '2 days'
    >>> read_candidate("full(keep() * epsilon(0.1), dim=64)").make.dim
    64
    """
    return parse_candidate(text)()


def parse_candidate(text: str) -> Callable[[], Candidate]:
    """Check a text against the bounds of this file; the result builds the candidate.

    To build a policy compiles code for seconds, so a service only parses what a request names.
    """
    if not isinstance(text, str):
        raise SettingError(f"policy: must be a text, got {text!r}")
    stripped = text.strip()
    _check_length(stripped)
    if stripped in ("logged", "first", "random"):
        return partial(make_fixed, stripped)  # type: ignore[arg-type]
    if stripped.startswith("action=") and len(stripped) > len("action="):
        return partial(make_fixed, "action", stripped.removeprefix("action="))
    settings = read_settings(stripped)
    if settings is not None:
        keywords = {KEYWORDS[name]: value for name, value in settings.items()}
        learner = make_learner(**keywords, text=stripped)  # type: ignore[arg-type]
        return lambda: learner  # a small object
    names = (row.name for row in NAMES if f"{stripped}(".startswith(f"{row.name}("))
    if name := max(names, key=len, default=""):
        options = _read_options(stripped[len(name) :], stripped)
        _check_options(name, options, stripped)
        return partial(make_policy, NamedMaker(name, **options), stripped)  # type: ignore[arg-type]
    return _parse_expression(stripped)


def as_candidate(candidate: object) -> Candidate:
    """The candidate that a text, a policy, a learner or a candidate stands for."""
    if not isinstance(candidate, str):
        return wrap_object(candidate)
    own = read_own(candidate)
    if own is None:
        return read_candidate(candidate)
    return replace(wrap_object(own), name=candidate.strip(), text=candidate.strip())


def list_candidates(candidates: Sequence[object]) -> list[Candidate]:
    """Read candidates, and give equal names a number."""
    if isinstance(candidates, str) or not candidates:
        raise SettingError("evaluate: at least one candidate must be given, in a list")
    listed = [as_candidate(item) for item in candidates]
    seen: dict[str, int] = {}
    for place, candidate in enumerate(listed):
        seen[candidate.name] = number = seen.get(candidate.name, 0) + 1
        if number > 1:
            listed[place] = replace(candidate, name=f"{candidate.name} #{number}")
    return listed


def _check_length(text: str) -> None:
    if len(text) > MAX_TEXT_LENGTH:
        message = f"policy: a text must have at most {MAX_TEXT_LENGTH} characters"
        raise SettingError(f"{message}, got {len(text)}")


def _parse_tree(expression: str, text: str) -> ast.expr:
    """The syntax tree of an expression, which is as small as all code after this expects."""
    _check_length(text)
    try:
        root = ast.parse(expression, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise _refuse(text) from None
    waiting: list[tuple[ast.AST, int]] = [(root, 1)]
    for count, (node, depth) in enumerate(waiting, 1):  # the list grows meanwhile
        if count > MAX_TEXT_NODES or depth > MAX_TEXT_DEPTH:
            message = f"policy: a text must have at most {MAX_TEXT_NODES} parts"
            raise SettingError(f"{message}, nested {MAX_TEXT_DEPTH} deep, got {text[:80]!r}")
        value = getattr(node, "value", None)
        if isinstance(value, int | float) and not abs(value) <= MAX_TEXT_NUMBER:
            message = f"policy: numbers must be at most {MAX_TEXT_NUMBER:g} in size"
            raise SettingError(f"{message}, got {text[:80]!r}")
        waiting += ((child, depth + 1) for child in ast.iter_child_nodes(node))
    return root


def _check_options(kind: str, options: Mapping[str, object], text: str) -> None:
    """Refuse an option that a policy does not have, or whose value is out of bounds."""
    known = OPTIONS.get(kind, NAMED_OPTIONS)
    most = MAX_DIMS.get(kind, MAX_FULL_DIM)
    for name, value in options.items():
        if name not in known:
            raise SettingError(f"policy: there is no option {name!r} in {text!r}")
        if name == "dim" and validation.whole(kind, name, value, least=2) > most:
            raise SettingError(f"{kind}: dim must be at most {most}, got {value}")
        if name in ("ridge", "drift", "noise"):
            validation.positive(kind, name, value)
        elif name == "floor":
            validation.share(kind, name, value)


def add_reference(
    candidates: Sequence[Candidate], reference: object = None
) -> tuple[list[Candidate], str]:
    """Add the candidate that all others are compared with, if it is not there; and its name.

    By default it is the default learner if a candidate learns, else what was logged.
    """
    if reference is None:
        learns = any(not isinstance(each, FixedCandidate) for each in candidates)
        reference = (
            replace(make_learner(), name=DEFAULT_LEARNER) if learns else make_fixed("logged")
        )
        if not learns and reference not in candidates:
            return list(candidates), ""
    by_name = [each.name for each in candidates if each.name == reference]
    if by_name:
        return list(candidates), by_name[0]
    wanted = as_candidate(reference)
    for each in candidates:
        if replace(each, name="", text="") == replace(wanted, name="", text=""):
            return list(candidates), each.name
    return [*candidates, wanted], wanted.name


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
    if unknown := [option for option in options if option not in names]:
        hint = validation.suggest(unknown[0], names, f"; options are {', '.join(names)}")
        raise SettingError(f"policy: there is no option {unknown[0]!r} in {text!r}{hint}")
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


def _parse_expression(text: str) -> Callable[[], Candidate]:
    """Parse "MEMORY * EXPLORATION" or a call such as diagonal(MEMORY * EXPLORATION, dim=...)."""
    tree = _parse_tree(text, text)
    if isinstance(tree, ast.BinOp) and isinstance(tree.op, ast.Mult):
        return partial(make_policy, PolicyMaker(*_read_pair(tree)), text)
    kind = getattr(getattr(tree, "func", None), "id", "")
    if not isinstance(tree, ast.Call) or kind not in OPTIONS:
        raise _refuse(text)
    options = _read_keywords(tree, text)
    if len(tree.args) != 1:
        raise SettingError(f"policy: {kind} needs one policy in its brackets, got {text!r}")
    inner = tree.args[0]
    _check_options(kind, options, text)
    if kind == "diagonal":
        options = {"dim": DIAGONAL_DIM} | options
    if kind == "predictive":
        maker = PolicyMaker(None, _read_exploration(inner), **options)  # type: ignore[arg-type]
    elif not isinstance(inner, ast.BinOp) or not isinstance(inner.op, ast.Mult):
        raise SettingError(f"policy: {kind} needs MEMORY * EXPLORATION, got {text!r}")
    else:
        maker = PolicyMaker(*_read_pair(inner), kind, **options)  # type: ignore[arg-type]
    return partial(make_policy, maker, text)


def _read_pair(product: ast.BinOp) -> tuple[Memory, Exploration]:
    return read_memory(ast.unparse(product.left)), _read_exploration(product.right)


def _read_exploration(tree: ast.expr) -> Exploration:
    exploration = read_exploration(ast.unparse(tree))
    if exploration.law is not None and exploration.law.points > MAX_GRID_POINTS:
        raise SettingError(
            f"grid: points must be at most {MAX_GRID_POINTS}, got {exploration.law.points}"
        )
    return exploration


def _read_options(brackets: str, text: str) -> dict[str, object]:
    """Read the keywords in brackets after a name."""
    if not brackets:
        return {}
    tree = _parse_tree(f"name{brackets}", text)
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


def _refuse(text: str) -> SettingError:
    return SettingError(f"policy: {text!r} cannot be read; accepted are {ACCEPTED}")
