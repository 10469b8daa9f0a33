"""An evaluation as a table and sentences for people."""

from collections.abc import Iterator
from datetime import UTC, datetime

from windvane._terminal.tables import Cell, format_table
from windvane.evaluation.estimates.result import Evaluation, PolicyResult
from windvane.evaluation.tuning import LearnerTuning


def format_evaluation(evaluation: Evaluation) -> str:
    """The table of the policies, below a line that says which rows it is about."""
    rows = f"{evaluation.rows:,} rows of {evaluation.log}"
    if evaluation.since is not None and evaluation.until is not None:
        rows += f", {format_time(evaluation.since)} to {format_time(evaluation.until)}"
    return f"{rows}\n\n{format_policies(evaluation)}"


def format_policies(evaluation: Evaluation) -> str:
    """The table of the policies."""
    return format_table([_describe(policy) for policy in evaluation.policies])


def list_sentences(evaluation: Evaluation) -> Iterator[str]:
    """What the reader must know, about the log first and then about each policy."""
    yield from evaluation.warnings
    for policy in evaluation.policies:
        for sentence in policy.warnings:
            yield f"{policy.name}: {sentence}"


def format_tuning(tuning: LearnerTuning) -> str:
    """Both tables of a tuning, and the recommendation."""
    gain = tuning.best.gain
    return "\n\n".join(
        [
            f"The grid, on {format_evaluation(tuning.grid)}",
            f"The best of the grid, on the {tuning.best.rows:,} rows since then",
            format_policies(tuning.held_out),
            f"{tuning.sentence}\n"
            f"gain over what was logged: {gain.value:+.4g}, "
            f"between {gain.interval.low:+.4g} and {gain.interval.high:+.4g}",
        ]
    )


def format_time(seconds: float) -> str:
    """A time in UTC, to the minute."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M")


def describe_verdict(policy: PolicyResult) -> str:
    """Whether a policy is better than what was logged, in words."""
    if policy.source == "Online":
        return "what was logged"
    if policy.gain.verdict != "not yet":
        return policy.describe_verdict()
    more = policy.gain.rows_needed
    return "not known yet" if more is None else f"not known yet; {more:,} more rows"


def _describe(policy: PolicyResult) -> dict[str, Cell]:
    low, high = policy.sequence
    level = f"{100 * (1 - policy.alpha):.3g} % interval, at any time"
    return {
        "policy": policy.name,
        "value": round(policy.value.value, 4),
        level: f"{low:.4g} to {high:.4g}",
        "gain": "" if policy.source == "Online" else f"{policy.gain.value:+.4f}",
        "against what was logged": describe_verdict(policy),
        "effective rows": round(policy.diagnostics.effective_rows),
    }
