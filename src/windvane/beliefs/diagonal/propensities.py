"""The probability with which a diagonal policy chooses each arm."""

import numpy as np

from windvane import _random
from windvane.beliefs.diagonal.choosing import (
    choose,
    choose_measured,
    measure_rows,
    sample_many_scores,
)
from windvane.beliefs.diagonal.sparse_rows import CheckedRows
from windvane.beliefs.diagonal.sparse_weights import Weights
from windvane.beliefs.full import propensities
from windvane.beliefs.full.layout import PolicyArrays
from windvane.types import Floats


def compute_propensities(
    arrays: PolicyArrays,
    weights: Weights,
    rows: CheckedRows,
    key: int,
    round_: int,
    samples: int,
    chosen: int | None,
) -> Floats:
    """Return the propensities of a round, floor included, (K,).

    They are exact, or counted in `samples` draws if the exploration draws a parameter. Draws that
    are counted have a key of their own, so that this call changes no choice.
    """
    if not propensities.is_counted(arrays.rules):
        return propensities.compute_exact_propensities(
            arrays, *measure_rows(arrays, weights, *rows)
        )
    start = _random.start_round(np.uint64(key ^ propensities.COUNTING_KEY), round_)
    scores = sample_many_scores(arrays, weights, *rows, np.uint64(start), samples)
    shares = propensities.add_chosen_draw(propensities.count_wins(scores), samples, chosen)
    return propensities.mix_floor(arrays.rules, shares)


def choose_with_propensities(
    arrays: PolicyArrays,
    weights: Weights,
    rows: CheckedRows,
    key: int,
    round_: int,
    samples: int,
) -> tuple[int, Floats]:
    """Return the arm that `choose` chooses and the propensities; rows are measured once."""
    if propensities.is_counted(arrays.rules):
        index = choose(arrays, weights, *rows, key, round_)
        return index, compute_propensities(arrays, weights, rows, key, round_, samples, index)
    means, widths = measure_rows(arrays, weights, *rows)
    index = choose_measured(arrays, means, widths, key, round_)
    return index, propensities.compute_exact_propensities(arrays, means, widths)
