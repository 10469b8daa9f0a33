"""Beliefs read from the arrays of a policy, and written to them."""

from collections.abc import Mapping

import numpy as np

from windvane.beliefs.full.belief import Belief
from windvane.beliefs.full.layout import (
    COUNTERS_OF_ERRORS,
    KALMAN,
    NOISE,
    TALLY,
    WIDTH,
    PolicyArrays,
    block_size,
)
from windvane.errors import BeliefError
from windvane.exploration import Exploration
from windvane.memory import Memory, names_of


def has_noise_estimate(arrays: PolicyArrays) -> bool:
    """Whether the scale of the exploration is a share of the estimated noise."""
    return bool(arrays.rules["unit"][0] == NOISE)


def read_belief(arrays: PolicyArrays, memory: Memory, ridge: float) -> Belief:
    """The belief in the arrays, as copies."""
    from windvane.beliefs.full.block import (
        view_belief,  # imported late, because compiled code is slow to load
    )
    from windvane.beliefs.full.linalg import invert, multiply_vector

    arrays = settle(arrays)
    tally, state = arrays.tally, view_belief(arrays)
    seen = tally["seen"].item()
    errors = [tally[name].item() for name in COUNTERS_OF_ERRORS]
    if memory.kind.is_filter:
        precision = state.inverse.copy()
        invert(precision)
        moment = np.empty_like(state.theta)
        multiply_vector(precision, state.theta, moment)
        gram = precision - ridge * np.eye(len(precision))
        return Belief(memory, ridge, seen, gram, gram, moment, 0.0, 0.0, *errors)
    sums = state.gram.copy(), state.noise.copy(), state.moment.copy()
    return Belief(memory, ridge, seen, *sums, tally["clock"].item(), tally["held"].item(), *errors)


def write_belief(arrays: PolicyArrays, belief: Belief, exploration: Exploration) -> None:
    """Replace the belief in the arrays, once `check_belief` has accepted it."""
    from windvane.beliefs.full.block import refresh, view_belief
    from windvane.beliefs.full.cholesky import factor_semidefinite
    from windvane.beliefs.full.linalg import update_root

    tally, state = arrays.tally, view_belief(arrays)
    arrays.block[block_size(arrays.rules) :] = 0.0
    state.gram[:] = belief.gram
    state.noise[:] = belief.noise_gram
    state.moment[:] = belief.moment
    state.theta[:] = belief.theta
    if exploration.kind.needs == "sample":
        state.root[:] = 0.0
        for row in factor_semidefinite(state.noise):
            update_root(state.root, 1.0, row, 1.0)
    tally["seen"] = belief.seen
    tally["clock"] = belief.clock
    tally["held"] = belief.held
    tally["energy"] = np.trace(belief.gram)
    if has_noise_estimate(arrays):
        for name in COUNTERS_OF_ERRORS:
            tally[name] = getattr(belief, name)
    refresh(arrays, state)


def write_blank_belief(arrays: PolicyArrays) -> None:
    """Write the belief that has learned nothing, W = W̃ = λI and b = 0, into arrays of zeros.

    The bits are those of the kernel `reset`, which inverts W: W is diagonal here, so each number
    of its inverse is one division, and d² steps suffice instead of d³.
    """
    from windvane.beliefs.full.block import view_belief

    rule, tally, state = arrays.rules[0], arrays.tally, view_belief(arrays)
    tally["ridge"] = rule["ridge"] * rule["lead"]
    lead = rule["lead"] * rule["lead"] if rule["twin"] else rule["lead"]
    tally["noise_ridge"] = rule["ridge"] * lead
    if rule["memory"] == KALMAN:  # whose `reset` inverts nothing
        np.fill_diagonal(state.inverse, 1.0 / rule["ridge"])
        return
    inverse = 1.0 / tally["ridge"][0]
    state.inverse[:] = -0.0  # the sign that the kernel gives to these zeros
    np.fill_diagonal(state.inverse, inverse)
    if rule["twin"] and rule["style"] == WIDTH:
        np.fill_diagonal(state.spread, inverse * (tally["noise_ridge"][0] * inverse))


def settle(arrays: PolicyArrays) -> PolicyArrays:
    """Return arrays with the same belief whose matrices follow all observations.

    They are the same arrays, or copies if some observations of a large belief wait.
    """
    if arrays.rules["room"][0] == 0:
        return arrays
    from windvane.beliefs.full.large import change_matrices

    settled = arrays._replace(block=arrays.block.copy())
    change_matrices(settled)
    return settled


def export_counters(arrays: PolicyArrays) -> dict[str, float]:
    """Return the counters as the header of a saved file holds them."""
    return {name: arrays.tally[name].item() for name in TALLY.names or ()}


def restore_counters(
    arrays: PolicyArrays, saved: Mapping[str, float], has_ridge: bool = True
) -> None:
    """Take over saved counters; raise ValueError or KeyError if they are none.

    The counters of a full belief include its ridge, those of a diagonal belief do not.
    """
    tally = arrays.tally
    for name in TALLY.names or ():
        tally[name] = saved[name]
    counters = [tally[name].item() for name in TALLY.names or () if name != "clock"]
    sound = np.isfinite(counters).all() and np.isfinite(tally["clock"]).all()
    if not (sound and min(counters) >= 0 and (tally["ridge"] > 0 or not has_ridge)):
        raise ValueError("its counters are out of bounds")


def check_sums(belief: Belief) -> None:
    """Refuse sums that no policy can have, or that the memory cannot continue."""
    memory = belief.memory
    if not memory.kind.mergeable:
        raise BeliefError(
            f"belief: {memory!r} needs the observations themselves; only "
            f"{', '.join(names_of(lambda kind: kind.mergeable))} can be given a belief"
        )
    sums = (belief.gram, belief.noise_gram, belief.moment)
    counts = (belief.seen, belief.squared_errors, belief.error_weight)
    if not all(np.isfinite(part).all() for part in (*sums, counts)) or min(counts) < 0:
        raise BeliefError("belief: sums must be finite and the count at least 0")
    least = np.linalg.eigvalsh(belief.gram)[0]
    least_noise = np.linalg.eigvalsh(belief.noise_gram)[0]
    if min(least, least_noise) < -0.5 * belief.ridge:
        raise BeliefError(f"belief: Gram matrices must not be negative, got {least:g}")
