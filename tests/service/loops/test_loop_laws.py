"""The end-to-end laws: the service is its learner, and its memory fades."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from server_process import Client, Nursery, Server
from windvane import Learner
from windvane.service.loops.settings import LoopSettings
from windvane.service.store.log import Store
from windvane.service.store.writer.loop_operations import PutLoop

LEARNING = LoopSettings(half_life="60 rounds", seed=5, exploration_percentage=0.2)
SETTINGS = {
    "learning": LEARNING,
    "fading": LoopSettings(half_life="20 rounds", exploration_percentage=0.3),
    "keeping": LoopSettings(half_life="never", exploration_percentage=0.3),
}
SKIES = ("sun", "rain")
ARMS = ("ice", "tea", "soup")


@pytest.fixture(scope="module")
def client(nursery: Nursery, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    data: Path = tmp_path_factory.mktemp("law") / "data"
    with Store(data) as store:
        for name, settings in SETTINGS.items():
            store.write(PutLoop(name, settings.to_json(), 0, "test"))
    with Server(nursery, data) as server:
        client = server.client()
        yield client
        client.close()


def test_choices_over_http_are_those_of_the_learner(client: Client) -> None:
    learner = Learner(half_life="60 rounds", exploration=0.2, seed=5)
    draw = np.random.default_rng(3)
    seen = set()
    for _ in range(120):
        context = {"sky": str(draw.choice(SKIES)), "warmth": float(draw.normal())}
        prices = [float(draw.random()) for _ in ARMS]
        arms = [{"id": name, "price": price} for name, price in zip(ARMS, prices, strict=True)]
        decision = learner.rank(context, arms, at=0.0)
        reward = float(draw.uniform(-1, 1)) if decision.index else 0.5
        learner.reward(decision, reward)
        actions = [
            {"id": name, "features": [{"price": price}]}
            for name, price in zip(ARMS, prices, strict=True)
        ]
        body = {"contextFeatures": [context], "actions": actions}
        response = client.rank(body, "/loops/learning").json
        assert response["rewardActionId"] == decision.action
        shares = [one["probability"] for one in response["ranking"]]
        assert shares == pytest.approx(decision.probabilities.tolist(), rel=1e-9)
        assert client.reward(response["eventId"], reward, "/loops/learning").status == 204
        seen.add(decision.index)
    assert seen == {0, 1, 2}


def play(client: Client, loop: str, rounds: int, best: str) -> float:
    """The mean reward of rounds in which one action earns 1 and all others nothing."""
    body = {"actions": [{"id": name, "features": []} for name in ARMS]}
    total = 0.0
    for _ in range(rounds):
        response = client.rank(body, f"/loops/{loop}").json
        value = float(response["rewardActionId"] == best)
        assert client.reward(response["eventId"], value, f"/loops/{loop}").status == 204
        total += value
    return total / rounds


def test_after_a_change_of_taste_only_a_fading_memory_recovers(client: Client) -> None:
    for loop in ("fading", "keeping"):  # 0.8 at best: three rounds in ten go to any action
        assert play(client, loop, 150, "ice") > 0.6
        play(client, loop, 60, "soup")  # three half-lives
    assert play(client, "fading", 40, "soup") > 0.6
    assert play(client, "keeping", 40, "soup") < 0.4
