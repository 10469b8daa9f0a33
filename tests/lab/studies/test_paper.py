"""The paper's experiment: its settings, its shape at small scale, its claims."""

import math

import numpy as np
import pytest

import windvane as wv
from windvane.errors import SettingError
from windvane.lab import worlds
from windvane.lab.engines.game import Player
from windvane.lab.engines.linear import replay
from windvane.lab.running.experiment import ExperimentResult, run_experiment
from windvane.lab.studies import criteo, paper
from windvane.lab.studies.criteo_features import Pools
from windvane.lab.worlds.draw import Draw, compute_means, compute_reward, list_arms
from windvane.laws import Confidence


@pytest.fixture(scope="module")
def pools(tmp_path_factory: pytest.TempPathFactory) -> Pools:
    return criteo.load_pools(None, [10], "released", cache=tmp_path_factory.mktemp("cache"))[10]


def test_signs_turn_as_published() -> None:
    for dim, turned in ((10, 9), (20, 16), (50, 31)):
        assert (paper.flip_signs(np.ones(dim), "released") < 0).sum() == turned
        assert (paper.flip_signs(np.ones(dim), "paper") < 0).sum() == math.floor(0.6 * dim)


def test_released_reading_is_the_authors_code(pools: Pools) -> None:
    experiment = paper.make_experiment((10, 10), "released", pools, 2, 1)
    by_name = {player.name: player for player in experiment.players}
    variation = float(np.linalg.norm(paper.flip_signs(pools.theta, "released") - pools.theta))
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
    experiment = paper.make_experiment((10, 10), "paper", pools, 2, 1)
    by_name = {player.name: player for player in experiment.players}
    variation = float(np.linalg.norm(paper.flip_signs(pools.theta, "paper") - pools.theta))
    gamma = 1 - 10**-0.25 * math.sqrt(variation / 10_000)
    assert by_name["D-LinUCB"].memory.gamma == pytest.approx(gamma, rel=1e-12)
    assert by_name["D-LinTS"].memory.gamma > gamma
    assert by_name["D-LinTS"].any_first == 0
    assert by_name["LinTS-OR"].memory == wv.restart_at([4000])
    draw = experiment.world.draw(5)
    assert draw.picks.shape == (10_000, 10)
    assert np.flatnonzero(np.diff(draw.era)).tolist() == [3999]


def test_large_orderings_show_at_small_scale(pools: Pools) -> None:
    result = run_experiment(paper.make_experiment((10, 10), "released", pools, 6, 1))
    end = dict(zip(result.names, result.regret[:, :, -1].mean(axis=1), strict=True))
    drifting = [end[name] for name in ("D-LinUCB", "D-RandLinUCB", "D-LinTS")]
    assert end["LinTS"] > 2 * max(drifting)
    assert end["LinTS-OR"] < 0.5 * min(drifting)
    verdicts = {c.claim: c.verdict for c in paper.judge_claims((10, 10), result, 4001)}
    assert verdicts["the stationary LinTS collapses"] == "holds"
    assert verdicts["the oracle LinTS-OR is the floor"] == "holds"


def make_result(**ends: tuple[float, ...]) -> ExperimentResult:
    """A result with these end regrets, growing linearly."""
    names = ("D-LinUCB", "D-RandLinUCB", "D-LinTS", "LinTS", "LinTS-OR")
    marks = np.array([4001, 5500, 7000, 10_000])
    end = np.array([ends[name.replace("-", "_")] for name in names])
    return ExperimentResult(names, marks, end[:, :, None] * marks / 10_000)


def test_claims_are_judged_replication_by_replication() -> None:
    noise = np.array([0.0, 300.0, -200.0, 100.0, -250.0, 50.0])  # shared by all, so it pairs out
    wobble = np.array([1.0, -1.0, 2.0, -2.0, 0.5, -0.5])

    def around(level: float) -> tuple[float, ...]:
        return tuple(level + noise + wobble)

    result = make_result(
        D_LinUCB=tuple(1000 + noise),
        D_RandLinUCB=around(990),
        D_LinTS=around(1010),
        LinTS=around(5000),
        LinTS_OR=around(1100),
    )
    verdicts = {c.claim: c.verdict for c in paper.judge_claims((10, 100), result, 4001)}
    assert verdicts == {
        "D-RandLinUCB beats D-LinUCB": "holds",
        "D-LinTS beats D-LinUCB": "does not hold",
        "D-RandLinUCB is not worse than D-LinTS": "holds",
        "the stationary LinTS collapses": "holds",
        "the oracle LinTS-OR is the floor": "does not hold",
    }


def test_a_difference_within_chance_is_undecided() -> None:
    rng = np.random.default_rng(1)
    draws = {
        name: tuple(1000 + 100 * rng.standard_normal(20))
        for name in ("D_LinUCB", "D_RandLinUCB", "D_LinTS", "LinTS", "LinTS_OR")
    }
    verdicts = {
        c.claim: c.verdict for c in paper.judge_claims((20, 100), make_result(**draws), 4001)
    }
    assert verdicts["D-RandLinUCB beats D-LinUCB"] == "undecided"
    assert verdicts["D-RandLinUCB is not worse than D-LinTS"] == "holds"


def test_summary_stands_beside_the_published_numbers() -> None:
    ends = {name.replace("-", "_"): (1000.0, 1200.0) for name in paper.POLICIES}
    row = paper.summarize((50, 100), make_result(**ends), paper.PROTOCOLS["released"])[0]
    assert row["end regret"] == 1100
    assert row["standard error"] == pytest.approx(100)
    assert row["at 5500"] == pytest.approx(605)
    assert row["published"] == 4480
    other = paper.summarize(
        (50, 100), make_result(**ends), paper.PROTOCOLS["paper"]._replace(change=4001)
    )
    assert "published" not in other[0]


@pytest.mark.parametrize("text", ["10", "10x11", "x", "10x10,", "50x100;10x10"])
def test_panels_that_do_not_exist_are_refused(text: str) -> None:
    with pytest.raises(SettingError, match=r"panels: .* is none of 10x10,20x10"):
        paper.parse_panels(text)


def test_panels_come_in_the_papers_order() -> None:
    assert paper.parse_panels("50x100, 10X10") == [(10, 10), (50, 100)]


def play_naively(player: Player, draw: Draw, seed: int) -> float:
    """The end regret of a player of the figure, by the formulas."""
    rng = np.random.default_rng(seed)
    d, gamma, law = draw.dim, player.memory.gamma, player.exploration.law
    W, W_tilde, b, seen, total = np.eye(d), np.eye(d), np.zeros(d), 0, 0.0
    for t in range(draw.rounds):
        if t in player.memory.at:
            W, W_tilde, b, seen = np.eye(d), np.eye(d), np.zeros(d), 0
        arms, mean = list_arms(draw, t), compute_means(draw, t)
        inverse = np.linalg.inv(W)
        V_inverse = inverse @ W_tilde @ inverse
        if law is None:
            theta = rng.multivariate_normal(inverse @ b, player.exploration.factor**2 * V_inverse)
            scores = arms @ theta
        else:
            assert isinstance(law.scale, Confidence)
            effective_rounds = (1 - gamma ** (2 * seen)) / (1 - gamma**2)
            spread = d * math.log(1 + law.scale.arm_norm**2 * effective_rounds / d)
            root = math.sqrt(2 * math.log(1 / law.scale.delta) + spread)
            beta = law.scale.times * (law.scale.theta_norm + law.scale.noise * root)
            level = beta * (abs(rng.standard_normal()) if law.name == "half_normal" else 1.0)
            widths = np.sqrt(np.einsum("kd,de,ke->k", arms, V_inverse, arms))
            scores = arms @ inverse @ b + level * widths
        chosen = int(rng.integers(len(arms)) if t < player.any_first else np.argmax(scores))
        x, y = arms[chosen], compute_reward(draw, t, chosen)
        W = gamma * W + np.outer(x, x) + (1 - gamma) * np.eye(d)
        W_tilde = gamma**2 * W_tilde + np.outer(x, x) + (1 - gamma**2) * np.eye(d)
        b, seen = gamma * b + x * y, seen + 1
        total += mean.max() - mean[chosen]
    return total


@pytest.mark.parametrize("protocol", ["released", "paper"])
def test_every_policy_has_the_level_of_the_naive_formulas(protocol: str, pools: Pools) -> None:
    """The figure's five players on its own pools, in a game a fiftieth as long."""
    settings, theta_after = paper.find_protocol(protocol), paper.flip_signs(pools.theta, protocol)
    actions = worlds.pools(pools.clicked, pools.other, new_each_round=settings.new_arms_each_round)
    drift = worlds.abrupt([80], to=theta_after[None])
    world = worlds.world(10, 10, 200, drift, actions, start=pools.theta)
    drawn = [world.draw(seed) for seed in range(30)]
    for player in paper.make_players((10, 10), settings, 4.0, (2.0, 3.0)):
        if player.memory.at:
            player = player._replace(memory=wv.restart_at([80]))
        fast = np.array([replay(player, d, i, np.array([200]))[0] for i, d in enumerate(drawn)])
        slow = np.array([play_naively(player, d, i) for i, d in enumerate(drawn)])
        gap = fast - slow
        assert abs(gap.mean()) < 4 * gap.std(ddof=1) / math.sqrt(gap.size) + 1e-6, player.name
        assert fast.mean() > 20
