"""Visitors whose tastes change every minute, played against a service over real HTTP."""

import http.client
import json
import random
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable

from windvane.service.app import create_app
from windvane.service.loops.settings import Settings
from windvane.service.server import Address, run

TOPICS = ("politics", "sports", "music", "science", "food")
DEVICES = ("phone", "desk")
EVERY = 60.0  # seconds between two changes of taste
TELL = 5.0  # seconds between two lines
PAUSE = 0.02  # seconds between two visitors
SLOW = 12.0  # seconds after which a reward comes too late
SETTINGS = Settings(
    half_life="30 seconds", reward_wait_time="PT10S", exploration_percentage=0.05, dim=64
)
LIKED, OTHERWISE = 0.7, 0.1  # chances of a click
BASE = "/personalizer/v1.0"
ACTIONS = [{"id": topic, "features": [{"topic": topic}]} for topic in TOPICS]


def taste(device: str, second: float) -> str:
    """What visitors with a device like at a time."""
    turn = int(second // EVERY)
    return TOPICS[(turn * 2 + DEVICES.index(device)) % len(TOPICS)]


class Visitors:
    """Ask, look, and click or not, until told to stop."""

    def __init__(self, url: str, say: Callable[[str], None]) -> None:
        host = url.removeprefix("http://")
        self._wire = http.client.HTTPConnection(host, timeout=10)
        self._random = random.Random(1)
        self._say = say
        self._slow: deque[tuple[float, str, bool]] = deque()  # rewards that come later
        self.stop = threading.Event()
        self.seen = self.clicks = 0

    def play(self) -> None:
        """All visitors, one after the other."""
        began = told = time.monotonic()
        while not self.stop.wait(PAUSE):
            try:
                self.visit(time.monotonic() - began)
            except (OSError, http.client.HTTPException):  # the service stops before we do
                return
            if time.monotonic() - told >= TELL:
                told = time.monotonic()
                self.tell(told - began)

    def visit(self, second: float) -> None:
        """One visitor."""
        device = self._random.choice(DEVICES)
        wanted = {"contextFeatures": [{"device": device}], "actions": ACTIONS}
        made = json.loads(self._post("/rank", wanted))
        liked = made["rewardActionId"] == taste(device, second)
        click = self._random.random() < (LIKED if liked else OTHERWISE)
        self.seen += 1
        self.clicks += click
        promptness = self._random.random()  # some rewards come too late, and some never
        if promptness < 0.95:
            self._reward(made["eventId"], click)
        elif promptness < 0.97:
            self._slow.append((second + SLOW, made["eventId"], click))
        while self._slow and self._slow[0][0] <= second:
            self._reward(*self._slow.popleft()[1:])

    def tell(self, second: float) -> None:
        """One line on how it goes; it starts to count anew."""
        chance = (LIKED + (len(TOPICS) - 1) * OTHERWISE) / len(TOPICS)
        self._say(
            f"{second:4.0f} s: {self.seen} visitors, {self.clicks / self.seen:.0%} clicked "
            f"(at best {LIKED:.0%}, at random {chance:.0%}); tastes change every {EVERY:.0f} s"
        )
        self.seen = self.clicks = 0

    def _reward(self, event: str, click: bool) -> None:
        self._post(f"/events/{event}/reward", {"value": float(click)})

    def _post(self, path: str, body: object) -> bytes:
        self._wire.request("POST", BASE + path, json.dumps(body))
        return self._wire.getresponse().read()


def play(minutes: float | None, port: int, say: Callable[[str], None]) -> None:
    """Serve and play until Ctrl-C, or for some minutes."""
    with tempfile.TemporaryDirectory(prefix="windvane-demo-") as folder:
        playing: list[tuple[Visitors, threading.Thread]] = []

        def ready(url: str) -> None:
            print(f"{url}/", flush=True)
            say("this is the board; Ctrl-C ends the demo")
            visitors = Visitors(url, say)
            thread = threading.Thread(target=visitors.play, daemon=True)
            playing.append((visitors, thread))
            thread.start()

        span = None if minutes is None else minutes * 60
        run(create_app(folder, SETTINGS), Address("127.0.0.1", port), ready, span)
        for visitors, thread in playing:
            visitors.stop.set()
            thread.join()
