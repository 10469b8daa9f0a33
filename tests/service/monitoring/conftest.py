"""A loop whose visitors change their taste, for all tests of monitoring."""

from collections.abc import Iterator

import numpy as np
import pytest

from monitoring_helpers import ChangedLoop, create_loop
from store_helpers import SECOND, TERMS
from windvane.service.loops.rank_requests import OfferedActions
from windvane.service.loops.settings import LoopSettings
from windvane.service.schemas import Action, RankRequest
from windvane.service.store.log import Store
from windvane.service.store.writer.decision_operations import PutDecision
from windvane.service.store.writer.reward_operations import PutReward


@pytest.fixture(scope="package")
def changed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ChangedLoop]:
    """A loop with one decision every second of 1970, whose visitors change from a to b."""
    change, rounds = 300, 450
    with Store(tmp_path_factory.mktemp("data")) as store:
        loop = create_loop(store, LoopSettings(half_life="200 rounds"))
        random, names = np.random.default_rng(1), ["a", "b"]
        for k in range(rounds):
            actions = [Action(name, []) for name in names]
            request = RankRequest(actions=actions, event_id=f"e{k}")
            at = k * SECOND
            decision = loop.decide(request, OfferedActions(actions))._replace(at=at)
            store.write(PutDecision(decision, loop.terms))
            is_liked = (names[decision.chosen] == "a") == (k < change)
            value = float(random.random() < (0.9 if is_liked else 0.1))
            if k % 40:  # the others never get a reward
                put = PutReward(loop.id, f"e{k}", value, at, TERMS)
                loop.learn(store.write(put).lessons)
        yield ChangedLoop(loop, change * SECOND, rounds * SECOND)
