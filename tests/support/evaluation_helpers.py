"""A log of decisions whose rewards are known, and waiting for evaluations of it."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

import windvane as wv
from server_process import Client
from store_helpers import SECOND, TERMS, make_requested
from waiting import wait_until
from windvane.beliefs.bank.sides import encode_lesson
from windvane.service.loops.settings import LoopSettings
from windvane.service.store.log import Store
from windvane.service.store.writer.decision_operations import PutDecision
from windvane.service.store.writer.loop_operations import PutLoop
from windvane.service.store.writer.reward_operations import PutReward
from windvane.service.store.writer.server_operations import PutClock

START = 1_790_000_000  # seconds since 1970, the first decision
STEP = 40  # seconds between two decisions
OFFER = json.dumps(
    [
        {"id": "news", "features": [{"topic": "politics"}]},
        {"id": "match", "features": [{"topic": "sports"}]},
        {"id": "song", "features": [{"topic": "music"}]},
    ]
)
IDS = ["news", "match", "song"]
MEAN_REWARDS = {"phone": [0.1, 0.8, 0.4], "desktop": [0.7, 0.2, 0.4]}  # by device and action


def write_log(
    store: Store,
    name: str,
    rows: int,
    exploration: float = 0.3,
    *,
    start: int = START,
    step: int = STEP,
    find_means: Callable[[int], Mapping[str, Sequence[float]]] = lambda row: MEAN_REWARDS,
    **settings: Any,
) -> tuple[int, wv.Learner]:
    """Write decisions of a learner and their rewards; returns the loop and the learner."""
    parsed = LoopSettings(exploration_percentage=exploration, **settings)
    loop = store.write(PutLoop(name, parsed.to_json(), start * SECOND, "test")).id
    learner = parsed.build_learner()
    draws = np.random.default_rng(1)
    actions = [{"id": each["id"], **each["features"][0]} for each in json.loads(OFFER)]
    puts: list[PutDecision | PutReward] = []
    for k in range(rows):
        device = "phone" if draws.random() < 0.5 else "desktop"
        context = {"device": device, "noise": str(draws.integers(3))}
        at = start + k * step
        decision = learner.rank(context, actions, at=at)
        reward = float(draws.random() < find_means(k)[device][decision.index])
        request = json.dumps({"contextFeatures": [context], "actions": json.loads(OFFER)})
        row = make_requested(loop, f"e{k}", at * SECOND, request, OFFER, IDS)._replace(
            round=k,
            chosen=decision.index,
            features=encode_lesson(decision.lesson),
            probabilities=decision.probabilities.tobytes(),
        )
        puts += PutDecision(row, TERMS), PutReward(loop, f"e{k}", reward, at * SECOND, TERMS)
        learner.reward(decision, reward)
        if k % 200 == 199 or k == rows - 1:
            store.write_group(puts)
            puts.clear()
    store.write(PutClock((start + rows * step) * SECOND))
    return loop, learner


def wait_for_end(client: Client, path: str, limit: float = 60.0) -> Any:
    """The evaluation at a path, once it has ended."""
    wait_until(lambda: client.call("GET", path).json["status"] != "pending", limit)
    answer = client.call("GET", path)
    assert answer.status == 200
    return answer.json
