"""Warnings and errors as one line of JSON each on stderr; no line holds a body or a key.

Logging never blocks a request: a thread writes the lines, and lines that do not fit into its queue
are dropped. Alike messages are written a few times in an interval and then only counted. Dropped
messages are counted by cause in `dropped_messages` and reported on stderr by one later line.
"""

import collections
import logging
import os
import queue
import re
import sys
import threading
import time
from collections.abc import Callable, Hashable

import msgspec

MAX_TEXT_BYTES = 1000  # of one value in a line
MAX_TRACE_BYTES = 8000
MAX_BYTES_PER_CHARACTER = 6  # in JSON: \u0000
MAX_WAITING_LINES = 1000
MAX_ALIKE_MESSAGES = 20  # in each interval
ALIKE_INTERVAL_SECONDS = 10.0
REPORT_INTERVAL_SECONDS = 1.0  # between two lines on dropped messages
FLUSH_SECONDS = 1.0  # longest wait for the last lines at the end of the process
BLOCKED = "blocked"  # nobody reads stderr fast enough, or stderr is closed
REPEATED = "repeated"  # alike messages were written just before

dropped_messages: collections.Counter[str] = collections.Counter({BLOCKED: 0, REPEATED: 0})

_IN_URL = re.compile(r"(://[^\s:/@]*:)\S*@")  # scheme://user:PASSWORD@host
_IN_OPTION = re.compile(r"(\bpassword\s*=\s*)('[^']*'|[^\s'&]+)", re.IGNORECASE)


def hide_passwords(text: str) -> str:
    """Replace every password of a database URL or a connection string by `***`.

    >>> hide_passwords("cannot connect to postgresql://me:secret@db.example/log")
    'cannot connect to postgresql://me:***@db.example/log'
    """
    return _IN_OPTION.sub(r"\1***", _IN_URL.sub(r"\1***@", text))


class JsonFormatter(logging.Formatter):
    """A record as one line: time, level, logger, message, and the items of `facts` in `extra`.

    Long texts are cut, and passwords are cut out.
    """

    def format(self, record: logging.LogRecord) -> str:
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line: dict[str, object] = {
            "time": f"{moment}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _shorten(hide_passwords(record.getMessage()), MAX_TEXT_BYTES),
        }
        for name, value in getattr(record, "facts", {}).items():
            is_text = isinstance(value, str)
            line[name] = _shorten(hide_passwords(value), MAX_TEXT_BYTES) if is_text else value
        if record.exc_info:
            trace = hide_passwords(self.formatException(record.exc_info))
            line["trace"] = _shorten(trace, MAX_TRACE_BYTES, keep_end=True)
        return msgspec.json.encode(line, enc_hook=str).decode()


def _shorten(text: str, max_bytes: int, keep_end: bool = False) -> str:
    """Cut a text so that its JSON has at most so many bytes; the end of a trace names the error."""
    if len(text) * MAX_BYTES_PER_CHARACTER <= max_bytes or (
        len(text) <= max_bytes
        and len(msgspec.json.encode(text.encode("utf-8", "replace").decode())) <= max_bytes
    ):
        return text
    length = max_bytes // MAX_BYTES_PER_CHARACTER
    return f"[...] {text[-length:]}" if keep_end else f"{text[:length]} [...]"


class StderrHandler(logging.Handler):
    """Writes lines to stderr in a thread of its own; a line that does not fit is dropped."""

    def __init__(self, file_descriptor: int) -> None:
        super().__init__()
        self.setFormatter(JsonFormatter())
        self._file_descriptor = file_descriptor
        self._lines: queue.Queue[str] = queue.Queue(MAX_WAITING_LINES)
        self._reported = dropped_messages.copy()
        self._reported_at = time.monotonic()
        threading.Thread(target=self._run, name="stderr", daemon=True).start()

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self.write(self.format(record))
        except Exception:  # a message that cannot be formatted must not fail a request
            dropped_messages[BLOCKED] += 1

    def write(self, line: str) -> None:
        """Write a line soon; never waits."""
        try:
            self._lines.put_nowait(line)
        except queue.Full:
            dropped_messages[BLOCKED] += 1

    def flush(self) -> None:
        """Wait until all lines are written, but not long."""
        lines = self._lines
        with lines.all_tasks_done:
            lines.all_tasks_done.wait_for(lambda: not lines.unfinished_tasks, FLUSH_SECONDS)

    def _run(self) -> None:
        while True:
            try:
                line = self._lines.get(timeout=REPORT_INTERVAL_SECONDS)
            except queue.Empty:
                self._report_dropped()
                continue
            self._write_now(line)
            self._report_dropped()
            self._lines.task_done()

    def _write_now(self, line: str) -> None:
        data = f"{line}\n".encode("utf-8", "backslashreplace")
        try:
            while data:
                data = data[os.write(self._file_descriptor, data) :]
        except OSError:
            dropped_messages[BLOCKED] += 1

    def _report_dropped(self) -> None:
        """Report how many messages were dropped since the last report."""
        counts = dropped_messages - self._reported
        if counts and time.monotonic() - self._reported_at >= REPORT_INTERVAL_SECONDS:
            self._reported_at = time.monotonic()
            self._reported.update(counts)
            record = logging.LogRecord(
                __name__, logging.WARNING, "", 0, "messages were dropped", (), None
            )
            record.facts = {"dropped": dict(counts)}
            self._write_now(self.format(record))


class RepetitionFilter(logging.Filter):
    """Lets a few alike messages of an interval pass.

    Alike are messages of one template and, if they tell of requests, of one status.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._interval_start = clock()
        self._counts: collections.Counter[Hashable] = collections.Counter()
        self._lock = threading.Lock()

    def filter(self, record: logging.LogRecord) -> bool:
        kind = (record.name, record.msg, getattr(record, "facts", {}).get("status"))
        with self._lock:
            if self._clock() - self._interval_start >= ALIKE_INTERVAL_SECONDS:
                self._interval_start = self._clock()
                self._counts.clear()
            self._counts[kind] += 1
            if self._counts[kind] <= MAX_ALIKE_MESSAGES:
                return True
            dropped_messages[REPEATED] += 1
            return False


def log_to_stderr() -> StderrHandler:
    """Send warnings and errors of this process to stderr, and return what writes them."""
    is_closed = sys.stderr is None
    handler = StderrHandler(os.open(os.devnull, os.O_WRONLY) if is_closed else sys.stderr.fileno())
    handler.addFilter(RepetitionFilter())
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.WARNING)
    logging.captureWarnings(True)  # Python would write them to stderr itself, and wait
    # The service logs the same failures with more facts.
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
    return handler
