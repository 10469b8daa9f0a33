"""What an evaluation finds out, as plain values for JSON, and whether it can be trusted."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, Self, get_args

import numpy as np

from windvane.errors import FileError, SettingError
from windvane.evaluation.estimates.estimators import ONE, WEIGHT, ValueSums
from windvane.evaluation.estimates.value_series import ValueSeries
from windvane.types import Booleans, Floats

Verdict = Literal["better", "worse", "not yet"]
OPPOSITES: dict[Verdict, Verdict] = {"better": "worse", "worse": "better", "not yet": "not yet"}
Z_LIMIT = 4.0  # standard errors of the mean weight; chance alone gives 1 in 16 000
FEW_EFFECTIVE_ROWS = 100  # below, an interval of a standard error is not to be trusted
UNSUPPORTED_LIMIT = 0.001  # mean probability of actions that are never logged
DEGRADED_LIMIT = 0.01
DEFAULTED_LIMIT = 0.95
MIN_DECIMALS, MAX_DECIMALS = 3, 6
DOMINANT_SHARE = 0.1  # share of all weights that one decision may have


class Interval(NamedTuple):
    """Both ends of an interval."""

    low: float
    high: float

    def judge(self) -> Verdict:
        """Whether a gain that lies in the interval is better or worse than nothing."""
        return "better" if self.low > 0 else "worse" if self.high < 0 else "not yet"


@dataclass(frozen=True)
class Estimate:
    """The value of a policy by one estimator, with an interval for one look at many decisions."""

    name: str  # such as "ips" or "dr"
    value: float
    interval: Interval | None  # None with fewer than two decisions
    error: float | None = None  # standard error; None if the interval has no such form


@dataclass(frozen=True)
class Gain:
    """How much more a decision earns than under another policy."""

    value: float
    interval: Interval  # holds at every moment
    verdict: Verdict
    rows_needed: int | None  # estimated further decisions until a verdict; None: cannot be said
    other: float | None = None  # what the other policy earns, if it is known
    lift: float | None = None  # value/|other|

    def relate(self, other: float) -> "Gain":
        """The same gain with its lift over what the other policy earns."""
        return replace(self, other=other, lift=self.value / abs(other) if other else None)

    def flip(self) -> "Gain":
        """The gain of the other policy over this one."""
        interval = Interval(-self.interval.high, -self.interval.low)
        flipped = Gain(-self.value, interval, OPPOSITES[self.verdict], self.rows_needed)
        return flipped if self.other is None else flipped.relate(self.other + self.value)

    def subtract(self, other: "Gain") -> "Gain":
        """The difference of two gains over what was logged; both intervals must hold."""
        interval = Interval(
            self.interval.low - other.interval.high, self.interval.high - other.interval.low
        )
        verdict = interval.judge()
        needed = None if verdict == "not yet" else 0
        return Gain(self.value - other.value, interval, verdict, needed)

    def describe(self, other: str, value: float | None = None) -> str:
        """Say how much more or less than another policy, whose value may be given.

        >>> Gain(-0.101, Interval(-0.106, 0.018), "not yet", None).describe("what was logged", 0.5)
        '0.101 less than what was logged (between 0.106 less and 0.018 more), 20 % of its 0.500'
        """
        share = ""
        if value is not None and abs(value) > 0.0:
            decimals = choose_decimals(*self.interval)
            share = f", {100 * abs(self.value / value):.2g} % of its {value:.{decimals}f}"
        return self.describe_change(f" than {other}") + share

    def describe_change(self, than: str = "") -> str:
        """The difference and its interval, each end with its own "more" or "less".

        >>> Gain(0.031, Interval(0.012, 0.05), "better", 0).describe_change()
        '0.031 more (between 0.012 and 0.050 more)'
        """
        decimals = choose_decimals(*self.interval)
        shown, low, high = (
            (f"{abs(each):.{decimals}f}", "less" if each < 0 else "more")
            for each in (self.value, *self.interval)
        )
        first = low[0] if low[1] == high[1] else " ".join(low)
        return f"{' '.join(shown)}{than} (between {first} and {' '.join(high)})"

    def describe_verdict(self, alpha: float) -> str:
        """The verdict in words, such as "better with 95 % confidence"."""
        if self.verdict != "not yet":
            return f"{self.verdict} with {100 * (1 - alpha):.3g} % confidence"
        more = self.rows_needed
        about = "" if more is None else f"; about {more:,} more decisions at the present rate"
        return f"not known yet{about}"


@dataclass(frozen=True)
class Pair:
    """How much more a decision earns under the first policy than under the second."""

    first: str  # names of policies
    second: str
    gain: Gain
    series: ValueSeries  # of the difference


@dataclass(frozen=True)
class Diagnostics:
    """Numbers that tell whether an estimate can be trusted."""

    rows: int
    mean_weight: float  # 1, up to chance, if the logged probabilities are right
    mean_weight_z: float | None  # its distance from 1 − unsupported, in standard errors
    effective_rows: float  # (Σw)²/Σw²
    largest_weight: float
    positive_share: float  # share of decisions with w > 0
    unsupported: float  # mean probability of actions that were logged with probability 0
    defaulted: float  # share of decisions with the default reward
    degraded: float  # share of decisions that the service answered without deciding


class JsonResult:
    """A result that can be written as JSON and read back."""

    def to_json(self) -> dict[str, Any]:
        """The result as dicts, lists, texts and numbers."""
        import msgspec

        plain: dict[str, Any] = msgspec.to_builtins(self, enc_hook=np.ndarray.tolist)
        return plain

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> Self:
        """Read what `to_json` returned."""
        import msgspec

        def make_array(annotation: type, values: object) -> object:
            (number,) = get_args(get_args(annotation)[1])  # of NDArray[number]
            return np.array(values, dtype=number)

        try:
            return msgspec.convert(plain, cls, dec_hook=make_array)
        except msgspec.ValidationError as reason:
            raise FileError(f"from_json: {reason}") from None


class HtmlResult:
    """A result that people read as a report."""

    def to_html(self, command: str = "") -> str:
        """The report: one HTML file with tables, pictures and sentences, which loads nothing.

        `command` is what made the result; the report says how to repeat it.
        """
        from windvane.evaluation.report import format_report

        return format_report(self, command)

    def _repr_html_(self) -> str:
        from windvane.evaluation.report import format_notebook_cell

        return format_notebook_cell(self)


@dataclass(frozen=True)
class PolicyResult(JsonResult):
    """What one policy would have earned."""

    name: str
    text: str  # the policy as it was written
    source: str  # "Online", "Baseline", "Random", "Custom" or "OfflineExperimentation"
    rows: int
    reward_range: Interval
    alpha: float  # each interval misses with this chance
    estimates: Mapping[str, Estimate]
    headline: str  # the name of the estimate to show first
    sequence: Interval  # of the mean value so far; holds at every moment
    sequence_kind: str  # "ips" or "dr": what the sequence is made of
    gain: Gain
    diagnostics: Diagnostics
    series: ValueSeries
    warnings: Sequence[str] = ()
    learns: bool = False

    @property
    def value(self) -> Estimate:
        """The headline estimate, moved into the interval that holds at every moment."""
        estimate = self.estimates[self.headline]
        return replace(estimate, value=clip_value(estimate.value, self.sequence))

    @property
    def sentence(self) -> str:
        """What was evaluated, and what it would have earned."""
        decimals = choose_decimals(*self.sequence)
        low, high = (f"{end:.{decimals}f}" for end in self.sequence)
        value = f"{self.value.value:.{decimals}f} ({low} to {high}) a decision"
        if self.source == "Online":
            return f"what was logged earned {value}"
        if not self.learns:
            return f"{self.name} would have earned {value}"
        return (
            f"{self.name}, which had learned from everything in this log up to each moment, would "
            f"have earned {value}; live it would have seen the rewards of its own choices instead"
        )


@dataclass(frozen=True)
class SlotResult:
    """What one slot of the pages would have earned."""

    slot: int  # from 0
    effective_pages: float  # (ΣW)²/ΣW² of the weights up to this slot
    estimates: Mapping[str, Estimate]


@dataclass(frozen=True)
class PageResult(JsonResult):
    """What one policy would have earned on pages with several slots, a page."""

    name: str
    text: str
    pages: int
    estimates: Mapping[str, Estimate]  # logged, sips, rips, and cascade_dr or pi
    headline: str  # the name of the estimate to show first
    sequence: Interval  # of the mean value so far; holds at every moment
    gain: Gain  # over what was logged
    against: Gain | None  # over the reference
    slots: Sequence[SlotResult]
    warnings: Sequence[str] = ()

    @property
    def value(self) -> Estimate:
        """The headline estimate."""
        return self.estimates[self.headline]


@dataclass(frozen=True)
class Evaluation(JsonResult, HtmlResult):
    """What several policies would have earned, from one log."""

    policies: Sequence[PolicyResult]
    log: str  # which decisions, in a few words
    since: float | None  # the time of the first decision used, in seconds since 1970
    until: float | None  # the time of the last one
    rows: int  # decisions used
    unrewarded_rows: int = 0  # decisions left out, because their reward is not known
    bad_rows: int = 0  # rows of the log that could not be read
    first_bad_rows: Sequence[str] = ()  # the first of them, "file:line: reason"
    warnings: Sequence[str] = ()
    reference: str = ""  # the policy that all others are compared with
    pairs: Sequence[Pair] = ()  # without those of what was logged, which `PolicyResult.gain` has
    # if events have several slots; then `policies` are slot 1
    pages: Sequence[PageResult] = field(default_factory=list)
    by: str = ""  # column or context feature of the segments
    segments: Mapping[str, "Evaluation"] = field(default_factory=dict)  # intervals hold together
    metrics: Mapping[str, "Evaluation"] = field(default_factory=dict)  # of other rewards, by column
    unit: str = ""  # column or context feature whose rows are taken together
    seed: int = 0  # of the random numbers
    has_times: bool = True  # if not, the number of a decision is its time

    def __getitem__(self, name: str) -> PolicyResult:
        for policy in self.policies:
            if policy.name == name:
                return policy
        raise KeyError(name)

    def compare(self, first: str, second: str | None = None) -> Gain:
        """How much more a decision earns under one policy than under another or the reference."""
        second = self.reference if second is None else second
        mine, other = self[first], self[second]
        if other.source == "Online":
            return mine.gain
        if mine.source == "Online":
            return other.gain.flip()
        for pair in self.pairs:
            if (pair.first, pair.second) == (first, second):
                return pair.gain
            if (pair.second, pair.first) == (first, second):
                return pair.gain.flip()
        raise SettingError(
            f"compare: the pair was not asked for: evaluate(..., pairs=[({first!r}, {second!r})])"
        )


class TrustSums:
    """Sums over decisions that `ValueSums` does not have; they add.

    Σ b · (probability of actions that were logged with probability 0), and Σ b over decisions with
    the default reward, and over those that the service answered without deciding.
    """

    def __init__(self, *sums: float) -> None:
        self.sums = np.array(sums or (0.0, 0.0, 0.0))

    def add(self, coefficients: Floats | None, *columns: Floats | Booleans | None) -> None:
        """Add decisions: `unsupported`, `is_defaulted` and `is_degraded`, as far as known."""
        for place, values in enumerate(columns):
            if values is not None:
                self.sums[place] += np.sum(
                    values if coefficients is None else coefficients * values
                )


def diagnose(sums: ValueSums, trust: TrustSums) -> Diagnostics:
    """Compute the diagnostics of one group of decisions.

    The mean weight is 1 − u, up to chance, if the policy chooses actions that were logged with
    probability 0 with the mean probability u. z = (mean − 1 + u) / standard error.
    """
    rows = int(sums.rows)
    if rows == 0:
        return Diagnostics(0, 0.0, None, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    mass = float(sums.mass)
    mean = float(sums.moments[WEIGHT]) / mass
    error = float(sums.standard_error({WEIGHT: 1.0, ONE: -mean}))
    unsupported, defaulted, degraded = (trust.sums / mass).tolist()
    distance = mean - 1 + unsupported
    if abs(distance) < 1e-9:
        z: float | None = 0.0
    elif not math.isfinite(error) or error <= 1e-9:
        z = None  # one decision, or equal weights
    else:
        z = distance / error
    return Diagnostics(
        rows=rows,
        mean_weight=mean,
        mean_weight_z=z,
        effective_rows=float(sums.effective_rows),
        largest_weight=float(sums.largest_weight),
        positive_share=float(sums.positive) / rows,
        unsupported=unsupported,
        defaulted=defaulted,
        degraded=degraded,
    )


def warn(diagnostics: Diagnostics) -> list[str]:
    """Say in sentences why an estimate with these diagnostics cannot be trusted.

    >>> warn(Diagnostics(10_000, 1.31, 9.2, 4000.0, 9.0, 0.4, 0.0, 0.0, 0.0))
    ['the mean weight is 1.31, not 1 (z = 9.2): the logged probabilities are wrong']
    """
    if diagnostics.rows == 0:
        return ["there are no decisions to judge the policy by"]
    sentences = []
    expected = 1 - diagnostics.unsupported
    goal = "1" if diagnostics.unsupported < UNSUPPORTED_LIMIT else f"{expected:.3g}"
    if diagnostics.positive_share == 0:
        sentences.append("no logged decision has an action that the policy could have chosen")
    elif diagnostics.mean_weight_z is None and diagnostics.rows > 1:
        sentences.append(
            f"all weights are {diagnostics.mean_weight:.6g}, not {goal}: "
            "the logged probabilities are wrong"
        )
    elif diagnostics.mean_weight_z is not None and abs(diagnostics.mean_weight_z) > Z_LIMIT:
        sentences.append(
            f"the mean weight is {diagnostics.mean_weight:.6g}, not {goal} "
            f"(z = {diagnostics.mean_weight_z:.1f}): the logged probabilities are wrong"
            + (", or rare large weights are missing" if diagnostics.mean_weight_z < 0 else "")
        )
    if diagnostics.unsupported >= UNSUPPORTED_LIMIT:
        sentences.append(
            "the policy chooses actions that were never logged with a probability above 0 "
            f"in {_percent(diagnostics.unsupported)} of the decisions"
        )
    if 0 < diagnostics.effective_rows < min(FEW_EFFECTIVE_ROWS, diagnostics.rows):
        sentences.append(
            f"the {diagnostics.rows:,} decisions tell as much about the policy as "
            f"{diagnostics.effective_rows:.0f} of its own (effective sample size)"
        )
    total = diagnostics.mean_weight * diagnostics.rows
    if diagnostics.rows > 1 and diagnostics.largest_weight > max(1.0, DOMINANT_SHARE * total):
        sentences.append(
            f"one decision has {_percent(diagnostics.largest_weight / total)} of all weight "
            f"(w = {diagnostics.largest_weight:.3g})"
        )
    if diagnostics.degraded > DEGRADED_LIMIT:
        sentences.append(
            f"{_percent(diagnostics.degraded)} of the decisions were degraded: the service "
            "answered without deciding"
        )
    if diagnostics.defaulted > DEFAULTED_LIMIT:
        sentences.append(
            f"{_percent(diagnostics.defaulted)} of the decisions have the default reward: rewards "
            "may not reach the log"
        )
    return sentences


def clip_value(value: float, interval: Sequence[float]) -> float:
    """The value of an interval that is nearest to an estimate, which DR may put outside.

    >>> clip_value(-0.001, (0.0, 0.08)), clip_value(0.05, (0.0, 0.08))
    (0.0, 0.05)
    """
    low, high = interval
    return min(max(value, low), high) if low <= high else value


def choose_decimals(low: float, high: float) -> int:
    """How many decimals show two digits of half the width of an interval, from 3 to 6.

    >>> choose_decimals(0.01, 0.05), choose_decimals(0.0101, 0.0105)
    (3, 5)
    """
    half = (high - low) / 2
    if not 0 < half < math.inf:
        return MIN_DECIMALS
    return min(max(1 - math.floor(math.log10(half)), MIN_DECIMALS), MAX_DECIMALS)


def _percent(share: float) -> str:
    return f"{100 * share:.2g} %" if share < 0.995 else "100 %"
