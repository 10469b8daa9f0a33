"""Checks of drift: whether rewards, probabilities and choices change over the log.

The log is split into parts of equally many decisions. For the means m_j of n_j decisions each, with
the mean m and the variance s² of all, Q = Σ_j n_j (m_j − m)² / s² has a χ² law with (parts − 1)
degrees of freedom if nothing changes.
"""

from collections.abc import Sequence

import numpy as np

from windvane.evaluation.checks.finding import Finding, Level
from windvane.evaluation.log_batch import LogBatch
from windvane.types import Floats

MAX_BLOCKS = 128  # then two neighbours become one
FIRST_BLOCK_ROWS = 256
PARTS = 8
CHANCE_LIMIT = 1e-4  # a change with a smaller chance is reported
QUANTITIES = ("reward", "probability of the chosen action", "share of the first action")


class DriftCheck:
    """Sums over blocks of decisions; the blocks grow with the log."""

    def __init__(self, is_fitted: bool) -> None:
        self.is_fitted = is_fitted
        self.block_rows = FIRST_BLOCK_ROWS
        self._blocks: list[Floats] = []  # (3 quantities, 3): count, sum, sum of squares
        self._rest = np.zeros((0, len(QUANTITIES)))

    def add(self, batch: LogBatch) -> None:
        """Add the decisions of a batch."""
        values = [batch.rewards, batch.chosen_probabilities, (batch.chosen == 0).astype(np.float64)]
        rows = np.concatenate([self._rest, np.column_stack(values)])
        whole = len(rows) // self.block_rows * self.block_rows
        for block in rows[:whole].reshape(-1, self.block_rows, len(QUANTITIES)):
            self._blocks.append(_sum_rows(block))
        self._rest = rows[whole:]
        while len(self._blocks) > MAX_BLOCKS:
            if len(self._blocks) % 2:  # the last one waits for a neighbour
                self._blocks.append(np.zeros_like(self._blocks[0]))
            pairs = zip(self._blocks[::2], self._blocks[1::2], strict=True)
            self._blocks = [one + other for one, other in pairs]
            self.block_rows *= 2

    def find(self) -> Sequence[Finding]:
        """What was found in all batches."""
        blocks = [*self._blocks, *([_sum_rows(self._rest)] if len(self._rest) else [])]
        if len(blocks) < 2:
            return [Finding("drift", "ok", "too few decisions to see a change over time")]
        groups = np.array_split(np.array(blocks), min(PARTS, len(blocks)))
        parts = np.array([group.sum(axis=0) for group in groups])  # (parts, quantities, 3)
        return [self._compare(name, parts[:, i]) for i, name in enumerate(QUANTITIES)]

    def _compare(self, name: str, parts: Floats) -> Finding:
        from scipy.stats import chi2

        parts = parts[parts[:, 0] > 0]
        counts, sums, squares = parts.T
        if not len(counts):
            return Finding(f"drift: {name}", "ok", "no value is known")
        means = sums / counts
        mean = sums.sum() / counts.sum()
        variance = squares.sum() / counts.sum() - mean**2
        chance = 1.0
        if variance > 1e-12 * max(mean**2, 1e-12) and len(counts) > 1:
            chance = float(chi2.sf(counts @ (means - mean) ** 2 / variance, len(counts) - 1))
        low, high = float(means.min()), float(means.max())
        numbers = {"lowest": low, "highest": high, "chance": chance, "parts": len(counts)}
        if chance >= CHANCE_LIMIT:
            text = f"no change over time; the mean is {mean:.4g}"
            return Finding(f"drift: {name}", "ok", text, numbers)
        text = f"changes over time: {low:.4g} to {high:.4g} among {len(counts)} parts of the log"
        level: Level = "ok"
        if name == QUANTITIES[0]:
            level = "warning"
            text += "; a mean over the whole log says little about today"
        elif self.is_fitted:
            level = "warning"
            text += ", and the estimated probabilities do not"
        return Finding(f"drift: {name}", level, text, numbers)


def _sum_rows(rows: Floats) -> Floats:
    """Count, sum and sum of squares of each column; NaN is not counted."""
    is_known = ~np.isnan(rows)
    values = np.where(is_known, rows, 0.0)
    return np.stack([is_known.sum(axis=0), values.sum(axis=0), (values**2).sum(axis=0)], axis=1)
