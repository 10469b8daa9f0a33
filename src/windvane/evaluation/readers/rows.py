"""Rows of logs: batches made of them, what must hold for each, and the report of bad ones."""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from windvane.errors import FileError
from windvane.evaluation.log_batch import BadRow, DecisionFeatures, LogBatch
from windvane.features.json_reader import JsonObjects
from windvane.features.slots import Slot, describe_contexts
from windvane.types import Booleans, Floats, Places

MAX_LISTED_BAD_ROWS = 100  # later ones are only counted

NEVER_ACTIVATED = "decisions that were never activated, left out"
RENORMALIZED = "decisions whose probabilities were divided by their sum"
APPRENTICE = "decisions of Apprentice mode, credited to the baseline action"
ORPHAN_REWARDS = "rewards without a decision, left out"
IGNORED_FILES = "files of the directory that are no log by their names, left out"
FIRST_SLOTS = "events with several slots: whole pages are evaluated, and the first slot alone"
ROUNDING = 1e-6  # a sum of probabilities so near to 1 is 1 up to the rounding of 32-bit floats
SUM_TOLERANCE = 1e-3  # a sum so near to 1 is divided out; a row with another sum is bad
MAX_BATCH_BYTES = 16 * 2**20  # text of the features
COLUMNS_BY_ROW = (  # of a batch, one number a row
    *("times", "rewards", "chosen", "multiplicities", "is_defaulted", "is_degraded", "lines"),
    *("slots", "is_slate", "baselines"),
)


class RowReport:
    """Bad rows and counts of one pass over a log."""

    def __init__(self, strict: bool = False) -> None:
        self.strict = strict
        self.bad_rows: list[BadRow] = []
        self.bad_row_count = 0
        self.notes: dict[str, int] = {}  # how many rows, by what was done with them

    def refuse(self, source: str, line: int, reason: str) -> None:
        """Record a row that cannot be used; raise a FileError if the report is strict."""
        if self.strict:
            raise FileError(f"{source}:{line}: {reason}")
        self.bad_row_count += 1
        if len(self.bad_rows) < MAX_LISTED_BAD_ROWS:
            self.bad_rows.append(BadRow(source, line, reason))

    def note(self, text: str, count: int = 1) -> None:
        """Count rows that were read in a special way."""
        if count:
            self.notes[text] = self.notes.get(text, 0) + count


class ReportedLog:
    """A log that tells which of its rows could not be used, as far as it was read."""

    _report: RowReport

    @property
    def bad_rows(self) -> Sequence[BadRow]:
        return self._report.bad_rows

    @property
    def bad_row_count(self) -> int:
        return self._report.bad_row_count

    @property
    def notes(self) -> Mapping[str, int]:
        return self._report.notes

    def iterate_batches(self) -> Iterator[LogBatch]:
        """Read the decisions; of an event with several slots, the first slot."""
        for batch in self.iterate_slots():
            if batch.slots is None:
                yield batch
                continue
            starts = batch.event_starts
            self._report.note(FIRST_SLOTS, int(np.count_nonzero(np.diff(starts) > 1)))
            yield select_rows(batch, starts[:-1])._replace(slots=None, is_slate=None)

    def iterate_slots(self) -> Iterator[LogBatch]:
        """Read all slots of all events in the order of the log."""
        raise NotImplementedError


def check_rows(batch: LogBatch, report: RowReport) -> LogBatch:
    """Keep the rows that can be used and report the others; divide probabilities by their sum.

    A row has finite numbers, a chosen action among the eligible ones, and probabilities in [0, 1]
    that sum to 1 within `SUM_TOLERANCE`. A reward or a probability may be NaN: it was not logged.
    An event with slots is kept whole or not at all.
    """
    checked = _check_each_row(batch, report)
    if batch.slots is None or checked.size == batch.size:
        return checked
    before, after = Counter(batch.lines.tolist()), Counter(checked.lines.tolist())
    is_whole = [after[line] == before[line] for line in checked.lines.tolist()]
    return select_rows(checked, np.flatnonzero(is_whole))


def _check_each_row(batch: LogBatch, report: RowReport) -> LogBatch:
    batch = _check_chosen_places(batch, report)
    if not batch.size:
        return batch
    first = batch.starts[:-1]
    is_known = ~np.isnan(batch.probabilities)
    sums = np.add.reduceat(np.where(is_known, batch.probabilities, 0.0), first)
    is_complete = np.logical_and.reduceat(is_known, first)
    batch, kept = _check_numbers(batch, report, sums, is_complete)
    sums, is_complete = sums[kept], is_complete[kept]
    is_off = is_complete & (np.abs(sums - 1.0) > ROUNDING)
    if not is_off.any():
        return batch
    report.note(RENORMALIZED, int(is_off.sum()))
    divisors = np.repeat(np.where(is_off, sums, 1.0), batch.action_counts)
    return batch._replace(probabilities=batch.probabilities / divisors)


def select_rows(batch: LogBatch, kept: Places) -> LogBatch:
    """Select rows of a batch, in the given order."""
    counts = batch.action_counts[kept]
    starts = np.concatenate([[0], np.cumsum(counts)])
    flat = np.repeat(batch.starts[kept] - starts[:-1], counts) + np.arange(starts[-1])
    places = kept.tolist()
    read = batch.read_features

    def read_kept(row: int) -> DecisionFeatures:
        assert read is not None
        return read(places[row])

    by_row: dict[str, Any] = {name: getattr(batch, name) for name in COLUMNS_BY_ROW}
    by_row |= {name: each[kept] for name, each in by_row.items() if each is not None}
    return batch._replace(
        **by_row,
        event_ids=[batch.event_ids[place] for place in places],
        starts=starts,
        probabilities=batch.probabilities[flat],
        is_eligible=batch.is_eligible[flat],
        read_features=None if read is None else read_kept,
        columns={
            name: values[kept] if isinstance(values, np.ndarray) else [values[k] for k in places]
            for name, values in (batch.columns or {}).items()
        },
    )


def _check_chosen_places(batch: LogBatch, report: RowReport) -> LogBatch:
    counts = batch.action_counts
    is_bad = (batch.chosen < 0) | (batch.chosen >= counts)

    def describe(row: int) -> str:
        if not counts[row]:
            return "at least one action must be offered"
        return (
            f"the place of the chosen action must lie in 0 to {counts[row] - 1}, "
            f"got {batch.chosen[row]}"
        )

    return _refuse_rows(batch, report, is_bad, describe)[0]


def _check_numbers(
    batch: LogBatch, report: RowReport, sums: Floats, is_complete: Booleans
) -> tuple[LogBatch, Places]:
    """Refuse rows with impossible numbers; every row has a chosen action."""
    first = batch.starts[:-1]
    chosen = batch.chosen_probabilities
    eligible_chosen = batch.is_eligible[first + batch.chosen]
    probabilities = batch.probabilities
    outside = (probabilities < 0.0) | (probabilities > 1.0 + SUM_TOLERANCE)
    is_outside = np.logical_or.reduceat(outside, first)
    is_excluded = np.logical_or.reduceat(~batch.is_eligible & (probabilities > 0.0), first)
    off = np.where(is_complete, np.abs(sums - 1.0), sums - 1.0)
    counts = batch.multiplicities
    stands_for = "the number of decisions that a row stands for"
    checks: list[tuple[Booleans, str, Floats | None]] = [  # what must hold, and what came
        (~np.isfinite(batch.times), "the time must be a known, finite number", None),
        (np.isinf(batch.rewards), "the reward must be a finite number", batch.rewards),
        (is_outside, "every probability must lie in [0, 1]", None),
        (~eligible_chosen, "the chosen action must not be one of the excluded ones", None),
        (is_excluded, "an excluded action must have probability 0", None),
        (~(chosen > 0.0), "the probability of the chosen action must be > 0", chosen),
        (off > SUM_TOLERANCE, "the probabilities must sum to 1 within 0.001", sums),
        (~((counts >= 1.0) & np.isfinite(counts)), f"{stands_for} must be finite and >= 1", counts),
    ]

    def describe(row: int) -> str:
        demand, came = next((demand, came) for marks, demand, came in checks if marks[row])
        return demand if came is None else f"{demand}, got {came[row]:g}"

    return _refuse_rows(
        batch, report, np.logical_or.reduce([marks for marks, _, _ in checks]), describe
    )


def _refuse_rows(
    batch: LogBatch, report: RowReport, is_bad: Booleans, describe: Callable[[int], str]
) -> tuple[LogBatch, Places]:
    """Report bad rows, each with its reason; returns the other rows."""
    if not is_bad.any():
        return batch, np.arange(batch.size)
    for row in np.flatnonzero(is_bad).tolist():
        report.refuse(batch.source, int(batch.lines[row]), describe(row))
    kept = np.flatnonzero(~is_bad)
    return select_rows(batch, kept), kept


class LogRow(NamedTuple):
    """One decision of a log, before it is checked."""

    event_id: str
    time: float  # seconds since 1970
    reward: float  # NaN: no reward is known yet
    chosen: int  # place of the chosen action among those offered
    probabilities: Sequence[float]  # of all offered actions; NaN: not logged
    is_eligible: Sequence[bool]  # of all offered actions; False: excluded by the request
    line: int  # of the file
    read_features: Callable[[], DecisionFeatures]
    text_bytes: int  # memory that the text of its features takes
    multiplicity: float = 1.0  # how many decisions this row stands for
    is_defaulted: bool = False  # whether the reward is the default reward
    slot: int = 0  # of its event, from 0
    is_slate: bool = False  # whether the reward is that of all slots of the event
    baseline: int | None = None  # place of the action that the client would have shown


class BatchBuilder:
    """Rows of one file, until there are enough for a batch."""

    def __init__(self, source: str, batch_rows: int) -> None:
        self.source = source
        self.batch_rows = batch_rows
        self._rows: list[LogRow] = []
        self._bytes = 0

    @property
    def is_full(self) -> bool:
        """Whether a batch should be made now."""
        return len(self._rows) >= self.batch_rows or self._bytes >= MAX_BATCH_BYTES

    def add(self, row: LogRow) -> None:
        self._rows.append(row)
        self._bytes += row.text_bytes

    def build(self) -> LogBatch:
        """Make a batch of all rows since the last one."""
        rows = self._rows
        readers = [row.read_features for row in rows]  # all that a batch keeps of its rows
        sizes = [len(row.probabilities) for row in rows]
        batch = LogBatch(
            event_ids=[row.event_id for row in rows],
            times=np.array([row.time for row in rows], np.float64),
            rewards=np.array([row.reward for row in rows], np.float64),
            chosen=np.array([row.chosen for row in rows], np.int64),
            starts=np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)]),
            probabilities=np.array([p for row in rows for p in row.probabilities], np.float64),
            is_eligible=np.array([e for row in rows for e in row.is_eligible], np.bool_),
            multiplicities=np.array([row.multiplicity for row in rows], np.float64),
            is_defaulted=np.array([row.is_defaulted for row in rows], np.bool_),
            is_degraded=np.zeros(len(rows), np.bool_),
            lines=np.array([row.line for row in rows], np.int64),
            source=self.source,
            read_features=lambda place: readers[place](),
        )
        if any(row.slot or row.is_slate for row in rows):
            batch = batch._replace(
                slots=np.array([row.slot for row in rows], np.int64),
                is_slate=np.array([row.is_slate for row in rows], np.bool_),
            )
        if any(row.baseline for row in rows):
            batch = batch._replace(baselines=np.array([row.baseline or 0 for row in rows]))
        self._rows, self._bytes = [], 0
        return batch


class LoggedSlot(NamedTuple):
    """One slot of a page, as a log of Windvane has it."""

    id: str
    features: JsonObjects
    excluded: Collection[str]  # ids of actions that it may not show
    chosen: int
    probabilities: Sequence[float]  # of all actions, given the slots before
    reward: float | None  # of the slot, or of the whole page if `is_slate`; None: not known yet
    is_defaulted: bool
    is_slate: bool
    baseline: int


def split_pages(batch: LogBatch, pages: Sequence[Sequence[LoggedSlot]]) -> tuple[LogBatch, Places]:
    """A row for each slot of a page, given the slots before it; also the decision of each row.

    A decision without slots stays one row.
    """
    builder = BatchBuilder(batch.source, batch.size)
    read_features = batch.read_features
    assert read_features is not None
    rows = [k for k, slots in enumerate(pages) for _ in range(max(len(slots), 1))]
    for k, slots in enumerate(pages):
        flat = slice(batch.starts[k], batch.starts[k + 1])
        row = LogRow(
            event_id=batch.event_ids[k],
            time=batch.times[k],
            reward=batch.rewards[k],
            chosen=batch.chosen[k],
            probabilities=batch.probabilities[flat].tolist(),
            is_eligible=batch.is_eligible[flat].tolist(),
            line=batch.lines[k],
            read_features=partial(read_features, k),
            text_bytes=0,
            is_defaulted=batch.is_defaulted[k],
        )
        for each in _list_slots(row, slots) if slots else [row]:
            builder.add(each)
    return builder.build()._replace(is_degraded=batch.is_degraded[rows]), np.array(rows)


def _list_slots(row: LogRow, slots: Sequence[LoggedSlot]) -> Iterator[LogRow]:
    is_free = np.ones(len(row.probabilities), np.bool_)  # not shown above
    named = [Slot(slot.id, slot.features, ()) for slot in slots]

    def read(place: int) -> DecisionFeatures:
        features = row.read_features()
        return features._replace(context=describe_contexts(features.context, named)[place])

    for place, slot in enumerate(slots):
        is_eligible = is_free.copy()
        if slot.excluded:
            is_eligible &= [each.id not in slot.excluded for each in row.read_features().actions]
        yield row._replace(
            event_id=f"{row.event_id}/{slot.id}",
            reward=np.nan if slot.reward is None else slot.reward,
            chosen=slot.chosen,
            probabilities=slot.probabilities,
            is_eligible=is_eligible.tolist(),
            read_features=partial(read, place),
            is_defaulted=slot.is_defaulted,
            slot=place,
            is_slate=slot.is_slate,
            baseline=slot.baseline,
        )
        is_free[slot.chosen] = False


def parse_time(text: str) -> float:
    """Seconds since 1970 of a time in ISO 8601, in UTC if it names no zone; raises ValueError.

    >>> parse_time("1970-01-02T00:00:00.5Z"), parse_time("1970-01-02 01:00:00+01:00")
    (86400.5, 86400.0)
    """
    time = datetime.fromisoformat(text)
    try:
        return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()
    except OverflowError as error:  # a zone that leads before year 1
        raise ValueError(str(error)) from None
