"""The contract of a belief: what a policy asks of it, whatever its kind.

A policy has one `PolicyBelief`. It learns observations one by one under a memory, chooses among
arms by an exploration, computes propensities, and can be saved. Rows are arms as the kernels of the
belief read them, and a row is the features of one arm.
"""

import copy
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Generic, NoReturn, Self, TypeVar

import numpy as np

from windvane import persistence
from windvane.beliefs.full import layout
from windvane.beliefs.full.belief import Belief, export_counters, has_noise_estimate
from windvane.beliefs.full.layout import PolicyArrays
from windvane.errors import BeliefError, SettingError, shorten
from windvane.exploration import Exploration
from windvane.laws import estimate_noise
from windvane.memory import Memory
from windvane.persistence import Copyable
from windvane.types import Floats

Rows = TypeVar("Rows")
Row = TypeVar("Row")
Stack = TypeVar("Stack")  # several rows that are learned


class PolicyBelief(Copyable, ABC, Generic[Rows, Row, Stack]):
    """What a policy has learned, and all that depends on the kind of the belief.

    A method that raises has changed nothing.
    """

    def __init__(
        self, dim: int, memory: Memory, exploration: Exploration, ridge: float, floor: float
    ) -> None:
        self.dim = dim
        self.memory = memory
        self.exploration = exploration
        self.ridge = ridge
        self.check_parts()
        if exploration.predictive and memory.name != "kalman":
            raise SettingError(
                f"Policy: thompson(predictive=True) needs the memory kalman(...), got {memory!r}"
            )
        rules = layout.build_rules(dim, memory, exploration, ridge, floor)
        self.arrays = PolicyArrays(rules, np.zeros(1, layout.TALLY), np.empty(0), np.empty((0, 0)))

    @classmethod
    def check_size(cls, dim: int, arrays: persistence.Arrays) -> None:
        """Raise ValueError if saved arrays are much smaller than a belief of this dimension."""

    @abstractmethod
    def check_parts(self) -> None:
        """Refuse a memory or an exploration that this kind of belief does not support."""

    @abstractmethod
    def read_arms(self, arms: Any) -> Rows:
        """Return arms of any supported form as rows; their form is checked."""

    @abstractmethod
    def check_rows(self, rows: Rows) -> Rows:
        """Return the same rows if all their numbers are finite."""

    @abstractmethod
    def refuse_rows(self, rows: Rows) -> NoReturn:
        """Say why none of the rows could be chosen."""

    @abstractmethod
    def count_rows(self, rows: Rows) -> int:
        """Count the arms."""

    @abstractmethod
    def copy_row(self, rows: Rows, index: int) -> Row:
        """Return a copy of one row."""

    @abstractmethod
    def read_features(self, who: str, features: Any) -> Row:
        """Return the features of one arm, of any supported form, as a row."""

    @abstractmethod
    def stack(self, rows: Sequence[Row]) -> Stack:
        """Return rows in the form in which `learn_all` takes them."""

    @abstractmethod
    def choose(self, rows: Rows, key: int, round_: int) -> int:
        """Choose an arm in a round; the result is below 0 if the scores are not finite."""

    @abstractmethod
    def compute_propensities(
        self, rows: Rows, key: int, round_: int, samples: int, chosen: int | None
    ) -> Floats:
        """Return the probability with which `choose` chooses each arm, (K,)."""

    def choose_with_propensities(
        self, rows: Rows, key: int, round_: int, samples: int
    ) -> tuple[int, Floats]:
        """Return the choice of `choose` and the propensities."""
        index = self.choose(rows, key, round_)
        if index < 0:
            return index, np.empty(0)
        return index, self.compute_propensities(rows, key, round_, samples, index)

    @abstractmethod
    def predict(self, rows: Rows) -> Floats:
        """Return the predicted reward of each arm, (K,)."""

    @abstractmethod
    def measure_widths(self, rows: Rows) -> Floats:
        """Return the uncertainty about each arm, (K,)."""

    @property
    @abstractmethod
    def theta(self) -> Floats:
        """The estimate θ̂, (d,)."""

    @abstractmethod
    def learn(self, row: Row, reward: float, at: float) -> None:
        """Learn one observation."""

    @abstractmethod
    def learn_all(self, rows: Stack, rewards: Floats, at: Floats) -> None:
        """Learn observations that `check_learnable` has accepted, in order."""

    @abstractmethod
    def check_learnable(self, rows: Stack) -> None:
        """Refuse features that are not finite, or so large that too few digits are left."""

    @abstractmethod
    def amend(self, row: Row, more: float, at: float) -> None:
        """Add to the reward of an observation that was learned."""

    @property
    def alarms(self) -> int:
        """How often `detect` raised an alarm and dropped all observations."""
        return int(self.arrays.tally["alarms"][0])

    def estimate_noise(self) -> float:
        """Estimate the standard deviation of the noise."""
        if not has_noise_estimate(self.arrays):
            raise SettingError(
                "estimated_noise: a policy estimates its noise only if its exploration has a scale "
                f"such as posterior(0.5), got {self.exploration!r}"
            )
        return estimate_noise(
            *(self.arrays.tally[name].item() for name in layout.COUNTERS_OF_ERRORS)
        )

    def is_amendable(self) -> bool:
        """Whether the weight of an old observation is known, so that its reward can grow."""
        return self.memory.kind.amendable

    def make_room(self, more: int) -> None:
        """Make room for more past observations, if they are kept."""

    def make_blank(self) -> Self:
        """Return a belief that has learned nothing but the noise, which a restart keeps."""
        blank = copy.copy(self)
        blank.clear()
        for name in layout.COUNTERS_OF_ERRORS:
            blank.arrays.tally[name] = self.arrays.tally[name]
        return blank

    @abstractmethod
    def clear(self) -> None:
        """Replace all arrays by those of a belief that has learned nothing."""

    @abstractmethod
    def read(self) -> Belief:
        """Return the belief as copies of its sums."""

    @abstractmethod
    def write(self, belief: Belief) -> None:
        """Replace what was learned by a belief, once `check_settings` has accepted it."""

    def check_settings(self, belief: Belief) -> None:
        """Refuse a belief of another kind or with other settings."""
        kind = type(self.read())
        if type(belief) is not kind:
            raise BeliefError(f"belief: a {kind.__name__} must be given, got {shorten(belief)}")
        ours = (self.memory, self.ridge, self.dim)
        theirs = (belief.memory, belief.ridge, belief.dim)
        if ours != theirs:
            raise BeliefError(
                f"belief: memory, ridge and dim of this policy are {ours!r}, got {theirs!r}"
            )

    def export_counters(self) -> dict[str, float]:
        """Return the counters as the header of a saved file holds them."""
        return export_counters(self.arrays)

    @abstractmethod
    def export_arrays(self) -> persistence.Arrays:
        """Return the arrays as a saved file holds them."""

    def list_comparable_arrays(self) -> persistence.Arrays:
        """Return the arrays without spare room."""
        return self.export_arrays()

    @abstractmethod
    def restore(self, counters: dict[str, float], arrays: persistence.Arrays) -> None:
        """Take over saved counters and arrays; raise ValueError if they do not fit."""
