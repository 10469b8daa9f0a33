"""Candidates: the policies that an evaluation compares, before they see the log.

A fixed candidate decides by the columns of a log. A learner and a policy learn while the log is
replayed.
"""

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from windvane import validation
from windvane.beliefs.adaptive.policies import Adaptive
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

Rule = Literal["logged", "first", "random", "action"]
Clock = Literal["none", "rounds", "time", "rows"]
BeliefName = Literal["full", "diagonal", "logistic", "poisson"]
FULL_DIM = 128  # numbers of an action, from hashed features
DIAGONAL_DIM = 2**20
DEFAULT_DRIFT = 1.0  # the total movement of θ for which a named policy is tuned


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
    learner = Learner(
        half_life=half_life,
        exploration=exploration,
        crossings=crossings,
        array_size=array_size,
        seed=0,
    )
    text = text or "learner"
    clock = _find_clock(learner)
    candidate = LearnerCandidate(
        text, text, half_life, exploration, crossings, array_size, clock=clock
    )
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
    PolicyMaker(belief, memory, exploration, 2, ridge, floor)(LogFacts(1, 1, 1.0), 0)
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
    NamedMaker(name, 2, drift, noise, link, floor)(LogFacts(100, 2, 1.0), 0)
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
