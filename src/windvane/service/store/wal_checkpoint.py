"""SQLite's write-ahead log is moved into its database beside the writer, not in the way of it.

Otherwise every so many commits one takes tens of milliseconds longer, and all who wait with it.
"""

import threading

from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

PAUSE = 0.1  # seconds


class Checkpointer:
    """A thread that moves what was committed, soon after; the writer only does what it leaves."""

    def __init__(self, engine: Engine, committed: threading.Event) -> None:
        self._engine = engine
        self._committed = committed
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._work, name="windvane checkpoint", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._closing.set()
        self._committed.set()
        self._thread.join()

    def _work(self) -> None:
        while self._committed.wait() and not self._closing.wait(PAUSE):
            self._committed.clear()
            try:
                with self._engine.connect() as connection:
                    connection.exec_driver_sql("PRAGMA wal_checkpoint(PASSIVE)").all()
            except SQLAlchemyError:  # the writer meets the same trouble, and someone to tell it to
                continue
