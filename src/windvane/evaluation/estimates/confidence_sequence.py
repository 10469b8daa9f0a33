"""Intervals of the value of a policy that hold at every moment.

Rewards are scaled to [0, 1]. Each decision gives four numbers, whose conditional means are

| side    | X_i               | mean of X_i      | X_i ≥ −ℓ |
|---------|-------------------|------------------|----------|
| `low`   | w r               | ν_i              | ℓ = 0    |
| `high`  | w (1 − r)         | 1 − ν_i          | ℓ = 0    |
| `above` | (w − 1) r         | ν_i − b_i        | ℓ = 1    |
| `below` | (w − 1) (1 − r)   | b_i − ν_i        | ℓ = 1    |

ν_i is the value of the policy for decision i and b_i the value of the policy that logged it. Both
may drift, and the logging may adapt to the past. With coefficients g_i in (0, 1], known before the
reward, mostly 1, the mean of all X up to now is bounded from below by the following number, at all
times with probability 1 − α/2.

    (S − (1+ℓ) boundary(V/(1+ℓ)², α/2)) / Σ g_i,   S = Σ g_i X_i,   V = Σ g_i² (X_i − X̂_i)²
    X̂_i = min(1, (c + Σ_{j<i} X_j) / i),   c = ½ for `low` and `high`, 0 for `above` and `below`

`low` and `high` bound the running mean of ν_i, `above` and `below` its gain over the logged policy.
Coefficients of any size are divided by the largest.

S, V and Σ g add over parts of a log that are summed apart. X̂ starts again in each part: it may be
any number that is known before X_i, and what came before in the same part is known.

The boundary is the gamma-exponential mixture boundary. If X_i ≥ −ℓ, and X̂_i ≤ 1 is known before
X_i, then for every λ in [0, 1) and any conditional means ν_i

    exp(λ s − ψ(λ) V),   s = Σ(X_i − ν_i)/(1+ℓ),   V = Σ(X_i − X̂_i)²/(1+ℓ)²,   ψ(λ) = −log(1−λ) − λ

is a supermartingale that starts at 1, and so is its mixture M over 1 − λ with the density of a
gamma law truncated to [0, 1], with shape and rate ρ:

    log M = s + V + ρ log ρ − a log x + log γ(a, x) − log γ(ρ, ρ),   a = V + ρ,  x = s + V + ρ

γ is the lower incomplete gamma function. M stays below 1/α at all times with probability 1 − α,
so s stays below the boundary, the s with log M = log(1/α).

A reward model is a control variate. With rewards and predictions q̂ scaled to [0, 1], a constant
k ≥ 0, the weight w(a) = π(a)/p(a) of each action, and q(a) = min(q̂(a), k/w(a)),

    X = w (r − q(a)) + Σ_a π(a) q(a) ≥ −k,          Σ_a π(a) q(a) = Σ_a min(π(a) q̂(a), k p(a))
    Y = (w − 1)(r − q(a)) + Σ_a (π(a) − p(a)) q(a) ≥ −(1 + max(k, 1))

have the means of w r and (w − 1) r, and less variance if the model is good. The model must be known
before the action is chosen; it may be wrong. X is the side `low` of a confidence sequence and Y the
side `above`. The sides `high` and `below` have 1 − r and 1 − q̂ in place of r and q̂. k = 0 gives
w r and (w − 1) r.

A large k keeps more of the model, and a small k gives a tighter interval while decisions are few.
Several are therefore used together: their sequences have the same means, and which is the narrowest
depends on the log and on the number of decisions. Each side of sequence j has a
supermartingale M_j that starts at 1 if the mean is m, and so has their average. It stays below 2/α
at all times with probability 1 − α/2. The lower bound is therefore the smallest m for which

    (1/J) Σ_j M_j(m) ≤ 2/α

It is never much lower than the best of the J bounds, which has J/α in place of 1/α there. M_j is 0
here if the sum lies below m, where it is at most 1.

The verdict uses the bounds of the gain, so it holds although the question is asked after every
batch. For m candidates use α/m.

Waudby-Smith, Wu, Ramdas, Karampatziakis & Mineiro (2024), "Anytime-valid off-policy inference for
contextual bandits"; Karampatziakis, Mineiro & Ramdas (2021), "Off-policy confidence sequences";
Howard, Ramdas, McAuliffe & Sekhon (2021), "Time-uniform, nonparametric, nonasymptotic confidence
sequences".
"""

import math
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt
from scipy.special import gammainc, gammaln

from windvane.errors import FitError, SettingError
from windvane.evaluation.estimates.estimators import UNIT_RANGE, RewardRange
from windvane.evaluation.estimates.result import Gain, Interval
from windvane.types import Booleans, Floats, Places

LOW, HIGH, ABOVE, BELOW = range(4)  # the sides
Sides = tuple[Floats, Floats, Floats, Floats]  # X of each side, (..., n)
FLOORS = np.array([0.0, 0.0, 1.0, 1.0])  # ℓ of each side
PRIORS = np.array([0.5, 0.5, 0.0, 0.0])  # c of each side
NO_ROWS = np.zeros(4)
ADDED = (  # by `merge`
    *("rows", "plain", "mass", "sums", "variances", "crossed", "plain_weight", "weight", "spread"),
)
RHO = 1.0  # ρ: the boundary is tightest if V is a small multiple of ρ
STIRLING_FROM = 16.0  # the series of the log-gamma function has all digits from here on
MAX_NEWTON_STEPS = 100
BOUNDARY_TOLERANCE = 1e-13  # relative error of the boundary
LOG_GAMMA_RHO = float(np.log(gammainc(RHO, RHO)) + gammaln(RHO))  # log γ(ρ, ρ)
MODEL_BOUNDS = (1.0, 5.0, 50.0)  # each k beside 0: narrowest for few, more and many decisions
BISECTIONS = 30  # steps of the bisection of an interval, mostly shorter than 0.1
MOST_FACTOR = 11.0  # an estimate of more than ten times the decisions so far says nothing


@dataclass(eq=False)
class ConfidenceSequence:
    """Four one-sided sums, from which value and gain are bounded at any time.

    `update` may be called with rewards and weights of shape (..., n): the leading axes are
    independent logs, such as the runs of a simulation.

    >>> sequence = ConfidenceSequence()
    >>> rng = np.random.default_rng(1)
    >>> logged = rng.integers(2, size=4000)                          # two actions, p = ½
    >>> rewards = (rng.random(4000) < np.where(logged == 1, 0.7, 0.4)).astype(float)
    >>> sequence.update(rewards, 2.0 * (logged == 1))                # always the second action
    >>> low, high = sequence.bound_value(alpha=0.05)
    >>> bool(0.6 < low < 0.7 < high < 0.8)
    True
    """

    range: RewardRange = UNIT_RANGE
    floors: Floats = field(default_factory=FLOORS.copy)  # (4,) ℓ
    rows: float = 0.0  # number of X, the same for all sides and runs
    largest_coefficient: float = 0.0
    plain: Floats = field(default_factory=NO_ROWS.copy)  # (..., 4) Σ X
    mass: Floats = field(default_factory=lambda: np.zeros(()))  # (...,) Σ g
    sums: Floats = field(default_factory=NO_ROWS.copy)  # (..., 4) S
    variances: Floats = field(default_factory=NO_ROWS.copy)  # (..., 4) V
    crossed: Floats = field(default_factory=NO_ROWS.copy)  # (..., 4) Σ g² (X − X̂)(w − 1)
    plain_weight: Floats = field(default_factory=lambda: np.zeros(()))  # (...,) Σ w
    weight: Floats = field(default_factory=lambda: np.zeros(()))  # (...,) Σ g w
    spread: Floats = field(default_factory=lambda: np.zeros(()))  # (...,) Σ g² (w − 1)²

    def update(self, rewards: Floats, weights: Floats, coefficients: Floats | None = None) -> None:
        """Add decisions, in the order of time, with rewards inside the range."""
        scaled = (rewards - self.range.low) / self.range.width
        excess = weights - 1
        weighted = weights * scaled
        gained = excess * scaled
        self.update_terms(
            (weighted, weights - weighted, gained, excess - gained), weights, coefficients
        )

    def update_terms(
        self, terms: Sides, weights: Floats, coefficients: Floats | None = None
    ) -> None:
        """Add X of the four sides, (..., n) each; used if X is not the one of the table above."""
        size = terms[LOW].shape[-1]
        if size == 0:
            return
        counter = self.rows + np.arange(1, size + 1)
        excess = weights - 1
        squares = None if coefficients is None else coefficients * coefficients
        plain, sums, variances, crossed = [], [], [], []
        for side, values in enumerate(terms):
            before = np.cumsum(values, axis=-1)
            plain.append(before[..., -1].copy())
            before -= values
            before += self.plain[..., side, None] + PRIORS[side]
            before /= counter
            surprise = values - np.minimum(before, 1.0, out=before)  # X − X̂
            scaled = surprise if squares is None else surprise * squares
            sums.append(
                plain[-1] if coefficients is None else np.sum(coefficients * values, axis=-1)
            )
            variances.append(np.einsum("...i,...i->...", scaled, surprise))
            crossed.append(np.einsum("...i,...i->...", scaled, excess))
        self.plain = self.plain + np.stack(plain, axis=-1)
        self.sums = self.sums + np.stack(sums, axis=-1)
        self.variances = self.variances + np.stack(variances, axis=-1)
        self.crossed = self.crossed + np.stack(crossed, axis=-1)
        self.plain_weight = self.plain_weight + np.sum(weights, axis=-1)
        g = np.ones(size) if coefficients is None else coefficients
        self.mass = self.mass + np.sum(g, axis=-1)
        self.weight = self.weight + np.sum(g * weights, axis=-1)
        self.spread = self.spread + np.einsum("...i,...i->...", g * g * excess, excess)
        self.largest_coefficient = max(self.largest_coefficient, float(g.max()))
        self.rows += size

    def widen(self, range: RewardRange) -> None:
        """Compute the sums of a wider range of rewards.

        With r' = ρ r + d the surprises become ρ (X − X̂) + d (w − 1), if the new X̂' = ρ X̂ + d for
        `low` and ρ X̂ for `above`: both are known before X' and at most 1.
        """
        if range == self.range:
            return
        ratio = self.range.width / range.width
        shift_low = (self.range.low - range.low) / range.width
        shift_high = (range.high - self.range.high) / range.width
        shifts = np.array([shift_low, shift_high, shift_low, shift_high])
        offset = np.array([0.0, 0.0, 1.0, 1.0])  # `above` and `below` have w − 1 in place of w
        self.variances = (
            ratio**2 * self.variances
            + 2 * ratio * shifts * self.crossed
            + shifts**2 * self.spread[..., None]
        )
        self.crossed = ratio * self.crossed + shifts * self.spread[..., None]
        self.sums = ratio * self.sums + shifts * (
            self.weight[..., None] - offset * self.mass[..., None]
        )
        self.plain = ratio * self.plain + shifts * (
            self.plain_weight[..., None] - offset * self.rows
        )
        self.range = range

    def merge(self, other: "ConfidenceSequence") -> None:
        """Add the sums of another part of the log, whose range of rewards is not wider."""
        other = copy(other)  # `widen` replaces arrays, and never changes them
        other.widen(self.range)
        self.largest_coefficient = max(self.largest_coefficient, other.largest_coefficient)
        self.floors = np.maximum(self.floors, other.floors)
        for name in ADDED:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def bound_value(self, alpha: float = 0.05) -> tuple[Floats, Floats]:
        """The ends of the interval of the running mean of the value, (...,) each."""
        return bound_value([self], alpha)

    def bound_gain(self, alpha: float = 0.05) -> tuple[Floats, Floats]:
        """The ends of the interval of the mean gain over the logged policy, (...,) each."""
        return bound_gain([self], alpha)

    def find_scale(self, side: int) -> float:
        """The number (1 + ℓ) · (largest coefficient), by which the terms of a side are divided."""
        return float(self.largest_coefficient * (1 + self.floors[side]))

    def bound_below(self, side: int, alpha: float) -> Floats:
        """The lower bound of the mean of one side, not limited to [−1, 1]; −1 without decisions."""
        if self.rows == 0:
            return np.full(np.shape(self.mass), -1.0)
        scale = self.find_scale(side)
        boundary = find_boundary(np.maximum(self.variances[..., side], 0) / scale**2, alpha)
        return (self.sums[..., side] - scale * boundary) / self.mass


def log_wealth(deviation: npt.ArrayLike, variance: npt.ArrayLike) -> Floats:
    """Compute log M for deviations s ≥ 0 and variances V ≥ 0.

    The formula above loses all digits for large V. With the series of Stirling,
    log Γ(a) = (a − ½) log a − a + ½ log 2π + δ(a), it becomes, with the regularised P = γ/Γ,

        log M = s − a log(1 + s/a) − ½ log a − ρ + ρ log ρ + ½ log 2π + δ(a) + log P(a, x)
                − log γ(ρ, ρ)

    s ≥ 0 means x ≥ a, so P(a, x) ≥ ½ and its logarithm is exact.

    >>> float(log_wealth(3.0, 0.0).round(6))
    2.053895
    """
    s = np.asarray(deviation, dtype=np.float64)
    a = np.asarray(variance, dtype=np.float64) + RHO
    wealth: Floats = (
        s
        - a * np.log1p(s / a)
        - np.log(a) / 2
        - RHO
        + RHO * math.log(RHO)
        + math.log(2 * math.pi) / 2
        + _stirling_remainder(a)
        + np.log(gammainc(a, a + s))
        - LOG_GAMMA_RHO
    )
    return wealth


def find_boundary(variance: npt.ArrayLike, alpha: float) -> Floats:
    """Find the s at which log M = log(1/α), for each variance V.

    log M is convex and increasing in s, so Newton's method from a point above the root falls
    monotonically to the root.

    >>> bool(abs(log_wealth(find_boundary(50.0, 0.025), 50.0) - np.log(40.0)) < 1e-12)
    True
    """
    v = np.asarray(variance, dtype=np.float64)
    a = v + RHO
    goal = math.log(1 / alpha)
    enough = goal + np.log(a) / 2 + 1
    s = np.sqrt(2 * a * enough) + enough
    while True:
        is_low = log_wealth(s, v) < goal
        if not is_low.any():
            break
        s = np.where(is_low, 2 * s, s)
    is_falling = np.ones(s.shape, dtype=bool)
    for _ in range(MAX_NEWTON_STEPS):
        step = (log_wealth(s, v) - goal) / _slope(s, a)
        s = np.where(is_falling, s - step, s)
        is_falling &= step > BOUNDARY_TOLERANCE * s  # rounding ends the fall for very large V
        if not is_falling.any():
            return np.asarray(s)
    raise FitError(f"find_boundary: no convergence in {MAX_NEWTON_STEPS} steps for alpha = {alpha}")


def _slope(s: Floats, a: Floats) -> Floats:
    """The derivative of log M in s: 1 − a/x + x^(a−1) e^(−x) / γ(a, x)."""
    x = a + s
    log_density = (
        s - a * np.log1p(s / a) - np.log(a) / 2 + math.log(2 * math.pi) / 2 + _stirling_remainder(a)
    )  # log Γ(a) − a log x + x, so that its negative is the logarithm of x^a e^(−x) / Γ(a)
    slope: Floats = s / x + np.exp(-log_density) / x / gammainc(a, x)
    return slope


def _stirling_remainder(a: Floats) -> Floats:
    """δ(a) = log Γ(a) − (a − ½) log a + a − ½ log 2π."""
    large = np.maximum(a, STIRLING_FROM)
    inverse = 1 / (large * large)
    series = np.polyval([1 / 1188, -1 / 1680, 1 / 1260, -1 / 360, 1 / 12], inverse) / large
    small = np.minimum(a, STIRLING_FROM)
    direct = gammaln(small) - (small - 0.5) * np.log(small) + small - math.log(2 * math.pi) / 2
    return np.where(a < STIRLING_FROM, direct, series)


class ActionModel(NamedTuple):
    """What is known of all actions of n decisions before any of them is chosen.

    The actions of decision i are those from starts[i] to starts[i + 1].
    """

    predictions: Floats  # (actions,) q̂, in the unit of the rewards
    policy_probabilities: Floats  # (actions,) π
    logged_probabilities: Floats  # (actions,) p; NaN: not logged, the decision gets no model
    starts: Places  # (n + 1,)
    chosen: Places  # (n,) place of the chosen action among those offered; −1: not among them

    def select(self, is_selected: Booleans) -> Self:
        """The same of some decisions; `is_selected` has one truth value a decision."""
        if is_selected.all():
            return self
        counts = np.diff(self.starts)
        actions = np.repeat(is_selected, counts)
        starts = np.concatenate(([0], np.cumsum(counts[is_selected])))
        return type(self)(
            self.predictions[actions],
            self.policy_probabilities[actions],
            self.logged_probabilities[actions],
            starts.astype(np.int64),
            self.chosen[is_selected],
        )

    @property
    def is_logged(self) -> bool:
        """Whether the policy has the probabilities of the log."""
        return np.array_equal(self.policy_probabilities, self.logged_probabilities)

    def average_predictions(self) -> Floats:
        """Σ_a π(a) q̂(a) of each decision, (n,); q̂ of the chosen action if π is what was logged.

        Then DR is the reward itself, and a model would only add noise.
        """
        if self.is_logged:
            return self.pick_predictions()
        owners = np.repeat(np.arange(len(self.chosen)), np.diff(self.starts))
        products = self.policy_probabilities * self.predictions
        return np.bincount(owners, products, len(self.chosen)).astype(np.float64)

    def pick_predictions(self) -> Floats:
        """q̂ of the chosen action of each decision, (n,); 0 if it is not among those offered."""
        return self._pick(self.predictions)

    def pick_probabilities(self) -> Floats:
        """π of the chosen action of each decision, (n,); 0 if it is not among those offered."""
        return self._pick(self.policy_probabilities)

    def _pick(self, column: Floats) -> Floats:
        has_chosen = self.chosen >= 0
        picked = np.zeros(len(self.chosen))
        picked[has_chosen] = column[(self.starts[:-1] + self.chosen)[has_chosen]]
        return picked

    def check(self, who: str, decisions: int) -> None:
        """Refuse columns of different lengths, and predictions that are not finite."""
        if len(self.chosen) != decisions or len(self.starts) != decisions + 1:
            raise SettingError(
                f"{who}: the action model must have {decisions} decisions, got {len(self.chosen)}"
            )
        sizes = {len(column) for column in self[:3]} | {int(self.starts[-1])}
        if len(sizes) > 1:
            raise SettingError(f"{who}: the columns of the action model have different lengths")
        if not np.isfinite(self.predictions).all():
            raise SettingError(f"{who}: the predictions of the action model must be finite")


class SideModel(NamedTuple):
    """The model terms of each decision for one direction, (..., n) each."""

    chosen: Floats  # q of the chosen action
    value: Floats  # Σ_a π(a) q(a)
    logged_value: Floats  # Σ_a p(a) q(a)


class BoundedModel(NamedTuple):
    """The model terms of rewards r and of their complements 1 − r."""

    rewards: SideModel
    complements: SideModel

    def select(self, part: slice) -> "BoundedModel":
        return BoundedModel(*(SideModel(*(term[..., part] for term in side)) for side in self))


def bound_model(actions: ActionModel, rewards: RewardRange, bound: float) -> BoundedModel:
    """Compute the model terms for one k."""
    scaled = np.clip((actions.predictions - rewards.low) / rewards.width, 0.0, 1.0)
    _, policy, logged, starts, _ = actions
    size = len(actions.chosen)
    owners = np.repeat(np.arange(size), np.diff(starts))
    is_unknown = np.isnan(logged)
    if is_unknown.any():
        has_unknown = np.bincount(owners, is_unknown, size) > 0
        is_unknown = has_unknown[owners]
        policy, logged = np.where(is_unknown, 0.0, policy), np.where(is_unknown, 0.0, logged)
    sides = []
    for side in (scaled, 1 - scaled):
        kept = np.where(is_unknown, 0.0, side)  # q
        is_limited = policy * kept > bound * logged
        kept[is_limited] = bound * logged[is_limited] / policy[is_limited]
        chosen = actions._replace(predictions=kept).pick_predictions()
        value = np.bincount(owners, policy * kept, size).astype(np.float64)
        logged_value = np.bincount(owners, logged * kept, size).astype(np.float64)
        sides.append(SideModel(chosen, value, logged_value))
    return BoundedModel(*sides)


def make_sequence(rewards: RewardRange, bound: float) -> ConfidenceSequence:
    """A confidence sequence for X and Y with a model that is bounded by k."""
    floors = [bound, bound, 1 + max(bound, 1.0), 1 + max(bound, 1.0)]
    return ConfidenceSequence(rewards, floors=np.array(floors))


def update_with_model(
    sequence: ConfidenceSequence,
    rewards: Floats,  # (..., n)
    weights: Floats,  # (..., n)
    model: BoundedModel,
    coefficients: Floats | None = None,
) -> None:
    """Add decisions, in the order of time, to a sequence of `make_sequence`."""
    terms = compute_sides(rewards, weights, model, sequence.range)
    sequence.update_terms(terms, weights, coefficients)


def compute_sides(
    rewards: Floats, weights: Floats, model: BoundedModel, range_: RewardRange
) -> Sides:
    """X of `low` and `high` and Y of `above` and `below` for decisions with a model."""
    scaled = (rewards - range_.low) / range_.width
    values, gains = [], []
    for reward, side in zip((scaled, 1 - scaled), model, strict=True):
        surprise = reward - side.chosen  # r − q
        value = weights * surprise + side.value
        values.append(value)
        gains.append(value - surprise - side.logged_value)
    return values[0], values[1], gains[0], gains[1]


def bound_value(
    sequences: Sequence[ConfidenceSequence], alpha: float = 0.05
) -> tuple[Floats, Floats]:
    """The ends of the interval of the running mean of the value, (...,) each."""
    sides = (_bound_below(sequences, side, alpha / 2) for side in (LOW, HIGH))
    return sequences[0].range.unscale_value(*sides)


def bound_gain(
    sequences: Sequence[ConfidenceSequence], alpha: float = 0.05
) -> tuple[Floats, Floats]:
    """The ends of the interval of the mean gain over the logged policy, (...,) each."""
    sides = (_bound_below(sequences, side, alpha / 2) for side in (ABOVE, BELOW))
    return sequences[0].range.unscale_gain(*sides)


def compute_log_wealth(
    sequences: Sequence[ConfidenceSequence], side: int, mean: Floats | float, factor: float = 1.0
) -> Floats:
    """The logarithm of the average of M_j(mean), if there were `factor` times the decisions."""
    logs = []
    for each in sequences:
        scale = each.find_scale(side)
        deviation = factor * (each.sums[..., side] - mean * each.mass) / scale
        variance = factor * np.maximum(each.variances[..., side], 0) / scale**2
        wealth = log_wealth(np.maximum(deviation, 0.0), variance)
        logs.append(np.where(deviation > 0, wealth, -np.inf))
    total: Floats = np.logaddexp.reduce(logs, axis=0) - math.log(len(sequences))
    return total


def _bound_below(sequences: Sequence[ConfidenceSequence], side: int, alpha: float) -> Floats:
    """The lower bound of the mean of one side, by bisection; −1 without decisions."""
    if sequences[0].rows == 0 or len(sequences) == 1:
        return sequences[0].bound_below(side, alpha)
    share = alpha / len(sequences)
    low = np.max([each.bound_below(side, share) for each in sequences], axis=0)
    high = np.max([each.bound_below(side, alpha) for each in sequences], axis=0)
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        is_rejected = compute_log_wealth(sequences, side, middle) >= -math.log(alpha)
        low, high = np.where(is_rejected, middle, low), np.where(is_rejected, high, middle)
    return np.asarray(low)


def judge_gain(sequences: Sequence[ConfidenceSequence], value: float, alpha: float) -> Gain:
    """Judge the gain by its interval, and estimate how many rows are still needed."""
    interval = Interval(*(float(end) for end in bound_gain(sequences, alpha)))
    verdict = interval.judge()
    needed = 0 if verdict != "not yet" else estimate_rows_needed(sequences, alpha)
    return Gain(value, interval, verdict, needed)


def estimate_rows_needed(sequences: Sequence[ConfidenceSequence], alpha: float) -> int | None:
    """Estimate how many further rows lead to a verdict, if gain and variance stay as they are.

    After n times as many decisions the sums are n·S and n·V, and the bound is above 0 if the
    wealth at a gain of 0 exceeds 2/α. Return None if ten times as many more are not enough: the
    gain is too close to 0. The number is an estimate from the gain so far, not a promise.
    """
    rows = sequences[0].rows
    if rows == 0:
        return None
    factors = [_find_factor(sequences, side, alpha) for side in (ABOVE, BELOW)]
    reachable = [factor for factor in factors if factor is not None]
    return max(1, math.ceil((min(reachable) - 1) * rows)) if reachable else None


def _find_factor(sequences: Sequence[ConfidenceSequence], side: int, alpha: float) -> float | None:
    """How many times as many decisions bring the bound of one side above 0."""

    def is_enough(factor: float) -> bool:
        return bool(compute_log_wealth(sequences, side, 0.0, factor) > math.log(2 / alpha))

    least, most = 1.0, MOST_FACTOR
    if not is_enough(most):
        return None
    while most > least * (1 + 1e-6):  # the wealth grows with the factor once it is above 1
        middle = math.sqrt(least * most)
        least, most = (least, middle) if is_enough(middle) else (middle, most)
    return most
