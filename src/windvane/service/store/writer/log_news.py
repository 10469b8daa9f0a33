"""News of the log: how far it has got, for the servers that share it on PostgreSQL."""

import logging
import os
import select
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from sqlalchemy import URL

from windvane.service.store.database import make_engine
from windvane.service.store.rows import SettingsChange
from windvane.service.store.writer.group_commit import QueuedOperation, WriteOutcome

POSTGRESQL_CHANNEL = "windvane"
RECONNECT_SECONDS = 0.5
WAIT_SECONDS = 5.0  # between two looks whether the thread shall end
logger = logging.getLogger("windvane.service")


class LogNews(NamedTuple):
    """The log of a loop has got to this lesson and this change of settings (ids)."""

    loop: int
    lesson: int  # 0: no lesson was written
    change: int  # 0: no change of settings was written


def collect_news(
    group: Sequence[QueuedOperation], outcomes: Sequence[WriteOutcome]
) -> list[LogNews]:
    """List how far a group has brought the log of each loop."""
    loops = {queued.ticket: queued.operation.loop_id for queued in group}
    lessons: dict[int, int] = {}
    changes: dict[int, int] = {}
    for ticket, result, error in outcomes:
        loop = loops.get(ticket)
        if error is not None or loop is None:
            continue
        if written := getattr(result, "lessons", ()):
            newest = max(lesson.id for lesson in written)
            lessons[loop] = max(newest, lessons.get(loop, 0))
        elif isinstance(result, SettingsChange):
            changes[loop] = result.id
    return [
        LogNews(loop, lessons.get(loop, 0), changes.get(loop, 0))
        for loop in sorted(lessons.keys() | changes.keys())
    ]


class NotificationThread:
    """Sends and receives notifications of PostgreSQL, on a connection of its own.

    `on_news` is called in this thread with what another server has written.
    """

    def __init__(self, url: URL, on_news: Callable[[LogNews], None]) -> None:
        self._engine = make_engine(url, writes=False, application_name="windvane notifications")
        self._on_news = on_news
        self._unsent: dict[int, LogNews] = {}  # by loop, the newest
        self._lock = threading.Lock()
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_write, False)  # a full pipe has woken the thread often enough
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="notifications", daemon=True)
        self._thread.start()

    def announce(self, news: Sequence[LogNews]) -> None:
        """Notify the other servers soon; never waits."""
        with self._lock:
            for each in news:
                before = self._unsent.get(each.loop, each)
                self._unsent[each.loop] = LogNews(*map(max, before, each))
        with suppress(BlockingIOError):
            os.write(self._wake_write, b".")

    def close(self) -> None:
        """End the thread and its connection."""
        self._closing.set()
        os.write(self._wake_write, b".")
        self._thread.join(WAIT_SECONDS)
        self._engine.dispose()

    def _run(self) -> None:
        while not self._closing.is_set():
            try:
                self._exchange()
            except Exception as error:
                logger.warning("notifications between servers are interrupted (%s)", error)
                self._closing.wait(RECONNECT_SECONDS)

    def _exchange(self) -> None:
        """Send and receive until the connection breaks or the thread ends."""
        pooled = self._engine.raw_connection()
        connection: Any = pooled.driver_connection
        pooled.detach()  # the pool would give it to others
        try:
            connection.add_notify_handler(
                lambda news: self._parse(connection, news.pid, news.payload)
            )
            connection.execute(f"LISTEN {POSTGRESQL_CHANNEL}")
            while not self._closing.is_set():
                ready, _, _ = select.select([connection, self._wake_read], [], [], WAIT_SECONDS)
                if self._wake_read in ready:
                    os.read(self._wake_read, 4096)
                with self._lock:
                    unsent, self._unsent = self._unsent, {}
                for news in unsent.values():
                    payload = f"{news.loop} {news.lesson} {news.change}"
                    connection.execute("SELECT pg_notify(%s, %s)", (POSTGRESQL_CHANNEL, payload))
                if connection in ready:
                    self._read_waiting(connection)
        finally:
            connection.close()

    def _read_waiting(self, connection: Any) -> None:
        connection.pgconn.consume_input()
        while (notification := connection.pgconn.notifies()) is not None:
            self._parse(connection, notification.be_pid, notification.extra.decode())

    def _parse(self, connection: Any, sender: int, payload: str) -> None:
        if sender == connection.info.backend_pid:
            return
        with suppress(ValueError):  # another program uses the channel
            loop, lesson, change = map(int, payload.split())
            self._on_news(LogNews(loop, lesson, change))
