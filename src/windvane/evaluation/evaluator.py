"""Evaluate: what several policies would have earned, in one pass over a log.

On a Ray cluster each task evaluates some candidates, with the same numbers as in one process. Every
machine of the cluster must see the files of the log under the same paths.
"""

import pickle
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import NamedTuple

import numpy as np

from windvane import validation
from windvane.beliefs.bank.settings import HalfLife, parse_half_life
from windvane.errors import SettingError
from windvane.evaluation.estimates.confidence_sequence import ActionModel
from windvane.evaluation.estimates.policy_record import DEFAULT_HALF_LIFE, PolicyRecord
from windvane.evaluation.estimates.result import Evaluation, PolicyResult, Replay
from windvane.evaluation.learners.candidates import (
    Candidate,
    Clock,
    FixedCandidate,
    PolicyCandidate,
    list_candidates,
)
from windvane.evaluation.learners.feature_blocks import FeatureBlock, split_blocks
from windvane.evaluation.learners.fixed_policies import (
    PredictedRows,
    RewardModel,
    compute_weights,
    find_unsupported,
    join_blocks,
    make_action_model,
)
from windvane.evaluation.learners.replay import (
    SAMPLES,
    Replayer,
    make_replayer,
    score_block,
)
from windvane.evaluation.log_batch import (
    Log,
    LogBatch,
    LogFacts,
    Period,
    RowCounts,
    Survey,
    find_usable_rows,
    survey_log,
)
from windvane.evaluation.ray_tasks import RayTask, check_installed, connect_to_ray, run_tasks, share
from windvane.evaluation.readers.file_log import HasNotes
from windvane.types import Floats, Places

Moment = float | str | datetime | None
MOST_ROWS_WITH_MODEL = 200_000  # beyond, a reward model must be asked for
SOURCES = {"logged": "Online", "first": "Baseline", "random": "Random"}
FEW_ACCEPTED = 100  # with fewer learned rows a policy has hardly begun
LOCAL = "threads"
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


def make_settings(
    half_life: str | None = None,
    reward_model: bool | None = None,
    level: float = 0.05,
    seed: int = 0,
    since: Moment = None,
    until: Moment = None,
    reward_range: tuple[float, float] | None = None,
) -> EvaluationSettings:
    """Check the arguments of `evaluate`."""
    return EvaluationSettings(
        half_life=parse_recent_half_life(half_life),
        reward_model=reward_model,
        level=validation.inside("evaluate", "level", level),
        seed=validation.whole("evaluate", "seed", seed, least=0),
        period=Period(_read_moment("since", since, -np.inf), _read_moment("until", until, np.inf)),
        reward_range=reward_range,
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
    log: Log,
    candidates: Sequence[Candidate],
    settings: EvaluationSettings,
    progress: Progress | None = None,
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
        settings: EvaluationSettings,
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


def _summarize(
    candidate: Candidate, record: PolicyRecord, replayer: Replayer | None
) -> PolicyResult:
    if replayer is None or isinstance(candidate, FixedCandidate):
        return record.summarize()
    replay = replayer.count()
    result = record.summarize(replay)
    warnings = [*result.warnings, *describe_replay(candidate.clock, replay)]
    return replace(result, warnings=warnings)


def _has_features(log: Log) -> bool:
    for batch in log.iterate_batches():
        return batch.read_features is not None
    return False


def describe_replay(clock: Clock, replay: Replay) -> list[str]:
    """What the reader of a replay must know."""
    rate = replay.acceptance_rate
    sentences = []
    if replay.accepted < FEW_ACCEPTED:
        sentences.append(
            f"only {replay.accepted} of {replay.rows} rows were accepted: the policy has hardly "
            "learned anything, and its value is close to that of a policy that has just begun"
        )
    elif clock == "rounds" and rate < 1.0:
        sentences.append(
            f"the policy learned {rate:.1%} of the rows and forgets by rounds: in the time of the "
            f"log it forgets {1 / rate:.3g} times as slowly as it would in use"
        )
    elif clock in ("time", "rows") and rate < 1.0:
        sentences.append(
            f"the policy learned {rate:.1%} of the rows and forgets by time: it remembers "
            f"{rate:.1%} of the data that it would have in use"
        )
    elif rate < 1.0:
        sentences.append(f"the policy learned {rate:.1%} of the rows")
    if replay.is_sampled:
        sentences.append(f"its probabilities are counted in {SAMPLES} draws for each row")
    return sentences


def list_log_warnings(log: Log, counts: RowCounts, has_replays: bool) -> list[str]:
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
    if isinstance(log, HasNotes):
        sentences += [f"{count} {what}" for what, count in log.notes.items()]
        if not log.has_times:
            sentences.append("the log has no times: the number of a decision is its time")
    if has_replays and counts.without_features:
        sentences.append(
            "the log has no features: policies that learn tell actions apart by their place only"
        )
    if has_replays:
        sentences.append(
            "policies that learn were replayed: under drift no replay is exact, so trust the order "
            "of these policies more than their values"
        )
    return sentences


def evaluate_on(
    on: str,
    log: Log,
    candidates: Sequence[Candidate],
    settings: EvaluationSettings,
    progress: Progress | None = None,
) -> Evaluation:
    """Evaluate in this process ("threads"), on a new Ray ("ray"), or on the Ray at an address."""
    if on == LOCAL:
        return run_evaluation(log, candidates, settings, progress)
    check_installed()
    groups = group_candidates(candidates)
    with connect_to_ray(None if on == "ray" else on):
        shared = share((log, list(candidates), settings))
        tasks = [RayTask(f"the policies {group}", (shared, group)) for group in groups]
        parts: list[Evaluation | None] = [None] * len(groups)
        for place, result in run_tasks(_evaluate_pickled, tasks):
            assert isinstance(result, Evaluation)
            parts[place] = result
    return merge_evaluations(groups, [part for part in parts if part is not None])


def group_candidates(candidates: Sequence[Candidate]) -> list[list[int]]:
    """The places of the candidates of each task: fixed ones together, others a few at a time."""
    fixed = [k for k, each in enumerate(candidates) if isinstance(each, FixedCandidate)]
    others = [k for k, each in enumerate(candidates) if not isinstance(each, FixedCandidate)]
    step = CANDIDATES_PER_TASK
    groups = [others[first : first + step] for first in range(0, len(others), step)]
    return [fixed, *groups] if fixed else groups


def merge_evaluations(groups: Sequence[Sequence[int]], parts: Sequence[Evaluation]) -> Evaluation:
    """Join the evaluations of all groups in the order of the candidates."""
    if len({part.rows for part in parts}) > 1:
        raise SettingError("evaluate: the log changed while it was evaluated")
    placed = {
        place: policy
        for group, part in zip(groups, parts, strict=True)
        for place, policy in zip(group, part.policies, strict=True)
    }
    warnings = dict.fromkeys(sentence for part in parts for sentence in part.warnings)
    return replace(
        parts[0],
        policies=[placed[place] for place in sorted(placed)],
        warnings=list(warnings),
    )


def _evaluate_pickled(shared: bytes, group: Sequence[int]) -> Evaluation:
    log, candidates, settings = pickle.loads(shared)
    return run_evaluation(log, [candidates[place] for place in group], settings)
