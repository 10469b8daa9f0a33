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

from windvane._jit import compiled_in_order
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

    All indices are distinct and at least 0.
    """
    mean, variance = predict_entries(sums, column, fade, indices, values, priors)
    error, total = reward - mean, 1.0 / weight + variance
    for i in range(indices.size):
        at, x = indices[i], values[i]
        precision = fade * sums[at, column, PRECISION] + priors[i]
        gain = x * x / (total - x * x / precision)
        own_mean = (fade * sums[at, column, MOMENT] + x * error / total) / precision
        sums[at, column, PRECISION] += gain / fade
        sums[at, column, MOMENT] = own_mean * (precision + gain) / fade
    return error, weight * total


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
    total = 1.0 / weight + predict_entries(sums, column, fade, indices, values, priors)[1]
    for i in range(indices.size):
        at, x = indices[i], values[i]
        precision = fade * sums[at, column, PRECISION] + priors[i]
        sums[at, column, MOMENT] += x * more / (total - x * x / precision) / fade


@compiled_in_order
def scale_sums(sums: Floats, column: int, factor: float) -> None:
    """Multiply the sums of a column, before fading makes their scale too large."""
    for at in range(sums.shape[0]):
        for part in range(2):
            sums[at, column, part] *= factor
            if not np.abs(sums[at, column, part]) > 1e-200:  # no trace of it is left
                sums[at, column, part] = 0.0
