"""Replications side by side: the arms of Policy, replication by replication."""

from collections.abc import Sequence

import numpy as np
import pytest

import windvane as wv
from game import play_round_by_round
from grid import EXPLORATIONS, MEMORIES
from windvane._numba.instructions import LANES
from windvane.beliefs.full.layout import TALLY, PolicyArrays
from windvane.lab import worlds
from windvane.lab.engines.game import Player
from windvane.lab.engines.lanes import (
    BAR,
    GRAM,
    LEVEL,
    MOMENT,
    NOISE_GRAM,
    SCORES,
    bound_scores,
    can_play_side_by_side,
    make_belief,
    open_replications,
    plan_rules,
    play,
    replay_side_by_side,
)
from windvane.lab.engines.replay import list_restarts, replay
from windvane.lab.worlds.draw import Draw
from windvane.types import Floats

ROUNDS = 150
MARKS = np.arange(1, ROUNDS + 1)
Z = 0.7
FIXED = worlds.world(4, 9, ROUNDS, worlds.abrupt([50], flip=0.5), worlds.fixed())
PLAYERS = [
    Player(f"{memory} {exploration}", memory, exploration, ridge=0.7)
    for memory in MEMORIES
    for exploration in EXPLORATIONS
]
LANE_PLAYERS = [player for player in PLAYERS if can_play_side_by_side(player, FIXED.draw(1))]
FEW_PLAYERS = [
    Player("widths", wv.discount(0.99), wv.randomized(wv.half_normal(wv.confidence(0.1, 0.4)))),
    Player("one matrix", wv.discount(0.99, single=True), wv.thompson(0.4)),
    Player("all widths", wv.keep(), wv.optimism(wv.confidence(0.1, 0.4)), floor=0.1),
    Player("samples", wv.discount(0.99), wv.thompson(0.4), any_first=7),
    Player("restarts", wv.restart(60), wv.thompson(0.4)),
    Player("estimate", wv.discount(0.97), wv.epsilon(0.2)),
]


def draw_all(world: worlds.World, count: int) -> tuple[list[Draw], list[int]]:
    return [world.draw(seed) for seed in range(count)], [31 + 7 * i for i in range(count)]


def replay_alone(player: Player, draws: Sequence[Draw], keys: Sequence[int]) -> Floats:
    pairs = zip(draws, keys, strict=True)
    return np.array([replay(player, draw, key, MARKS) for draw, key in pairs])


def test_the_pairs_that_can_be_played_side_by_side() -> None:
    """Weights that are kept or fade, and choices by an estimate, a sample or widths."""
    names = {player.memory.name for player in LANE_PLAYERS}
    assert names == {"keep", "discount", "restart", "restart_at"}
    assert {player.exploration.kind.needs for player in LANE_PLAYERS} == {
        "estimate",
        "sample",
        "widths",
    }
    fresh = worlds.world(4, 9, ROUNDS, worlds.abrupt([50], flip=0.5))
    assert not any(can_play_side_by_side(player, fresh.draw(1)) for player in PLAYERS)


@pytest.mark.parametrize("player", LANE_PLAYERS, ids=lambda player: player.name)
def test_a_lane_makes_the_choices_of_policy(player: Player) -> None:
    draws, keys = draw_all(FIXED, 2)
    curves = replay_side_by_side(player, draws, keys, MARKS)
    for draw, key, curve in zip(draws, keys, curves, strict=True):
        policy = wv.Policy(draw.dim, player.memory, player.exploration, ridge=0.7)
        np.testing.assert_allclose(curve, play_round_by_round(policy, key, draw), atol=1e-9)


WORLDS = {
    "fewer arms than features": worlds.world(
        12, 5, ROUNDS, worlds.abrupt([70], flip=0.5), worlds.fixed()
    ),
    "many arms": worlds.world(6, 41, ROUNDS, worlds.walk(2.0), worlds.fixed()),
    "binary rewards": worlds.world(
        5, 10, ROUNDS, worlds.rotation(3.0), worlds.fixed(), worlds.bernoulli("affine")
    ),
    "counts": worlds.world(5, 10, ROUNDS, worlds.rotation(3.0), worlds.fixed(), worlds.poisson()),
    "the same arm several times": worlds.world(
        3, 6, ROUNDS, worlds.stationary(), worlds.fixed(np.repeat(np.eye(3) + 0.1, 2, axis=0))
    ),
    "one arm": worlds.world(3, 1, ROUNDS, worlds.stationary(), worlds.fixed()),
}


@pytest.mark.parametrize("world", WORLDS.values(), ids=WORLDS)
@pytest.mark.parametrize("player", FEW_PLAYERS, ids=lambda player: player.name)
def test_side_by_side_is_one_by_one(player: Player, world: worlds.World) -> None:
    """Eleven replications: a full group and a group with lanes left over, equal to the bit."""
    draws, keys = draw_all(world, LANES + 3)
    assert can_play_side_by_side(player, draws[0])
    together = replay_side_by_side(player, draws, keys, MARKS)
    assert together.tobytes() == replay_alone(player, draws, keys).tobytes()


@pytest.mark.parametrize("player", FEW_PLAYERS, ids=lambda player: player.name)
def test_a_lane_does_not_depend_on_its_neighbours(player: Player) -> None:
    draws, keys = draw_all(FIXED, LANES)
    together = replay_side_by_side(player, draws, keys, MARKS)
    backwards = replay_side_by_side(player, draws[::-1], keys[::-1], MARKS)[::-1]
    assert together.tobytes() == np.ascontiguousarray(backwards).tobytes()


@pytest.mark.parametrize(("ridge", "scale"), [(1.0, 0.01), (1.0, 1.0), (0.05, 1.0), (1.0, 5.0)])
@pytest.mark.parametrize("gamma", [0.99, 0.999, 1.0])
def test_the_bounds_of_scores_contain_the_exact_scores(
    gamma: float, ridge: float, scale: float
) -> None:
    """The upper bounds are not below xᵀθ̂ + Z‖x‖_{V⁻¹} and close to it; the bar is not above."""
    arms = scale * np.random.default_rng(5).standard_normal((12, 5))
    memory = wv.keep() if gamma == 1.0 else wv.discount(gamma)
    player = Player("player", memory, wv.optimism(Z), ridge)
    for rounds in (1, 2, 5, 14, 63, 64, 65, 100):
        world = worlds.world(5, 12, rounds, worlds.stationary(), worlds.fixed(arms))
        draws, keys = draw_all(world, 2)
        assert can_play_side_by_side(player, draws[0])
        game = open_replications(player, draws, keys)
        belief = make_belief(game)
        rules = plan_rules(player, 5, 5)
        arrays = PolicyArrays(rules, np.zeros(1, TALLY), np.zeros(0), np.zeros((0, 0)))
        play(game, arrays, belief, list_restarts(memory, rounds))
        belief.scalars[LEVEL] = Z
        bound_scores(arrays, belief)
        for lane in range(2):
            gram, noise_gram = belief.matrices[[GRAM, NOISE_GRAM], :, :, lane]
            W, W_tilde = (
                np.tril(half) + np.tril(half, -1).T + ridge * np.eye(5)
                for half in (gram, noise_gram)
            )
            pulled = np.linalg.solve(W, arms.T)
            widths = np.sqrt(np.einsum("dk,dk->k", pulled, W_tilde @ pulled))
            theta = np.linalg.solve(W, belief.vectors[MOMENT, :, lane])
            exact = arms @ theta + Z * widths
            highest, bar = belief.numbers[SCORES, :, lane], belief.scalars[BAR, lane]
            assert (highest >= exact).all()
            assert bar <= exact.max()
            assert (highest - exact <= 2e-3 * (Z * widths.max() + np.abs(exact).max())).all()
