"""Several servers on one log: they decide once, learn the same, and take over from each other."""

import itertools
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import make_url

from choice_frequencies import compare_choices
from server_process import BASE, Client, Nursery, Server
from shared_log_helpers import BODY, fold, read_bits
from tcp_proxy import TcpProxy
from waiting import wait_until
from windvane.service.loops.loop import Loop
from windvane.service.store.log import LogReader
from windvane.service.store.schema import decisions, lease, servers

pytestmark = pytest.mark.slow


@pytest.fixture
def database(postgresql: Callable[[], str]) -> str:
    return postgresql()


@pytest.fixture
def trio(nursery: Nursery, database: str, tmp_path: Path) -> Iterator[list[Server]]:
    """Three servers on one database."""
    with ExitStack() as stack:
        running = [Server(nursery, tmp_path / f"server-{k}", database) for k in range(3)]
        yield [stack.enter_context(server) for server in running]


def test_what_one_server_learns_reaches_the_others_to_the_bit(
    trio: list[Server], database: str
) -> None:
    count = 120
    with ExitStack() as stack:
        clients = [stack.enter_context(closing(server.client())) for server in trio]
        for number, client in zip(range(count), itertools.cycle(clients), strict=False):
            assert not client.rank(BODY | {"eventId": f"e{number}"}).json["degraded"]
            other = clients[(number + 1) % 3]  # a reward may go to any server
            assert other.reward(f"e{number}", number % 5 / 5).status == 204
            if number == count // 2:
                changes = {"halfLife": "2 days"}
                client.call("PUT", f"{BASE}/configurations/service", changes)
        wait_until(lambda: all(read_bits(client)[0] == count for client in clients))
        beliefs = [read_bits(client) for client in clients]

        def read_health() -> list[dict[str, Any]]:
            return [client.call("GET", "/healthz").json["sharing"] for client in clients]

        wait_until(lambda: [each["servers"] for each in read_health()] == [3, 3, 3])
        health = read_health()
    assert sum(each["isLeader"] for each in health) == 1
    assert all(0.0 < each["lagSeconds"] <= 10.0 for each in health)
    assert beliefs[0] == beliefs[1] == beliefs[2]
    with LogReader(database) as log:
        (row,) = log.list_loops()
        assert fold(Loop(row, log).model) == beliefs[0]
        rounds = [row.round for row in log.fetch_all(decisions.select())]
        assert len(set(rounds)) == count
    assert not any("Traceback" in server.log for server in trio)


def test_an_event_is_decided_once_whichever_servers_are_asked(
    trio: list[Server], database: str
) -> None:
    def ask(server: Server, event: str) -> Any:
        with closing(server.client()) as client:
            return client.rank(BODY | {"eventId": event}).json

    with ThreadPoolExecutor(6) as pool:
        for number in range(20):
            event = f"same-{number}"
            answers = list(pool.map(ask, trio * 2, [event] * 6))
            assert all(answer == answers[0] for answer in answers)
    with LogReader(database) as log:
        events = Counter(row.event_id for row in log.fetch_all(decisions.select()))
    assert set(events.values()) == {1}


def test_settings_and_loops_reach_all_servers(trio: list[Server]) -> None:
    with ExitStack() as stack:
        clients = [stack.enter_context(closing(server.client())) for server in trio]
        settings = f"{BASE}/configurations/service"
        changes = {"defaultReward": -0.5}
        assert clients[0].call("PUT", settings, changes).status == 200

        def has_reward(client: Client) -> bool:
            return bool(client.call("GET", settings).json["defaultReward"] == -0.5)

        for client in clients[1:]:
            wait_until(partial(has_reward, client))
        assert clients[1].call("POST", "/loops", {"name": "late"}).status == 201

        def has_loop(client: Client) -> bool:
            return "late" in [each["name"] for each in client.call("GET", "/loops").json]

        for client in clients:
            wait_until(partial(has_loop, client))


def test_another_server_takes_the_lease_of_a_leader_that_was_killed(
    trio: list[Server], database: str
) -> None:
    def read_leader(log: LogReader) -> str:
        """The name of the server that holds the lease."""
        query = servers.select().join(lease, lease.c.server == servers.c.id)
        return next((row.name for row in log.fetch_all(query)), "")

    with LogReader(database) as log:
        wait_until(lambda: bool(read_leader(log)))
        leader = read_leader(log)
        (killed,) = [server for server in trio if leader.endswith(f"process {server.process}")]
        (client,) = [each.client() for each in trio if each is not killed][:1]
        with closing(client):
            client.call("PUT", f"{BASE}/configurations/service", {"rewardWaitTime": "PT1S"})
            killed.kill()
            client.rank(BODY | {"eventId": "unrewarded"})
            wait_until(lambda: read_leader(log) not in ("", leader))
            wait_until(lambda: log.read_funnel(1).default == 1)  # the new leader closes decisions


def test_a_server_that_was_cut_off_degrades_and_comes_back(
    nursery: Nursery, database: str, tmp_path: Path
) -> None:
    url = make_url(database)
    folder = url.query["host"]
    path = f"{folder}/.s.PGSQL.{url.port or 5432}"
    with TcpProxy([path]) as proxy, ExitStack() as stack:
        through = url.set(host="127.0.0.1", port=proxy.port, query={})
        away = Server(nursery, tmp_path / "away", through.render_as_string(hide_password=False))
        near = Server(nursery, tmp_path / "near", database)
        clients = [
            stack.enter_context(closing(stack.enter_context(each).client()))
            for each in (away, near)
        ]
        far, close = clients
        for number in range(10):
            assert not far.rank(BODY | {"eventId": f"a{number}"}).json["degraded"]
        for cut in range(2):
            proxy.stall()
            for number in range(3):
                started = time.monotonic()
                answer = far.rank(BODY | {"eventId": f"cut-{cut}-{number}"}).json
                assert answer["degraded"]
                assert [each["probability"] for each in answer["ranking"]] == [1.0, 0.0, 0.0]
                assert time.monotonic() - started < 30.0  # it does not wait for the cut to end
                assert close.reward(f"a{3 * cut + number}", 1.0).status == 204
            proxy.flow()
            wait_until(lambda: not far.rank(BODY).json["degraded"])
            wait_until(lambda: read_bits(far) == read_bits(close))
        for number in range(6):
            assert close.reward(f"cut-{number // 3}-{number % 3}", 1.0).status == 204
        with LogReader(database) as log:
            learned = [lesson for batch in log.iterate_lessons(1) for lesson in batch]
            cut_ids = [log.find_decision(1, f"cut-{cut}-{n}") for cut in range(2) for n in range(3)]
        taught = {lesson.decision for lesson in learned}
        assert not any(each is not None and each.id in taught for each in cut_ids)


def test_choices_follow_the_probabilities_through_all_servers(trio: list[Server]) -> None:
    count = 1500
    with TcpProxy([("127.0.0.1", server.port) for server in trio]) as balancer:

        def visit(who: int) -> list[Any]:
            with closing(Client(balancer.port)) as client:
                answers = []
                for number in range(count // 6):
                    answer = client.rank(BODY).json
                    answers.append(answer)
                    if number % 3 == 0:
                        reward = float(answer["rewardActionId"] == "tea")
                        assert client.reward(answer["eventId"], reward).status == 204
                return answers

        with ThreadPoolExecutor(6) as pool:
            answers = [answer for some in pool.map(visit, range(6)) for answer in some]
    assert len(answers) == count
    assert compare_choices(answers) > 1e-4
