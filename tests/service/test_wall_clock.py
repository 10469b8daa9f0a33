"""A real service whose wall clock jumps by a year, forward and back, while it runs."""

import contextlib
import re
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from server_process import Client, run_serve
from store_helpers import list_decisions
from waiting import wait_until
from windvane.service.clock import MICROSECONDS_PER_SECOND, read_wall_us
from windvane.service.store.log import Store

LIBRARIES = sorted(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"))
BODY = {"actions": [{"id": name, "features": [{"name": name}]} for name in ("ice", "tea")]}
HOUR = 3600 * MICROSECONDS_PER_SECOND
GUARD_SECONDS = 60.0
SHORT = "/loops/short"  # the path of a loop whose decisions are closed after a second

pytestmark = pytest.mark.skipif(
    not LIBRARIES, reason="apt-get install libfaketime to test with a wall clock that jumps"
)


class Machine:
    """A wall clock that can be set, and the service that runs with it."""

    def __init__(self, folder: Path) -> None:
        self.data = folder / "data"
        self._shift = folder / "shift"
        self.set_clock("+0")
        self._environment = {
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
        with run_serve(self.data, environment=self._environment) as server:
            with contextlib.closing(Client(server.port)) as client:
                yield client
            server.stop()


def wait_for_clock(client: Client, is_right: Callable[[float], bool]) -> str:
    """Wait until health shows a difference of the clocks; returns what it says about it."""

    def read_clock() -> Any:
        return client.call("GET", "/healthz").json.get("clock") or {"offsetSeconds": 0.0}

    wait_until(lambda: is_right(read_clock()["offsetSeconds"]))
    return str(read_clock().get("message", ""))


def decide(client: Client, name: str, loop: str = "") -> str:
    """Rank until an answer is not degraded, as it can be on a busy machine; returns its event."""
    end = time.monotonic() + GUARD_SECONDS
    for attempt in count():
        event = f"{name}-{attempt}"
        answer = client.rank(BODY | {"eventId": event}, loop)
        assert answer.status == 201
        if not answer.json["degraded"]:
            return event
        assert time.monotonic() < end, answer.json
    raise AssertionError


def reward(client: Client, event: str) -> None:
    """Send a reward until the log has it; only the first one counts."""
    wait_until(lambda: client.reward(event, 1.0).status == 204)


def wait_for_sweep(client: Client, name: str) -> None:
    """Wait until a new decision of the short loop was closed, and all that is due with it."""
    event = decide(client, name, SHORT)

    def is_closed() -> bool:
        page = client.call("GET", f"{SHORT}/personalizer/v1.0/decisions?limit=1000").json
        [decision] = [each for each in page["decisions"] if each["eventId"] == event]
        return bool(decision["isDefaultReward"])

    wait_until(is_closed)


def test_a_wall_clock_that_jumps_deletes_closes_and_silences_nothing(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    year = 365 * 86_400.0
    with machine.serve() as client:
        settings = {"name": "short", "settings": {"rewardWaitTime": "PT1S"}}
        assert client.call("POST", "/loops", settings).status == 201
        before, waits = decide(client, "before"), decide(client, "waits")
        machine.set_clock("+365d")
        assert "ahead of service time" in wait_for_clock(client, lambda offset: offset > year - 60)
        metrics = client.call("GET", "/metrics").body.decode()
        [offset] = re.findall(r"^windvane_clock_offset_seconds (\S+)$", metrics, re.MULTILINE)
        assert abs(float(offset) - year) < 60
        assert "365 days ahead" in client.call("GET", "/board/default.json").json["clock"]["answer"]
        wait_for_sweep(client, "ahead")
        reward(client, before)
        ahead = decide(client, "ahead")
        reward(client, ahead)
        machine.set_clock("-365d")
        assert "behind service time" in wait_for_clock(client, lambda offset: offset < 60 - year)
        behind = decide(client, "behind")
        reward(client, behind)
        machine.set_clock("+0")
        assert wait_for_clock(client, lambda offset: offset == 0.0) == ""
    machine.set_clock("+365d")
    with machine.serve() as client:
        wait_for_clock(client, lambda offset: offset > year - 60)
        wait_for_sweep(client, "restarted")
        reward(client, waits)
    with Store(machine.data) as store:
        loop = next(loop.id for loop in store.list_loops() if loop.name == "default")
        rows = list_decisions(store, loop)
        decided = [row.event_id for row in rows if not row.degraded]
        assert decided == [before, waits, ahead, behind]
        assert all(abs(row.at - read_wall_us()) < HOUR for row in rows)
        funnel = store.read_funnel(loop)
        assert (funnel.learned, funnel.default, funnel.late) == (4, 0, 0)
