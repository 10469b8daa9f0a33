"""A loop that is restored from the log: it has all of the log, or it stays as it was."""

from pathlib import Path

import pytest

from policy_access import read_bits
from store_helpers import create_loop, put_decision, put_reward
from windvane.errors import StoreError
from windvane.service.loops.loop import Loop
from windvane.service.store.log import Store


@pytest.mark.parametrize("failing", ["iterate_lessons", "find_last_round", "list_snapshots"])
def test_a_log_that_cannot_be_read_leaves_the_loop_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    def fail(*_: object) -> None:
        raise StoreError("store: the database is locked", "locked")

    with Store(tmp_path) as store:
        number = create_loop(store)
        for event in ("a", "b"):
            store.submit(put_decision(number, event)).result(20)
            store.submit(put_reward(number, event)).result(20)
        row = store.find_loop("home")
        assert row is not None
        loop = Loop(row, store)
        loop.model.round = 500
        belief, last_lesson = read_bits(loop), loop.last_lesson
        loop.must_restore = True
        with monkeypatch.context() as patch:
            patch.setattr(store, failing, fail)
            with pytest.raises(StoreError):
                loop.restore()
        assert loop.model.round == 500
        assert read_bits(loop) == belief
        assert (loop.last_lesson, loop.must_restore) == (last_lesson, True)
        loop.restore()
        assert loop.model.round == 500
        assert read_bits(loop) == belief
        assert not loop.must_restore
