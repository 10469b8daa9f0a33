"""Logged decisions as columns, and the interface of a log that can be evaluated.

A log gives its decisions in batches, so that a log of any size needs little memory. The features of
a decision are parsed only if somebody asks for them: a policy without features needs numbers only.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol

from windvane.features.json_reader import JsonObjects
from windvane.types import Booleans, Floats, Places


class LoggedAction(NamedTuple):
    """An action that was offered."""

    id: str
    features: JsonObjects


class DecisionFeatures(NamedTuple):
    """What was known when a decision was made."""

    context: JsonObjects
    actions: Sequence[LoggedAction]


class LogBatch(NamedTuple):
    """Decisions in the order of time; row i offers the actions starts[i] to starts[i + 1]."""

    event_ids: Sequence[str]  # of n rows
    times: Floats  # (n,) seconds since 1970
    rewards: Floats  # (n,) NaN: no reward is known yet
    chosen: Places  # (n,) place of the chosen action among those offered
    starts: Places  # (n + 1,) places of the first action of each row in the flat columns
    probabilities: Floats  # (all actions of all rows,) NaN: not logged
    is_eligible: Booleans  # (all actions of all rows,) False: excluded by the request
    multiplicities: Floats  # (n,) how many decisions a row stands for: 1/(1 − pdrop), mostly 1
    is_defaulted: Booleans  # (n,) whether the reward is the default reward
    is_degraded: Booleans  # (n,) whether the service answered without deciding
    lines: Places  # (n,) line or row of the source, for messages
    source: str  # file or database, for messages
    read_features: Callable[[int], DecisionFeatures] | None  # of a row; None: the log has none

    @property
    def size(self) -> int:
        """How many decisions there are."""
        return len(self.times)

    @property
    def chosen_probabilities(self) -> Floats:
        """The logged probability of each chosen action, (n,)."""
        probabilities: Floats = self.probabilities[self.starts[:-1] + self.chosen]
        return probabilities

    @property
    def action_counts(self) -> Places:
        """How many actions each decision offered, (n,)."""
        return self.starts[1:] - self.starts[:-1]


class BadRow(NamedTuple):
    """A row of a log that cannot be used."""

    source: str
    line: int
    reason: str


class Log(Protocol):
    """Decisions that can be read again and again, batch by batch."""

    @property
    def description(self) -> str:
        """Which decisions these are, in a few words."""

    @property
    def has_fitted_probabilities(self) -> bool:
        """Whether the log has no propensities and they were estimated from it."""

    @property
    def bad_rows(self) -> Sequence[BadRow]:
        """The first rows that could not be used, as far as the log was read."""

    @property
    def bad_row_count(self) -> int:
        """How many rows could not be used, as far as the log was read."""

    def iterate_batches(self) -> Iterator[LogBatch]:
        """Read the decisions in the order of the log."""
