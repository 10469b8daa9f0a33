"""The paper's experiment: its settings, and its shape at small scale."""

import math

import numpy as np
import pytest

import windvane as wv
from experiments import run_experiment
from game import play_by_formulas
from windvane.lab import worlds
from windvane.lab.engines.replay import replay
from windvane.lab.studies import criteo, reproduction
from windvane.lab.studies.criteo import Pools
from windvane.laws import Confidence


@pytest.fixture(scope="module")
def pools(tmp_path_factory: pytest.TempPathFactory) -> Pools:
    return criteo.load_pools(None, [10], "released", cache=tmp_path_factory.mktemp("cache"))[10]


def test_released_reading_is_the_authors_code(pools: Pools) -> None:
    experiment = reproduction.make_experiment((10, 10), "released", pools, 2, 1)
    by_name = {player.name: player for player in experiment.players}
    variation = float(
        np.linalg.norm(reproduction.flip_signs(pools.theta, "released") - pools.theta)
    )
    gamma = 1 - (variation / (10 * 10_000)) ** (2 / 3)
    assert gamma == pytest.approx(0.99883, abs=3e-5)
    assert by_name["D-LinUCB"].memory.gamma == pytest.approx(gamma, rel=1e-12)
    assert by_name["D-LinTS"].memory.gamma == pytest.approx(gamma, rel=1e-12)
    assert by_name["LinTS-OR"].memory == wv.restart_at([4001])
    assert by_name["D-LinTS"].any_first == 10
    law = by_name["D-LinUCB"].exploration.law
    assert law is not None
    assert isinstance(law.scale, Confidence)
    assert 2 * math.log(1 / law.scale.delta) == pytest.approx(10 * math.log(1 / 0.01), rel=1e-12)
    draw = experiment.world.draw(5)
    assert draw.picks.shape == (1, 10)
    assert np.flatnonzero(np.diff(draw.era)).tolist() == [4000]  # 4001 is the first changed round
    assert draw.noise.var() == pytest.approx(0.15, rel=0.05)


def test_paper_reading_is_the_text(pools: Pools) -> None:
    experiment = reproduction.make_experiment((10, 10), "paper", pools, 2, 1)
    by_name = {player.name: player for player in experiment.players}
    variation = float(np.linalg.norm(reproduction.flip_signs(pools.theta, "paper") - pools.theta))
    gamma = 1 - 10**-0.25 * math.sqrt(variation / 10_000)
    assert by_name["D-LinUCB"].memory.gamma == pytest.approx(gamma, rel=1e-12)
    assert by_name["D-LinTS"].memory.gamma > gamma
    assert by_name["D-LinTS"].any_first == 0
    assert by_name["LinTS-OR"].memory == wv.restart_at([4000])
    draw = experiment.world.draw(5)
    assert draw.picks.shape == (10_000, 10)
    assert np.flatnonzero(np.diff(draw.era)).tolist() == [3999]


def test_large_orderings_show_at_small_scale(pools: Pools) -> None:
    result = run_experiment(reproduction.make_experiment((10, 10), "released", pools, 6, 1))
    end = dict(zip(result.names, result.regret[:, :, -1].mean(axis=1), strict=True))
    drifting = [end[name] for name in ("D-LinUCB", "D-RandLinUCB", "D-LinTS")]
    assert end["LinTS"] > 2 * max(drifting)
    assert end["LinTS-OR"] < 0.5 * min(drifting)
    verdicts = {c.claim: c.verdict for c in reproduction.judge_claims((10, 10), result, 4001)}
    assert verdicts["the stationary LinTS collapses"] == "holds"
    assert verdicts["the oracle LinTS-OR is the floor"] == "holds"


@pytest.mark.parametrize("protocol", ["released", "paper"])
def test_every_policy_has_the_level_of_the_naive_formulas(protocol: str, pools: Pools) -> None:
    """The figure's five players on its own pools, in a short game."""
    settings, theta_after = (
        reproduction.find_protocol(protocol),
        reproduction.flip_signs(pools.theta, protocol),
    )
    actions = worlds.pools(pools.clicked, pools.other, new_each_round=settings.new_arms_each_round)
    drift = worlds.abrupt([60], to=theta_after[None])
    world = worlds.world(10, 10, 150, drift, actions, start=pools.theta)
    drawn = [world.draw(seed) for seed in range(16)]
    for player in reproduction.make_players((10, 10), settings, 4.0, (2.0, 3.0)):
        if player.memory.at:
            player = player._replace(memory=wv.restart_at([60]))
        fast = np.array([replay(player, d, i, np.array([150]))[0] for i, d in enumerate(drawn)])
        slow = np.array([play_by_formulas(player, d, i) for i, d in enumerate(drawn)])
        gap = fast - slow
        assert abs(gap.mean()) < 4 * gap.std(ddof=1) / math.sqrt(gap.size) + 1e-6, player.name
        assert fast.mean() > 10
