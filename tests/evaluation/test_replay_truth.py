"""DR-ns against the truth: ten learners that were also played on-line in a drifting world.

A replay learns a part of the rows only, so that the truth is what a learner earns live on a site
with this part of the traffic. Beside it stands rejection replay, which scores accepted rows only.
"""

from typing import NamedTuple

import numpy as np
import pytest
from scipy import stats

import windvane as wv
from simulated_log import SECONDS_PER_ROW, MemoryLog
from windvane.evaluation import evaluate
from windvane.evaluation.learners.candidates import PolicyCandidate, read_candidate
from windvane.evaluation.log_batch import LogFacts
from windvane.features.packed_features import Encoder
from windvane.types import Floats, Places

DIM = 12
ROWS = 3000
ACTIONS = 3
NOISE = 0.1
CHANGE_EVERY = 600  # rows
EFFECT = 0.6  # of the context on the reward of all actions
PARTS = (
    ("half_life(3000)", "randomized(half_normal(0.1))"),
    ("half_life(12000)", "randomized(half_normal(0.1))"),
    ("keep()", "randomized(half_normal(0.1))"),
    ("half_life(1500)", "epsilon(0.05)"),
    ("half_life(6000)", "epsilon(0.1)"),
    ("half_life(6000)", "epsilon(0.3)"),
    ("half_life(6000)", "epsilon(0.6)"),
    ("half_life(6000)", "epsilon(0.9)"),
    ("keep()", "epsilon(0.5)"),
    ("keep()", "inverse_gap(5.0)"),
)
TEXTS = [f"full({memory} * {exploration}, dim={DIM})" for memory, exploration in PARTS]


def compute_mean(context: int, action: int, row: int) -> float:
    """The action that fits a context moves on at every change."""
    return EFFECT * context + 0.4 * (action == (context + row // CHANGE_EVERY) % ACTIONS)


def encode_contexts() -> list[Floats]:
    """The arms of each context, as the log has them."""
    rows = np.zeros(3, np.int64)
    log = MemoryLog(np.arange(3), rows, np.full((3, ACTIONS), 1 / ACTIONS), np.zeros(3))
    [batch] = log.iterate_batches()
    assert batch.read_features is not None
    features = [batch.read_features(row) for row in range(3)]
    return [Encoder(DIM).encode(each.context, each.actions) for each in features]


def build(text: str, seed: int) -> wv.Policy:
    candidate = read_candidate(text)
    assert isinstance(candidate, PolicyCandidate)
    policy = candidate.build(LogFacts(ROWS, ACTIONS, 0.3), seed)
    assert isinstance(policy, wv.Policy)
    return policy


def play_live(text: str, seed: int, arms: list[Floats], share: float) -> float:
    """The mean reward of a learner that decides on a share of the rows, of the mean context."""
    rng, policy = np.random.default_rng(seed), build(text, seed)
    total = 0.0
    rows = np.flatnonzero(np.diff(np.floor(share * np.arange(ROWS + 1)))).tolist()
    for row in rows:
        context = int(rng.integers(3))
        choice = policy.choose(arms[context])
        mean = compute_mean(context, choice.index, row)
        policy.learn(choice, mean + NOISE * rng.normal(), at=row * SECONDS_PER_ROW)
        total += mean - EFFECT * (context - 1)
    return total / len(rows)


class SimulatedRows(NamedTuple):
    contexts: Places
    chosen: Places
    rewards: Floats


def simulate(seed: int) -> SimulatedRows:
    """A log of actions that were chosen uniformly at random; each context comes equally often."""
    rng = np.random.default_rng(seed)
    contexts = rng.permutation(np.arange(ROWS) % 3)
    chosen = rng.integers(ACTIONS, size=ROWS)
    means = [compute_mean(c, a, k) for k, (c, a) in enumerate(zip(contexts, chosen, strict=True))]
    return SimulatedRows(contexts, chosen, np.array(means) + NOISE * rng.normal(size=ROWS))


def replay_by_rejection(text: str, seed: int, rows: SimulatedRows, arms: list[Floats]) -> float:
    """The mean reward of the rows in which a learner chooses what was logged."""
    policy, accepted = build(text, seed), []
    for k, (context, logged, reward) in enumerate(zip(*rows, strict=True)):
        choice = policy.choose(arms[context])
        if choice.index == logged:
            policy.learn(choice, reward, at=k * SECONDS_PER_ROW)
            accepted.append(reward)
        else:
            policy.dismiss(choice)
    return float(np.mean(accepted))


@pytest.mark.slow
def test_replay_finds_the_values_and_the_order_of_learners() -> None:
    arms = encode_contexts()
    found: dict[str, list[list[float]]] = {"replay": [], "rejection": []}
    probabilities = np.full((ROWS, ACTIONS), 1 / ACTIONS)
    for seed in range(100, 106):
        rows = simulate(seed)
        log = MemoryLog(*rows[:2], probabilities, rows.rewards)
        policies = evaluate(log, TEXTS, seed=seed).policies
        found["replay"].append([policy.value.value for policy in policies])
        found["rejection"].append([replay_by_rejection(t, seed, rows, arms) for t in TEXTS])
    shares = [policy.replay.acceptance_rate for policy in policies if policy.replay is not None]
    live = zip(TEXTS, shares, strict=True)
    truth = np.array([np.mean([play_live(t, s, arms, p) for s in range(8)]) for t, p in live])
    errors = {method: np.array(values) - truth for method, values in found.items()}
    error = {method: float(np.sqrt(np.mean(each**2))) for method, each in errors.items()}
    order = {
        method: float(np.mean([stats.spearmanr(each, truth).statistic for each in values]))
        for method, values in found.items()
    }
    print(f"error {error}, rank correlation {order}, truth {truth.round(3)}")
    assert error["replay"] < 0.015
    assert error["replay"] < 0.75 * error["rejection"]
    assert order["replay"] > 0.7
    assert order["replay"] > order["rejection"] + 0.1
    assert abs(errors["replay"].mean()) < 0.006  # √(10/60) of the error of one estimate
