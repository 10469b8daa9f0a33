"""The diagonal belief: a precision and a mean for each weight, and nothing between two weights.

In units of the noise, weight i has the precision pᵢ that data has given, the prior precision λᵢ,
the variance sᵢ = 1/(pᵢ + λᵢ) and the mean mᵢ = sᵢ·bᵢ. An observation (x, y) of weight w is learned
by

    e = y − Σ xᵢmᵢ,   S = 1/w + Σ xᵢ²sᵢ
    mᵢ ← mᵢ + sᵢxᵢe/S,   sᵢ ← sᵢ − sᵢ²xᵢ²/S,   which is   pᵢ ← pᵢ + xᵢ²/(S − sᵢxᵢ²)

These are the mean and the diagonal of the exact posterior of a prior without correlations. The
correlations that an observation creates are dropped, which is the approximation.

The precisions and moments b of all weights fade by the same factor f, and the prior does not fade.
`sums` holds p/f and b/f, so that fading costs nothing. Column j of `sums` is a belief of its own.
"""

import numpy as np

from windvane._numba.compilation import compiled_in_order
from windvane.types import Floats, Places

PRECISION, MOMENT = 0, 1  # the last axis of `sums`


@compiled_in_order
def predict_entries(
    sums: Floats, column: int, fade: float, indices: Places, values: Floats, priors: Floats
) -> tuple[float, float]:
    """Return the mean Σ xᵢmᵢ and the variance Σ xᵢ²sᵢ of a row, in units of the noise.

    The row has the entries `values` (n,) at `indices` (n,), whose prior precisions are `priors`
    (n,). `sums` is (weights, columns, 2). An index below 0 stands for a weight without data.
    """
    mean, variance = 0.0, 0.0
    for i in range(indices.size):
        at, x = indices[i], values[i]
        if at < 0:
            variance += x * x / priors[i]
        else:
            precision = fade * sums[at, column, PRECISION] + priors[i]
            mean += x * fade * sums[at, column, MOMENT] / precision
            variance += x * x / precision
    return mean, variance


@compiled_in_order
def compute_gain(x: float, precision: float, variance: float, weight: float) -> float:
    """Return x²/(S − s·x²), what an observation adds to the precision of a weight.

    `variance` is that of the whole row. S − s·x² is 1/w and the variance of the other entries,
    which is exactly 0 for a row of one entry.
    """
    square = x * x
    return square / (1.0 / weight + max(variance - square / precision, 0.0))


@compiled_in_order
def learn_entries(
    sums: Floats,
    column: int,
    fade: float,
    indices: Places,
    values: Floats,
    priors: Floats,
    reward: float,
    weight: float,
) -> tuple[float, float]:
    """Learn an observation of a weight; return the error e and S·w, the variance of e/noise.

    All indices are distinct and at least 0. A weight of 0 changes nothing.
    """
    mean, variance = predict_entries(sums, column, fade, indices, values, priors)
    error, total = reward - mean, 1.0 / weight + variance
    for i in range(indices.size):
        at, x = indices[i], values[i]
        precision = fade * sums[at, column, PRECISION] + priors[i]
        gain = compute_gain(x, precision, variance, weight)
        own_mean = (fade * sums[at, column, MOMENT] + x * error / total) / precision
        sums[at, column, PRECISION] += gain / fade
        sums[at, column, MOMENT] = own_mean * (precision + gain) / fade
    return error, 1.0 + weight * variance


@compiled_in_order
def amend_entries(
    sums: Floats,
    column: int,
    fade: float,
    indices: Places,
    values: Floats,
    priors: Floats,
    more: float,
    weight: float,
) -> None:
    """Add to the reward of an observation that was learned before.

    Moments grow by x·more/(S − s·x²) with the present S. This is exact for a row of one entry,
    where S − s·x² = 1/w never changes, and an approximation for longer rows.
    """
    variance = predict_entries(sums, column, fade, indices, values, priors)[1]
    for i in range(indices.size):
        at, x = indices[i], values[i]
        precision = fade * sums[at, column, PRECISION] + priors[i]
        others = max(variance - x * x / precision, 0.0)
        sums[at, column, MOMENT] += x * more / (1.0 / weight + others) / fade


@compiled_in_order
def scale_sums(sums: Floats, column: int, factor: float) -> None:
    """Multiply the sums of a column, before fading makes their scale too large."""
    for at in range(sums.shape[0]):
        for part in range(2):
            sums[at, column, part] *= factor
            if not np.abs(sums[at, column, part]) > 1e-200:  # no trace of it is left
                sums[at, column, part] = 0.0
