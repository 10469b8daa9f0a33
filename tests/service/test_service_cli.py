"""The service's commands, and the server as a process of its own."""

import contextlib
import json
import os
import re
import socket
import sqlite3
import ssl
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from unittest.mock import MagicMock

import polars as pl
import pytest

from server_process import BASE, MAIN, Client, run_serve
from waiting import wait_until
from windvane.errors import SettingError
from windvane.service import app, cli, server
from windvane.service.api.auth import create_key, is_valid
from windvane.service.clock import MICROSECONDS_PER_SECOND, read_wall_us
from windvane.service.loops.settings import SETTINGS, LoopSettings
from windvane.service.store.log import Store
from windvane.service.store.writer.server_operations import PutClock

RunHere = Callable[..., subprocess.CompletedProcess[str]]
ACTIONS = {"actions": [{"id": "a", "features": [{"x": 1}]}, {"id": "b", "features": [{"y": 1}]}]}


def run(*words: str | Path) -> subprocess.CompletedProcess[str]:
    command = [*MAIN, *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


def check_one_line_error(result: subprocess.CompletedProcess[str], sentence: str) -> None:
    assert result.returncode == 2
    assert result.stdout == ""
    assert sentence in result.stderr
    assert result.stderr.count("\n") == 1


def test_keys_rotate_while_the_service_runs(tmp_path: Path, run_here: RunHere) -> None:
    check_one_line_error(
        run("serve", "--host", "0.0.0.0", "--data", tmp_path), "windvane key create"
    )
    assert list(tmp_path.iterdir()) == []
    old = run_here("key", "create", "--role", "rank", "--data", tmp_path).stdout.strip()
    with run_serve(tmp_path, "--host", "0.0.0.0") as server:

        def rank(key: str) -> int:
            return server.ask("POST", f"{BASE}/rank", ACTIONS, key).status

        assert (rank(old), rank(""), rank("wrong")) == (201, 401, 401)
        assert server.ask("GET", "/metrics", key=old).status == 403
        assert server.ask("GET", "/healthz").status == 200
        words = ["key", "create", "--role", "rank", "--json", "--data", str(tmp_path)]
        new = json.loads(run_here(*words).stdout)
        assert run_here("key", "expire", "1", "--in", "1 day", "--data", tmp_path).returncode == 0
        wait_until(lambda: rank(new["key"]) == 201)
        assert rank(old) == 201
        assert run_here("key", "expire", "1", "--data", tmp_path).returncode == 0
        wait_until(lambda: rank(old) == 401)
        assert rank(new["key"]) == 201
        result = server.stop()
    assert old not in result
    assert any("status" in json.loads(line) for line in result.splitlines() if line[0] == "{")
    listed = run_here("key", "list", "--json", "--data", tmp_path).stdout
    assert [row["valid"] for row in json.loads(listed)] == [False, True]
    assert old not in listed
    check_one_line_error(run_here("key", "expire", "9", "--data", tmp_path), "no key with the id 9")
    check_one_line_error(
        run_here("key", "create", "--role", "king", "--data", tmp_path), "rank, read, admin"
    )


def test_a_file_in_place_of_the_data_directory_is_refused_in_one_line(
    tmp_path: Path, run_here: RunHere
) -> None:
    file = tmp_path / "notes"
    file.write_text("no directory")
    serve = ["serve", "--host", "0.0.0.0", "--port", "0"]
    for words in (["loop", "list"], ["key", "list"], ["backup", str(tmp_path / "copy")], serve):
        check_one_line_error(run_here(*words, "--data", file), "notes/windvane.db cannot be opened")
    for words in (["loop", "create", "home"], ["key", "create", "--role", "rank"]):
        check_one_line_error(run_here(*words, "--data", file), "notes is a file; name a directory")


def test_backup_export_and_a_new_loop_while_the_service_writes(
    tmp_path: Path, run_here: RunHere
) -> None:
    data, copy, table = tmp_path / "data", tmp_path / "copy", tmp_path / "log.parquet"
    with run_serve(data) as server:
        check_one_line_error(run("serve", "--port", "0", "--data", data), "another service runs on")
        result = run_here("loop", "create", "home", "--half-life", "2 days", "--data", data)
        assert result.stdout.strip() == f"/loops/home{BASE}"
        home = f"/loops/home{BASE}"
        for event in ("e1", "e2"):
            assert server.ask("POST", f"{home}/rank", ACTIONS | {"eventId": event}).status == 201
        assert server.ask("POST", f"{home}/events/e1/reward", {"value": 0.5}).status == 204
        assert run_here("backup", copy, "--data", data).returncode == 0
        assert server.ask("POST", f"{home}/rank", ACTIONS | {"eventId": "e3"}).status == 201
        result = run_here("export", table, "--loop", "home", "--data", data)
        assert result.returncode == 0, result.stderr
        assert server.ask("GET", "/openapi.json").status == 200
        assert server.ask("GET", "/readyz").status == 200
    log = pl.read_parquet(table)
    assert log["event_id"].to_list() == ["e1", "e2", "e3"]
    assert log["reward"].to_list() == [0.5, None, None]
    assert log["probabilities"].list.sum().to_list() == pytest.approx([1.0] * 3)
    for row in log.to_dicts():
        assert row["probability"] == row["probabilities"][row["chosen"]]
        assert row["action"] == row["actions"][row["chosen"]]
        assert json.loads(row["actions_json"]) == ACTIONS["actions"]
    back = tmp_path / "back"
    assert run_here("restore", copy, "--data", back).returncode == 0
    check_one_line_error(run_here("restore", copy, "--data", back), "exists")
    rows = json.loads(run_here("loop", "list", "--json", "--data", back).stdout)
    assert [(row["loop"], row["ranked"]) for row in rows] == [("default", 0), ("home", 2)]


@pytest.mark.parametrize("damage", ["DELETE FROM settings_log", "UPDATE loops SET settings = '{'"])
def test_a_log_that_cannot_be_loaded_is_refused_with_the_reason(
    tmp_path: Path, run_here: RunHere, damage: str
) -> None:
    assert run_here("loop", "create", "home", "--data", tmp_path).returncode == 0
    with closing(sqlite3.connect(tmp_path / "windvane.db")) as log:
        log.execute(damage)
        log.commit()
    check_one_line_error(
        run("serve", "--port", "0", "--data", tmp_path), "serve: the loops cannot be loaded ("
    )


def test_endless_headers_are_refused_and_large_bodies_are_not(tmp_path: Path) -> None:
    head = f"POST {BASE}/rank HTTP/1.1\r\nHost: localhost\r\n".encode()
    text = json.dumps(ACTIONS | {"contextFeatures": [{"_note": "x" * 200_000}]})
    with run_serve(tmp_path) as server:
        with closing(Client(server.port)) as client:
            for _ in range(3):  # on one connection
                answer = client.rank(text.encode())
                assert (answer.status, answer.json["degraded"]) == (201, False)
        for start, line in (
            (b"", b"a: b\r\n"),
            (b"a: ", b"x"),
            (b"", b"b: " + b"x" * 900 + b"\r\n"),
        ):
            with socket.create_connection(("127.0.0.1", server.port), 10.0) as other:
                sent = 0
                with contextlib.suppress(ConnectionError):
                    other.sendall(head + start)
                    while sent < 10_000_000:
                        other.sendall(line * 1000)
                        sent += 1000 * len(line)
                assert sent < 10_000_000
        assert server.ask("POST", f"{BASE}/rank", ACTIONS).status == 201


def test_a_request_that_arrives_too_slowly_is_closed(tmp_path: Path) -> None:
    hasty = (
        "from windvane.service.api import request_limits, requests; "
        "request_limits.HEADERS_TIMEOUT_SECONDS = requests.BODY_TIMEOUT_SECONDS = 1.0; " + MAIN[2]
    )
    starts = (b"", f"POST {BASE}/rank HTTP/1.1\r\n".encode())
    body = f"POST {BASE}/rank HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{{".encode()
    main = (*MAIN[:2], hasty)
    with run_serve(tmp_path, main=main) as server, closing(Client(server.port)) as patient:
        for start in (*starts, body):
            with socket.create_connection(("127.0.0.1", server.port), 10.0) as other:
                other.sendall(start)
                while other.recv(4096):  # until it hangs up
                    pass
            answer = patient.rank(ACTIONS)  # between two it may wait
            assert (answer.status, answer.json["degraded"]) == (201, False)


def test_tls_by_certificate_and_key(tmp_path: Path) -> None:
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    words = "openssl req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=localhost"
    names = ["-addext", "subjectAltName=DNS:localhost", "-keyout", str(key)]
    command = [*words.split(), *names, "-out", str(certificate)]
    subprocess.run(command, check=True, capture_output=True)
    trust = ssl.create_default_context(cafile=certificate)
    both = ["--certificate", str(certificate), "--key", str(key)]
    with run_serve(tmp_path / "data", *both, trust=trust) as server:
        assert server.ask("POST", f"{BASE}/rank", ACTIONS).status == 201
    check_one_line_error(run("serve", "--certificate", certificate), "go together")
    swapped = ["--certificate", str(key), "--key", str(certificate), "--port", "0"]
    check_one_line_error(
        run("serve", *swapped, "--data", tmp_path / "data"), "no certificate and its key"
    )


def test_the_demo_plays_and_ends(tmp_path: Path) -> None:
    result = run("demo", "--minutes", "0.12")
    assert result.returncode == 0, result.stderr
    assert re.fullmatch(r"http://127.0.0.1:\d+/\n", result.stdout)
    assert re.search(r"\d+ visitors, \d+% clicked", result.stderr)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("loop list", "there is no log in"),
        ("backup copy", "there is no log in"),
        ("loop create a/b", "a loop's name"),
        ("loop create a --half-life soon", "settings: halfLife: 'soon' must be a duration"),
        ("loop create a --mode Loud", "settings"),
    ],
)
def test_a_mistake_is_one_line(
    words: str, sentence: str, tmp_path: Path, run_here: RunHere
) -> None:
    check_one_line_error(run_here(*words.split(), "--data", tmp_path / "data"), sentence)


def test_every_setting_has_a_flag(tmp_path: Path) -> None:
    values = {
        "--wait": "PT20M", "--default-reward": "-0.5", "--aggregation": "sum",
        "--reward-model": "cascade",
        "--exploration": "0.2", "--mode": "Apprentice", "--log-retention-days": "7",
        "--model-export-frequency": "PT1M", "--half-life": "500 rounds", "--seed": "9",
        "--crossings": "user*action", "--array-size": "64",
        "--auto-optimize": "True", "--auto-optimize-every": "P3D", "--explain": "True",
        "--auto-optimize-from": "2026-01-02T03:04:05Z", "--model-retrain-days": "3",
    }  # fmt: skip
    flags = [word for pair in values.items() for word in pair if word != "True"]
    result = run("loop", "create", "home", *flags, "--json", "--data", tmp_path)
    settings = json.loads(result.stdout)["settings"]
    flag_of = {setting.name: setting.flag for setting in SETTINGS}
    assert {flag_of[name]: str(value) for name, value in settings.items()} == values
    result = run("loop", "create", "plain", "--json", "--data", tmp_path)
    assert json.loads(result.stdout)["settings"] == json.loads(LoopSettings().to_json())


@pytest.mark.parametrize("command", [cli.serve, cli.demo, cli.list_loops, cli.list_keys])
def test_a_system_without_posix_is_refused_in_one_sentence(
    command: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(sys, "platform", "win32")
        with pytest.raises(SettingError, match="needs Linux, macOS or WSL, got Windows"):
            command()


def test_a_file_to_write_that_is_a_directory_is_refused_in_one_line(
    tmp_path: Path, run_here: RunHere
) -> None:
    assert run_here("loop", "create", "default", "--data", tmp_path).returncode == 0
    for command in (["backup"], ["export", "--parquet"]):
        for name in ("/", ".", ""):
            check_one_line_error(run_here(*command, name, "--data", tmp_path), "irectory")


def test_compact_shrinks_a_log_and_needs_one(tmp_path: Path, run_here: RunHere) -> None:
    check_one_line_error(run_here("compact", "--data", tmp_path), "there is no log")
    assert run_here("loop", "create", "default", "--data", tmp_path).returncode == 0
    result = run_here("compact", "--data", tmp_path)
    assert result.returncode == 0
    assert re.search(r"the log had [\d.]+ MB and has [\d.]+ MB", result.stderr)


def test_a_log_that_was_emptied_keeps_its_keys_in_force(tmp_path: Path, run_here: RunHere) -> None:
    assert run_here("key", "create", "--role", "admin", "--data", tmp_path).returncode == 0
    assert run_here("backup", tmp_path / "copy", "--data", tmp_path).returncode == 0
    (tmp_path / "windvane.db").write_bytes(b"")
    check_one_line_error(run("serve", "--port", "0", "--data", tmp_path), "windvane restore FILE")
    for words in (["key", "list"], ["loop", "create", "home"]):
        check_one_line_error(run_here(*words, "--data", tmp_path), "windvane restore FILE")
    (tmp_path / "windvane.db").unlink()
    for words in (["key", "list"], ["key", "create", "--role", "rank"]):
        check_one_line_error(
            run_here(*words, "--data", tmp_path), "is missing, but there was a log"
        )
    assert run_here("restore", tmp_path / "copy", "--data", tmp_path).returncode == 0
    assert len(json.loads(run_here("key", "list", "--json", "--data", tmp_path).stdout)) == 1


def test_a_key_that_expires_now_has_expired_by_every_clock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the command runs while the wall clock is wrong, and that is corrected later."""
    year = 365 * 86_400 * MICROSECONDS_PER_SECOND
    now = read_wall_us()
    with Store(tmp_path) as store:
        store.write(create_key("rank", now).put)
        store.write(PutClock(now))
    for wall in (now + year, now - year):
        monkeypatch.setattr(cli, "read_wall_us", lambda wall=wall: wall)
        cli.expire_key(1, data=tmp_path)
        with Store(tmp_path) as store:
            [key] = store.list_keys()
        assert not is_valid(key, now)


def test_serve_hands_its_flags_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def create(where: str, believes_wall_clock: bool, edge: app.EdgeOptions) -> None:
        calls.append((believes_wall_clock, edge.trusted_proxies, edge.requests_per_second))

    monkeypatch.setattr(server, "create_app", create)
    monkeypatch.setattr(server, "log_to_stderr", MagicMock())
    drains = []
    monkeypatch.setattr(server, "run", lambda *arguments: drains.append(arguments[-1]))
    cli.serve(data=tmp_path)
    cli.serve(data=tmp_path, believe_clock=True)
    cli.serve(data=tmp_path, trusted_proxy=["10.0.0.1", "::1"], requests_per_second=5.0)
    cli.serve(data=tmp_path, drain_seconds=2.5)
    assert calls[:3] == [(False, (), None), (True, (), None), (False, ("10.0.0.1", "::1"), 5.0)]
    assert drains == [0.0, 0.0, 0.0, 2.5]
