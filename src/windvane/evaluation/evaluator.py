"""Evaluate: what several policies would have earned, in one pass over a log."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from windvane.errors import SettingError
from windvane.evaluation.bounded_model import ActionModel
from windvane.evaluation.candidate_text import list_candidates
from windvane.evaluation.candidates import Candidate, FixedCandidate, LogFacts, PolicyCandidate
from windvane.evaluation.evaluation_settings import Moment, Settings, make_settings
from windvane.evaluation.feature_blocks import FeatureBlock, split_blocks
from windvane.evaluation.fixed_policies import (
    PredictedRows,
    compute_weights,
    find_unsupported,
    join_blocks,
    make_action_model,
)
from windvane.evaluation.log_batch import Log, LogBatch
from windvane.evaluation.policy_record import PolicyRecord
from windvane.evaluation.replay import Replayer
from windvane.evaluation.replay_notes import describe_replay, list_log_warnings
from windvane.evaluation.replayers import make_replayer, score_block
from windvane.evaluation.result import Evaluation, PolicyResult
from windvane.evaluation.reward_model import RewardModel
from windvane.evaluation.usable_rows import RowCounts, Survey, find_usable_rows, survey_log
from windvane.types import Floats, Places

MOST_ROWS_WITH_MODEL = 200_000  # beyond, a reward model must be asked for
SOURCES = {"logged": "Online", "first": "Baseline", "random": "Random"}


class EvaluationProgress(NamedTuple):
    """How much of a log has been read."""

    rows: int
    total: int | None  # None: not known


Progress = Callable[[EvaluationProgress], None]


def evaluate(
    log: Log,
    candidates: Sequence[object],
    *,
    half_life: str | None = None,
    reward_model: bool | None = None,
    level: float = 0.05,
    seed: int = 0,
    since: Moment = None,
    until: Moment = None,
    reward_range: tuple[float, float] | None = None,
    progress: Progress | None = None,
) -> Evaluation:
    """Estimate what each candidate would have earned on the decisions of a log.

    A candidate is a text, a policy, a `Learner` or a `Candidate`. A candidate that learns is
    replayed. `half_life` weighs recent decisions more in the recent value, by default 7 days.
    With a reward model, fixed policies are estimated by DR; by default there is one if the log has
    features and at most 200 000 rows. `level` is the chance with which an interval misses.
    `progress` is called after each part of the log; the evaluation ends if it raises.
    """
    settings = make_settings(half_life, reward_model, level, seed, since, until, reward_range)
    return run_evaluation(log, list_candidates(candidates), settings, progress)


def run_evaluation(
    log: Log, candidates: Sequence[Candidate], settings: Settings, progress: Progress | None = None
) -> Evaluation:
    """Evaluate candidates in one pass, after a look through the log if one is needed."""
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
    evaluator = Evaluator(candidates, settings, with_model and has_fixed, survey)
    for batch in log.iterate_batches():
        evaluator.add(batch)
        if progress is not None:
            total = None if survey is None else survey.facts.rows
            progress(EvaluationProgress(evaluator.counts.used, total))
    return evaluator.summarize(log, notes)


class Evaluator:
    """Takes a log batch by batch, and keeps a record for each candidate."""

    def __init__(
        self,
        candidates: Sequence[Candidate],
        settings: Settings,
        with_model: bool,
        survey: Survey | None = None,
    ) -> None:
        self.counts = RowCounts()
        self._settings = settings
        self._candidates = candidates
        self._model = RewardModel(settings.seed) if with_model else None
        facts = LogFacts(0, 0, 0.0) if survey is None else survey.facts
        self._records = [_make_record(candidate, settings) for candidate in candidates]
        self._replayers = [
            None
            if isinstance(candidate, FixedCandidate)
            else make_replayer(candidate, facts, settings.seed)
            for candidate in candidates
        ]

    def add(self, batch: LogBatch) -> None:
        """Evaluate the usable rows of a batch."""
        rows_before = self.counts.used
        rows = find_usable_rows(batch, self._settings.period, self.counts)
        if not rows.size:
            return
        blocks: list[FeatureBlock] = []
        predictions: list[Floats] = []
        if self._model is not None or any(self._replayers):
            for block in split_blocks(batch, rows):
                self._replay(batch, block, rows_before)
                rows_before += block.rows.size
                if self._model is not None:
                    blocks.append(block)
                    predictions.append(self._model.predict_and_learn(block))
        self._add_fixed(batch, rows, join_blocks(blocks, predictions) if blocks else None)

    def _replay(self, batch: LogBatch, block: FeatureBlock, rows_before: int) -> None:
        all_scores = score_block(self._replayers, block, rows_before)
        for record, scores in zip(self._records, all_scores, strict=True):
            if scores is None:
                continue
            is_scored = block.times >= self._settings.scored_since
            rows = block.rows[is_scored]
            actions = ActionModel(
                *(scores.predictions, scores.probabilities, block.logged),
                *(block.starts, block.chosen),
            )
            record.add(
                block.times[is_scored],
                block.rewards[is_scored],
                scores.weights[is_scored],
                scores.model_values[is_scored],
                scores.model_chosen[is_scored],
                block.multiplicities[is_scored],
                action_model=actions.select(is_scored),
                coefficients=scores.coefficients[is_scored],
                unsupported=scores.unsupported[is_scored],
                is_defaulted=batch.is_defaulted[rows],
            )

    def _add_fixed(self, batch: LogBatch, rows: Places, predicted: PredictedRows | None) -> None:
        """Add rows to the records of the fixed candidates."""
        fixed = [
            (candidate, record)
            for candidate, record in zip(self._candidates, self._records, strict=True)
            if isinstance(candidate, FixedCandidate)
        ]
        if not fixed:
            return
        is_scored = batch.times[rows] >= self._settings.scored_since
        impossible = batch.probabilities == 0.0
        has_impossible = bool(impossible.any())
        for candidate, record in fixed:
            values, chosen, actions = None, None, None
            if predicted is not None and candidate.rule != "logged":
                actions = make_action_model(candidate, batch, predicted).select(is_scored)
                values, chosen = actions.average_predictions(), actions.pick_predictions()
            scored = rows[is_scored]
            record.add(
                batch.times[scored],
                batch.rewards[scored],
                compute_weights(candidate, batch, scored),
                values,
                chosen,
                batch.multiplicities[scored],
                action_model=actions,
                unsupported=find_unsupported(candidate, batch, scored, impossible)
                if has_impossible
                else None,
                is_defaulted=batch.is_defaulted[scored],
            )

    def summarize(self, log: Log, notes: Sequence[str] = ()) -> Evaluation:
        """Compute all estimates."""
        if not self.counts.used:
            raise SettingError(f"evaluate: {log.description} has no row that can be evaluated")
        results = []
        for candidate, record, replayer in zip(
            self._candidates, self._records, self._replayers, strict=True
        ):
            results.append(_summarize(candidate, record, replayer))
        has_replays = any(each is not None for each in self._replayers)
        return Evaluation(
            policies=results,
            log=log.description,
            since=self.counts.first_time,
            until=self.counts.last_time,
            rows=self.counts.used,
            unrewarded_rows=self.counts.unrewarded,
            bad_rows=log.bad_row_count,
            first_bad_rows=[f"{row.source}:{row.line}: {row.reason}" for row in log.bad_rows],
            warnings=[*list_log_warnings(log, self.counts, has_replays), *notes],
        )


def _make_record(candidate: Candidate, settings: Settings) -> PolicyRecord:
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


def _summarize(
    candidate: Candidate, record: PolicyRecord, replayer: Replayer | None
) -> PolicyResult:
    if replayer is None or isinstance(candidate, FixedCandidate):
        return record.summarize()
    replay, sentences = describe_replay(candidate.clock, replayer.count())
    result = record.summarize(replay)
    return replace(result, warnings=[*result.warnings, *sentences])


def _has_features(log: Log) -> bool:
    for batch in log.iterate_batches():
        return batch.read_features is not None
    return False
