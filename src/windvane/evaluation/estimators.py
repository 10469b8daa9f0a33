"""Estimates of the value of a policy, computed from sums over logged decisions.

With the terms of `value_sums.py` and E the mean over the decisions:

| name     | estimate                      |
|----------|-------------------------------|
| `logged` | E[r]                          |
| `ips`    | E[w r]                        |
| `snips`  | E[w r] / E[w]                 |
| `dm`     | E[m]                          |
| `dr`     | E[m + u]                      |
| `sndr`   | E[m] + E[u] / E[w]            |

Each has the standard error of the delta method, and the interval value ± z·error for the normal
quantile z. These intervals hold for one look at many decisions, not for repeated looks and not for
few decisions: `cressie_read.py` and `confidence_sequence.py` have intervals for these cases.
"""

from typing import NamedTuple

import numpy as np
from scipy.special import ndtri

from windvane.evaluation.value_sums import (
    CORRECTION,
    MODEL,
    ONE,
    REWARD,
    WEIGHT,
    WEIGHTED_REWARD,
    ValueSums,
)
from windvane.types import Floats

LOGGED, IPS, SNIPS, DM, DR, SNDR = "logged", "ips", "snips", "dm", "dr", "sndr"
MODEL_FREE_NAMES = (IPS, SNIPS)
MODEL_NAMES = (DM, DR, SNDR)


class Values(NamedTuple):
    """An estimate for each group of decisions; NaN if a group has too few."""

    value: Floats  # (...,)
    error: Floats  # (...,) standard error


def estimate_values(name: str, sums: ValueSums) -> Values:
    """Estimate the value of a policy by the name of an estimator, for each group of the sums.

    >>> sums = ValueSums.from_rows(np.array([1.0, 0.0]), np.array([2.0, 1.0]))
    >>> float(estimate_values("ips", sums).value), float(estimate_values("snips", sums).value)
    (1.0, 0.6666666666666666)
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = sums.moments / sums.moments[..., ONE, None]  # E[z]
        if name == SNIPS:
            value = mean[..., WEIGHTED_REWARD] / mean[..., WEIGHT]
            scale = 1 / mean[..., WEIGHT]
            return Values(
                value,
                sums.standard_error({WEIGHTED_REWARD: scale, WEIGHT: -value * scale}),
            )
        if name == SNDR:
            scale = 1 / mean[..., WEIGHT]
            correction = mean[..., CORRECTION] * scale
            return Values(
                mean[..., MODEL] + correction,
                sums.standard_error(
                    {
                        MODEL: 1.0,
                        ONE: -mean[..., MODEL],
                        CORRECTION: scale,
                        WEIGHT: -correction * scale,
                    }
                ),
            )
        terms = {
            LOGGED: [REWARD],
            IPS: [WEIGHTED_REWARD],
            DM: [MODEL],
            DR: [MODEL, CORRECTION],
        }[name]
        value = mean[..., terms].sum(axis=-1)
        influence: dict[int, Floats | float] = dict.fromkeys(terms, 1.0)
        return Values(value, sums.standard_error({**influence, ONE: -value}))


def estimate_gain(sums: ValueSums) -> Values:
    """Estimate how much more than the logged policy a policy earns, E[m + u − r]."""
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = sums.moments / sums.moments[..., ONE, None]
    value = mean[..., MODEL] + mean[..., CORRECTION] - mean[..., REWARD]
    return Values(
        value, sums.standard_error({MODEL: 1.0, CORRECTION: 1.0, REWARD: -1.0, ONE: -value})
    )


def normal_quantile(alpha: float) -> float:
    """The number of standard errors on each side of an interval that misses with chance alpha.

    >>> round(normal_quantile(0.05), 4)
    1.96
    """
    return float(ndtri(1 - alpha / 2))
