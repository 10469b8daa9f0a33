"""Logged decisions as columns, the interface of a log, and which of its rows are evaluated.

A log gives its decisions in batches, so that a log of any size needs little memory. The features of
a decision are parsed only if somebody asks for them: a policy without features needs numbers only.

An event may fill several slots of a page. Then each slot is a row. Its probabilities are those
given the actions in the slots before it, and actions that these slots took are not eligible.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, cast, runtime_checkable

import numpy as np

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
    slots: Places | None = None  # (n,) the row's slot in its event, from 0; None: no event has more
    is_slate: Booleans | None = None  # (n,) whether the reward is that of all slots of the event
    columns: Mapping[str, Floats | Sequence[object]] | None = None  # others of a table, by name
    baselines: Places | None = None  # (n,) the actions that would have been shown; None: the first

    @property
    def event_starts(self) -> Places:
        """The first row of each event, and n: event i has the rows [i] to [i + 1] − 1, (m + 1,)."""
        if self.slots is None:
            return np.arange(self.size + 1)
        return np.append(np.flatnonzero(self.slots == 0), self.size)

    @property
    def event_rewards(self) -> Floats:
        """The reward of each event: the sum over its slots, or the one reward of a slate, (m,)."""
        first = self.event_starts[:-1]
        if self.slots is None or not first.size:
            return self.rewards
        sums: Floats = np.add.reduceat(self.rewards, first)
        if self.is_slate is None:
            return sums
        return np.where(self.is_slate[first], self.rewards[first], sums)

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


def read_values(batch: LogBatch, name: str) -> Floats | Sequence[object]:
    """A column of the table, or a context feature of each row, "a.b" in a namespace; else None."""
    if name in (batch.columns or {}):
        return batch.columns[name]  # type: ignore[index]
    read = batch.read_features
    if read is None:
        return [None] * batch.size
    return [find_feature(read(row).context, name) for row in range(batch.size)]


def find_feature(context: JsonObjects, name: str) -> object:
    """The value of a context feature, "a.b" in a namespace; None if it has none."""
    space, _, rest = name.partition(".")
    for features in context:
        if name in features:
            return features[name]
        inner = features.get(space)
        if isinstance(inner, Mapping) and rest in inner:
            return cast(object, inner[rest])
    return None


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
    def has_times(self) -> bool:
        """Whether the log has times; if not, the number of a decision is its time.

        Then half-lives are to be given in lessons: an age in seconds has no meaning.
        """

    @property
    def notes(self) -> Mapping[str, int]:
        """How many rows were read in a special way, by what was done with them."""

    @property
    def bad_rows(self) -> Sequence[BadRow]:
        """The first rows that could not be used, as far as the log was read."""

    @property
    def bad_row_count(self) -> int:
        """How many rows could not be used, as far as the log was read."""

    def iterate_batches(self) -> Iterator[LogBatch]:
        """Read the decisions in the order of the log; of an event with slots, the first slot."""


@runtime_checkable
class SlotLog(Log, Protocol):
    """A log that gives all slots of its events."""

    def iterate_slots(self) -> Iterator[LogBatch]:
        """Read all slots in the order of the log; no event is split between two batches."""


class Period(NamedTuple):
    """Times in seconds since 1970; the first is included, the last is not."""

    since: float = -np.inf
    until: float = np.inf


@dataclass
class RowCounts:
    """How many rows were evaluated, and why others were not."""

    used: int = 0
    unrewarded: int = 0
    degraded: int = 0
    without_probability: int = 0  # of the chosen action
    without_features: int = 0  # among those used
    first_time: float = np.inf
    last_time: float = -np.inf


def find_usable_rows(batch: LogBatch, period: Period, counts: RowCounts | None = None) -> Places:
    """Return the places of the rows that can be evaluated, and count all rows of the period.

    A row needs a reward, a probability above 0 of its chosen action, and a service that decided.
    """
    counts = counts or RowCounts()
    is_inside = (batch.times >= period.since) & (batch.times < period.until)
    is_decided = is_inside & ~batch.is_degraded
    is_rewarded = is_decided & np.isfinite(batch.rewards)
    probabilities = batch.chosen_probabilities
    rows = np.flatnonzero(is_rewarded & np.isfinite(probabilities) & (probabilities > 0.0))
    counts.degraded += int(np.count_nonzero(is_inside & batch.is_degraded))
    counts.unrewarded += int(np.count_nonzero(is_decided & ~is_rewarded))
    counts.without_probability += int(np.count_nonzero(is_rewarded)) - rows.size
    counts.used += rows.size
    counts.without_features += rows.size if batch.read_features is None else 0
    counts.first_time = min(counts.first_time, float(batch.times[rows].min(initial=np.inf)))
    counts.last_time = max(counts.last_time, float(batch.times[rows].max(initial=-np.inf)))
    return rows


class LogFacts(NamedTuple):
    """What a candidate may know of a log beforehand."""

    rows: int
    most_actions: int
    reward_deviation: float


class Survey(NamedTuple):
    """What one look through a log finds."""

    facts: LogFacts
    counts: RowCounts
    has_features: bool


def survey_log(log: Log, period: Period) -> Survey:
    """Read a log once, without features: how many rows, actions, and how rewards vary."""
    counts = RowCounts()
    most, total, squares, has_features = 0, 0.0, 0.0, True
    for batch in log.iterate_batches():
        rows = find_usable_rows(batch, period, counts)
        has_features = has_features and batch.read_features is not None
        if rows.size:
            rewards = batch.rewards[rows]
            most = max(most, int(batch.action_counts[rows].max()))
            total += float(rewards.sum())
            squares += float(np.square(rewards).sum())
    size = max(counts.used, 1)
    variance = max(squares / size - (total / size) ** 2, 0.0)
    return Survey(LogFacts(counts.used, most, variance**0.5), counts, has_features)
