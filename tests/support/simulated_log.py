"""A log in memory, of a simulated world whose best action depends on the context."""

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

import numpy as np

from windvane.evaluation.log_batch import BadRow, DecisionFeatures, LogBatch, LoggedAction
from windvane.types import Floats, Places

SECONDS_PER_ROW = 60.0


class MemoryLog:
    """Decisions that were made at random with given probabilities."""

    description = "a simulated log"
    has_fitted_probabilities = False
    has_times = True
    notes: Mapping[str, int] = MappingProxyType({})
    bad_rows: Sequence[BadRow] = ()
    bad_row_count = 0

    def __init__(
        self,
        contexts: Places,  # (n,)
        chosen: Places,  # (n,)
        probabilities: Floats,  # (n, K)
        rewards: Floats,  # (n,)
        rows_per_batch: int = 500,
    ) -> None:
        self._columns = contexts, chosen, probabilities, rewards
        self._rows_per_batch = rows_per_batch

    def iterate_batches(self) -> Iterator[LogBatch]:
        for first in range(0, len(self._columns[0]), self._rows_per_batch):
            rows = np.arange(first, min(first + self._rows_per_batch, len(self._columns[0])))
            yield self._make_batch(rows)

    def _make_batch(self, rows: Places) -> LogBatch:
        contexts, chosen = self._columns[0][rows], self._columns[1][rows]
        probabilities, rewards = self._columns[2][rows], self._columns[3][rows]
        size, count = probabilities.shape
        actions = [LoggedAction(f"a{k}", [{"kind": k % 2}]) for k in range(count)]

        def read_features(row: int) -> DecisionFeatures:
            return DecisionFeatures([{"device": f"d{contexts[row]}"}], actions)

        return LogBatch(
            event_ids=[str(row) for row in rows],
            times=SECONDS_PER_ROW * rows.astype(np.float64),
            rewards=rewards,
            chosen=chosen.astype(np.int64),
            starts=np.arange(0, count * size + 1, count),
            probabilities=probabilities.ravel(),
            is_eligible=np.ones(count * size, np.bool_),
            multiplicities=np.ones(size),
            is_defaulted=np.zeros(size, np.bool_),
            is_degraded=np.zeros(size, np.bool_),
            lines=rows + 1,
            source="memory",
            read_features=read_features,
        )


def compute_means(contexts: Places, actions: Places, rows: Places, change: int) -> Floats:
    """The mean reward: action k fits context k, and after the change action k fits k + 1."""
    best = np.where(rows < change, contexts, contexts + 1) % 3
    means: Floats = np.where(actions % 3 == best, 0.8, 0.3)
    return means


def simulate_log(rows: int, seed: int, change: int | None = None, actions: int = 3) -> MemoryLog:
    """Log decisions of a policy with probabilities that vary from row to row."""
    rng = np.random.default_rng(seed)
    contexts = rng.integers(3, size=rows)
    probabilities = 0.1 + 0.9 * rng.dirichlet(np.full(actions, 2.0), size=rows)
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    ends = probabilities.cumsum(axis=1)
    chosen = (ends < rng.random((rows, 1))).sum(axis=1).clip(0, actions - 1)
    means = compute_means(contexts, chosen, np.arange(rows), rows if change is None else change)
    rewards = (rng.random(rows) < means).astype(np.float64)
    return MemoryLog(contexts, chosen, probabilities, rewards)
