"""Which rows of a log are evaluated, and what is counted of the others."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from windvane.evaluation.candidates import LogFacts
from windvane.evaluation.log_batch import Log, LogBatch
from windvane.types import Places


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
    defaulted: int = 0  # among those used
    without_features: int = 0  # among those used
    first_time: float | None = None
    last_time: float | None = None


def find_usable_rows(batch: LogBatch, period: Period, counts: RowCounts) -> Places:
    """Return the places of the rows that can be evaluated, and count all rows of the period.

    A row needs a reward, a probability above 0 of its chosen action, and a service that decided.
    """
    is_inside = (batch.times >= period.since) & (batch.times < period.until)
    is_rewarded = np.isfinite(batch.rewards)
    probabilities = batch.chosen_probabilities
    is_likely = np.isfinite(probabilities) & (probabilities > 0.0)
    is_used = is_inside & ~batch.is_degraded & is_rewarded & is_likely
    counts.degraded += int(np.count_nonzero(is_inside & batch.is_degraded))
    is_decided = is_inside & ~batch.is_degraded
    counts.unrewarded += int(np.count_nonzero(is_decided & ~is_rewarded))
    counts.without_probability += int(np.count_nonzero(is_decided & is_rewarded & ~is_likely))
    rows = np.flatnonzero(is_used)
    counts.used += rows.size
    if rows.size:
        counts.without_features += rows.size if batch.read_features is None else 0
        counts.defaulted += int(np.count_nonzero(batch.is_defaulted[rows]))
        first, last = float(batch.times[rows].min()), float(batch.times[rows].max())
        counts.first_time = first if counts.first_time is None else min(first, counts.first_time)
        counts.last_time = last if counts.last_time is None else max(last, counts.last_time)
    return rows


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
