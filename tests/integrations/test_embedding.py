"""The examples of embedding: gunicorn with several workers, one process, a notebook."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2 as httpx
import pytest

from server_process import Nursery, Server
from waiting import wait_until
from windvane.client import Client

EXAMPLES = Path(__file__).parents[2] / "examples"
ADDRESS = re.compile(r"http://127\.0\.0\.1:[1-9]\d*")


@contextmanager
def run_app(log: Path, *words: str, **environment: str) -> Iterator[tuple[str, int]]:
    """Run a web server on a free port: its address and its process; SIGTERM ends it."""
    command = [sys.executable, "-m", *words]
    with log.open("wb") as stream:
        process = subprocess.Popen(
            command, cwd=EXAMPLES, env=os.environ | environment, stderr=stream, stdout=stream
        )
    try:
        wait_until(lambda: process.poll() is not None or ADDRESS.search(log.read_text()), 200.0)
        address = ADDRESS.search(log.read_text())
        assert address, log.read_text()
        yield address[0], process.pid
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def play(shop: str, visitors: int, says_no: bool = False) -> list[bool]:
    """Click on hats on a phone, on boots on a desktop; each request is a connection of its own.

    With `says_no`, the shop hears of visitors who do not click, too.
    """
    clicks = []
    for visitor in range(visitors):
        device = "phone" if visitor % 2 else "desktop"
        found = httpx.get(f"{shop}/banner", params={"device": device}, timeout=60.0).json()
        clicks.append((found["banner"] == "hats") == (device == "phone"))
        if not says_no and not clicks[-1]:
            continue
        path = (
            f"rewards/{found['event']}?value={clicks[-1]:d}"
            if says_no
            else f"clicks/{found['event']}"
        )
        answer = httpx.post(f"{shop}/{path}", timeout=60.0)
        assert answer.status_code == 200, answer.text
    return clicks


def test_web_workers_share_one_service(nursery: Nursery, tmp_path: Path) -> None:
    pytest.importorskip("fastapi", reason="pip install fastapi")
    pytest.importorskip("gunicorn", reason="pip install gunicorn")
    words = ("gunicorn", "--workers", "2", "--worker-class", "asgi", "--bind", "127.0.0.1:0")
    with (
        Server(nursery, tmp_path / "data") as server,
        run_app(
            tmp_path / "log", *words, "web_workers:app", WINDVANE_URL=server.url, RANK_SECONDS="60"
        ) as (
            shop,
            process,
        ),
    ):
        children = Path(f"/proc/{process}/task/{process}/children")
        wait_until(lambda: len(children.read_text().split()) >= 2, 60.0)
        clicks = play(shop, 12)
        with Client(server.url) as client:
            logged = list(client.decisions())
    assert len(logged) == 12
    assert [each.reward for each in logged] == [1.0 if clicked else None for clicked in clicks]


def test_one_process_goes_on_after_a_restart(tmp_path: Path) -> None:
    pytest.importorskip("fastapi", reason="pip install fastapi")
    words = ("uvicorn", "--port", "0", "one_process:app")
    file = tmp_path / "learner.npz"
    with run_app(tmp_path / "first", *words, LEARNER_FILE=str(file)) as (shop, _):
        play(shop, 60, says_no=True)
    assert file.exists()
    with run_app(tmp_path / "second", *words, LEARNER_FILE=str(file)) as (shop, _):
        assert httpx.post(f"{shop}/rewards/nobody?value=1", timeout=60.0).status_code == 404
        assert sum(play(shop, 20, says_no=True)) >= 15  # it knows who likes what; by chance: 10


def test_the_notebook_runs_and_has_no_outputs(tmp_path: Path) -> None:
    nbformat = pytest.importorskip("nbformat", reason="pip install nbclient")
    nbclient = pytest.importorskip("nbclient", reason="pip install nbclient ipykernel")
    pytest.importorskip("ipykernel", reason="pip install nbclient ipykernel")
    source = EXAMPLES / "notebook.ipynb"
    cells = json.loads(source.read_text("utf-8"))["cells"]
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in cells)
    notebook = nbformat.read(source, as_version=4)
    notebook.cells.append(
        nbformat.v4.new_code_cell("print(sum(rewards[200:300]), sum(rewards[-100:]))")
    )
    client = nbclient.NotebookClient(
        notebook, timeout=600, resources={"metadata": {"path": str(tmp_path)}}
    )
    client.execute()
    before, after = map(float, notebook.cells[-1].outputs[0].text.split())
    assert before > 85  # of 100; by chance: 50
    assert after > 85  # although tastes have changed
