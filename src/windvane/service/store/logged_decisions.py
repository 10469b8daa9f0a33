"""The decisions of a loop as a log that can be evaluated, read from the database of the service.

Only reads, in short queries, so a service may run on the same database. A decision counts once its
reward is learned; one that still waits for its reward has the reward NaN. Decisions that were never
activated are left out, and so are imported ones.
"""

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import msgspec
import numpy as np

from windvane.errors import SettingError
from windvane.evaluation.log_batch import DecisionFeatures, LogBatch, LoggedAction
from windvane.evaluation.readers.rows import (
    NEVER_ACTIVATED,
    LoggedSlot,
    ReportedLog,
    RowReport,
    check_rows,
    select_rows,
    split_pages,
)
from windvane.service.clock import MICROSECONDS_PER_SECOND
from windvane.service.schemas import Action
from windvane.service.store.decision_queries import (
    DecisionColumns,
    LoggedPage,
    Requests,
    SlotParts,
    count_decisions,
    iterate_batches,
    read_pages,
)
from windvane.service.store.log import LogReader
from windvane.service.store.rows import IMPORTED, decode_action_ids
from windvane.types import Booleans, Places

BYTES_PER_PROBABILITY = 8
FOREIGN = "imported decisions, which the loop has not made, left out"
_decode_context = msgspec.json.Decoder(list[dict[str, Any]]).decode
_decode_actions = msgspec.json.Decoder(list[Action]).decode


class LoggedDecisions(ReportedLog):
    """The decisions of a loop made in [since, until), in microseconds since 1970."""

    has_fitted_probabilities = False
    has_times = True

    def __init__(
        self, log: LogReader, loop_name: str, since: int | None = None, until: int | None = None
    ) -> None:
        loop = log.find_loop(loop_name)
        if loop is None:
            raise SettingError(f"log: there is no loop {loop_name!r}")
        self._log = log
        self._loop = loop.id
        self._since = since
        self._until = until
        self._report = RowReport()  # of the last pass
        self.description = f"the loop {loop_name}"

    def count(self) -> int:
        """How many decisions there are now."""
        return count_decisions(self._log, self._loop, self._since, self._until)

    def iterate_slots(self) -> Iterator[LogBatch]:
        """Read the decisions in the order of time."""
        self._report = RowReport()
        batches = iterate_batches(self._log, self._loop, self._since, self._until)
        for columns, requests in batches:
            batch = _make_batch(columns, requests, self.description)
            is_own = np.array([mode != IMPORTED for mode in columns.mode])
            is_seen = np.array([at is not None for at in columns.activated_at])
            if pages := read_pages(self._log, dict(zip(columns.id, columns.slots, strict=True))):
                found = zip(columns.id, requests.slots, strict=True)
                slots = [_list_slots(pages.get(id_), sent) for id_, sent in found]
                batch, rows = split_pages(batch, slots)
                is_own, is_seen = is_own[rows], is_seen[rows]
            if not (is_seen & is_own).all():
                self._report.note(NEVER_ACTIVATED, int((~is_seen).sum()))
                self._report.note(FOREIGN, int((~is_own).sum()))
                batch = select_rows(batch, np.flatnonzero(is_seen & is_own))
            yield check_rows(batch, self._report)


def _make_batch(columns: DecisionColumns, requests: Requests, source: str) -> LogBatch:
    ids = [decode_action_ids(offer.ids) for offer in requests.offers]
    counts = np.array([len(blob) // BYTES_PER_PROBABILITY for blob in columns.probabilities])
    starts = np.concatenate(([0], np.cumsum(counts)))
    return LogBatch(
        event_ids=columns.event_id,
        times=np.array(columns.at) / MICROSECONDS_PER_SECOND,
        rewards=np.array(columns.reward, float),  # None becomes NaN
        chosen=np.array(columns.chosen, np.int64),
        starts=starts,
        probabilities=np.frombuffer(b"".join(columns.probabilities)),
        is_eligible=_find_eligible(requests, ids, starts),
        multiplicities=np.ones(len(counts)),
        is_defaulted=np.array([kind == "default" for kind in columns.first_kind]),
        is_degraded=np.array(columns.degraded, np.bool_),
        lines=np.array(columns.id, np.int64),
        source=source,
        read_features=_make_feature_reader(requests),
    )


def _list_slots(page: LoggedPage | None, sent: list[SlotParts]) -> list[LoggedSlot]:
    """The slots of a page as rows of a log have them; none of a decision without slots."""
    if page is None:
        return []
    is_slate = page.reward_model == "sum"
    return [
        LoggedSlot(
            slot.id,
            _decode_context(parts.features),
            parts.excluded_actions,
            slot.chosen,
            np.frombuffer(slot.probabilities).tolist(),
            page.reward if is_slate else reward,
            (page.whole if is_slate else lesson).is_default,
            is_slate,
            slot.baseline,
        )
        for slot, parts, reward, lesson in zip(
            page.slots, sent, page.rewards, page.lessons, strict=True
        )
    ]


def _find_eligible(requests: Requests, ids: list[list[str]], starts: Places) -> Booleans:
    """Which actions could be chosen: those that the request does not exclude."""
    is_eligible = np.ones(int(starts[-1]), np.bool_)
    for row, excluded in enumerate(requests.excluded):
        if excluded:
            action_ids = ids[requests.offer_numbers[row]]
            is_eligible[starts[row] : starts[row + 1]] = [id_ not in excluded for id_ in action_ids]
    return is_eligible


def _make_feature_reader(requests: Requests) -> Callable[[int], DecisionFeatures]:
    """Make a function that parses the features of a row; each distinct offer is parsed once."""

    @cache
    def read_actions(number: int) -> list[LoggedAction]:
        offered = _decode_actions(requests.offers[number].actions)
        return [LoggedAction(action.id, action.features) for action in offered]

    def read(row: int) -> DecisionFeatures:
        actions = read_actions(requests.offer_numbers[row])
        return DecisionFeatures(_decode_context(requests.contexts[row]), actions)

    return read
