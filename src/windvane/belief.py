"""What a memory holds: sums over the past, and what is kept at hand to read them fast.

The truth is three sums without the ridge: S = Σ w·xxᵀ, S̃ = Σ w²·xxᵀ and b = Σ w·xy, w the weight
that the memory gives to each observation. Everything else is derived from them. A Kalman filter
holds its mean and covariance instead, as θ̂ and `inverse`, and is exact without any sums.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from windvane._equality import are_equal
from windvane.errors import BeliefError
from windvane.memory import Memory, names_of
from windvane.types import Floats


class State(NamedTuple):
    """The parts of a belief as compiled code sees them, all views of one block of memory."""

    moment: Floats  # (d,)    b
    theta: Floats  # (d,)    θ̂ = W⁻¹b
    gram: Floats  # (d, d)  S, so that W = S + λI
    inverse: Floats  # (d, d)  close to W⁻¹: exact but for a ridge that has faded a little
    noise: Floats  # (d, d)  S̃, so that W̃ = S̃ + λI; S itself where W̃ is W
    spread: Floats  # (d, d)  close to V⁻¹ = W⁻¹W̃W⁻¹; `inverse` itself where W̃ is W
    root: Floats  # (d, d)  upper triangular R with RᵀR = S̃, where samples are drawn


@dataclass(frozen=True, eq=False)
class Belief:
    """A belief at rest: what was seen, under which memory; a monoid under `merge`."""

    memory: Memory
    ridge: float  # λ
    seen: int  # n, observations folded in
    gram: Floats  # (d, d)  S
    noise_gram: Floats  # (d, d)  S̃
    moment: Floats  # (d,)    b
    clock: float = 0.0  # when the newest observation was chosen, where ages count by a clock
    held: float = 0.0  # Σ of the squared weights by that clock

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Belief):
            return NotImplemented
        return are_equal(vars(self), vars(other))

    def __hash__(self) -> int:
        return hash((self.memory, self.ridge, self.seen, self.dim))

    @property
    def dim(self) -> int:
        """d."""
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
        from scipy.linalg import cho_factor, cho_solve  # here, because it takes a while to load

        solution: Floats = cho_solve(cho_factor(self.precision, lower=True), right)
        return solution

    def widths(self, arms: Floats) -> Floats:
        """‖x‖_{V⁻¹} of each arm, (K,): √(uᵀW̃u) with u = W⁻¹x."""
        pulled = self.solve(arms.T)  # (d, K)
        squared: Floats = np.einsum("dk,dk->k", pulled, self.noise @ pulled)
        return np.sqrt(squared)

    def merge(self, newer: "Belief") -> "Belief":
        """This belief followed by a newer one, as if one had seen both in turn.

        (n₁, S₁, S̃₁, b₁) ∘ (n₂, S₂, S̃₂, b₂)
            = (n₁+n₂, γ^{n₂}S₁+S₂, γ^{2n₂}S̃₁+S̃₂, γ^{n₂}b₁+b₂);  S̃ is S under a single Gram matrix

        With a half-life each side fades by its own age, and the order does not matter.
        """
        if not self.memory.kind.mergeable:
            names = ", ".join(names_of(lambda kind: kind.mergeable))
            raise BeliefError(f"merge: only beliefs of {names} can be merged, got {self.memory!r}")
        mine = (self.memory, self.ridge, self.dim)
        yours = (newer.memory, newer.ridge, newer.dim)
        if mine != yours:
            raise BeliefError(
                f"merge: memory, ridge and dim must be the same, got {mine!r} and {yours!r}"
            )
        fade, other, clock = self.memory.gamma**newer.seen, 1.0, newer.clock
        if self.memory.kind.is_timed:
            clock = max((each.clock for each in (self, newer) if each.seen), default=0.0)
            fade, other = (
                0.5 ** ((clock - each.clock) / self.memory.span) if each.seen else 1.0
                for each in (self, newer)
            )
        power = 1 if self.memory.single else 2
        return Belief(
            self.memory,
            self.ridge,
            self.seen + newer.seen,
            fade * self.gram + other * newer.gram,
            fade**power * self.noise_gram + other**power * newer.noise_gram,
            fade * self.moment + other * newer.moment,
            clock,
            fade**2 * self.held + other**2 * newer.held,
        )
