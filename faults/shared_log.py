"""Faults of servers that share a log: kills of servers, writers and the database, and cuts."""

import os
import random
import signal
import time
from contextlib import ExitStack, closing

import psycopg

from faults.cases import Case
from faults.failing_postgresql import cut_connections
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
from faults.traffic import create_loops, run_visitors
from server_process import Server
from tcp_proxy import TcpProxy
from windvane.service.store.database import resolve_url
from windvane.service.store.service_lock import hold_service_lock

SERVERS = 3
VISITORS = 5
SERVER_KILLS_PER_DATABASE_KILL = 10
TRAFFIC_SECONDS = (0.05, 0.6)  # between two faults


def run_servers(stage: Stage, case: Case) -> Outcome:
    """Run three servers on one database behind a balancer; kill them and the database."""
    outcome = Outcome()
    site = stage.make_site(case.name, case.database)
    assert site.database is not None
    with ExitStack() as stack:
        servers = [
            stack.enter_context(
                Server(stage.nursery, site.data.with_name(f"server-{k}"), site.database)
            )
            for k in range(SERVERS)
        ]
        balancer = stack.enter_context(TcpProxy([("127.0.0.1", each.port) for each in servers]))
        with closing(servers[0].client()) as client:
            create_loops(client)
        with run_visitors(balancer.port, VISITORS, case.seed) as visitors:
            draw = random.Random(case.seed)
            for number in range(case.amount):
                time.sleep(draw.uniform(*TRAFFIC_SECONDS))
                if number % SERVER_KILLS_PER_DATABASE_KILL == SERVER_KILLS_PER_DATABASE_KILL - 1:
                    for server in servers:
                        server.wait()  # a server that starts without its database gives up
                    kill_database(site.database)
                    outcome.counts["database killed"] += 1
                outcome.counts[_disturb(draw, servers, balancer, site.database)] += 1
        check_answers(outcome, visitors)
        are_back = [check_recovery(outcome, server) for server in servers]
        if not all(are_back):
            return outcome
        with closing(servers[0].client()) as client:
            check_repeated_ranks(outcome, client, visitors)
        for server in servers:
            check_beliefs(outcome, site, server, stage.fold)
            sentence = f"a traceback in {server.data}.log"
            outcome.check(NO_ERROR, "Traceback" not in server.log, sentence)
        for server in servers:
            server.stop()
        with hold_service_lock(resolve_url(site.location), WRITER_END_SECONDS):
            check_log(outcome, site, visitors)
    return outcome


def _disturb(draw: random.Random, servers: list[Server], balancer: TcpProxy, database: str) -> str:
    """Cause one fault; returns what was done."""
    server = draw.choice(servers)
    kinds = {"server killed": 7, "writer killed": 2, "clients cut": 1, "database cut": 1}
    what = draw.choices(list(kinds), list(kinds.values()))[0]
    if what == "server killed":
        server.kill()
        server.start()
    elif what == "writer killed":
        server.wait()
        send_signal(server.writers, signal.SIGKILL)
    elif what == "clients cut":
        balancer.cut()
    else:
        for each in servers:
            each.wait()
        cut_connections(database)
    return what


def kill_database(database: str) -> None:
    """Kill a process of the database server: PostgreSQL ends all others and recovers."""
    with psycopg.connect(database, autocommit=True) as connection:
        process = connection.info.backend_pid
        os.kill(process, signal.SIGKILL)
    end = time.monotonic() + 60.0
    while True:
        try:
            with psycopg.connect(database, connect_timeout=5):
                return
        except psycopg.OperationalError:
            if time.monotonic() > end:
                raise
            time.sleep(0.05)
