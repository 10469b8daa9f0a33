"""The whole service over PostgreSQL: it answers, keeps, learns and fails as it does over SQLite."""

import json
import random
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path

import polars as pl
import pytest
from sqlalchemy import create_engine, func, select

from server_process import BASE, Client, Nursery, Server, wait_for_health
from shared_log_helpers import read_bits
from windvane.errors import StoreError
from windvane.service.store.database import CREATION_LOCK_KEY, LOCK_TIMEOUT_MS, resolve_url
from windvane.service.store.files.service_lock import hold_service_lock
from windvane.service.store.log import Store

ARMS = ("ice", "tea", "soup")
BODY = {"actions": [{"id": name, "features": [{"name": name}]} for name in ARMS]}
RunHere = Callable[..., subprocess.CompletedProcess[str]]
SETTINGS = {"halfLife": "50 rounds", "rewardAggregation": "sum"}


@pytest.fixture
def database(postgresql: Callable[[], str]) -> str:
    return postgresql()


@contextmanager
def served(nursery: Nursery, folder: Path, database: str | None) -> Iterator[Server]:
    with Server(nursery, folder / "data", database) as server:
        yield server


def play(client: Client, events: range) -> list[object]:
    """Traffic that is the same every time, and all that was answered."""
    draw, heard = random.Random(events.start), []
    for number in events:
        event, deferred = f"e{number}/é", draw.random() < 0.3
        request = BODY | {"eventId": event, "deferActivation": deferred}
        heard.append(client.rank(request).json)
        path = f"e{number}%2F%C3%A9"
        for turn in range(draw.randrange(3)):
            value = round(draw.uniform(-1, 1), 3)
            heard.append(client.reward(path, value, request=f"r{draw.randrange(2)}").status)
            if deferred and turn == 0:
                heard.append(client.activate(path).status)
    return heard


def test_a_second_server_waits_until_the_first_has_created_the_tables(database: str) -> None:
    engine = create_engine(database)
    with engine.connect() as first, ThreadPoolExecutor(1) as pool:
        first.execute(select(func.pg_advisory_xact_lock(CREATION_LOCK_KEY)))
        second = pool.submit(lambda: Store(database).close())
        with pytest.raises(TimeoutError):
            second.result(2 * LOCK_TIMEOUT_MS / 1000)
        first.rollback()
        second.result(20)
    engine.dispose()


def test_the_same_traffic_has_the_same_answers_and_teaches_the_same_as_over_sqlite(
    nursery: Nursery, database: str, tmp_path: Path
) -> None:
    heard, learned = [], []
    for folder, where in ((tmp_path / "a", None), (tmp_path / "b", database)):
        folder.mkdir()
        with served(nursery, folder, where) as server:
            with closing(server.client()) as client:
                answer = client.call("PUT", f"{BASE}/configurations/service", SETTINGS)
                settings = {**answer.json}
                assert settings.pop("lastConfigurationEditDate")  # the time of this very request
                answers: list[object] = [settings, play(client, range(20))]
            server.stop()  # after a kill, a server on PostgreSQL would go on in later rounds
            server.start()
            server.wait()
            with closing(server.client()) as client:
                answers.append(play(client, range(10, 40)))  # half of them again
                before = read_bits(client)
            server.stop()
            server.start()
            server.wait()
            with closing(server.client()) as client:
                assert read_bits(client) == before
                for method, path in (("DELETE", "/logs"), ("GET", "/logs/properties")):
                    answers.append(client.call(method, BASE + path).status)
                answers.append(play(client, range(40, 45)))
                learned.append(read_bits(client))
            assert "Traceback" not in server.log
        heard.append(answers)
    assert heard[0] == heard[1]
    assert learned[0] == learned[1]


def locked(database: str) -> AbstractContextManager[object]:
    """Someone else holds a table."""
    import psycopg

    connection = psycopg.connect(database)
    connection.execute("LOCK TABLE decisions IN ACCESS EXCLUSIVE MODE")
    return closing(connection)


@contextmanager
def readonly(database: str) -> Iterator[None]:
    """The database takes no writes, and its connections were cut."""
    import psycopg

    name = psycopg.conninfo.conninfo_to_dict(database)["dbname"]
    cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
    cut += "WHERE datname = current_database() AND pid <> pg_backend_pid()"
    for value in ("on", "off"):
        with psycopg.connect(database, autocommit=True) as connection:
            connection.execute("SET default_transaction_read_only = off")
            connection.execute(
                f'ALTER DATABASE "{name}" SET default_transaction_read_only = {value}'
            )
            connection.execute(cut)
        if value == "on":
            yield


@pytest.mark.parametrize(("fault", "reason"), [(locked, "locked"), (readonly, "read-only")])
def test_a_database_that_fails_degrades_ranks_and_recovers(
    nursery: Nursery,
    database: str,
    tmp_path: Path,
    fault: Callable[[str], AbstractContextManager[object]],
    reason: str,
) -> None:
    degraded = []
    with served(nursery, tmp_path, database) as server, closing(server.client()) as client:
        assert not client.rank(BODY | {"eventId": "before"}).json["degraded"]
        with fault(database):
            for number in range(4):
                started = time.monotonic()
                answer = client.rank(BODY | {"eventId": f"during-{number}"})
                assert time.monotonic() - started < 30.0  # it does not wait for the fault to end
                assert answer.status == 201
                assert [one["probability"] for one in answer.json["ranking"]] == [1.0, 0.0, 0.0]
                degraded.append(answer.json["degraded"])
            end = time.monotonic() + 60.0  # the reason is known once a writer process runs again
            while reason not in client.call("GET", "/healthz").json["reason"]:
                assert client.rank(BODY).json["degraded"]
                assert time.monotonic() < end
            assert client.reward("before", 1.0).status == 503
        assert degraded == [True] * 4
        end = time.monotonic() + 60.0
        while client.rank(BODY).json["degraded"]:
            assert time.monotonic() < end
        for event in ("before", *(f"during-{number}" for number in range(4))):
            assert client.reward(event, 0.5).status == 204
        wait_for_health(client)
    with Store(database) as store:
        assert [one.status for one in store.list_rewards(1, "before")] == ["learned"]
        assert [len(batch) for batch in store.iterate_lessons(1)] == [1]


def test_every_command_takes_the_database(
    nursery: Nursery, database: str, tmp_path: Path, run_here: RunHere
) -> None:
    there, table = ("--database", database), tmp_path / "log.parquet"
    with served(nursery, tmp_path, database) as server, closing(server.client()) as client:
        created = run_here("loop", "create", "home", "--half-life", "2 days", *there)
        assert created.stdout.strip() == f"/loops/home{BASE}", created.stderr
        for event in ("e1", "e2"):
            assert client.rank(BODY | {"eventId": event}, "/loops/home").status == 201
        assert client.reward("e1", 0.5, "/loops/home").status == 204
        assert run_here("export", "--parquet", table, "--loop", "home", *there).returncode == 0
    assert pl.read_parquet(table)["reward"].to_list() == [0.5, None]
    (_, home) = json.loads(run_here("loop", "list", "--json", *there).stdout)
    assert (home["loop"], home["ranked"], home["rewarded"]) == ("home", 2, 1)
    key = json.loads(run_here("key", "create", "--role", "rank", "--json", *there).stdout)
    assert run_here("key", "expire", str(key["id"]), *there).returncode == 0
    (listed,) = json.loads(run_here("key", "list", "--json", *there).stdout)
    assert (listed["role"], listed["valid"]) == ("rank", False)
    for words, tool in (("backup", "pg_dump"), ("restore", "pg_restore")):
        said = run_here(words, tmp_path / "copy", *there)
        assert (said.returncode, said.stdout) == (2, "")
        assert tool in said.stderr
        assert said.stderr.count("\n") == 1


def test_a_second_service_on_the_same_log_is_refused(where: str) -> None:
    url = resolve_url(where)
    with hold_service_lock(url, 0.0):
        with (
            pytest.raises(StoreError, match="another service runs") as refused,
            hold_service_lock(url, 0.1),
        ):
            pass
        assert refused.value.kind == "locked"
    with hold_service_lock(url, 0.1):
        pass


@pytest.mark.parametrize("part", ["event", "path", "loop", "report", "evaluation", "find"])
def test_a_name_that_cannot_be_stored_is_the_clients_mistake(
    nursery: Nursery, database: str, tmp_path: Path, part: str
) -> None:
    with served(nursery, tmp_path, database) as server, closing(server.client()) as client:
        if part == "event":
            answer = client.rank(BODY | {"eventId": "a\0b"})
        elif part == "path":
            answer = client.reward("a%00b", 1.0)
        elif part == "report":
            answer = client.call("GET", "/board/default/events/a%00b")
        elif part == "evaluation":
            client.rank(BODY)
            times = {"startTime": "2000-01-01", "endTime": "2100-01-01"}
            body = {"name": "a\0b", "policies": [], **times}
            answer = client.call("POST", f"{BASE}/evaluations", body)
        elif part == "find":
            answer = client.call("GET", f"{BASE}/evaluations/a%00b")
        else:
            answer = client.rank(BODY, "/loops/a%00b")
        assert answer.status == (404 if part in ("loop", "report", "find") else 400), answer
        assert answer.json["error"]["message"]
        assert client.call("GET", "/healthz").json["status"] == "ok"
