"""The client with two servers on one log: one is killed, and nothing is lost or counted twice."""

import threading
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from server_process import Nursery, Server
from shared_log_helpers import read_bits
from waiting import wait_until
from windvane.client import Client, LoggedDecision, RankedDecision

ACTIONS: list[str | dict[str, object]] = ["ice", {"id": "tea", "price": 2.5}, "soup"]


def test_clients_and_a_pipeline_survive_the_kill_of_a_server(
    nursery: Nursery, postgresql: Callable[[], str], tmp_path: Path
) -> None:
    database = postgresql()
    is_over = threading.Event()
    decisions: list[RankedDecision] = []
    statuses: Counter[str] = Counter()
    with (
        Server(nursery, tmp_path / "first", database) as first,
        Server(nursery, tmp_path / "second", database) as second,
    ):
        urls = [first.url, second.url]

        def visit(servers: list[str]) -> None:
            with Client(servers, timeout=120.0, rank_timeout=120.0) as client:
                while not is_over.is_set():
                    batch = [client.rank({"visit": len(decisions)}, ACTIONS) for _ in range(5)]
                    decisions.extend(batch)
                    kept = [(each, 0.5) for each in batch if not each.degraded]
                    statuses.update(outcome.status for outcome in client.rewards(kept))

        visitors = [
            threading.Thread(target=visit, args=(order,)) for order in (urls, urls[::-1]) * 2
        ]
        for visitor in visitors:
            visitor.start()
        seen: list[LoggedDecision] = []
        enough, was_killed = 40, False
        with Client(urls, timeout=120.0) as pipeline:
            while visitors[0].is_alive() or visitors[1].is_alive():
                if len(decisions) > enough and was_killed:
                    is_over.set()
                elif len(decisions) > enough:
                    enough, was_killed = len(decisions) + 100, True
                    first.kill()
                    first.start()
                after = seen[-1].id if seen else 0
                seen += pipeline.read_decisions(after, limit=17, wait=0.2).decisions
            for visitor in visitors:
                visitor.join()
            seen += pipeline.decisions(seen[-1].id)
            final = {each.event_id: each for each in pipeline.decisions()}
        assert was_killed
        first.wait()
        with closing(first.client()) as a, closing(second.client()) as b:
            wait_until(lambda: read_bits(a) == read_bits(b))
            lessons, _ = read_bits(a)
    kept = {each.event_id: each.action for each in decisions if not each.degraded}
    assert len(kept) > 40
    assert set(statuses) <= {"learned", "duplicate"}
    assert [each.id for each in seen] == sorted({each.id for each in seen})
    assert Counter(each.event_id for each in seen) == Counter(final.keys())
    for event_id, action in kept.items():
        assert final[event_id].action == action
        assert (final[event_id].reward, final[event_id].is_final) == (0.5, True)
    assert lessons == len(kept)  # a default reward is learned after ten minutes at the earliest
