"""Rounds of servers that share a log: never the same one twice, and taken before they run out."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from store_helpers import create_loop, make_decision
from windvane.errors import StoreError
from windvane.service.sharing.servers import FIRST_BLOCK_ROUNDS, MAX_BLOCK_ROUNDS, RoundSupply
from windvane.service.store.log import Store
from windvane.service.store.writer.decision_operations import PutDecision
from windvane.service.store.writer.reward_operations import RewardTerms
from windvane.service.store.writer.server_operations import ReturnRounds, RoundRange, TakeRounds


def take_from(store: Store, loop: int) -> Callable[[int], Awaitable[RoundRange]]:
    async def take(count: int) -> RoundRange:
        await asyncio.sleep(0)
        return store.write(TakeRounds(loop, count, 0))

    return take


def test_two_servers_never_have_the_same_round(where: str) -> None:
    async def run(store: Store, loop: int) -> list[list[int]]:
        supplies = [RoundSupply(take_from(store, loop)) for _ in range(2)]
        taken = await asyncio.gather(
            *(asyncio.gather(*(supply.take() for _ in range(300))) for supply in supplies)
        )
        return [list(rounds) for rounds in taken]

    with Store(where) as store:
        first, second = asyncio.run(run(store, create_loop(store)))
    assert first == sorted(first)
    assert second == sorted(second)
    assert len({*first, *second}) == 600
    # Blocks double, so that few rounds stay unused after a little traffic.
    assert max(*first, *second) < 600 + 2 * 2 * 512


def test_a_supply_takes_larger_blocks_up_to_a_limit() -> None:
    counts: list[int] = []

    async def take(count: int) -> RoundRange:
        counts.append(count)
        start = sum(counts[:-1])
        return RoundRange(start, start + count)

    async def run() -> list[int]:
        supply = RoundSupply(take)
        rounds = []
        for _ in range(5 * MAX_BLOCK_ROUNDS):
            rounds.append(await supply.take())
            await asyncio.sleep(0)
        return rounds

    assert asyncio.run(run()) == list(range(5 * MAX_BLOCK_ROUNDS))
    assert counts[0] == FIRST_BLOCK_ROUNDS
    assert counts == sorted(counts)
    assert counts[-1] == MAX_BLOCK_ROUNDS


def test_a_block_that_cannot_be_taken_fails_those_who_wait_and_is_tried_again() -> None:
    answers: list[RoundRange | StoreError] = [
        StoreError("store: no", "unreachable"),
        RoundRange(5, 21),
    ]

    async def take(count: int) -> RoundRange:
        answer = answers.pop(0)
        if isinstance(answer, StoreError):
            raise answer
        return answer

    async def run() -> int:
        supply = RoundSupply(take)
        with pytest.raises(StoreError, match="no"):
            await supply.take()
        return await supply.take()

    assert asyncio.run(run()) == 5


def test_rounds_follow_those_of_a_log_that_one_server_wrote(where: str) -> None:
    with Store(where) as store:
        loop = create_loop(store)
        decision = make_decision(loop, "e")._replace(round=41)
        store.write(PutDecision(decision, RewardTerms(1)))
        assert store.write(TakeRounds(loop, 8, 3)) == (42, 50)
        assert store.write(TakeRounds(loop, 8, 3)) == (50, 58)
        assert store.write(TakeRounds(loop, 8, 90)) == (90, 98)


def test_unused_rounds_are_given_back_unless_later_ones_were_taken(where: str) -> None:
    with Store(where) as store:
        loop = create_loop(store)
        first = store.write(TakeRounds(loop, 8, 0))
        store.write(ReturnRounds(loop, 3, first.stop))
        assert store.write(TakeRounds(loop, 8, 0)) == (3, 11)
        store.write(ReturnRounds(loop, 0, first.stop))
        assert store.write(TakeRounds(loop, 8, 0)) == (11, 19)
