"""Beliefs: what a policy has learned, as weighted sums over its observations.

A belief is three sums without the ridge: S = Σ w·xxᵀ, S̃ = Σ w²·xxᵀ and b = Σ w·xy, with the weight
w that the memory gives to each observation. Everything else is derived from these sums. A Kalman
filter has a mean and a covariance instead of sums, stored as θ̂ and `inverse`.

`read_belief` and `write_belief` lead from the arrays of a policy to a belief and back.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple, Self

import numpy as np

from windvane.beliefs.full.layout import (
    COUNTERS_OF_ERRORS,
    NOISE,
    PENDING_COUNTERS,
    TALLY,
    PolicyArrays,
    block_size,
)
from windvane.errors import BeliefError, shorten
from windvane.exploration import Exploration
from windvane.memory import Memory, names_of
from windvane.persistence import EqualByContents
from windvane.types import Floats


class State(NamedTuple):
    """The parts of a belief as compiled code sees them: all are views of one array."""

    moment: Floats  # (d,)    b
    theta: Floats  # (d,)    θ̂ = W⁻¹b
    gram: Floats  # (d, d)  S, so that W = S + λI
    inverse: Floats  # (d, d)  close to W⁻¹: only the ridge in it may have faded a little
    noise: Floats  # (d, d)  S̃, so that W̃ = S̃ + λI; the same array as `gram` if W̃ is W
    spread: Floats  # (d, d)  close to V⁻¹ = W⁻¹W̃W⁻¹; the same array as `inverse` if W̃ is W
    root: Floats  # (d, d)  upper triangular R with RᵀR = S̃, for explorations that draw samples


RIDGE_FACTORS = (1e-6, 1e6)  # within which the ridge in a matrix may have faded or been raised
ROUNDING = 1e-9  # of the numbers of a matrix, relative to the largest
SUMS = ("gram", "noise_gram", "moment", "held", "squared_errors", "error_weight")  # of a belief


@dataclass(frozen=True, eq=False)
class Belief(EqualByContents):
    """The sums that a policy holds, with the memory that weighs them; a monoid under `merge`.

    >>> import numpy as np, windvane as wv
    >>> morning, evening = (wv.Policy(2, wv.keep(), wv.greedy(), seed=1) for _ in range(2))
    >>> morning.learn([1.0, 0.0], reward=1.0)
    >>> evening.learn([0.0, 1.0], reward=0.5)
    >>> morning.belief.merge(evening.belief).theta
    array([0.5 , 0.25])
    """

    memory: Memory
    ridge: float  # λ
    seen: int  # n, observations learned
    gram: Floats  # (d, d)  S
    noise_gram: Floats  # (d, d)  S̃
    moment: Floats  # (d,)    b
    clock: float = 0.0  # under a half-life, the time of the newest choice that was learned
    held: float = 0.0  # under a half-life, Σ of the squared weights at that time
    squared_errors: float = 0.0  # Σ w·e²/S, if the policy estimates its noise
    error_weight: float = 0.0  # Σ w over the same errors of prediction

    @property
    def dim(self) -> int:
        """d, the number of features."""
        return self.moment.size

    @property
    def precision(self) -> Floats:
        """W = λI + S, (d, d)."""
        return self.gram + self.ridge * np.eye(self.dim)

    @property
    def noise(self) -> Floats:
        """W̃ = λI + S̃, (d, d)."""
        return self.noise_gram + self.ridge * np.eye(self.dim)

    @property
    def theta(self) -> Floats:
        """θ̂ = W⁻¹b, (d,)."""
        return self.solve(self.moment)

    @property
    def covariance(self) -> Floats:
        """V⁻¹ = W⁻¹W̃W⁻¹, (d, d)."""
        half = self.solve(self.noise)
        return self.solve(half.T)

    def solve(self, right: Floats) -> Floats:
        """W⁻¹ times a vector or the columns of a matrix."""
        from windvane.beliefs.full import linalg  # imported late: compiled code is slow to load

        root = self.precision
        linalg.factor_cholesky(root)
        solution = np.array(right, dtype=np.float64, order="C")
        linalg.solve_with_root(root, solution.reshape(self.dim, -1))
        return solution

    def widths(self, arms: Floats) -> Floats:
        """‖x‖_{V⁻¹} of each arm, (K,): √(uᵀW̃u) with u = W⁻¹x."""
        pulled = self.solve(arms.T)  # (d, K)
        squared: Floats = np.einsum("dk,dk->k", pulled, self.noise @ pulled)
        return np.sqrt(squared)

    def fade(self, factor: float) -> Self:
        """Return the belief after all weights of observations have fallen by a factor."""
        power = 1 if self.memory.single else 2
        return replace(
            self,
            gram=factor * self.gram,
            noise_gram=factor**power * self.noise_gram,
            moment=factor * self.moment,
            held=factor**2 * self.held,
            squared_errors=factor * self.squared_errors,
            error_weight=factor * self.error_weight,
        )

    def merge(self, newer: Self) -> Self:
        """The belief of a policy that learned the observations of this one, then the newer ones.

        (n₁, S₁, S̃₁, b₁) ∘ (n₂, S₂, S̃₂, b₂)
            = (n₁+n₂, γ^{n₂}S₁+S₂, γ^{2n₂}S̃₁+S̃₂, γ^{n₂}b₁+b₂);  S̃ is S under a single Gram matrix

        Under a half-life both beliefs fade to the newer of their two clocks, in either order.
        The errors of prediction are those that each belief made on its own.
        """
        if type(newer) is not type(self):
            raise BeliefError(f"merge: a {type(self).__name__} must be given, got {shorten(newer)}")
        if not self.memory.kind.mergeable:
            names = ", ".join(names_of(lambda kind: kind.mergeable))
            raise BeliefError(f"merge: only beliefs of {names} can be merged, got {self.memory!r}")
        ours = (self.memory, self.ridge, self.dim)
        theirs = (newer.memory, newer.ridge, newer.dim)
        if ours != theirs:
            raise BeliefError(
                f"merge: memory, ridge and dim must be the same, got {ours!r} and {theirs!r}"
            )
        clock, older_fade, newer_fade = newer.clock, self.memory.gamma**newer.seen, 1.0
        if self.memory.kind.is_timed:
            clock = max((each.clock for each in (self, newer) if each.seen), default=0.0)
            older_fade, newer_fade = (
                0.5 ** ((clock - each.clock) / self.memory.span) if each.seen else 1.0
                for each in (self, newer)
            )
        return self.fade(older_fade).add(newer.fade(newer_fade), clock)

    def add(self, newer: Self, clock: float) -> Self:
        """Return the sum of two beliefs whose weights are those at one time."""
        sums = {name: getattr(self, name) + getattr(newer, name) for name in SUMS}
        return replace(self, seen=self.seen + newer.seen, clock=clock, **sums)


def has_noise_estimate(arrays: PolicyArrays) -> bool:
    """Whether the scale of the exploration is a share of the estimated noise."""
    return bool(arrays.rules["unit"][0] == NOISE)


def read_belief(arrays: PolicyArrays, memory: Memory, ridge: float) -> Belief:
    """The belief in the arrays, as copies."""
    from windvane.beliefs.full.block import (  # imported late: compiled code is slow to load
        read_ridge,
        view_belief,
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
    ridge = float(read_ridge(arrays))
    return Belief(memory, ridge, seen, *sums, tally["clock"].item(), tally["held"].item(), *errors)


def write_belief(arrays: PolicyArrays, belief: Belief, exploration: Exploration) -> None:
    """Replace the belief in the arrays, once `check_belief` has accepted it."""
    from windvane.beliefs.full.block import refresh, view_belief
    from windvane.beliefs.full.linalg import factor_semidefinite, update_root

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
    ridges = tally["ridge"].item(), tally["noise_ridge"].item()
    least, most = (arrays.rules["ridge"].item() * factor for factor in RIDGE_FACTORS)
    has_own_ridge = all(least <= ridge <= most for ridge in ridges)
    if not (sound and min(counters) >= 0 and (has_own_ridge or not has_ridge)):
        raise ValueError("its counters are out of bounds")


def check_block(arrays: PolicyArrays) -> None:
    """Raise ValueError if saved matrices cannot be those of one belief.

    W, W̃, and what stands for W⁻¹ and V⁻¹ must be symmetric and positive, and W times W⁻¹ must lead
    back to where it started, as far as rounding and a ridge that fades allow.
    """
    from windvane.beliefs.full.block import read_ridge, view_belief
    from windvane.beliefs.full.parts import FIRST_VARIANCE, view_parts

    rule, state = arrays.rules[0], view_belief(arrays)
    dim, room = len(state.moment), int(rule["room"])
    ridge = read_ridge(arrays) * np.eye(dim)
    is_filter = bool(rule["filter"])
    precision = state.gram + ridge
    matrices = [state.inverse, state.spread]
    if rule["parts"] and arrays.tally["seen"][0]:
        parts = view_parts(arrays)
        matrices += [parts.covariance, parts.still_covariance]
        if min(*parts.variances, parts.numbers[FIRST_VARIANCE]) <= 0.0:
            raise ValueError("its variances are not positive")
    if not is_filter:
        matrices += [precision, state.noise + ridge]
    for matrix in matrices:
        slack = ROUNDING * np.abs(matrix).max()
        if not np.abs(matrix - matrix.T).max() <= slack:
            raise ValueError("its matrices are not symmetric")
        np.linalg.cholesky(matrix + slack * np.eye(len(matrix)))
    probe = np.cos(np.arange(dim))
    image = state.inverse @ probe
    size = np.linalg.norm(precision) * np.linalg.norm(image)
    if not is_filter and not np.linalg.norm(precision @ image - probe) <= 0.5 * size:
        raise ValueError("its matrices are not the inverse of each other")
    if not (is_filter or room) and arrays.tally["energy"][0] > 1.01 * np.trace(precision):
        raise ValueError("its counters are not those of its matrices")
    if room:
        count, fade = arrays.block[block_size(arrays.rules) :][:PENDING_COUNTERS].tolist()
        if not (count in range(room + 1) and 0.0 <= fade <= 1.0):
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
