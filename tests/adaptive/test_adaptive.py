"""Bandits over bandits and predictive memory: the formulas, the same arms as the engine, laws."""

import math
from pathlib import Path

import numpy as np
import pytest

import windvane as wv
from game import play_round_by_round
from grid import EXPLORATIONS, Floats, contents, rewrite_saved, unit_rows
from windvane import sets
from windvane.beliefs import adaptive
from windvane.beliefs.adaptive import Adaptation, Adaptive, bandits, predictive
from windvane.errors import ArmsError, ChoiceError, FileError, RewardError, SettingError
from windvane.lab import worlds
from windvane.lab.engines.game import Player
from windvane.lab.engines.replay import replay_adaptive

KEY = 12345
KINDS = {
    "bandits": bandits(3, 150, "discount", 0.4),
    "bandits by window": bandits(3, 150, "window", 0.4),
    "bandits by restart": bandits(3, 150, "restart", 0.4),
    "warm": bandits(3, 150, "discount", 0.4, warm=True),
    "warm by restart": bandits(3, 150, "restart", 0.4, warm=True),
    "predictive": predictive("discount", 5, 40),
    "predictive by window": predictive("window", 5, 40),
    "predictive by restart": predictive("restart", 5, 40),
}
every_kind = pytest.mark.parametrize("adaptation", KINDS.values(), ids=KINDS)


def made(adaptation: Adaptation, exploration: wv.Exploration, dim: int = 3) -> Adaptive:
    return Adaptive(dim, adaptation, exploration, ridge=0.7, seed=3)


def play(policy: wv.Policy | Adaptive, rounds: int, seed: int = 0) -> list[int]:
    """Rounds of a game whose parameter turns around half-way; the arms chosen."""
    random = np.random.default_rng(seed)
    theta = np.ones(policy.dim)
    played = []
    for t in range(rounds):
        arms = unit_rows(random, 6, policy.dim)
        choice = policy.choose(arms)
        sign = -1.0 if t >= rounds // 2 else 1.0
        policy.learn(choice, sign * float(choice.features @ theta) + 0.1 * random.standard_normal())
        played.append(choice.index)
    return played


@pytest.mark.parametrize(
    ("dim", "horizon", "block", "windows"),
    [
        (10, 10_000, 177, [1, 2, 7, 22, 62, 177]),
        (1, 100, 10, [1, 3, 10]),
        (50, 10_000, 265, [1, 3, 9, 28, 86, 265]),
        (16, 400, 40, [1, 3, 11, 40]),
    ],
)
def test_blocks_and_critical_windows_are_the_papers(
    dim: int, horizon: int, block: int, windows: list[int]
) -> None:
    """H = ⌊d^{1/4}√T⌋ and J = {⌊H^{k/Δ}⌋}, worked out by hand."""
    assert adaptive.block_length(dim, horizon) == block
    assert adaptive.critical_windows(dim, horizon) == windows


@pytest.mark.parametrize(("dim", "horizon"), [(2, 50), (10, 10_000), (50, 100_000)])
def test_a_discount_forgets_all_but_one_part_in_t_over_its_window(dim: int, horizon: int) -> None:
    """γ^D = 1/T exactly, w = D, and a restart every D rounds."""
    windows = adaptive.critical_windows(dim, horizon)
    discounts = bandits(dim, horizon, "discount").memories
    for D, memory in zip(windows, discounts, strict=True):
        assert memory.gamma**D == pytest.approx(1 / horizon, rel=1e-12)
    assert [m.rounds for m in bandits(dim, horizon, "window").memories] == windows
    assert [m.every for m in bandits(dim, horizon, "restart").memories] == windows


def test_the_rate_and_the_scale_are_those_of_the_appendix() -> None:
    found = bandits(10, 10_000, "discount", noise=0.4)
    assert found.rate == pytest.approx(math.sqrt(6 * math.log(6) / ((math.e - 1) * 57)))
    size = 2 * 177 + 1.6 * math.sqrt(177 * math.log(10_000 / math.sqrt(177)))
    assert found.largest == pytest.approx(size)
    assert bandits(3, 8, "discount").rate <= 1.0


def test_exp3_follows_a_trace_worked_out_by_hand() -> None:
    """Two arms, α = 0.2: after a credit of 0.75 at chance ½, ln s = 0.1·1.5 = 0.15."""
    scores = np.zeros(2)
    np.testing.assert_allclose(adaptive.exp3_chances(scores, 0.2), [0.5, 0.5])
    assert adaptive.scale_block_reward(5.0, 20.0) == 0.75
    scores[0] += 0.2 / 2 * adaptive.scale_block_reward(5.0, 20.0) / 0.5
    assert scores[0] == pytest.approx(0.15)
    first = 0.8 * math.exp(0.15) / (math.exp(0.15) + 1) + 0.1
    np.testing.assert_allclose(adaptive.exp3_chances(scores, 0.2), [first, 1 - first], rtol=1e-14)
    assert adaptive.scale_block_reward(-50.0, 20.0) == 0.0
    assert adaptive.scale_block_reward(50.0, 20.0) == 1.0
    assert [adaptive.draw_index(np.array([0.3, 0.7]), u) for u in (0.29, 0.31, 0.999)] == [0, 1, 1]


def test_bandits_over_bandits_credit_each_block_to_the_memory_that_played_it() -> None:
    """EXP3's weights after five blocks are those of the rewards that each block earned."""
    policy = made(KINDS["bandits"], wv.greedy())
    how = policy.adaptation
    scores = np.zeros(len(how.memories))
    random = np.random.default_rng(1)
    acting, chance, earned = 0, 1.0, 0.0
    for t in range(5 * how.span):
        if t % how.span == 0:
            if t:
                gained = min(1.0, max(0.0, 0.5 + earned / how.largest)) / chance
                scores[acting] += how.rate / scores.size * gained
            weights = np.exp(scores)
            p = (1 - how.rate) * weights / weights.sum() + how.rate / scores.size
            u = adaptive.draw_block(policy.key, t // how.span)[0]
            acting, earned = int(np.searchsorted(np.cumsum(p), u)), 0.0
            chance = float(p[acting])
        choice = policy.choose(unit_rows(random, 4, 3))
        np.testing.assert_allclose(policy.chances, p, rtol=1e-12)
        reward = float(random.normal(0.3))
        policy.learn(choice, reward)
        earned += reward


def test_predictive_weights_are_those_of_the_errors() -> None:
    """w ∝ exp(−L/(2σ̂²) − ½·rank), L the faded squared errors of each memory on its own."""
    adaptation = predictive("discount", 5, 40, 0.9)
    policy = made(adaptation, wv.thompson(0.3))
    alone = [wv.Policy(3, m, wv.greedy(), ridge=0.7, seed=0) for m in adaptation.memories]
    losses, held = np.zeros(len(alone)), 0.0
    random = np.random.default_rng(5)
    for _ in range(60):
        choice = policy.choose(unit_rows(random, 5, 3))
        reward = float(random.normal())
        misses = np.array([reward - choice.features @ one.theta for one in alone])
        losses, held = 0.9 * losses + misses**2, 0.9 * held + 1
        policy.learn(choice, reward)
        for one in alone:
            one.learn(choice.features, reward)
        ranks = np.arange(len(alone))[::-1]
        wanted = np.exp(-(losses - losses.min()) / (2 * losses.min() / held) - 0.5 * ranks)
        np.testing.assert_allclose(policy.chances, wanted / wanted.sum(), rtol=1e-8)
        assert policy.memory == adaptation.memories[int(wanted.argmax())]


@pytest.mark.parametrize(
    ("adaptation", "exploration"),
    [
        *((kind, wv.randomized(wv.half_normal(1.0))) for kind in KINDS.values()),
        *((kind, wv.thompson(0.5)) for kind in KINDS.values()),
        *((KINDS["bandits"], exploration) for exploration in EXPLORATIONS),
        *((KINDS["predictive by window"], exploration) for exploration in EXPLORATIONS),
    ],
)
def test_the_engine_plays_the_same_arms(
    adaptation: Adaptation, exploration: wv.Exploration
) -> None:
    actions = worlds.fixed() if adaptation.span % 2 else worlds.fresh()
    draw = worlds.world(3, 7, 150, worlds.abrupt([70], flip=1.0), actions).draw(3)
    player = Player("it", wv.keep(), exploration, ridge=0.7)
    curve = replay_adaptive(player, adaptation, draw, KEY, np.arange(1, 151))
    policy = Adaptive(draw.dim, adaptation, exploration, ridge=0.7)
    np.testing.assert_allclose(curve, play_round_by_round(policy, KEY, draw), atol=1e-9)


@pytest.mark.parametrize(
    ("adaptation", "exploration"),
    [
        *((kind, wv.thompson(0.5)) for kind in KINDS.values()),
        (KINDS["warm by restart"], wv.perturbed_history(0.5)),
        (KINDS["predictive"], wv.randomized(wv.half_normal(1.0))),
        (KINDS["bandits"], wv.greedy()),
    ],
)
def test_saved_and_loaded_it_goes_on_bit_for_bit(
    adaptation: Adaptation, exploration: wv.Exploration, tmp_path: Path
) -> None:
    whole, part = made(adaptation, exploration), made(adaptation, exploration)
    late = [one.choose(np.eye(3)) for one in (whole, part)]
    play(whole, 70)
    play(part, 70)
    part.save(tmp_path / "part.npz")
    loaded = Adaptive.load(tmp_path / "part.npz")
    for one, choice in ((whole, late[0]), (loaded, late[1])):
        one.learn(choice, 0.5)
    assert play(loaded, 70, seed=1) == play(whole, 70, seed=1)
    ours, theirs = (contents(one, tmp_path) for one in (loaded, whole))
    assert ours == theirs


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    wv.Policy(3, wv.keep(), wv.greedy()).save(tmp_path / "policy.npz")
    bob = wv.BanditsOverBandits(3, 100, wv.greedy(), seed=1)
    bob.save(tmp_path / "bob.npz")
    assert repr(wv.BanditsOverBandits.load(tmp_path / "bob.npz")) == repr(bob)
    for load, name in (
        (wv.BanditsOverBandits.load, "policy.npz"),
        (wv.PredictiveMemory.load, "bob.npz"),
        (wv.Policy.load, "bob.npz"),
    ):
        with pytest.raises(FileError, match=r"fits? together|is not a|holds a"):
            load(tmp_path / name)


@every_kind
def test_what_is_refused_changes_nothing(adaptation: Adaptation, tmp_path: Path) -> None:
    policy = made(adaptation, wv.thompson(0.5))
    choice = policy.choose(np.eye(3))
    play(policy, 33)
    before = contents(policy, tmp_path)
    for arms in ([[1.0, np.nan, 0.0]], np.zeros((0, 3)), np.eye(4)):
        with pytest.raises(ArmsError):
            policy.choose(arms)
    with pytest.raises(RewardError):
        policy.learn(choice, float("nan"))
    with pytest.raises(ArmsError):
        policy.learn([1e9, 0.0, 0.0], 1.0)
    with pytest.raises(ArmsError):
        policy.learn_many(np.array([[1.0, 0.0, 0.0], [1e9, 0.0, 0.0]]), [1.0, 1.0])
    assert contents(policy, tmp_path) == before
    policy.learn(choice, 0.2)
    with pytest.raises(ChoiceError):
        policy.learn(choice, 0.2)


@pytest.mark.parametrize("wrong", [{"horizon": 3}, {"family": "kalman"}, {"noise": -1.0}])
def test_settings_outside_their_range_are_refused(wrong: dict[str, object]) -> None:
    given = {"dim": 3, "horizon": 100, "exploration": wv.greedy(), **wrong}
    with pytest.raises(SettingError, match="BanditsOverBandits"):
        wv.BanditsOverBandits(**given)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["warm", "bandits", "predictive"])
def test_propensities_are_the_mixture_that_choose_draws_from(kind: str) -> None:
    """Where a block begins, over the memories by EXP3's chances once the last block is paid."""
    random = np.random.default_rng(2)
    policy = made(KINDS[kind], wv.randomized(wv.half_normal(1.0)))
    play(policy, 3 * 16)
    arms = unit_rows(random, 4, 3)
    found = policy.propensities(arms)
    if kind == "predictive":
        acting = int(policy.chances.argmax())
        np.testing.assert_array_equal(found, policy._bases[acting].propensities(arms))
        return
    scores = policy._scores.copy()
    gained = (
        adaptive.scale_block_reward(policy._block_reward, policy.adaptation.largest)
        / policy._chance
    )
    scores[policy._acting] += policy.adaptation.rate / scores.size * gained
    blank = [wv.Policy(3, m, policy.exploration, 0.7) for m in policy.candidates]
    bases = policy._bases if kind == "warm" else blank
    shares = [base.propensities(arms) for base in bases]
    wanted = adaptive.exp3_chances(scores, policy.adaptation.rate) @ np.array(shares)
    np.testing.assert_allclose(found, wanted, rtol=1e-12)
    policy.choose(arms)
    np.testing.assert_allclose(policy._scores, scores, rtol=1e-12)


@pytest.mark.parametrize("rounds", [7, 16])
@every_kind
def test_a_refused_action_set_changes_nothing(
    adaptation: Adaptation, rounds: int, tmp_path: Path
) -> None:
    """Also where a block is about to begin, and for a set whose oracle fails."""
    policy = made(adaptation, wv.thompson(0.5))
    play(policy, rounds)
    before = contents(policy, tmp_path)
    broken = sets.oracle(lambda theta: [np.nan] * 3, 3)
    for actions in (sets.ball(4), broken):
        with pytest.raises(ArmsError):
            policy.choose(actions)
    assert contents(policy, tmp_path) == before


@pytest.mark.parametrize("name", ["BOB D-RandLinUCB", "Warm BOB D-LinTS", "Predictive D-LinTS"])
def test_what_is_made_by_name_is_loaded_as_what_it_is(name: str, tmp_path: Path) -> None:
    policy = wv.named(name, dim=3, horizon=1000, drift=1.0, arms=5)
    policy.save(tmp_path / "named.npz")
    kind = wv.PredictiveMemory if "Predictive" in name else wv.BanditsOverBandits
    other = wv.BanditsOverBandits if "Predictive" in name else wv.PredictiveMemory
    assert isinstance(policy, kind)
    for load in (kind.load, Adaptive.load):
        assert load(tmp_path / "named.npz").memory == policy.memory
    with pytest.raises(FileError, match="which is no"):
        other.load(tmp_path / "named.npz")


@pytest.mark.parametrize("wrong", [{"span": 0}, {"kind": "foo"}, {"fade": "x"}, {"rate": -1}])
def test_a_file_with_settings_that_cannot_be_is_refused(
    wrong: dict[str, object], tmp_path: Path
) -> None:
    path = tmp_path / "bob.npz"
    wv.BanditsOverBandits(3, 100, wv.greedy(), seed=1).save(path)
    rewrite_saved(path, lambda header, _: header["adaptation"].update(wrong), "Adaptive")
    with pytest.raises(FileError, match="no policy that fits together"):
        Adaptive.load(path)


def test_it_plays_on_action_sets() -> None:
    policy = wv.PredictiveMemory(3, wv.thompson(0.2), seed=1)
    theta = np.array([1.0, -2.0, 2.0])
    for _ in range(200):
        choice = policy.choose(sets.ball(3))
        policy.learn(choice, float(choice.features @ theta))
    assert policy.choose(sets.ball(3)).features @ theta > 0.99 * 3


def end_regret(adaptation: Adaptation, world: worlds.World, runs: int) -> float:
    exploration = wv.thompson(0.39)
    player = Player("it", wv.keep(), exploration)
    marks = np.array([world.horizon])
    return float(
        np.mean([replay_adaptive(player, adaptation, world.draw(i), i, marks) for i in range(runs)])
    )


@pytest.mark.parametrize("family", ["discount", "window", "restart"])
def test_the_regret_of_bandits_over_bandits_grows_slower_than_time(family: str) -> None:
    """From 2000 to 64 000 rounds of a turning world: T^0.93 at most, where T¹ is linear."""
    horizons = 2000, 64_000
    ends = [
        end_regret(
            bandits(2, T, family, 0.39), worlds.world(2, 5, T, worlds.rotation(math.pi)), runs=5
        )
        for T in horizons
    ]
    growth = math.log(ends[1] / ends[0]) / math.log(horizons[1] / horizons[0])
    assert 0.3 < growth < 0.93


@pytest.mark.parametrize(
    "drift", [worlds.abrupt([1500], flip=0.6), worlds.rotation(6.28), worlds.stationary()], ids=repr
)
def test_predictive_memory_comes_near_the_best_memory_in_hindsight(drift: worlds.Drift) -> None:
    """Within 15 % of the best fixed discount, and far ahead of the worst."""
    from experiments import run_experiment
    from windvane.lab.experiments import Experiment

    exploration = wv.thompson(0.39)
    world = worlds.world(10, 20, 3000, drift)
    fixed = [wv.discount(1 - 1 / L) for L in (20, 40, 80, 160, 320, 640, 1280)] + [wv.keep()]
    selection = Player("found", wv.keep(), exploration, adaptation=predictive("discount"))
    players = (selection, *(Player(repr(m), m, exploration) for m in fixed))
    ends: Floats = run_experiment(Experiment(players, world, 10, seed=1, points=1)).mean()[:, -1]
    assert ends[0] <= 1.15 * ends[1:].min()
    assert ends[0] < 0.5 * ends[1:].max()


def test_it_can_say_which_memory_it_believes_in() -> None:
    """A long one while nothing changes, and a short one soon after a change."""
    policy = wv.PredictiveMemory(3, wv.thompson(0.1), seed=2)
    random = np.random.default_rng(7)
    believed = []
    for t in range(1200):
        theta = np.array([1.0, 0.0, -1.0]) * (1 if t < 1000 else -1)
        choice = policy.choose(unit_rows(random, 8, 3))
        policy.learn(choice, float(choice.features @ theta + 0.2 * random.standard_normal()))
        believed.append(policy.memory)
    assert believed[999] == wv.keep()
    assert believed[1030].gamma <= 0.975


def test_without_noise_a_memory_that_is_ever_wrong_is_not_believed() -> None:
    """One that has made no error at all outweighs the others beyond measure."""
    np.testing.assert_array_equal(adaptive.predictive_chances(np.array([0.0, 1e-9]), 5.0), [1, 0])
    even = adaptive.predictive_chances(np.zeros(2), 0.0)
    assert even[1] > even[0] > 0
