"""`check`: can a log be used to evaluate policies? Findings with levels, sentences and numbers."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from windvane.evaluation.checks.clock import ClockCheck
from windvane.evaluation.checks.drift import DriftCheck
from windvane.evaluation.checks.event_ids import EventIdCheck
from windvane.evaluation.checks.finding import Check, Finding, Level, format_share
from windvane.evaluation.checks.probabilities import ProbabilityCheck
from windvane.evaluation.checks.rewards import RewardCheck
from windvane.evaluation.log_batch import BadRow, Log
from windvane.evaluation.readers.file_log import HasNotes
from windvane.evaluation.readers.row_report import ORPHAN_REWARDS

BAD_ROW_FAILURE_SHARE = 0.1
LISTED_BAD_ROWS = 10


@dataclass(frozen=True)
class CheckReport:
    """What was found in a log."""

    description: str
    decisions: int
    since: float | None  # seconds since 1970
    until: float | None
    findings: Sequence[Finding]
    bad_rows: Sequence[BadRow]  # the first ones
    notes: Mapping[str, int]  # how many rows were read in a special way

    @property
    def is_usable(self) -> bool:
        """Whether no finding is a failure."""
        return all(finding.level != "failure" for finding in self.findings)

    def to_json(self) -> dict[str, object]:
        """The report as plain values; a number that is not finite is None."""
        return {
            "log": self.description,
            "isUsable": self.is_usable,
            "decisions": self.decisions,
            "since": self.since,
            "until": self.until,
            "findings": [
                asdict(finding) | {"numbers": {k: _finite(v) for k, v in finding.numbers.items()}}
                for finding in self.findings
            ],
            "badRows": [bad._asdict() for bad in self.bad_rows],
            "notes": dict(self.notes),
        }


def check(log: Log) -> CheckReport:
    """Read a log once and check it: probabilities, rewards, clock, support, duplicates, drift."""
    is_fitted = log.has_fitted_probabilities
    has_times = log.has_times if isinstance(log, HasNotes) else True
    rewards = RewardCheck()
    clock = ClockCheck(has_times)
    checks: list[Check] = [
        ProbabilityCheck(is_fitted),
        rewards,
        clock,
        EventIdCheck(),
        DriftCheck(is_fitted),
    ]
    decisions = 0
    for batch in log.iterate_batches():
        decisions += batch.size
        if batch.size:
            for each in checks:
                each.add(batch)
    notes = dict(log.notes) if isinstance(log, HasNotes) else {}
    rewards.orphan_count = notes.get(ORPHAN_REWARDS, 0)
    findings = [_find_rows(decisions, log.bad_row_count)]
    if decisions:
        findings += [finding for each in checks for finding in each.find()]
    has_clock = bool(decisions) and has_times
    return CheckReport(
        description=log.description,
        decisions=decisions,
        since=clock.first if has_clock else None,
        until=clock.last if has_clock else None,
        findings=findings,
        bad_rows=list(log.bad_rows[:LISTED_BAD_ROWS]),
        notes=notes,
    )


def _find_rows(decisions: int, bad_rows: int) -> Finding:
    numbers = {"decisions": decisions, "badRows": bad_rows}
    if not decisions:
        return Finding("rows", "failure", f"no decision can be used; bad rows: {bad_rows}", numbers)
    if not bad_rows:
        return Finding("rows", "ok", f"all {decisions:,} decisions can be used", numbers)
    share = bad_rows / (decisions + bad_rows)
    level: Level = "failure" if share > BAD_ROW_FAILURE_SHARE else "warning"
    percent = format_share(bad_rows, decisions + bad_rows)
    text = f"{decisions:,} decisions can be used; rows that cannot: {bad_rows:,} ({percent})"
    return Finding("rows", level, text, numbers)


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None
