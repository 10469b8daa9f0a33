"""Collects decisions row by row and makes a batch of them, for formats that are read by line."""

from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import NamedTuple, TypeVar

import numpy as np

from windvane.evaluation.log_batch import DecisionFeatures, LogBatch

MAX_BATCH_BYTES = 16 * 2**20  # of the text of the features
Item = TypeVar("Item")


class DecisionRow(NamedTuple):
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


class BatchBuilder:
    """Rows of one file, until there are enough for a batch."""

    def __init__(self, source: str, batch_rows: int) -> None:
        self.source = source
        self.batch_rows = batch_rows
        self._clear()

    def _clear(self) -> None:
        self._rows: list[DecisionRow] = []
        self._bytes = 0

    @property
    def is_full(self) -> bool:
        """Whether a batch should be made now."""
        return len(self._rows) >= self.batch_rows or self._bytes >= MAX_BATCH_BYTES

    def add(self, row: DecisionRow) -> None:
        """Add a decision."""
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
            probabilities=np.array(_flatten(row.probabilities for row in rows), np.float64),
            is_eligible=np.array(_flatten(row.is_eligible for row in rows), np.bool_),
            multiplicities=np.array([row.multiplicity for row in rows], np.float64),
            is_defaulted=np.array([row.is_defaulted for row in rows], np.bool_),
            is_degraded=np.zeros(len(rows), np.bool_),
            lines=np.array([row.line for row in rows], np.int64),
            source=self.source,
            read_features=lambda place: readers[place](),
        )
        self._clear()
        return batch


def _flatten(lists: Iterable[Sequence[Item]]) -> list[Item]:
    return list(chain.from_iterable(lists))
