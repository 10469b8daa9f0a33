"""Checkpoints of SQLite's write-ahead log, in a thread beside the writer.

If the writer made the checkpoints, some commits would take tens of milliseconds longer, and all
requests that wait for them too.
"""

import threading

from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

CHECKPOINT_DELAY_SECONDS = 0.1  # after a commit


class CheckpointThread:
    """Copies committed pages from the write-ahead log into the database soon after a commit."""

    def __init__(self, engine: Engine, committed: threading.Event) -> None:
        self._engine = engine
        self._committed = committed
        self._closing = threading.Event()
        self._thread = threading.Thread(
            target=self._checkpoint_after_commits, name="windvane checkpoint", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Stop the thread and wait until it has ended."""
        self._closing.set()
        self._committed.set()
        self._thread.join()

    def _checkpoint_after_commits(self) -> None:
        while self._committed.wait() and not self._closing.wait(CHECKPOINT_DELAY_SECONDS):
            self._committed.clear()
            try:
                with self._engine.connect() as connection:
                    connection.exec_driver_sql("PRAGMA wal_checkpoint(PASSIVE)").all()
            except SQLAlchemyError:  # the writer gets the same error and can report it
                continue
