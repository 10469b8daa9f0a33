"""The learner as its formulas are written: dicts by name, explicit matrices, no hashing.

Nothing here comes from Windvane. The constants are those of the documented defaults.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

Features = Mapping[str, Any]
Floats = NDArray[np.float64]
Weight = tuple[Any, ...]  # the parts whose product an entry is: none, one, or two of them
Components = Sequence[tuple[float, float]]  # the half-life and the first prior precision of each

CONSTANT: Weight = ()
CONSTANT_PRIOR, MAX_PRIOR, IMAGINED_WEIGHTS, EVIDENCE_FADE = 1.0, 1000.0, 10.0, 0.9995
PRIOR_ERRORS, PRIOR_WEIGHTS, KEEP = 0.5, 2.0, 1.0 - 1.0 / 1000.0
LEAST_VARIANCE, MAX_LOSS, MARGIN, MAX_AGE = 1e-4, 10.0, 1.0, 200.0
LEVEL_LESSONS = 100
QUANTILES, FIRST_CUTS, CUT_LESSONS = (0.2, 0.4, 0.6, 0.8), (-0.84, -0.25, 0.25, 0.84), 10
BIN_VALUE, CUT_GAIN = 0.7, 2.0
ACTION_KEEP, IMAGINED_ERRORS, LEAST_NOISE_SHARE, SHARE = 0.999, 10.0, 0.5, 1.2
MAX_PARTS, MAX_ACTIONS, MAX_BINS, MAX_NUMBERS = 160, 64, 20, 2**21

NEVER = math.inf
AUTO: list[Components] = [
    [(30.0, 3.0), (300.0, 1.0), (3000.0, 0.3), (NEVER, 0.1)],
    [(30.0, 30.0), (300.0, 10.0), (3000.0, 5.0), (NEVER, 3.0)],
    *([(half_life, prior)] for half_life in (250.0, 1000.0, 3000.0, NEVER) for prior in (0.3, 3.0)),
]
DENSE: list[Components] = [[(NEVER, 0.3)], [(300.0, 1.0), (NEVER, 0.5)]]
WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")


class Part(NamedTuple):
    """A category, a number, its bin, or one number of an array."""

    side: str
    name: str  # with its category
    element: int  # of an array
    bin: int | None = None  # −1 before a number has bins

    @property
    def field(self) -> tuple[str, str, bool]:
        return self.side, self.name.partition("=")[0], self.bin is not None

    @property
    def namespace(self) -> str:
        return self.field[1].partition(".")[0] if "." in self.field[1] else ""


class Entry(NamedTuple):
    """What one weight is multiplied with."""

    weight: Weight
    value: float
    group: Weight  # the fields of the parts


@dataclass
class Scale:
    """All numbers that a part has had, in lessons, and the cut points between its bins."""

    numbers: list[float] = field(default_factory=list)
    cuts: list[float] = field(default_factory=list)

    def mean(self) -> float:
        return math.fsum(self.numbers) / len(self.numbers) if self.numbers else 0.0

    def deviation(self) -> float:
        if len(set(self.numbers)) < 2:
            return 0.0
        mean = self.mean()
        return math.sqrt(math.fsum((each - mean) ** 2 for each in self.numbers) / self.count())

    def count(self) -> int:
        return len(self.numbers)

    def standardise(self, number: float) -> float:
        deviation = self.deviation()
        return max(-3.0, min(3.0, (number - self.mean()) / deviation)) if deviation else 0.0

    def find_bin(self, number: float) -> int:
        return sum(number > cut for cut in self.cuts) if self.cuts and self.deviation() else -1

    def learn(self, number: float) -> None:
        self.numbers.append(number)
        deviation = self.deviation()
        if self.count() == CUT_LESSONS:
            self.cuts = [self.mean() + score * deviation for score in FIRST_CUTS]
        elif self.cuts:  # Robbins and Monro: up by the quantile, down by what is below
            step = CUT_GAIN * deviation / min(self.count(), 1000)
            self.cuts = [
                cut + step * (quantile - (number <= cut))
                for cut, quantile in zip(self.cuts, QUANTILES, strict=True)
            ]


@dataclass
class Judgement:
    """How well a belief has predicted."""

    errors: float = 0.0
    lessons: float = 0.0
    loss: float = 0.0

    @property
    def variance(self) -> float:
        return (PRIOR_ERRORS + self.errors) / (PRIOR_WEIGHTS + self.lessons)


class Belief:
    """A mean and a precision for each component of each weight, which fade with half-lives."""

    def __init__(self, components: Components) -> None:
        self.half_lives, self.first_priors = np.array(components).T
        self.precisions: dict[Weight, Floats] = {}  # p, that data has given
        self.moments: dict[Weight, Floats] = {}  # b = m·(p + λ)
        self.known: dict[Weight, Floats] = {}  # by group: Σ p·s
        self.squares: dict[Weight, Floats] = {}  # by group: Σ m²/σ̂²
        self.blank = np.zeros(len(components))

    def fade(self, elapsed: float) -> Floats:
        return np.asarray(0.5 ** (elapsed / self.half_lives))

    def prior(self, entry: Entry) -> Floats:
        if entry.weight == CONSTANT:
            return self.blank + CONSTANT_PRIOR
        known = self.known.get(entry.group, self.blank)
        squares = self.squares.get(entry.group, self.blank)
        prior = (IMAGINED_WEIGHTS + known) / (IMAGINED_WEIGHTS / self.first_priors + squares)
        return np.asarray(np.minimum(MAX_PRIOR, np.maximum(self.first_priors, prior)))

    def mean_and_spread(self, entry: Entry, elapsed: float = 0.0) -> tuple[Floats, Floats]:
        """The mean m and the variance s of each component of a weight, after some time."""
        fade = self.fade(elapsed)
        spread = 1.0 / (fade * self.precisions.get(entry.weight, self.blank) + self.prior(entry))
        return spread * fade * self.moments.get(entry.weight, self.blank), spread

    def predict(self, row: Sequence[Entry], elapsed: float = 0.0) -> tuple[float, float]:
        known = [(entry.value, *self.mean_and_spread(entry, elapsed)) for entry in row]
        return (
            math.fsum(x * float(mean.sum()) for x, mean, _ in known),
            math.fsum(x * x * float(spread.sum()) for x, _, spread in known),
        )

    def fade_all(self, elapsed: float) -> None:
        fade = self.fade(elapsed)
        for sums in (self.precisions, self.moments):
            for weight in sums:
                sums[weight] = fade * sums[weight]

    def weigh(self, age: float) -> float:
        """The weight of a late lesson."""
        return math.pow(2.0, -min(age / float(self.half_lives[0]), MAX_AGE))

    def learn(
        self, row: Sequence[Entry], reward: float, age: float, noise_variance: float
    ) -> tuple[float, float]:
        """Learn an observation of some age; return its error e and S·w."""
        for group in {entry.group for entry in row if entry.weight != CONSTANT}:
            self.known[group] = EVIDENCE_FADE * self.known.get(group, self.blank)
            self.squares[group] = EVIDENCE_FADE * self.squares.get(group, self.blank)
        priors = [self.prior(entry) for entry in row]
        before = [self.mean_and_spread(entry) for entry in row]
        mean, variance = self.predict(row)
        error, total = reward - mean, 1.0 / self.weigh(age) + variance
        for entry, prior, (own_mean, spread) in zip(row, priors, before, strict=True):
            if entry.weight != CONSTANT:
                self.known[entry.group] = self.known[entry.group] + 1.0 - prior * spread
                self.squares[entry.group] = self.squares[entry.group] + own_mean**2 / noise_variance
            new_mean = own_mean + spread * entry.value * error / total
            new_spread = spread - spread**2 * entry.value**2 / total
            self.precisions[entry.weight] = 1.0 / new_spread - prior
            self.moments[entry.weight] = new_mean / new_spread
        return error, self.weigh(age) * total

    def amend(self, row: Sequence[Entry], more: float, age: float) -> None:
        total = 1.0 / self.weigh(age) + self.predict(row)[1]
        spreads = [self.mean_and_spread(entry)[1] for entry in row]
        for entry, spread in zip(row, spreads, strict=True):
            gain = entry.value * more / (total - spread * entry.value**2)
            self.moments[entry.weight] = self.moments.get(entry.weight, self.blank) + gain


class Filter:
    """A Kalman filter for each action over the same list of parts, of which the first is 1."""

    def __init__(self, components: Components) -> None:
        self.half_lives, precisions = np.array(components).T
        self.variances = 1.0 / precisions
        self.means: dict[str, Floats] = {}
        self.covariances: dict[str, Floats] = {}
        self.newest: dict[str, float] = {}

    def get(self, id_: str, count: int, at: float) -> tuple[Floats, Floats]:
        """The mean and the covariance of all parameters of an action at a time."""
        variances = np.tile(self.variances, count)
        mean, covariance = np.zeros(len(variances)), np.diag(variances)
        if id_ not in self.means:
            return mean, covariance
        size = len(self.means[id_])
        mean[:size], covariance[:size, :size] = self.means[id_], self.covariances[id_]
        elapsed = max(0.0, at - self.newest[id_])
        fades = np.diag(np.tile(0.5 ** (elapsed / self.half_lives), count))
        noise = (np.eye(len(fades)) - fades @ fades) @ np.diag(variances)
        return fades @ mean, fades @ covariance @ fades.T + noise

    def spread_row(self, row: Floats) -> Floats:
        return np.repeat(row, len(self.half_lives))

    def predict(self, id_: str, row: Floats, at: float) -> tuple[float, float]:
        mean, covariance = self.get(id_, len(row), at)
        x = self.spread_row(row)
        return float(x @ mean), float(x @ covariance @ x)

    def learn(self, id_: str, row: Floats, reward: float, at: float) -> tuple[float, float]:
        mean, covariance = self.get(id_, len(row), at)
        x = self.spread_row(row)
        error, total = reward - float(x @ mean), 1.0 + float(x @ covariance @ x)
        gain = covariance @ x / total
        self.means[id_] = mean + gain * error
        self.covariances[id_] = (np.eye(len(x)) - np.outer(gain, x)) @ covariance
        self.newest[id_] = at
        return error, total

    def amend(self, id_: str, row: Floats, more: float) -> None:
        if id_ in self.means:
            mean, covariance = self.get(id_, len(row), self.newest[id_])
            self.means[id_] = mean + covariance @ self.spread_row(row) * more
            self.covariances[id_] = covariance


class Request(NamedTuple):
    """A context with one action, as both kinds of beliefs see it."""

    id: str
    row: list[Entry]
    dense: dict[Part | None, float]  # parts of the context; None is the constant


class NaiveLearner:
    """The whole learner, without its random draws."""

    def __init__(
        self,
        beliefs: Sequence[Components],
        crossings: Sequence[tuple[str, str]] = (("context", "action"),),
    ) -> None:
        self.beliefs = [Belief(components) for components in beliefs]
        self.filters = [Filter(components) for components in DENSE] if beliefs is AUTO else []
        self.judgements = [Judgement() for _ in (*self.beliefs, *self.filters)]
        self.dense_parts: list[Part | None] = [None]
        self.crossings = crossings
        self.scales: dict[Part, Scale] = {}
        self.leader = len(self.beliefs) - 1
        self.lead_errors = self.lead_lessons = self.lead_rewards = 0.0
        self.action_errors: dict[str, tuple[float, float]] = {}
        self.first_rewards: list[float] = []
        self.newest = -math.inf

    @property
    def level(self) -> float:
        return math.fsum(self.first_rewards) / max(1, len(self.first_rewards))

    @property
    def variance(self) -> float:
        return self.judgements[self.leader].variance

    def read(self, context: Features, id_: str, features: Features) -> Request:
        contexts = self._weigh("context", _read("context", context))
        actions = self._weigh(
            "action", [*_read("action", features), [(Part("action", f"_id={id_}", 0), None)]]
        )
        crossed = [(c, a) for c in contexts for a in actions if self._is_crossed(c, a)]
        total = 1.0 + math.fsum(x**2 for c, x in contexts.items() if self._takes_part(c))
        length = 1.0 + math.fsum((contexts[c] * actions[a]) ** 2 for c, a in crossed)
        actions = {part: x * math.sqrt(total / length) for part, x in actions.items()}
        row = [Entry(CONSTANT, 1.0, ())]
        row += [Entry((part,), x, (part.field,)) for part, x in (contexts | actions).items()]
        row += [
            Entry((mine, theirs), x * y, (mine.field, theirs.field))
            for mine, x in contexts.items()
            for theirs, y in actions.items()
            if self._is_crossed(mine, theirs)
        ]
        has_bins = sum(part.bin is not None for part in contexts) <= MAX_BINS
        dense = {part: x for part, x in contexts.items() if x and (has_bins or part.bin is None)}
        return Request(id_, [entry for entry in row if entry.value != 0.0], {None: 1.0} | dense)

    def predict(self, request: Request, at: float) -> tuple[float, float]:
        """The mean and the variance of a request by the belief that leads, around the level."""
        if self.leader >= len(self.beliefs):
            own = self.filters[self.leader - len(self.beliefs)]
            return own.predict(request.id, self._line_up(request), at)
        return self.beliefs[self.leader].predict(request.row, self._elapse(at))

    def balance_noise(self, ids: Sequence[str]) -> float:
        """The noise by which to explore among some actions."""
        rewards = self.lead_rewards / max(1.0, self.lead_lessons)
        variances = []
        for id_ in ids:
            squares, count = self.action_errors.get(id_, (0.0, 0.0))
            imagined = IMAGINED_ERRORS * self.variance
            variances.append((imagined + squares) / (IMAGINED_ERRORS + count))
        mean = math.fsum(variances) / len(variances)
        return math.sqrt(max(self.variance, mean, LEAST_NOISE_SHARE**2 * rewards))

    def rank(self, requests: Sequence[Request], at: float) -> tuple[list[float], list[float]]:
        """The mean and the deviation of each action, by which an action is chosen."""
        noise = self.balance_noise([request.id for request in requests])
        known = [self.predict(request, at) for request in requests]
        return [mean for mean, _ in known], [noise * math.sqrt(own) for _, own in known]

    def learn(
        self, context: Features, id_: str, features: Features, reward: float, at: float
    ) -> None:
        request = self.read(context, id_, features)
        self._advance(at)
        self._make_dense_room(request)
        if len(self.first_rewards) < LEVEL_LESSONS:
            self.first_rewards.append(reward)
        reward -= self.level
        outcomes = [
            belief.learn(request.row, reward, self.newest - at, own.variance)
            for belief, own in zip(self.beliefs, self.judgements, strict=False)
        ]
        line = self._line_up(request)
        outcomes += [own.learn(id_, line, reward, self.newest) for own in self.filters]
        self._judge(outcomes, id_, reward)
        for group in (*_read("context", context), *_read("action", features)):
            for part, number in group:
                if number is not None:
                    self.scales.setdefault(part, Scale()).learn(number)

    def _judge(self, outcomes: Sequence[tuple[float, float]], id_: str, reward: float) -> None:
        lead_variance = (PRIOR_ERRORS + self.lead_errors) / (PRIOR_WEIGHTS + self.lead_lessons)
        for own, (error, spread) in zip(self.judgements, outcomes, strict=True):
            own.errors = KEEP * own.errors + error**2 / spread
            own.lessons = KEEP * own.lessons + 1.0
            own.loss += 0.5 * error**2 / max(lead_variance, LEAST_VARIANCE)
        error, spread = outcomes[self.leader]
        self.lead_errors = KEEP * self.lead_errors + error**2
        self.lead_lessons = KEEP * self.lead_lessons + 1.0
        self.lead_rewards = KEEP * self.lead_rewards + reward**2
        squares, count = self.action_errors.get(id_, (0.0, 0.0))
        self.action_errors[id_] = (
            ACTION_KEEP * squares + error**2 / spread,
            ACTION_KEEP * count + 1.0,
        )
        least = min(own.loss for own in self.judgements)
        for own in self.judgements:
            own.loss = min(own.loss - least, MAX_LOSS)
        best = self._find_best()
        if self.judgements[self.leader].loss > self.judgements[best].loss + MARGIN:
            self.leader = best

    def _find_best(self) -> int:
        return min(range(len(self.judgements)), key=lambda place: self.judgements[place].loss)

    def amend(
        self, context: Features, id_: str, features: Features, more: float, at: float
    ) -> None:
        request = self.read(context, id_, features)
        self._advance(at)
        for belief in self.beliefs:
            belief.amend(request.row, more, self.newest - at)
        known = {part: x for part, x in request.dense.items() if part in self.dense_parts}
        for own in self.filters:
            own.amend(id_, self._line_up(request._replace(dense=known)), more)

    def _line_up(self, request: Request) -> Floats:
        """The row of dense beliefs; parts that no lesson had come last."""
        unknown = [part for part in request.dense if part not in self.dense_parts]
        parts = [*self.dense_parts, *unknown]
        return np.array([request.dense.get(part, 0.0) for part in parts])

    def _make_dense_room(self, request: Request) -> None:
        if not self.filters:
            return
        parts = self.dense_parts + [part for part in request.dense if part not in self.dense_parts]
        actions = len({request.id, *self.filters[0].means})
        numbers = 5 * (16 * math.ceil(len(parts) / 16)) ** 2
        numbers *= max(2, 2 ** math.ceil(math.log2(actions)))
        if len(parts) <= MAX_PARTS and actions <= MAX_ACTIONS and numbers <= MAX_NUMBERS:
            self.dense_parts = parts
            return
        self.filters, self.judgements = [], self.judgements[: len(self.beliefs)]
        if self.leader >= len(self.beliefs):
            self.leader = self._find_best()

    def _elapse(self, at: float) -> float:
        return max(0.0, at - self.newest) if math.isfinite(self.newest) else 0.0

    def _advance(self, at: float) -> None:
        for belief in self.beliefs:
            belief.fade_all(self._elapse(at))
        self.newest = max(self.newest, at)

    def _weigh(
        self, side: str, groups: Sequence[Sequence[tuple[Part, float | None]]]
    ) -> dict[Part, float]:
        """The values of the parts of a side; each group is one feature."""
        values: dict[Part, float] = {}
        for group in groups:
            if len(group) == 1:
                part, number = group[0]
                scale = self.scales.get(part, Scale())
                values[part] = 1.0 if number is None else scale.standardise(number)
                if number is not None:
                    bin_ = scale.find_bin(number)
                    values[part._replace(bin=bin_)] = BIN_VALUE if bin_ >= 0 else 0.0
                continue
            centred = {
                part: (number or 0.0) - self.scales.get(part, Scale()).mean()
                for part, number in group
            }
            length = math.hypot(*centred.values())
            values |= {part: 2.0 * x / length if length else 0.0 for part, x in centred.items()}
        length = math.sqrt(len(groups)) if side == "context" else math.hypot(*values.values())
        return {part: x / length for part, x in values.items()}

    def _takes_part(self, mine: Part) -> bool:
        return any(left in ("context", mine.namespace) for left, _ in self.crossings)

    def _is_crossed(self, mine: Part, theirs: Part) -> bool:
        return any(
            left in ("context", mine.namespace) and right in ("action", theirs.namespace)
            for left, right in self.crossings
        )


def _read(side: str, features: Features) -> list[list[tuple[Part, float | None]]]:
    """One list for each feature, with one part for each of its numbers; a category has none."""
    read: list[list[tuple[Part, float | None]]] = []
    for name, value in features.items():
        if isinstance(value, Mapping):
            read += _read(side, {f"{name}.{inner}": each for inner, each in value.items()})
        elif isinstance(value, list):
            read.append([(Part(side, name, i), float(each)) for i, each in enumerate(value)])
        elif isinstance(value, bool | str) or value is None or math.isnan(value):
            read += [[(Part(side, each, 0), None)] for each in _list_categories(name, value)]
        else:
            read.append([(Part(side, name, 0), float(value))])
    return read


def _list_categories(name: str, value: str | float | None) -> list[str]:
    if isinstance(value, bool):
        return [f"{name}={str(value).lower()}"]
    if not isinstance(value, str):
        return [f"{name}=missing"]
    if not re.fullmatch(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d.*", value):
        return [f"{name}={value}"]
    weekday = WEEKDAYS[datetime.fromisoformat(value).weekday()]
    return [f"{name}:hour={int(value[11:13])}", f"{name}:weekday={weekday}"]


def compute_probabilities(
    means: Sequence[float], deviations: Sequence[float], floor: float, share: float = SHARE
) -> list[float]:
    """The probability that mean + share·|Z|·deviation is the largest; the floor is mixed in."""
    count = len(means)
    levels = [0.0, math.inf]
    for i in range(count):
        for j in range(i):
            if deviations[i] != deviations[j]:
                levels.append((means[j] - means[i]) / (deviations[i] - deviations[j]) / share)
    levels = sorted(level for level in levels if level >= 0.0)
    shares = [0.0] * count
    for low, high in pairwise(levels):
        level = share * (0.5 * (low + high) if high < math.inf else low + 1.0)
        scores = [mean + level * own for mean, own in zip(means, deviations, strict=True)]
        chance = 2.0 * (stats.norm.sf(low) - stats.norm.sf(high))
        best = [k for k in range(count) if scores[k] >= max(scores) - 1e-12]
        for k in best:
            shares[k] += chance / len(best)
    return [(1.0 - floor) * each + floor / count for each in shares]
