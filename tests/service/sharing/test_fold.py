"""Loops of two servers on one log: each hears only of its own writes, and both learn the same."""

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest

from policy_access import read_bits
from service_helpers import OFFER
from store_helpers import create_loop, put_decision, put_reward
from windvane.errors import StoreError
from windvane.service.loops.loop import Loop
from windvane.service.loops.settings import LoopSettings
from windvane.service.schemas import RankOptions
from windvane.service.sharing.fold import teach
from windvane.service.store.log import Store
from windvane.service.store.rows import LoopRow
from windvane.service.store.writer.decision_operations import PutDecision
from windvane.service.store.writer.log_news import LogNews
from windvane.service.store.writer.loop_operations import (
    DeleteLogs,
    PutLoop,
    PutSettings,
    PutSnapshot,
)
from windvane.service.store.writer.reward_operations import PutReward

HALF_LIVES = ("auto", "2 days", "3 hours", "never")


def fold(row: LoopRow, store: Store) -> dict[str, bytes]:
    """The belief of a loop that has just read the whole log."""
    return read_bits(Loop(row, store))


class Duo:
    """Two loops of one row, as two servers have them."""

    def __init__(self, store: Store) -> None:
        self.store = store
        put = PutLoop("home", LoopSettings().to_json(), 0, "test")
        self.row = store.write(put)
        self.loops = [Loop(self.row, store) for _ in range(2)]
        self.round = 0

    def write(self, loop: Loop, operation: Any) -> None:
        """Write for one server; only that server hears the result."""
        teach(loop, self.store.write(operation))

    def rank(self, loop: Loop, event: str) -> None:
        self.round += 1
        request = RankOptions(context_features=[{"hour": self.round % 7}], event_id=event)
        decision = loop.decide(request, OFFER, round_=self.round)
        self.write(loop, PutDecision(decision, loop.terms))

    def reward(self, loop: Loop, event: str, value: float) -> None:
        at = loop.clock.now_us()
        self.write(loop, PutReward(loop.id, event, value, at, loop.terms))


async def wait(loops: list[Loop]) -> None:
    for loop in loops:
        await loop.work.wait()


def test_each_server_reads_what_it_has_missed_before_it_learns(where: str) -> None:
    draw = random.Random(5)

    async def play(duo: Duo) -> None:
        waiting: list[str] = []
        for number in range(160):
            loop = draw.choice(duo.loops)
            kind = draw.random()
            if kind < 0.05:
                half_life = draw.choice(HALF_LIVES)
                changed = loop.settings.merge({"halfLife": half_life}).to_json()
                duo.write(loop, PutSettings(loop.id, changed, loop.clock.now_us(), "test"))
            elif kind < 0.5 or not waiting:
                duo.rank(loop, f"e{number}")
                waiting.append(f"e{number}")
            else:
                duo.reward(loop, waiting.pop(draw.randrange(len(waiting))), draw.random())
            await wait(duo.loops)
        position = duo.store.read_positions(duo.row.id)[duo.row.id]
        for loop in duo.loops:
            teach(loop, LogNews(loop.id, position.lesson, position.change))
        await wait(duo.loops)

    with Store(where) as store:
        duo = Duo(store)
        asyncio.run(play(duo))
        first, second = map(read_bits, duo.loops)
        assert first == second == fold(duo.row, store)
        assert duo.loops[0].last_change == duo.loops[1].last_change
        assert duo.loops[0].settings == duo.loops[1].settings
        assert duo.loops[0].model.observation_count > 40


def test_a_server_whose_missing_lessons_were_deleted_loads_a_snapshot(where: str) -> None:
    async def play(duo: Duo) -> None:
        here, away = duo.loops
        for number in range(6):
            duo.rank(here, f"e{number}")
            duo.reward(here, f"e{number}", number / 6)
        for _ in range(2):
            snapshot = PutSnapshot(here.id, here.last_lesson, here.encode_snapshot(), number)
            duo.store.write(snapshot)
        later = here.clock.now_us() + 1
        assert duo.store.write(DeleteLogs(here.id, later, include_waiting=True)) == 6
        duo.rank(here, "last")
        duo.reward(away, "last", 1.0)
        await wait(duo.loops)
        teach(here, LogNews(here.id, away.last_lesson, away.last_change))
        await wait(duo.loops)

    with Store(where) as store:
        duo = Duo(store)
        asyncio.run(play(duo))
        first, second = map(read_bits, duo.loops)
        assert first == second == fold(duo.row, store)
        assert duo.loops[1].model.observation_count == 7


@pytest.mark.parametrize("failing", ["iterate_lessons", "find_last_round", "list_snapshots"])
def test_a_log_that_cannot_be_read_leaves_the_loop_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    def fail(*_: object) -> None:
        raise StoreError("store: the database is locked", "locked")

    with Store(tmp_path) as store:
        number = create_loop(store)
        for event in ("a", "b"):
            store.write(put_decision(number, event))
            store.write(put_reward(number, event))
        row = store.find_loop("home")
        assert row is not None
        loop = Loop(row, store)
        loop.model.learner.round = 500
        belief, last_lesson = read_bits(loop), loop.last_lesson
        loop.must_restore = True
        with monkeypatch.context() as patch:
            patch.setattr(store, failing, fail)
            with pytest.raises(StoreError):
                loop.restore()
        assert loop.model.learner.round == 500
        assert read_bits(loop) == belief
        assert (loop.last_lesson, loop.must_restore) == (last_lesson, True)
        loop.restore()
        assert loop.model.learner.round == 500
        assert read_bits(loop) == belief
        assert not loop.must_restore
