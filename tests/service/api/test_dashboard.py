"""The dashboard in a real browser, over loops that were played over HTTP."""

import csv
import random
import re
import time
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, quote, urlsplit

import httpx2
import pytest

from browser_pages import open_page
from server_process import Nursery, Server

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Route


HOSTILE = "<img src=x onerror=alert(1)>"
EVENTS = 300
REWARDED = 240
TURN = 300  # event at which the visitors of the loop `turned` change their taste


@pytest.fixture(scope="module")
def served(server: Server) -> str:
    """The address of a running service with three loops."""
    for loop in ({"name": "empty"}, {"name": "turned", "settings": {"halfLife": "300 rounds"}}):
        assert httpx2.post(f"{server.url}/loops", json=loop, timeout=60).status_code == 201
    return server.url


@pytest.fixture(scope="module")
def played(served: str) -> str:
    """A service whose default loop has made decisions, most of them with a reward."""
    generator = random.Random(5)
    with httpx2.Client(base_url=f"{served}/personalizer/v1.0", timeout=60) as client:
        for k in range(EVENTS):
            time_ = generator.choice(["morning", "evening"])
            names = [HOSTILE, "coffee", "juice"]
            actions = [{"id": name, "features": [{"warm": name != "juice"}]} for name in names]
            body = {
                "eventId": f"event/{k}",
                "contextFeatures": [{"time": time_}],
                "actions": actions,
            }
            response = client.post("/rank", json=body)
            assert response.status_code == 201
            good = "coffee" if time_ == "morning" else "juice"
            value = float(response.json()["rewardActionId"] == good)
            if k < REWARDED:
                path = f"/events/{quote(f'event/{k}', safe='')}/reward"
                assert client.post(path, json={"value": value}).status_code == 204
        for k in range(3):
            assert client.post(f"/events/orphan{k}/reward", json={"value": 1}).status_code == 204
    return served


@pytest.fixture(scope="module")
def turned(served: str) -> str:
    """The address of a loop whose visitors have changed their taste."""
    generator = random.Random(6)
    base = f"{served}/loops/turned/personalizer/v1.0"
    actions = [{"id": name, "features": list[object]()} for name in ("coffee", "tea", "juice")]
    with httpx2.Client(base_url=base, timeout=60) as client:
        for k in range(TURN + 150):
            response = client.post("/rank", json={"actions": actions}).json()
            liked = response["rewardActionId"] == ("coffee" if k < TURN else "juice")
            value = float(generator.random() < (0.8 if liked else 0.1))
            client.post(f"/events/{response['eventId']}/reward", json={"value": value})
    return f"{served}/loops/turned"


@pytest.mark.parametrize(("scheme", "wide"), [("light", 1200), ("dark", 1200), ("light", 390)])
def test_dashboard_shows_the_played_loop(
    played: str, browser: "Browser", problems: list[str], tmp_path: Path, scheme: str, wide: int
) -> None:
    page = open_page(browser, problems, scheme, wide)
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
    labels = page.locator("#arrived dt").all_inner_texts()
    assert labels[:4] == ["ranked", "activated", "rewarded", "default reward"]
    counts = page.locator("#arrived dd.amount").all_inner_texts()
    assert counts[:4] == [str(EVENTS), str(EVENTS), str(REWARDED), "0"]
    assert "A decision earns" in page.locator("#learning .answer").inner_text()
    assert page.locator("#learning polyline, #learning circle").count() >= 3
    page.locator("#learning svg").hover()
    assert page.locator("#learning .cursor").get_attribute("visibility") == "visible"
    assert page.locator("#learning .legend").inner_text().count("\n") >= 6
    assert HOSTILE in page.locator("#chosen .legend").inner_text()
    page.fill("#event", "event/7")
    page.click("#lookup-form button")
    page.locator("#why:not(:empty)").wait_for()
    assert "was chosen" in page.locator("#why").inner_text()
    assert page.locator("#options dt").count() == 3
    assert page.locator("#reasons dt").count() >= 3
    assert "learned" in page.locator("#rewards").inner_text()
    assert page.locator("img").count() == 0
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.screenshot(path=tmp_path / f"{scheme}-{wide}.png", full_page=True)
    assert problems == []
    page.close()


def test_dashboard_shows_what_is_drifting(browser: "Browser", played: str) -> None:
    page = browser.new_page()
    page.goto(played)
    rows = page.locator("#moving dt")
    rows.first.wait_for()
    assert "action" in " ".join(rows.all_inner_texts())
    texts = page.locator("#moving dd.amount").all_inner_texts()
    assert all("% after 3" in text for text in texts)  # 30, 300 or 3,000 rewards
    assert "parts that fade after 30, 300" in page.locator("#forgetting .answer").inner_text()
    note = page.locator("#half-life-note").inner_text()
    assert "Rewards differ from their predictions by 0." in note
    page.close()


def test_an_empty_loop_shows_commands_until_its_first_decision(
    played: str, browser: "Browser", problems: list[str]
) -> None:
    page = open_page(browser, problems, "light")
    page.goto(f"{played}/loops/empty")
    page.locator("#rank-command").wait_for()
    assert "/loops/empty/personalizer/v1.0/rank" in page.locator("#rank-command").inner_text()
    assert not page.locator("#learning").is_visible()
    body = {"eventId": "first", "actions": [{"id": "tea", "features": []}]}
    httpx2.post(f"{played}/loops/empty/personalizer/v1.0/rank", json=body, timeout=60)
    page.locator("[data-count=ranked]").wait_for()
    assert page.locator("[data-count=ranked]").inner_text() == "1"
    assert problems == []
    page.close()


def test_dashboard_and_metrics_show_a_change_of_taste(
    turned: str, served: str, browser: "Browser", problems: list[str], tmp_path: Path
) -> None:
    data = httpx2.get(f"{served}/board/turned.json", timeout=60).json()
    while data["behind"]:  # a busy machine needs several requests to read the whole log
        data = httpx2.get(f"{served}/board/turned.json", timeout=60).json()
    page = open_page(browser, problems, "light")
    page.goto(turned)
    page.locator("#drift .alarm-head").first.wait_for()
    for place in ("#error", "#movement", "#learning"):
        for kind, field in (("errors", "alarms"), ("clicks", "clickAlarms")):
            heads = page.locator(f"{place} .alarm-head.{kind}")
            assert heads.count() == len(data["drift"][field])
    assert "worse than usual once" in page.locator("#drift .answer").inner_text()
    moved = [each for each in data["drift"]["movement"] if each]
    assert page.locator("#movement rect.bar").count() == len(moved) > 1
    page.screenshot(path=tmp_path / "turned.png", full_page=True)
    assert 'windvane_drift_alarms{loop="turned"} 1.0' in httpx2.get(f"{served}/metrics").text
    assert problems == []
    page.close()


def test_the_two_alarms_look_different(
    turned: str, browser: "Browser", problems: list[str]
) -> None:
    def add_alarms(route: "Route") -> None:
        response = route.fetch()
        data = response.json()
        data["drift"] |= {"alarms": [1], "clickAlarms": [1, 3]}
        route.fulfill(response=response, json=data)

    page = open_page(browser, problems, "light")
    page.route("**/board/turned.json*", add_alarms)
    page.goto(turned)
    page.locator("#error .alarm-head.clicks").first.wait_for()
    assert page.locator("#error .alarm-head.errors").count() == 1
    assert page.locator("#error .alarm-head.clicks").count() == 2
    looks = [
        page.locator(f"#error {part}.{kind}").first.evaluate(
            "each => [getComputedStyle(each).fill, getComputedStyle(each).stroke,"
            " getComputedStyle(each).strokeDasharray, each.getAttribute('d')?.slice(-12)]"
        )
        for kind in ("errors", "clicks")
        for part in (".alarm-head", ".alarm")
    ]
    assert looks[0][0] != looks[2][0]  # the color of the head
    assert looks[0][3] != looks[2][3]  # its shape
    assert looks[1][1:3] != looks[3][1:3]  # the color and the dashes of the line
    names = page.locator("#error .legend i.errors, #error .legend i.clicks").count()
    assert names == 2
    page.unroute_all(behavior="wait")
    assert problems == []
    page.close()


def test_dashboard_shows_new_decisions_without_a_reload(
    turned: str, served: str, browser: "Browser", problems: list[str]
) -> None:
    page = open_page(browser, problems, "dark")
    page.goto(turned)
    ranked = page.locator("[data-count=ranked]")
    before = int(ranked.inner_text())
    names = page.locator("#chosen .legend .name").all_inner_texts()
    page.evaluate("window.loaded = true")
    page.locator("#learning svg").evaluate("svg => { svg.dataset.old = 'yes' }")
    body = {"eventId": "newest", "actions": [{"id": "cocoa", "features": []}]}
    httpx2.post(f"{turned}/personalizer/v1.0/rank", json=body, timeout=60)
    httpx2.post(f"{turned}/personalizer/v1.0/events/newest/reward", json={"value": 1}, timeout=60)
    page.locator(f"[data-count=ranked]:text-is('{before + 1}')").wait_for()
    page.locator("#learning svg:not([data-old])").wait_for(state="attached")
    assert page.locator("#chosen .legend .name").all_inner_texts() == [*names, "cocoa"]
    page.locator("#recent button", has_text="newest").click()
    page.locator("#why:not(:empty)").wait_for()
    assert "No other action could be chosen" in page.locator("#why").inner_text()
    assert page.evaluate("window.loaded")
    assert problems == []
    page.close()


def test_dashboard_says_that_the_wall_clock_is_not_believed(
    played: str, browser: "Browser", problems: list[str]
) -> None:
    """And its ranges end at service time, a day before the clock of the browser."""

    def add_doubt(route: "Route") -> None:
        response = route.fetch()
        clock = {"answer": "The wall clock is 24 hours ahead.", "offset": 86_400}
        route.fulfill(response=response, json=response.json() | {"clock": clock})

    page = open_page(browser, problems, "light")
    page.route("**/board/*.json*", add_doubt)
    page.goto(played)
    page.wait_for_selector("#clock:not([hidden])")
    assert page.inner_text("#clock") == "The wall clock is 24 hours ahead."
    with page.expect_request(re.compile(r"since=")) as asked:
        page.select_option("#range", "3600")
    since = int(parse_qs(urlsplit(asked.value.url).query)["since"][0])
    assert time.time() - since / 1e6 > 86_400
    page.unroute_all(behavior="wait")
    page.close()


def test_dashboard_says_that_an_event_cannot_be_looked_up_without_the_service(
    played: str, browser: "Browser", problems: list[str]
) -> None:
    page = open_page(browser, problems, "light")
    page.goto(played)
    page.wait_for_selector("#lookup:not([hidden])")
    page.route("**/events/*", lambda route: route.abort())
    page.fill("#event", "some event")
    page.click("#lookup-form button")
    page.locator("#lookup-error:not(:empty)").wait_for()
    assert page.inner_text("#lookup-error") == "The service cannot be reached."
    page.unroute_all(behavior="wait")
    page.close()


def test_a_product_manager_sees_per_cents_tables_and_no_number_alone(
    played: str, browser: "Browser", problems: list[str]
) -> None:
    data = httpx2.get(f"{played}/board/default.json?by=time", timeout=60).json()
    while data["behind"]:
        data = httpx2.get(f"{played}/board/default.json?by=time", timeout=60).json()
    page = open_page(browser, problems, "light")
    page.goto(played)
    page.locator("#by-segment tbody tr").first.wait_for()
    tiles = page.locator("#tiles .tile")
    assert [each.count() for each in (tiles, tiles.locator("small"))] == [4, 4]
    lift = data["learning"]["overUniform"]["lift"]
    tile = tiles.nth(2).inner_text()
    assert tile.startswith(f"+{100 * lift['value']:.0f} %")
    assert f"+{100 * lift['low']:.0f} % to +{100 * lift['high']:.0f} %" in tile
    rows = page.locator("#actions tbody tr")
    assert rows.locator("th").all_inner_texts() == [
        row["name"] for row in data["chosen"]["actions"]
    ]
    first = data["chosen"]["actions"][0]
    words = rows.first.inner_text()
    assert f"{first['count']} (" in words
    reward = first["reward"]
    assert f"{reward['value']:.3f} ({reward['low']:.3f} to {reward['high']:.3f})" in words
    assert page.locator("#feature option").all_inner_texts() == ["time"]
    segments = page.locator("#by-segment tbody th").all_inner_texts()
    assert sorted(segments) == ["evening", "morning"]
    assert page.locator("#zone").inner_text() == "times: UTC"
    assert problems == []
    page.close()


def test_tables_are_downloaded_as_csv(
    played: str, browser: "Browser", problems: list[str], tmp_path: Path
) -> None:
    page = open_page(browser, problems, "light")
    page.goto(played)
    page.locator("#by-segment tbody tr").first.wait_for()
    tables: dict[str, list[dict[str, str]]] = {}
    for part in ("time", "actions", "segments"):
        with page.expect_download() as waited:
            page.click(f"[data-download={part}]")
        assert waited.value.suggested_filename == f"default-{part}.csv"
        waited.value.save_as(tmp_path / part)
        with (tmp_path / part).open(encoding="utf-8-sig", newline="") as file:
            tables[part] = list(csv.DictReader(file))
    assert sum(int(row["decisions"]) for row in tables["time"]) == EVENTS
    assert tables["time"][0]["from"].endswith("Z")
    assert {row["action"] for row in tables["actions"]} == {HOSTILE, "coffee", "juice"}
    assert {row["time"] for row in tables["segments"]} == {"morning", "evening"}
    for row in (*tables["actions"], *tables["segments"]):
        low, value, high = (float(row[f"mean reward{end}"]) for end in (" low", "", " high"))
        assert low <= value <= high
    assert "gain over the first action high" in tables["segments"][0]
    formula = page.evaluate(
        "import('/static/tables.js').then(t => t.formatCsv([['=1+1', 'a,\"b\"', null, -2.5]]))"
    )
    assert formula == '\'=1+1,"a,""b""",,-2.5\r\n'
    assert problems == []
    page.close()


def test_a_link_opens_the_same_view(played: str, browser: "Browser", problems: list[str]) -> None:
    page = open_page(browser, problems, "light")
    page.goto(f"{played}/loops/default")
    page.locator("#by-segment tbody tr").first.wait_for()
    page.select_option("#range", "86400")
    page.fill("#event", "event/7")
    page.click("#lookup-form button")
    page.locator("#why:not(:empty)").wait_for()
    assert page.url.endswith("/loops/default?range=86400&event=event%2F7")
    page.reload()
    page.locator("#why:not(:empty)").wait_for()
    assert page.input_value("#event") == "event/7"
    assert page.input_value("#range") == "86400"
    page.locator("#by-segment tbody tr").first.wait_for()

    data = httpx2.get(f"{played}/board/default.json", timeout=60).json()
    link = page.locator("#view-link").get_attribute("href")
    assert f"since={data['since']}&until={data['until'] + 1}&by=time" in str(link)
    with page.expect_request(re.compile(r"/board/default\.json")) as asked:
        page.click("#view-link")
    assert f"since={data['since']}&until={data['until'] + 1}" in asked.value.url
    page.locator("#actions tbody tr").first.wait_for()
    assert page.input_value("#range") == "fixed"
    assert "UTC" in page.locator("#range option:checked").inner_text()
    page.select_option("#range", "")
    assert "since" not in page.url
    assert problems == []
    page.close()


def test_dashboard_data_is_sent_once_and_bad_requests_are_refused(played: str) -> None:
    first = httpx2.get(f"{played}/board.json")
    assert [loop["name"] for loop in first.json()["loops"]] == ["default", "empty", "turned"]
    again = httpx2.get(f"{played}/board.json", headers={"if-none-match": first.headers["etag"]})
    assert again.status_code == 304
    assert httpx2.get(f"{played}/board/default.json?since=1e9").status_code == 400
    assert httpx2.get(f"{played}/board/none.json").status_code == 404
    assert httpx2.get(f"{played}/board/default/events/nobody").status_code == 404
    later = httpx2.get(f"{played}/board/default.json?since=99999999999999999").json()
    assert later["decisions"] == 0


def test_the_page_loads_only_files_of_this_service(served: str) -> None:
    page = httpx2.get(served)
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    policy = page.headers["content-security-policy"].split("; ")
    assert {"default-src 'none'", "script-src 'self'", "style-src 'self'"} <= set(policy)
    assert "unsafe" not in page.headers["content-security-policy"]
    assert re.findall(r"https?:", page.text) == []


MEDIA_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
STATIC = Path(str(files("windvane.service.api"))) / "static"


@pytest.mark.parametrize(
    "name", sorted(file.name for file in STATIC.iterdir() if file.suffix in MEDIA_TYPES)
)
def test_a_file_of_the_page_is_sent_once(served: str, name: str) -> None:
    first = httpx2.get(f"{served}/static/{name}")
    assert first.status_code == 200
    assert first.headers["content-type"] == MEDIA_TYPES[Path(name).suffix]
    assert first.headers["x-content-type-options"] == "nosniff"
    tag = first.headers["etag"]
    again = httpx2.get(f"{served}/static/{name}", headers={"if-none-match": tag})
    assert (again.status_code, again.content) == (304, b"")


@pytest.mark.parametrize("name", ["none.js", "..%2Fdashboard.py", "__init__.py"])
def test_only_files_of_the_page_are_sent(served: str, name: str) -> None:
    assert httpx2.get(f"{served}/static/{name}").status_code == 404


@pytest.mark.parametrize("path", ["/", "/loops/default"])
def test_with_keys_a_browser_opens_the_dashboard_by_password(
    nursery: Nursery, tmp_path: Path, browser: "Browser", problems: list[str], path: str
) -> None:
    from windvane.service.api.auth import create_key
    from windvane.service.store.log import Store

    key = create_key("read", 0)
    with Store(tmp_path / "data") as store:
        store.write(key.put)
    with Server(nursery, tmp_path / "data") as server:
        url = server.url
        for part in ("/", "/static/dashboard.js", "/static/dashboard.css", "/board.json"):
            assert httpx2.get(url + part).status_code == 401
        page = open_page(browser, problems, "light", password=key.secret)
        page.goto(url + path)
        page.locator("#rank-command").wait_for()
        assert page.locator("#status").inner_text() == "live"
        assert page.locator("#loops option").all_inner_texts() == ["default"]
        page.close()
        page = open_page(browser, problems, "light")  # the password is in the address
        page.goto(url.replace("://", f"://:{key.secret}@") + path)
        page.locator("#rank-command").wait_for()
        assert page.locator("#status").inner_text() == "live"
        page.close()
    # The browser sends the password only after the service has asked for it.
    assert all("401" in problem for problem in problems)
