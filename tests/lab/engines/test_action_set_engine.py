"""The engine for action sets: the same regret as with a list of all actions."""

import pickle
import subprocess
import sys
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

import windvane as wv
from experiments import make_thread_runner, run_experiment
from grid import Floats
from windvane import sets
from windvane.errors import ArmsError, SettingError
from windvane.lab import worlds
from windvane.lab.engines.game import Player
from windvane.lab.engines.replay import replay_on
from windvane.lab.experiments import Experiment
from windvane.lab.studies.plan import change_rounds, describe_problem, make_player
from windvane.lab.worlds.draw import Draw

ROUNDS = 150
KEY = 77
EVERY_ROUND = np.arange(1, ROUNDS + 1)
DRIFTS = [worlds.abrupt([60], flip=0.6), worlds.walk(3.0), worlds.periodic(40)]
PLAYERS = [
    Player("discounted", wv.discount(0.95), wv.thompson(0.3), ridge=0.7),
    Player("restarted", wv.restart(40), wv.perturbed_history(0.3)),
    Player("windowed", wv.window(30), wv.thompson(0.3)),
]


def list_routes(rows: int, columns: int) -> Floats:
    """List all routes that go right or down, (count, streets): each street is 1 if it is used.

    The streets to the right come first, row by row.
    """
    routes = []
    for downs in combinations(range(rows + columns - 2), rows - 1):
        x = np.zeros(rows * (columns - 1) + columns * (rows - 1))
        row = 0
        column = 0
        for step in range(rows + columns - 2):
            if step in downs:
                x[rows * (columns - 1) + row * columns + column] = 1.0
                row += 1
            else:
                x[row * (columns - 1) + column] = 1.0
                column += 1
        routes.append(x)
    return np.array(routes)


def play_on_list(player: Player, draw: Draw, arms: Floats) -> Floats:
    """The cumulative regret of a Policy that chooses from a list of all actions, (T,)."""
    policy = wv.Policy(draw.dim, player.memory, player.exploration, player.ridge)
    policy.key = KEY
    regret = []
    for t in range(draw.rounds):
        means = draw.centre + draw.slope * (arms @ draw.theta[draw.era[t]])
        if draw.binary:
            means = np.clip(means, 0.0, 1.0)
        choice = policy.choose(arms)
        mean, noise = means[choice.index], draw.noise[t]
        policy.learn(choice, float(noise < mean) if draw.binary else float(mean + noise))
        regret.append(means.max() - mean)
    return np.cumsum(regret)


@pytest.mark.parametrize("player", PLAYERS, ids=lambda player: player.name)
@pytest.mark.parametrize("drift", DRIFTS, ids=repr)
@pytest.mark.parametrize("reward", [worlds.gaussian(0.05), worlds.bernoulli()], ids=repr)
def test_routes_give_the_regret_of_a_list_of_all_routes(
    player: Player, drift: worlds.Drift, reward: worlds.RewardLaw
) -> None:
    world = worlds.world(17, 10, ROUNDS, drift, worlds.routes(3, 4), reward)
    draw, streets = world.draw(5), world.action_set
    assert streets is not None
    curve = replay_on(streets, player, draw, KEY, EVERY_ROUND)
    np.testing.assert_allclose(curve, play_on_list(player, draw, list_routes(3, 4)))
    assert curve[-1] > 0


def test_regret_on_a_ball_is_the_distance_to_its_best_point() -> None:
    """Σ r‖θ‖ − ⟨x, θ⟩: a policy that stays on the first axis loses 0, then 2·3 a round."""
    drift = worlds.abrupt([60], to=[[0.0, 3.0]])
    world = worlds.world(2, 1, ROUNDS, drift, worlds.ball(2.0), worlds.gaussian(0.0), [1.0, 0.0])
    still, ball = Player("still", wv.keep(), wv.greedy()), world.action_set
    assert ball is not None
    curve = replay_on(ball, still, world.draw(0), KEY, EVERY_ROUND)
    np.testing.assert_allclose(curve, 6.0 * np.maximum(0, EVERY_ROUND - 60), atol=1e-9)


def test_a_discount_recovers_from_a_change_on_a_ball_and_on_routes() -> None:
    players = tuple(Player(repr(m), m, wv.thompson(0.1)) for m in (wv.discount(0.98), wv.keep()))
    for actions, dim in ((worlds.ball(), 5), (worlds.routes(3, 3), 12)):
        drift, reward = worlds.abrupt([500], flip=1.0), worlds.gaussian(0.01)
        world = worlds.world(dim, 10, 1000, drift, actions, reward)
        result = run_experiment(Experiment(players, world, replications=4, seed=1))
        late = (result.at(1000) - result.at(800)).mean(axis=1)
        assert late[0] < 0.5 * late[1]


def test_the_result_does_not_depend_on_the_number_of_threads() -> None:
    world = worlds.world(12, 9, 60, worlds.walk(1.0), worlds.routes(3, 3))
    experiment = Experiment(tuple(PLAYERS), world, replications=11, seed=3, points=7)
    one_thread, three_threads = (run_experiment(experiment, make_thread_runner(n)) for n in (1, 3))
    assert one_thread.regret.tobytes() == three_threads.regret.tobytes()
    assert one_thread.regret.shape == (3, 11, 7)
    assert (np.diff(one_thread.regret, axis=2) >= -1e-12).all()
    first = replay_on(
        worlds.routes(3, 3).make_set(12),  # type: ignore[misc]
        PLAYERS[0],
        world.draw(np.random.SeedSequence(3, spawn_key=(0,))),
        int(np.random.SeedSequence(3, spawn_key=(0,)).generate_state(1, np.uint64)[0]) >> 1,
        experiment.marks,
    )
    np.testing.assert_array_equal(one_thread.regret[0, 0], first)


def test_at_most_three_streets_in_a_thousand_have_a_positive_gain() -> None:
    """θ = v − 3S/√d, where v drifts as the θ of any other world."""
    world = worlds.world(24, 9, 20, worlds.abrupt([9]), worlds.routes(4, 4), start=2.0)
    draws = [world.draw(seed) for seed in range(200)]
    assert 0 < np.mean([draw.theta > 0 for draw in draws]) < 0.003
    v = draws[0].theta + 3 * 2.0 / np.sqrt(24)
    np.testing.assert_allclose(np.linalg.norm(v, axis=1), 2.0)
    assert draws[0].variation == pytest.approx(np.linalg.norm(v[1] - v[0]))


def test_a_problem_knows_the_arm_norm_and_the_changes_of_an_action_set() -> None:
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
def test_a_world_read_from_a_table_prints_as_the_table_and_pickles(actions: str, dim: int) -> None:
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
def test_an_action_set_that_does_not_fit_the_world_is_refused(actions: str, message: str) -> None:
    with pytest.raises(SettingError, match=message):
        worlds.from_table({"dim": 4, "arms": 2, "horizon": 9, "actions": actions})


def test_players_that_need_a_list_of_arms_are_refused() -> None:
    world = worlds.world(4, 2, 9, actions=worlds.ball())
    wide = Player("wide", wv.keep(), wv.optimism(1.0))
    with pytest.raises(SettingError, match=r"optimism.* needs the width of every action"):
        run_experiment(Experiment((wide,), world, replications=1, seed=1))
    blind = PLAYERS[0]._replace(any_first=3)
    with pytest.raises(
        SettingError, match="discounted: no action can be drawn at random from ball"
    ):
        run_experiment(Experiment((blind,), world, replications=1, seed=1))


def test_simulate_accepts_action_sets_and_refuses_widths_in_one_line(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "windvane", "simulate", "--horizon", "60", "--drift", "walk(1)"]
    words += ["--dim", "12", "--replications", "2", "--out", str(tmp_path), "--actions"]

    def simulate(actions: str, policy: str) -> subprocess.CompletedProcess[str]:
        command = [*words, actions, "--policy", policy]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    played = simulate("routes(3, 3)", "D-LinTS")
    assert played.returncode == 0, played.stderr
    assert "D-LinTS" in played.stdout
    assert (tmp_path / "curves.png").exists()
    refused = simulate("ball()", "D-LinUCB")
    assert (refused.returncode, refused.stdout, refused.stderr.count("\n")) == (2, "", 1)
    assert "needs the width of every action" in refused.stderr


@pytest.mark.parametrize("link", ["logistic", "poisson"])
def test_mean_rewards_follow_the_link_of_the_world(link: str) -> None:
    """On a ball of radius 1 means lie in [μ(−‖θ‖), μ(‖θ‖)], which bounds the regret of a round."""
    reward = worlds.bernoulli("logistic") if link == "logistic" else worlds.poisson()
    world = worlds.world(3, 5, 300, worlds.stationary(), worlds.ball(), reward, start=2.0)
    highest = 1 / (1 + np.exp(-2.0)) if link == "logistic" else np.exp(2.0)
    lowest = 1 / (1 + np.exp(2.0)) if link == "logistic" else np.exp(-2.0)
    names = ["FPL-GLM", "Gaussian-LinTS"]
    players = tuple(make_player({"name": name}, world) for name in names)
    assert players[0].link == link
    result = run_experiment(Experiment(players, world, 3, seed=1, points=300))
    assert np.diff(result.regret, axis=2).max() <= highest - lowest + 1e-9
    assert (result.mean()[:, -1] < 0.4 * 300 * (highest - lowest)).all()


def test_a_generalized_policy_chooses_from_a_set_as_from_a_list() -> None:
    """Both draw the same θ̃ and choose the best action for it."""
    routes = sets.paths([(0, 1), (0, 2), (1, 3), (2, 3), (1, 2)], 0, 3)
    listed = np.array([[1, 0, 1, 0, 0], [0, 1, 0, 1, 0], [1, 0, 0, 1, 1.0]])
    from_set, from_list = (
        wv.GeneralizedPolicy(5, "logistic", wv.keep(), 0.5, seed=3) for _ in range(2)
    )
    random = np.random.default_rng(0)
    for _ in range(60):
        one, other = from_set.choose(routes), from_list.choose(listed)
        np.testing.assert_array_equal(one.features, other.features)
        click = float(random.random() < 0.3)
        from_set.learn(one, click)
        from_list.learn(other, click)
    with pytest.raises(SettingError, match="floor must be 0 for an action set"):
        wv.GeneralizedPolicy(5, "logistic", wv.keep(), floor=0.1).choose(routes)
    with pytest.raises(ArmsError, match="must have dim 5, got 4"):
        from_set.choose(sets.ball(4))


@pytest.mark.parametrize(
    ("policy", "reward", "message"),
    [
        ({"name": "FPL-GLM", "link": "poisson"}, worlds.gaussian(0.1), "do not fit"),
        ({"name": "FPL-GLM", "link": "logistic"}, worlds.poisson(), "do not fit"),
        ({"name": "BOB D-LinTS", "link": "logistic"}, worlds.bernoulli("logistic"), "has no link"),
    ],
)
def test_a_link_that_does_not_fit_the_rewards_is_refused(
    policy: dict[str, object], reward: worlds.RewardLaw, message: str
) -> None:
    with pytest.raises(SettingError, match=message):
        make_player(policy, worlds.world(3, 5, 100, reward=reward))
