"""Hostile requests from the grammar of the wire, beside visitors that must not notice them."""

import http.client
import random
import select
import socket
from contextlib import closing

from faults.cases import Case
from faults.outcome import Outcome
from faults.promises import LATENCY, MAX_ANSWER_SECONDS, NO_ERROR, RECOVERY, check_promises
from faults.stage import Stage
from faults.traffic import create_loops, run_visitors
from faults.wire_grammar import HostileRequest, draw_request
from server_process import Server

INCOMPLETE_SECONDS = 0.02  # to wait for the answer to a request that is not complete
CONNECTIONS = 40  # incomplete requests that are left open, to be closed by the service or later
VICTIM = {"name": "victim", "settings": {"arraySize": 16}}


def run_hostile_requests(stage: Stage, case: Case) -> Outcome:
    """Send hostile requests to a service while one visitor sends innocent ones."""
    outcome, draw = Outcome(), random.Random(case.seed)
    site = stage.make_site(case.name, case.database)
    with Server(stage.nursery, site.data, site.database) as server:
        with closing(server.client()) as client:
            create_loops(client)
            client.call("POST", "/loops", VICTIM)
        left_open: list[socket.socket] = []
        with run_visitors(server.port, 1, case.seed) as visitors:
            for _ in range(case.amount):
                request = draw_request(draw)
                send_hostile(outcome, server, request, left_open)
                if not server.lives():
                    outcome.check(
                        RECOVERY, False, f"the service ended after {request.data[:300]!r}"
                    )
                    break
        for connection in left_open:
            connection.close()
        check_promises(outcome, site, server, visitors)
        degraded = outcome.counts["degraded"]
        sentence = f"{degraded} innocent rank requests were degraded"
        outcome.check(LATENCY, degraded <= 5 + outcome.counts["rank"] // 20, sentence)
    return outcome


def send_hostile(
    outcome: Outcome, server: Server, request: HostileRequest, left_open: list[socket.socket]
) -> None:
    """Send one request on a connection of its own, and check the answer."""
    outcome.counts["hostile requests"] += 1
    connection = socket.create_connection(("127.0.0.1", server.port), MAX_ANSWER_SECONDS)
    size = -(-len(request.data) // request.pieces)
    try:
        for start in range(0, len(request.data), size):
            connection.sendall(request.data[start : start + size])
        limit = MAX_ANSWER_SECONDS if request.is_complete else INCOMPLETE_SECONDS
        if not select.select([connection], [], [], limit)[0]:
            sentence = f"no answer within {limit} seconds to {request.data[:300]!r}"
            outcome.check(LATENCY, not request.is_complete, sentence)
            outcome.counts["hostile without answer"] += 1
            left_open.append(connection)
            if len(left_open) > CONNECTIONS:
                left_open.pop(0).close()
            return
        method = "HEAD" if request.is_head else "POST"
        response = http.client.HTTPResponse(connection, method=method)
        response.begin()
        response.read()
    except (ConnectionError, http.client.HTTPException):
        outcome.counts["hostile cut"] += 1  # the service has closed the connection
        connection.close()
        return
    connection.close()
    status = response.status
    is_fine = status < 500 or status in (501, 503, 505)
    outcome.check(NO_ERROR, is_fine, f"status {status} for {request.data[:400]!r}")
    outcome.counts[f"hostile {status // 100}xx"] += 1
