"""Collects decisions row by row and makes a batch of them, for formats that are read by line."""

from collections.abc import Callable, Sequence

import numpy as np

from windvane.evaluation.log_batch import DecisionFeatures, LogBatch

MAX_BATCH_BYTES = 16 * 2**20  # of the text of the features


class BatchBuilder:
    """Rows of one file, until there are enough for a batch."""

    def __init__(self, source: str, batch_rows: int) -> None:
        self.source = source
        self.batch_rows = batch_rows
        self._clear()

    def _clear(self) -> None:
        self._event_ids: list[str] = []
        self._numbers: list[tuple[float, float, int, float, bool, int]] = []
        self._sizes: list[int] = []
        self._probabilities: list[float] = []
        self._is_eligible: list[bool] = []
        self._feature_readers: list[Callable[[], DecisionFeatures]] = []
        self._bytes = 0

    @property
    def is_full(self) -> bool:
        """Whether a batch should be made now."""
        return len(self._sizes) >= self.batch_rows or self._bytes >= MAX_BATCH_BYTES

    def add(
        self,
        *,
        event_id: str,
        time: float,
        reward: float,
        chosen: int,
        probabilities: Sequence[float],
        is_eligible: Sequence[bool],
        line: int,
        read_features: Callable[[], DecisionFeatures],
        text_bytes: int,
        multiplicity: float = 1.0,
        is_defaulted: bool = False,
    ) -> None:
        """Add a decision; `text_bytes` is how much memory its features hold."""
        self._event_ids.append(event_id)
        self._numbers.append((time, reward, chosen, multiplicity, is_defaulted, line))
        self._sizes.append(len(probabilities))
        self._probabilities += probabilities
        self._is_eligible += is_eligible
        self._feature_readers.append(read_features)
        self._bytes += text_bytes

    def build(self) -> LogBatch:
        """Make a batch of all rows since the last one."""
        count = len(self._sizes)
        readers = self._feature_readers
        times, rewards, chosen, multiplicities, is_defaulted, lines = (
            zip(*self._numbers, strict=True) if count else ((),) * 6
        )
        batch = LogBatch(
            event_ids=self._event_ids,
            times=np.array(times, np.float64),
            rewards=np.array(rewards, np.float64),
            chosen=np.array(chosen, np.int64),
            starts=np.concatenate([[0], np.cumsum(self._sizes, dtype=np.int64)]),
            probabilities=np.array(self._probabilities, np.float64),
            is_eligible=np.array(self._is_eligible, np.bool_),
            multiplicities=np.array(multiplicities, np.float64),
            is_defaulted=np.array(is_defaulted, np.bool_),
            is_degraded=np.zeros(count, np.bool_),
            lines=np.array(lines, np.int64),
            source=self.source,
            read_features=lambda row: readers[row](),
        )
        self._clear()
        return batch
