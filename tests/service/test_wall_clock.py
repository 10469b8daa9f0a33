"""A real service whose wall clock jumps by a year, forward and back, while it runs."""

import contextlib
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from server_process import Client
from store_helpers import list_decisions
from windvane.service.clock import MICROSECONDS_PER_SECOND, read_wall_us
from windvane.service.store.log import Store

MAIN = [sys.executable, "-c", "from windvane.cli import main; main()"]
LIBRARIES = sorted(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"))
BODY = {"actions": [{"id": name, "features": [{"name": name}]} for name in ("ice", "tea")]}
HOUR = 3600 * MICROSECONDS_PER_SECOND
GUARD_SECONDS = 60.0
SWEEPS_SECONDS = 1.5  # in which decisions are closed and old ones deleted, at the old clock

pytestmark = pytest.mark.skipif(
    not LIBRARIES, reason="apt-get install libfaketime to test with a wall clock that jumps"
)


class Machine:
    """A wall clock that can be set, and the service that runs with it."""

    def __init__(self, folder: Path) -> None:
        self.data = folder / "data"
        self._shift = folder / "shift"
        self.set_clock("+0")
        self._environment = os.environ | {
            "LD_PRELOAD": str(LIBRARIES[0]),
            "FAKETIME_TIMESTAMP_FILE": str(self._shift),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }

    def set_clock(self, shift: str) -> None:
        """Set the wall clock to the true time plus a shift, such as "+365d"."""
        new = self._shift.with_suffix(".new")
        new.write_text(shift)
        new.replace(self._shift)

    @contextlib.contextmanager
    def serve(self) -> Iterator[Client]:
        """Run the service; yields a connection."""
        command = [*MAIN, "serve", "--port", "0", "--data", str(self.data)]
        with subprocess.Popen(
            command, env=self._environment, stderr=subprocess.PIPE, text=True
        ) as process:
            assert process.stderr is not None
            port = 0
            while not port:
                line = process.stderr.readline()
                assert line, "the service ended"
                if match := re.search(r"serving on http://127\.0\.0\.1:(\d+)", line):
                    port = int(match[1])
            try:
                with contextlib.closing(Client(port)) as client:
                    yield client
            finally:
                process.terminate()
                process.communicate(timeout=GUARD_SECONDS)


def wait_for_clock(client: Client, is_right: Callable[[float], bool]) -> str:
    """Wait until health shows a difference of the clocks; returns what it says about it."""
    end = time.monotonic() + GUARD_SECONDS
    while True:
        clock = client.call("GET", "/healthz").json.get("clock")
        if is_right(clock["offsetSeconds"] if clock else 0.0):
            return str(clock["message"]) if clock else ""
        assert time.monotonic() < end, clock
        time.sleep(0.1)


def test_a_wall_clock_that_jumps_deletes_closes_and_silences_nothing(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    year = 365 * 86_400.0
    with machine.serve() as client:
        for event in ("before", "waits"):
            assert client.rank(BODY | {"eventId": event}).status == 201
        machine.set_clock("+365d")
        assert "ahead of service time" in wait_for_clock(client, lambda offset: offset > year - 60)
        metrics = client.call("GET", "/metrics").body.decode()
        [offset] = re.findall(r"^windvane_clock_offset_seconds (\S+)$", metrics, re.MULTILINE)
        assert abs(float(offset) - year) < 60
        assert "365 days ahead" in client.call("GET", "/board/default.json").json["clock"]["answer"]
        time.sleep(SWEEPS_SECONDS)
        assert client.reward("before", 1.0).status == 204
        assert client.rank(BODY | {"eventId": "ahead"}).status == 201
        assert client.reward("ahead", 1.0).status == 204
        machine.set_clock("-365d")
        assert "behind service time" in wait_for_clock(client, lambda offset: offset < 60 - year)
        assert client.rank(BODY | {"eventId": "behind"}).status == 201
        assert client.reward("behind", 1.0).status == 204
        machine.set_clock("+0")
        assert wait_for_clock(client, lambda offset: offset == 0.0) == ""
    machine.set_clock("+365d")
    with machine.serve() as client:
        wait_for_clock(client, lambda offset: offset > year - 60)
        time.sleep(SWEEPS_SECONDS)
        assert client.reward("waits", 1.0).status == 204
    with Store(machine.data) as store:
        loop = store.list_loops()[0].id
        rows = list_decisions(store, loop)
        assert [row.event_id for row in rows] == ["before", "waits", "ahead", "behind"]
        assert all(abs(row.at - read_wall_us()) < HOUR for row in rows)
        funnel = store.read_funnel(loop)
        assert (funnel.learned, funnel.default, funnel.late) == (4, 0, 0)
