"""Beliefs: what a policy has learned, as weighted sums over its observations.

A belief is three sums without the ridge: S = Σ w·xxᵀ, S̃ = Σ w²·xxᵀ and b = Σ w·xy, with the weight
w that the memory gives to each observation. Everything else is derived from these sums. A Kalman
filter has a mean and a covariance instead of sums, stored as θ̂ and `inverse`.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple, Self

import numpy as np

from windvane.errors import BeliefError
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
        from windvane.beliefs.full import (
            cholesky,  # imported late, because compiled code is slow to load
        )

        root = self.precision
        cholesky.factor_cholesky(root)
        solution = np.array(right, dtype=np.float64, order="C")
        cholesky.solve_with_root(root, solution.reshape(self.dim, -1))
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
            raise BeliefError(f"merge: a {type(self).__name__} must be given, got {newer!r}")
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
        return replace(
            self,
            seen=self.seen + newer.seen,
            gram=self.gram + newer.gram,
            noise_gram=self.noise_gram + newer.noise_gram,
            moment=self.moment + newer.moment,
            clock=clock,
            held=self.held + newer.held,
            squared_errors=self.squared_errors + newer.squared_errors,
            error_weight=self.error_weight + newer.error_weight,
        )
