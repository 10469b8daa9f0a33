"""Withdrawals: nothing is learned from a decision that the client got a degraded answer for.

A write that timed out, or whose acknowledgement was lost, may be in the log. Before the degraded
answer goes out, the withdrawal is recorded in a file; the record is deleted when the log has the
withdrawal. A start repeats the withdrawals that are left, before anything is served.
"""

import logging
from functools import partial

import msgspec

from windvane.errors import StoreError
from windvane.service.store.database import is_database_failure
from windvane.service.store.files.withdrawal_file import RECORD_BYTES, WithdrawalFile
from windvane.service.store.log import LogReader
from windvane.service.store.rows import (
    DecisionRow,
    SlotChoice,
    decode_action_ids,
    decode_page,
    encode_blob,
    make_certain,
)
from windvane.service.store.writer.decision_operations import Withdraw
from windvane.service.store.writer.reward_operations import RewardTerms
from windvane.service.store.writer.writer_client import WriterClient

NUMBERS_BYTES = 80  # for all but the event id and the actions in a record
REPLAY_TERMS = RewardTerms(wait_us=0)  # nothing is learned, so the wait time does not matter
FINAL_ERRORS = ("refused", "gone")  # a repetition would fail, too
logger = logging.getLogger("windvane.service")


class Withdrawals:
    """The decisions to withdraw, in the file and in memory until the log has the withdrawal."""

    def __init__(self, writer: WriterClient, file: WithdrawalFile) -> None:
        self._writer = writer
        self._file = file
        self._unsent: list[tuple[Withdraw, int]] = []  # with the slot in the file
        self._undecided: dict[int, int] = {}  # times of decisions that are being written
        self._unfinished: dict[int, int] = {}  # times of decisions that are being withdrawn

    def has_room(self) -> bool:
        """Whether one more decision could be withdrawn, if it came to that."""
        return len(self._undecided) < self._file.free_count

    def begin_decision(self, decision: DecisionRow) -> None:
        """Keep room for a decision that is submitted now."""
        self._undecided[id(decision)] = decision.at

    def end_decision(self, decision: DecisionRow) -> None:
        """Give the room back: the decision is in the log, or was recorded, or cannot be there."""
        del self._undecided[id(decision)]

    def bound_expiry(self, before_us: int) -> int:
        """The time, at most `before_us`, before which no decision may still be withdrawn.

        The default reward must not be learned from a later one.
        """
        for times in (self._undecided, self._unfinished):
            before_us = min(before_us, next(iter(times.values()), before_us))
        return before_us

    def add(self, decision: DecisionRow, replacement: DecisionRow, terms: RewardTerms) -> None:
        """Record that a decision is to be withdrawn, then withdraw it as soon as the log works.

        Raises a StoreError if the record cannot be written: then the degraded answer must not go
        out.
        """
        try:
            slot = self._file.add(_make_record(decision, replacement))
        except OSError as error:
            message = f"store: a degraded answer cannot be recorded ({error})"
            self._writer.failures.add(Withdraw.__name__, message)
            raise StoreError(message, "disk") from None
        withdrawal = Withdraw(decision, replacement, terms)
        self._unfinished[id(withdrawal)] = decision.at
        self._unsent.append((withdrawal, slot))
        self.submit()

    def submit(self) -> None:
        """Send all withdrawals that wait to the writer, before anything else is written."""
        while self._unsent:
            withdrawal, slot = self._unsent[-1]
            try:
                self._writer.submit(withdrawal, partial(self._finish, withdrawal, slot))
            except StoreError:
                return
            self._unsent.pop()

    async def replay(self, store: LogReader) -> None:
        """Repeat the withdrawals of the file, which a service left that was killed."""
        for slot, record in list(self._file.records.items()):
            stored = None
            try:
                stored = store.find_decision(record.loop, record.event_id)
            except StoreError as error:  # one that cannot be read is withdrawn as if it were absent
                if is_database_failure(error):
                    raise
            withdrawal = _restore_withdrawal(record, stored)
            try:
                await self._writer.submit(withdrawal)
            except StoreError as error:
                if error.kind not in FINAL_ERRORS:
                    raise
                logger.warning("a withdrawal does not fit the log and is dropped (%s)", error)
            self._file.remove(slot)

    def close(self) -> None:
        """Close the file; what is left in it is withdrawn by the next start."""
        self._file.close()

    def _finish(self, withdrawal: Withdraw, slot: int, result: object) -> None:
        if isinstance(result, StoreError) and result.kind not in FINAL_ERRORS:
            self._unsent.append((withdrawal, slot))
            return
        del self._unfinished[id(withdrawal)]
        self._file.remove(slot)


def _make_record(decision: DecisionRow, replacement: DecisionRow) -> DecisionRow:
    """The part of a replacement that fits into a slot, with fewer action ids if need be."""
    room = RECORD_BYTES - NUMBERS_BYTES - len(decision.event_id.encode())
    actions = replacement.actions
    page = None if replacement.slots is None else decode_page(replacement.slots)
    shown = [replacement.chosen] if page is None else [slot.chosen for slot in page.slots]
    if page is not None:
        short = (SlotChoice(slot.id, k, b"", k) for k, slot in enumerate(page.slots))
        page = page._replace(slots=tuple(short))
        room -= len(encode_blob(page))
    if page is not None or len(actions.encode()) > room:
        ids = decode_action_ids(actions)
        actions = msgspec.json.encode([ids[place] for place in shown]).decode()
    if len(actions.encode()) > room:  # only a repetition of the same request will miss the ids
        actions, page = '[""]', None if page is None else page._replace(slots=())
    return decision._replace(
        degraded=True,
        chosen=replacement.chosen if page is None else 0,
        slots=None if page is None else encode_blob(page),
        features=None,
        probabilities=b"",
        actions=actions,
        request="{}",
        offer=None,
        offer_at=None,
    )


def _restore_withdrawal(record: DecisionRow, stored: DecisionRow | None) -> Withdraw:
    """Make the operation again; the answer of the replacement is the one that the client got."""
    actions, slots = record.actions, record.slots
    if stored is not None and stored.round == record.round:
        actions, slots = stored.actions, stored.slots
    count = len(decode_action_ids(actions))
    chosen = record.chosen if record.chosen < count else 0  # the only id with room
    if slots is not None:
        page = decode_page(slots).degrade(count)
        slots = encode_blob(page)
        chosen = next((slot.chosen for slot in page.slots), 0)
    replacement = record._replace(
        chosen=chosen, actions=actions, probabilities=make_certain(chosen, count), slots=slots
    )
    return Withdraw(replacement, replacement, REPLAY_TERMS)
