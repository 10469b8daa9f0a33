"""`check`: can a log be used to evaluate policies? Findings with levels, sentences and numbers.

If the logged probabilities are those with which the actions were drawn, the following means are
known, whatever the policy was and however it learned from earlier decisions:

    w = 1 / (K p_chosen)    has the mean (eligible actions with p > 0) / K
    p_chosen                has the mean Σ_a p_a²
    [first action chosen]   has the mean p_first

w is the weight of a policy that chooses at random among the K eligible actions. z is the distance
of a sum from its mean in standard deviations. The variance of a decision follows from its
probabilities if all are known; else it is estimated.

For drift the log is split into parts of equally many decisions. For the means m_j of n_j decisions
each, with the mean m and the variance s² of all, Q = Σ_j n_j (m_j − m)² / s² has a χ² law with
(parts − 1) degrees of freedom if nothing changes.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Literal

import numpy as np

from windvane.evaluation.estimates.result import DEFAULTED_LIMIT, DEGRADED_LIMIT, Z_LIMIT
from windvane.evaluation.log_batch import BadRow, Log, LogBatch
from windvane.evaluation.readers.rows import ORPHAN_REWARDS, SUM_TOLERANCE
from windvane.types import Booleans, Floats

Level = Literal["ok", "warning", "failure"]
Z_WARNING = 3.0
TINY_PROBABILITY = 1e-3
NO_EXPLORATION_SHARE = 0.99  # a larger share of certain choices is a failure
MISSING_LIMIT = 0.2  # share of decisions without a reward
GAP_LIMIT = 0.25  # share of the time from the first to the last decision
MAX_REMEMBERED_IDS = 1_000_000  # ids; later decisions are compared with these only
REPEATED_FAILURE_SHARE = 0.01
MAX_DRIFT_BLOCKS = 128  # beyond, two neighbours become one
FIRST_BLOCK_ROWS = 256
DRIFT_PARTS = 8
DRIFT_CHANCE_LIMIT = 1e-4  # a change with a smaller chance is reported
QUANTITIES = ("reward", "probability of the chosen action", "share of the first action")
BAD_ROW_FAILURE_SHARE = 0.1
LISTED_BAD_ROWS = 10


@dataclass(frozen=True)
class Finding:
    """What a check found: how bad it is, a sentence for people, and numbers for programs."""

    name: str
    level: Level
    sentence: str
    numbers: Mapping[str, float] = field(default_factory=dict)


class Check(ABC):
    """Sums over the batches of a log, from which findings follow."""

    rows = 0

    @abstractmethod
    def add(self, batch: LogBatch) -> None:
        """Add the decisions of a batch."""

    @abstractmethod
    def find(self) -> Sequence[Finding]:
        """What was found in all batches."""


def format_share(part: float, whole: float) -> str:
    """Format a share as a percentage.

    >>> format_share(1, 3), format_share(1, 30_000), format_share(2, 2), format_share(0, 0)
    ('33%', '0.0033%', '100%', '0%')
    """
    percent = 100.0 * part / whole if whole else 0.0
    return f"{percent:.0f}%" if percent >= 10.0 else f"{percent:.2g}%"


class ProbabilityCheck(Check):
    """Sums of probabilities, mean weights, calibration and support."""

    def __init__(self, is_fitted: bool) -> None:
        self.is_fitted = is_fitted
        self.complete_rows = self.wrong_sums = 0
        self.largest_error = 0.0  # of a sum of probabilities
        self.actions = self.known_actions = self.impossible = self.tiny = 0
        self.certain_rows = self.open_rows = 0  # open: more than one action could be chosen
        self.smallest_chosen = math.inf
        self.uniform, self.calibration, self.first = MeanTest(), MeanTest(), MeanTest()
        self.weight_sum = self.multiplicity_sum = 0.0

    def add(self, batch: LogBatch) -> None:
        first = batch.starts[:-1]
        p = batch.probabilities
        is_known = ~np.isnan(p)
        is_complete = np.logical_and.reduceat(is_known, first)
        zeros = np.where(is_known, p, 0.0)
        sums = np.add.reduceat(zeros, first)
        chosen = batch.chosen_probabilities
        eligible = np.add.reduceat(batch.is_eligible.astype(np.float64), first)
        self.rows += batch.size
        sum_errors = np.abs(sums - 1.0)[is_complete]
        self.complete_rows += len(sum_errors)
        self.wrong_sums += int((sum_errors > SUM_TOLERANCE).sum())
        self.largest_error = max(self.largest_error, float(sum_errors.max(initial=0.0)))
        self._add_support(batch, is_known, eligible, chosen)
        possible = np.add.reduceat((batch.is_eligible & ~(p == 0.0)).astype(np.float64), first)
        inverse = np.divide(1.0, p, out=np.zeros_like(p), where=is_known & (p > 0.0))
        inverse[~batch.is_eligible] = 0.0
        weights = 1.0 / (eligible * chosen)
        expected = possible / eligible
        variances = np.where(
            is_complete,
            np.add.reduceat(inverse, first) / eligible**2 - expected**2,
            (weights - expected) ** 2,
        )
        b = batch.multiplicities
        self.uniform.add(weights - expected, variances, b)
        self.weight_sum += float(b @ weights)
        self.multiplicity_sum += float(b.sum())
        squares = np.add.reduceat(zeros**2, first)
        cubes = np.add.reduceat(zeros**3, first)
        errors, error_variances = chosen - squares, cubes - squares**2
        self.calibration.add(errors[is_complete], error_variances[is_complete], b[is_complete])
        p_first = p[first[is_complete]]
        is_first = batch.chosen[is_complete] == 0
        self.first.add(is_first - p_first, p_first * (1.0 - p_first), b[is_complete])

    def find(self) -> Sequence[Finding]:
        means = [] if self.is_fitted else self._find_means()
        return [self._find_sums(), *means, self._find_support()]

    def _add_support(
        self, batch: LogBatch, is_known: Booleans, eligible: Floats, chosen: Floats
    ) -> None:
        p = batch.probabilities[batch.is_eligible & is_known]
        self.actions += int(batch.is_eligible.sum())
        self.known_actions += len(p)
        self.impossible += int((p == 0.0).sum())
        self.tiny += int(((p > 0.0) & (p < TINY_PROBABILITY)).sum())
        is_open = eligible > 1
        self.open_rows += int(is_open.sum())
        self.certain_rows += int((chosen[is_open] >= 1.0 - 1e-9).sum())
        self.smallest_chosen = min(self.smallest_chosen, float(chosen.min(initial=math.inf)))

    def _find_sums(self) -> Finding:
        numbers = {"complete": self.complete_rows, "largestError": self.largest_error}
        name = "sums of probabilities"
        if self.is_fitted:
            text = "the log has no probabilities: they were estimated from the shares of actions"
            return Finding(name, "warning", text, numbers)
        if self.wrong_sums:
            share = format_share(self.wrong_sums, self.rows)
            text = f"the probabilities of {self.wrong_sums} decisions ({share}) do not sum to 1"
            return Finding(name, "failure", text, numbers | {"wrong": self.wrong_sums})
        share = format_share(self.complete_rows, self.rows)
        text = f"all probabilities are known in {share} of the decisions, and sum to 1"
        if not self.complete_rows:
            text = "only the probability of the chosen action is known"
        return Finding(name, "ok", text, numbers)

    def _find_means(self) -> list[Finding]:
        mean = self.weight_sum / self.multiplicity_sum if self.multiplicity_sum else math.nan
        z = self.uniform.z
        level = _judge(z)
        text = f"the weights of choosing at random have the mean {mean:.4g} (z = {z:.1f})"
        if level != "ok":
            text += ": the actions were not drawn with the logged probabilities"
        findings = [Finding("mean weight", level, text, {"mean": mean, "z": z})]
        if self.complete_rows:
            findings.append(_compare("calibration", "likely actions were", self.calibration.z))
            findings.append(_compare("first action", "the first action was", self.first.z))
        return findings

    def _find_support(self) -> Finding:
        known_actions, certain = max(self.known_actions, 1), self.certain_rows
        numbers = {
            "impossible": self.impossible / known_actions,
            "tiny": self.tiny / known_actions,
            "certain": certain / max(self.open_rows, 1),
            "smallestChosen": self.smallest_chosen,
        }
        level: Level = "ok"
        parts = [f"the least likely choice had probability {self.smallest_chosen:.3g}"]
        if self.impossible:
            level = "warning"
            share = format_share(self.impossible, self.known_actions)
            parts.append(f"{share} of the eligible actions had probability 0")
        if self.tiny:
            share = format_share(self.tiny, self.known_actions)
            parts.append(f"{share} had one below {TINY_PROBABILITY:g}")
        if self.open_rows and certain > NO_EXPLORATION_SHARE * self.open_rows:
            level = "failure"
            share = format_share(certain, self.open_rows)
            parts = [f"{share} of the choices were certain: another policy cannot be evaluated"]
        return Finding("support", level, "; ".join(parts), numbers)


class MeanTest:
    """The sum of terms whose mean should be 0, beside its variance."""

    def __init__(self) -> None:
        self.sum = self.variance = 0.0

    def add(self, terms: Floats, variances: Floats, multiplicities: Floats) -> None:
        """Add terms; a term with multiplicity b counts b times."""
        self.sum += float(multiplicities @ terms)
        self.variance += float(multiplicities**2 @ variances)

    @property
    def z(self) -> float:
        """The sum in standard deviations."""
        scale = max(abs(self.sum), 1.0)
        if self.variance <= 1e-12 * scale:  # nothing is random
            return 0.0 if abs(self.sum) <= 1e-6 else math.copysign(math.inf, self.sum)
        return self.sum / math.sqrt(self.variance)


def _judge(z: float) -> Level:
    if abs(z) > Z_LIMIT:
        return "failure"
    return "warning" if abs(z) > Z_WARNING else "ok"


def _compare(name: str, subject: str, z: float) -> Finding:
    level = _judge(z)
    fit = "as often as"
    if level != "ok":
        fit = "more often than" if z > 0 else "less often than"
    text = f"{subject} chosen {fit} the logged probabilities say (z = {z:.1f})"
    return Finding(name, level, text, {"z": z})


class RewardCheck(Check):
    """Counts of decisions by what is known of their reward."""

    def __init__(self, orphan_count: int = 0) -> None:
        self.orphan_count = orphan_count  # rewards without a decision
        self.missing = self.defaulted = self.degraded = 0
        self.lowest, self.highest, self.sum = math.inf, -math.inf, 0.0

    def add(self, batch: LogBatch) -> None:
        rewards = batch.rewards[~np.isnan(batch.rewards)]
        self.rows += batch.size
        self.missing += batch.size - len(rewards)
        self.defaulted += int(batch.is_defaulted.sum())
        self.degraded += int(batch.is_degraded.sum())
        self.sum += float(rewards.sum())
        if len(rewards):
            self.lowest = min(self.lowest, float(rewards.min()))
            self.highest = max(self.highest, float(rewards.max()))

    def find(self) -> Sequence[Finding]:
        degraded = self.degraded / max(self.rows, 1)
        text = f"{format_share(self.degraded, self.rows)} of the answers were degraded"
        level: Level = "warning" if degraded > DEGRADED_LIMIT else "ok"
        finding = Finding("degraded", level, text, {"share": degraded})
        return [self._find_rewards(), self._find_orphans(), finding]

    def _find_rewards(self) -> Finding:
        rewarded_rows = self.rows - self.missing
        if not rewarded_rows:
            return Finding("rewards", "failure", "no decision has a reward")
        numbers = {"mean": self.sum / rewarded_rows, "lowest": self.lowest, "highest": self.highest}
        text = f"the rewards lie in [{self.lowest:.4g}, {self.highest:.4g}]"
        text += f", their mean is {self.sum / rewarded_rows:.4g}"
        level: Level = "ok"
        if self.lowest == self.highest:
            level, text = "warning", f"all rewards are {self.lowest:.4g}: no policy can be better"
        elif self.defaulted > DEFAULTED_LIMIT * self.rows:
            level = "warning"
            text += f"; {format_share(self.defaulted, self.rows)} are the default reward"
        return Finding("rewards", level, text, numbers | {"defaulted": self.defaulted / self.rows})

    def _find_orphans(self) -> Finding:
        orphans = {"rewardsWithoutDecision": self.orphan_count}
        numbers = {"decisionsWithoutReward": self.missing} | orphans
        text = f"{format_share(self.missing, self.rows)} of the decisions have no reward yet"
        if self.orphan_count:
            text += f", {self.orphan_count} rewards have no decision"
        is_bad = self.missing > MISSING_LIMIT * self.rows or self.orphan_count > 0
        return Finding("orphans", "warning" if is_bad else "ok", text, numbers)


class ClockCheck(Check):
    """Steps from one decision to the next."""

    def __init__(self, has_times: bool) -> None:
        self.has_times = has_times
        self.backward_steps = 0
        self.first, self.last = math.inf, -math.inf
        self.largest_backward = self.largest_gap = 0.0  # seconds
        self._previous: float | None = None

    def add(self, batch: LogBatch) -> None:
        times = batch.times if self._previous is None else np.append(self._previous, batch.times)
        steps = np.diff(times)
        self.rows += batch.size
        self.backward_steps += int((steps < 0.0).sum())
        self.largest_backward = max(self.largest_backward, float((-steps).max(initial=0.0)))
        self.largest_gap = max(self.largest_gap, float(steps.max(initial=0.0)))
        self.first = min(self.first, float(times.min()))
        self.last = max(self.last, float(times.max()))
        self._previous = float(times[-1])

    def find(self) -> Sequence[Finding]:
        if not self.has_times:
            return [Finding("clock", "warning", "the log has no times: rounds are used instead")]
        numbers = {
            "backwardSteps": self.backward_steps,
            "largestBackwardSeconds": self.largest_backward,
            "largestGapSeconds": self.largest_gap,
        }
        duration = self.last - self.first
        if self.backward_steps:
            share = format_share(self.backward_steps, self.rows)
            text = f"{self.backward_steps} decisions ({share}) come before the one above them"
            text += f", by up to {format_seconds(self.largest_backward)}: sort the log by time"
            return [Finding("clock", "warning", text, numbers)]
        text = f"in the order of time; the largest gap is {format_seconds(self.largest_gap)}"
        text += f" of {format_seconds(duration)}"
        is_gap = self.rows > 2 and self.largest_gap > GAP_LIMIT * duration
        return [Finding("clock", "warning" if is_gap else "ok", text, numbers)]


def format_seconds(seconds: float) -> str:
    """Format a duration with its largest fitting unit.

    >>> [format_seconds(seconds) for seconds in (0.5, 60.0, 7200.0, 1.5 * 86_400)]
    ['0.5 seconds', '1 minute', '2 hours', '1.5 days']
    """
    units = (("day", 86_400.0), ("hour", 3600.0), ("minute", 60.0), ("second", 1.0))
    unit, size = next((pair for pair in units if seconds >= pair[1]), units[-1])
    number = f"{seconds / size:.3g}"
    return f"{number} {unit}" if number == "1" else f"{number} {unit}s"


class EventIdCheck(Check):
    """Counts ids that came before; remembers a hash of each id, up to a limit."""

    def __init__(self, max_remembered: int = MAX_REMEMBERED_IDS) -> None:
        self.max_remembered = max_remembered
        self.repeated = self.empty = 0
        self._hashes: set[int] = set()

    def add(self, batch: LogBatch) -> None:
        self.rows += batch.size
        hashes = self._hashes
        for event_id in batch.event_ids:
            if not event_id:
                self.empty += 1
                continue
            code = hash(event_id)
            if code in hashes:
                self.repeated += 1
            elif len(hashes) < self.max_remembered:
                hashes.add(code)

    def find(self) -> Sequence[Finding]:
        level: Level = "ok"
        text = "no event id occurs twice"
        if self.repeated:
            level = "failure" if self.repeated > REPEATED_FAILURE_SHARE * self.rows else "warning"
            share = format_share(self.repeated, self.rows)
            text = f"{self.repeated} decisions ({share}) have the event id of an earlier one"
        if self.empty:
            text += f"; {self.empty} have no id"
        if len(self._hashes) >= self.max_remembered:
            text += f" (compared with the first {self.max_remembered:,} ids only)"
        numbers = {"repeated": self.repeated, "empty": self.empty, "compared": len(self._hashes)}
        return [Finding("event ids", level, text, numbers)]


class DriftCheck(Check):
    """Sums over blocks of decisions; the blocks grow with the log."""

    def __init__(self, is_fitted: bool) -> None:
        self.is_fitted = is_fitted
        self.block_rows = FIRST_BLOCK_ROWS
        self._blocks: list[Floats] = []  # (3 quantities, 3): count, sum, sum of squares
        self._rest = np.zeros((0, len(QUANTITIES)))

    def add(self, batch: LogBatch) -> None:
        values = [batch.rewards, batch.chosen_probabilities, (batch.chosen == 0).astype(np.float64)]
        rows = np.concatenate([self._rest, np.column_stack(values)])
        whole = len(rows) // self.block_rows * self.block_rows
        for block in rows[:whole].reshape(-1, self.block_rows, len(QUANTITIES)):
            self._blocks.append(_sum_rows(block))
        self._rest = rows[whole:]
        while len(self._blocks) > MAX_DRIFT_BLOCKS:
            if len(self._blocks) % 2:  # the last one waits for a neighbour
                self._blocks.append(np.zeros_like(self._blocks[0]))
            pairs = zip(self._blocks[::2], self._blocks[1::2], strict=True)
            self._blocks = [one + other for one, other in pairs]
            self.block_rows *= 2

    def find(self) -> Sequence[Finding]:
        blocks = [*self._blocks, *([_sum_rows(self._rest)] if len(self._rest) else [])]
        if len(blocks) < 2:
            return [Finding("drift", "ok", "too few decisions to see a change over time")]
        groups = np.array_split(np.array(blocks), min(DRIFT_PARTS, len(blocks)))
        parts = np.array([group.sum(axis=0) for group in groups])  # (parts, quantities, 3)
        return [self._compare(name, parts[:, i]) for i, name in enumerate(QUANTITIES)]

    def _compare(self, name: str, parts: Floats) -> Finding:
        from scipy.stats import chi2

        parts = parts[parts[:, 0] > 0]
        counts, sums, squares = parts.T
        if not len(counts):
            return Finding(f"drift: {name}", "ok", "no value is known")
        means = sums / counts
        mean = sums.sum() / counts.sum()
        variance = squares.sum() / counts.sum() - mean**2
        chance = 1.0
        if variance > 1e-12 * max(mean**2, 1e-12) and len(counts) > 1:
            chance = float(chi2.sf(counts @ (means - mean) ** 2 / variance, len(counts) - 1))
        low, high = float(means.min()), float(means.max())
        numbers = {"lowest": low, "highest": high, "chance": chance, "parts": len(counts)}
        if chance >= DRIFT_CHANCE_LIMIT:
            text = f"no change over time; the mean is {mean:.4g}"
            return Finding(f"drift: {name}", "ok", text, numbers)
        text = f"changes over time: {low:.4g} to {high:.4g} among {len(counts)} parts of the log"
        level: Level = "ok"
        if name == QUANTITIES[0]:
            level = "warning"
            text += "; a mean over the whole log says little about today"
        elif self.is_fitted:
            level = "warning"
            text += ", and the estimated probabilities do not"
        return Finding(f"drift: {name}", level, text, numbers)


def _sum_rows(rows: Floats) -> Floats:
    """Count, sum and sum of squares of each column; NaN is not counted."""
    is_known = ~np.isnan(rows)
    values = np.where(is_known, rows, 0.0)
    return np.stack([is_known.sum(axis=0), values.sum(axis=0), (values**2).sum(axis=0)], axis=1)


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
                asdict(each)
                | {"numbers": {k: v if math.isfinite(v) else None for k, v in each.numbers.items()}}
                for each in self.findings
            ],
            "badRows": [bad._asdict() for bad in self.bad_rows],
            "notes": dict(self.notes),
        }


def check(log: Log) -> CheckReport:
    """Read a log once and check it: probabilities, rewards, clock, support, duplicates, drift."""
    is_fitted = log.has_fitted_probabilities
    rewards = RewardCheck()
    clock = ClockCheck(log.has_times)
    others = EventIdCheck(), DriftCheck(is_fitted)
    checks: list[Check] = [ProbabilityCheck(is_fitted), rewards, clock, *others]
    decisions = 0
    for batch in log.iterate_batches():
        decisions += batch.size
        if batch.size:
            for each in checks:
                each.add(batch)
    notes = dict(log.notes)
    rewards.orphan_count = notes.get(ORPHAN_REWARDS, 0)
    findings = [_find_rows(decisions, log.bad_row_count)]
    if decisions:
        findings += [finding for each in checks for finding in each.find()]
    has_clock = bool(decisions) and log.has_times
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
