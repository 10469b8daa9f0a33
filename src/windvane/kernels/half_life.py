"""The memory `half_life`: the weight of an observation is 2^(−age/span).

The age of an observation is that of its choice. It counts from the newest choice that was learned,
whose time is the clock.
"""

from windvane._layout import PolicyArrays
from windvane._numba.compilation import compiled


@compiled
def weigh_age(arrays: PolicyArrays, at: float) -> float:
    """The weight of an observation whose arm was chosen at time `at`."""
    weight: float = 0.5 ** ((arrays.tally[0].clock - at) / arrays.rules[0].span)
    return weight


@compiled
def advance_clock(arrays: PolicyArrays, at: float) -> tuple[float, float]:
    """Set the clock for an observation chosen at time `at`.

    Return the factor by which all older weights fall, and the weight of the observation.
    """
    rule, counts = arrays.rules[0], arrays.tally[0]
    if counts.seen == 0:
        counts.clock = at
    fade = 1.0
    weight = 1.0
    if at >= counts.clock:
        fade = 0.5 ** ((at - counts.clock) / rule.span)
        counts.clock = at
    else:
        weight = weigh_age(arrays, at)
    counts.held = fade * fade * counts.held + weight * weight
    return fade, weight
