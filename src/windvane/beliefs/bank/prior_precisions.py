"""Prior precisions by empirical Bayes: how tightly the weights of two crossed fields lie around 0.

A field is the name of a feature without its category. A group has the weights of one pair of
fields, one of the context and one of the action, or of one field alone. Fields that matter have
large weights, so their group gets a low prior precision; the weights of the other groups are shrunk
towards 0. With the precision p, variance s = 1/(p + λ) and mean m of each weight in a lesson, and
the noise σ̂² of the belief,

    λ = (n₀ + Σ p·s)/(n₀/λ₀ + Σ m²/σ̂²),   within [λ₀, MAX_PRIOR]

which is MacKay's fixed point with n₀ imagined weights of the first prior precision λ₀. The two sums
fade by EVIDENCE_FADE with every lesson in which the group occurs. Each belief has prior precisions
of its own.
"""

import numpy as np

from windvane._numba.compilation import compiled_in_order
from windvane._numba.lanes import (
    load_four,
    load_like,
    load_two,
    store_at,
    take_larger,
    take_smaller,
)
from windvane.beliefs.diagonal.weight_table import ABSENT, claim_key, find_key
from windvane.types import Floats, Places, UnsignedIntegers

CONSTANT_PRIOR = 1.0  # of the constant, which is in no group
MAX_PRIOR = 1000.0
IMAGINED_WEIGHTS = 10.0  # n₀
EVIDENCE_FADE = 0.9995
DETERMINED, SQUARES = 0, 1  # of a group in a column: faded Σ p·s and faded Σ m²/σ̂²
NO_GROUP = ABSENT


@compiled_in_order
def compute_prior(determined: float, squares: float, first: float) -> float:
    """Return the prior precision λ of a group from its two sums and λ₀."""
    prior = (IMAGINED_WEIGHTS + determined) / (IMAGINED_WEIGHTS / first + squares)
    return min(MAX_PRIOR, max(first, prior))


@compiled_in_order
def find_prior(
    keys: UnsignedIntegers, evidence: Floats, column: int, first: float, key: np.uint64
) -> float:
    """Return the prior precision of the group with this key in a column."""
    place = find_key(keys, key)
    if place == ABSENT:
        return first
    return compute_prior(
        evidence[place, DETERMINED, column], evidence[place, SQUARES, column], first
    )


@compiled_in_order
def claim_groups(
    keys: UnsignedIntegers, group_keys: UnsignedIntegers, room: int
) -> tuple[Places, int]:
    """Return the place of each group, (n,), and how many groups are new.

    At most `room` new groups get a place; weights of later ones keep the first prior precision.
    The entry 0 is the constant, which is in no group.
    """
    places, added = np.empty(group_keys.size, np.int64), 0
    places[0] = NO_GROUP
    for i in range(1, group_keys.size):
        place = find_key(keys, group_keys[i])
        if place == ABSENT and added < room:
            place, _ = claim_key(keys, group_keys[i])
            added += 1
        places[i] = place
    return places, added


@compiled_in_order
def spread_priors(evidence: Floats, first_priors: Floats, groups: Places) -> Floats:
    """Return the prior precision of every entry of a row in every column, (n, columns).

    The number of columns is even.
    """
    columns = first_priors.size
    fours = columns - columns % 4
    priors = np.empty((groups.size, columns))
    imagined, most = np.empty(columns), np.empty(columns)
    for j in range(columns):
        priors[0, j] = CONSTANT_PRIOR
        imagined[j], most[j] = IMAGINED_WEIGHTS / first_priors[j], MAX_PRIOR
    for i in range(1, groups.size):
        if groups[i] == NO_GROUP:
            for j in range(columns):
                priors[i, j] = first_priors[j]
            continue
        row = priors[i]
        own = evidence[groups[i]]
        for j in range(0, fours, 4):
            fill_priors(own, imagined, most, row, j, load_four(first_priors, j))
        if fours < columns:
            fill_priors(own, imagined, most, row, fours, load_two(first_priors, fours))
    return priors


@compiled_in_order
def fill_priors(
    evidence: Floats, imagined: Floats, most: Floats, priors: Floats, j: int, first: Floats
) -> None:
    """Fill in the prior precisions of one group in some columns, from column j on.

    The formula is that of `compute_prior`. `first` are lanes with the λ₀ of these columns,
    `imagined` is n₀/λ₀ of every column.
    """
    determined = load_like(evidence, j, first)
    squares = load_like(evidence, imagined.size + j, first)
    own = (IMAGINED_WEIGHTS + determined) / (load_like(imagined, j, first) + squares)
    store_at(priors, j, take_smaller(take_larger(own, first), load_like(most, j, first)))


@compiled_in_order
def fade_evidence(evidence: Floats, groups: Places) -> None:
    """Fade the sums of every group that occurs in a row, once, in all columns."""
    is_faded = np.empty(evidence.shape[0], np.bool_)
    for group in range(is_faded.size):
        is_faded[group] = False
    width = 2 * evidence.shape[2]  # a multiple of four, because the number of columns is even
    for i in range(groups.size):
        if groups[i] != NO_GROUP and not is_faded[groups[i]]:
            is_faded[groups[i]] = True
            own = groups[i] * width
            for j in range(own, own + width, 4):
                store_at(evidence, j, load_four(evidence, j) * EVIDENCE_FADE)
