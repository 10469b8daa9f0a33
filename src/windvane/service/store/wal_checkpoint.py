"""Checkpoints of SQLite's write-ahead log, in a thread beside the writer.

The thread also saves how far the log has got, now and then (log_progress.py).

If the writer made the checkpoints, some commits would take tens of milliseconds longer, and all
requests that wait for them too.
"""

import threading
import time

from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from windvane.service.store.log_progress import save_progress

CHECKPOINT_DELAY_SECONDS = 0.1  # after a commit
PROGRESS_INTERVAL_SECONDS = 10.0  # between two saves of the progress


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
        """Stop the thread, wait until it has ended, and save the progress."""
        self._closing.set()
        self._committed.set()
        self._thread.join()
        save_progress(self._engine)

    def _checkpoint_after_commits(self) -> None:
        saved_at = time.monotonic()
        while self._committed.wait() and not self._closing.wait(CHECKPOINT_DELAY_SECONDS):
            self._committed.clear()
            try:
                with self._engine.connect() as connection:
                    connection.exec_driver_sql("PRAGMA wal_checkpoint(PASSIVE)").all()
            except SQLAlchemyError:  # the writer gets the same error and can report it
                continue
            if time.monotonic() - saved_at >= PROGRESS_INTERVAL_SECONDS:
                save_progress(self._engine)
                saved_at = time.monotonic()
