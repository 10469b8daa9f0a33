"""Faults of servers that share a log: kills of servers, writers and the database, and cuts."""

import os
import random
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from typing import NamedTuple

from faults.cases import Case
from faults.failing_postgresql import connect_when_ready, cut_connections
from faults.jumping_clocks import find_library, make_environment, set_clock
from faults.killed_processes import send_signal
from faults.outcome import Outcome
from faults.promises import (
    NO_ERROR,
    WRITER_END_SECONDS,
    check_answers,
    check_beliefs,
    check_log,
    check_recovery,
    check_repeated_ranks,
)
from faults.stage import Stage
from faults.traffic import Visitor, create_loops, run_visitors
from server_process import Server
from tcp_proxy import TcpProxy
from windvane.service.store.database import resolve_url
from windvane.service.store.files.service_lock import hold_service_lock

SERVERS = 3
SKEW_SECONDS = 3600  # by which the clock of the first server is ahead, if libfaketime is there
VISITORS = 5
SERVER_KILLS_PER_DATABASE_KILL = 10
TRAFFIC_SECONDS = (0.05, 0.6)  # between two faults
SECONDS_BETWEEN_KILLS = 10.0  # while many choices are made


class Cluster(NamedTuple):
    """Three servers on one database, one with a wrong clock, and the balancer before them."""

    servers: list[Server]
    balancer: TcpProxy
    database: str


def run_servers(stage: Stage, case: Case) -> Outcome:
    """Run three servers on one database behind a balancer; kill them and the database."""
    draw = random.Random(case.seed)

    def disturb(outcome: Outcome, cluster: Cluster, visitors: Sequence[Visitor]) -> None:
        for number in range(case.amount):
            time.sleep(draw.uniform(*TRAFFIC_SECONDS))
            if number % SERVER_KILLS_PER_DATABASE_KILL == SERVER_KILLS_PER_DATABASE_KILL - 1:
                for server in cluster.servers:
                    server.wait()  # a server that starts without its database gives up
                kill_database(cluster.database)
                outcome.counts["database killed"] += 1
            outcome.counts[_disturb(draw, cluster)] += 1

    return _run_cluster(stage, case, disturb)


def run_choices(stage: Stage, case: Case) -> Outcome:
    """Let three servers choose many times, and kill one of them now and then."""
    draw = random.Random(case.seed)

    def wait(outcome: Outcome, cluster: Cluster, visitors: Sequence[Visitor]) -> None:
        while _count_kept(visitors) < case.amount:
            time.sleep(SECONDS_BETWEEN_KILLS)
            server = draw.choice(cluster.servers)
            server.kill()
            server.start()
            outcome.counts["server killed"] += 1

    return _run_cluster(stage, case, wait)


def _count_kept(visitors: Sequence[Visitor]) -> int:
    """Count the answered decisions whose rows are never deleted."""
    kept = [loop for visitor in visitors for loop, _ in list(visitor.answers) if loop != "purged"]
    return len(kept)


def _run_cluster(
    stage: Stage, case: Case, disturb: Callable[[Outcome, Cluster, Sequence[Visitor]], None]
) -> Outcome:
    """Send traffic to three servers while `disturb` runs, then check all promises."""
    outcome = Outcome()
    site = stage.make_site(case.name, case.database)
    assert site.database is not None
    with ExitStack() as stack:
        nurseries = [stage.nursery] * SERVERS
        if find_library() is not None:
            clock = site.data.with_name("clock")
            set_clock(clock, SKEW_SECONDS)
            nurseries[0] = stack.enter_context(stage.make_nursery(make_environment(clock)))
            outcome.counts["servers with a wrong clock"] += 1
        servers = [
            stack.enter_context(Server(nursery, site.data.with_name(f"server-{k}"), site.database))
            for k, nursery in enumerate(nurseries)
        ]
        balancer = stack.enter_context(TcpProxy([("127.0.0.1", each.port) for each in servers]))
        with closing(servers[0].client()) as client:
            create_loops(client)
        with run_visitors(balancer.port, VISITORS, case.seed) as visitors:
            disturb(outcome, Cluster(servers, balancer, site.database), visitors)
        check_answers(outcome, visitors)
        are_back = [check_recovery(outcome, server) for server in servers]
        if not all(are_back):
            return outcome
        with closing(servers[0].client()) as client:
            check_repeated_ranks(outcome, client, visitors)
        for server in servers:
            check_beliefs(outcome, site, server)
            sentence = f"a traceback in {server.data}.log"
            outcome.check(NO_ERROR, "Traceback" not in server.log, sentence)
        for server in servers:
            server.stop()
        with hold_service_lock(resolve_url(site.location), WRITER_END_SECONDS):
            check_log(outcome, site, visitors)
    return outcome


def _disturb(draw: random.Random, cluster: Cluster) -> str:
    """Cause one fault; returns what was done."""
    server = draw.choice(cluster.servers)
    kinds = {"server killed": 7, "writer killed": 2, "clients cut": 1, "database cut": 1}
    what = draw.choices(list(kinds), list(kinds.values()))[0]
    if what == "server killed":
        server.kill()
        server.start()
    elif what == "writer killed":
        server.wait()
        send_signal(server.writers, signal.SIGKILL)
    elif what == "clients cut":
        cluster.balancer.cut()
    else:
        for each in cluster.servers:
            each.wait()
        cut_connections(cluster.database)
    return what


def kill_database(database: str) -> None:
    """Kill a process of the database server: PostgreSQL ends all others and recovers."""
    with connect_when_ready(database) as connection:
        os.kill(connection.info.backend_pid, signal.SIGKILL)
    connect_when_ready(database).close()
