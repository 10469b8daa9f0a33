"""All that accumulates about one policy while a log is read, and its summary."""

import math
from collections.abc import Sequence

import numpy as np

from windvane.errors import RewardError, SettingError, WindvaneError
from windvane.evaluation.estimates.confidence_sequence import (
    MODEL_BOUNDS,
    ActionModel,
    ConfidenceSequence,
    bound_model,
    bound_value,
    judge_gain,
    make_sequence,
    update_with_model,
)
from windvane.evaluation.estimates.estimators import (
    DR,
    LOGGED,
    MODEL_FREE_NAMES,
    MODEL_NAMES,
    NO_REWARDS,
    CressieReadSums,
    RewardRange,
    UnitSums,
    ValueSums,
    WeightRange,
    bound_cressie_read,
    estimate_cressie_read,
    estimate_gain,
    estimate_values,
    normal_quantile,
)
from windvane.evaluation.estimates.paired_difference import DEFAULT_RANGES, fit_range
from windvane.evaluation.estimates.result import (
    Estimate,
    Gain,
    Interval,
    PolicyResult,
    TrustSums,
    diagnose,
    warn,
)
from windvane.evaluation.estimates.value_series import SeriesBuilder, TimedRows, number_or_none
from windvane.types import Booleans, Floats, Places
from windvane.validation import inside

CRESSIE_READ = "cressie_read"
CHUNK_ROWS = 16_384  # their columns fit into the cache of a core


class PolicyRecord:
    """Adds logged decisions batch by batch, and summarises what a policy would have earned.

    `weights` are π(a)/p(a): the probability of the logged action under the policy, divided by its
    logged probability. With a reward model q̂ that has not seen the decision, `model_values` are
    Σ_a π(a) q̂(a) and `model_chosen` are q̂ of the logged action; `action_model` has the predictions
    and probabilities of all actions, makes the confidence sequences narrower, and tells the
    Cressie-Read estimate the largest weight that was possible. `counts` say how many decisions a
    row stands for.

    Without `reward_range`, the range is [0, 1] if all rewards lie in it, else [−1, 1], else that
    of the rewards seen.

    >>> import numpy as np
    >>> record = PolicyRecord("second action")
    >>> rng = np.random.default_rng(1)
    >>> logged = rng.integers(2, size=4000)
    >>> rewards = (rng.random(4000) < np.where(logged == 1, 0.7, 0.4)).astype(float)
    >>> record.add(np.arange(4000.0), rewards, 2.0 * (logged == 1))
    >>> result = record.summarize()
    >>> round(result.estimates["snips"].value, 2), result.gain.verdict
    (0.69, 'better')
    """

    def __init__(
        self,
        name: str,
        text: str = "",
        source: str = "Custom",
        *,
        reward_range: tuple[float, float] | None = None,
        weight_range: tuple[float, float] = (0.0, math.inf),
        alpha: float = 0.05,
    ) -> None:
        who, range_ = "PolicyRecord", reward_range
        if range_ is not None and not -math.inf < range_[0] < range_[1] < math.inf:
            message = "reward_range must be two increasing numbers"
            raise SettingError(f"{who}: {message}, got {reward_range!r}")
        if not 0 <= weight_range[0] < 1 < weight_range[1]:
            raise SettingError(f"{who}: weight_range must be low < 1 < high, got {weight_range!r}")
        self.name, self.text, self.source = name, text, source
        self.alpha = inside(who, "alpha", alpha)
        self._given_range = None if range_ is None else RewardRange(*range_)
        self._weight_range = WeightRange(*weight_range)
        self._settings = (reward_range, weight_range)
        self._has_model: bool | None = None  # None without decisions
        self._seen = NO_REWARDS  # the smallest and largest reward so far
        rewards = self._given_range or DEFAULT_RANGES[0]
        self._sequence = ConfidenceSequence(rewards)
        self._model_sequences = [  # empty if a row had no model of all actions
            make_sequence(rewards, bound) for bound in MODEL_BOUNDS
        ]
        self._series = SeriesBuilder()
        self._trust = TrustSums()
        self._units = UnitSums()
        self._is_logged = True  # whether the policy had the probabilities of the log
        self._possible_weight = 0.0  # the largest that any action would have had

    def add(
        self,
        times: Floats,  # (n,) seconds since 1970, in the order of the log
        rewards: Floats,  # (n,)
        weights: Floats,  # (n,)
        model_values: Floats | None = None,  # (n,)
        model_chosen: Floats | None = None,  # (n,)
        counts: Floats | None = None,  # (n,) 1/(1 − pdrop)
        *,
        action_model: ActionModel | None = None,
        unsupported: Floats | None = None,  # (n,) Σ π(a) over the actions with p(a) = 0
        is_defaulted: Booleans | None = None,
        is_degraded: Booleans | None = None,
        units: Places | None = None,  # (n,) numbers of what decisions belong to, such as users
    ) -> None:
        """Add decisions with known rewards."""
        if len(times) == 0:
            return
        who = "PolicyRecord.add"
        if (model_values is None) != (model_chosen is None):
            raise SettingError(f"{who}: model_values and model_chosen belong together")
        rows = TimedRows(times, rewards, weights, model_values, model_chosen, counts)
        others = {"coefficients": None, "counts": counts, "unsupported": unsupported}
        for name, column in (rows._asdict() | others).items():
            if column is not None and column.shape != (len(times),):
                message = f"{name} must have shape ({len(times)},)"
                raise SettingError(f"{who}: {message}, got {column.shape}")
            if column is not None:
                require(who, name, column, np.isfinite(column), "be finite", RewardError)
        require(who, "weights", weights, weights >= 0, "be at least 0")
        if self._given_range is not None:
            low, high = self._given_range
            is_inside = (rewards >= low) & (rewards <= high)
            demand = f"lie in [{low:g}, {high:g}]"
            require(who, "rewards", rewards, is_inside, demand, RewardError)
        if counts is not None:
            require(who, "counts", counts, counts > 0, "be above 0")
            counts = None if (counts == 1).all() else counts
        if action_model is not None:
            action_model.check(who, len(times))
        self._has_model = self._check_model(who, model_values is not None)
        self._widen_range(rewards)
        self._trust.add(counts, unsupported, is_defaulted, is_degraded)
        self._is_logged &= action_model is not None and action_model.is_logged
        possible = math.inf  # if some p is 0 or unknown
        if action_model is not None and np.all(action_model.logged_probabilities > 0):
            _, policy, logged, *_ = action_model
            possible = float(np.max(policy / logged, initial=0.0))
        self._possible_weight = max(self._possible_weight, possible)
        if action_model is None:
            self._model_sequences = []
        models = [
            (sequence, bound_model(action_model, sequence.range, bound))
            for sequence, bound in zip(self._model_sequences, MODEL_BOUNDS, strict=False)
            if action_model is not None
        ]
        rows = rows._replace(coefficients=counts)
        if units is not None:
            self._units.add(units, *rows[1:])
        for start in range(0, len(times), CHUNK_ROWS):
            part = slice(start, start + CHUNK_ROWS)
            chunk = rows.select(part)
            decisions = chunk.rewards, chunk.weights
            self._sequence.update(*decisions, chunk.coefficients)
            for sequence, model in models:
                update_with_model(sequence, *decisions, model.select(part), chunk.coefficients)
            self._series.add(chunk)

    def merge(self, other: "PolicyRecord") -> None:
        """Add what another record has of other decisions of the same policy."""
        if self._settings != other._settings:
            raise SettingError("PolicyRecord.merge: both records must have the same ranges")
        if other._has_model is None:
            return
        self._has_model = self._check_model("PolicyRecord.merge", other._has_model)
        self._widen_range(np.array(other._seen))
        self._sequence.merge(other._sequence)
        if not other._model_sequences:
            self._model_sequences = []
        for mine, its in zip(self._model_sequences, other._model_sequences, strict=False):
            mine.merge(its)
        self._is_logged &= other._is_logged
        self._possible_weight = max(self._possible_weight, other._possible_weight)
        self._series.merge(other._series)
        self._trust.sums += other._trust.sums

    def summarize(self, learns: bool = False) -> PolicyResult:
        """Compute all estimates, intervals and diagnostics from the sums so far.

        A policy that had the probabilities of the log earned what was logged: no model is needed.
        """
        if not self.has_rows:
            raise SettingError(f"summarize: {self.name} must have at least one decision, got none")
        series = self._series.build()
        sums = series.sums.total()
        diagnostics = diagnose(sums, self._trust)
        estimates = {estimate.name: estimate for estimate in self._estimate(sums)}
        low, high = bound_value(self._sequences, self.alpha)
        return PolicyResult(
            name=self.name,
            text=self.text,
            source=self.source,
            rows=int(sums.rows),
            reward_range=Interval(*self._sequence.range),
            alpha=self.alpha,
            estimates=estimates,
            headline=DR if sums.has_model and not self._is_logged else CRESSIE_READ,
            sequence=Interval(float(low), float(high)),
            sequence_kind="dr" if len(self._sequences) > 1 else "ips",
            gain=self.judge(self.alpha).relate(float(estimate_values(LOGGED, sums).value)),
            diagnostics=diagnostics,
            series=series,
            warnings=[*warn(diagnostics), *self._warn_about_ranges(float(sums.largest_weight))],
            learns=learns,
        )

    @property
    def has_rows(self) -> bool:
        """Whether any decision was added."""
        return self._has_model is not None

    def judge(self, alpha: float) -> Gain:
        """Judge the gain over what was logged."""
        sums = self._series.build().sums.total()
        return judge_gain(self._sequences, float(estimate_gain(sums).value), alpha)

    @property
    def _sequences(self) -> list[ConfidenceSequence]:
        return [self._sequence, *([] if self._is_logged else self._model_sequences)]

    def _estimate(self, sums: ValueSums) -> Sequence[Estimate]:
        quantile = normal_quantile(self.alpha)
        estimates = []
        clustered = self._units.cluster(sums)
        for name in (*MODEL_FREE_NAMES, *(MODEL_NAMES if sums.has_model else ())):
            values = estimate_values(name, clustered)
            value, error = number_or_none(values.value), number_or_none(values.error)
            if value is not None:
                interval = None
                if error is not None:
                    interval = Interval(value - quantile * error, value + quantile * error)
                estimates.append(Estimate(name, value, interval, error))
        given = self._weight_range.high
        possible = given if math.isfinite(given) else self._possible_weight
        largest = max(possible, float(sums.largest_weight))
        weights = WeightRange(self._weight_range.low, largest)
        plain, own = (CressieReadSums.from_value_sums(each) for each in (sums, clustered))
        ends = bound_cressie_read(own, self._sequence.range, weights, self.alpha)
        value = estimate_cressie_read(plain, weights)
        return [*estimates, Estimate(CRESSIE_READ, value, Interval(*ends))]

    def _warn_about_ranges(self, largest_weight: float) -> list[str]:
        sentences = []
        rewards = self._sequence.range
        low, high = self._sequence.bound_value(self.alpha)
        if low > high:
            what = "the ends of the confidence sequence cross"
            sentences.append(f"{what}: the logged probabilities are wrong")
        if self._given_range is None and rewards not in DEFAULT_RANGES:
            sentences.append(
                f"rewards lie outside [-1, 1]: their range was taken from the log, "
                f"[{rewards.low:g}, {rewards.high:g}], and intervals hold only if no reward can "
                "lie outside"
            )
        if largest_weight > (bound := self._weight_range.high):
            what = f"a weight of {largest_weight:.3g} is above the bound of {bound:.3g}"
            sentences.append(f"{what} that was given")
        return sentences

    def _check_model(self, who: str, has_model: bool) -> bool:
        if self._has_model is not None and self._has_model != has_model:
            raise SettingError(f"{who}: all decisions must have model values, or none of them")
        return has_model

    def _widen_range(self, rewards: Floats) -> None:
        """Take a range that contains all rewards so far, unless the range was given."""
        self._seen = self._seen.widen(rewards)
        if self._given_range is None:
            for sequence in (self._sequence, *self._model_sequences):
                sequence.widen(fit_range(self._seen))


def require(
    who: str,
    name: str,
    column: Floats,
    is_sound: Booleans,
    demand: str,
    error: type[WindvaneError] = SettingError,
) -> None:
    """Refuse the first row that is not sound."""
    row = int(np.argmin(is_sound))
    if not is_sound[row]:
        raise error(f"{who}: {name} must {demand}, got {column[row]:g} in row {row}")
