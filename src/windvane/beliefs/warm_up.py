"""`warm_up`: load or compile what policies and learners need, before anybody waits for it.

The build of a wheel calls it too, and keeps what it compiles (`_numba/installed_code.py`).
"""

import io
from typing import Any

import numpy as np

from windvane.beliefs.bank.feature_parts import pick_action
from windvane.beliefs.glm.policy import GeneralizedPolicy
from windvane.exploration import EXPLORATIONS
from windvane.learner import Learner
from windvane.memory import MEMORIES
from windvane.policy import Policy

LARGE_DIM = 129  # above 128 dimensions other functions choose and learn
ROUNDS = 40  # of a learner, until its tables have grown once


def warm_up() -> None:
    """Load the machine code of every memory, exploration and learner; compile what is not on disk.

    A process that has called it does not wait for the compiler at its first choice. Code that is
    compiled is kept on disk for later processes.

    >>> import windvane as wv
    >>> wv.warm_up()
    """
    warm_up_learner()
    for policy in _list_policies():
        arms = np.eye(3, policy.dim)
        policy.learn(policy.choose(arms), 1.0)
        policy.choose_with_propensities(arms)
        policy.learn_many(arms, [1.0, 0.0, 1.0])
    clicks = GeneralizedPolicy(3, "logistic", "discount(0.99)", scale=0.5, seed=1)
    clicks.learn(clicks.choose(np.eye(3)), 1.0)


def warm_up_learner() -> None:
    """Load, or compile, what ranks, rewards and explanations need."""
    learner = Learner(seed=1)
    for i in range(ROUNDS):
        actions: list[Any] = [{"id": "news", "topic": f"{i}", "age": float(i)}, "match"]
        context = {"device": f"{i}", "place": [float(i), 1.0], "size": float(i)}
        decision = learner.rank(context, actions)
        learner.reward(decision, 1.0)
    page = learner.rank_slots(context, actions, ["top", {"id": "side", "size": 1.0}])
    learner.reward_page(page, 1.0)
    learner.amend_page([each.lesson for each in page], 0.0, page[0].at, page[0].round)
    learner.amend(decision.lesson, 0.0, decision.at, decision.round)
    pick_action(decision.lesson, 0)
    learner.bank.predict(decision.lesson, learner.now)
    learner.explain(decision)
    file = io.BytesIO()
    learner.save(file)
    Learner.load(io.BytesIO(file.getvalue()))


def _list_policies() -> list[Policy]:
    memories = [kind.examples[0] for kind in MEMORIES.values()]
    explorations = [kind.examples[0] for kind in EXPLORATIONS.values()]
    return [
        *(Policy(dim, seed=1) for dim in (3, LARGE_DIM)),
        *(Policy(3, memory, "thompson(0.5)", seed=1) for memory in memories),
        *(Policy(3, "discount(0.9)", exploration, seed=1) for exploration in explorations),
        Policy(LARGE_DIM, "discount(0.99)", "thompson(0.5)", seed=1),
        Policy(3, "keep()", "optimism(1)", belief="diagonal", seed=1),
        Policy(3, "keep()", "thompson(0.5)", belief="diagonal", seed=1),
    ]
