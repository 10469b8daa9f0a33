"""Evaluate: what several policies would have earned, in one pass over a log."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, cast

import numpy as np

from windvane.errors import SettingError
from windvane.evaluation.estimates.confidence_sequence import ActionModel
from windvane.evaluation.estimates.result import Evaluation
from windvane.evaluation.learners.candidates import (
    Candidate,
    FixedCandidate,
    PolicyCandidate,
    add_reference,
    list_candidates,
    make_learner,
)
from windvane.evaluation.learners.feature_blocks import FeatureBlock, split_blocks
from windvane.evaluation.learners.fixed_policies import (
    compute_probabilities,
    compute_weights,
    find_unsupported,
)
from windvane.evaluation.learners.shadow import Views, make_shadow, view_block
from windvane.evaluation.log_batch import (
    Log,
    LogBatch,
    LogFacts,
    RowCounts,
    SlotLog,
    Survey,
    find_usable_rows,
    read_values,
    survey_log,
)
from windvane.evaluation.page_evaluator import evaluate_pages
from windvane.evaluation.readers.file_log import FileLog, open_log
from windvane.evaluation.readers.rows import FIRST_SLOTS
from windvane.evaluation.scores import BatchSplit, Scores, find_segments, is_partial, list_labels
from windvane.evaluation.settings import EvaluationSettings, Moment
from windvane.types import Booleans, Floats, Places

MOST_ROWS_WITH_MODEL = 200_000  # beyond, a reward model must be asked for


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
    logged. `pairs` are names of other candidates to compare: `Evaluation.compare`. With a reward
    model, fixed policies are estimated by DR; by default there is one if the log has features and
    at most 200 000 rows. `level` is the chance with which an interval misses. `progress` is called
    after each part of the log; the evaluation ends if it raises. `by` names a column or context
    feature: the result has `segments`, whose intervals hold together. `rewards` are columns: the
    first is the reward, the others are in `metrics`. `unit` names a column or feature such as a
    user, whose rows depend on each other: the intervals of the estimates then take them together.
    """
    settings = EvaluationSettings(
        reward_model=reward_model,
        level=level,
        seed=seed,
        reward_range=reward_range,
        pairs=pairs,
        by=by or "",
        unit=unit or "",
        rewards=tuple(rewards or ()),
    ).check(since, until)
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
    return replace(result, pages=evaluate_pages(log, candidates, reference, settings))


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
        facts = LogFacts(0, 0, 0.0) if survey is None else survey.facts
        self._model = make_shadow(make_learner(), facts, settings.seed) if with_model else None
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
        rows_before = self.counts.used
        rows = find_usable_rows(batch, self._settings.period, self.counts)
        if not rows.size:
            return
        split = BatchSplit(batch, self._list_parts(batch, rows), self._number_units(batch))
        predictions: list[Floats] = []
        if self._model is not None or any(self._shadows) or self._scores.pairs:
            for block in split_blocks(batch, rows):
                views = view_block(self._shadows, block, rows_before)
                rows_before += block.rows.size
                if self._model is not None:
                    predictions.append(self._model.view_block(block, rows_before).predictions)
                predicted = predictions[-1] if predictions else None
                self._add_block(block, views, predicted, split)
        self._add_fixed(rows, np.concatenate(predictions) if predictions else None, split)

    def _list_parts(self, batch: LogBatch, rows: Places) -> list[tuple[Scores, Booleans, Floats]]:
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
        return [part for part in parts if part[1].any()]  # those with rows in this batch

    def _number_units(self, batch: LogBatch) -> Places | None:
        """A number for the unit of each row, the same in all batches."""
        if not self._settings.unit:
            return None
        numbers, values = self._units, read_values(batch, self._settings.unit)
        named = [  # a row without a unit is one of its own
            (batch.source, line) if value is None or value != value else str(value)
            for value, line in zip(values, batch.lines.tolist(), strict=True)
        ]
        return np.array([numbers.setdefault(each, len(numbers)) for each in named], np.int64)

    def _add_block(
        self,
        block: FeatureBlock,
        all_views: Sequence[Views | None],
        predictions: Floats | None,
        split: BatchSplit,
    ) -> None:
        """Add the rows of a block to the records of pairs and of the candidates that learn."""
        models: dict[int, ActionModel] = {}
        owners = np.repeat(np.arange(block.rows.size), np.diff(block.starts))
        for place, views in enumerate(all_views):
            if views is not None:
                models[place] = actions = block.make_action_model(*views)
                weights = actions.pick_probabilities() / block.probabilities
                impossible = views.probabilities * (block.logged == 0.0)
                unsupported = np.bincount(owners, impossible, block.rows.size).astype(np.float64)
                split.add(place, block.rows, weights, actions, unsupported)
        none = np.zeros(block.logged.size)
        for pair in self._scores.pairs:
            if any(is_partial(self._candidates[place]) for place in pair):
                continue
            for place in pair:
                candidate = self._candidates[place]
                if place not in models and isinstance(candidate, FixedCandidate):
                    chances = compute_probabilities(candidate, split.batch)
                    models[place] = block.make_action_model(
                        chances[block.places], none if predictions is None else predictions
                    )
            has_model = [all_views[place] is not None or predictions is not None for place in pair]
            mine, other = (models[place] for place in pair)
            for scores, is_scored, rewards in split.parts:
                mask = is_scored[block.rows]
                scores.pairs[pair].add(
                    rewards[block.rows][mask],
                    mine.select(mask),
                    other.select(mask),
                    block.multiplicities[mask],
                    sum(has_model) if scores.has_models else 0,
                    block.times[mask],
                )

    def _add_fixed(self, rows: Places, predictions: Floats | None, split: BatchSplit) -> None:
        batch = split.batch
        block = None if predictions is None else FeatureBlock(batch, rows)
        impossible = batch.probabilities == 0.0
        has_impossible = bool(impossible.any())
        for place, candidate in enumerate(self._candidates):
            if not isinstance(candidate, FixedCandidate):
                continue
            weights = compute_weights(candidate, batch, rows)
            actions, unsupported = None, None
            needs_model = candidate.rule != "logged" and not is_partial(candidate)
            if block is not None and predictions is not None and needs_model:
                chances = compute_probabilities(candidate, batch)[block.places]
                actions = block.make_action_model(chances, predictions)
            if has_impossible:
                unsupported = find_unsupported(candidate, batch, rows, impossible)
            split.add(place, rows, weights, actions, unsupported)

    def summarize(self, log: Log, notes: Sequence[str] = ()) -> Evaluation:
        if not self.counts.used:
            raise SettingError(f"evaluate: {log.description} has no row that can be evaluated")
        notes = [*notes, *self._describe_matches(), *self._describe_units()]
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

    def _describe_units(self) -> list[str]:
        """What intervals mean if rows depend on each other."""
        unit, count = self._settings.unit, len(self._units)
        if not unit:
            return []
        if not any(isinstance(each, str) for each in self._units):
            message = "unit must be a column or a context feature"
            raise SettingError(f"evaluate: {message}, got {unit!r}")
        return [
            f"the intervals of the estimates take the rows of each {unit} together, {count:,} of "
            f"them; the interval at any time and the verdict are about the decisions for these "
            f"{count:,}, in their order, and not about others"
        ]


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
    left_out = {
        "the service had answered without deciding": counts.degraded,
        "the reward is not known": counts.unrewarded,
        "the chosen action has the probability 0, or none": counts.without_probability,
    }
    for why, count in left_out.items():
        if count:
            rows = "1 row was" if count == 1 else f"{count} rows were"
            sentences.append(f"{rows} left out, because {why}")
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
