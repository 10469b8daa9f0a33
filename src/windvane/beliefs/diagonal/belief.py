"""DiagonalBelief: the sums of a policy without correlations, of the weights that it has learned."""

from dataclasses import KW_ONLY, dataclass, replace
from typing import Self

import numpy as np

from windvane.beliefs.full.belief import Belief
from windvane.errors import BeliefError
from windvane.types import Floats, Places


@dataclass(frozen=True, eq=False)
class DiagonalBelief(Belief):
    """A belief whose sums are diagonal: a precision and a moment for each learned weight.

    `gram`, `noise_gram` and `moment` are p, q and b, (n,) each. Weight i has W = λ + p, W̃ = λ + q,
    the mean m = b/W and the standard deviation √W̃/W in units of the noise. All other weights have
    p = q = b = 0.

    >>> import windvane as wv
    >>> policies = [wv.Policy(9, "keep()", "greedy()", belief="diagonal") for _ in range(2)]
    >>> policies[0].learn(([2, 4], [1.0, 1.0]), reward=1.0)
    >>> policies[1].learn(([7], [1.0]), reward=0.5)
    >>> both = policies[0].belief.merge(policies[1].belief)
    >>> both.theta.round(3)
    array([0.   , 0.   , 0.333, 0.   , 0.333, 0.   , 0.   , 0.25 , 0.   ])
    """

    _: KW_ONLY
    indices: Places  # (n,) of the weights that were learned, rising
    full_dim: int  # d
    has_long_rows: bool = False  # whether a learned row had several entries

    @property
    def dim(self) -> int:
        """d, the number of features."""
        return self.full_dim

    @property
    def precision(self) -> Floats:
        """W = λ + p of each weight that was learned, (n,)."""
        return self.gram + self.ridge

    @property
    def noise(self) -> Floats:
        """W̃ = λ + q of each weight that was learned, (n,)."""
        return self.noise_gram + self.ridge

    @property
    def covariance(self) -> Floats:
        """W̃/W² of each weight that was learned, (n,)."""
        return self.noise / self.precision**2

    @property
    def means(self) -> Floats:
        """m = b/W of each weight that was learned, (n,)."""
        return self.moment / self.precision

    @property
    def deviations(self) -> Floats:
        """√W̃/W of each weight that was learned, in units of the noise, (n,)."""
        return np.sqrt(self.covariance)

    @property
    def theta(self) -> Floats:
        """The means of all weights, (d,)."""
        theta = np.zeros(self.dim)
        theta[self.indices] = self.means
        return theta

    def widths(self, arms: Floats) -> Floats:
        """√(Σ xᵢ²W̃ᵢ/Wᵢ²) of each dense arm, (K,)."""
        variances = np.full(self.dim, 1.0 / self.ridge)
        variances[self.indices] = self.covariance
        widths: Floats = np.sqrt(arms**2 @ variances)
        return widths

    def check(self) -> None:
        """Refuse sums that no policy can have."""
        sums = (self.gram, self.noise_gram, self.moment)
        if any(part.shape != self.indices.shape for part in sums):
            raise BeliefError("belief: indices and sums must have one length")
        counts = (self.seen, self.squared_errors, self.error_weight)
        if min(counts) < 0 or not all(np.isfinite(part).all() for part in (*sums, counts)):
            raise BeliefError("belief: sums must be finite and the count at least 0")
        if (self.gram < 0).any() or (self.noise_gram < 0).any():
            raise BeliefError("belief: precisions must not be negative")
        bounded = self.indices.size == 0 or 0 <= self.indices[0] <= self.indices[-1] < self.dim
        if not bounded or (np.diff(self.indices) <= 0).any():
            raise BeliefError(f"belief: indices must rise and lie between 0 and {self.dim - 1}")

    def add(self, newer: Self, clock: float) -> Self:
        """Return the sum of two beliefs whose weights are those at one time.

        This is exact if no weight was learned by both, or if all rows had one entry. In every other
        case the merge is refused, because a diagonal belief has no correlations: what a row taught
        about a weight depends on what was known about its other weights.
        """
        has_long_rows = self.has_long_rows or newer.has_long_rows
        shared = np.intersect1d(self.indices, newer.indices)
        if shared.size and has_long_rows:
            raise BeliefError(
                "merge: two diagonal beliefs that learned the same weights can be merged only if "
                f"every row had one entry; both learned {np.array2string(shared, threshold=8)}"
            )
        indices = np.union1d(self.indices, newer.indices)
        both = super(DiagonalBelief, self.spread(indices)).add(newer.spread(indices), clock)
        return replace(both, has_long_rows=has_long_rows)

    def spread(self, indices: Places) -> Self:
        """Return the belief with a sum of 0 for each further weight among the indices."""
        places = np.searchsorted(indices, self.indices)
        gram, noise_gram, moment = np.zeros((3, indices.size))
        gram[places], noise_gram[places] = self.gram, self.noise_gram
        moment[places] = self.moment
        return replace(self, indices=indices, gram=gram, noise_gram=noise_gram, moment=moment)
