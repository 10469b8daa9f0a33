"""The tables and sentences of an evaluation, as the command line and the report have them."""

from collections.abc import Iterator
from datetime import UTC, datetime

from windvane._terminal.tables import Cell, format_table
from windvane.evaluation.estimates.result import Evaluation, Gain, PolicyResult
from windvane.evaluation.tuning import LearnerTuning


def format_evaluation(evaluation: Evaluation) -> str:
    """The table of the policies, below a line that says which rows it is about."""
    rows = describe_rows(evaluation)
    sentences = [f"{policy.sentence}." for policy in evaluation.policies if policy.learns]
    if evaluation.pages:
        rows += (
            f"\n\nwhole pages\n\n{format_table(list_page_rows(evaluation))}\n\nthe first slot alone"
        )
    parts = [
        f"{title}\n\n{format_table(list_policy_rows(part))}"
        for title, part in list_parts(evaluation)
    ]
    return "\n\n".join([rows, format_table(list_policy_rows(evaluation)), *parts, *sentences[:1]])


def list_parts(evaluation: Evaluation) -> Iterator[tuple[str, Evaluation]]:
    """The segments and the other rewards of an evaluation, with their titles."""
    for name, part in evaluation.segments.items():
        yield f"{evaluation.by} {name}, {part.rows:,} rows", part
    for name, part in evaluation.metrics.items():
        yield f"the metric {name}, {part.rows:,} rows", part


def format_tuning(tuning: LearnerTuning) -> str:
    """Both tables of a tuning, and the recommendation."""
    held_out = tuning.held_out
    return "\n\n".join(
        [
            f"The grid, on {format_evaluation(tuning.grid)}",
            f"The best of the grid, on the {held_out[tuning.best].rows:,} rows since then",
            format_table(list_policy_rows(held_out)),
            tuning.sentence,
        ]
    )


def describe_rows(evaluation: Evaluation) -> str:
    """Which rows an evaluation is about."""
    rows = f"{evaluation.rows:,} rows of {evaluation.log}"
    if not evaluation.has_times or evaluation.since is None or evaluation.until is None:
        return rows
    return f"{rows}, {format_time(evaluation.since)} to {format_time(evaluation.until)} UTC"


def list_policy_rows(evaluation: Evaluation) -> list[dict[str, Cell]]:
    return [_describe(evaluation, policy) for policy in evaluation.policies]


def list_page_rows(evaluation: Evaluation) -> list[dict[str, Cell]]:
    """The table of what policies earn on pages with several slots, a page and in each slot."""
    rows: list[dict[str, Cell]] = []
    most = max(len(page.slots) for page in evaluation.pages)
    for page, policy in zip(evaluation.pages, evaluation.policies, strict=True):
        (low, high), gain = page.sequence, page.against
        verdict = "the reference" if page.name == evaluation.reference else ""
        row: dict[str, Cell] = {
            "policy": name_policy(policy),
            "a page": round(page.value.value, 4),
            name_level(policy.alpha): f"{low:.4g} to {high:.4g}",
            f"against {name_reference(evaluation)}": gain.describe_change() if gain else "",
            "verdict": gain.describe_verdict(policy.alpha) if gain else verdict,
        }
        row |= dict.fromkeys((f"slot {slot + 1}" for slot in range(most)), None)
        for slot in page.slots:
            shown = slot.estimates.get(page.headline) or slot.estimates["rips"]
            row[f"slot {slot.slot + 1}"] = round(shown.value, 4)
        rows.append(row)
    return rows


def name_level(alpha: float) -> str:
    """The title of the column of intervals."""
    return f"{100 * (1 - alpha):.3g} % interval, at any time"


def list_sentences(evaluation: Evaluation) -> Iterator[str]:
    """What the reader must know, about the log first and then about each policy."""
    yield from evaluation.warnings
    for policy in evaluation.policies:
        yield from (f"{policy.name}: {sentence}" for sentence in policy.warnings)
    for page in evaluation.pages:
        yield from (f"{page.name}, whole pages: {sentence}" for sentence in page.warnings)


def format_time(seconds: float) -> str:
    """A time in UTC, to the minute."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M")


def _describe(evaluation: Evaluation, policy: PolicyResult) -> dict[str, Cell]:
    low, high = policy.sequence
    difference, lift, verdict = "", "", "the reference"
    if evaluation.reference and policy.name != evaluation.reference:
        gain = evaluation.compare(policy.name)
        difference = gain.describe_change()
        lift = format_lift(gain)
        verdict = gain.describe_verdict(policy.alpha)
    row: dict[str, Cell] = {
        "policy": name_policy(policy),
        "value": round(policy.value.value, 4),
        name_level(policy.alpha): f"{low:.4g} to {high:.4g}",
        f"against {name_reference(evaluation)}": difference,
        "lift": lift,
        "verdict": verdict if evaluation.reference else "",
        "effective rows": round(policy.diagnostics.effective_rows),
    }
    if evaluation.unit and policy.value.interval is not None:
        low, high = policy.value.interval
        row[f"interval over {evaluation.unit}"] = f"{low:.4g} to {high:.4g}"
    return row


def format_lift(gain: Gain) -> str:
    """A gain in per cent of what the reference earns; nothing if that is 0.

    >>> from windvane.evaluation import Interval
    >>> [format_lift(Gain(each, Interval(-1, 1), "not yet", None, 0.4, each / 0.4))
    ...  for each in (-0.1, -1e-9)]
    ['−25.0 %', '0.0 %']
    """
    if gain.lift is None:
        return ""
    percent = round(100 * gain.lift, 1)
    return f"{percent:+.1f} %".replace("-", "−") if percent else "0.0 %"


def name_policy(policy: PolicyResult) -> str:
    return "what was logged" if policy.source == "Online" else policy.name


def name_reference(evaluation: Evaluation) -> str:
    if not evaluation.reference:
        return "nothing"
    return name_policy(evaluation[evaluation.reference])
