"""Servers on one database, and a machine whose clock is an hour ahead: it closes nothing early."""

import asyncio
import re
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from clock_helpers import DAY, MINUTE, SECOND, FakeMachine
from faults.jumping_clocks import find_clock_obstacle, make_environment, set_clock
from server_process import BASE, Client, Nursery, Server
from service_helpers import OFFER, make_service
from shared_log_helpers import BODY
from waiting import wait_until
from windvane.service.clock import read_wall_us
from windvane.service.loops.loop import PostponedDeletion
from windvane.service.loops.maintenance import delete_old_decisions, start_sweeps
from windvane.service.loops.settings import LoopSettings
from windvane.service.schemas import RankOptions
from windvane.service.sharing.servers import LogSharing
from windvane.service.store.log import LogReader, Store
from windvane.service.store.schema import decisions
from windvane.service.store.writer.server_operations import HeartbeatResult

AHEAD_SECONDS = 3600
EVENTS = [f"e{number}" for number in range(20)]


@pytest.fixture
def skewed(tmp_path: Path) -> Iterator[Nursery]:
    """A machine whose clock is an hour ahead."""
    if obstacle := find_clock_obstacle():
        pytest.skip(obstacle)
    set_clock(tmp_path / "clock", AHEAD_SECONDS)
    nursery = Nursery(make_environment(tmp_path / "clock"))
    yield nursery
    nursery.close()


def read_skew(client: Client) -> float:
    return float(client.call("GET", "/healthz").json["sharing"]["clockSkewSeconds"])


def read_skew_metric(client: Client) -> float:
    metrics = client.call("GET", "/metrics").body.decode()
    [skew] = re.findall(r"^windvane_clock_skew_seconds (\S+)$", metrics, re.MULTILINE)
    return float(skew)


def test_a_wrong_clock_of_a_machine_closes_no_decision_and_calls_no_reward_late(
    nursery: Nursery, skewed: Nursery, postgresql: Callable[[], str], tmp_path: Path
) -> None:
    database = postgresql()
    with (
        Server(skewed, tmp_path / "wrong", database) as wrong,  # the first: it leads
        Server(nursery, tmp_path / "right", database) as right,
        closing(wrong.client()) as ahead,
        closing(right.client()) as true,
        LogReader(database) as log,
    ):
        (row,) = log.list_loops()
        for event in EVENTS:
            assert not true.rank(BODY | {"eventId": event}).json["degraded"]
        # On a busy machine the answer to a heartbeat may come late: then the next one counts.
        wait_until(lambda: abs(read_skew(ahead) - AHEAD_SECONDS) < 5.0)
        wait_until(lambda: abs(read_skew(true)) < 5.0)
        warning = "60 minutes ahead of that of the database"
        wait_until(lambda: warning in ahead.call("GET", "/healthz").json["warnings"][0])
        wait_until(lambda: "ahead of that of the database" in wrong.log)
        wait_until(lambda: abs(read_skew_metric(ahead) - AHEAD_SECONDS) < 5.0)
        # After a default reward of another loop, the leader has swept all loops.
        hasty = {"name": "hasty", "settings": {"rewardWaitTime": "PT0.1S"}}
        assert ahead.call("POST", "/loops", hasty).status == 201
        assert not ahead.rank(BODY, "/loops/hasty").json["degraded"]
        hasty_row = log.find_loop("hasty")
        assert hasty_row is not None
        wait_until(lambda: log.read_funnel(hasty_row.id).default == 1)
        for event in EVENTS:
            assert ahead.reward(event, 1.0).status == 204
        funnel = log.read_funnel(row.id)
        assert (funnel.default, funnel.late, funnel.learned) == (0, 0, len(EVENTS))
        now = read_wall_us()
        assert all(abs(each.at - now) < 5 * MINUTE for each in log.fetch_all(decisions.select()))
        assert ahead.call("GET", f"{BASE}/configurations/service").status == 200


def test_a_server_whose_service_time_is_ahead_of_the_others_waits_for_them(tmp_path: Path) -> None:
    machine = FakeMachine()

    async def run(store: Store) -> None:
        service, _ = make_service(store, machine.make_clock(None))
        settings = LoopSettings(reward_wait_time="PT10M", log_retention_days=1)
        loop = await service.create_loop("home", settings, "test")
        for event in EVENTS:
            await service.rank("home", RankOptions(event_id=event), OFFER, "{}")
        loop.postponed = PostponedDeletion(0, "a day ago")
        slowest = service.clock.now_us() + MINUTE
        machine.monotonic += 2 * DAY  # as if this server had stepped before the others
        machine.wall += 2 * DAY
        service.sharing = LogSharing()
        service.sharing.note_heartbeat(2**62, HeartbeatResult(True, slowest, 2, machine.wall))
        assert await start_sweeps(service) == {}
        await delete_old_decisions(service, loop)
        assert loop.postponed is None  # there is nothing to delete
        await service.reward("home", EVENTS[0], 1.0)
        funnel = store.read_funnel(loop.id)
        assert (funnel.default, funnel.late, funnel.learned) == (0, 0, 1)
        assert len(store.fetch_all(decisions.select())) == len(EVENTS)
        after = HeartbeatResult(True, slowest + 10 * MINUTE + SECOND, 2, machine.wall)
        service.sharing.note_heartbeat(2**62, after)
        await asyncio.gather(*(await start_sweeps(service)).values())
        assert store.read_funnel(loop.id).default == len(EVENTS) - 1

    with Store(tmp_path) as store:
        asyncio.run(run(store))
