"""DiagonalBelief: what a diagonal policy has learned, a precision and a moment for each weight."""

from dataclasses import dataclass, replace

import numpy as np

from windvane.errors import BeliefError
from windvane.memory import Memory, names_of
from windvane.persistence import EqualByContents
from windvane.types import Floats, Places


@dataclass(frozen=True, eq=False)
class DiagonalBelief(EqualByContents):
    """The sums of a diagonal policy: precisions and moments of the weights that it has learned.

    Weight i has W = λ + p, W̃ = λ + q, the mean m = b/W and the standard deviation √W̃/W in units
    of the noise. All other weights have p = q = b = 0.

    >>> import windvane as wv
    >>> morning, evening = (wv.DiagonalPolicy(9, wv.keep(), wv.greedy(), seed=1) for _ in range(2))
    >>> morning.learn(([2, 4], [1.0, 1.0]), reward=1.0)
    >>> evening.learn(([7], [1.0]), reward=0.5)
    >>> both = morning.belief.merge(evening.belief)
    >>> both.indices, both.means.round(3)
    (array([2, 4, 7]), array([0.333, 0.333, 0.25 ]))
    """

    memory: Memory
    ridge: float  # λ
    dim: int  # d
    seen: int  # observations learned
    indices: Places  # (n,) of the weights that were learned, rising
    precision: Floats  # (n,) p, what data has added to the precision
    noise_precision: Floats  # (n,) q, the same with squared weights; p if the memory never fades
    moment: Floats  # (n,) b
    has_long_rows: bool = False  # whether a learned row had several entries
    clock: float = 0.0  # under a half-life, the time of the newest choice that was learned
    held: float = 0.0  # under a half-life, Σ of the squared weights at that time
    squared_errors: float = 0.0  # Σ w·e²/S, if the policy estimates its noise
    error_weight: float = 0.0  # Σ w over the same errors of prediction

    @property
    def means(self) -> Floats:
        """m = b/(λ + p) of each weight that was learned, (n,)."""
        means: Floats = self.moment / (self.ridge + self.precision)
        return means

    @property
    def deviations(self) -> Floats:
        """√(λ + q)/(λ + p) of each weight that was learned, in units of the noise, (n,)."""
        noise: Floats = np.sqrt(self.ridge + self.noise_precision)
        return noise / (self.ridge + self.precision)

    def check(self) -> None:
        """Refuse sums that no policy can have."""
        sums = (self.precision, self.noise_precision, self.moment)
        if any(part.shape != self.indices.shape for part in sums):
            raise BeliefError("belief: indices and sums must have one length")
        counts = (self.seen, self.squared_errors, self.error_weight)
        if min(counts) < 0 or not all(np.isfinite(part).all() for part in (*sums, counts)):
            raise BeliefError("belief: sums must be finite and the count at least 0")
        if (self.precision < 0).any() or (self.noise_precision < 0).any():
            raise BeliefError("belief: precisions must not be negative")
        bounded = self.indices.size == 0 or 0 <= self.indices[0] <= self.indices[-1] < self.dim
        if not bounded or (np.diff(self.indices) <= 0).any():
            raise BeliefError(f"belief: indices must rise and lie between 0 and {self.dim - 1}")

    def fade(self, factor: float) -> "DiagonalBelief":
        """Return the belief after all weights of observations have fallen by a factor."""
        power = 1 if self.memory.single else 2
        return replace(
            self,
            precision=factor * self.precision,
            noise_precision=factor**power * self.noise_precision,
            moment=factor * self.moment,
            held=factor**2 * self.held,
            squared_errors=factor * self.squared_errors,
            error_weight=factor * self.error_weight,
        )

    def merge(self, newer: "DiagonalBelief") -> "DiagonalBelief":
        """The belief of a policy that learned the observations of this one, then the newer ones.

        This is exact if no weight was learned by both, or if all rows had one entry. In every other
        case the merge is refused, because a diagonal belief has no correlations: what a row taught
        about a weight depends on what was known about its other weights.

        Under a half-life both beliefs fade to the newer of their two clocks, in either order. The
        errors of prediction are those that each belief made on its own.
        """
        self._check_mergeable(newer)
        memory = self.memory
        clock, older_fade, newer_fade = newer.clock, memory.gamma**newer.seen, 1.0
        if memory.kind.is_timed:
            clock = max((each.clock for each in (self, newer) if each.seen), default=0.0)
            older_fade, newer_fade = (
                0.5 ** ((clock - each.clock) / memory.span) if each.seen else 1.0
                for each in (self, newer)
            )
        beliefs = (self.fade(older_fade), newer.fade(newer_fade))
        indices = np.union1d(self.indices, newer.indices)
        precision, noise_precision, moment = np.zeros((3, indices.size))
        for each in beliefs:
            places = np.searchsorted(indices, each.indices)
            precision[places] += each.precision
            noise_precision[places] += each.noise_precision
            moment[places] += each.moment
        return DiagonalBelief(
            memory,
            self.ridge,
            self.dim,
            self.seen + newer.seen,
            indices,
            precision,
            noise_precision,
            moment,
            self.has_long_rows or newer.has_long_rows,
            clock,
            sum(each.held for each in beliefs),
            sum(each.squared_errors for each in beliefs),
            sum(each.error_weight for each in beliefs),
        )

    def _check_mergeable(self, newer: "DiagonalBelief") -> None:
        if not isinstance(newer, DiagonalBelief):
            raise BeliefError(f"merge: a DiagonalBelief must be given, got {newer!r}")
        if not self.memory.kind.mergeable:
            names = ", ".join(names_of(lambda kind: kind.mergeable))
            raise BeliefError(f"merge: only beliefs of {names} can be merged, got {self.memory!r}")
        ours = (self.memory, self.ridge, self.dim)
        theirs = (newer.memory, newer.ridge, newer.dim)
        if ours != theirs:
            raise BeliefError(
                f"merge: memory, ridge and dim must be the same, got {ours!r} and {theirs!r}"
            )
        shared = np.intersect1d(self.indices, newer.indices)
        if shared.size and (self.has_long_rows or newer.has_long_rows):
            raise BeliefError(
                "merge: two diagonal beliefs that learned the same weights can be merged only if "
                f"every row had one entry; both learned {np.array2string(shared, threshold=8)}"
            )
