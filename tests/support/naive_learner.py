"""The learner as its formulas are written: dicts by name, every weight faded by itself, no hashing.

Nothing here comes from Windvane. The constants are those of the documented defaults.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

from scipy import stats

Features = Mapping[str, Any]
Weight = tuple[Any, ...]  # the parts whose product an entry is: none, one, or two of them

CONSTANT: Weight = ()
CONSTANT_PRIOR, MAX_PRIOR, IMAGINED_WEIGHTS, EVIDENCE_FADE = 1.0, 1000.0, 10.0, 0.9995
PRIOR_ERRORS, PRIOR_WEIGHTS, NOISE_MEMORY = 0.5, 2.0, 1000.0
LEAST_VARIANCE, MAX_LOSS, MARGIN, MAX_AGE = 1e-4, 10.0, 1.0, 200.0


class Part(NamedTuple):
    """A category, a number, or one number of an array."""

    side: str
    name: str  # with its category
    element: int  # of an array

    @property
    def field(self) -> tuple[str, str]:
        return self.side, self.name.partition("=")[0]

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
    """All numbers that a part has had, in lessons."""

    numbers: list[float] = field(default_factory=list)

    def mean(self) -> float:
        return math.fsum(self.numbers) / len(self.numbers) if self.numbers else 0.0

    def standardise(self, number: float) -> float:
        if len(set(self.numbers)) < 2:
            return 0.0
        mean = self.mean()
        variance = math.fsum((each - mean) ** 2 for each in self.numbers) / len(self.numbers)
        return max(-3.0, min(3.0, (number - mean) / math.sqrt(variance)))


@dataclass
class Belief:
    """A mean and a precision for each weight, which fade with a half-life."""

    half_life: float
    first_prior: float
    precisions: dict[Weight, float] = field(default_factory=dict)  # p, that data has given
    moments: dict[Weight, float] = field(default_factory=dict)  # b = m·(p + λ)
    known: dict[Weight, float] = field(default_factory=dict)  # by group: Σ p·s
    squares: dict[Weight, float] = field(default_factory=dict)  # by group: Σ m²/σ̂²
    errors: float = 0.0
    lessons: float = 0.0
    loss: float = 0.0

    @property
    def variance(self) -> float:
        return (PRIOR_ERRORS + self.errors) / (PRIOR_WEIGHTS + self.lessons)

    def fade(self, seconds: float) -> float:
        return math.pow(2.0, -seconds / self.half_life)

    def prior(self, entry: Entry) -> float:
        if entry.weight == CONSTANT:
            return CONSTANT_PRIOR
        known = self.known.get(entry.group, 0.0)
        squares = self.squares.get(entry.group, 0.0)
        prior = (IMAGINED_WEIGHTS + known) / (IMAGINED_WEIGHTS / self.first_prior + squares)
        return min(MAX_PRIOR, max(self.first_prior, prior))

    def mean_and_spread(self, entry: Entry, factor: float = 1.0) -> tuple[float, float]:
        """The mean m and the variance s of a weight, after fading by a factor."""
        spread = 1.0 / (factor * self.precisions.get(entry.weight, 0.0) + self.prior(entry))
        return spread * factor * self.moments.get(entry.weight, 0.0), spread

    def predict(self, row: Sequence[Entry], factor: float = 1.0) -> tuple[float, float]:
        known = [(entry.value, *self.mean_and_spread(entry, factor)) for entry in row]
        return (
            math.fsum(x * mean for x, mean, _ in known),
            math.fsum(x * x * spread for x, _, spread in known),
        )

    def fade_all(self, seconds: float) -> None:
        for sums in (self.precisions, self.moments):
            for weight in sums:
                sums[weight] *= self.fade(seconds)

    def learn(self, row: Sequence[Entry], reward: float, weight: float) -> tuple[float, float]:
        """Learn an observation of a weight; return its error e and S·w."""
        for group in {entry.group for entry in row if entry.weight != CONSTANT}:
            self.known[group] = EVIDENCE_FADE * self.known.get(group, 0.0)
            self.squares[group] = EVIDENCE_FADE * self.squares.get(group, 0.0)
        priors = [self.prior(entry) for entry in row]
        before = [self.mean_and_spread(entry) for entry in row]
        mean, variance = self.predict(row)
        error, total = reward - mean, 1.0 / weight + variance
        for entry, prior, (own_mean, spread) in zip(row, priors, before, strict=True):
            if entry.weight != CONSTANT:
                self.known[entry.group] += 1.0 - prior * spread
                self.squares[entry.group] += own_mean**2 / self.variance
            new_mean = own_mean + spread * entry.value * error / total
            new_spread = spread - spread**2 * entry.value**2 / total
            self.precisions[entry.weight] = 1.0 / new_spread - prior
            self.moments[entry.weight] = new_mean / new_spread
        return error, weight * total

    def amend(self, row: Sequence[Entry], more: float, weight: float) -> None:
        total = 1.0 / weight + self.predict(row)[1]
        spreads = [self.mean_and_spread(entry)[1] for entry in row]
        for entry, spread in zip(row, spreads, strict=True):
            gain = entry.value * more / (total - spread * entry.value**2)
            self.moments[entry.weight] = self.moments.get(entry.weight, 0.0) + gain


class NaiveLearner:
    """The whole learner, without its random draws."""

    def __init__(
        self,
        half_lives: Sequence[float],
        first_priors: Sequence[float],
        crossings: Sequence[tuple[str, str]] = (("context", "action"),),
    ) -> None:
        self.beliefs = [Belief(each, prior) for each in half_lives for prior in first_priors]
        self.crossings = crossings
        self.scales: dict[Part, Scale] = {}
        self.leader = len(self.beliefs) - 1
        self.lead_errors = self.lead_lessons = 0.0
        self.newest = -math.inf

    def build_row(self, context: Features, id_: str, features: Features) -> list[Entry]:
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
        return [entry for entry in row if entry.value != 0.0]

    def predict(self, row: Sequence[Entry], at: float) -> tuple[float, float]:
        """The mean and the standard deviation of a row by the belief that leads."""
        leader = self.beliefs[self.leader]
        elapsed = max(0.0, at - self.newest) if math.isfinite(self.newest) else 0.0
        mean, variance = leader.predict(row, leader.fade(elapsed))
        return mean, math.sqrt(leader.variance * variance)

    def learn(
        self, context: Features, id_: str, features: Features, reward: float, at: float
    ) -> None:
        row = self.build_row(context, id_, features)
        self._advance(at)
        lead_variance = (PRIOR_ERRORS + self.lead_errors) / (PRIOR_WEIGHTS + self.lead_lessons)
        keep = 1.0 - 1.0 / NOISE_MEMORY
        for place, belief in enumerate(self.beliefs):
            error, spread = belief.learn(row, reward, self._weight(belief, at))
            belief.errors = keep * belief.errors + error**2 / spread
            belief.lessons = keep * belief.lessons + 1.0
            belief.loss += 0.5 * error**2 / max(lead_variance, LEAST_VARIANCE)
            if place == self.leader:
                self.lead_errors = keep * self.lead_errors + error**2
                self.lead_lessons = keep * self.lead_lessons + 1.0
        least = min(belief.loss for belief in self.beliefs)
        for belief in self.beliefs:
            belief.loss = min(belief.loss - least, MAX_LOSS)
        best = min(range(len(self.beliefs)), key=lambda place: self.beliefs[place].loss)
        if self.beliefs[self.leader].loss > self.beliefs[best].loss + MARGIN:
            self.leader = best
        for group in (*_read("context", context), *_read("action", features)):
            for part, number in group:
                if number is not None:
                    self.scales.setdefault(part, Scale()).numbers.append(number)

    def amend(
        self, context: Features, id_: str, features: Features, more: float, at: float
    ) -> None:
        row = self.build_row(context, id_, features)
        self._advance(at)
        for belief in self.beliefs:
            belief.amend(row, more, self._weight(belief, at))

    def _advance(self, at: float) -> None:
        elapsed = max(0.0, at - self.newest) if math.isfinite(self.newest) else 0.0
        for belief in self.beliefs:
            belief.fade_all(elapsed)
        self.newest = max(self.newest, at)

    def _weight(self, belief: Belief, at: float) -> float:
        return math.pow(2.0, -min((self.newest - at) / belief.half_life, MAX_AGE))

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
        elif isinstance(value, bool | str):
            category = value if isinstance(value, str) else str(value).lower()
            read.append([(Part(side, f"{name}={category}", 0), None)])
        elif isinstance(value, list):
            read.append([(Part(side, name, i), float(each)) for i, each in enumerate(value)])
        else:
            read.append([(Part(side, name, 0), float(value))])
    return read


def compute_probabilities(
    means: Sequence[float], deviations: Sequence[float], share: float, floor: float
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
