"""Traffic: visitors that send random requests, and a record of all that the service answered."""

import http.client
import json
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from server_process import BASE, Answer, Client

# A decision of loop `hasty` is soon closed with the default reward. The other loops wait for longer
# than a case takes, so that nothing is learned any more when beliefs are compared.
# Loop `purged` has its log deleted now and then; loop `sums` has its model deleted. The settings of
# `plain` and `hasty` are changed. No loop may fall back to the settings with which all begin.
FIRST_SETTINGS: dict[str, object] = {"rewardWaitTime": "PT0.1S", "logRetentionDays": 0}
PATIENT: dict[str, object] = {"rewardWaitTime": "PT6H", "logRetentionDays": 90}
LOOPS: dict[str, dict[str, object]] = {
    "plain": {"halfLife": "200 rounds", **PATIENT},
    "sums": {"halfLife": "10 minutes", "rewardAggregation": "sum", **PATIENT},
    "hasty": {
        "halfLife": "40 rounds",
        "rewardWaitTime": "PT0.2S",
        "defaultReward": 0.25,
        "logRetentionDays": 90,
    },
    "purged": {"halfLife": "2 days", **PATIENT},
    "learner": PATIENT,  # all that decides has its default
}
HALF_LIVES = ("100 rounds", "200 rounds", "5 minutes", "1 day", "never")
MODES = ("Online", "Apprentice", "LoggingOnly")
SHORT_WAITS = ("PT0.2S", "PT1S", "PT4S")
LONG_WAITS = ("PT5H", "PT6H")
REQUEST_TIMEOUT_SECONDS = 60.0
REST_SECONDS = 0.02  # after a request that failed: a failing service answers at once
REFUSALS = (429, 503)  # "send it again": nothing was promised
MAX_UNEXPECTED = 20  # that a visitor keeps

EventKey = tuple[str, str]  # loop and event id


class AcknowledgedReward(NamedTuple):
    """A reward to which the service answered 204."""

    loop: str
    event: str
    request: str
    value: float
    sent: float  # monotonic seconds


class AcknowledgedRank(NamedTuple):
    """The answer to a rank request that was not degraded."""

    body: bytes
    sent: float  # monotonic seconds


class Visitor(threading.Thread):
    """Sends random requests until `over` is set, and records the answers."""

    def __init__(self, number: int, port: int, seed: int, over: threading.Event) -> None:
        super().__init__(name=f"visitor {number}", daemon=True)
        self.number, self.over = number, over
        self.draw = random.Random(f"{seed} {number}")
        self.client = Client(port, timeout=REQUEST_TIMEOUT_SECONDS)
        self.events: list[EventKey] = []  # of every rank request ever sent
        self.times_sent: Counter[EventKey] = Counter()
        self.answers: dict[EventKey, AcknowledgedRank] = {}
        self.degraded: set[EventKey] = set()  # asked for once, and answered with a degraded choice
        self.rewarded_early: set[EventKey] = set()  # rewards were sent before the rank request
        self.rewards: list[AcknowledgedReward] = []
        self.activated: dict[EventKey, float] = {}  # monotonic seconds
        self.shares: list[float] = []  # exploration shares of acknowledged changes of settings
        self.mode: str | None = None  # of loop `plain`; None: unknown, nobody else changes it
        self.modes: dict[EventKey, str] = {}  # in which decisions of `plain` must be
        self.weights = {"rank": 5.0, "reward": 5.0, "activate": 1.0}
        if number == 0:
            self.weights |= {"put_settings": 0.3, "delete_log": 0.1, "delete_model": 0.05}
        self.last_deletion = 0.0  # of the log of loop `purged`; monotonic seconds
        self.unexpected: list[str] = []
        self.slowest_seconds = 0.0
        self.counts: Counter[str] = Counter()

    def run(self) -> None:
        while not self.over.is_set():
            [name] = self.draw.choices(list(self.weights), list(self.weights.values()))
            try:
                getattr(self, name)()
            except TimeoutError:
                self.note_unexpected(f"no answer within {REQUEST_TIMEOUT_SECONDS:.0f} seconds")
            except (OSError, http.client.HTTPException):
                self.counts["cut"] += 1  # the service died: the request may be in the log or not
                time.sleep(REST_SECONDS)
        self.client.close()

    def pick_event(self) -> EventKey:
        """Pick a recent event, any event, or sometimes one that has no decision yet."""
        if not self.events or self.draw.random() < 0.05:
            return self.draw.choice(list(LOOPS)), f"{self.number}-{len(self.events) + 2}"
        recent = self.events[-5:] if self.draw.random() < 0.8 else self.events
        return self.draw.choice(recent)

    def rank(self) -> None:
        key = self.draw.choice(list(LOOPS)), f"{self.number}-{len(self.events)}"
        if self.events and self.draw.random() < 0.2:
            again = self.pick_event()
            key = key if again in self.degraded else again
        while key in self.degraded:  # an event that has no decision yet may have been asked for
            key = key[0], f"{key[1]}-new"
        loop, event = key
        self.events.append(key)
        self.times_sent[key] += 1
        sent = time.monotonic()
        answer = self.ask("POST", loop, "rank", self.make_rank_body(event))
        if not self.expect(answer, 201):
            return
        if json.loads(answer.body)["degraded"]:
            self.counts["degraded"] += 1
            time.sleep(REST_SECONDS)
            if self.times_sent[key] == 1 and key not in self.rewarded_early:
                self.degraded.add(key)
            return
        if self.mode is not None and loop == "plain" and self.times_sent[key] == 1:
            self.modes[key] = self.mode
        known = self.answers.setdefault(key, AcknowledgedRank(answer.body, sent))
        if known.body != answer.body and loop == "purged":  # the first decision was deleted
            self.answers[key] = AcknowledgedRank(answer.body, sent)
        elif known.body != answer.body:
            self.note_unexpected(f"event {event} of {loop} has two answers: {answer.body!r}")

    def make_rank_body(self, event: str) -> dict[str, object]:
        names = self.draw.sample("abcdef", self.draw.randint(1, 5))
        return {
            "eventId": event,
            "contextFeatures": [{"hour": self.draw.random()}],
            "actions": [{"id": name, "features": [{"x": self.draw.random()}]} for name in names],
            "deferActivation": self.draw.random() < 0.2,
        }

    def reward(self) -> None:
        loop, event = self.pick_event()
        if not self.times_sent[loop, event]:
            self.rewarded_early.add((loop, event))
        value = round(self.draw.uniform(-1, 1), 3)
        request = f"{self.number}-{self.draw.randrange(10**9)}"
        for _ in range(2 if self.draw.random() < 0.1 else 1):  # a client that repeats its request
            sent = time.monotonic()
            answer = self.ask("POST", loop, f"events/{event}/reward", {"value": value}, request)
            is_new = not self.rewards or self.rewards[-1].request != request
            if self.expect(answer, 204) and is_new:
                self.rewards.append(AcknowledgedReward(loop, event, request, value, sent))

    def activate(self) -> None:
        loop, event = self.pick_event()
        sent = time.monotonic()
        answer = self.ask("POST", loop, f"events/{event}/activate")
        is_known = loop != "purged" and (loop, event) in self.answers
        if self.expect(answer, 204, *(() if is_known else (400,))) and answer.status == 204:
            self.activated[loop, event] = sent

    def put_settings(self) -> None:
        share = self.draw.randrange(10**8) / 10**9
        loop = self.draw.choice(["plain", "hasty"])
        body: dict[str, object] = {
            "explorationPercentage": share,
            "halfLife": self.draw.choice(HALF_LIVES),
            "defaultReward": round(self.draw.uniform(-1, 1), 6),
            "rewardWaitTime": self.draw.choice(SHORT_WAITS if loop == "hasty" else LONG_WAITS),
            "logRetentionDays": self.draw.choice([-1, 30, 90]),
        }
        mode = None
        if loop == "plain":
            mode = body["learningMode"] = self.draw.choice(MODES)
            self.mode = None
        if self.expect(self.ask("PUT", loop, "configurations/service", body), 200):
            self.shares.append(share)
            self.mode = mode or self.mode

    def delete_model(self) -> None:
        self.expect(self.ask("DELETE", "sums", "model"), 204)

    def delete_log(self) -> None:
        try:
            self.expect(self.ask("DELETE", "purged", "logs"), 204)
        finally:
            self.last_deletion = time.monotonic()

    def ask(
        self, method: str, loop: str, path: str, body: object = None, request: str = ""
    ) -> Answer:
        headers = {"x-ms-client-request-id": request} if request else {}
        began = time.monotonic()
        answer = self.client.call(method, f"/loops/{loop}{BASE}/{path}", body, headers)
        self.slowest_seconds = max(self.slowest_seconds, time.monotonic() - began)
        self.counts[path.rpartition("/")[2]] += 1
        return answer

    def expect(self, answer: Answer, *statuses: int) -> bool:
        """Whether the answer has one of the statuses; one that must not be is noted."""
        if answer.status in statuses:
            return True
        if answer.status in REFUSALS:
            self.counts["refused"] += 1
            time.sleep(REST_SECONDS)
        else:
            self.note_unexpected(f"status {answer.status} instead of {statuses}: {answer.body!r}")
        return False

    def note_unexpected(self, sentence: str) -> None:
        self.counts["unexpected"] += 1
        if len(self.unexpected) < MAX_UNEXPECTED:
            self.unexpected.append(sentence)


def create_loops(client: Client) -> None:
    """Create the loops of all visitors."""
    for name, settings in LOOPS.items():
        body = {"name": name, "settings": FIRST_SETTINGS}
        created = client.call("POST", "/loops", body)
        changed = client.call("PUT", f"/loops/{name}{BASE}/configurations/service", settings)
        if (created.status, changed.status) != (201, 200):
            raise RuntimeError(f"loop {name} cannot be created: {created}, {changed}")


@contextmanager
def run_visitors(port: int, count: int, seed: int) -> Iterator[list[Visitor]]:
    """Send traffic while the block runs."""
    over = threading.Event()
    visitors = [Visitor(number, port, seed, over) for number in range(count)]
    for visitor in visitors:
        visitor.start()
    try:
        yield visitors
    finally:
        over.set()
        for visitor in visitors:
            visitor.join(2 * REQUEST_TIMEOUT_SECONDS)
