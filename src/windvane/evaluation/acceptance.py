"""Which logged rows a learning policy accepts as its own history (DR-ns).

A row is accepted with probability c·π(a)/p, so that the accepted rows are distributed as if the
policy itself had chosen. The multiplier c is the q-quantile of the ratios p/π(a) so far, at most 1.
A row whose chance would exceed 1 is a violation; it is learned several times.

Dudík, Erhan, Langford & Li (2012), "Sample-efficient nonstationary policy evaluation for contextual
bandits".
"""

import math
from typing import NamedTuple

import numpy as np

from windvane import _random
from windvane._numba.compilation import compiled
from windvane.types import Floats

QUANTILE = 0.005  # q: the share of rows whose chance may exceed 1
LARGEST_MULTIPLIER = 1.0
LEAST_FIRST_MULTIPLIER = 0.01  # a smaller one would wait too long for the first accepted row
MOST_REPETITIONS = 10  # how often a violating row is learned at most
BINS_PER_OCTAVE = 64  # of the ratios, so that the quantile is at most 1.1 % too small
LEAST_EXPONENT, LARGEST_EXPONENT = -40, 8
BINS = BINS_PER_OCTAVE * (LARGEST_EXPONENT - LEAST_EXPONENT)
ACCEPTANCE_KEY = np.uint64(0x3C6EF372FE94F82B)  # seed ^ ACCEPTANCE_KEY is the key of the draws

MULTIPLIER, ROWS, UPDATES, VIOLATIONS, LEAST_BIN = range(5)  # places in `Acceptance.counters`


class Acceptance(NamedTuple):
    """What decides about the next row: a histogram of the ratios so far, and counters."""

    ratios: Floats  # (BINS,) how many ratios p/π(a) fell into each bin
    counters: Floats  # (5,)


def start_acceptance() -> Acceptance:
    """Start with no rows; the first row sets the multiplier."""
    counters = np.zeros(5)
    counters[LEAST_BIN] = BINS
    return Acceptance(np.zeros(BINS), counters)


@compiled
def set_first_multiplier(acceptance: Acceptance, least_probability: float) -> None:
    """Begin with the least probability of the first row, with which no chance exceeds 1."""
    acceptance.counters[MULTIPLIER] = min(
        LARGEST_MULTIPLIER, max(LEAST_FIRST_MULTIPLIER, least_probability)
    )


@compiled
def find_bin(ratio: float) -> int:
    """The bin of a ratio; infinity is in the last one."""
    if not ratio < 2.0**LARGEST_EXPONENT:
        return BINS - 1
    if ratio <= 2.0**LEAST_EXPONENT:
        return 0
    place = math.floor((math.log2(ratio) - LEAST_EXPONENT) * BINS_PER_OCTAVE)
    return min(max(place, 0), BINS - 1)


@compiled
def compute_quantile(acceptance: Acceptance) -> float:
    """The lower end of the bin that holds the q-quantile of the ratios."""
    remaining = QUANTILE * (acceptance.counters[ROWS] - 1.0)
    for place in range(int(acceptance.counters[LEAST_BIN]), BINS):
        remaining -= acceptance.ratios[place]
        if remaining < 0.0:
            end: float = 2.0 ** (LEAST_EXPONENT + place / BINS_PER_OCTAVE)
            return end
    return 2.0**LARGEST_EXPONENT


@compiled
def count_repetitions(acceptance: Acceptance, weight: float, key: np.uint64, row: int) -> int:
    """How often the policy learns a row whose π(a)/p is `weight`; 0 if the row is refused.

    t = c·π(a)/p:  ⌊t⌋ times, and once more with probability t − ⌊t⌋.
    """
    counters = acceptance.counters
    ratio = 1.0 / weight if weight > 0.0 else np.inf
    place = find_bin(ratio)
    acceptance.ratios[place] += 1.0
    counters[LEAST_BIN] = min(counters[LEAST_BIN], place)
    counters[ROWS] += 1.0
    chance = counters[MULTIPLIER] * weight
    if chance > 1.0:
        counters[VIOLATIONS] += 1.0
    whole = math.floor(min(chance, MOST_REPETITIONS))
    draw = _random.uniform(_random.start_round(key, row), 0)
    repetitions: int = int(whole) + (draw <= min(chance, MOST_REPETITIONS) - whole)
    if repetitions > 0:
        counters[UPDATES] += 1.0
        counters[MULTIPLIER] = min(LARGEST_MULTIPLIER, compute_quantile(acceptance))
    return repetitions
