"""Tune a learner from a log: try half-lives and crossings, confirm the best ones.

Every learner of a grid follows the first part of the log. The best few, by their paired difference
to the reference, go on through the last part, which was not used to choose them, and only this part
says how good they are. Exploration is not tuned: a shadow learns what the log has, and what its own
exploration would have taught it is not in the log.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from windvane.errors import SettingError
from windvane.evaluation.estimates.result import Evaluation, Gain, HtmlResult
from windvane.evaluation.evaluator import EvaluationProgress, run_evaluation
from windvane.evaluation.learners.candidates import (
    DEFAULT_LEARNER,
    Candidate,
    LearnerCandidate,
    as_candidate,
    format_settings,
    make_fixed,
    make_learner,
    read_settings,
)
from windvane.evaluation.log_batch import Log, Period, survey_log
from windvane.evaluation.settings import EvaluationSettings
from windvane.features import ALL_CROSSINGS
from windvane.settings import AUTO, EXPLORATION, SECONDS_PER_UNIT, format_half_life

HALF_LIFE, CROSSINGS = "half-life", "crossings"
TUNED = (HALF_LIFE, CROSSINGS)
EXPLORATION_NAMES = ("exploration", "explorationPercentage", "epsilon", "width", "scale")
NO_EXPLORATION = (
    "exploration cannot be tuned from a log, because what a learner's own exploration would have "
    "taught it is not there; split live traffic between two loops to compare them"
)
NO_CROSSINGS = "none"
SHARES = (1 / 64, 1 / 16, 1 / 4, 1.0)  # half-lives, in lengths of the log
FIRST_PART = 0.7  # share of the time of the log in which the grid is compared
CONFIRMED = 3  # how many learners are confirmed on the last part
FEWEST_ROWS = 200  # a shorter log is refused


@dataclass(frozen=True)
class LearnerTuning(HtmlResult):
    """What was tried, and what is recommended."""

    grid: Evaluation  # all learners, on the first part of the log
    held_out: Evaluation  # what was logged, the reference and the best learners, on the last part
    split: float  # the time at which the last part begins, in seconds since 1970
    best: str  # name of the best learner, which is the reference itself if there is no other

    @property
    def gain(self) -> Gain:
        """How much more the best learner earns than the reference, on the last part."""
        return self.held_out.compare(self.best)

    @property
    def is_better(self) -> bool:
        """Whether the best learner is better than the reference, at the level of its interval."""
        return self.gain.verdict == "better"

    def to_json(self) -> dict[str, Any]:
        """The tuning as dicts, lists, texts and numbers."""
        return {
            "recommended": self.best if self.is_better else None,
            "is_better": self.is_better,
            "sentence": self.sentence,
            "split": self.split,
            "grid": self.grid.to_json(),
            "held_out": self.held_out.to_json(),
        }

    @property
    def sentence(self) -> str:
        """What to do, in one sentence."""
        reference, alpha = self.held_out[self.held_out.reference], self.held_out[self.best].alpha
        article = "the " if reference.name == DEFAULT_LEARNER else ""
        difference = self.gain.describe(f"{article}{reference.name}", reference.value.value)
        verdict = f"{difference}, {self.gain.describe_verdict(alpha)}"
        if self.is_better:
            return f"recommended: {self.best}, which would have earned {verdict}"
        return f"keep what you have: the best found, {self.best}, would have earned {verdict}"

    @property
    def flags(self) -> str:
        """The flags of `windvane loop create` that make a loop of the best learner."""
        settings = read_settings(self.held_out[self.best].text) or {}
        return f'--half-life "{settings["halfLife"]}" --crossings "{settings["crossings"]}"'


def tune(
    log: Log,
    what: Sequence[str] = TUNED,
    settings: EvaluationSettings | None = None,
    *,
    reference: object = None,
    half_lives: Sequence[str] | None = None,
    progress: Callable[[EvaluationProgress], None] | None = None,
) -> LearnerTuning:
    """Find the half-life and the crossings that would have earned more than those of a learner.

    `reference` is that learner, by default `Learner()`; what is not tuned stays as it is there.
    `half_lives` follow the length of the log, unless they are given.
    """
    check_tuned(what)
    settings = settings or EvaluationSettings()
    base = replace(make_learner(), name=DEFAULT_LEARNER)
    if reference is not None:
        base = as_candidate(reference)  # type: ignore[assignment]
    if not isinstance(base, LearnerCandidate):
        raise SettingError(f"tune: the reference must be a learner, got {reference!r}")
    counts = survey_log(log, settings.period).counts
    if counts.used < FEWEST_ROWS:
        raise SettingError(
            f"tune: the log must have at least {FEWEST_ROWS} rows with rewards, got {counts.used}"
        )
    length = counts.last_time - counts.first_time
    split = counts.first_time + FIRST_PART * length
    if half_lives is None:
        half_lives = list_half_lives(length, log.has_times)
    learners = make_grid(base, half_lives if HALF_LIFE in what else (), CROSSINGS in what)
    fixed: list[Candidate] = [make_fixed("logged"), base]

    def run(tried: Sequence[Candidate], on_part: EvaluationSettings) -> Evaluation:
        return run_evaluation(log, [*fixed, *tried], on_part, progress, base.name)

    first = settings._replace(period=Period(settings.period.since, split))
    grid = run(learners, first)
    ranked = sorted(learners, key=lambda each: -grid.compare(each.name).value)[:CONFIRMED]
    level = settings.level / len(ranked)
    held_out = run(ranked, settings._replace(scored_since=split, level=level))
    best = max(ranked, key=lambda each: held_out.compare(each.name).value)
    return LearnerTuning(grid, held_out, split, best.name)


def check_tuned(what: Sequence[str]) -> None:
    """Refuse what a log cannot tell, and what there is not."""
    for each in what:
        if each in EXPLORATION_NAMES:
            raise SettingError(f"tune: {NO_EXPLORATION}")
        if each not in TUNED:
            raise SettingError(f"tune: {' and '.join(TUNED)} can be tuned, got {each!r}")
    if not what:
        raise SettingError(f"tune: say what to tune: {' or '.join(TUNED)}")


def list_half_lives(length: float, has_times: bool = True) -> list[str]:
    """Half-lives that a log of some seconds can tell apart, or of some rows if it has no times.

    >>> list_half_lives(28 * 86400.0)
    ['10 hours', '42 hours', '7 days', '28 days', 'never', 'auto']
    >>> list_half_lives(240.0)
    ['3 seconds', '15 seconds', '1 minute', '4 minutes', 'never', 'auto']
    >>> list_half_lives(6400.0, has_times=False)[:2]
    ['100 rounds', '400 rounds']
    """
    found = []
    for share in SHARES:
        span = max(share * length, 1.0)
        if not has_times:
            found.append(f"{span:.0f} rounds")
            continue
        units = [unit for unit in ("day", "hour", "minute") if span >= 2 * SECONDS_PER_UNIT[unit]]
        unit = SECONDS_PER_UNIT[units[0]] if units else 1.0
        found.append(format_half_life(unit * (span // unit)))
    return [*dict.fromkeys(found), "never", AUTO]


def make_grid(
    base: LearnerCandidate, half_lives: Sequence[str], with_crossings: bool
) -> list[LearnerCandidate]:
    """All learners with one of the half-lives and crossings, without the base itself."""
    crossings = [base.crossings]
    if with_crossings:
        crossings.append(NO_CROSSINGS if base.crossings != NO_CROSSINGS else ALL_CROSSINGS)
    unusual: dict[str, object] = {}
    if base.exploration != EXPLORATION:
        unusual["explorationPercentage"] = base.exploration
    if base.array_size:
        unusual["arraySize"] = base.array_size
    grid = []
    for half_life in half_lives or [base.half_life]:
        for crossing in crossings:
            changed: dict[str, object] = {"halfLife": half_life, "crossings": crossing}
            text = format_settings(changed | unusual)
            if (half_life, crossing) != (base.half_life, base.crossings):
                grid.append(
                    make_learner(half_life, base.exploration, crossing, base.array_size, text)
                )
    return grid
