"""A service under traffic: faults are caused in between, then all promises are checked."""

import random
from collections.abc import Callable
from contextlib import closing
from typing import NamedTuple

from faults.cases import Case
from faults.outcome import Outcome
from faults.promises import check_promises
from faults.stage import Site, Stage
from faults.traffic import Visitor, create_loops, run_visitors
from server_process import Nursery, Server

VISITORS = 3


class Scene(NamedTuple):
    """What the function that causes faults gets."""

    case: Case
    site: Site
    server: Server
    visitors: list[Visitor]
    draw: random.Random
    outcome: Outcome


def run_under_traffic(
    stage: Stage,
    case: Case,
    cause_faults: Callable[[Scene], None],
    nursery: Nursery | None = None,
    site: Site | None = None,
    visitor_count: int = VISITORS,
) -> Outcome:
    """Run a case: start a service and traffic, cause faults, check the promises."""
    outcome = Outcome()
    site = site or stage.make_site(case.name, case.database)
    with Server(nursery or stage.nursery, site.data, site.database) as server:
        with closing(server.client()) as client:
            create_loops(client)
        with run_visitors(server.port, visitor_count, case.seed) as visitors:
            draw = random.Random(case.seed)
            cause_faults(Scene(case, site, server, visitors, draw, outcome))
        check_promises(outcome, site, server, visitors)
    return outcome
