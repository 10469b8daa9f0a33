"""A service killed at any moment loses nothing acknowledged; its belief follows from its log."""

import http.client
import json
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

from server_process import BASE, Answer, Client, Nursery, Server
from windvane.service.loops.settings import Settings
from windvane.service.store.admin_operations import PutLoop
from windvane.service.store.database import resolve_url
from windvane.service.store.log import Store
from windvane.service.store.service_lock import hold_service_lock

KILLS = 50
SETTINGS = {
    "default": Settings(dim=16, half_life="200 rounds"),
    "sums": Settings(dim=16, half_life="10 minutes", reward_aggregation="sum"),
    "hasty": Settings(dim=8, half_life="40 rounds", reward_wait_time="PT0.2S", default_reward=0.25),
}


class AcknowledgedReward(NamedTuple):
    """A reward to which the service answered 204."""

    loop: str
    event: str
    request: str
    value: float


class Visitor(threading.Thread):
    """Sends random requests until `over` is set, and records the answers."""

    def __init__(self, number: int, port: int, over: threading.Event) -> None:
        super().__init__(name=f"visitor {number}")
        self.number, self.port, self.over = number, port, over
        self.draw = random.Random(number)
        self.client = Client(port, timeout=20.0)
        self.events: list[tuple[str, str]] = []  # loop and event of every rank ever sent
        self.answers: dict[tuple[str, str], bytes] = {}
        self.rewards: list[AcknowledgedReward] = []
        self.activated: set[tuple[str, str]] = set()
        self.unexpected: list[str] = []
        self.counts: Counter[str] = Counter()

    def run(self) -> None:
        while not self.over.is_set():
            try:
                self.draw.choices(
                    [self.rank, self.reward, self.activate, self.put], [5, 5, 1, 0.1]
                )[0]()
            except (OSError, http.client.HTTPException):
                self.counts["cut"] += 1  # killed during a request: it may be in the log or not
                time.sleep(0.01)
        self.client.close()

    def pick_event(self) -> tuple[str, str]:
        """Pick a recent event, any event, or sometimes one that has no decision yet."""
        if not self.events or self.draw.random() < 0.05:
            return self.draw.choice(list(SETTINGS)), f"{self.number}-{len(self.events) + 2}"
        recent = self.events[-5:] if self.draw.random() < 0.8 else self.events
        return self.draw.choice(recent)

    def rank(self) -> None:
        again = self.events and self.draw.random() < 0.2
        loop, event = self.pick_event() if again else (self.draw.choice(list(SETTINGS)), "")
        event = event or f"{self.number}-{len(self.events)}"
        self.events.append((loop, event))
        names = self.draw.sample("abcdef", self.draw.randint(1, 5))
        answer = self.ask(
            "POST",
            loop,
            "rank",
            {
                "eventId": event,
                "contextFeatures": [{"hour": self.draw.random()}],
                "actions": [
                    {"id": name, "features": [{"x": self.draw.random()}]} for name in names
                ],
                "deferActivation": self.draw.random() < 0.2,
            },
        )
        self.expect(answer, 201)
        if json.loads(answer.body)["degraded"]:
            self.counts["degraded"] += 1
        elif self.answers.setdefault((loop, event), answer.body) != answer.body:
            self.unexpected.append(f"{event} was ranked twice: {answer.body!r}")

    def reward(self) -> None:
        loop, event = self.pick_event()
        value = round(self.draw.uniform(-1, 1), 3)
        request = f"{self.number}-{self.draw.randrange(10**9)}"
        for _ in range(2 if self.draw.random() < 0.1 else 1):  # a client that repeats its request
            answer = self.ask("POST", loop, f"events/{event}/reward", {"value": value}, request)
            self.expect(answer, 204)
            reward = AcknowledgedReward(loop, event, request, value)
            if not self.rewards or self.rewards[-1] != reward:
                self.rewards.append(reward)

    def activate(self) -> None:
        loop, event = self.pick_event()
        answer = self.ask("POST", loop, f"events/{event}/activate")
        self.expect(answer, 204 if (loop, event) in self.answers else answer.status)
        if answer.status == 204:
            self.activated.add((loop, event))

    def put(self) -> None:
        share = round(self.draw.uniform(0.05, 0.3), 3)
        body = {"explorationPercentage": share}
        self.expect(self.ask("PUT", "default", "configurations/service", body), 200)

    def ask(
        self, method: str, loop: str, path: str, body: object = None, request: str = ""
    ) -> Answer:
        headers = {"x-ms-client-request-id": request} if request else {}
        answer = self.client.call(method, f"/loops/{loop}{BASE}/{path}", body, headers)
        self.counts[path.rpartition("/")[2]] += 1
        return answer

    def expect(self, answer: Answer, status: int) -> None:
        if answer.status != status:
            self.unexpected.append(f"{status} was expected, got {answer}")


FOLD = """
import json, sys
from windvane.service.loops.loop import Loop
from windvane.service.store.log import Store
from windvane.service.loops.warmup import compile_kernels, load_kernels

compile_kernels()
load_kernels()
for data in sys.argv[1:]:
    with Store(data) as store:
        loops = [Loop(row, store) for row in store.list_loops()]
    bits = {loop: (loop.policy._arrays.block, loop.policy._arrays.tally) for loop in loops}
    beliefs = {
        loop.name: (loop.last_lesson, *(part.tobytes().hex() for part in parts))
        for loop, parts in bits.items()
    }
    print(json.dumps(beliefs))
"""


def read_beliefs(*places: Path) -> list[dict[str, list[Any]]]:
    """Open each directory, and read the last lesson and the bits of the belief of every loop.

    This runs in a process of its own, which loads compiled code in the order of the service.
    """
    paths = os.pathsep.join(filter(None, sys.path))
    done = subprocess.run(
        [sys.executable, "-c", FOLD, *map(str, places)],
        env=os.environ | {"PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=True,
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def copy_without_snapshots(data: Path, scratch: Path) -> Path:
    """Copy a directory and delete its snapshots, so that all is learned from the log."""
    shutil.rmtree(scratch, ignore_errors=True)
    shutil.copytree(data, scratch)
    [file] = scratch.glob("*.db")
    with sqlite3.connect(file) as connection:
        connection.execute("DELETE FROM snapshots")
    connection.close()
    return scratch


def check_belief(data: Path, scratch: Path) -> dict[str, list[Any]]:
    """Check that the belief with snapshots has the same bits as the fold over all lessons."""
    opened = scratch / "opened"
    shutil.rmtree(opened, ignore_errors=True)
    shutil.copytree(data, opened)
    with_snapshots, from_log = read_beliefs(opened, copy_without_snapshots(data, scratch / "fresh"))
    assert with_snapshots == from_log
    return with_snapshots


def test_a_service_killed_at_any_moment_loses_nothing_acknowledged(
    nursery: Nursery, tmp_path: Path
) -> None:
    data, scratch, draw = tmp_path / "data", tmp_path / "scratch", random.Random(11)
    with Store(data) as store:
        for name, settings in SETTINGS.items():
            store.submit(PutLoop(name, settings.to_json(), 0, "test")).result()
    over = threading.Event()
    with Server(nursery, data) as server:
        visitors = [Visitor(number, server.port, over) for number in range(3)]
        for visitor in visitors:
            visitor.start()
        try:
            for kill in range(KILLS):
                if kill % 3:
                    server.wait()  # the others are killed while they start
                time.sleep(draw.uniform(0.0, 0.6))
                if kill % 10 == 5:
                    server.stop()  # a stop writes a snapshot
                    server.start()
                    server.wait()
                server.kill()
                if kill % 10 == 9:
                    with hold_service_lock(resolve_url(data), 5.0):  # the writer has ended
                        check_belief(data, scratch)
                server.start()
            server.wait()
        finally:
            over.set()
            for visitor in visitors:
                visitor.join(30.0)
        for visitor in visitors:
            assert visitor.unexpected == []
        again = server.client()
        for visitor in visitors:  # another request with the same event id
            for (loop, event), answer in visitor.answers.items():
                body = {"eventId": event, "actions": [{"id": "new", "features": []}]}
                assert again.rank(body, f"/loops/{loop}").body == answer
        again.close()
        server.stop()
        lately = check_belief(data, scratch)
    assert all(lesson > 50 for lesson, _, _ in lately.values())
    with Store(data) as store:
        ids = {row.name: row.id for row in store.list_loops()}
        for visitor in visitors:
            for loop, event in visitor.answers:
                decision = store.find_decision(ids[loop], event)
                assert decision is not None
                assert decision.answer == visitor.answers[loop, event]
            for reward in visitor.rewards:
                rows = store.list_rewards(ids[reward.loop], reward.event)
                assert reward.value in [row.value for row in rows]
                assert [row.request_id for row in rows].count(reward.request) == 1
            for loop, event in visitor.activated:
                assert store.find_decision(ids[loop], event) is not None
        funnel = [store.read_funnel(number) for number in ids.values()]
    total = sum((visitor.counts for visitor in visitors), Counter[str]())
    assert min(total[what] for what in ("rank", "reward", "activate", "cut")) >= KILLS, total
    assert total["degraded"] < total["rank"] / 100
    assert all(
        sum(getattr(one, what) for one in funnel)
        for what in ("learned", "summed", "default", "late", "orphan", "duplicate", "extra")
    ), funnel
