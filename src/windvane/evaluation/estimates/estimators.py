"""Sums over logged decisions, and the estimates of the value of a policy that follow from them.

A decision with reward r and weight w = π(a)/p(a), where p is the logged probability of the chosen
action a and π its probability under the policy to be judged, has six terms:

    z = (1, r, w, w·r, m, u),   m = Σ_a π(a) q̂(a),   u = w (r − q̂(a))

q̂ is a reward model that has not seen the decision; without a model m = 0 and u = w·r. A decision
counts with a coefficient b, mostly 1. The sums are Σ b z and Σ b² z zᵀ. They add: over batches,
days and machines. Every estimator is a ratio of linear forms of the first sums, with E the mean
over the decisions, and the second sums have its standard error by the delta method:

| name     | estimate                      |
|----------|-------------------------------|
| `logged` | E[r]                          |
| `ips`    | E[w r]                        |
| `snips`  | E[w r] / E[w]                 |
| `dm`     | E[m]                          |
| `dr`     | E[m + u]                      |
| `sndr`   | E[m] + E[u] / E[w]            |

The interval is value ± z·error for the normal quantile z. These intervals hold for one look at many
decisions, not for repeated looks and not for few decisions: the Cressie-Read estimate below and
`confidence_sequence.py` have intervals for these cases.

For the Cressie-Read estimate the mean of the weights is known to be 1. The decisions, and one more
decision with an extreme weight, are given shares under which the mean is 1. The shares that are
closest to equal ones in the Cressie-Read divergence with power −2 give the estimate. All that are
close enough give the interval. The possible weights are [w_min, w_max]; with a logging policy that
chooses each of K actions with at least ε/K, w_max = K/ε. Both ends must be those that are possible,
not those that were seen.

Karampatziakis, Langford & Mineiro (2020), "Empirical likelihood for contextual bandits".
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple, Self

import numpy as np

from windvane.types import Floats, Places

ONE, REWARD, WEIGHT, WEIGHTED_REWARD, MODEL, CORRECTION = range(6)
PAIRS = [(i, j) for i in range(6) for j in range(i, 6)]  # terms, in the order of `products`
PAIR_PLACES = np.zeros((6, 6), dtype=np.int64)  # from two terms to their place in `products`
for _place, (_i, _j) in enumerate(PAIRS):
    PAIR_PLACES[_i, _j] = PAIR_PLACES[_j, _i] = _place
MODEL_FREE_TERMS = 4  # the first four: one, reward, weight, weighted_reward
LOGGED, IPS, SNIPS, DM, DR, SNDR = "logged", "ips", "snips", "dm", "dr", "sndr"
MODEL_FREE_NAMES = (IPS, SNIPS)
MODEL_NAMES = (DM, DR, SNDR)
SMALLEST_ROOT = 1e-9  # yz below its square counts as 0


class RewardRange(NamedTuple):
    """The smallest and the largest reward that is possible."""

    low: float
    high: float

    @property
    def width(self) -> float:
        """The distance between the ends."""
        return self.high - self.low

    def widen(self, rewards: Floats) -> "RewardRange":
        """The smallest range that contains this one and some rewards."""
        return RewardRange(
            min(self.low, float(rewards.min())), max(self.high, float(rewards.max()))
        )

    def contains(self, other: "RewardRange") -> bool:
        """Whether another range lies inside this one."""
        return self.low <= other.low and other.high <= self.high

    def unscale_value(self, low: Floats, high: Floats) -> tuple[Floats, Floats]:
        """The ends of a value, from lower bounds of r and of 1 − r scaled to [0, 1]."""
        ends = np.clip(low, 0, 1), np.clip(1 - high, 0, 1)
        return self.low + ends[0] * self.width, self.low + ends[1] * self.width

    def unscale_gain(self, above: Floats, below: Floats) -> tuple[Floats, Floats]:
        """The ends of a gain, from lower bounds of the gain and of the loss, scaled likewise."""
        return np.clip(above, -1, 1) * self.width, np.clip(-below, -1, 1) * self.width


UNIT_RANGE = RewardRange(0.0, 1.0)
NO_REWARDS = RewardRange(math.inf, -math.inf)  # contains nothing


@dataclass(frozen=True, eq=False)
class ValueSums:
    """The sums of one policy, or of many groups of decisions; the arrays begin with the groups."""

    rows: Floats  # (...,) how many decisions
    positive: Floats  # (...,) how many of them have a weight above 0
    largest_weight: Floats  # (...,) 0 without decisions
    moments: Floats  # (..., 6) Σ b z
    products: Floats  # (..., 21) Σ b² z_i z_j for the pairs i ≤ j of PAIRS
    has_model: bool  # whether m and u come from a reward model

    @classmethod
    def from_rows(
        cls,
        rewards: Floats,  # (..., n)
        weights: Floats,  # (..., n)
        model_values: Floats | None = None,  # (..., n) m
        model_chosen: Floats | None = None,  # (..., n) q̂ of the chosen action
        coefficients: Floats | None = None,  # (..., n) b; 1 if None
        starts: Places | None = None,  # (k,) where each group begins; one group if None
    ) -> Self:
        """Sum over the last axis, or over each of its groups.

        >>> sums = ValueSums.from_rows(np.array([1.0, 0.0]), np.array([2.0, 1.0]))
        >>> sums.moments.tolist()
        [2.0, 1.0, 3.0, 2.0, 0.0, 2.0]
        """
        has_model = model_values is not None and model_chosen is not None

        def add_up(values: Floats) -> Floats:
            if starts is not None:
                return np.add.reduceat(values, starts, axis=-1)
            total: Floats = np.sum(values, axis=-1)
            return total

        ones = np.ones(np.broadcast_shapes(rewards.shape, weights.shape))
        scale = ones if coefficients is None else ones * coefficients
        rewards, weights = ones * rewards, ones * weights
        terms = [scale, scale * rewards, scale * weights, scale * weights * rewards]  # b z
        if model_values is not None and model_chosen is not None:
            terms += [scale * model_values, scale * weights * (rewards - model_chosen)]
        moments = [add_up(term) for term in terms]
        products = {}
        for i, first in enumerate(terms):
            for j in range(i, len(terms)):
                # products of a term with the term "one" are needed for every coefficient b
                is_sum = i == ONE and coefficients is None
                products[i, j] = moments[j] if is_sum else add_up(first * terms[j])
        if not has_model:
            _complete_without_model(moments, products)
        if starts is None:
            largest = weights.max(axis=-1, initial=0)
        else:
            largest = np.maximum.reduceat(weights, starts, axis=-1)
        return cls(
            rows=add_up(ones),
            positive=add_up((weights > 0).astype(np.float64)),
            largest_weight=np.asarray(largest, dtype=np.float64),
            moments=np.stack(moments, axis=-1),
            products=np.stack([products[pair] for pair in PAIRS], axis=-1),
            has_model=has_model,
        )

    @classmethod
    def make_empty(cls, groups: tuple[int, ...] = ()) -> Self:
        """Sums without decisions."""
        zeros = np.zeros(groups)
        return cls(
            zeros, zeros, zeros, np.zeros((*groups, 6)), np.zeros((*groups, len(PAIRS))), False
        )

    def merge(self, other: "ValueSums") -> "ValueSums":
        """Add the sums of other decisions, group by group."""
        return self._combine(np.add, np.maximum, other)

    def concatenate(self, other: "ValueSums") -> "ValueSums":
        """Append the groups of other sums to the first axis."""

        def append(mine: Floats, theirs: Floats) -> Floats:
            return np.concatenate([mine, theirs])

        return self._combine(append, append, other)

    def add_groups(self, order: Places, starts: Places) -> "ValueSums":
        """Reorder the groups of the first axis, and add those from each start to the next."""
        return self._combine(
            lambda column: np.add.reduceat(column[order], starts),
            lambda column: np.maximum.reduceat(column[order], starts),
        )

    def accumulate(self) -> "ValueSums":
        """Replace each group of the first axis by the sum of all groups up to it."""
        return self._combine(np.add.accumulate, np.maximum.accumulate)

    def total(self) -> "ValueSums":
        """Add all groups of the first axis."""
        if len(self.rows) == 0:
            return ValueSums.make_empty()
        return self.add_groups(np.arange(len(self.rows)), np.zeros(1, dtype=np.int64)).select(0)

    def select(self, place: int) -> "ValueSums":
        """The sums of one group of the first axis."""
        return self._combine(lambda column: column[place], lambda column: column[place])

    def _combine(
        self, add: Callable[..., Floats], find_largest: Callable[..., Floats], *others: "ValueSums"
    ) -> "ValueSums":
        """Apply a function to each column of sums, and another one to the largest weights."""
        parts = (self, *others)
        return ValueSums(
            add(*(part.rows for part in parts)),
            add(*(part.positive for part in parts)),
            find_largest(*(part.largest_weight for part in parts)),
            add(*(part.moments for part in parts)),
            add(*(part.products for part in parts)),
            any(part.has_model for part in parts),
        )

    @property
    def mass(self) -> Floats:
        """Σ b, (...,)."""
        return self.moments[..., ONE]

    @property
    def effective_rows(self) -> Floats:
        """How many decisions with equal weights tell as much, (Σ b w)²/Σ (b w)², (...,)."""
        squares = self.product(WEIGHT, WEIGHT)
        weight: Floats = self.moments[..., WEIGHT]
        return np.divide(weight**2, squares, out=np.zeros_like(squares), where=squares > 0)

    def product(self, first: int, second: int) -> Floats:
        """Σ b² z_i z_j of two terms, (...,)."""
        return self.products[..., PAIR_PLACES[first, second]]

    def standard_error(self, influence: dict[int, Floats | float]) -> Floats:
        """The standard error of an estimate whose decisions have the influence c·z, with mean 0.

        √( n/(n−1) · cᵀ(Σ b² z zᵀ)c ) / Σ b;  NaN with fewer than two decisions
        """
        square: Floats = np.zeros(np.shape(self.rows))
        for i, first in influence.items():
            for j, second in influence.items():
                square = square + first * second * self.product(i, j)
        with np.errstate(divide="ignore", invalid="ignore"):
            correction = np.where(self.rows > 1, self.rows / (self.rows - 1), np.nan)
            error: Floats = np.sqrt(np.maximum(square, 0) * correction) / self.mass
        return error


def _complete_without_model(moments: list[Floats], products: dict[tuple[int, int], Floats]) -> None:
    """Add the terms m = 0 and u = w·r."""
    zero = np.zeros_like(moments[ONE])
    moments += [zero, moments[WEIGHTED_REWARD]]
    for i in range(MODEL_FREE_TERMS):
        products[i, MODEL] = zero
        products[i, CORRECTION] = products[min(i, WEIGHTED_REWARD), WEIGHTED_REWARD]
    products[MODEL, MODEL] = products[MODEL, CORRECTION] = zero
    products[CORRECTION, CORRECTION] = products[WEIGHTED_REWARD, WEIGHTED_REWARD]


class UnitSums:
    """Sums of decisions that depend on each other, such as those for one user."""

    def __init__(self) -> None:
        self._sums = np.zeros((0, 6))  # (units, 6) Σ b z of each

    def add(
        self,
        units: Places,  # (n,) numbers from 0
        rewards: Floats,
        weights: Floats,
        model_values: Floats | None,
        model_chosen: Floats | None,
        coefficients: Floats | None,
    ) -> None:
        scale = np.ones(len(units)) if coefficients is None else coefficients
        values = 0.0 if model_values is None else model_values
        chosen = 0.0 if model_chosen is None else model_chosen
        terms = (1.0, rewards, weights, weights * rewards, values, weights * (rewards - chosen))
        more = int(units.max()) + 1 - len(self._sums)
        if more > 0:
            self._sums = np.concatenate([self._sums, np.zeros((max(more, len(self._sums)), 6))])
        distinct, places = np.unique(units, return_inverse=True)
        for term, column in enumerate(terms):
            self._sums[distinct, term] += np.bincount(places, scale * column, distinct.size)

    def cluster(self, sums: ValueSums) -> ValueSums:
        """The same sums with Σ_unit (Σ b z)(Σ b z)ᵀ for the second ones, and units for rows.

        Then the standard error of an estimate is that of the sums of influence of each unit.
        """
        own = self._sums[self._sums[:, ONE] > 0]
        if not len(own):
            return sums
        products = own.T @ own
        return replace(
            sums,
            rows=np.asarray(float(len(own))),
            products=np.array([products[pair] for pair in PAIRS]),
        )


class Values(NamedTuple):
    """An estimate for each group of decisions; NaN if a group has too few."""

    value: Floats  # (...,)
    error: Floats  # (...,) standard error


def estimate_values(name: str, sums: ValueSums) -> Values:
    """Estimate the value of a policy by the name of an estimator, for each group of the sums.

    >>> sums = ValueSums.from_rows(np.array([1.0, 0.0]), np.array([2.0, 1.0]))
    >>> float(estimate_values("ips", sums).value), float(estimate_values("snips", sums).value)
    (1.0, 0.6666666666666666)
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        value, influence = _linearize(name, sums)
        return Values(value, sums.standard_error(influence))


def estimate_gain(sums: ValueSums, name: str = DR) -> Values:
    """Estimate how much more than the logged policy a policy earns; by default E[m + u − r]."""
    with np.errstate(divide="ignore", invalid="ignore"):
        value, influence = _linearize(name, sums)
        logged, other = _linearize(LOGGED, sums)
        difference = {
            term: influence.get(term, 0.0) - other.get(term, 0.0) for term in {**influence, **other}
        }
        return Values(value - logged, sums.standard_error(difference))


def _linearize(name: str, sums: ValueSums) -> tuple[Floats, dict[int, Floats | float]]:
    """An estimate, and its influence c: a decision moves it by c·z/Σ b, which has the mean 0."""
    mean = sums.moments / sums.moments[..., ONE, None]  # E[z]
    if name == SNIPS:
        value = mean[..., WEIGHTED_REWARD] / mean[..., WEIGHT]
        scale = 1 / mean[..., WEIGHT]
        return value, {WEIGHTED_REWARD: scale, WEIGHT: -value * scale}
    if name == SNDR:
        scale = 1 / mean[..., WEIGHT]
        correction = mean[..., CORRECTION] * scale
        return mean[..., MODEL] + correction, {
            MODEL: 1.0,
            ONE: -mean[..., MODEL],
            CORRECTION: scale,
            WEIGHT: -correction * scale,
        }
    terms = {LOGGED: [REWARD], IPS: [WEIGHTED_REWARD], DM: [MODEL], DR: [MODEL, CORRECTION]}[name]
    value = mean[..., terms].sum(axis=-1)
    return value, {**dict.fromkeys(terms, 1.0), ONE: -value}


def normal_quantile(alpha: float) -> float:
    """The number of standard errors on each side of an interval that misses with chance alpha.

    >>> round(normal_quantile(0.05), 4)
    1.96
    """
    from scipy.special import ndtri

    return float(ndtri(1 - alpha / 2))


class WeightRange(NamedTuple):
    """The smallest and the largest weight that is possible, low < 1 < high; high may be ∞."""

    low: float = 0.0
    high: float = math.inf


ANY_WEIGHT = WeightRange()


class CressieReadSums(NamedTuple):
    """The sums that the estimate and the interval need."""

    n: float
    w: float  # Σ w
    w2: float  # Σ w²
    wr: float  # Σ w r
    w2r: float  # Σ w² r
    w2r2: float  # Σ w² r²
    r: float  # Σ r

    @classmethod
    def from_value_sums(cls, sums: ValueSums) -> "CressieReadSums":
        """Take the sums of one group; coefficients b count as (Σ b)²/Σ b² equal decisions."""
        mass = float(sums.mass)
        squares = float(sums.product(ONE, ONE))
        n = mass**2 / squares
        first = n / mass  # both factors are 1 if all coefficients are 1
        second = n / squares
        return cls(
            n,
            first * float(sums.moments[WEIGHT]),
            second * float(sums.product(WEIGHT, WEIGHT)),
            first * float(sums.moments[WEIGHTED_REWARD]),
            second * float(sums.product(WEIGHT, WEIGHTED_REWARD)),
            second * float(sums.product(WEIGHTED_REWARD, WEIGHTED_REWARD)),
            first * float(sums.moments[REWARD]),
        )


def estimate_cressie_read(sums: CressieReadSums, weights: WeightRange = ANY_WEIGHT) -> float:
    """Compute the estimate from n > 0 decisions.

    With the extra weight f = w_max if Σw < n, else w_min, a = (f+Σw)/(1+n), b = (f²+Σw²)/(1+n):

        γ = (b−a)/(a²−b),  β = (1−a)/(a²−b);   if f = ∞:  γ = −(1+n)/n,  β = 0
        v = −(γ Σwr + β Σw²r)/(1+n) + missing · Σr/n,   missing = max(0, 1 + (γ Σw + β Σw²)/(1+n))
    """
    n, gamma, beta = sums.n, -(1 + sums.n) / sums.n, 0.0
    extra = weights.high if sums.w < n else weights.low
    if math.isfinite(extra):
        a = (extra + sums.w) / (1 + n)
        b = (extra**2 + sums.w2) / (1 + n)
        gamma, beta = (b - a) / (a * a - b), (1 - a) / (a * a - b)
    value = -(gamma * sums.wr + beta * sums.w2r) / (1 + n)
    missing = max(0.0, 1 + (gamma * sums.w + beta * sums.w2) / (1 + n))
    return value + missing * sums.r / n


def bound_cressie_read(
    sums: CressieReadSums,
    rewards: RewardRange,
    weights: WeightRange = ANY_WEIGHT,
    alpha: float = 0.05,
) -> tuple[float, float]:
    """Compute the ends of the interval, which misses with chance alpha for one look.

    φ = −(g + F)/(2(1+n)) with F the upper alpha quantile of the F law with 1 and n degrees of
    freedom, and g = (1+n)(a−1)²/(b−a²), or 1 + 1/n if f = ∞. Each end is the extreme of
    x − √(2yz) over the two extra weights.
    """
    from scipy.special import fdtri

    n, closest = sums.n, 1 + 1 / sums.n
    extra = weights.high if sums.w < n else weights.low
    if math.isfinite(extra):
        a = (extra + sums.w) / (1 + n)
        b = (extra**2 + sums.w2) / (1 + n)
        closest = (1 + n) * (a - 1) ** 2 / (b - a * a)
    quantile = float(fdtri(1.0, n, 1 - alpha))
    level = -(closest + quantile) / (2 * (1 + n))  # φ
    ends = []
    for reward, sign in ((rewards.low, 1.0), (rewards.high, -1.0)):
        found = [_find_end(sums, extra, reward, sign, level) for extra in weights]
        best = min((end for end in found if end is not None), default=sign * reward)
        ends.append(min(rewards.high, max(rewards.low, sign * best)))
    return ends[0], ends[1]


def _find_end(
    sums: CressieReadSums, extra: float, reward: float, sign: float, level: float
) -> float | None:
    """The smallest of sign · value with one extra decision, or None if no reweighting is near."""
    n = sums.n
    if math.isinf(extra):
        x = sign * (reward + (sums.wr - sums.w * reward) / n)
        y = (reward * sums.w - sums.wr) ** 2 / (n * (1 + n)) - (
            reward**2 * sums.w2 - 2 * reward * sums.w2r + sums.w2r2
        ) / (1 + n)
        z = level + 1 / (2 * n)
    else:
        w = (extra + sums.w) / (1 + n)
        w2 = (extra**2 + sums.w2) / (1 + n)
        wr = sign * (extra * reward + sums.wr) / (1 + n)
        w2r = sign * (extra**2 * reward + sums.w2r) / (1 + n)
        w2r2 = (extra**2 * reward**2 + sums.w2r2) / (1 + n)
        variance = w2 - w * w
        if variance <= 0:
            return None
        covariance = w2r - w * wr
        x = wr + (1 - w) * covariance / variance
        y = covariance**2 / variance - (w2r2 - wr**2)
        z = level + (1 - w) ** 2 / (2 * variance)
    if abs(y * z) <= SMALLEST_ROOT**2:
        return x - math.sqrt(2) * SMALLEST_ROOT
    if z <= 0 and y * z >= 0:
        return x - math.sqrt(2 * y * z)
    return None
