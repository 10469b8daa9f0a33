"""The log: acknowledged writes are durable, lessons fold to the same bits, queries, backups."""

import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import text

from store_helpers import (
    count_rows,
    create_loop,
    find_snapshot,
    put_decision,
    put_reward,
    put_summed_reward,
)
from windvane.errors import StoreError
from windvane.service.store import decision_queries
from windvane.service.store.database import resolve_url
from windvane.service.store.decision_queries import iterate_batches
from windvane.service.store.files.log_copy import restore_backup, write_backup
from windvane.service.store.files.parquet_export import export_log
from windvane.service.store.files.service_lock import hold_service_lock
from windvane.service.store.files.withdrawal_file import open_withdrawal_file
from windvane.service.store.log import Store, TimeSpan
from windvane.service.store.rows import Lesson
from windvane.service.store.writer.decision_operations import Expire
from windvane.service.store.writer.loop_operations import (
    DeleteLogs,
    ExpireKey,
    PutKey,
    PutSettings,
    PutSnapshot,
)

AFTER_ALL = 2**62  # later than every decision
WRITE_AND_PRINT = """
import sys
from store_helpers import put_decision, put_reward
from windvane.service.store.log import Store

where, name, start = sys.argv[1], sys.argv[2], int(sys.argv[3])
write = sys.stdout.write
store = Store(where)
loop = store.find_loop(name).id
for i in range(start, start + 100_000):
    event = f"e{i}"
    store.write(put_decision(loop, event))
    write(f"rank {event}\\n")
    store.write(put_reward(loop, event))
    write(f"reward {event}\\n")
    sys.stdout.flush()
"""


def write_until_killed(where: str, start: int, lines: int) -> list[tuple[str, str]]:
    """Run a process that writes events, kill it, and return what it acknowledged."""
    paths = os.pathsep.join([str(Path(__file__).parents[2]), *filter(None, sys.path)])
    command = [sys.executable, "-u", "-c", WRITE_AND_PRINT, where, "home", str(start)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": paths}
    ) as child:
        assert child.stdout is not None
        lines_read = [child.stdout.readline() for _ in range(lines)]
        child.send_signal(signal.SIGKILL)
        lines_read += child.stdout.readlines()
    whole = [line.split() for line in lines_read if line.endswith("\n")]
    assert len(whole) >= lines
    return [(kind, event) for kind, event in whole]


def test_acknowledged_writes_survive_a_kill(where: str) -> None:
    with Store(where) as store:
        loop = create_loop(store)
    for kill in range(4 if "://" not in where else 2):
        acknowledged = write_until_killed(where, kill * 1000, lines=3 + 51 * kill)
        with Store(where) as store:
            for kind, event in acknowledged:
                if kind == "rank":
                    assert store.find_decision(loop, event) is not None
                else:
                    assert [one.status for one in store.list_rewards(loop, event)] == ["learned"]
            learned = [lesson.id for batch in store.iterate_lessons(loop) for lesson in batch]
            assert store.read_funnel(loop) == count_rows(store, loop)
            assert len(learned) == store.read_funnel(loop).learned


def test_a_commit_waits_for_the_disk(where: str) -> None:
    with Store(where) as store, store._write_engine.connect() as connection:
        ask, full = (
            ("PRAGMA synchronous", 2) if "://" not in where else ("SHOW synchronous_commit", "on")
        )
        assert connection.exec_driver_sql(ask).scalar() == full


def test_settings_are_changed_and_every_change_is_recorded(store: Store, loop: int) -> None:
    change = store.write(PutSettings(loop, '{"dim": 3}', 5, "alice"))
    first, second = store.list_settings_changes(loop)
    assert (first.settings, first.by, first.lesson) == ("{}", "test", 0)
    assert second == change._replace(previous=0)
    assert change.previous == first.id
    found = store.find_loop("home")
    assert found is not None
    assert store.list_loops() == [found]
    assert (found.id, found.settings, found.created) == (loop, '{"dim": 3}', 0)
    assert store.find_loop("nowhere") is None
    with pytest.raises(StoreError):
        store.write(PutSettings(99, "{}", 5, "bob"))


def test_keys_are_listed_with_their_expiry(store: Store) -> None:
    old = store.write(PutKey("admin", "hash 1", 1))
    new = store.write(PutKey("admin", "hash 2", 2))
    assert store.write(ExpireKey(old.id, 9))
    assert not store.write(ExpireKey(99, 9))
    assert store.list_keys() == [old._replace(expires=9), new]


def fold(belief: float, learned: Iterable[list[Lesson]]) -> float:
    """Fold lessons into a sum whose bits depend on their order."""
    for batch in learned:
        for lesson in batch:
            belief = belief * 0.9 + lesson.value / 3 + lesson.features[-1]
    return belief


def write_events(store: Store, loop: int, events: range) -> None:
    for i in events:
        store.write(put_decision(loop, f"e{i}", at=i))
        if i % 3:
            store.write(put_summed_reward(loop, f"e{i}", i / 7, at=i + 1))
        if i % 4 == 0:
            store.write(put_summed_reward(loop, f"e{i}", i / 11, at=i + 1))
    store.write(Expire(loop, events.stop - 5, 0.125, events.stop, limit=1000))


def test_a_snapshot_and_the_later_lessons_fold_to_the_same_bits(where: str) -> None:
    with Store(where) as store:
        loop = create_loop(store)
        write_events(store, loop, range(30))
        last = [lesson for batch in store.iterate_lessons(loop, batch=4) for lesson in batch][-1].id
        half = fold(0.0, store.iterate_lessons(loop, batch=7))
        store.write(PutSnapshot(loop, last, repr(half).encode(), 1))
        write_events(store, loop, range(30, 60))
    with Store(where) as store:
        kept = find_snapshot(store, loop)
        assert kept is not None
        continued = fold(float(kept.blob), store.iterate_lessons(loop, kept.lesson))
        assert continued == fold(0.0, store.iterate_lessons(loop)) != half


def test_only_the_last_snapshots_are_kept(store: Store) -> None:
    loop, other = create_loop(store), create_loop(store, "other")
    assert find_snapshot(store, loop) is None
    store.write(PutSnapshot(other, 0, b"other", 0))
    for i in range(6):
        store.write(PutSnapshot(loop, 10 - i, b"%d" % i, i))
    assert find_snapshot(store, loop) == (5, b"5", 5)  # the last that was taken
    assert find_snapshot(store, other) == (0, b"other", 0)
    with store._read_engine.connect() as connection:
        assert connection.execute(text("SELECT count(*) FROM snapshots")).scalar() == 4


def test_deleting_logs_does_not_change_the_belief(store: Store) -> None:
    loop, other = create_loop(store), create_loop(store, "other")
    write_events(store, loop, range(40))
    write_events(store, other, range(3))
    store.write(put_reward(loop, "nobody", at=3))
    assert store.write(DeleteLogs(loop, 20)) == 0  # there is no snapshot yet
    learned = [lesson for batch in store.iterate_lessons(loop) for lesson in batch]
    held = fold(0.0, [learned[:-4]])
    store.write(PutSnapshot(loop, 0, b"too old", 1))
    for _ in range(2):
        store.write(PutSnapshot(loop, learned[-5].id, repr(held).encode(), 1))
    before = store.read_funnel(loop)
    while store.write(DeleteLogs(loop, 20, limit=6)):
        pass
    assert store.read_funnel(loop) == before
    assert store.find_decision(loop, "e19") is None
    assert store.find_decision(loop, "e20") is not None
    assert store.list_rewards(loop, "e1") == store.list_rewards(loop, "nobody") == []
    assert store.find_decision(other, "e0") is not None
    while store.write(DeleteLogs(loop, AFTER_ALL, limit=6, include_waiting=True)):
        pass
    assert store.find_time_span(loop) is not None  # the lessons after the snapshot stay
    kept = find_snapshot(store, loop)
    assert kept is not None
    assert fold(float(kept.blob), store.iterate_lessons(loop, kept.lesson)) == fold(0.0, [learned])


def test_ids_increase_even_after_all_rows_were_deleted(where: str) -> None:
    with Store(where) as store:
        loop = create_loop(store)
        write_events(store, loop, range(10))
        (learned,) = store.iterate_lessons(loop)
        store.write(PutSnapshot(loop, learned[-1].id, b"", 1))
        assert store.write(DeleteLogs(loop, AFTER_ALL, include_waiting=True)) == 10
        assert store.find_time_span(loop) is None
        assert store.find_last_round(loop) is None
    with Store(where) as store:
        write_events(store, loop, range(10))
        (again,) = store.iterate_lessons(loop, learned[-1].id)
        assert [lesson[1:] for lesson in again] != []
        assert len(again) == len(learned)


def test_deleting_old_decisions_keeps_those_that_wait(store: Store, loop: int) -> None:
    store.write(put_decision(loop, "waits", at=1))
    assert store.write(DeleteLogs(loop, 10)) == 0
    assert store.write(put_reward(loop, "waits")).status == "learned"


def test_waiting_decisions_are_deleted_on_request(store: Store, loop: int) -> None:
    for event, at in (("early", 9), ("meanwhile", 10)):
        store.write(put_decision(loop, event, at=at))
    assert store.write(DeleteLogs(loop, 10, include_waiting=True)) == 1
    assert store.find_decision(loop, "early") is None
    assert store.write(put_reward(loop, "meanwhile")).status == "learned"


def test_the_log_is_read_by_time_in_batches(
    store: Store, loop: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decision_queries, "BATCH_ROWS", 3)
    for i, at in enumerate([10, 20, 15, 30, 40, 50]):  # the clock was set back
        store.write(put_decision(loop, f"e{i}", at=at))
    store.write(put_summed_reward(loop, "e1", 0.5))
    store.write(put_summed_reward(loop, "e1", 0.25))
    store.write(Expire(loop, 16, -1.0, 60))
    batches = [columns for columns, _ in iterate_batches(store, loop, since=15, until=50)]
    assert [columns.event_id for columns in batches] == [("e2", "e1", "e3"), ("e4",)]
    assert batches[0].at == (15, 20, 30)
    assert batches[0].reward == (-1.0, 0.75, None)
    assert batches[0].first_kind == ("default", "amend", None)
    assert list(iterate_batches(store, loop, since=51)) == []
    assert store.find_time_span(loop) == TimeSpan(10, 50)


def test_a_backup_during_writes_is_consistent(tmp_path: Path) -> None:
    with Store(tmp_path / "data") as store:
        loop = create_loop(store)
        write_events(store, loop, range(200))
        stop = threading.Event()

        def write() -> None:
            for i in range(200, 100_000):
                store.write(put_decision(loop, f"e{i}"))
                store.write(put_reward(loop, f"e{i}"))
                if stop.is_set():
                    return

        thread = threading.Thread(target=write)
        thread.start()
        for i in range(3):
            write_backup(store, tmp_path / f"backup-{i}.db")
        stop.set()
        thread.join()
        total = store.read_funnel(loop).ranked
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        *(f"backup-{i}.db" for i in range(3)),
        "data",
    ]
    restore_backup(tmp_path / "backup-2.db", tmp_path / "again")
    with Store(tmp_path / "again") as copy:
        funnel = copy.read_funnel(loop)
        assert 200 <= funnel.ranked <= total
        assert funnel == count_rows(copy, loop)
        assert copy.write(put_decision(loop, "new")).is_new


def test_a_restore_overwrites_nothing_and_accepts_only_backups(tmp_path: Path) -> None:
    with Store(tmp_path / "data") as store:
        write_backup(store, tmp_path / "backup.db")
    with pytest.raises(StoreError, match="a directory without a log"):
        restore_backup(tmp_path / "backup.db", tmp_path / "data")
    with pytest.raises(StoreError, match="there is no backup"):
        restore_backup(tmp_path / "nothing", tmp_path / "new")
    (tmp_path / "text").write_text("not a database " * 1000)
    with pytest.raises(StoreError, match="text cannot be read as a backup") as refused:
        restore_backup(tmp_path / "text", tmp_path / "new")
    assert refused.value.kind == "broken"
    with closing(sqlite3.connect(tmp_path / "foreign.db")) as foreign:
        foreign.execute("CREATE TABLE things (id INTEGER)")
    with pytest.raises(StoreError, match="not a log of Windvane"):
        restore_backup(tmp_path / "foreign.db", tmp_path / "new")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("write", [write_backup, lambda log, path: export_log(log, "home", path)])
def test_nothing_is_written_onto_a_file_of_a_log(
    tmp_path: Path, write: Callable[[Store, Path], object]
) -> None:
    data, other = tmp_path / "data", tmp_path / "other"
    with Store(other), hold_service_lock(resolve_url(other), 0.0):
        pass
    with Store(data) as store, hold_service_lock(resolve_url(data), 0.0):
        loop = create_loop(store)
        store.write(put_decision(loop, "kept"))
        with closing(open_withdrawal_file(resolve_url(data))):
            names = {path.name for path in data.iterdir()}
        endings = ("", "-wal", "-shm", "-journal", "-progress", "-withdrawals")
        all_names = {"serving.lock", *(f"windvane.db{end}" for end in endings)}
        assert names == all_names - {"windvane.db-journal"}  # SQLite has it only in another mode
        (tmp_path / "alias").symlink_to(data)
        targets = [folder / name for folder in (data, tmp_path / "alias", other) for name in names]
        targets.append(data / "windvane.db-journal")
        for number, name in enumerate(names):
            (tmp_path / f"hard-{number}").hardlink_to(data / name)
            (tmp_path / f"soft-{number}").symlink_to(data / name)
            targets += [tmp_path / f"hard-{number}", tmp_path / f"soft-{number}"]
        before = {path: path.read_bytes() for path in data.iterdir()}
        for target in targets:
            with pytest.raises(StoreError, match="is a file of the log itself"):
                write(store, target)
        assert {path: path.read_bytes() for path in data.iterdir()} == before
        write(store, data / "mine")
    with Store(data) as store:
        assert store.find_decision(loop, "kept") is not None
    for name in names - {"windvane.db"}:
        with pytest.raises(StoreError, match="belongs to a log"):
            resolve_url(f"sqlite:///{data / name}")


def test_a_restore_refuses_side_files_of_a_lost_database(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with Store(data) as store:
        loop = create_loop(store)
        write_backup(store, tmp_path / "backup.db")
        store.write(put_decision(loop, "later"))
        wal = (data / "windvane.db-wal").read_bytes()  # a killed process leaves this file
    (data / "windvane.db").unlink()
    (data / "windvane.db-wal").write_bytes(wal)
    with pytest.raises(StoreError, match=r"windvane\.db-wal exists"):
        restore_backup(tmp_path / "backup.db", data)
    (data / "windvane.db-wal").unlink()
    restore_backup(tmp_path / "backup.db", data)
    with Store(data) as store:
        assert store.find_decision(loop, "later") is None


def test_postgresql_is_backed_up_with_its_own_tools(postgresql: Callable[[], str]) -> None:
    where = postgresql()
    with Store(where) as store, pytest.raises(StoreError, match="pg_dump") as refused:
        write_backup(store, "backup.db")
    assert refused.value.kind == "unsupported"
    with pytest.raises(StoreError, match="pg_restore"):
        restore_backup("backup.db", where)


def test_tables_of_another_program_are_refused(where: str) -> None:
    with Store(where) as store, store._write_engine.begin() as connection:
        connection.execute(text("DROP TABLE windvane_schema"))
    with pytest.raises(StoreError, match="that is not Windvane's") as refused:
        Store(where)
    assert refused.value.kind == "foreign"


@pytest.mark.parametrize(
    ("where", "sentence", "kind"),
    [
        *(
            (url, "store: ", "refused")
            for url in ("mysql://a/b", "sqlite://", "postgresql://a:b/c")
        ),
        ("file", "file is a file; name a directory", "unreachable"),
        ("file/data", "cannot be created", "unreachable"),
    ],
)
def test_a_place_without_room_for_a_log_is_refused_in_one_line(
    where: str, sentence: str, kind: str, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match=sentence) as refused:
        Store(where if "://" in where else tmp_path / where)
    assert (refused.value.kind, str(refused.value).count("\n")) == (kind, 0)
