"""The board in a real browser, over a loop that was played over HTTP."""

import asyncio
import random
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import httpx
import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

CHROMIUM = "/usr/bin/chromium"
HOSTILE = "<img src=x onerror=alert(1)>"
EVENTS = 300
REWARDED = 240


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a running service."""
    uvicorn = pytest.importorskip("uvicorn", reason="pip install 'windvane[serve]'")
    from windvane.service.app import make
    from windvane.service.settings import Settings

    app, port = make(str(tmp_path_factory.mktemp("data"))), free_port()
    config = uvicorn.Config(app, "127.0.0.1", port, log_level="error", ws="none")
    server = uvicorn.Server(config)
    running = threading.Thread(target=lambda: asyncio.run(server.serve()))
    running.start()
    try:
        while not server.started:
            time.sleep(0.05)
        [loop] = {server.servers[0].get_loop()}
        new = app.state.service.create("empty", Settings(), "test")
        asyncio.run_coroutine_threadsafe(new, loop).result(60)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        running.join(20)


@pytest.fixture(scope="module")
def played(served: str) -> str:
    """A service whose default loop has made decisions and had most of their rewards."""
    chance = random.Random(5)
    with httpx.Client(base_url=f"{served}/personalizer/v1.0", timeout=60) as client:
        for k in range(EVENTS):
            time_ = chance.choice(["morning", "evening"])
            names = [HOSTILE, "coffee", "juice"]
            actions = [{"id": name, "features": [{"warm": name != "juice"}]} for name in names]
            body = {
                "eventId": f"event/{k}",
                "contextFeatures": [{"time": time_}],
                "actions": actions,
            }
            answer = client.post("/rank", json=body)
            assert answer.status_code == 201
            good = "coffee" if time_ == "morning" else "juice"
            value = float(answer.json()["rewardActionId"] == good)
            if k < REWARDED:
                where = f"/events/{quote(f'event/{k}', safe='')}/reward"
                assert client.post(where, json={"value": value}).status_code == 204
        for k in range(3):
            assert client.post(f"/events/orphan{k}/reward", json={"value": 1}).status_code == 204
    return served


@pytest.fixture(scope="module")
def browser() -> "Iterator[Browser]":
    sync_api = pytest.importorskip(
        "playwright.sync_api", reason="pip install playwright to look at the board in a browser"
    )
    if not Path(CHROMIUM).exists():
        pytest.skip("apt-get install chromium to look at the board in a browser")
    with sync_api.sync_playwright() as playwright:
        found = playwright.chromium.launch(
            executable_path=CHROMIUM,
            args=["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"],
        )
        yield found
        found.close()


@pytest.fixture
def heard() -> list[str]:
    """Errors and dialogs of the page."""
    return []


def open_page(browser: "Browser", heard: list[str], scheme: str, wide: int = 1200) -> "Page":
    page = browser.new_page(
        color_scheme="dark" if scheme == "dark" else "light",
        viewport={"width": wide, "height": 900},
    )
    page.on("console", lambda said: heard.append(said.text) if said.type == "error" else None)
    page.on("pageerror", lambda error: heard.append(str(error)))
    page.on("dialog", lambda dialog: heard.append(dialog.message))
    return page


@pytest.mark.parametrize(("scheme", "wide"), [("light", 1200), ("dark", 1200), ("light", 390)])
def test_board_shows_the_played_loop(
    played: str, browser: "Browser", heard: list[str], tmp_path: Path, scheme: str, wide: int
) -> None:
    page = open_page(browser, heard, scheme, wide)
    page.goto(played)
    for name, count in (
        ("ranked", EVENTS),
        ("activated", EVENTS),
        ("learned", REWARDED),
        ("default", 0),
        ("waiting", EVENTS - REWARDED),
        ("orphan", 3),
    ):
        assert page.locator(f"[data-count={name}]").inner_text() == str(count)
    assert "A decision earns" in page.locator("#learning .answer").inner_text()
    assert page.locator("#learning polyline, #learning circle").count() >= 3
    assert HOSTILE in page.locator("#chosen .legend").inner_text()
    page.fill("#event", "event/7")
    page.click("#find button")
    page.locator("#why:not(:empty)").wait_for()
    assert "was chosen" in page.locator("#why").inner_text()
    assert page.locator("#options dt").count() == 3
    assert page.locator("#reasons dt").count() >= 3
    assert "learned" in page.locator("#rewards").inner_text()
    assert page.locator("img").count() == 0
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.screenshot(path=tmp_path / f"{scheme}-{wide}.png", full_page=True)
    assert heard == []
    page.close()


def test_board_goes_on_by_itself(played: str, browser: "Browser", heard: list[str]) -> None:
    page = open_page(browser, heard, "light")
    page.goto(f"{played}/loops/empty")
    page.locator("#ask").wait_for()
    assert "/loops/empty/personalizer/v1.0/rank" in page.locator("#ask").inner_text()
    assert not page.locator("#learning").is_visible()
    body = {"eventId": "first", "actions": [{"id": "tea", "features": []}]}
    httpx.post(f"{played}/loops/empty/personalizer/v1.0/rank", json=body, timeout=60)
    page.locator("[data-count=ranked]").wait_for()
    assert page.locator("[data-count=ranked]").inner_text() == "1"
    assert heard == []
    page.close()


def test_board_data_is_sent_once_and_refuses_nonsense(played: str) -> None:
    first = httpx.get(f"{played}/board.json")
    assert [loop["name"] for loop in first.json()["loops"]] == ["default", "empty"]
    again = httpx.get(f"{played}/board.json", headers={"if-none-match": first.headers["etag"]})
    assert again.status_code == 304
    assert httpx.get(f"{played}/board/default.json?since=1e9").status_code == 400
    assert httpx.get(f"{played}/board/none.json").status_code == 404
    assert httpx.get(f"{played}/board/default/events/nobody").status_code == 404
    later = httpx.get(f"{played}/board/default.json?since=99999999999999999").json()
    assert later["decisions"] == 0
    assert "default-src 'none'" in httpx.get(played).headers["content-security-policy"]
