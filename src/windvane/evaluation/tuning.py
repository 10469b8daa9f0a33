"""Tune a learner from a log: try half-lives and shares of exploration, confirm the best ones.

Every learner of a grid is replayed on the first part of the log. The best few go on through the
last part, which was not used to choose them, and only this part says how good they are.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from windvane.beliefs.bank.settings import parse_half_life
from windvane.errors import SettingError
from windvane.evaluation.estimates.result import Evaluation, PolicyResult
from windvane.evaluation.evaluator import LOCAL, EvaluationProgress, EvaluationSettings, evaluate_on
from windvane.evaluation.learners.candidates import (
    Candidate,
    LearnerCandidate,
    format_settings,
    make_fixed,
    make_learner,
    read_settings,
)
from windvane.evaluation.log_batch import Log, Period, survey_log

HALF_LIVES = ("1 hour", "6 hours", "1 day", "4 days", "14 days", "90 days", "never", "auto")
EXPLORATIONS = (0.02, 0.1)
FIRST_PART = 0.7  # share of the time of the log in which the grid is compared
CONFIRMED = 3  # how many learners are confirmed on the last part
FEWEST_ROWS = 200  # a shorter log is refused
LARGEST_HALF_LIFE = 2.0  # times the log's length; a longer one hardly differs from never


@dataclass(frozen=True)
class LearnerTuning:
    """What was tried, and what is recommended."""

    grid: Evaluation  # all learners, on the first part of the log
    held_out: Evaluation  # what was logged and the best learners, on the last part
    split: float  # the time at which the last part begins, in seconds since 1970
    best: PolicyResult  # on the last part

    @property
    def is_better(self) -> bool:
        """Whether the best learner is better than what was logged, at the level of its interval."""
        return self.best.gain.verdict == "better"

    def to_json(self) -> dict[str, Any]:
        """The tuning as dicts, lists, texts and numbers."""
        return {
            "recommended": self.best.text,
            "is_better": self.is_better,
            "sentence": self.sentence,
            "split": self.split,
            "grid": self.grid.to_json(),
            "held_out": self.held_out.to_json(),
        }

    @property
    def sentence(self) -> str:
        """What to do, in one sentence."""
        verdict = self.best.describe_verdict()
        if self.is_better:
            return f"recommended: {self.best.text}, which is {verdict} than what was logged"
        if self.best.gain.verdict == "worse":
            return f"recommended: keep what was logged; the best learner found is {verdict}"
        more = self.best.gain.rows_needed
        needed = "" if more is None else f"; about {more:,} more rows would tell"
        return (
            f"recommended: {self.best.text}: the best found, but the last part of the log does not "
            f"prove that it is better than what was logged{needed}"
        )

    @property
    def flags(self) -> str:
        """The flags of `windvane loop create` that make a loop of the best learner."""
        settings = read_settings(self.best.text) or {}
        half_life, share = settings["halfLife"], settings["explorationPercentage"]
        return f'--half-life "{half_life}" --exploration {share}'


def tune(
    log: Log,
    settings: EvaluationSettings | None = None,
    *,
    half_lives: Sequence[str] = HALF_LIVES,
    explorations: Sequence[float] = EXPLORATIONS,
    on: str = LOCAL,
    progress: Callable[[EvaluationProgress], None] | None = None,
) -> LearnerTuning:
    """Find the half-life and the share of exploration that would have earned most."""
    settings = settings or EvaluationSettings()
    counts = survey_log(log, settings.period).counts
    if counts.used < FEWEST_ROWS or counts.first_time is None or counts.last_time is None:
        raise SettingError(
            f"tune: the log must have at least {FEWEST_ROWS} rows with rewards, got {counts.used}"
        )
    length = counts.last_time - counts.first_time
    split = counts.first_time + FIRST_PART * length
    learners = make_grid(half_lives, explorations, length)
    first = settings._replace(period=Period(settings.period.since, split))
    grid = evaluate_on(on, log, [make_fixed("logged"), *learners], first, progress)
    ranked = sorted(grid.policies[1:], key=lambda policy: -policy.value.value)
    chosen = {policy.name for policy in ranked[:CONFIRMED]}
    finalists: list[Candidate] = [each for each in learners if each.name in chosen]
    last = settings._replace(scored_since=split, level=settings.level / len(finalists))
    held_out = evaluate_on(on, log, [make_fixed("logged"), *finalists], last, progress)
    best = max(held_out.policies[1:], key=lambda policy: policy.value.value)
    return LearnerTuning(grid, held_out, split, best)


def make_grid(
    half_lives: Sequence[str], explorations: Sequence[float], length: float
) -> list[LearnerCandidate]:
    """Every pair, without half-lives that are much longer than the log, in seconds."""
    grid = []
    for half_life in half_lives:
        parsed = None if half_life == "auto" else parse_half_life(half_life)
        if parsed is not None and parsed.length > LARGEST_HALF_LIFE * length:
            continue
        for share in explorations:
            text = format_settings({"halfLife": half_life, "explorationPercentage": share})
            grid.append(make_learner(half_life, share, text=text))
    if not grid:
        raise SettingError("tune: every half-life is much longer than the log")
    return grid
