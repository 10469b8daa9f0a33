"""The panel of evaluations in a real browser: start, read, cancel and apply; who may do what."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2
import pytest

from browser_pages import open_page
from evaluation_helpers import MEAN_REWARDS, write_log
from server_process import Nursery, Server
from waiting import wait_until
from windvane.service.api.auth import create_key
from windvane.service.store.log import Store

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Route

ROWS = 2000
WAIT_MILLISECONDS = 180_000  # an evaluation only gets the time that nobody else needs
ADMIN, READ = create_key("admin", 0), create_key("read", 0)
BASE = "/loops/default/personalizer"
BOARD = "/board/default/evaluation.json"
POLICIES = ("halfLife=2 hours", "window(100) * greedy()", "explorationPercentage=0.05")
TURN_EVERY_ROWS = 500  # 5½ hours
CONTROLS = ("#evaluate-form", "#cancel-evaluation", "#apply")


@pytest.fixture(scope="module")
def url(nursery: Nursery, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A service with keys and two loops that never forget, though tastes turn round and round."""

    def find_means(row: int) -> dict[str, list[float]]:
        means = [*MEAN_REWARDS.values()]
        turns = row // TURN_EVERY_ROWS % 2
        return dict(zip(MEAN_REWARDS, means[turns:] + means[:turns], strict=True))

    data = tmp_path_factory.mktemp("evaluate") / "data"
    with Store(data) as store:
        for loop in ("default", "fresh"):
            write_log(store, loop, ROWS, exploration=0.8, half_life="never", find_means=find_means)
        for key in (ADMIN, READ):
            store.write(key.put)
    with Server(nursery, data) as server:
        yield server.url


@pytest.fixture(scope="module")
def evaluated(url: str) -> str:
    """The id of an evaluation of the default loop that has ended."""
    body = {
        "name": "before the tests",
        "startTime": "1970-01-02",
        "endTime": "2100-01-01",
        "policies": [{"name": each, "arguments": each} for each in POLICIES],
    }
    answer = call(url, "POST", f"{BASE}/v1.0/evaluations", ADMIN.secret, body)
    id_: str = answer.json()["id"]
    wait_until(lambda: list_evaluations(url)[id_] != "pending", WAIT_MILLISECONDS / 1000)
    assert list_evaluations(url)[id_] == "completed"
    return id_


def call(url: str, method: str, path: str, secret: str, body: object = None) -> Any:
    headers = {"ocp-apim-subscription-key": secret}
    return httpx2.request(method, url + path, headers=headers, json=body, timeout=60)


def list_evaluations(url: str) -> dict[str, str]:
    """The statuses of all evaluations, by id."""
    evaluations = call(url, "GET", f"{BASE}/v1.0/evaluations", READ.secret).json()
    return {each["id"]: each["status"] for each in evaluations}


def open_panel(
    browser: "Browser", problems: list[str], url: str, secret: str, loop: str = "default"
) -> "Page":
    """A page that was opened by password; its panel is there."""
    page = open_page(browser, problems, "light", password=secret)
    page.goto(f"{url}/loops/{loop}")
    page.locator("#evaluate .answer:not(:empty)").first.wait_for()
    return page


def enter_admin_key(page: "Page") -> None:
    page.locator("#admin-key summary").click()
    page.fill("#admin-key-text", ADMIN.secret)
    page.click("#admin-key-form button")
    page.locator("#evaluate-form").wait_for()


def see_controls(page: "Page") -> list[str]:
    return [control for control in CONTROLS if page.locator(control).is_visible()]


def test_an_evaluation_is_started_read_and_applied_on_the_page(
    url: str, browser: "Browser", problems: list[str], tmp_path: Path
) -> None:
    page = open_panel(browser, problems, url, READ.secret, "fresh")
    assert "No evaluation was made yet" in page.locator("#evaluate .answer").first.inner_text()
    assert see_controls(page) == []
    enter_admin_key(page)
    page.uncheck("#evaluate-grid")
    page.fill("#evaluate-policies", "nonsense")
    page.click("#evaluate-form button")
    page.locator("#evaluate-error:not(:empty)").wait_for()
    assert "nonsense" in page.locator("#evaluate-error").inner_text()
    page.fill("#evaluate-policies", "\n".join(POLICIES))
    page.click("#evaluate-form button")
    page.locator("#evaluation-progress").wait_for()
    page.locator("#evaluation-result").wait_for(timeout=WAIT_MILLISECONDS)

    panel = call(url, "GET", "/board/fresh/evaluation.json", READ.secret).json()
    lines = {line["id"]: line for line in panel["shown"]["policies"]}
    assert panel["shown"]["decisions"] == ROWS
    assert next(iter(lines)) == "current"
    names = page.locator(".policy > .name").all_inner_texts()
    assert names[0] == "this loop"
    fixed = {"what was logged", "always the first action", "a random action"}
    assert {*fixed, "half-life 2 hours, exploration 80 %"} < {*names}
    line = lines[POLICIES[0]]
    assert line["verdict"] == "better", line
    answer = page.locator("#evaluate .answer").first.inner_text()
    assert answer.startswith("Yes. ")
    assert "better with 95 % confidence" in answer

    page.locator(".policy", has_text="window(100)").click()
    assert "A loop cannot run this policy" in page.locator("#policy-apply").inner_text()
    assert not page.locator("#apply").is_visible()
    page.locator(".policy", has_text="exploration 5 %").click()
    assert "exploration cannot be tuned" in page.locator("#policy-sentence").inner_text()
    assert not page.locator("#apply").is_visible()
    page.locator(".policy", has_text="half-life 2 hours").press("Enter")
    assert page.locator("#policy-sentence").inner_text().startswith(line["sentence"])
    assert page.locator("#policy-chart polyline, #policy-chart circle").count() >= 2
    assert page.locator("#difference-chart polyline, #difference-chart circle").count() >= 1
    value = page.locator("#policy-value").inner_text()
    assert value.startswith(line["valueSentence"])
    assert f"The difference is {line['lift']} (" in value
    with page.expect_download() as download:
        page.click("#report-link")
    report = download.value.path().read_text("utf-8")
    assert line["change"] in report
    page.locator("#evaluate").screenshot(path=tmp_path / "evaluated.png")
    page.click("#apply")
    page.click("#apply-cancel")
    assert page.locator("#last-change").is_hidden()
    page.click("#apply")
    assert page.locator("#apply-changes").inner_text() == "half-life never → 2 hours"
    page.click("#apply-confirm")
    page.locator("#last-change").wait_for()
    assert page.locator("#last-change").inner_text().endswith(": half-life never → 2 hours.")
    assert "The loop has these settings." in page.locator("#policy-apply").inner_text()
    path = "/loops/fresh/personalizer/configurations/service"
    settings = call(url, "GET", path, READ.secret).json()
    assert settings["halfLife"] == "2 hours"
    page.close()
    # The browser sends the password after the service has asked for it; nonsense is refused.
    assert all("401" in problem or "400" in problem for problem in problems)


def test_a_read_key_sees_the_results_and_cannot_change_anything(
    url: str, evaluated: str, browser: "Browser", problems: list[str]
) -> None:
    page = open_panel(browser, problems, url, READ.secret)
    page.locator("#evaluation-result").wait_for()
    assert page.locator(".policy > .name").count() == 8  # 7 policies and the axis
    assert see_controls(page) == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.close()
    panel = call(url, "GET", BOARD, READ.secret).json()
    assert panel["canChange"] is False
    assert call(url, "GET", BOARD, ADMIN.secret).json()["canChange"] is True
    by_password = httpx2.get(url + BOARD, auth=("", ADMIN.secret), timeout=60)
    assert by_password.json()["canChange"] is False  # a browser sends it for other sites, too
    assert panel["shown"]["id"] == evaluated
    body = {"evaluationId": evaluated, "policyName": POLICIES[0]}
    path = f"{BASE}/v1.0/configurations/applyFromEvaluation"
    assert call(url, "POST", path, READ.secret, body).status_code == 403
    missing = call(url, "GET", f"{BOARD}?id=nobody", READ.secret)
    assert missing.status_code == 404
    assert call(url, "GET", "/board/none/evaluation.json", READ.secret).status_code == 404


def test_the_report_is_for_readers_and_may_load_nothing(
    url: str, evaluated: str, browser: "Browser", problems: list[str]
) -> None:
    path = f"/board/default/evaluation.html?id={evaluated}"
    answer = call(url, "GET", path, READ.secret)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "frame-ancestors 'none'" in policy
    assert httpx2.get(url + path, timeout=60).status_code == 401
    assert call(url, "GET", f"{path}0", READ.secret).status_code == 404
    assert call(url, "GET", "/board/fresh/evaluation.html?id=none", READ.secret).status_code == 404
    page = open_page(browser, problems, "dark", password=READ.secret)
    page.goto(url + path)
    # the style sheet is the one that the policy allows
    assert page.evaluate("getComputedStyle(document.body).maxWidth") == "960px"
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.close()
    assert all("401" in problem for problem in problems)


def test_an_evaluation_that_runs_is_cancelled_on_the_page(
    url: str, browser: "Browser", problems: list[str]
) -> None:
    before = list_evaluations(url)
    page = open_panel(browser, problems, url, READ.secret)
    enter_admin_key(page)
    page.select_option("#evaluate-period", "")
    page.click("#evaluate-form button")
    page.click("#cancel-evaluation")
    page.locator("#evaluation-progress").wait_for(state="hidden")
    assert list_evaluations(url) == before
    page.close()


@pytest.mark.parametrize(("scheme", "wide"), [("dark", 1200), ("light", 390)])
def test_names_of_policies_are_never_markup(
    url: str, evaluated: str, browser: "Browser", problems: list[str], scheme: str, wide: int
) -> None:
    name = "<img src=x onerror=alert(1)>"

    def rename(route: "Route") -> None:
        response = route.fetch()
        panel = response.json()
        for line in panel["shown"]["policies"]:
            line |= {"name": name, "sentence": name, "text": name, "verdictWords": name}
        route.fulfill(response=response, json=panel)

    page = open_page(browser, problems, scheme, wide, READ.secret)
    page.add_init_script(f"sessionStorage.setItem('key', '{READ.secret}')")
    page.route("**/evaluation.json*", rename)
    page.goto(url)
    page.locator("#evaluations option").first.wait_for(state="attached")
    page.select_option("#evaluations", evaluated)
    page.locator(".policy", has_text="<img").first.wait_for()
    assert page.locator("img").count() == 0
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert all("401" in problem for problem in problems)
    page.unroute_all(behavior="wait")
    page.close()
