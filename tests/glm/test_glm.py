"""Generalised policies: estimates against SciPy's, draws against their law and the formula."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

import naive
import windvane as wv
from game import play_round_by_round
from grid import Floats, contents, rewrite_saved, unit_rows
from statistical_tests import assert_normal, list_starts
from windvane import _random
from windvane._random import FIRST_FREE_PLACE
from windvane.beliefs.glm import kernels as kernels
from windvane.errors import ArmsError, ChoiceError, FileError, FitError, RewardError, SettingError
from windvane.lab import worlds
from windvane.lab.engines.game import Player
from windvane.lab.engines.replay import replay_generalized
from windvane.lab.studies import plan

LINKS = ["identity", "logistic", "poisson"]
WITH_LINK = "memory must be one of keep, discount, window"
MEMORIES = [wv.keep(), wv.discount(0.9), wv.discount(0.999), wv.window(2), wv.window(30)]
every_link = pytest.mark.parametrize("link", LINKS)
every_memory = pytest.mark.parametrize("memory", MEMORIES, ids=repr)
RIDGE = 0.7


def rewards_for(link: str, scores: Floats, random: np.random.Generator) -> Floats:
    """Rewards with the means of the link."""
    if link == "logistic":
        return (random.random(scores.size) < naive.mean_of(link, scores)).astype(np.float64)
    if link == "poisson":
        return random.poisson(np.exp(scores)).astype(np.float64)
    return np.asarray(scores + random.standard_normal(scores.size))


def observed(link: str, seed: int, count: int = 120, dim: int = 4) -> naive.History:
    """Observations of a parameter of norm 2."""
    random = np.random.default_rng(seed)
    xs = random.standard_normal((count, dim))
    scores = xs @ (2 * unit_rows(random, 1, dim)[0])
    return naive.observed(xs, rewards_for(link, np.clip(scores, -9, 4), random))


def learned(
    link: str, memory: wv.Memory, history: naive.History, scale: float = 1.0, ridge: float = RIDGE
) -> wv.GeneralizedPolicy:
    """A policy that learned the history one by one."""
    policy = wv.GeneralizedPolicy(history.xs.shape[1], link, memory, scale, ridge, seed=17)
    for x, y in zip(history.xs, history.ys, strict=True):
        policy.learn(x, float(y))
    return policy


def first(history: naive.History, count: int) -> naive.History:
    return naive.observed(history.xs[:count], history.ys[:count])


@every_link
@every_memory
@pytest.mark.parametrize("seed", range(3))
def test_estimate_is_the_penalised_maximum_of_likelihood(
    link: str, memory: wv.Memory, seed: int
) -> None:
    history = observed(link, seed)
    policy = wv.GeneralizedPolicy(4, link, memory, ridge=RIDGE)
    assert policy.theta.tolist() == [0, 0, 0, 0]
    for t in range(120):
        policy.learn(history.xs[t], float(history.ys[t]))
        if t + 1 in (1, 2, 7, 40, 120):
            wanted = naive.generalized(link, memory, RIDGE, first(history, t + 1))
            np.testing.assert_allclose(policy.theta, wanted, atol=1e-7)
    assert policy.seen == 120


@every_memory
@pytest.mark.parametrize("ridge", [1.0, 1e-3])
def test_clicks_that_a_plane_separates_have_an_estimate(memory: wv.Memory, ridge: float) -> None:
    history = observed("logistic", 4)
    history = history._replace(ys=(history.xs[:, 0] > 0).astype(np.float64))
    policy = learned("logistic", memory, history, ridge=ridge)
    wanted = naive.generalized("logistic", memory, ridge, history)
    np.testing.assert_allclose(policy.theta, wanted, rtol=1e-7, atol=1e-7)


@every_link
@every_memory
def test_many_at_once_are_as_one_by_one(link: str, memory: wv.Memory) -> None:
    history = observed(link, 5)
    policy = wv.GeneralizedPolicy(4, link, memory, ridge=RIDGE)
    policy.learn_many(history.xs[:50], history.ys[:50])
    policy.learn_many([], [])
    policy.learn_many(history.xs[50:], history.ys[50:])
    np.testing.assert_allclose(policy.theta, learned(link, memory, history).theta, atol=1e-8)


@every_link
@every_memory
def test_a_draw_is_the_estimate_from_perturbed_rewards(link: str, memory: wv.Memory) -> None:
    """The same normals put into the formula as written: each reward its own, and the ridge's."""
    history = observed(link, 6)
    policy = learned(link, memory, history, scale=0.8)
    room = policy._arrays.past.shape[1]
    held = min(120, room)
    for start in list_starts(policy.key, 5):
        drawn, z = np.empty(4), np.empty(held + 4)
        assert kernels.sample_parameter(policy._rules, policy._arrays, start, drawn)
        _random.fill_normals(start, FIRST_FREE_PLACE, z)
        pseudo = 0.8 * np.array([z[i % room] if i >= 120 - room else 0.0 for i in range(120)])
        wanted = naive.generalized(link, memory, RIDGE, history, pseudo, 0.8 * z[held:])
        np.testing.assert_allclose(drawn, wanted, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("memory", [wv.keep(), wv.discount(0.9), wv.window(15)], ids=repr)
def test_under_the_identity_link_draws_have_the_law_of_thompson(memory: wv.Memory) -> None:
    """θ̃ ~ N(θ̂, a²V⁻¹): a missing γ², or a ridge without its noise, fails."""
    random = np.random.default_rng(11)
    history = naive.observed(unit_rows(random, 40, 4), random.random(40))
    policy = learned("identity", memory, history, scale=0.7, ridge=1.5)
    now = naive.estimate(memory, 1.5, history)
    np.testing.assert_allclose(policy.theta, now.theta, atol=1e-9)
    drawn = np.empty((20_000, 4))
    assert kernels.sample_parameters(policy._rules, policy._arrays, policy.key, 0, drawn)
    assert_normal(drawn, now.theta, 0.49 * now.V_inverse)


@every_link
def test_propensities_are_the_shares_of_choices(link: str) -> None:
    policy = learned(link, wv.discount(0.95), observed(link, 7), scale=2.0)
    policy.floor = 0.1
    policy._rules = policy._rules._replace(mix=0.1)
    arms = unit_rows(np.random.default_rng(3), 5, 4)
    shares = policy.propensities(arms, samples=4000)
    counts = np.bincount([policy.choose(arms).index for _ in range(4000)], minlength=5)
    assert shares.sum() == pytest.approx(1)
    assert shares.min() >= 0.1 / 5
    pooled = (counts + 4000 * shares) / 8000
    far = (counts / 4000 - shares) / np.sqrt(pooled * (1 - pooled) * 2 / 4000)
    assert np.abs(far).max() < 4.5


def test_the_chosen_arm_counts_as_one_draw_more() -> None:
    policy = learned("logistic", wv.keep(), observed("logistic", 7))
    arms = unit_rows(np.random.default_rng(3), 5, 4)
    shares = policy.propensities(arms, samples=9)
    more = policy.propensities(arms, samples=9, chosen=2)
    assert more == pytest.approx((9 * shares + np.eye(5)[2]) / 10)
    with pytest.raises(ArmsError, match="propensities: chosen must be below 5, got 5"):
        policy.propensities(arms, chosen=5)


@every_link
def test_without_noise_the_arm_of_the_largest_mean_is_played(link: str) -> None:
    policy = learned(link, wv.window(30), observed(link, 8), scale=0.0)
    arms = unit_rows(np.random.default_rng(3), 5, 4)
    expected = naive.mean_of(link, arms @ policy.theta)
    np.testing.assert_allclose(policy.mean(arms), expected, rtol=1e-12)
    best = int(np.argmax(expected))
    assert policy.choose(arms).index == best
    assert policy.propensities(arms, chosen=0).tolist() == np.eye(5)[best].tolist()


def test_equals_are_drawn_by_lot_and_a_floor_plays_any_arm() -> None:
    greedy = wv.GeneralizedPolicy(2, "logistic", wv.keep(), scale=0.0, seed=1)
    counts = np.bincount([greedy.choose(np.eye(2)).index for _ in range(2000)])
    assert stats.binomtest(int(counts[0]), 2000).pvalue > 1e-4
    floored = wv.GeneralizedPolicy(2, "logistic", wv.keep(), scale=0.0, seed=1, floor=0.4)
    floored.learn([1.0, 0.0], 1.0)
    played = sum(floored.choose(np.eye(2)).index for _ in range(2000))
    assert stats.binomtest(played, 2000, 0.2).pvalue > 1e-4


def test_rewards_may_come_late_once_and_in_any_order() -> None:
    policy = wv.GeneralizedPolicy(2, "poisson", wv.keep(), seed=2)
    one, two = policy.choose_many([np.eye(2), np.eye(2)])
    policy.learn_many([two, one], [3, 0])
    with pytest.raises(ChoiceError, match="round 0 was learned or dismissed"):
        policy.learn(one, 1.0)
    assert (policy.seen, policy.round) == (2, 2)


def play(policy: wv.GeneralizedPolicy, first: int, last: int) -> list[tuple[int, bytes, bytes]]:
    """Rounds with some rewards late, and all that could be seen in each of them."""
    arms = np.random.default_rng(12).standard_normal((200, 5, 3))
    seen = []
    for t in range(first, last):
        shares = policy.propensities(arms[t], samples=7).tobytes()
        choice = policy.choose(arms[t])
        if t % 3:
            policy.learn(choice, float(t % 2))
        seen.append((choice.index, policy.theta.tobytes(), shares))
    return seen


@every_link
@every_memory
def test_going_on_after_a_load_equals_never_having_stopped(
    link: str, memory: wv.Memory, tmp_path: Path
) -> None:
    policy = wv.GeneralizedPolicy(3, link, memory, 0.6, 0.7, seed=5, floor=0.05)
    play(policy, 0, 70)
    late = policy.choose(np.eye(3))
    policy.save(tmp_path / "policy.npz")
    loaded = wv.GeneralizedPolicy.load(tmp_path / "policy.npz")
    assert repr(loaded) == repr(policy)
    for one in (policy, loaded):
        one.learn(late, 0.5)
    assert play(loaded, 71, 150) == play(policy, 71, 150)
    assert contents(loaded, tmp_path) == contents(policy, tmp_path)


def test_asking_changes_nothing(tmp_path: Path) -> None:
    policy = learned("poisson", wv.discount(0.9), observed("poisson", 1))
    before = contents(policy, tmp_path)
    arms = unit_rows(np.random.default_rng(3), 5, 4)
    policy.propensities(arms)
    policy.mean(arms)
    policy.theta[:] = 7.0
    assert contents(policy, tmp_path) == before


def test_a_file_of_the_other_kind_is_refused_with_the_one_that_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "policy.npz"
    wv.Policy(2, wv.keep(), wv.greedy()).save(path)
    with pytest.raises(FileError, match=r"holds a Policy, not .*: Policy.load reads it"):
        wv.GeneralizedPolicy.load(path)
    wv.GeneralizedPolicy(2, "logistic", wv.keep()).save(path)
    with pytest.raises(FileError, match=r"holds a GeneralizedPolicy, not a Policy: "):
        wv.Policy.load(path)


@pytest.mark.parametrize(
    ("header", "arrays"),
    [
        ({"dim": 3}, {}),
        ({"link": "probit"}, {}),
        ({"link": "logistic"}, {}),  # its counts lie outside
        ({"memory": "restart(5)"}, {}),
        ({"memory": "window(9)"}, {}),
        ({"scale": -1.0}, {}),
        ({"ridge": 0.0}, {}),
        ({"floor": 2}, {}),
        ({"key": -1}, {}),
        ({"round": "1"}, {}),
        ({}, {"theta": np.zeros(5)}),
        ({}, {"theta": np.full(4, np.nan)}),
        ({}, {"theta": np.zeros(4, dtype=np.float32)}),
        ({}, {"inverse": np.zeros(16)}),
        ({}, {"past": np.zeros((5, 3))}),
        ({}, {"past": np.zeros((4, 200))}),
        ({}, {"past": np.zeros((5, 0))}),
        ({}, {"past": np.zeros(5)}),
        ({}, {"tally": np.array([-1, 0])}),
        ({}, {"tally": np.array([5, 6])}),
        ({}, {"tally": np.array([5.0, 0.0])}),
        ({}, {"open": np.zeros((2, 2), dtype=np.int64)}),
    ],
    ids=str,
)
def test_a_strangers_file_that_does_not_fit_together_is_refused(
    header: dict[str, Any], arrays: dict[str, Any], tmp_path: Path
) -> None:
    path = tmp_path / "policy.npz"
    learned("poisson", wv.keep(), observed("poisson", 1)).save(path)
    rewrite_saved(path, lambda *_: None, "GeneralizedPolicy")
    wv.GeneralizedPolicy.load(path)
    rewrite_saved(
        path, lambda old, held: (old.update(header), held.update(arrays)), "GeneralizedPolicy"
    )
    with pytest.raises(FileError, match="holds no policy that fits together"):
        wv.GeneralizedPolicy.load(path)


@pytest.mark.parametrize(
    ("link", "reward", "message"),
    [
        ("logistic", 1.2, r"under the logistic link must lie in \[0, 1\], got 1.2"),
        ("logistic", -0.1, r"under the logistic link must lie in \[0, 1\], got -0.1"),
        ("poisson", -1.0, "under the poisson link must be at least 0, got -1.0"),
        ("identity", float("nan"), "the reward must be a finite number, got nan"),
        ("poisson", float("inf"), "the reward must be a finite number, got inf"),
    ],
)
def test_a_reward_outside_the_range_of_the_link_is_refused_and_changes_nothing(
    link: str, reward: float, message: str, tmp_path: Path
) -> None:
    policy = wv.GeneralizedPolicy(2, link, wv.window(4), seed=1)
    policy.learn_many(np.eye(2), [0.5, 1.0])
    choices = policy.choose_many([np.eye(2)] * 3)
    before = contents(policy, tmp_path)
    with pytest.raises(RewardError, match=f"learn: .*{message}"):
        policy.learn(choices[0], reward)
    with pytest.raises(RewardError, match=f"learn_many: .*{message}"):
        policy.learn_many(choices, [0.0, 1.0, reward])
    assert contents(policy, tmp_path) == before
    policy.learn_many(choices, [0.0, 1.0, 0.25])


def test_features_that_are_not_finite_are_refused_and_change_nothing(tmp_path: Path) -> None:
    policy = wv.GeneralizedPolicy(2, "logistic", wv.keep(), seed=1)
    before = contents(policy, tmp_path)
    with pytest.raises(ArmsError, match="arm 1 is"):
        policy.choose([[0.0, 1.0], [np.nan, 0.0]])
    with pytest.raises(ArmsError, match="learn: features must be finite"):
        policy.learn([np.inf, 0.0], 1.0)
    with pytest.raises(ArmsError, match="learn_many: features must be finite"):
        policy.learn_many(np.array([[1.0, 0.0], [np.nan, 0.0]]), [1.0, 1.0])
    assert contents(policy, tmp_path) == before


@pytest.mark.parametrize("room", [3, 8, 20])
def test_an_estimate_that_is_not_reached_is_an_error_and_changes_nothing(
    room: int, tmp_path: Path
) -> None:
    """Counts of 1e86 beside none, with features of norm 2000, leave too few digits for some."""
    refusals = []
    for seed in range(8):
        policy = wv.GeneralizedPolicy(5, "poisson", wv.window(room), seed=1)
        policy.learn_many(np.eye(5), np.arange(5.0))
        before = contents(policy, tmp_path)
        xs = 1000 * np.random.default_rng(seed).standard_normal((10, 5))
        try:
            policy.learn_many(xs, np.where(xs[:, 0] > 0, 1e86, 0.0))
        except FitError as refusal:
            refusals.append((str(refusal), contents(policy, tmp_path) == before))
    said = "learn_many: the poisson estimate was not reached"
    assert refusals
    assert all(sentence.startswith(said) and same for sentence, same in refusals)


def test_a_draw_that_is_not_reached_is_an_error_and_ends_no_round() -> None:
    """Noise of 10 on clicks under a ridge of 1e-8 asks for parameters of size 1e9."""
    policy = wv.GeneralizedPolicy(5, "logistic", wv.keep(), scale=10.0, ridge=1e-8, seed=1)
    xs = 5 * np.random.default_rng(1).standard_normal((60, 5))
    policy.learn_many(xs, (xs[:, 0] > 0).astype(np.float64))
    sets = [xs[:4]] * 200
    with pytest.raises(FitError, match="choose: the logistic estimate was not reached"):
        policy.choose_many(sets)
    assert (policy.round, policy._open) == (0, set())


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"memory": wv.restart(5)}, rf"{WITH_LINK}, got restart\(5\)"),
        ({"memory": wv.restart_at([5])}, f"{WITH_LINK}, got restart_at"),
        ({"memory": 0.9}, "memory must be a Memory or a text such as"),
        ({"link": "probit"}, "link must be one of identity, logistic, poisson, got 'probit'"),
        ({"scale": -1.0}, "scale must be at least 0, got -1.0"),
        ({"ridge": 0.0}, "ridge must be above 0"),
        ({"ridge": 1e-200}, r"ridge must lie in \[1e-100, 1e100\]"),
        ({"floor": 1.5}, r"floor must lie in \[0, 1\]"),
        ({"dim": 0}, "dim must be a whole number >= 1"),
        ({"seed": -1}, "seed must be a whole number >= 0"),
    ],
    ids=str,
)
def test_settings_out_of_range_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingError, match=f"GeneralizedPolicy: {message}"):
        wv.GeneralizedPolicy(**{"dim": 2, "link": "logistic", "memory": wv.keep(), **given})


REWARDS = {
    "identity": worlds.gaussian(0.15),
    "logistic": worlds.bernoulli("logistic"),
    "poisson": worlds.poisson(),
}


@pytest.mark.parametrize("actions", [worlds.fresh(), worlds.fixed()], ids=repr)
@every_link
@every_memory
def test_engine_plays_the_arms_of_the_policy(
    memory: wv.Memory, link: str, actions: worlds.Actions
) -> None:
    drift = worlds.abrupt([50], flip=0.5)
    draw = worlds.world(4, 9, 120, drift, actions, REWARDS[link], start=2.0).draw(3)
    player = Player("it", memory, wv.perturbed_history(0.5), 0.7, 0.1, link=link)
    curve = replay_generalized(player, draw, 123, np.arange(1, 121))
    policy = wv.GeneralizedPolicy(draw.dim, link, memory, 0.5, 0.7, floor=0.1)
    np.testing.assert_allclose(curve, play_round_by_round(policy, 123, draw), atol=1e-9)


def test_rounds_played_at_random_come_first() -> None:
    draw = worlds.world(4, 9, 60, reward=REWARDS["logistic"], start=4.0).draw(3)
    marks = np.arange(1, 61)
    first, second = (
        replay_generalized(
            Player("it", memory, wv.perturbed_history(a), any_first=30, link="logistic"),
            draw,
            1,
            marks,
        )
        for memory, a in [(wv.keep(), 0.5), (wv.discount(0.9), 0.0)]
    )
    assert first[:30].tolist() == second[:30].tolist()
    assert first[30:].tolist() != second[30:].tolist()


def test_names_with_a_link_take_that_of_the_world() -> None:
    rewards = {
        worlds.gaussian(0.1): "identity",
        worlds.bounded(1.0): "identity",
        worlds.bernoulli(): "identity",
        worlds.bernoulli("clip"): "identity",
        worlds.bernoulli("logistic"): "logistic",
        worlds.poisson(): "poisson",
    }
    for reward, link in rewards.items():
        place = worlds.world(3, 5, 100, reward=reward)
        for name in ("FPL-GLM", "D-FPL-GLM", "SW-FPL-GLM"):
            assert plan.make_player({"name": name}, place).link == link
        assert plan.make_player({"name": "D-LinTS"}, place).link == ""


def test_a_table_may_give_a_link() -> None:
    place = worlds.world(3, 5, 100, reward=worlds.bernoulli("logistic"))
    table = {"memory": "discount(0.9)", "exploration": "perturbed_history(0.5)", "link": "logistic"}
    player = plan.make_player(table, place)
    assert (player.memory, player.exploration) == (wv.discount(0.9), wv.perturbed_history(0.5))
    assert player.link == "logistic"
    for change, message in [
        ({"exploration": "thompson(0.5)"}, "its exploration must be perturbed_history"),
        ({"exploration": "perturbed_history(3, 'coins')"}, "its exploration must be"),
        ({"memory": "restart(9)"}, WITH_LINK),
        ({"link": "probit"}, "link must be one of identity, logistic, poisson"),
    ]:
        with pytest.raises(SettingError, match=message):
            plan.make_player({**table, **change}, place)
