"""Messages on stderr: bounded lines, few alike ones, and never a wait for the reader."""

import logging
import os
import time
from collections.abc import Iterator

import msgspec
import pytest

from windvane.service import json_logging
from windvane.service.json_logging import (
    ALIKE_INTERVAL_SECONDS,
    MAX_ALIKE_MESSAGES,
    MAX_WAITING_LINES,
    JsonFormatter,
    RepetitionFilter,
    StderrHandler,
)

PIPE_BYTES = 4096
DEADLINE_SECONDS = 60.0


def make_record(message: str = "a request failed", **facts: object) -> logging.LogRecord:
    record = logging.LogRecord("windvane.service", logging.WARNING, "", 0, message, (), None)
    record.facts = facts
    return record


@pytest.fixture
def pipe(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[int, int]]:
    """The two ends of a small pipe, and counters of dropped messages that start at zero."""
    fcntl = pytest.importorskip("fcntl", reason="pipes of a chosen size need Linux")
    counts = json_logging.dropped_messages.__class__(blocked=0, repeated=0)
    monkeypatch.setattr(json_logging, "dropped_messages", counts)
    reading, writing = os.pipe()
    fcntl.fcntl(writing, 1031, PIPE_BYTES)  # F_SETPIPE_SZ
    yield reading, writing
    os.close(reading)


@pytest.mark.parametrize(
    "text", ["x" * 100_000, "\0" * 100_000, "é" * 100_000, "\U0001f600" * 100_000]
)
def test_a_line_is_bounded(text: str) -> None:
    record = make_record(text, path=text, reason=text)
    try:
        raise ValueError(text)
    except ValueError as reason:
        record.exc_info = (ValueError, reason, reason.__traceback__)
    line = JsonFormatter().format(record)
    assert len(line.encode()) < 12_000
    assert "\n" not in line
    assert set(msgspec.json.decode(line)) >= {"time", "level", "message", "path", "trace"}


def test_a_short_text_is_written_whole() -> None:
    line = msgspec.json.decode(JsonFormatter().format(make_record(path="/é" * 300, status=403)))
    assert line["path"] == "/é" * 300
    assert line["status"] == 403


def test_no_line_holds_a_password() -> None:
    record = make_record("postgresql://me:hidden@db", reason="password=hidden host=db")
    line = JsonFormatter().format(record)
    assert "hidden" not in line
    assert "me:***@db" in line


def test_a_few_alike_messages_of_an_interval_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = json_logging.dropped_messages.__class__(blocked=0, repeated=0)
    monkeypatch.setattr(json_logging, "dropped_messages", counts)
    now = 0.0
    repetitions = RepetitionFilter(lambda: now)
    passed = [repetitions.filter(make_record(status=403, path=f"/{k}")) for k in range(200)]
    assert passed == [True] * MAX_ALIKE_MESSAGES + [False] * (200 - MAX_ALIKE_MESSAGES)
    assert counts["repeated"] == 200 - MAX_ALIKE_MESSAGES
    assert repetitions.filter(make_record(status=503))
    assert repetitions.filter(make_record("rank degraded"))
    now = ALIKE_INTERVAL_SECONDS
    assert repetitions.filter(make_record(status=403))


def test_a_reader_that_does_not_read_stops_nobody_and_learns_what_is_missing(
    pipe: tuple[int, int],
) -> None:
    reading, writing = pipe
    handler = StderrHandler(writing)
    sent = MAX_WAITING_LINES + 500
    for number in range(sent):
        handler.emit(make_record(number=number))  # returns, although nobody reads
    dropped = json_logging.dropped_messages["blocked"]
    assert 0 < dropped <= 500
    text = b""
    end = time.monotonic() + DEADLINE_SECONDS
    while b"messages were dropped" not in text or text.count(b"\n") < sent - dropped + 1:
        text += os.read(reading, 1 << 16)
        assert time.monotonic() < end
    lines = [msgspec.json.decode(line) for line in text.splitlines()]
    numbers = [line["number"] for line in lines if "number" in line]
    assert numbers == sorted(numbers)
    assert len(numbers) == sent - dropped
    reports = [line["dropped"]["blocked"] for line in lines if "dropped" in line]
    assert sum(reports) == dropped


def test_a_closed_stderr_is_survived(pipe: tuple[int, int]) -> None:
    _, writing = pipe
    os.close(writing)
    writer = StderrHandler(writing)
    writer.write("nobody reads this")
    writer.flush()
    assert json_logging.dropped_messages["blocked"] == 1
