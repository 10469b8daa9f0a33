"""Estimators that limit large weights: less variance for some bias.

| name          | score of a decision                  | λ → ∞ |
|---------------|--------------------------------------|-------|
| `clipped_ips` | min(w, λ) r                          | IPS   |
| `switch_dr`   | m + w 1{w ≤ λ} (r − q̂)               | DR    |
| `dros`        | m + λ w/(w² + λ) (r − q̂)             | DR    |

The sums of all λ of a small grid are kept, and λ is chosen at the end by SLOPE: beginning with the
least biased, take the last whose interval meets the intervals of all before it.

Su, Srinath & Krishnamurthy (2020), "Adaptive estimator selection for off-policy evaluation".
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from windvane.evaluation.estimators import DR, IPS, Values, estimate_values
from windvane.evaluation.value_sums import ONE, ValueSums
from windvane.types import Floats

CLIPPED_IPS, SWITCH_DR, DROS = "clipped_ips", "switch_dr", "dros"
GRIDS = {  # λ of each estimator, from the least biased to the most
    CLIPPED_IPS: (100.0, 50.0, 20.0, 10.0, 5.0, 2.0),
    SWITCH_DR: (100.0, 50.0, 20.0, 10.0, 5.0, 2.0),
    DROS: (10_000.0, 1_000.0, 100.0, 10.0, 1.0),
}
LIMITS = {CLIPPED_IPS: IPS, SWITCH_DR: DR, DROS: DR}  # the estimators of λ = ∞


class ShrunkValue(NamedTuple):
    """An estimate with the λ that was chosen for it."""

    value: float
    error: float  # standard error
    setting: float  # λ; ∞ if no weight has to be limited


class ShrinkageSums:
    """Σ b x, Σ b² x and Σ b² x² of the scores x, for each estimator and λ; they add."""

    def __init__(self) -> None:
        self._sums = {name: np.zeros((len(grid), 3)) for name, grid in GRIDS.items()}

    def add(
        self,
        rewards: Floats,
        weights: Floats,
        model_values: Floats | None,
        model_chosen: Floats | None,
        coefficients: Floats | None,
    ) -> None:
        """Add decisions."""
        largest = weights.max(initial=0.0)
        sums: Floats | None = None
        for place, limit in enumerate(GRIDS[CLIPPED_IPS]):
            if sums is None or limit < largest:  # else the sums of the last λ are the same
                sums = _add_up(np.minimum(weights, limit) * rewards, coefficients)
            self._sums[CLIPPED_IPS][place] += sums
        if model_values is None or model_chosen is None:
            return
        corrections = weights * (rewards - model_chosen)
        sums = None
        for place, limit in enumerate(GRIDS[SWITCH_DR]):
            if sums is None or limit < largest:
                kept = np.where(weights <= limit, corrections, 0.0)
                sums = _add_up(model_values + kept, coefficients)
            self._sums[SWITCH_DR][place] += sums
        squares = weights * weights
        for place, limit in enumerate(GRIDS[DROS]):
            scores = corrections * (limit / (squares + limit))
            self._sums[DROS][place] += _add_up(model_values + scores, coefficients)

    def merge(self, other: "ShrinkageSums") -> None:
        """Add the sums of other decisions."""
        for name, sums in other._sums.items():
            self._sums[name] = self._sums[name] + sums

    def estimate_all(self, name: str, sums: ValueSums) -> list[tuple[float, Values]]:
        """The estimates for all λ of an estimator, beginning with λ = ∞; sums are of one group."""
        mass, rows = float(sums.mass), float(sums.rows)
        squares = float(sums.product(ONE, ONE))
        found = [(np.inf, estimate_values(LIMITS[name], sums))]
        for setting, (total, crossed, squared) in zip(GRIDS[name], self._sums[name], strict=True):
            value = total / mass
            spread = max(squared - 2 * value * crossed + value**2 * squares, 0.0)
            error = np.sqrt(spread * rows / (rows - 1)) / mass if rows > 1 else np.nan
            found.append((setting, Values(np.asarray(value), np.asarray(error))))
        return found

    def choose(self, name: str, sums: ValueSums, quantile: float) -> ShrunkValue:
        """The estimate whose λ SLOPE chooses, with intervals of `quantile` standard errors."""
        found = self.estimate_all(name, sums)
        place = choose_by_slope([values for _, values in found], quantile)
        setting, values = found[place]
        return ShrunkValue(float(values.value), float(values.error), setting)


def choose_by_slope(estimates: Sequence[Values], quantile: float) -> int:
    """The place of the last estimate whose interval meets those of all before it.

    The estimates are ordered from the least biased to the most, with falling standard errors.

    >>> steps = [(0.5, 0.2), (0.6, 0.1), (0.4, 0.05), (0.0, 0.01)]
    >>> choose_by_slope([Values(np.array(v), np.array(e)) for v, e in steps], quantile=2.0)
    2
    """
    low, high = -np.inf, np.inf
    chosen = 0
    for place, (value, error) in enumerate(estimates):
        low = max(low, float(value - quantile * error))
        high = min(high, float(value + quantile * error))
        if not low <= high:
            break
        chosen = place
    return chosen


def _add_up(scores: Floats, coefficients: Floats | None) -> Floats:
    if coefficients is None:
        total = scores.sum()
        return np.array([total, total, np.einsum("i,i->", scores, scores)])
    scaled = coefficients * scores
    return np.array(
        [
            scaled.sum(),
            np.einsum("i,i->", coefficients, scaled),
            np.einsum("i,i->", scaled, scaled),
        ]
    )
