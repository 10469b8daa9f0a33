"""The difference of two policies on the same decisions, with an interval for every moment.

Rewards r and predictions q̂ are scaled to [0, 1]. With d(a) = π_A(a) − π_B(a), the weights w = π/p
of both policies, and a constant k ≥ 0,

    X = (w_A − w_B)(r − q(a)) + Σ_a d(a) q(a) ≥ −(k + 1)
    q(a) = min(q̂(a), k p(a)/d(a))          if d(a) > 0
    q(a) = max(q̂(a), 1 − k p(a)/|d(a)|)    if d(a) < 0

has the mean V(π_A) − V(π_B), given all decisions before, whatever the model is. Its first term is
at least −k by the choice of q, and the second at least −Σ max(0, −d) ≥ −1. If both policies give an
action the same probability, it adds nothing: where two learners agree there is no noise. So X is
the side `above` of a confidence sequence of `confidence_sequence.py`, and X with A and B exchanged
is the side `below`; k = 0, 1, 5 and 50 are averaged as there.

q̂ is the mean of the predictions of both policies, ½ if they have none; both are known before the
action is chosen. For an action with p(a) = 0 or unknown, k p(a) is 0: then q is 0 if A chooses the
action more often and 1 if B does, so that the bound of A − B is low in both cases. The value of the
difference is the mean of X without a bound, k = ∞.
"""

import numpy as np

from windvane.evaluation.estimates.confidence_sequence import (
    MODEL_BOUNDS,
    ActionModel,
    ConfidenceSequence,
    judge_gain,
    make_sequence,
)
from windvane.evaluation.estimates.estimators import NO_REWARDS, UNIT_RANGE, RewardRange
from windvane.evaluation.estimates.result import Gain
from windvane.evaluation.estimates.value_series import SeriesBuilder, TimedRows
from windvane.types import Booleans, Floats

BOUNDS = (0.0, *MODEL_BOUNDS)  # each k
DEFAULT_RANGES = (UNIT_RANGE, RewardRange(-1.0, 1.0))


def fit_range(seen: RewardRange) -> RewardRange:
    """[0, 1] if it contains the rewards that were seen, else [−1, 1], else both together."""
    for usual in DEFAULT_RANGES:
        if usual.contains(seen):
            return usual
    return RewardRange(min(seen.low, -1.0), max(seen.high, 1.0))


class PairRecord:
    """Adds decisions batch by batch, and judges how much more policy A earns than policy B."""

    def __init__(self, reward_range: tuple[float, float] | None = None) -> None:
        self._given_range = None if reward_range is None else RewardRange(*reward_range)
        rewards = self._given_range or UNIT_RANGE
        self._sequences = [ConfidenceSequence(rewards)]
        self._sequences += [make_sequence(rewards, bound) for bound in MODEL_BOUNDS]
        self._seen = NO_REWARDS
        self._total = self._mass = 0.0  # Σ c X in the unit of the rewards, Σ c
        self.series = SeriesBuilder()  # of X as rewards with the weight 1

    def add(
        self,
        rewards: Floats,  # (n,)
        first: ActionModel,
        second: ActionModel,  # of the same decisions
        counts: Floats | None = None,  # (n,) how many decisions a row stands for
        models: int = 2,  # how many of both have predictions
        times: Floats | None = None,  # (n,) seconds since 1970, for the series
    ) -> None:
        """Add decisions with known rewards, in the order of the log."""
        if len(rewards) == 0:
            return
        if counts is not None and (counts == 1).all():
            counts = None
        range_ = self._widen_range(rewards)
        terms = PairTerms(rewards, first, second, range_, models)
        differences = terms.compute(np.inf, is_first_more=True) * range_.width
        self._total += float(np.sum(differences if counts is None else counts * differences))
        self._mass += float(len(rewards) if counts is None else counts.sum())
        unused, ones = np.zeros(len(rewards)), np.ones(len(rewards))
        if times is not None:
            self.series.add(TimedRows(times, differences, ones, coefficients=counts))
        for sequence, bound in zip(self._sequences, BOUNDS, strict=True):
            above, below = (terms.compute(bound, each) for each in (True, False))
            sequence.update_terms((unused, unused, above, below), ones, counts)

    def summarize(self, alpha: float) -> Gain:
        return judge_gain(self._sequences, self._total / self._mass, alpha)

    def _widen_range(self, rewards: Floats) -> RewardRange:
        self._seen = self._seen.widen(rewards)
        range_ = self._given_range or fit_range(self._seen)
        for sequence in self._sequences:
            sequence.widen(range_)
        return range_


class PairTerms:
    """What X of some decisions is made of.

    With s = q̂ and t = r where one policy chooses more often, 1 − q̂ and 1 − r where the other does,
    and c(a) = min(s(a), k p(a)/|d(a)|),  X = |w_A − w_B| (t − c(a)) + Σ |d| c − Σ max(0, −d).
    """

    def __init__(
        self,
        rewards: Floats,
        first: ActionModel,
        second: ActionModel,
        range_: RewardRange,
        models: int,
    ) -> None:
        self._size = len(rewards)
        self._owners = np.repeat(np.arange(self._size), np.diff(first.starts))
        difference = first.policy_probabilities - second.policy_probabilities  # d
        self._gaps, self._is_more = np.abs(difference), difference > 0
        logged = first.logged_probabilities
        has_unknown = np.bincount(self._owners, np.isnan(logged), self._size) > 0
        known = np.where(has_unknown[self._owners], 0.0, logged)
        self._room = np.zeros(len(known))  # p/|d|
        np.divide(known, self._gaps, out=self._room, where=self._gaps > 0)
        self._predictions = np.full(len(known), 0.5)
        if models:
            mean = (first.predictions + second.predictions) / models
            self._predictions = np.clip((mean - range_.low) / range_.width, 0.0, 1.0)
        self._rewards = (rewards - range_.low) / range_.width
        self._has_chosen = first.chosen >= 0
        self._places = first.starts[:-1] + np.where(self._has_chosen, first.chosen, 0)
        self._ratios = np.zeros(self._size)  # |w_A − w_B|
        chosen = self._places[self._has_chosen]
        self._ratios[self._has_chosen] = self._gaps[chosen] / logged[chosen]

    def compute(self, bound: float, is_first_more: bool) -> Floats:
        """X of A − B, or of B − A, for one k; (n,)."""
        is_more: Booleans = self._is_more if is_first_more else ~self._is_more
        kept = np.where(is_more, self._predictions, 1 - self._predictions)  # c
        if np.isfinite(bound):
            kept = np.minimum(kept, bound * self._room)
        rewards = np.where(is_more[self._places], self._rewards, 1 - self._rewards)
        constants = np.bincount(self._owners, self._gaps * (kept - ~is_more), self._size)
        scores: Floats = self._ratios * (rewards - kept[self._places]) + constants
        return scores
