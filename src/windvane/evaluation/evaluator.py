"""Evaluate: what several policies would have earned, in one pass over a log.

On a Ray cluster each task evaluates some candidates, with the same numbers as in one process. Every
machine of the cluster must see the files of the log under the same paths.
"""

import pickle
from collections import Counter
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import NamedTuple, cast

import numpy as np

from windvane import validation
from windvane.beliefs.bank.settings import HalfLife, parse_half_life
from windvane.errors import SettingError
from windvane.evaluation.estimates.confidence_sequence import ActionModel
from windvane.evaluation.estimates.paired_difference import PairRecord
from windvane.evaluation.estimates.policy_record import DEFAULT_HALF_LIFE, PolicyRecord
from windvane.evaluation.estimates.result import (
    Evaluation,
    Gain,
    Interval,
    Pair,
    PolicyResult,
    Verdict,
)
from windvane.evaluation.learners.candidates import (
    Candidate,
    FixedCandidate,
    PolicyCandidate,
    add_reference,
    list_candidates,
)
from windvane.evaluation.learners.feature_blocks import FeatureBlock, split_blocks
from windvane.evaluation.learners.fixed_policies import (
    PredictedRows,
    RewardModel,
    compute_probabilities,
    compute_weights,
    find_unsupported,
    join_blocks,
    make_action_model,
)
from windvane.evaluation.learners.shadow import SAMPLES, Shadow, Views, make_shadow, view_block
from windvane.evaluation.log_batch import (
    Log,
    LogBatch,
    LogFacts,
    Period,
    RowCounts,
    SlotLog,
    Survey,
    find_usable_rows,
    read_values,
    survey_log,
)
from windvane.evaluation.page_evaluator import evaluate_pages
from windvane.evaluation.ray_tasks import RayTask, check_installed, connect_to_ray, run_tasks, share
from windvane.evaluation.readers.file_log import FileLog, open_log
from windvane.evaluation.readers.rows import FIRST_SLOTS
from windvane.types import Booleans, Floats, Places

Moment = float | str | datetime | None
MOST_ROWS_WITH_MODEL = 200_000  # beyond, a reward model must be asked for
SOURCES = {"logged": "Online", "first": "Baseline", "random": "Random"}
LOCAL = "threads"
MOST_SEGMENTS = 20  # rows of less frequent ones are together in "other"
OTHER_SEGMENTS, NO_SEGMENT = "other", "none"
CANDIDATES_PER_TASK = 4  # learning candidates that share one pass over the log


class EvaluationSettings(NamedTuple):
    """How an evaluation is made."""

    half_life: float | None = DEFAULT_HALF_LIFE  # seconds, of the recent value
    reward_model: bool | None = None
    level: float = 0.05
    seed: int = 0
    period: Period = Period()
    reward_range: tuple[float, float] | None = None
    scored_since: float = -np.inf  # rows before are learned from, and not scored
    pairs: Sequence[tuple[str, str]] = ()  # names, beside those with the reference
    by: str = ""  # column or context feature of the segments
    unit: str = ""  # the same, whose rows depend on each other
    rewards: Sequence[str] = ()  # columns; the first is learned, the others are metrics


def make_settings(
    half_life: str | None = None,
    reward_model: bool | None = None,
    level: float = 0.05,
    seed: int = 0,
    since: Moment = None,
    until: Moment = None,
    reward_range: tuple[float, float] | None = None,
    pairs: Sequence[tuple[str, str]] = (),
    by: str | None = None,
    unit: str | None = None,
    rewards: Sequence[str] | None = None,
) -> EvaluationSettings:
    """Check the arguments of `evaluate`."""
    return EvaluationSettings(
        half_life=parse_recent_half_life(half_life),
        reward_model=reward_model,
        level=validation.inside("evaluate", "level", level),
        seed=validation.whole("evaluate", "seed", seed, least=0),
        period=Period(_read_moment("since", since, -np.inf), _read_moment("until", until, np.inf)),
        reward_range=reward_range,
        pairs=pairs,
        by=by or "",
        unit=unit or "",
        rewards=tuple(rewards or ()),
    )


def parse_recent_half_life(text: str | None) -> float | None:
    """Seconds of a half-life such as "7 days"; None for "never"."""
    if text is None:
        return DEFAULT_HALF_LIFE
    try:
        parsed = parse_half_life(text)
    except SettingError:
        parsed = HalfLife(0.0, in_rounds=True)
    if parsed is not None and parsed.in_rounds:
        raise SettingError(
            f"evaluate: half_life must be never, or a time such as 7 days or PT12H, got {text!r}"
        )
    return None if parsed is None else parsed.length


def _read_moment(name: str, moment: Moment, default: float) -> float:
    """Seconds since 1970 of a number, a datetime or a text in ISO 8601; UTC if no zone is given."""
    if moment is None:
        return default
    if isinstance(moment, str):
        try:
            moment = datetime.fromisoformat(moment)
        except ValueError:
            raise SettingError(
                f"evaluate: {name} must be a time such as 2026-01-31 or 2026-01-31T12:00, "
                f"got {moment!r}"
            ) from None
    if isinstance(moment, datetime):
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        return moment.timestamp()
    return validation.real("evaluate", name, moment)


class EvaluationProgress(NamedTuple):
    """How much of a log has been read."""

    rows: int
    total: int | None  # None: not known


Progress = Callable[[EvaluationProgress], None]


def evaluate(
    log: object,
    candidates: Sequence[object],
    *,
    columns: Mapping[str, str] | None = None,
    half_life: str | None = None,
    reward_model: bool | None = None,
    level: float = 0.05,
    seed: int = 0,
    since: Moment = None,
    until: Moment = None,
    reward_range: tuple[float, float] | None = None,
    reference: object = None,
    pairs: Sequence[tuple[str, str]] = (),
    by: str | None = None,
    unit: str | None = None,
    rewards: Sequence[str] | None = None,
    progress: Progress | None = None,
) -> Evaluation:
    """Estimate what each candidate would have earned on the decisions of a log.

    The log is one that `open_log` has opened, or a frame of polars, pandas or pyarrow, whose
    columns `columns` maps. A candidate is a text, a policy, a `Learner`, another log, a function
    `policy(context, actions)` that gives probabilities, or an own learner. One that
    learns has learned every row of the log before it is asked about the next. All are compared with
    `reference`, a candidate too: by default `Learner()` if a candidate learns, else what was
    logged. `pairs` are names of other candidates to compare: `Evaluation.compare`. `half_life`
    weighs recent decisions more in the recent value, by default 7 days. With a reward model, fixed
    policies are estimated by DR; by default there is one if the log has features and at most 200
    000 rows. `level` is the chance with which an interval misses. `progress` is called after each
    part of the log; the evaluation ends if it raises. `by` names a column or context feature: the
    result has `segments`, whose intervals hold together. `rewards` are columns: the first is the
    reward, the others are in `metrics`. `unit` names a column or feature such as a user, whose
    rows depend on each other: the intervals of the estimates then take them together.
    """
    settings = make_settings(
        *(half_life, reward_model, level, seed, since, until, reward_range, pairs),
        *(by, unit, rewards),
    )
    listed, name = add_reference(list_candidates(candidates), reference)
    if hasattr(log, "iterate_batches"):
        opened = cast(Log, log)
    else:
        named = {"reward": settings.rewards[0]} if settings.rewards else {}
        opened = open_log(log, columns={**(columns or {}), **named} or None)
    return run_evaluation(opened, listed, settings, progress, name)


def run_evaluation(
    log: Log,
    candidates: Sequence[Candidate],
    settings: EvaluationSettings,
    progress: Progress | None = None,
    reference: str = "",
) -> Evaluation:
    """Evaluate candidates in one pass, after a look through the log if one is needed."""
    log = prepare_log(log, candidates, settings)
    survey = None
    wants_facts = any(isinstance(each, PolicyCandidate) and each.needs_facts for each in candidates)
    has_fixed = any(isinstance(each, FixedCandidate) for each in candidates)
    with_model = settings.reward_model
    notes = []
    if wants_facts or (with_model is None and has_fixed and _has_features(log)):
        survey = survey_log(log, settings.period)
    if with_model is None:
        with_model = survey is not None and survey.has_features
        if with_model and survey is not None and survey.facts.rows > MOST_ROWS_WITH_MODEL:
            with_model = False
            notes.append(
                f"fixed policies have no reward model, because the log has more than "
                f"{MOST_ROWS_WITH_MODEL} rows; ask for one to get narrower intervals"
            )
    segments = find_segments(log, settings.by, settings.period) if settings.by else ()
    evaluator = Evaluator(
        candidates, settings, with_model and has_fixed, survey, reference, segments
    )
    for batch in log.iterate_batches():
        evaluator.add(batch)
        if progress is not None:
            total = None if survey is None else survey.facts.rows
            progress(EvaluationProgress(evaluator.counts.used, total))
    result = evaluator.summarize(log, notes)
    if FIRST_SLOTS not in log.notes or not isinstance(log, SlotLog):
        return result
    pages = evaluate_pages(
        *(log, candidates, reference, settings.period, settings.level, settings.seed)
    )
    return replace(result, pages=pages)


def prepare_log(log: Log, candidates: Sequence[Candidate], settings: EvaluationSettings) -> Log:
    """Ask a table for the columns that are needed, and open the logs of own policies."""
    owns = [each.own for each in candidates if isinstance(each, FixedCandidate) and each.own]
    names = [own.column for own in owns if own.column]
    features = [name for name in (settings.by, settings.unit) if name]
    if isinstance(log, FileLog):
        log = log.with_columns(names, settings.rewards, features)
    elif names or settings.rewards:
        missing = [*names, *settings.rewards][0]
        raise SettingError(f"evaluate: only tables and frames have columns, got {missing!r}")
    for own in owns:
        own.open(log)
    return log


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
        """The same of some decisions."""
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


class ScoredPair(NamedTuple):
    """What two policies say of all actions of the same decisions."""

    first: ActionModel
    second: ActionModel
    models: int  # how many of both have predictions


class Scores:
    """The records of all candidates and pairs, about all rows, a segment, or another reward."""

    def __init__(
        self,
        candidates: Sequence[Candidate],
        settings: EvaluationSettings,
        reference: str,
        has_models: bool = True,
    ) -> None:
        self._candidates, self._level, self._has_models = candidates, settings.level, has_models
        self.records = [_make_record(candidate, settings) for candidate in candidates]
        self.pairs = {
            pair: PairRecord(settings.reward_range)
            for pair in list_pairs(candidates, reference, settings.pairs)
        }

    def add(self, place: int, rows: ScoredRows) -> None:
        """Add decisions to the record of a candidate."""
        if not self._has_models:
            rows = rows._replace(values=None, chosen=None, actions=None)
        self.records[place].add(
            *rows[:6],
            action_model=rows.actions,
            unsupported=rows.unsupported,
            is_defaulted=rows.is_defaulted,
            units=rows.units,
        )

    def add_pair(
        self,
        pair: tuple[int, int],
        rewards: Floats,
        scored: ScoredPair,
        counts: Floats,
        times: Floats,
    ) -> None:
        """Add decisions to the record of a pair."""
        models = scored.models if self._has_models else 0
        self.pairs[pair].add(rewards, scored.first, scored.second, counts, models, times)

    @property
    def has_rows(self) -> bool:
        """Whether any decision was added."""
        return self.records[0].has_rows

    def summarize(self, shadows: Sequence[Shadow | None]) -> tuple[list[PolicyResult], list[Pair]]:
        """Compute all estimates."""
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
                gains = (self.records[each].judge(self._level / 2) for each in (first, second))
                gain = subtract_gains(*gains)
            else:
                gain = difference.summarize(self._level)
            series = difference.build_series()
            pairs.append(Pair(mine.name, other.name, gain.relate(other.value.value), series))
        return policies, pairs


class Evaluator:
    """Takes a log batch by batch, and keeps a record for each candidate."""

    def __init__(
        self,
        candidates: Sequence[Candidate],
        settings: EvaluationSettings,
        with_model: bool,
        survey: Survey | None = None,
        reference: str = "",
        segments: Sequence[str] = (),
    ) -> None:
        self.counts = RowCounts()
        self._settings = settings
        self._candidates = candidates
        self._model = RewardModel(settings.seed) if with_model else None
        facts = LogFacts(0, 0, 0.0) if survey is None else survey.facts
        self._shadows = [
            None
            if isinstance(candidate, FixedCandidate)
            else make_shadow(candidate, facts, settings.seed)
            for candidate in candidates
        ]
        self._reference = reference
        self._scores = Scores(candidates, settings, reference)
        share = settings._replace(level=settings.level / max(len(segments), 1))
        self._segments = {name: Scores(candidates, share, reference) for name in segments}
        free = settings._replace(reward_range=None)
        self._metrics = {
            name: Scores(candidates, free, reference, has_models=False)
            for name in settings.rewards[1:]
        }
        self._units: dict[object, int] = {}
        self._unscored = 0  # rows of which an own policy has no probability

    def add(self, batch: LogBatch) -> None:
        """Evaluate the usable rows of a batch."""
        rows_before = self.counts.used
        rows = find_usable_rows(batch, self._settings.period, self.counts)
        if not rows.size:
            return
        parts = self._split(batch, rows)
        units = self._number_units(batch)
        blocks: list[FeatureBlock] = []
        predictions: list[Floats] = []
        if self._model is not None or any(self._shadows) or self._scores.pairs:
            for block in split_blocks(batch, rows):
                views = view_block(self._shadows, block, rows_before)
                rows_before += block.rows.size
                if self._model is not None:
                    blocks.append(block)
                    predictions.append(self._model.predict_and_learn(block))
                self._add_learned(batch, block, views, parts, units)
                predicted = predictions[-1] if predictions else None
                self._add_pairs(batch, block, views, predicted, parts)
        joined = join_blocks(blocks, predictions) if blocks else None
        self._add_fixed(batch, rows, joined, parts, units)

    def _split(self, batch: LogBatch, rows: Places) -> list[tuple[Scores, Booleans, Floats]]:
        """Which rows are scored, with which rewards: all, those of a segment, and each metric."""
        is_scored = batch.times >= self._settings.scored_since
        places = batch.starts[:-1] + batch.chosen
        for each in self._candidates:
            if isinstance(each, FixedCandidate) and each.own is not None:
                is_scored &= np.isfinite(each.own.compute(batch)[places])
        since = batch.times[rows] >= self._settings.scored_since
        self._unscored += int(np.count_nonzero(since & ~is_scored[rows]))
        parts = [(self._scores, is_scored, batch.rewards)]
        if self._segments:
            labels = np.array(list_labels(batch, self._settings.by, self._segments), object)
            parts += [
                (scores, is_scored & (labels == name), batch.rewards)
                for name, scores in self._segments.items()
            ]
        for name, scores in self._metrics.items():
            values = read_values(batch, name)
            if not isinstance(values, np.ndarray):
                raise SettingError(f"evaluate: the reward {name!r} must be a column of numbers")
            parts.append((scores, is_scored & np.isfinite(values), values))
        return [part for part in parts if part[1].any()]

    def _number_units(self, batch: LogBatch) -> Places | None:
        """A number for the unit of each row, the same in all batches."""
        if not self._settings.unit:
            return None
        numbers = self._units
        values = list(read_values(batch, self._settings.unit))
        keys = (None if value is None or value != value else str(value) for value in values)
        lines = batch.lines.tolist()  # a row without a unit is one of its own
        named = [
            (batch.source, line) if key is None else key
            for key, line in zip(keys, lines, strict=True)
        ]
        return np.array([numbers.setdefault(each, len(numbers)) for each in named], np.int64)

    def _add_learned(
        self,
        batch: LogBatch,
        block: FeatureBlock,
        all_views: Sequence[Views | None],
        parts: Sequence[tuple[Scores, Booleans, Floats]],
        units: Places | None,
    ) -> None:
        """Add the rows of a block to the records of the candidates that learn."""
        owners = np.repeat(np.arange(block.rows.size), np.diff(block.starts))
        for place, views in enumerate(all_views):
            if views is None:
                continue
            actions = block.make_action_model(views.probabilities, views.predictions)
            impossible = views.probabilities * (block.logged == 0.0)
            rows = ScoredRows(
                block.times,
                block.rewards,
                actions.pick_probabilities() / block.probabilities,
                actions.average_predictions(),
                actions.pick_predictions(),
                block.multiplicities,
                actions,
                np.bincount(owners, impossible, block.rows.size).astype(np.float64),
                batch.is_defaulted[block.rows],
                None if units is None else units[block.rows],
            )
            for scores, is_scored, rewards in parts:
                own = rows._replace(rewards=rewards[block.rows])
                scores.add(place, own.select(is_scored[block.rows]))

    def _add_pairs(
        self,
        batch: LogBatch,
        block: FeatureBlock,
        all_views: Sequence[Views | None],
        predictions: Floats | None,
        parts: Sequence[tuple[Scores, Booleans, Floats]],
    ) -> None:
        """Add the rows of a block to the records of pairs."""
        none = np.zeros(block.logged.size)
        models = {}
        for place in {place for pair in self._scores.pairs for place in pair}:
            candidate, views = self._candidates[place], all_views[place]
            if views is not None:
                model = block.make_action_model(*views)
            else:
                assert isinstance(candidate, FixedCandidate)
                chances = compute_probabilities(candidate, batch)[block.places]
                model = block.make_action_model(
                    chances, none if predictions is None else predictions
                )
            models[place] = model, int(views is not None or predictions is not None)
        for pair in self._scores.pairs:
            if any(is_partial(self._candidates[place]) for place in pair):
                continue
            (mine, has_mine), (other, has_other) = (models[place] for place in pair)
            for scores, is_scored, rewards in parts:
                mask = is_scored[block.rows]
                scored = ScoredPair(mine.select(mask), other.select(mask), has_mine + has_other)
                counts = block.multiplicities[mask]
                scores.add_pair(pair, rewards[block.rows][mask], scored, counts, block.times[mask])

    def _add_fixed(
        self,
        batch: LogBatch,
        rows: Places,
        predicted: PredictedRows | None,
        parts: Sequence[tuple[Scores, Booleans, Floats]],
        units: Places | None,
    ) -> None:
        """Add rows to the records of the fixed candidates."""
        impossible = batch.probabilities == 0.0
        has_impossible = bool(impossible.any())
        for place, candidate in enumerate(self._candidates):
            if not isinstance(candidate, FixedCandidate):
                continue
            values, chosen, actions = None, None, None
            weights = compute_weights(candidate, batch, rows)
            if predicted is not None and candidate.rule != "logged" and not is_partial(candidate):
                actions = make_action_model(candidate, batch, predicted)
                values, chosen = actions.average_predictions(), actions.pick_predictions()
            scored = ScoredRows(
                batch.times[rows],
                batch.rewards[rows],
                weights,
                values,
                chosen,
                batch.multiplicities[rows],
                actions,
                find_unsupported(candidate, batch, rows, impossible) if has_impossible else None,
                batch.is_defaulted[rows],
                None if units is None else units[rows],
            )
            for scores, is_scored, rewards in parts:
                own = scored._replace(rewards=rewards[rows])
                scores.add(place, own.select(is_scored[rows]))

    def summarize(self, log: Log, notes: Sequence[str] = ()) -> Evaluation:
        """Compute all estimates."""
        if not self.counts.used:
            raise SettingError(f"evaluate: {log.description} has no row that can be evaluated")
        notes = [*notes, *self._describe_matches()]
        if self._settings.unit:
            if not any(isinstance(each, str) for each in self._units):
                message = "unit must be a column or a context feature"
                raise SettingError(f"evaluate: {message}, got {self._settings.unit!r}")
            notes.append(describe_units(self._settings.unit, len(self._units)))
        policies, pairs = self._scores.summarize(self._shadows)
        whole = Evaluation(
            policies=policies,
            log=log.description,
            since=self.counts.first_time,
            until=self.counts.last_time,
            rows=self.counts.used,
            unrewarded_rows=self.counts.unrewarded,
            bad_rows=log.bad_row_count,
            first_bad_rows=[f"{row.source}:{row.line}: {row.reason}" for row in log.bad_rows],
            warnings=[*list_log_warnings(log, self.counts, any(self._shadows)), *notes],
            reference=self._reference,
            pairs=pairs,
            by=self._settings.by,
            unit=self._settings.unit,
            seed=self._settings.seed,
            has_times=log.has_times,
        )
        segments, metrics = (
            {name: self._cut(whole, scores) for name, scores in each.items() if scores.has_rows}
            for each in (self._segments, self._metrics)
        )
        return replace(whole, segments=segments, metrics=metrics)

    def _cut(self, whole: Evaluation, scores: Scores) -> Evaluation:
        """The evaluation of a segment or metric, without values over time."""
        policies, pairs = scores.summarize(self._shadows)
        short = [replace(each, series=each.series.coarsen_to_one()) for each in policies]
        alike = [replace(each, series=each.series.coarsen_to_one()) for each in pairs]
        rows = policies[0].rows
        return replace(whole, policies=short, pairs=alike, rows=rows, warnings=[])

    def _describe_matches(self) -> list[str]:
        owns = [each.own for each in self._candidates if isinstance(each, FixedCandidate)]
        matches = {own.name: own.describe_match() for own in owns if own is not None}
        sentences = [f"{name}: {text}" for name, text in matches.items() if text]
        if self._unscored:
            rows = f"{self._unscored:,} rows were learned from and not scored"
            sentences.append(f"{rows}, because an own policy has no probability for them")
        return sentences


def is_partial(candidate: Candidate) -> bool:
    """Whether only the probability of the logged action is known; after the first batch."""
    return (
        isinstance(candidate, FixedCandidate)
        and candidate.own is not None
        and candidate.own.is_partial
    )


def subtract_gains(mine: Gain, other: Gain) -> Gain:
    """The difference of two gains over what was logged, each of which misses with chance α/2."""
    low, high = mine.interval.low - other.interval.high, mine.interval.high - other.interval.low
    verdict: Verdict = "better" if low > 0 else "worse" if high < 0 else "not yet"
    needed = None if verdict == "not yet" else 0
    return Gain(mine.value - other.value, Interval(low, high), verdict, needed)


def describe_units(unit: str, count: int) -> str:
    """What intervals mean if rows depend on each other."""
    return (
        f"the intervals of the estimates take the rows of each {unit} together, {count:,} of them; "
        f"the interval at any time and the verdict are about the decisions for these {count:,}, in "
        "their order, and not about others"
    )


def find_segments(log: Log, by: str, period: Period) -> list[str]:
    """The most frequent values of a column or context feature, and "other" if there are more."""
    frequencies: Counter[str] = Counter()
    for batch in log.iterate_batches():
        labels = list_labels(batch, by)
        frequencies.update(labels[row] for row in find_usable_rows(batch, period, RowCounts()))
    if set(frequencies) <= {NO_SEGMENT}:
        raise SettingError(f"evaluate: by must be a column or a context feature, got {by!r}")
    common = [name for name, _ in frequencies.most_common(MOST_SEGMENTS)]
    return [*common, OTHER_SEGMENTS] if len(frequencies) > MOST_SEGMENTS else common


def list_labels(batch: LogBatch, by: str, known: Container[str] | None = None) -> list[str]:
    """The segment of each row; one that is not known is "other"."""
    labels = [_label(value) for value in read_values(batch, by)]
    if known is None:
        return labels
    return [label if label in known else OTHER_SEGMENTS for label in labels]


def _label(value: object) -> str:
    if value is None or value != value:
        return NO_SEGMENT
    return f"{value:g}" if isinstance(value, float) else str(value)


def list_pairs(
    candidates: Sequence[Candidate], reference: str, others: Sequence[tuple[str, str]]
) -> list[tuple[int, int]]:
    """The places of the candidates of each pair; pairs with what was logged need no record."""
    places = {candidate.name: place for place, candidate in enumerate(candidates)}
    pairs = [*((name, reference) for name in places if reference), *others]
    found = []
    for pair in pairs:
        for name in pair:
            if name not in places:
                names = ", ".join(places)
                raise SettingError(f"evaluate: there is no candidate {name!r}; there are {names}")
        first, second = (candidates[places[name]] for name in pair)
        if first is not second and "logged" not in (
            each.rule for each in (first, second) if isinstance(each, FixedCandidate)
        ):
            found.append((places[pair[0]], places[pair[1]]))
    return list(dict.fromkeys(found))


def _make_record(candidate: Candidate, settings: EvaluationSettings) -> PolicyRecord:
    source = "Custom"
    if isinstance(candidate, FixedCandidate):
        source = SOURCES.get(candidate.rule, source)
    return PolicyRecord(
        candidate.name,
        candidate.text,
        source,
        reward_range=settings.reward_range,
        half_life=settings.half_life,
        alpha=settings.level,
    )


def _has_features(log: Log) -> bool:
    for batch in log.iterate_batches():
        return batch.read_features is not None
    return False


def list_log_warnings(log: Log, counts: RowCounts, has_shadows: bool) -> list[str]:
    """What the reader of an evaluation must know of its log."""
    sentences = []
    if log.has_fitted_probabilities:
        sentences.append(
            "the log has no probabilities: they were estimated from it, and all numbers here are "
            "only as good as they are"
        )
    for count, what in (
        (counts.degraded, "because the service had answered without deciding"),
        (counts.unrewarded, "because the reward is not known"),
        (
            counts.without_probability,
            "because the chosen action has the probability 0, or none",
        ),
    ):
        if count:
            rows = "1 row was" if count == 1 else f"{count} rows were"
            sentences.append(f"{rows} left out, {what}")
    if log.bad_row_count:
        sentences.append(f"rows of the log that could not be read: {log.bad_row_count}")
    sentences += [f"{count} {what}" for what, count in log.notes.items()]
    if not log.has_times:
        sentences.append("the log has no times: the number of a decision is its time")
    if has_shadows and counts.without_features:
        sentences.append(
            "the log has no features: policies that learn tell actions apart by their place only"
        )
    return sentences


def evaluate_on(
    on: str,
    log: Log,
    candidates: Sequence[Candidate],
    settings: EvaluationSettings,
    progress: Progress | None = None,
    reference: str = "",
) -> Evaluation:
    """Evaluate in this process ("threads"), on a new Ray ("ray"), or on the Ray at an address."""
    if on == LOCAL:
        return run_evaluation(log, candidates, settings, progress, reference)
    check_installed()
    groups = group_candidates(candidates, reference)
    with connect_to_ray(None if on == "ray" else on):
        shared = share((log, list(candidates), settings, reference))
        tasks = [RayTask(f"the policies {group}", (shared, group)) for group in groups]
        parts: list[Evaluation | None] = [None] * len(groups)
        for place, result in run_tasks(_evaluate_pickled, tasks):
            assert isinstance(result, Evaluation)
            parts[place] = result
    return merge_evaluations(groups, [part for part in parts if part is not None])


def group_candidates(candidates: Sequence[Candidate], reference: str) -> list[list[int]]:
    """The places of the candidates of each task: fixed ones together, others a few at a time.

    The reference is in every group, because the others are compared with it.
    """
    always = [k for k, each in enumerate(candidates) if each.name == reference]
    rest = [(k, each) for k, each in enumerate(candidates) if each.name != reference]
    fixed = [k for k, each in rest if isinstance(each, FixedCandidate)]
    others = [k for k, each in rest if not isinstance(each, FixedCandidate)]
    step = CANDIDATES_PER_TASK
    groups = [others[first : first + step] for first in range(0, len(others), step)]
    groups = [fixed, *groups] if fixed else groups
    return [sorted([*group, *always]) for group in groups or [[]]]


def merge_evaluations(groups: Sequence[Sequence[int]], parts: Sequence[Evaluation]) -> Evaluation:
    """Join the evaluations of all groups in the order of the candidates."""
    if len({part.rows for part in parts}) > 1:
        raise SettingError("evaluate: the log changed while it was evaluated")
    placed = {
        place: policy
        for group, part in zip(groups, parts, strict=True)
        for place, policy in zip(group, part.policies, strict=True)
    }
    policies = [placed[place] for place in sorted(placed)]
    order = {policy.name: place for place, policy in enumerate(policies)}
    warnings = dict.fromkeys(sentence for part in parts for sentence in part.warnings)
    return replace(
        parts[0],
        policies=policies,
        warnings=list(warnings),
        segments=_merge_named(groups, [part.segments for part in parts]),
        metrics=_merge_named(groups, [part.metrics for part in parts]),
        pairs=sorted((pair for part in parts for pair in part.pairs), key=lambda p: order[p.first]),
    )


def _merge_named(
    groups: Sequence[Sequence[int]], parts: Sequence[Mapping[str, Evaluation]]
) -> dict[str, Evaluation]:
    return {name: merge_evaluations(groups, [each[name] for each in parts]) for name in parts[0]}


def _evaluate_pickled(shared: bytes, group: Sequence[int]) -> Evaluation:
    log, candidates, settings, reference = pickle.loads(shared)
    chosen = [candidates[place] for place in group]
    return run_evaluation(log, chosen, settings, reference=reference)
