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
from windvane.types import Floats, Places

CLIPPED_IPS, SWITCH_DR, DROS = "clipped_ips", "switch_dr", "dros"
GRIDS = {  # λ of each estimator, from the least biased to the most
    CLIPPED_IPS: (100.0, 50.0, 20.0, 10.0, 5.0, 2.0),
    SWITCH_DR: (100.0, 50.0, 20.0, 10.0, 5.0, 2.0),
    DROS: (10_000.0, 1_000.0, 100.0, 10.0, 1.0),
}
LIMITS = {CLIPPED_IPS: IPS, SWITCH_DR: DR, DROS: DR}  # the estimators of λ = ∞


class ShrunkValue(NamedTuple):
    """An estimate with the λ that was chosen for it, for each group of decisions, (...,) each."""

    value: Floats
    error: Floats  # standard error
    setting: Floats  # λ; ∞ if no weight has to be limited


class ShrinkageSums:
    """Σ b x, Σ b² x and Σ b² x² of the scores x, for each estimator and λ; they add.

    `add` may be called with arrays of shape (..., n): the leading axes are independent logs.
    """

    def __init__(self) -> None:
        self._sums = {  # (..., λ, 3)
            name: np.zeros((len(grid), 3)) for name, grid in GRIDS.items()
        }

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
        sums: list[Floats] = []
        for limit in GRIDS[CLIPPED_IPS]:
            if not sums or limit < largest:  # else the sums of the last λ are the same
                sums.append(_add_up(np.minimum(weights, limit) * rewards, coefficients))
            else:
                sums.append(sums[-1])
        self._sums[CLIPPED_IPS] = self._sums[CLIPPED_IPS] + np.stack(sums, axis=-2)
        if model_values is None or model_chosen is None:
            return
        corrections = weights * (rewards - model_chosen)
        sums = []
        for limit in GRIDS[SWITCH_DR]:
            if not sums or limit < largest:
                limited = np.where(weights <= limit, corrections, 0.0)
                sums.append(_add_up(model_values + limited, coefficients))
            else:
                sums.append(sums[-1])
        self._sums[SWITCH_DR] = self._sums[SWITCH_DR] + np.stack(sums, axis=-2)
        squares = weights * weights
        sums = []
        for limit in GRIDS[DROS]:
            scores = corrections * (limit / (squares + limit))
            sums.append(_add_up(model_values + scores, coefficients))
        self._sums[DROS] = self._sums[DROS] + np.stack(sums, axis=-2)

    def merge(self, other: "ShrinkageSums") -> None:
        """Add the sums of other decisions."""
        for name, sums in other._sums.items():
            self._sums[name] = self._sums[name] + sums

    def estimate_all(self, name: str, sums: ValueSums) -> list[tuple[float, Values]]:
        """The estimates for all λ of an estimator, beginning with λ = ∞."""
        mass, rows, squares = sums.mass, sums.rows, sums.product(ONE, ONE)
        estimates = [(np.inf, estimate_values(LIMITS[name], sums))]
        for place, setting in enumerate(GRIDS[name]):
            total, crossed, squared = np.moveaxis(self._sums[name][..., place, :], -1, 0)
            with np.errstate(divide="ignore", invalid="ignore"):
                value = total / mass
                spread = np.maximum(squared - 2 * value * crossed + value**2 * squares, 0.0)
                correction = np.where(rows > 1, rows / (rows - 1), np.nan)
                error = np.sqrt(spread * correction) / mass
            estimates.append((setting, Values(value, error)))
        return estimates

    def choose(self, name: str, sums: ValueSums, quantile: float) -> ShrunkValue:
        """The estimate whose λ SLOPE chooses, with intervals of `quantile` standard errors."""
        estimates = self.estimate_all(name, sums)
        places = choose_by_slope([values for _, values in estimates], quantile)
        columns = (
            np.stack([values.value for _, values in estimates]),
            np.stack([values.error for _, values in estimates]),
            np.stack([np.full(np.shape(places), setting) for setting, _ in estimates]),
        )
        return ShrunkValue(
            *(np.take_along_axis(column, places[None], axis=0)[0] for column in columns)
        )


def choose_by_slope(estimates: Sequence[Values], quantile: float) -> Places:
    """The place of the last estimate whose interval meets those of all before it, (...,).

    The estimates are ordered from the least biased to the most, with falling standard errors.

    >>> steps = [(0.5, 0.2), (0.6, 0.1), (0.4, 0.05), (0.0, 0.01)]
    >>> int(choose_by_slope([Values(np.array(v), np.array(e)) for v, e in steps], quantile=2.0))
    2
    """
    low = np.maximum.accumulate([value - quantile * error for value, error in estimates])
    high = np.minimum.accumulate([value + quantile * error for value, error in estimates])
    places: Places = np.maximum(np.sum(low <= high, axis=0) - 1, 0)
    return places


def _add_up(scores: Floats, coefficients: Floats | None) -> Floats:
    """Σ b x, Σ b² x and Σ b² x² over the last axis, (..., 3)."""
    if coefficients is None:
        total = scores.sum(axis=-1)
        sums = [total, total, np.einsum("...i,...i->...", scores, scores)]
    else:
        scaled = coefficients * scores
        sums = [
            scaled.sum(axis=-1),
            np.einsum("...i,...i->...", coefficients, scaled),
            np.einsum("...i,...i->...", scaled, scaled),
        ]
    return np.stack(sums, axis=-1)
