"""`windvane serve` as a process: its start, requests of other sites, and stderr."""

import contextlib
import fcntl
import json
import os
import platform
import re
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import IO, NamedTuple

import pytest

from server_process import BASE, DEADLINE_SECONDS, Answer, Client
from windvane.errors import SettingError
from windvane.service.server import Address, listen

MAIN = "from windvane.cli import main; main()"
WAITING_MAIN = """
import sys
from windvane.service import app, server
load, listen = app.compile_kernels, server.listen
def listen_and_tell(address):
    listening = listen(address)
    print(listening.getsockname()[1], flush=True)
    return listening
def wait_and_load():
    print("loading", flush=True)
    sys.stdin.readline()
    load()
app.compile_kernels, server.listen = wait_and_load, listen_and_tell
"""
CHROMIUM = "/usr/bin/chromium"
ACTIONS = {"actions": [{"id": "a", "features": [{"x": 1}]}]}
ATTACK = """async ([base, extra]) => {
    const statuses = [];
    const tries = [
        ["GET", "/loops"], ["GET", "/board.json"], ["GET", "/metrics"],
        ["POST", "/loops"], ["POST", "/personalizer/v1.0/rank"],
        ["DELETE", "/personalizer/v1.0/model"], ["DELETE", "/personalizer/v1.0/logs"],
    ];
    for (const [method, path] of tries) {
        const body = method === "POST" ? '{"name": "taken"}' : undefined;
        try {
            const answer = await fetch(base + path, {method, body, ...extra});
            statuses.push(answer.type === "opaque" ? "opaque" : answer.status);
        } catch (error) {
            statuses.push("blocked");
        }
    }
    return statuses;
}"""


def test_a_port_of_another_program_is_refused_with_the_remedy() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(SettingError) as refused:
            listen(Address("127.0.0.1", port))
    assert str(refused.value) == (
        f"serve: cannot listen on 127.0.0.1 port {port}: another program does; choose a --port"
    )


def make_command(data: Path, code: str = MAIN) -> list[str]:
    return [sys.executable, "-c", code, "serve", "--port", "0", "--data", str(data)]


def ask(port: int, method: str, path: str, headers: Mapping[str, str] | None = None) -> Answer:
    with closing(Client(port)) as client:
        return client.call(method, path, headers=headers)


@contextmanager
def running(data: Path) -> Iterator[tuple[int, "subprocess.Popen[bytes]", int]]:
    """A server that is ready: its port, its process, and the end of its stderr to read."""
    reading, writing = os.pipe()
    process = subprocess.Popen(make_command(data), stderr=writing)
    try:
        os.close(writing)
        line = os.read(reading, 1000)
        match = re.fullmatch(rb"windvane: serving on http://127\.0\.0\.1:(\d+)\n", line)
        assert match, line
        yield int(match[1]), process, reading
    finally:
        process.kill()
        process.wait()
        os.close(reading)


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with running(tmp_path_factory.mktemp("data")) as (port, _, _):
        yield port


class LoadingServer(NamedTuple):
    """A server that loads until it is told to go on."""

    process: "subprocess.Popen[bytes]"
    port: int
    orders: IO[bytes]
    stderr: IO[bytes]

    def go_on(self) -> None:
        self.orders.write(b"\n")
        self.orders.flush()


@pytest.fixture
def loading(tmp_path: Path) -> Iterator[LoadingServer]:
    command, pipe = make_command(tmp_path, WAITING_MAIN + MAIN), subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            port = int(process.stdout.readline())
            assert process.stdout.readline() == b"loading\n"
            yield LoadingServer(process, port, process.stdin, process.stderr)
        finally:
            process.kill()


def test_a_server_that_loads_answers_503_and_says_when_it_is_ready(loading: LoadingServer) -> None:
    for method, path in (
        ("GET", "/readyz"),
        ("GET", "/healthz"),
        ("GET", "/"),
        ("POST", f"{BASE}/rank"),
        ("DELETE", f"{BASE}/logs"),
    ):
        answer = ask(loading.port, method, path)
        assert answer.status == 503
        assert int(answer.headers["retry-after"]) > 0
    loading.go_on()
    assert b"serving on" in loading.stderr.readline()
    assert ask(loading.port, "GET", "/readyz").json == {"status": "ready"}
    loading.process.send_signal(signal.SIGTERM)
    assert loading.process.wait(DEADLINE_SECONDS) == 0
    assert loading.stderr.read() == b"windvane: stopped\n"


def test_a_server_can_be_stopped_while_it_loads(loading: LoadingServer) -> None:
    loading.process.send_signal(signal.SIGTERM)
    loading.go_on()
    assert loading.process.wait(DEADLINE_SECONDS) == 0
    assert b"serving on" not in loading.stderr.read()


def test_no_forwarded_header_is_believed(port: int) -> None:
    for value in ("x", "127.0.0.1", "192.0.2.7", ""):
        for host in (f"127.0.0.1:{port}", "elsewhere.example"):
            headers = {"X-Forwarded-For": value, "Host": host}
            assert ask(port, "GET", "/loops", headers).status == 403
            assert ask(port, "DELETE", f"{BASE}/logs", headers).status == 403
    assert ask(port, "GET", "/loops").status == 200


def test_no_page_of_another_site_gets_in_by_dns_rebinding(port: int) -> None:
    sync_api = pytest.importorskip(
        "playwright.sync_api", reason="pip install playwright to test with a browser"
    )
    if not Path(CHROMIUM).exists():
        pytest.skip("apt-get install chromium to test with a browser")
    rebound = f"http://evil.example:{port}"
    own = f"http://127.0.0.1:{port}"
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM,
            args=[
                *("--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
                "--disable-features=LocalNetworkAccessChecks",  # other browsers have none
                "--host-resolver-rules=MAP evil.example 127.0.0.1",
            ],
        )
        page = browser.new_page()
        for site in (rebound, "http://other.example"):
            # The attacker's own server sends the page; then its name leads to this machine.
            page.route(f"{site}/attack", lambda route: route.fulfill(body="<p>hello</p>"))
        page.goto(f"{rebound}/attack")
        for headers in ({}, {"X-Forwarded-For": "x"}, {"X-Forwarded-For": "127.0.0.1"}):
            statuses = page.evaluate(ATTACK, ["", {"headers": headers}])
            assert statuses == [403] * 7
        page.goto("http://other.example/attack")
        for extra in ({}, {"mode": "no-cors"}, {"headers": {"X-Forwarded-For": "x"}}):
            statuses = page.evaluate(ATTACK, [own, extra])
            assert set(statuses) <= {"blocked", "opaque"}  # the page reads nothing
        page.goto(own)  # the service's own page, opened from another site
        page.locator("#rank-command").wait_for()
        assert page.evaluate(ATTACK.replace("taken", "own"), ["", {}])[:4] == [200, 200, 200, 201]
        browser.close()
    names = [loop["name"] for loop in ask(port, "GET", "/loops").json]
    assert names == ["default", "own"]


def test_refused_requests_write_little_and_an_unread_stderr_stops_nothing(tmp_path: Path) -> None:
    path, headers = "/" + "x" * 60_000, {"Via": "1.1 proxy"}
    with running(tmp_path / "data") as (port, process, reading), closing(Client(port)) as client:
        for _ in range(200):
            assert client.call("GET", path, headers=headers).status == 403
        output = b""
        while b'"dropped"' not in output:
            assert select.select([reading], [], [], DEADLINE_SECONDS)[0]
            output += os.read(reading, 1 << 16)
        lines = [json.loads(line) for line in output.splitlines()]
        assert {line["status"] for line in lines if "status" in line} == {403}
        assert len(output) < 50_000
        assert any("dropped" in line for line in lines)
        size = fcntl.fcntl(reading, 1031, 4096)  # F_SETPIPE_SZ
        # Another description of the same pipe, so that the server's own stays blocking.
        filling = os.open(f"/proc/self/fd/{reading}", os.O_WRONLY | os.O_NONBLOCK)
        with contextlib.suppress(BlockingIOError):
            while os.write(filling, b" " * size):
                pass
        os.close(filling)
        for _ in range(1000):
            assert client.call("GET", "/loops", headers=headers).status == 403
        assert client.rank(ACTIONS).status == 201
        metrics = client.call("GET", "/metrics").body.decode()
        [count] = [
            float(line.split()[-1])
            for line in metrics.splitlines()
            if line.startswith('windvane_dropped_messages_total{cause="repeated"}')
        ]
        assert count >= 500
        process.send_signal(signal.SIGTERM)
        assert process.wait(DEADLINE_SECONDS) == 0


ALLOCATE = """
import ctypes, threading
from windvane.service.server import limit_arenas
limit_arenas()
meeting = threading.Barrier(8)
def allocate():
    meeting.wait()
    kept = bytes(100_000)
    meeting.wait()
threads = [threading.Thread(target=allocate) for _ in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
ctypes.CDLL(None).malloc_stats()
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="glibc has arenas")
def test_all_threads_share_two_arenas_of_memory() -> None:
    done = subprocess.run([sys.executable, "-c", ALLOCATE], capture_output=True, check=True)
    assert 1 <= done.stderr.count(b"Arena ") <= 2
