"""The files of the log are moved, deleted or replaced under the running service."""

import shutil
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from server_process import Nursery, Server
from shared_log_helpers import BODY
from store_helpers import create_loop, put_decision
from waiting import wait_until
from windvane.errors import StoreError
from windvane.service.store.database import DATABASE_FILE, open_for_writing, resolve_url
from windvane.service.store.files.data_directory import OpenedFiles
from windvane.service.store.log import LogReader, Store
from windvane.service.store.writer.group_commit import QueuedOperation, commit_group
from windvane.service.store.writer.writer_process import begin_checked


def replace(path: Path) -> None:
    shutil.copy(path, path.with_name("copy"))
    path.with_name("copy").replace(path)


LOSSES: dict[str, Callable[[Path], object]] = {
    "deleted": Path.unlink,
    "moved": lambda path: path.rename(path.with_name("elsewhere")),
    "replaced": replace,
}


@pytest.mark.parametrize("suffix", ["", "-wal"])
@pytest.mark.parametrize("loss", LOSSES)
def test_nothing_is_acknowledged_that_nobody_will_read(
    tmp_path: Path, loss: str, suffix: str
) -> None:
    with Store(tmp_path) as store:
        loop = create_loop(store)
    engine = open_for_writing(resolve_url(tmp_path))
    begin = partial(begin_checked, engine, OpenedFiles(engine.url))
    error: list[StoreError | None] = []
    for event in ("before", "after", "again"):
        put = QueuedOperation(put_decision(loop, event), event)
        [outcome] = commit_group(begin, [put])
        error.append(outcome.error)
        if event == "before":
            LOSSES[loss](tmp_path / f"{DATABASE_FILE}{suffix}")
    engine.dispose()
    assert error[0] is None
    for reason in error[1:]:
        assert reason is not None
        assert f"{DATABASE_FILE}{suffix} was deleted, moved or replaced" in str(reason)
        assert reason.kind == "disk"


def test_a_log_that_was_moved_is_noticed_and_goes_on_when_it_is_back(
    nursery: Nursery, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    with Server(nursery, data) as server, closing(server.client()) as client:

        def read_health() -> tuple[str, str]:
            health = client.call("GET", "/healthz").json
            return health["status"], health.get("reason", "")

        assert not client.rank(BODY | {"eventId": "before"}).json["degraded"]
        data.rename(tmp_path / "moved")
        wait_until(lambda: read_health()[0] == "degraded")  # although nobody sends a request
        assert "was deleted, moved or replaced" in read_health()[1]
        assert client.rank(BODY | {"eventId": "lost"}).json["degraded"]
        assert client.reward("before", 1.0).status == 503
        (tmp_path / "moved").rename(data)
        wait_until(lambda: not client.rank(BODY).json["degraded"])
        assert client.reward("before", 1.0).status == 204
        wait_until(lambda: read_health()[0] == "ok")
        with LogReader(data) as log:
            assert log.read_funnel(1).learned == 1
            assert [reward.value for reward in log.list_rewards(1, "before")] == [1.0]


def test_a_file_that_is_lost_during_a_commit_is_noticed_before_the_acknowledgement(
    tmp_path: Path,
) -> None:
    engine = open_for_writing(resolve_url(tmp_path))
    begin = partial(begin_checked, engine, OpenedFiles(engine.url))
    with pytest.raises(StoreError, match="was deleted, moved or replaced"), begin():
        (tmp_path / DATABASE_FILE).unlink()
    engine.dispose()
