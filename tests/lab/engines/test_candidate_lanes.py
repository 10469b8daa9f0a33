"""Candidates side by side: the sums of the formulas, and the arms of the adaptive policies."""

import numpy as np
import pytest

import windvane as wv
from game import play_round_by_round
from windvane._numba.lanes import LANES
from windvane.beliefs.adaptive.policies import Adaptive
from windvane.beliefs.adaptive.selection import Adaptation, bandits, predictive
from windvane.beliefs.full.layout import build_rules
from windvane.lab import worlds
from windvane.lab.engines.adaptive import make_candidates, replay_adaptive
from windvane.lab.engines.candidate_lanes import (
    MOST_DIMENSIONS,
    can_play_in_lanes,
    copy_packed,
    lay_out_candidates,
    learn_in_lanes,
    make_candidate_lanes,
    predict_in_lanes,
)
from windvane.lab.engines.game import Player
from windvane.types import Records

KEY = 77
RIDGE = 0.7
EXPLORATIONS = [
    wv.thompson(0.4),
    wv.optimism(wv.confidence(0.1, 0.4)),
    wv.randomized(wv.half_normal(wv.confidence(0.1, 0.4))),
    wv.epsilon(0.1),
    wv.inverse_gap(20.0),
]


def build_all_rules(adaptation: Adaptation, exploration: wv.Exploration, dim: int) -> Records:
    memories = adaptation.memories
    return np.concatenate([build_rules(dim, m, exploration, RIDGE, 0.0) for m in memories])


@pytest.mark.parametrize("rounds", [1, 3, 8, 200])
def test_lanes_hold_the_sums_of_the_formulas(rounds: int) -> None:
    """S, S̃, b, W⁻¹, θ̂, the root and the prediction of ten candidates, from all observations."""
    d, random = 6, np.random.default_rng(rounds)
    adaptation = predictive("discount", 2)
    rules, rows = build_all_rules(adaptation, wv.thompson(0.4), d), lay_out_candidates(d)
    lanes = make_candidate_lanes(rules, rows)
    assert lanes.shape == (2, rows.end, LANES)
    X, y = random.standard_normal((rounds, d)), random.standard_normal(rounds)
    for x, reward in zip(X, y, strict=True):
        for group in lanes:
            learn_in_lanes(rules, group, rows, x, reward)
    seen = random.standard_normal(d)
    for j, memory in enumerate(adaptation.memories):
        group, lane = lanes[j // LANES], j % LANES
        w = memory.gamma ** np.arange(rounds - 1, -1, -1)
        S, S_tilde, b = (X.T * w) @ X, (X.T * w**2) @ X, X.T @ (w * y)
        inverse = np.linalg.inv(S + RIDGE * np.eye(d))
        for first, wanted in ((rows.gram, S), (rows.noise, S_tilde), (rows.inverse, inverse)):
            matrix = np.empty((d, d))
            copy_packed(group, first, lane, matrix)
            np.testing.assert_allclose(matrix, wanted, rtol=1e-9, atol=1e-11)
        theta = group[rows.theta : rows.gram, lane]
        np.testing.assert_allclose(theta, np.linalg.solve(S + RIDGE * np.eye(d), b), rtol=1e-9)
        root = np.zeros((d, d))
        root[np.triu_indices(d)] = group[rows.root : rows.prediction, lane]
        np.testing.assert_allclose(root.T @ root, S_tilde, rtol=1e-9, atol=1e-11)
        predict_in_lanes(group, rows, seen)
        np.testing.assert_allclose(group[rows.prediction, lane], seen @ theta, rtol=1e-12)


@pytest.mark.parametrize("actions", [worlds.fresh(), worlds.fixed()], ids=repr)
@pytest.mark.parametrize("exploration", EXPLORATIONS, ids=repr)
@pytest.mark.parametrize(
    "adaptation",
    [predictive("discount", 4, 2048), bandits(5, 400, "discount", 0.4, warm=True)],
    ids=["predictive", "warm"],
)
def test_the_engine_plays_the_arms_of_the_policy(
    adaptation: Adaptation, exploration: wv.Exploration, actions: worlds.Actions
) -> None:
    """Eleven candidates in two groups of lanes, and fewer than eight in one."""
    draw = worlds.world(5, 9, 400, worlds.abrupt([200], flip=0.6), actions).draw(3)
    player = Player("it", wv.keep(), exploration, RIDGE)
    assert make_candidates(player, adaptation, draw, draw.dim).lanes.size > 0
    curve = replay_adaptive(player, adaptation, draw, KEY, np.arange(1, 401))
    policy = Adaptive(draw.dim, adaptation, exploration, ridge=RIDGE)
    np.testing.assert_allclose(curve, play_round_by_round(policy, KEY, draw), atol=1e-9)


@pytest.mark.parametrize(
    ("adaptation", "exploration", "dim"),
    [
        (bandits(5, 400, "discount", 0.4), wv.greedy(), 5),
        (bandits(5, 400, "restart", 0.4, warm=True), wv.greedy(), 5),
        (predictive("window", 5, 40), wv.greedy(), 5),
        (predictive("discount", 5, 40), wv.perturbed_history(0.5), 5),
        (predictive("discount", 5, 40), wv.optimism(wv.posterior()), 5),
        (predictive("discount", 5, 40), wv.greedy(), MOST_DIMENSIONS + 1),
    ],
    ids=["blank blocks", "restarts", "windows", "history", "estimated noise", "large"],
)
def test_other_candidates_are_played_one_by_one(
    adaptation: Adaptation, exploration: wv.Exploration, dim: int
) -> None:
    assert not can_play_in_lanes(adaptation, build_all_rules(adaptation, exploration, dim))
