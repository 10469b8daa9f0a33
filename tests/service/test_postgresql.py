"""The whole service over PostgreSQL: it answers, keeps, learns and fails as it does over SQLite."""

import io
import json
import random
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import NamedTuple

import polars as pl
import pytest

from policy_access import read_learner_bits
from server_process import BASE, Client, Nursery, Server, wait_for_health
from windvane.cli import main
from windvane.errors import StoreError
from windvane.learner import Learner
from windvane.service.sharing.fold import decode_snapshot
from windvane.service.store.database import resolve_url
from windvane.service.store.files.service_lock import hold_service_lock
from windvane.service.store.log import Store

ARMS = ("ice", "tea", "soup")
BODY = {"actions": [{"id": name, "features": [{"name": name}]} for name in ARMS]}
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


def model(client: Client) -> list[object]:
    """What is believed, to the last bit, and how many rounds there were."""
    packed = decode_snapshot(client.call("GET", f"{BASE}/model").body)
    learner = Learner.load(io.BytesIO(packed.model))
    return [learner.round, packed.newest[0], read_learner_bits(learner)]


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
                before = model(client)
            server.stop()
            server.start()
            server.wait()
            with closing(server.client()) as client:
                assert model(client) == before
                for method, path in (("DELETE", "/logs"), ("GET", "/logs/properties")):
                    answers.append(client.call(method, BASE + path).status)
                answers.append(play(client, range(40, 45)))
                learned.append(model(client))
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


class Said(NamedTuple):
    """How a command ended, and its words."""

    code: object
    out: str
    err: str


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Said]:
    """A function that runs a command."""

    def run(*words: str | Path) -> Said:
        monkeypatch.setattr(sys, "argv", ["windvane", *map(str, words)])
        with pytest.raises(SystemExit) as end:
            main()
        return Said(end.value.code, *capsys.readouterr())

    return run


def test_every_command_takes_the_database(
    nursery: Nursery, database: str, tmp_path: Path, run: Callable[..., Said]
) -> None:
    there, table = ("--database", database), tmp_path / "log.parquet"
    with served(nursery, tmp_path, database) as server, closing(server.client()) as client:
        created = run("loop", "create", "home", "--half-life", "2 days", *there)
        assert created.out.strip() == f"/loops/home{BASE}", created.err
        for event in ("e1", "e2"):
            assert client.rank(BODY | {"eventId": event}, "/loops/home").status == 201
        assert client.reward("e1", 0.5, "/loops/home").status == 204
        assert run("export", "--parquet", table, "--loop", "home", *there).code == 0
    assert pl.read_parquet(table)["reward"].to_list() == [0.5, None]
    (_, home) = json.loads(run("loop", "list", "--json", *there).out)
    assert (home["loop"], home["ranked"], home["rewarded"]) == ("home", 2, 1)
    key = json.loads(run("key", "create", "--role", "rank", "--json", *there).out)
    assert run("key", "expire", str(key["id"]), *there).code == 0
    (listed,) = json.loads(run("key", "list", "--json", *there).out)
    assert (listed["role"], listed["valid"]) == ("rank", False)
    for words, tool in (("backup", "pg_dump"), ("restore", "pg_restore")):
        said = run(words, tmp_path / "copy", *there)
        assert (said.code, said.out) == (2, "")
        assert tool in said.err
        assert said.err.count("\n") == 1


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


@pytest.mark.parametrize("part", ["event", "path", "loop"])
def test_a_name_that_cannot_be_stored_is_the_clients_mistake(
    nursery: Nursery, database: str, tmp_path: Path, part: str
) -> None:
    with served(nursery, tmp_path, database) as server, closing(server.client()) as client:
        if part == "event":
            answer = client.rank(BODY | {"eventId": "a\0b"})
        elif part == "path":
            answer = client.reward("a%00b", 1.0)
        else:
            answer = client.rank(BODY, "/loops/a%00b")
        assert answer.status == (404 if part == "loop" else 400), answer
        assert answer.json["error"]["message"]
        assert client.call("GET", "/healthz").json["status"] == "ok"
