"""Policies and learners that threads share: each step happens whole, in some order."""

import copy
import io
import pickle
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest

import windvane as wv
from choosers import CHOOSERS_AND_LEARNER

THREADS = 8
ARMS = np.random.default_rng(3).standard_normal((5, 3)) / 2
ACTIONS = [{"id": f"action-{k}", "size": float(k)} for k in range(5)]
REWARDS = np.random.default_rng(4).integers(0, 2, 10_000).astype(float).tolist()
Shared = wv.Chooser | wv.Learner

ROUNDS = {  # of each thread
    **dict.fromkeys(("full", "diagonal", "widths", "window", "restart"), 500),
    **dict.fromkeys(("poisson", "predictive", "bandits", "learner"), 100),
}


@pytest.fixture(autouse=True)
def _switch_often() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def choose(policy: Shared) -> Any:
    if isinstance(policy, wv.Learner):
        return policy.rank({"device": "phone"}, ACTIONS, at=0.0)
    return policy.choose(ARMS)


def learn(policy: Shared, choice: Any) -> None:
    reward = REWARDS[choice.round]
    if isinstance(policy, wv.Learner):
        policy.reward(choice, reward)
    else:
        policy.learn(choice, reward)


def keep_journal(policy: Shared) -> list[tuple[str, int]]:
    """List every step of a policy, from now on: choose or learn, and the round."""
    journal: list[tuple[str, int]] = []
    is_learner = isinstance(policy, wv.Learner)
    hooks = ("rank_packed", "learn") if is_learner else ("_record_choice", "learn_row")

    def follow(step: str, inner: Callable[..., object], *args: Any) -> object:
        of_choice = policy.round if step == "choose" else args[3 if is_learner else 2]
        outcome = inner(*args)
        journal.append((step, of_choice))
        return outcome

    for step, hook in zip(("choose", "learn"), hooks, strict=True):
        vars(policy)[hook] = partial(follow, step, getattr(policy, hook))
    return journal


def run_threads(work: Callable[[], object]) -> None:
    """Run the same work in several threads that start together; an error in one is an error."""
    start, errors = threading.Barrier(THREADS), []

    def run() -> None:
        start.wait()
        try:
            work()
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=run) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors, errors[0]


@pytest.mark.parametrize("name", ROUNDS)
def test_threads_that_share_a_policy_do_what_one_thread_does_in_some_order(name: str) -> None:
    """No reward is lost, no round is given twice, and the belief has the bits of one thread."""
    rounds = ROUNDS[name]
    policy, alone = (CHOOSERS_AND_LEARNER[name](5) for _ in range(2))
    journal = keep_journal(policy)
    choices = []

    def play() -> None:
        for _ in range(rounds):
            choice = choose(policy)
            choices.append(choice)
            learn(policy, choice)

    run_threads(play)
    count = THREADS * rounds
    assert sorted(choice.round for choice in choices) == list(range(count))
    assert sorted(journal) == [(step, t) for step in ("choose", "learn") for t in range(count)]
    by_round = {choice.round: choice for choice in choices}
    for step, round_ in journal:
        if step == "choose":
            assert choose(alone) == by_round[round_]
        else:
            learn(alone, by_round[round_])
    assert alone == policy


def reload(policy: Shared) -> Shared:
    file = io.BytesIO()
    policy.save(file)
    file.seek(0)
    return type(policy).load(file)


@pytest.mark.parametrize("name", ["widths", "diagonal", "learner"])
def test_what_is_read_while_other_threads_learn_is_of_one_moment(name: str) -> None:
    """At every moment, what was learned plus the open rounds are all rounds."""
    policy = CHOOSERS_AND_LEARNER[name](5)
    ways: list[Callable[[Shared], Any]] = [
        reload,
        copy.copy,
        copy.deepcopy,
        lambda each: pickle.loads(pickle.dumps(each)),
    ]
    turns = iter(range(10**6))

    def play() -> None:
        for _ in range(60):
            choice = choose(policy)
            twin = ways[next(turns) % len(ways)](policy)
            is_learner = isinstance(twin, wv.Learner)
            learned = twin.bank.lessons if is_learner else twin.belief.seen
            assert learned + len(twin._open) == twin.round
            assert choose(twin).round == learned + len(twin._open) - 1
            if isinstance(policy, wv.Chooser):
                assert policy.propensities(ARMS).sum() == pytest.approx(1.0)
            learn(policy, choice)

    run_threads(play)


def test_a_reward_that_threads_send_at_once_counts_once() -> None:
    policy = wv.Policy(3, wv.keep(), wv.greedy(), seed=5)
    refusals = []
    for _ in range(100):
        choice = policy.choose(ARMS)

        def send(choice: wv.Choice = choice) -> None:
            try:
                policy.learn(choice, 1.0)
            except wv.errors.ChoiceError as error:
                refusals.append(error)

        run_threads(send)
    assert policy.belief.seen == 100
    assert len(refusals) == 100 * (THREADS - 1)


def test_two_policies_can_be_compared_from_both_sides_at_once() -> None:
    """Each comparison locks both of them."""
    policies = [wv.Policy(3, wv.keep(), wv.greedy(), seed=5) for _ in range(2)]
    turns = iter(range(THREADS))

    def compare() -> None:
        first, second = policies if next(turns) % 2 else reversed(policies)
        for _ in range(200):
            assert first == second

    run_threads(compare)
