"""Worlds without a list of arms: the same game as on the list, and regret against the best."""

import pickle
import subprocess
import sys
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

import windvane as wv
from grid import Floats
from windvane.lab import worlds
from windvane.lab.engines.action_set import replay_on
from windvane.lab.engines.game import Player
from windvane.lab.running.experiment import Experiment, make_thread_runner, run_experiment
from windvane.lab.studies.players import change_rounds, describe_problem, make_player
from windvane.lab.worlds.draw import Draw

ROUNDS, KEY = 150, 77
EVERY = np.arange(1, ROUNDS + 1)
DRIFTS = [worlds.abrupt([60], flip=0.6), worlds.walk(3.0), worlds.periodic(40)]
PLAYERS = [
    Player("faded", wv.discount(0.95), wv.thompson(0.3), ridge=0.7),
    Player("restarted", wv.restart(40), wv.perturbed_history(0.3)),
    Player("cut", wv.window(30), wv.thompson(0.3)),
]


def listed_routes(rows: int, columns: int) -> Floats:
    """Every way right and down, as a sum of streets: those to the right first, row by row."""
    found = []
    for downs in combinations(range(rows + columns - 2), rows - 1):
        x, row, column = np.zeros(rows * (columns - 1) + columns * (rows - 1)), 0, 0
        for step in range(rows + columns - 2):
            if step in downs:
                x[rows * (columns - 1) + row * columns + column] = 1.0
                row += 1
            else:
                x[row * (columns - 1) + column] = 1.0
                column += 1
        found.append(x)
    return np.array(found)


def played_on_the_list(player: Player, draw: Draw, arms: Floats) -> Floats:
    """The cumulative regret of a Policy that is given every action as an arm."""
    policy = wv.Policy(draw.dim, player.memory, player.exploration, player.ridge)
    policy.key = KEY
    lost = []
    for t in range(draw.rounds):
        means = draw.centre + draw.slope * (arms @ draw.theta[draw.era[t]])
        if draw.binary:
            means = np.clip(means, 0.0, 1.0)
        choice = policy.choose(arms)
        mean, noise = means[choice.index], draw.noise[t]
        policy.learn(choice, float(noise < mean) if draw.binary else float(mean + noise))
        lost.append(means.max() - mean)
    return np.cumsum(lost)


@pytest.mark.parametrize("player", PLAYERS, ids=lambda player: player.name)
@pytest.mark.parametrize("drift", DRIFTS, ids=repr)
@pytest.mark.parametrize("reward", [worlds.gaussian(0.05), worlds.bernoulli()], ids=repr)
def test_routes_are_played_as_if_they_were_listed(
    player: Player, drift: worlds.Drift, reward: worlds.Reward
) -> None:
    world = worlds.world(17, 10, ROUNDS, drift, worlds.routes(3, 4), reward)
    draw, streets = world.draw(5), world.action_set
    assert streets is not None
    curve = replay_on(streets, player, draw, KEY, EVERY)
    np.testing.assert_allclose(curve, played_on_the_list(player, draw, listed_routes(3, 4)))
    assert curve[-1] > 0


def test_regret_on_a_ball_is_what_its_radius_leaves() -> None:
    """Σ r‖θ‖ − ⟨x, θ⟩: one who stays on the first axis loses nothing, then 2·3 a round."""
    drift = worlds.abrupt([60], to=[[0.0, 3.0]])
    world = worlds.world(2, 1, ROUNDS, drift, worlds.ball(2.0), worlds.gaussian(0.0), [1.0, 0.0])
    still, ball = Player("still", wv.keep(), wv.greedy()), world.action_set
    assert ball is not None
    curve = replay_on(ball, still, world.draw(0), KEY, EVERY)
    np.testing.assert_allclose(curve, 6.0 * np.maximum(0, EVERY - 60), atol=1e-9)


def test_memory_that_fades_recovers_on_a_ball_and_in_traffic() -> None:
    players = tuple(Player(repr(m), m, wv.thompson(0.1)) for m in (wv.discount(0.98), wv.keep()))
    for actions, dim in ((worlds.ball(), 5), (worlds.routes(3, 3), 12)):
        drift, reward = worlds.abrupt([500], flip=1.0), worlds.gaussian(0.01)
        world = worlds.world(dim, 10, 1000, drift, actions, reward)
        result = run_experiment(Experiment(players, world, replications=4, seed=1))
        late = (result.at(1000) - result.at(800)).mean(axis=1)
        assert late[0] < 0.5 * late[1]


def test_experiments_are_the_same_on_any_number_of_threads() -> None:
    world = worlds.world(12, 9, 60, worlds.walk(1.0), worlds.routes(3, 3))
    experiment = Experiment(tuple(PLAYERS), world, replications=11, seed=3, points=7)
    alone, together = (run_experiment(experiment, make_thread_runner(n)) for n in (1, 3))
    assert alone.regret.tobytes() == together.regret.tobytes()
    assert alone.regret.shape == (3, 11, 7)
    assert (np.diff(alone.regret, axis=2) >= -1e-12).all()
    first = replay_on(
        worlds.routes(3, 3).make_set(12),  # type: ignore[misc]
        PLAYERS[0],
        world.draw(np.random.SeedSequence(3, spawn_key=(0,))),
        int(np.random.SeedSequence(3, spawn_key=(0,)).generate_state(1, np.uint64)[0]) >> 1,
        experiment.marks,
    )
    np.testing.assert_array_equal(alone.regret[0, 0], first)


def test_streets_cost_something_but_for_one_in_a_thousand() -> None:
    """θ = v − 3S/√d, and v moves as it would in any other world."""
    world = worlds.world(24, 9, 20, worlds.abrupt([9]), worlds.routes(4, 4), start=2.0)
    draws = [world.draw(seed) for seed in range(200)]
    assert 0 < np.mean([draw.theta > 0 for draw in draws]) < 0.003
    v = draws[0].theta + 3 * 2.0 / np.sqrt(24)
    np.testing.assert_allclose(np.linalg.norm(v, axis=1), 2.0)
    assert draws[0].variation == pytest.approx(np.linalg.norm(v[1] - v[0]))


def test_theory_knows_what_it_must_of_a_set() -> None:
    drift = worlds.abrupt([30], flip=0.5)
    for actions, dim, longest in ((worlds.ball(2.5), 6, 2.5), (worlds.routes(3, 4), 17, 5**0.5)):
        world = worlds.world(dim, 40, 100, drift, actions)
        facts = describe_problem(world)
        assert facts.arm_norm == pytest.approx(longest)
        assert (facts.dim, facts.arms, facts.changes) == (dim, 40, (30,))
        assert change_rounds(world) == (30,)
        assert make_player({"name": "D-LinTS"}, world).exploration.name == "thompson"


@pytest.mark.parametrize(
    ("actions", "dim"), [("ball(1.0)", 3), ("ball(2.5)", 3), ("routes(2, 3)", 7)]
)
def test_a_table_reads_as_the_world_that_prints_it(actions: str, dim: int) -> None:
    world = worlds.from_table({"dim": dim, "arms": 5, "horizon": 9, "actions": actions})
    assert repr(world.actions) == actions
    twin = pickle.loads(pickle.dumps(world))
    assert twin == world
    assert repr(twin.action_set) == repr(world.action_set)
    assert np.array_equal(twin.draw(1).theta, world.draw(1).theta)


@pytest.mark.parametrize(
    ("actions", "message"),
    [
        ("ball(0)", "ball: radius must be above 0, got 0"),
        ("routes(3, 3)", "world: dim must be 12, the number of streets of routes, got 4"),
        ("routes(1, 1)", "routes: there must be at least two crossings, got one"),
        ("routes(0, 3)", "routes: a side must be a whole number >= 1, got 0"),
        ("sphere()", "actions: 'sphere' is unknown; known names are fresh, fixed, ball, routes"),
    ],
)
def test_a_set_that_does_not_fit_its_world_is_refused(actions: str, message: str) -> None:
    with pytest.raises(wv.SettingError, match=message):
        worlds.from_table({"dim": 4, "arms": 2, "horizon": 9, "actions": actions})


def test_players_that_need_a_list_are_refused() -> None:
    world = worlds.world(4, 2, 9, actions=worlds.ball())
    wide = Player("wide", wv.keep(), wv.optimism(1.0))
    with pytest.raises(wv.SettingError, match=r"optimism.* needs the width of every action"):
        run_experiment(Experiment((wide,), world, replications=1, seed=1))
    blind = PLAYERS[0]._replace(any_first=3)
    with pytest.raises(wv.SettingError, match="faded: no action can be drawn at random from ball"):
        run_experiment(Experiment((blind,), world, replications=1, seed=1))


def test_simulate_plays_on_sets_and_says_in_one_line_what_cannot(tmp_path: Path) -> None:
    asked = [sys.executable, "-m", "windvane", "simulate", "--horizon", "60", "--drift", "walk(1)"]
    asked += ["--dim", "12", "--replications", "2", "--out", str(tmp_path), "--actions"]

    def say(actions: str, policy: str) -> subprocess.CompletedProcess[str]:
        words = [*asked, actions, "--policy", policy]
        return subprocess.run(words, capture_output=True, text=True, check=False)

    said = say("routes(3, 3)", "D-LinTS")
    assert said.returncode == 0, said.stderr
    assert "D-LinTS" in said.stdout
    assert (tmp_path / "curves.png").exists()
    said = say("ball()", "D-LinUCB")
    assert (said.returncode, said.stdout, said.stderr.count("\n")) == (2, "", 1)
    assert "needs the width of every action" in said.stderr


@pytest.mark.parametrize("link", ["logistic", "poisson"])
def test_means_and_rewards_bend_with_the_link(link: str) -> None:
    """On a ball of radius 1 the best mean is μ(‖θ‖); no round can lose more than the link lets."""
    reward = worlds.bernoulli("logistic") if link == "logistic" else worlds.poisson()
    world = worlds.world(3, 5, 300, worlds.stationary(), worlds.ball(), reward, start=2.0)
    at_best = 1 / (1 + np.exp(-2.0)) if link == "logistic" else np.exp(2.0)
    at_worst = 1 / (1 + np.exp(2.0)) if link == "logistic" else np.exp(-2.0)
    names = ["FPL-GLM", "Gaussian-LinTS"]
    players = tuple(make_player({"name": name}, world) for name in names)
    assert players[0].link == link
    result = run_experiment(Experiment(players, world, 3, seed=1, points=300))
    assert np.diff(result.regret, axis=2).max() <= at_best - at_worst + 1e-9
    assert (result.mean()[:, -1] < 0.4 * 300 * (at_best - at_worst)).all()


def test_a_generalised_policy_takes_the_best_of_a_set_as_of_a_list() -> None:
    """The same as from the list of all its actions, by the same draws."""
    routes = wv.paths([(0, 1), (0, 2), (1, 3), (2, 3), (1, 2)], 0, 3)
    every = np.array([[1, 0, 1, 0, 0], [0, 1, 0, 1, 0], [1, 0, 0, 1, 1.0]])
    ours, theirs = (wv.GeneralizedPolicy(5, "logistic", wv.keep(), 0.5, seed=3) for _ in range(2))
    random = np.random.default_rng(0)
    for _ in range(60):
        one, other = ours.choose(routes), theirs.choose(every)
        np.testing.assert_array_equal(one.features, other.features)
        click = float(random.random() < 0.3)
        ours.learn(one, click)
        theirs.learn(other, click)
    with pytest.raises(wv.SettingError, match="floor must be 0 for an action set"):
        wv.GeneralizedPolicy(5, "logistic", wv.keep(), floor=0.1).choose(routes)
    with pytest.raises(wv.ArmsError, match="must have dim 5, got 4"):
        ours.choose(wv.ball(4))


@pytest.mark.parametrize(
    ("policy", "reward", "message"),
    [
        ({"name": "FPL-GLM", "link": "poisson"}, worlds.gaussian(0.1), "do not fit"),
        ({"name": "FPL-GLM", "link": "logistic"}, worlds.poisson(), "do not fit"),
        ({"name": "BOB D-LinTS", "link": "logistic"}, worlds.bernoulli("logistic"), "has no link"),
    ],
)
def test_a_link_that_does_not_fit_is_refused(
    policy: dict[str, object], reward: worlds.Reward, message: str
) -> None:
    with pytest.raises(wv.SettingError, match=message):
        make_player(policy, worlds.world(3, 5, 100, reward=reward))
