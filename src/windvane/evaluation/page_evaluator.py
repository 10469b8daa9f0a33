"""Evaluate: what policies would have earned on pages with several slots.

A policy fills the slots of a page one after the other, without repeats. One that learns fills a
whole page before it learns the rewards of its slots, as it would in use, and a learner divides its
share of exploration by the number of slots, so that a page is explored as often as a single
decision would be.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from windvane.errors import SettingError
from windvane.evaluation.estimates.estimators import RewardRange
from windvane.evaluation.estimates.pages import (
    PagePairRecord,
    PageRecord,
    SlotRows,
)
from windvane.evaluation.estimates.paired_difference import fit_range
from windvane.evaluation.estimates.result import PageResult
from windvane.evaluation.learners.candidates import (
    Candidate,
    FixedCandidate,
    LearnerCandidate,
    make_learner,
)
from windvane.evaluation.learners.feature_blocks import FeatureBlock, split_blocks
from windvane.evaluation.learners.fixed_policies import compute_probabilities
from windvane.evaluation.learners.own_policies import ColumnPolicy, LogPolicy
from windvane.evaluation.learners.shadow import Shadow, open_candidate
from windvane.evaluation.log_batch import (
    LogBatch,
    LogFacts,
    Period,
    RowCounts,
    SlotLog,
    find_usable_rows,
)
from windvane.evaluation.settings import EvaluationSettings
from windvane.types import Floats, Places


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
        self._candidates = candidates
        self._level = settings.level
        self._seen = RewardRange(0.0, 0.0)  # a slot that a page does not have earns 0
        make_shadow = partial(_make_shadow, facts, most_slots, settings.seed)
        self._shadows = [make_shadow(each) for each in candidates]
        self._model = make_shadow(make_learner())
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
        """Add the pages of a block to the records of all candidates."""
        assert self._model is not None
        slots = np.zeros(block.rows.size, np.int64) if block.slots is None else block.slots
        model = self._model.view_block(block, 0)
        is_slate = None if batch.is_slate is None else batch.is_slate[block.rows]
        self._seen = self._seen.widen(block.rewards)
        range_ = fit_range(self._seen)
        counts = block.multiplicities[block.page_starts[:-1]]
        all_rows = []
        for candidate, shadow in zip(self._candidates, self._shadows, strict=True):
            if isinstance(candidate, FixedCandidate):
                own: Floats = compute_probabilities(candidate, batch)[block.places]
                views = model._replace(probabilities=own)
            else:
                assert shadow is not None
                views = shadow.view_block(block, 0)
            actions = block.make_action_model(*views)
            rows = SlotRows(block.rewards, slots, actions, block.probabilities, is_slate)
            all_rows.append(rows)
        for place, (record, rows) in enumerate(zip(self._records, all_rows, strict=True)):
            record.add(rows, range_, counts)
            if place in self._pairs:
                self._pairs[place].add(rows, all_rows[self._reference], range_, counts)

    def summarize(self) -> list[PageResult]:
        """Compute all estimates."""
        gains = {place: pair.summarize(self._level) for place, pair in self._pairs.items()}
        return [record.summarize(gains.get(k)) for k, record in enumerate(self._records)]


def _make_shadow(
    facts: LogFacts, most_slots: int, seed: int, candidate: Candidate
) -> Shadow | None:
    if isinstance(candidate, FixedCandidate):
        return None
    if isinstance(candidate, LearnerCandidate) and candidate.learner is None:
        candidate = replace(candidate, exploration=candidate.exploration / most_slots)
    return open_candidate(candidate, facts, seed)


def _find_whole_pages(batch: LogBatch, period: Period) -> Places:
    """The rows of the pages of which every slot can be evaluated."""
    is_usable = np.zeros(batch.size, np.bool_)
    is_usable[find_usable_rows(batch, period, RowCounts())] = True
    starts = batch.event_starts
    if not batch.size:
        return np.zeros(0, np.int64)
    is_whole = np.logical_and.reduceat(is_usable, starts[:-1])
    rows: Places = np.flatnonzero(np.repeat(is_whole, np.diff(starts)))
    return rows


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
