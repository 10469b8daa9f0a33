"""The records of all candidates and their pairs, and the segments into which rows are divided."""

from collections import Counter
from collections.abc import Container, Sequence
from dataclasses import replace
from typing import NamedTuple

from windvane.errors import SettingError
from windvane.evaluation.estimates.confidence_sequence import ActionModel
from windvane.evaluation.estimates.paired_difference import PairRecord
from windvane.evaluation.estimates.policy_record import PolicyRecord
from windvane.evaluation.estimates.result import Pair, PolicyResult
from windvane.evaluation.learners.candidates import Candidate, FixedCandidate
from windvane.evaluation.learners.shadow import SAMPLES, Shadow
from windvane.evaluation.log_batch import Log, LogBatch, Period, find_usable_rows, read_values
from windvane.evaluation.settings import EvaluationSettings
from windvane.types import Booleans, Floats, Places

SOURCES = {"logged": "Online", "first": "Baseline", "random": "Random"}
MOST_SEGMENTS = 20  # rows of less frequent ones are together in "other"
OTHER_SEGMENTS, NO_SEGMENT = "other", "none"


class ScoredRows(NamedTuple):
    """Decisions as the records take them, (n,) each, and what is known of all their actions."""

    times: Floats
    rewards: Floats
    weights: Floats
    values: Floats | None
    chosen: Floats | None
    counts: Floats
    actions: ActionModel | None
    unsupported: Floats | None
    is_defaulted: Booleans
    units: Places | None

    def select(self, is_selected: Booleans) -> "ScoredRows":
        if is_selected.all():
            return self
        return ScoredRows._make(
            each.select(is_selected)
            if isinstance(each, ActionModel)
            else None
            if each is None
            else each[is_selected]
            for each in self
        )


class Scores:
    """The records of all candidates and pairs, about all rows, a segment, or another reward."""

    def __init__(
        self,
        candidates: Sequence[Candidate],
        settings: EvaluationSettings,
        reference: str,
        has_models: bool = True,
    ) -> None:
        self._candidates, self._level, self.has_models = candidates, settings.level, has_models
        self.records = [
            PolicyRecord(
                candidate.name,
                candidate.text,
                SOURCES.get(getattr(candidate, "rule", ""), "Custom"),
                reward_range=settings.reward_range,
                alpha=settings.level,
            )
            for candidate in candidates
        ]
        self.pairs = {
            pair: PairRecord(settings.reward_range)
            for pair in _list_pairs(candidates, reference, settings.pairs)
        }

    def add(self, place: int, rows: ScoredRows) -> None:
        if not self.has_models:
            rows = rows._replace(values=None, chosen=None, actions=None)
        self.records[place].add(
            *rows[:6],
            action_model=rows.actions,
            unsupported=rows.unsupported,
            is_defaulted=rows.is_defaulted,
            units=rows.units,
        )

    @property
    def has_rows(self) -> bool:
        return self.records[0].has_rows

    def summarize(self, shadows: Sequence[Shadow | None]) -> tuple[list[PolicyResult], list[Pair]]:
        policies = []
        for record, shadow in zip(self.records, shadows, strict=True):
            result = record.summarize(learns=shadow is not None)
            if shadow is not None and shadow.is_sampled:
                note = f"its probabilities are counted in {SAMPLES} draws for each row"
                result = replace(result, warnings=[*result.warnings, note])
            policies.append(result)
        pairs = []
        for (first, second), difference in self.pairs.items():
            mine, other = policies[first], policies[second]
            if is_partial(self._candidates[first]) or is_partial(self._candidates[second]):
                half = self._level / 2  # both intervals must hold
                gain = self.records[first].judge(half).subtract(self.records[second].judge(half))
            else:
                gain = difference.summarize(self._level)
            series = difference.series.build()
            pairs.append(Pair(mine.name, other.name, gain.relate(other.value.value), series))
        return policies, pairs


class BatchSplit(NamedTuple):
    """The rows of a batch by what they are scored for: all, those of a segment, each metric."""

    batch: LogBatch
    parts: Sequence[tuple[Scores, Booleans, Floats]]  # which rows, (n,), with which rewards, (n,)
    units: Places | None  # (n,) a number for the unit of each row

    def add(
        self,
        place: int,
        rows: Places,
        weights: Floats,
        actions: ActionModel | None,
        unsupported: Floats | None,
    ) -> None:
        batch = self.batch
        scored = ScoredRows(
            batch.times[rows],
            batch.rewards[rows],
            weights,
            None if actions is None else actions.average_predictions(),
            None if actions is None else actions.pick_predictions(),
            batch.multiplicities[rows],
            actions,
            unsupported,
            batch.is_defaulted[rows],
            None if self.units is None else self.units[rows],
        )
        for scores, is_scored, rewards in self.parts:
            own = scored._replace(rewards=rewards[rows])
            scores.add(place, own.select(is_scored[rows]))


def _list_pairs(
    candidates: Sequence[Candidate], reference: str, others: Sequence[tuple[str, str]]
) -> list[tuple[int, int]]:
    """The places of the candidates of each pair; pairs with what was logged need no record."""
    places = {candidate.name: place for place, candidate in enumerate(candidates)}
    found = []
    for pair in (*((name, reference) for name in places if reference), *others):
        for name in pair:
            if name not in places:
                names = ", ".join(places)
                raise SettingError(f"evaluate: there is no candidate {name!r}; there are {names}")
        first, second = (places[name] for name in pair)
        rules = [getattr(candidates[place], "rule", "") for place in (first, second)]
        if first != second and "logged" not in rules:
            found.append((first, second))
    return list(dict.fromkeys(found))


def is_partial(candidate: Candidate) -> bool:
    """Whether only the probability of the logged action is known; after the first batch."""
    own = candidate.own if isinstance(candidate, FixedCandidate) else None
    return own is not None and own.is_partial


def find_segments(log: Log, by: str, period: Period) -> list[str]:
    """The most frequent values of a column or context feature, and "other" if there are more."""
    frequencies: Counter[str] = Counter()
    for batch in log.iterate_batches():
        labels = list_labels(batch, by)
        frequencies.update(labels[row] for row in find_usable_rows(batch, period))
    if set(frequencies) <= {NO_SEGMENT}:
        raise SettingError(f"evaluate: by must be a column or a context feature, got {by!r}")
    common = [name for name, _ in frequencies.most_common(MOST_SEGMENTS)]
    return [*common, OTHER_SEGMENTS] if len(frequencies) > MOST_SEGMENTS else common


def list_labels(batch: LogBatch, by: str, known: Container[str] | None = None) -> list[str]:
    """The segment of each row; one that is not known is "other"."""
    labels = [format_label(value) for value in read_values(batch, by)]
    if known is None:
        return labels
    return [label if label in known else OTHER_SEGMENTS for label in labels]


def format_label(value: object) -> str:
    """The segment that the value of a feature stands for."""
    if value is None or value != value:
        return NO_SEGMENT
    return f"{value:g}" if isinstance(value, float) else str(value)
