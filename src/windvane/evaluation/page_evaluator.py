"""Pages with several slots: what a policy would have earned on a whole page, and in each slot.

A page has slots s = 1..S in order. Each logged row is a slot with its chosen action a_s, its reward
r_s, and the ratio w_s = π(a_s|h_s)/p(a_s|h_s) of the probabilities given h_s, the actions in the
slots before. A page is never S decisions of their own: the slots before were filled by the logging
policy, so that their ratios count as well,

    W_s = w_1 w_2 ⋯ w_s,   W_0 = 1

| name         | estimate of the value of a page                               | unbiased       |
|--------------|---------------------------------------------------------------|----------------|
| `sips`       | E[W_S Σ_s r_s]                                                | always         |
| `rips`       | E[Σ_s W_s r_s]                                                | in a cascade   |
| `cascade_dr` | E[Σ_s (W_{s−1} Σ_a π(a|h_s) q̂(a) + W_s (r_s − q̂(a_s)))]       | in a cascade   |
| `pi`         | E[r (1 − S + Σ_s w_s)], r the one reward of a slate           | additive       |

In a cascade the reward of a slot does not depend on the slots after it. q̂ is a model of the reward
of a slot that has not seen the page; it may be wrong. A slate has one reward for the whole page and
slots that are filled independently; `pi` is right if that reward is a sum over the slots.

Slot s of `cascade_dr` is the DR estimate of one decision whose policy has the probabilities
W_{s−1} π(a|h_s), which are known before a_s is chosen. So X of `confidence_sequence.py` with these
probabilities, averaged over the slots of a page, has the mean of the page, and bounds it at all
times. A page with fewer slots than the largest has slots with the reward 0 at its end. The sides of
two policies A and B make their difference: X_A(`low`) + X_B(`high`) − 1 ≥ −(2k + 1) has the mean
V(A) − V(B).

A policy fills the slots of a page one after the other, without repeats. One that learns fills a
whole page before it learns the rewards of its slots, as it would in use. A learner chooses as
`Learner.rank_slots` does, given the logged actions in the slots before: the features are those of
context and slot, and its share of exploration is divided by the number of slots of the page.

Kiyohara et al. (2022), "Doubly robust off-policy evaluation for ranking policies under the cascade
behavior model"; McInerney et al. (2020), "Counterfactual evaluation of slate recommendations with
sequential reward interactions"; Swaminathan et al. (2017), "Off-policy evaluation for slate
recommendation".
"""

import math
from collections.abc import Sequence
from functools import partial

import numpy as np

from windvane.errors import SettingError
from windvane.evaluation.estimates.confidence_sequence import (
    ActionModel,
    ConfidenceSequence,
    Sides,
    bound_model,
    bound_value,
    compute_sides,
    judge_gain,
    make_sequence,
)
from windvane.evaluation.estimates.estimators import UNIT_RANGE, RewardRange, normal_quantile
from windvane.evaluation.estimates.paired_difference import BOUNDS, fit_range
from windvane.evaluation.estimates.result import Estimate, Gain, Interval, PageResult, SlotResult
from windvane.evaluation.learners import candidates as kinds
from windvane.evaluation.learners.candidates import Candidate, FixedCandidate
from windvane.evaluation.learners.feature_blocks import FeatureBlock, split_blocks
from windvane.evaluation.learners.fixed_policies import compute_probabilities
from windvane.evaluation.learners.own_policies import ColumnPolicy, LogPolicy
from windvane.evaluation.learners.shadow import Shadow, open_candidate
from windvane.evaluation.log_batch import LogBatch, LogFacts, Period, SlotLog, find_usable_rows
from windvane.evaluation.settings import EvaluationSettings
from windvane.types import Booleans, Floats, Places

FEW_EFFECTIVE_PAGES = 50.0  # a slot whose weights tell less is not reported
LOGGED, SIPS, RIPS, CASCADE_DR, PI = "logged", "sips", "rips", "cascade_dr", "pi"


def multiply_along_pages(ratios: Floats, slots: Places) -> tuple[Floats, Floats]:
    """W_{s−1} and W_s of each row, (n,) each; slot 0 begins a page.

    >>> before, weights = multiply_along_pages(np.array([2.0, 3.0, 5.0]), np.array([0, 1, 0]))
    >>> before.tolist(), weights.tolist()
    ([1.0, 2.0, 1.0], [2.0, 6.0, 5.0])
    """
    before = np.ones(ratios.size)
    for slot in range(1, int(slots.max(initial=0)) + 1):
        rows = np.flatnonzero(slots == slot)
        before[rows] = before[rows - 1] * ratios[rows - 1]
    return before, before * ratios


class SlotRows:
    """What one policy did in the slots of some whole pages, and what it predicted."""

    def __init__(
        self,
        rewards: Floats,  # (n,)
        slots: Places,  # (n,)
        actions: ActionModel,  # π given the slots before
        probabilities: Floats,  # (n,) logged ones of the chosen actions
        is_slate: Booleans | None = None,  # (n,)
    ) -> None:
        self.slots = slots
        self.starts = np.flatnonzero(slots == 0)
        self.sizes = np.diff(np.append(self.starts, slots.size))
        self.ratios = actions.pick_probabilities() / probabilities
        before, self.weights = multiply_along_pages(self.ratios, slots)
        scaled = actions.policy_probabilities * np.repeat(before, np.diff(actions.starts))
        self.actions = actions._replace(policy_probabilities=scaled)  # W_{s−1} π
        self.is_slate = np.zeros(self.starts.size, np.bool_)
        if is_slate is not None:
            self.is_slate = is_slate[self.starts]
        is_last = np.append(slots[1:] == 0, True)
        self.last = np.flatnonzero(is_last)
        # the one reward of a slate is earned when its last slot is filled
        self.rewards = np.where(np.repeat(self.is_slate, self.sizes) & ~is_last, 0.0, rewards)
        weighted = self.weights * self.rewards
        model = self.actions.average_predictions()
        model -= self.weights * self.actions.pick_predictions()
        model[np.repeat(self.is_slate, self.sizes)] = np.nan
        self.terms = {LOGGED: self.rewards, RIPS: weighted, CASCADE_DR: weighted + model}

    def add_up(self, values: Floats) -> Floats:
        """The sum over the slots of each page, (pages,)."""
        return np.add.reduceat(values, self.starts)

    def compute_terms(self) -> dict[str, Floats]:
        """The terms of each page, whose means are the estimates; NaN where one does not apply."""
        terms = {name: self.add_up(values) for name, values in self.terms.items()}
        logged = terms[LOGGED]
        terms[SIPS] = self.weights[self.last] * logged
        slate = logged * (1 - self.sizes + self.add_up(self.ratios))
        terms[PI] = np.where(self.is_slate, slate, np.nan)
        return terms

    def compute_sides(self, range_: RewardRange, bound: float, most_slots: int) -> Sides:
        """X of `low`, `high`, `above` and `below` for one k, averaged over the slots, (pages,)."""
        missing = most_slots - self.sizes
        zero = -range_.low / range_.width  # a reward of 0
        model = bound_model(self.actions, range_, bound)
        sides = compute_sides(self.rewards, self.weights, model, range_)
        low, high, above, below = (self.add_up(side) for side in sides)
        return (
            (low + missing * zero) / most_slots,
            (high + missing * (1 - zero)) / most_slots,
            above / most_slots,
            below / most_slots,
        )


class MeanSums:
    """Sums for a mean and its standard error, with a count for each page."""

    def __init__(self) -> None:
        self._sums = np.zeros(6)  # pages, Σ c, Σ c x, Σ c², Σ c² x, Σ c² x²

    def add(self, values: Floats, counts: Floats) -> None:
        """Add pages; NaN is left out."""
        is_known = ~np.isnan(values)
        x, c = values[is_known], counts[is_known]
        self._sums += [x.size, c.sum(), c @ x, c @ c, c**2 @ x, (c * x) @ (c * x)]

    def estimate(self, name: str, alpha: float) -> Estimate | None:
        """The mean with its interval for one look; None without pages."""
        pages, mass, total, squares, weighted, squared = self._sums.tolist()
        if not pages:
            return None
        mean = total / mass
        if pages < 2:
            return Estimate(name, mean, None)
        variance = max(squared - 2 * mean * weighted + mean**2 * squares, 0.0)
        error = math.sqrt(variance * pages / (pages - 1)) / mass
        reach = normal_quantile(alpha) * error
        return Estimate(name, mean, Interval(mean - reach, mean + reach), error)


class PageRecord:
    """Adds pages batch by batch, and summarises what a policy would have earned on them."""

    def __init__(self, name: str, text: str, most_slots: int, alpha: float) -> None:
        self.name, self.text = name, text
        self._alpha, self._most_slots, self._pages = alpha, most_slots, 0
        self._means = {name: MeanSums() for name in (LOGGED, SIPS, RIPS, CASCADE_DR, PI)}
        self._slots = [
            {name: MeanSums() for name in (LOGGED, RIPS, CASCADE_DR)} for _ in range(most_slots)
        ]
        self._weights = np.zeros((2, most_slots))  # Σ W, Σ W² of each slot
        self._sequences = [
            make_sequence(UNIT_RANGE, bound) if bound else ConfidenceSequence() for bound in BOUNDS
        ]

    def add(self, rows: SlotRows, range_: RewardRange, counts: Floats) -> None:
        """Add pages in the order of the log; `range_` contains all rewards of slots so far."""
        self._pages += rows.starts.size
        for name, terms in rows.compute_terms().items():
            self._means[name].add(terms, counts)
        repeated = np.repeat(counts, rows.sizes)
        for slot in range(int(rows.sizes.max())):
            places = np.flatnonzero(rows.slots == slot)
            for name, terms in rows.terms.items():
                self._slots[slot][name].add(terms[places], repeated[places])
            weights = rows.weights[places]
            self._weights[:, slot] += weights.sum(), weights @ weights
        missing = self._most_slots - rows.sizes  # slots with W = 1
        weights = (rows.add_up(rows.weights) + missing) / self._most_slots
        for sequence, bound in zip(self._sequences, BOUNDS, strict=True):
            sequence.widen(range_)
            sides = rows.compute_sides(range_, bound, self._most_slots)
            sequence.update_terms(sides, weights, _find_repeats(counts))

    def summarize(self, against: Gain | None) -> PageResult:
        """Compute all estimates; `against` is the gain over the reference."""
        estimates = _estimate_all(self._means, self._alpha)
        headline = next(name for name in (CASCADE_DR, PI) if name in estimates)
        ends = bound_value(self._sequences, self._alpha)
        low, high = (float(end) * self._most_slots for end in ends)
        difference = estimates[headline].value - estimates[LOGGED].value
        gain = judge_gain(self._sequences, difference / self._most_slots, self._alpha)
        total, squares = self._weights
        effective = np.divide(total**2, squares, out=np.zeros_like(total), where=squares > 0)
        slots = [
            SlotResult(slot, float(effective[slot]), _estimate_all(sums, self._alpha))
            for slot, sums in enumerate(self._slots)
            if effective[slot] >= FEW_EFFECTIVE_PAGES
        ]
        warnings = []
        if len(slots) < self._most_slots:
            warnings.append(
                f"of {self._most_slots} slots {len(slots)} are shown: others tell as much about "
                f"the policy as fewer than {FEW_EFFECTIVE_PAGES:.0f} pages of its own"
            )
        return PageResult(
            name=self.name,
            text=self.text,
            pages=self._pages,
            estimates=estimates,
            headline=headline,
            sequence=Interval(low, high),
            gain=_scale_gain(gain, self._most_slots),
            against=against,
            slots=slots,
            warnings=warnings,
        )


class PagePairRecord:
    """Adds pages batch by batch, and judges how much more policy A earns on them than policy B."""

    def __init__(self, most_slots: int) -> None:
        self._most_slots = most_slots
        self._differences = MeanSums()
        self._sequences = [ConfidenceSequence(floors=np.full(4, 2 * bound + 1)) for bound in BOUNDS]

    def add(self, first: SlotRows, second: SlotRows, range_: RewardRange, counts: Floats) -> None:
        mine, other = first.compute_terms(), second.compute_terms()
        difference = mine[CASCADE_DR] - other[CASCADE_DR]
        slates = mine[PI] - other[PI]
        self._differences.add(np.where(first.is_slate, slates, difference), counts)
        unused, ones = np.zeros(first.starts.size), np.ones(first.starts.size)
        for sequence, bound in zip(self._sequences, BOUNDS, strict=True):
            sequence.widen(range_)
            low, high, *_ = first.compute_sides(range_, bound, self._most_slots)
            other_low, other_high, *_ = second.compute_sides(range_, bound, self._most_slots)
            sides = (unused, unused, low + other_high - 1, high + other_low - 1)
            sequence.update_terms(sides, ones, _find_repeats(counts))

    def summarize(self, alpha: float) -> Gain:
        difference = self._differences.estimate("difference", alpha)
        value = 0.0 if difference is None else difference.value / self._most_slots
        return _scale_gain(judge_gain(self._sequences, value, alpha), self._most_slots)


def _estimate_all(sums: dict[str, MeanSums], alpha: float) -> dict[str, Estimate]:
    found = (each.estimate(name, alpha) for name, each in sums.items())
    return {estimate.name: estimate for estimate in found if estimate is not None}


def _scale_gain(gain: Gain, factor: float) -> Gain:
    """The gain of a page from that of its mean slot."""
    interval = Interval(gain.interval.low * factor, gain.interval.high * factor)
    return Gain(gain.value * factor, interval, gain.verdict, gain.rows_needed)


def _find_repeats(counts: Floats) -> Floats | None:
    return None if (counts == 1).all() else counts


def evaluate_pages(
    log: SlotLog, candidates: Sequence[Candidate], reference: str, settings: EvaluationSettings
) -> list[PageResult]:
    """Estimate what each candidate would have earned on the pages of a log."""
    facts, most_slots = _survey(log, settings.period)
    evaluator = PageEvaluator(candidates, reference, facts, most_slots, settings)
    for batch in log.iterate_slots():
        rows = _find_whole_pages(batch, settings.period)
        for block in split_blocks(batch, rows):
            evaluator.add(batch, block)
    return evaluator.summarize()


class PageEvaluator:
    """Takes pages block by block, and keeps a record for each candidate."""

    def __init__(
        self,
        candidates: Sequence[Candidate],
        reference: str,
        facts: LogFacts,
        most_slots: int,
        settings: EvaluationSettings,
    ) -> None:
        for each in candidates:
            if isinstance(each, FixedCandidate) and each.rule == "action":
                raise SettingError(
                    f"{each.text}: one action cannot fill several slots; use first or random"
                )
            if isinstance(each, FixedCandidate) and isinstance(each.own, ColumnPolicy | LogPolicy):
                message = "probabilities are read for logs with one slot only; use a function"
                raise SettingError(f"{each.text}: {message}")
        names = [candidate.name for candidate in candidates]
        self._candidates, self._level = candidates, settings.level
        self._seen = RewardRange(0.0, 0.0)  # a slot that a page does not have earns 0
        make_shadow = partial(_make_shadow, facts, settings.seed)
        self._shadows = [make_shadow(each) for each in candidates]
        self._model = make_shadow(kinds.make_learner())
        self._records = [
            PageRecord(each.name, each.text, most_slots, self._level) for each in candidates
        ]
        self._reference = names.index(reference) if reference in names else -1
        self._pairs = {  # with the reference, if there is one
            place: PagePairRecord(most_slots)
            for place in range(len(names))
            if self._reference not in (-1, place)
        }

    def add(self, batch: LogBatch, block: FeatureBlock) -> None:
        assert self._model is not None
        slots = np.zeros(block.rows.size, np.int64) if block.slots is None else block.slots
        model = self._model.view_block(block, 0)
        is_slate = None if batch.is_slate is None else batch.is_slate[block.rows]
        self._seen = self._seen.widen(block.rewards)
        range_ = fit_range(self._seen)
        counts = block.multiplicities[block.page_starts[:-1]]
        all_rows = []
        for candidate, shadow in zip(self._candidates, self._shadows, strict=True):
            if shadow is not None:
                views = shadow.view_block(block, 0)
            elif isinstance(candidate, FixedCandidate):
                own: Floats = compute_probabilities(candidate, batch)[block.places]
                views = model._replace(probabilities=own)
            actions = block.make_action_model(*views)
            rows = SlotRows(block.rewards, slots, actions, block.probabilities, is_slate)
            all_rows.append(rows)
        for place, (record, rows) in enumerate(zip(self._records, all_rows, strict=True)):
            record.add(rows, range_, counts)
            if place in self._pairs:
                self._pairs[place].add(rows, all_rows[self._reference], range_, counts)

    def summarize(self) -> list[PageResult]:
        gains = {place: pair.summarize(self._level) for place, pair in self._pairs.items()}
        return [record.summarize(gains.get(k)) for k, record in enumerate(self._records)]


def _make_shadow(facts: LogFacts, seed: int, candidate: Candidate) -> Shadow | None:
    if isinstance(candidate, FixedCandidate):
        return None
    return open_candidate(candidate, facts, seed)


def _find_whole_pages(batch: LogBatch, period: Period) -> Places:
    """The rows of the pages of which every slot can be evaluated."""
    is_usable = np.zeros(batch.size, np.bool_)
    is_usable[find_usable_rows(batch, period)] = True
    starts = batch.event_starts
    if not batch.size:
        return np.zeros(0, np.int64)
    is_whole = np.logical_and.reduceat(is_usable, starts[:-1])
    return np.flatnonzero(np.repeat(is_whole, np.diff(starts)))


def _survey(log: SlotLog, period: Period) -> tuple[LogFacts, int]:
    """What named policies are tuned by, and the largest number of slots of a page."""
    rows, most_actions, most_slots, rewards = 0, 0, 1, []
    for batch in log.iterate_slots():
        usable = _find_whole_pages(batch, period)
        if usable.size:
            rows += usable.size
            most_actions = max(most_actions, int(batch.action_counts[usable].max()))
            most_slots = max(most_slots, int(np.diff(batch.event_starts).max()))
            rewards.append(batch.rewards[usable])
    if not rows:
        raise SettingError(f"evaluate: {log.description} has no page that can be evaluated")
    return LogFacts(rows, most_actions, float(np.concatenate(rewards).std())), most_slots
