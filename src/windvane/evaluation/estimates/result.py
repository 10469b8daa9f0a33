"""What an evaluation finds out: plain values that can be written as JSON and read back."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Self, TypeVar, get_args

import numpy as np

from windvane.errors import FileError
from windvane.evaluation.estimates.value_series import ValueSeries

Kind = TypeVar("Kind")
Verdict = Literal["better", "worse", "not yet"]


class Interval(NamedTuple):
    """Both ends of an interval."""

    low: float
    high: float


@dataclass(frozen=True)
class Estimate:
    """The value of a policy by one estimator, with an interval for one look at many decisions."""

    name: str  # such as "ips" or "dr"
    value: float
    interval: Interval | None  # None with fewer than two decisions
    error: float | None = None  # standard error; None if the interval has no such form


@dataclass(frozen=True)
class Gain:
    """How much more a decision earns than under the policy that logged it."""

    value: float
    interval: Interval  # holds at every moment
    verdict: Verdict
    rows_needed: int | None  # estimated further decisions until a verdict; None: cannot be said


@dataclass(frozen=True)
class RecentValue:
    """The value of a policy with weights that halve with every half-life before a time."""

    half_life: float  # seconds
    at: float  # seconds since 1970
    rows: float  # Σ of the weights
    value: float
    interval: Interval  # holds for one time that is fixed beforehand


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


@dataclass(frozen=True)
class Replay:
    """How a policy that learns was replayed."""

    accepted: int  # decisions that it learned from
    violations: int  # decisions whose chance of acceptance would have been above 1
    final_coefficient: float  # the multiplier c at the end
    clock: str = ""  # which clock its memory faded by
    rows: int = 0  # decisions that it was asked for
    is_sampled: bool = False  # whether its probabilities were counted in draws

    @property
    def acceptance_rate(self) -> float:
        """The share of decisions that it learned from."""
        return self.accepted / self.rows if self.rows else 0.0


@dataclass(frozen=True)
class PolicyResult:
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
    recent: RecentValue | None
    diagnostics: Diagnostics
    series: ValueSeries
    warnings: Sequence[str] = ()
    replay: Replay | None = None

    @property
    def value(self) -> Estimate:
        """The headline estimate."""
        return self.estimates[self.headline]

    def describe_verdict(self) -> str:
        """The verdict on the gain with its confidence, such as "better with 95 % confidence"."""
        return f"{self.gain.verdict} with {100 * (1 - self.alpha):.3g} % confidence"

    def to_json(self) -> dict[str, Any]:
        """The result as dicts, lists, texts and numbers."""
        return _to_json(self)

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> Self:
        """Read what `to_json` returned."""
        return _from_json(plain, cls)


@dataclass(frozen=True)
class Evaluation:
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

    def __getitem__(self, name: str) -> PolicyResult:
        for policy in self.policies:
            if policy.name == name:
                return policy
        raise KeyError(name)

    def to_json(self) -> dict[str, Any]:
        """The evaluation as dicts, lists, texts and numbers."""
        return _to_json(self)

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> Self:
        """Read what `to_json` returned."""
        return _from_json(plain, cls)


def _to_json(value: object) -> dict[str, Any]:
    import msgspec

    plain: dict[str, Any] = msgspec.to_builtins(value, enc_hook=np.ndarray.tolist)
    return plain


def _from_json(plain: Mapping[str, Any], kind: type[Kind]) -> Kind:
    import msgspec

    def make_array(annotation: type, values: object) -> object:
        (number,) = get_args(get_args(annotation)[1])  # of NDArray[number]
        return np.array(values, dtype=number)

    try:
        return msgspec.convert(plain, kind, dec_hook=make_array)
    except msgspec.ValidationError as reason:
        raise FileError(f"from_json: {reason}") from None
