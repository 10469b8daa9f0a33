"""The demo: a service, and simulated visitors over HTTP whose tastes change every minute."""

import http.client
import json
import random
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable

from windvane.service.app import EdgeOptions, create_app
from windvane.service.json_logging import log_to_stderr
from windvane.service.loops.settings import LoopSettings
from windvane.service.server import Address, run

TOPICS = ("politics", "sports", "music", "science", "food")
DEVICES = ("phone", "desk")
CHANGE_SECONDS = 60.0  # between two changes of taste
REPORT_SECONDS = 5.0  # between two lines of output
PAUSE_SECONDS = 0.02  # between two visitors
LATE_SECONDS = 12.0  # age of a late reward, above the wait of DEMO_SETTINGS
DEMO_SETTINGS = LoopSettings(reward_wait_time="PT10S", exploration_percentage=0.05)
CLICK_IF_LIKED = 0.7  # probabilities of a click
CLICK_OTHERWISE = 0.1
PROMPT_REWARDS = 0.95  # share of the rewards that are sent at once
LATE_REWARDS = 0.02  # share of the rewards that are sent too late; the others are never sent
BASE = "/personalizer/v1.0"
ACTIONS = [{"id": topic, "features": [{"topic": topic}]} for topic in TOPICS]


def find_liked_topic(device: str, second: float) -> str:
    period = int(second // CHANGE_SECONDS)
    return TOPICS[(period * 2 + DEVICES.index(device)) % len(TOPICS)]


class Visitors:
    """Simulated visitors, one after the other, until `stop` is set."""

    def __init__(self, url: str, say: Callable[[str], None]) -> None:
        host = url.removeprefix("http://")
        self._connection = http.client.HTTPConnection(host, timeout=10)
        self._random = random.Random(1)
        self._say = say
        self._late_rewards: deque[tuple[float, str, bool]] = deque()  # second, event, click
        self.stop = threading.Event()
        self.visit_count = 0  # since the last report
        self.click_count = 0

    def play(self) -> None:
        """Simulate visitors and report how many clicked."""
        started = reported = time.monotonic()
        while not self.stop.wait(PAUSE_SECONDS):
            try:
                self.visit(time.monotonic() - started)
            except (OSError, http.client.HTTPException):  # the service was stopped first
                return
            if time.monotonic() - reported >= REPORT_SECONDS:
                reported = time.monotonic()
                self.report(reported - started)

    def visit(self, second: float) -> None:
        """Simulate one visitor, who sees one topic and clicks or not."""
        device = self._random.choice(DEVICES)
        request = {"contextFeatures": [{"device": device}], "actions": ACTIONS}
        response = json.loads(self._post("/rank", request))
        is_liked = response["rewardActionId"] == find_liked_topic(device, second)
        probability = CLICK_IF_LIKED if is_liked else CLICK_OTHERWISE
        has_clicked = self._random.random() < probability
        self.visit_count += 1
        self.click_count += has_clicked
        promptness = self._random.random()
        if promptness < PROMPT_REWARDS:
            self._send_reward(response["eventId"], has_clicked)
        elif promptness < PROMPT_REWARDS + LATE_REWARDS:
            late = second + LATE_SECONDS, response["eventId"], has_clicked
            self._late_rewards.append(late)
        while self._late_rewards and self._late_rewards[0][0] <= second:
            self._send_reward(*self._late_rewards.popleft()[1:])

    def report(self, second: float) -> None:
        """Print one line on the visitors since the last report."""
        at_random = (CLICK_IF_LIKED + (len(TOPICS) - 1) * CLICK_OTHERWISE) / len(TOPICS)
        self._say(
            f"{second:4.0f} s: {self.visit_count} visitors, "
            f"{self.click_count / self.visit_count:.0%} clicked "
            f"(at best {CLICK_IF_LIKED:.0%}, at random {at_random:.0%}); "
            f"tastes change every {CHANGE_SECONDS:.0f} s"
        )
        self.visit_count = 0
        self.click_count = 0

    def _send_reward(self, event: str, has_clicked: bool) -> None:
        self._post(f"/events/{event}/reward", {"value": float(has_clicked)})

    def _post(self, path: str, body: object) -> bytes:
        self._connection.request("POST", BASE + path, json.dumps(body))
        return self._connection.getresponse().read()


def run_demo(minutes: float | None, port: int, say: Callable[[str], None]) -> None:
    """Run a service with simulated visitors for some minutes, or until Ctrl-C if None."""
    with tempfile.TemporaryDirectory(prefix="windvane-demo-") as folder:
        started: list[tuple[Visitors, threading.Thread]] = []

        def start_visitors(url: str) -> None:
            print(f"{url}/", flush=True)
            say("this is the dashboard; Ctrl-C ends the demo")
            visitors = Visitors(url, say)
            thread = threading.Thread(target=visitors.play, daemon=True)
            started.append((visitors, thread))
            thread.start()

        seconds = None if minutes is None else minutes * 60
        app = create_app(folder, DEMO_SETTINGS, edge=EdgeOptions(answers_while_loading=True))
        log_to_stderr()
        run(app, Address("127.0.0.1", port), start_visitors, seconds)
        for visitors, thread in started:
            visitors.stop.set()
            thread.join()
