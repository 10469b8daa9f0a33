"""The operation that writes many rewards of one loop in one commit."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import ClassVar, NamedTuple

from windvane.service.store.group_commit import BatchKey, Operation, Phase, Transaction
from windvane.service.store.reward_matching import RewardTerms
from windvane.service.store.reward_operations import PutReward, PutRewardResult
from windvane.service.store.rows import Lesson

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


@dataclass(frozen=True, slots=True)
class PutRewards(Operation[PutRewardsResult]):
    """Write rewards with the same effect as one `PutReward` for each of them, in their order."""

    result: ClassVar[type] = PutRewardsResult

    loop: int
    entries: tuple[RewardEntry, ...]
    at: int
    terms: RewardTerms

    @property
    def batch_key(self) -> BatchKey:
        return BatchKey(Phase.REWARD_BATCH, self.loop)

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
