"""One service runs on a log; a service that cannot start says which process is in its way."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from windvane.errors import StoreError
from windvane.service.store.database import LOCK_FILE, resolve_url
from windvane.service.store.files.service_lock import hold_service_lock, open_as_service
from windvane.service.store.writer.group_commit import QueuedOperation, commit_group
from windvane.service.store.writer.loop_operations import PutLoop

SERVICE = """
import os, sys, time
from windvane.service.store.database import resolve_url
from windvane.service.store.files.service_lock import hold_service_lock

if os.fork() == 0:  # the writer
    with hold_service_lock(resolve_url(sys.argv[1]), 20.0):
        print(os.getpid(), flush=True)
        time.sleep(600)
time.sleep(600)
"""


def test_a_writer_that_outlives_its_service_is_named_with_the_remedy(tmp_path: Path) -> None:
    url = resolve_url(tmp_path)
    command = [sys.executable, "-c", SERVICE, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        writer = int(process.stdout.readline())
        try:
            with pytest.raises(StoreError) as refused, hold_service_lock(url, 0.0):
                pass
            expected = f"another service runs on {tmp_path}: process {process.pid}, "
            assert expected in str(refused.value)
            assert str(refused.value).endswith("stop it first")
            process.kill()
            process.wait(30)
            with pytest.raises(StoreError) as refused, hold_service_lock(url, 0.0):
                pass
            assert f"process {process.pid} has ended" in str(refused.value)
            assert f"kill -9 {writer}" in str(refused.value)
        finally:
            os.kill(writer, signal.SIGKILL)
    with hold_service_lock(url, 20.0):
        pass


def test_a_lock_that_is_a_directory_is_refused_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / LOCK_FILE).mkdir()
    sentence = f"{LOCK_FILE} cannot be opened for writing .Is a directory."
    with pytest.raises(StoreError, match=sentence), hold_service_lock(resolve_url(tmp_path), 0.0):
        pass


def test_a_directory_that_cannot_be_written_is_refused_in_one_sentence() -> None:
    url = resolve_url("/proc/self")
    with (
        pytest.raises(StoreError, match="needs a directory that it can write"),
        open_as_service(url, 0.0, threading.Event()),
    ):
        pass


def test_a_writer_whose_connection_was_cut_writes_nothing_more(
    postgresql: Callable[[], str],
) -> None:
    import psycopg

    where = postgresql()
    url, lock_is_lost = resolve_url(where), threading.Event()
    with open_as_service(url, 1.0, lock_is_lost) as engine:
        (first,) = commit_group(engine.begin, [QueuedOperation(PutLoop("a", "{}", 0, "test"), 1)])
        assert first.error is None
        with pytest.raises(StoreError) as refused, hold_service_lock(url, 0.0):
            pass
        assert f"windvane writer process {os.getpid()} on" in str(refused.value)
        assert "pg_terminate_backend(" in str(refused.value)
        with psycopg.connect(where, autocommit=True) as other:
            other.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        with open_as_service(url, 20.0, threading.Event()) as successor:
            for name in ("b", "c"):
                put = QueuedOperation(PutLoop(name, "{}", 0, "test"), 1)
                (outcome,) = commit_group(engine.begin, [put])
                assert outcome.error is not None
                assert outcome.error.kind == "unreachable"
                assert lock_is_lost.is_set()
            (second,) = commit_group(
                successor.begin, [QueuedOperation(PutLoop("d", "{}", 0, "t"), 1)]
            )
            assert second.error is None
