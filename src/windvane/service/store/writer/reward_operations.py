"""The operation that writes a reward and matches it with its decision.

A batch has the same effect as its operations one by one in the same order.
"""

from collections.abc import Sequence
from itertools import islice
from typing import NamedTuple

from sqlalchemy import bindparam, func, select, tuple_

from windvane.service.store.rows import Lesson, RewardRow
from windvane.service.store.schema import rewards
from windvane.service.store.writer.group_commit import Operation, Phase, Transaction
from windvane.service.store.writer.reward_matching import (
    LESSON_KIND,
    DecisionState,
    LessonDraft,
    RewardTerms,
    read_decision_states,
    write_lessons,
)

MAX_REWARDS_PER_EVENT = 1000  # in the log
REFUSED = "refused"  # status of a reward that the log does not keep, because the event has so many


class PutRewardResult(NamedTuple):
    """The status of the reward, a field of `Funnel` or `REFUSED`, and at most one lesson."""

    status: str
    lessons: tuple[Lesson, ...]


_SELECT_REQUEST_IDS = select(*rewards.c["event_id", "request_id"]).where(
    rewards.c.loop == bindparam("loop"),
    tuple_(rewards.c.event_id, rewards.c.request_id).in_(bindparam("pairs", expanding=True)),
)

_COUNT_REWARDS = (
    select(rewards.c.event_id, func.count())
    .where(
        rewards.c.loop == bindparam("loop"),
        rewards.c.event_id.in_(bindparam("events", expanding=True)),
    )
    .group_by(rewards.c.event_id)
)


class PutReward(Operation[PutRewardResult], frozen=True):
    """Write a reward, and learn it if its decision is in the log and waits for a reward.

    A reward of the same event with the same request id is a repetition by the client, and is
    learned once. An event keeps `MAX_REWARDS_PER_EVENT` rewards. A further one is refused, unless
    it is a repetition or the first that can be learned; a further repetition is only counted.
    """

    phase = Phase.REWARD
    loop: int
    event_id: str
    value: float
    at: int
    terms: RewardTerms
    request_id: str | None = None

    @classmethod
    def run_batch(
        cls, transaction: Transaction, batch: Sequence["PutReward"]
    ) -> Sequence[PutRewardResult]:
        loop = batch[0].loop
        seen = _read_request_ids(transaction, loop, batch)
        states = read_decision_states(transaction, loop, (put.event_id for put in batch))
        matched = [_match(put, seen, states) for put in batch]
        room = _RewardRoom(transaction, loop, batch, matched)
        statuses = []
        rows = []
        drafts = []
        for put, status in zip(batch, matched, strict=True):
            status = room.admit(put, status)
            statuses.append(status)
            if status == REFUSED:
                continue
            transaction.counter_changes[loop, status] += 1
            if not room.take(put, status):
                continue
            request_id = None if status == "duplicate" else put.request_id  # the column is unique
            rows.append((loop, put.event_id, request_id, put.value, put.at, status))
            if status in LESSON_KIND:
                state = states[put.event_id]
                drafts.append(LessonDraft(state, LESSON_KIND[status], put.value, put.at))
        transaction.insert_many("rewards", ("loop", *RewardRow._fields[1:]), rows)
        learned = iter(write_lessons(transaction, loop, drafts))
        return [
            PutRewardResult(status, (next(learned),) if status in LESSON_KIND else ())
            for status in statuses
        ]


def _read_request_ids(
    transaction: Transaction, loop: int, batch: Sequence[PutReward]
) -> set[tuple[str, str | None]]:
    """Read which pairs of event id and request id the log has, of the pairs in a batch."""
    pairs = list({(put.event_id, put.request_id) for put in batch if put.request_id is not None})
    if not pairs:
        return set()
    parameters = {"loop": loop, "pairs": pairs}
    rows = transaction.connection.execute(_SELECT_REQUEST_IDS, parameters)
    return {(row.event_id, row.request_id) for row in rows}


def _match(
    put: PutReward, seen: set[tuple[str, str | None]], states: dict[str, DecisionState]
) -> str:
    """The status of a reward, a field of `Funnel`; `seen` and the state are for the next one."""
    pair = (put.event_id, put.request_id)
    if pair in seen:
        return "duplicate"
    if put.request_id is not None:
        seen.add(pair)
    if put.event_id not in states:
        return "orphan"
    return states[put.event_id].apply_reward(put.at, put.terms)


class _RewardRoom:
    """How many more rewards the log keeps of each event in a batch.

    The first reward that is learned is always kept, so the counts of events that have no other
    reward in the batch are not read.
    """

    def __init__(
        self,
        transaction: Transaction,
        loop: int,
        batch: Sequence[PutReward],
        matched: Sequence[str],
    ) -> None:
        crowded = {
            put.event_id for put, status in zip(batch, matched, strict=True) if status != "learned"
        }
        self._room = dict.fromkeys(crowded, MAX_REWARDS_PER_EVENT)
        self._refused: set[tuple[str, str | None]] = set()
        if crowded:
            parameters = {"loop": loop, "events": list(crowded)}
            for event_id, count in transaction.connection.execute(_COUNT_REWARDS, parameters):
                self._room[event_id] -= count

    def admit(self, put: PutReward, status: str) -> str:
        """The status of a reward, or `REFUSED` if its event has no room for it."""
        pair = (put.event_id, put.request_id)
        if status == "duplicate":
            return REFUSED if pair in self._refused else status
        if status == "learned" or self._room[put.event_id] > 0:
            return status
        self._refused.add(pair)
        return REFUSED

    def take(self, put: PutReward, status: str) -> bool:
        """Take the room of a reward; False if there is none and the repetition is only counted."""
        room = self._room.get(put.event_id)
        if room is not None:
            self._room[put.event_id] = room - 1
        return room is None or room > 0 or status != "duplicate"


REWARDS_PER_STATEMENT = 1000  # databases limit how many values a statement may have


class RewardEntry(NamedTuple):
    """One reward of a batch; a second one of the same event and request id counts once."""

    event_id: str
    value: float
    request_id: str | None = None


class PutRewardsResult(NamedTuple):
    """The status of each reward, as in `PutRewardResult`, and the lessons of all of them."""

    statuses: tuple[str, ...]
    lessons: tuple[Lesson, ...]


class PutRewards(Operation[PutRewardsResult], frozen=True):
    """Write rewards with the same effect as one `PutReward` for each of them, in their order."""

    phase = Phase.REWARD_BATCH
    loop: int
    entries: tuple[RewardEntry, ...]
    at: int
    terms: RewardTerms

    @classmethod
    def run_batch(
        cls, transaction: Transaction, batch: Sequence["PutRewards"]
    ) -> Sequence[PutRewardsResult]:
        puts = [put for operation in batch for put in operation._list_puts()]
        results: list[PutRewardResult] = []
        for first in range(0, len(puts), REWARDS_PER_STATEMENT):
            chunk = puts[first : first + REWARDS_PER_STATEMENT]
            results += PutReward.run_batch(transaction, chunk)
        remaining = iter(results)
        return [_join_results(islice(remaining, len(each.entries))) for each in batch]

    def _list_puts(self) -> list[PutReward]:
        return [
            PutReward(self.loop, event_id, value, self.at, self.terms, request_id)
            for event_id, value, request_id in self.entries
        ]


def _join_results(results: "islice[PutRewardResult]") -> PutRewardsResult:
    rows = list(results)
    lessons = tuple(lesson for row in rows for lesson in row.lessons)
    return PutRewardsResult(tuple(row.status for row in rows), lessons)
