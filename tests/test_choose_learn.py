"""Choosing and learning: the arms of the formulas, in any order, and nothing from bad input."""

import math
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

import naive
import windvane as wv
from grid import (
    EXPLORATIONS,
    LAWS,
    MEMORIES,
    Floats,
    contents,
    every_exploration,
    every_memory,
    loosened,
    unit_rows,
)
from windvane import _random, kernels

ARMS = np.random.default_rng(31).standard_normal((400, 6, 3))
REWARDS = np.random.default_rng(32).random(400)


def draws_of(policy: wv.Policy, history: naive.History) -> naive.Draws:
    """The randomness that the policy is about to use, read off its stream."""
    exploration, d = policy.exploration, policy.dim
    start = np.uint64(_random.opening(np.uint64(policy.key), policy.round))
    if exploration.law:
        uniform = np.array([_random.uniform(start, 3)])
        if exploration.law.name == "grid":
            return naive.Draws(level=float(naive.quantile(exploration.law, uniform)[0]))
        level = np.empty(1)
        _random.normals(start, 3, level)
        return naive.Draws(
            float(np.abs(level[0]) if exploration.law.name != "normal" else level[0])
        )
    if exploration.name == "thompson":
        normals = np.empty(2 * d if policy.memory.name != "window" else d)
        _random.normals(start, 3, normals)
        return naive.Draws(normals=normals)
    held = np.count_nonzero(naive.weights(policy.memory, history, policy.ridge))
    pseudo = np.zeros(held + d if policy.memory.name != "kalman" else held + (held + 1) * d)
    if exploration.pseudo == "coins":
        for i in range(held):
            bits = int(_random.word(start, 3 + i))
            pseudo[i] = (bits & (2 ** int(exploration.scale) - 1)).bit_count()
    else:
        _random.normals(start, 3, pseudo)
    return naive.Draws(pseudo=pseudo)


@every_memory
@every_exploration
def test_every_pair_plays_as_the_formulas_say(
    memory: wv.Memory, exploration: wv.Exploration
) -> None:
    """Given the same draws, the arm chosen is on top of the scores as written."""
    policy = wv.Policy(3, memory, exploration, ridge=0.8, seed=9)
    xs, ys = np.zeros((0, 3)), np.zeros(0)
    for t in range(120):
        history = naive.History(xs, ys, np.arange(t), t)
        scores = naive.scores(exploration, memory, 0.8, history, ARMS[t], draws_of(policy, history))
        start = np.uint64(_random.opening(np.uint64(policy.key), t))
        choice = policy.choose(ARMS[t])
        if _random.uniform(start, 0) < exploration.chance:
            assert choice.index == int(6 * _random.uniform(start, 1))
        elif exploration.name == "inverse_gap" and np.ptp(scores) > 0:
            assert choice.index == naive.by_gap(
                scores, exploration.scale, _random.uniform(start, 3)
            )
        else:
            assert scores[choice.index] >= scores.max() - 1e-9 * (1 + abs(scores.max()))
        policy.learn(choice, REWARDS[t])
        xs, ys = np.vstack([xs, ARMS[t, choice.index]]), np.append(ys, REWARDS[t])


SCREENED = [m for m in MEMORIES if m.name not in ("discount", "half_life", "kalman", "detect")] + [
    wv.discount(gamma, single) for gamma in (0.5, 0.9, 0.99, 0.999) for single in (False, True)
]


WIDTHS = [wv.optimism(1.0), wv.optimism(30.0), *(wv.randomized(law) for law in LAWS)]


@pytest.mark.parametrize("memory", SCREENED, ids=repr)
@pytest.mark.parametrize("exploration", WIDTHS, ids=repr)
def test_screening_never_loses_the_best_arm(memory: wv.Memory, exploration: wv.Exploration) -> None:
    """Of 50 arms, often nearly alike, the one played is the best by exact widths of all."""
    plays_the_best_of_fifty(wv.Policy(10, memory, exploration, seed=3))


@pytest.mark.parametrize("single", [False, True], ids=["", "single"])
@pytest.mark.parametrize("gamma", [0.9, 0.99, 0.999])
@pytest.mark.parametrize("exploration", WIDTHS, ids=repr)
def test_screening_by_a_poor_guide_never_loses_the_best_arm(
    gamma: float, single: bool, exploration: wv.Exploration
) -> None:
    """Also where the widths at hand are far from the truth: their error is bounded, not hoped."""
    memory = wv.discount(gamma, single)
    plays_the_best_of_fifty(loosened(wv.Policy(10, memory, exploration, seed=3)))


def plays_the_best_of_fifty(policy: wv.Policy) -> None:
    """Round after round, by the exact scores of all arms."""
    memory, exploration = policy.memory, policy.exploration
    random = np.random.default_rng(17)
    theta = random.standard_normal(10)
    running = naive.Running(memory, 1.0, 10)
    assert exploration.law is not None
    for t in range(1500):
        running.tick(t)
        arms = unit_rows(random, 50, 10)
        if t % 2:
            arms = unit_rows(random, 1, 10) + 0.03 * arms
        now = running.estimate()
        widths = np.sqrt(np.einsum("kd,kd->k", arms @ now.V_inverse, arms))
        start = np.uint64(_random.opening(np.uint64(policy.key), t))
        choice = policy.choose(arms)
        z = kernels.level(policy._arrays.rules, kernels.scale_of(policy._arrays), start)
        scores = arms @ now.theta + z * widths
        assert scores[choice.index] >= scores.max() - 1e-9 * (1 + abs(z))
        reward = float(arms[choice.index] @ theta + random.standard_normal())
        policy.learn(choice, reward)
        running.learn(arms[choice.index], reward)


def test_equals_are_drawn_by_lot() -> None:
    """No place among equal arms is favoured."""
    policy = wv.Policy(2, wv.keep(), wv.greedy(), seed=0)
    played = [policy.choose(np.ones((4, 2))).index for _ in range(4000)]
    assert np.bincount(played, minlength=4).min() > 850


@every_memory
def test_a_seed_fixes_every_choice(memory: wv.Memory) -> None:
    """The same seed plays the same, another seed does not."""
    policies = [wv.Policy(3, memory, wv.thompson(1.0), seed=seed) for seed in (5, 5, 6)]
    played = [[policy.choose(arms).index for arms in ARMS[:60]] for policy in policies]
    assert played[0] == played[1] != played[2]


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda: wv.Policy(0, wv.keep(), wv.greedy()), "Policy: dim must be a whole number >= 1"),
        (
            lambda: wv.Policy(2, wv.keep(), wv.greedy(), ridge=0.0),
            "Policy: ridge must be above 0, got 0.0",
        ),
        (
            lambda: wv.Policy(2, wv.keep(), wv.greedy(), ridge=-1),
            "Policy: ridge must be above 0, got -1",
        ),
        (
            lambda: wv.Policy(2, wv.keep(), wv.greedy(), ridge=math.inf),
            "Policy: ridge must be a finite number, got inf",
        ),
        (
            lambda: wv.Policy(2, wv.keep(), wv.greedy(), floor=1.5),
            "Policy: floor must lie in [0, 1], got 1.5",
        ),
        (
            lambda: wv.Policy(2, wv.keep(), wv.greedy(), seed=-1),
            "Policy: seed must be a whole number >= 0, got -1",
        ),
        (
            lambda: wv.Policy(2, wv.greedy(), wv.keep()),  # type: ignore[arg-type]
            "Policy: memory must be a Memory or a text such as 'discount(0.99)', got greedy()",
        ),
        (lambda: wv.optimism(-1.0), "optimism: width must be at least 0, got -1.0"),
        (lambda: wv.thompson(math.nan), "thompson: scale must be a finite number, got nan"),
        (lambda: wv.epsilon(1.1), "epsilon: chance must lie in [0, 1], got 1.1"),
        (lambda: wv.normal(-0.1), "normal: scale must be at least 0, got -0.1"),
        (lambda: wv.half_normal(-0.1), "half_normal: scale must be at least 0, got -0.1"),
        (lambda: wv.grid(1.0, points=1), "grid: points must be a whole number >= 2, got 1"),
        (lambda: wv.grid(1.0, sigma=0.0), "grid: sigma must be above 0, got 0.0"),
        (lambda: wv.confidence(0.0), "confidence: delta must lie in (0, 1), got 0.0"),
        (lambda: wv.confidence(noise=-1.0), "confidence: noise must be at least 0, got -1.0"),
        (lambda: -1.0 * wv.confidence(), "confidence: a factor must be at least 0, got -1.0"),
        (
            lambda: wv.confidence(horizon=5, anytime=True),
            "confidence: give a horizon or anytime, not both",
        ),
        (
            lambda: wv.perturbed_history(0, "coins"),
            "perturbed_history: the number of coins must be a whole number >= 1, got 0",
        ),
        (
            lambda: wv.perturbed_history(65, "coins"),
            "perturbed_history: the number of coins must be at most 64, got 65",
        ),
        (
            lambda: wv.perturbed_history(1, "dice"),  # type: ignore[arg-type]
            "perturbed_history: pseudo must be 'normal' or 'coins', got 'dice'",
        ),
        (
            lambda: wv.randomized(0.5),  # type: ignore[arg-type]
            "randomized: law must be normal(...), half_normal(...) or grid(...), got 0.5",
        ),
    ],
)
def test_a_setting_outside_its_range_is_refused(make: Callable[[], object], complaint: str) -> None:
    """The message says who, what must hold and what came."""
    with pytest.raises(wv.SettingError, match=re.escape(complaint)):
        make()


def busy(memory: wv.Memory, exploration: wv.Exploration) -> tuple[wv.Policy, list[wv.Choice]]:
    """A policy with 14 rounds behind it, and two choices still open."""
    policy = wv.Policy(3, memory, exploration, seed=7)
    for t in range(14):
        policy.learn(policy.choose(ARMS[t]), REWARDS[t])
    return policy, [policy.choose(ARMS[14]), policy.choose(ARMS[15])]


def with_bad(value: float) -> Floats:
    """Six arms of which the third holds a bad number."""
    arms: Floats = ARMS[20].copy()
    arms[2, 1] = value
    return arms


BAD_ARMS: list[tuple[npt.ArrayLike, str]] = [
    (np.ones((4, 2)), "choose: arms must have shape (K, 3), got (4, 2)"),
    (np.ones(3), "choose: arms must have shape (K, 3), got (3,)"),
    (np.ones((2, 2, 3)), "choose: arms must have shape (K, 3), got (2, 2, 3)"),
    (np.ones((0, 3)), "choose: there must be at least one arm and feature, got (0, 3)"),
    ([], "choose: arms must have shape (K, 3), got (0,)"),
    ([[1.0, 2.0, 3.0], [1.0]], "choose: arms must be rows of numbers"),
    ([["a", "b", "c"]], "choose: arms must be rows of numbers"),
    (with_bad(math.nan), "choose: arms must be finite, with norm up to 1e+50; arm 2 is ["),
    (with_bad(math.inf), "choose: arms must be finite, with norm up to 1e+50; arm 2 is ["),
    (with_bad(-math.inf), "choose: arms must be finite, with norm up to 1e+50; arm 2 is ["),
    (with_bad(1e60), "choose: arms must be finite, with norm up to 1e+50; arm 2 is ["),
]


@every_memory
@every_exploration
def test_arms_that_cannot_be_scored_are_refused_and_change_nothing(
    memory: wv.Memory, exploration: wv.Exploration, tmp_path: Path
) -> None:
    """By every way in, the message says what must hold and what came."""
    policy, _ = busy(memory, exploration)
    before = contents(policy, tmp_path)
    for arms, complaint in BAD_ARMS:
        for ask in (
            policy.choose,
            policy.widths,
            policy.propensities,
            lambda bad: policy.choose_many([ARMS[0], bad, ARMS[1]]),
        ):
            with pytest.raises(wv.ArmsError, match=re.escape(complaint)):
                ask(arms)
    assert contents(policy, tmp_path) == before


def test_bad_arms_in_the_round_of_a_restart_do_not_restart(tmp_path: Path) -> None:
    """The restart waits for arms that can be chosen from."""
    policy = wv.Policy(3, wv.restart(5), wv.optimism(1.0), seed=7)
    for t in range(5):
        policy.learn(policy.choose(ARMS[t]), REWARDS[t])
    before = contents(policy, tmp_path)
    with pytest.raises(wv.ArmsError):
        policy.choose(with_bad(math.nan))
    assert contents(policy, tmp_path) == before
    policy.choose(ARMS[5])
    assert not policy.theta.any()


BAD_REWARDS: list[object] = [math.nan, math.inf, -math.inf, 1e200, None]


@every_memory
@every_exploration
def test_a_reward_that_is_no_number_is_refused_and_changes_nothing(
    memory: wv.Memory, exploration: wv.Exploration, tmp_path: Path
) -> None:
    """For a choice, which can still be learned after, and for features."""
    policy, (first, second) = busy(memory, exploration)
    before = contents(policy, tmp_path)
    for reward in BAD_REWARDS:
        complaint = re.escape(f"learn: the reward must be a finite number, got {reward!r}")
        for what in (first, first.features):
            with pytest.raises(wv.RewardError, match=complaint):
                policy.learn(what, reward)  # type: ignore[arg-type]
        with pytest.raises(wv.RewardError, match="learn"):
            policy.learn_many([first, second], [0.5, reward])  # type: ignore[list-item]
    assert contents(policy, tmp_path) == before
    policy.learn(first, 0.5)


@pytest.mark.parametrize("reward", ["high", "1.5", b"1.5", [0.5], 1j, {}], ids=repr)
def test_what_is_no_number_is_no_reward(reward: object, tmp_path: Path) -> None:
    """A text is refused even where it could be read as a number."""
    policy, (first, second) = busy(wv.keep(), wv.greedy())
    before = contents(policy, tmp_path)
    complaint = re.escape(f"learn: the reward must be a finite number, got {reward!r}")
    with pytest.raises(wv.RewardError, match=complaint):
        policy.learn(first, reward)  # type: ignore[arg-type]
    with pytest.raises(wv.RewardError, match="learn"):
        policy.learn_many([first, second], [0.5, reward])  # type: ignore[list-item]
    assert contents(policy, tmp_path) == before


def test_there_must_be_one_reward_for_each_choice(tmp_path: Path) -> None:
    """Too few, too many or a table of them are refused."""
    policy, choices = busy(wv.keep(), wv.greedy())
    before = contents(policy, tmp_path)
    for rewards in ([0.5], [0.5, 0.5, 0.5], [[0.5], [0.5]], [[0.5], [0.5, 1.0]]):
        with pytest.raises(wv.RewardError, match="learn_many"):
            policy.learn_many(choices, rewards)  # type: ignore[arg-type]
    assert contents(policy, tmp_path) == before


BAD_FEATURES: list[tuple[npt.ArrayLike, str]] = [
    (np.ones(2), "learn: features must have shape (3,), got (2,)"),
    (np.ones((1, 3)), "learn: features must have shape (3,), got (1, 3)"),
    (1.0, "learn: features must have shape (3,), got ()"),
    (["a", "b", "c"], "learn: features must be numbers"),
    ([1.0, math.nan, 0.0], "learn: features must be finite, with norm up to 1e+50"),
    ([1.0, math.inf, 0.0], "learn: features must be finite, with norm up to 1e+50"),
    ([1.0, 1e60, 0.0], "learn: features must be finite, with norm up to 1e+50"),
    ([1e7, 0.0, 0.0], "learn: the squared features learned so far must sum to at most 1e+13 times"),
]


@every_memory
@every_exploration
def test_features_that_cannot_be_learned_are_refused_and_change_nothing(
    memory: wv.Memory, exploration: wv.Exploration, tmp_path: Path
) -> None:
    """Also as the last of many, where those before it are good."""
    policy, choices = busy(memory, exploration)
    before = contents(policy, tmp_path)
    for features, complaint in BAD_FEATURES:
        with pytest.raises(wv.ArmsError, match=re.escape(complaint)):
            policy.learn(features, 0.5)
        many = [*choices, features]
        with pytest.raises(wv.ArmsError, match=re.escape(complaint)):
            policy.learn_many(many, np.ones(3))  # type: ignore[arg-type]
    assert contents(policy, tmp_path) == before


@pytest.mark.parametrize("seen", [0, 1, 64, 128])
@pytest.mark.parametrize("exploration", [wv.thompson(1.0), wv.perturbed_history(1.0)], ids=repr)
@pytest.mark.parametrize("memory", [wv.keep(), wv.discount(0.99), wv.window(200)], ids=repr)
def test_what_is_refused_makes_no_room_either(
    memory: wv.Memory, exploration: wv.Exploration, seen: int, tmp_path: Path
) -> None:
    """Where the observations themselves are kept, as many are kept after as before."""
    policy = wv.Policy(3, memory, exploration, seed=0)
    policy.learn_many(ARMS[:seen, 0], REWARDS[:seen])
    before = contents(policy, tmp_path)
    with pytest.raises(wv.ArmsError):
        policy.learn([1e7, 0.0, 0.0], 0.5)
    with pytest.raises(wv.ArmsError):
        policy.learn_many(np.array([[1.0, 0.0, 0.0], [1e7, 0.0, 0.0]]), [0.5, 0.5])
    assert contents(policy, tmp_path) == before


@every_memory
@every_exploration
def test_a_choice_is_learned_once_and_only_by_its_policy(
    memory: wv.Memory, exploration: wv.Exploration, tmp_path: Path
) -> None:
    """Twice, from another policy, or from the future: refused, and nothing has changed."""
    policy, (first, second) = busy(memory, exploration)
    policy.learn(first, 0.5)
    stranger = wv.Policy(3, memory, exploration, seed=8).choose(ARMS[0])
    unmade = wv.Choice(second.index, second.features, policy.round, policy.key)
    before = contents(policy, tmp_path)
    for choice, complaint in (
        (first, "learn: the choice of round 14 was learned already"),
        (stranger, "learn: this choice was made by another policy"),
        (unmade, "learn: this choice was made by another policy"),
    ):
        with pytest.raises(wv.ChoiceError, match=re.escape(complaint)):
            policy.learn(choice, 0.5)
        with pytest.raises(wv.ChoiceError, match=re.escape(complaint)):
            policy.learn_many([second, choice], [0.5, 0.5])
    with pytest.raises(wv.ChoiceError, match="a choice can be learned once"):
        policy.learn_many([second, second], [0.5, 0.5])
    assert contents(policy, tmp_path) == before
    policy.learn(stranger.features, 0.5)
    policy.learn(second, 0.5)


@pytest.mark.parametrize("other", [2, 4])
def test_a_choice_of_a_policy_with_the_same_seed_and_other_features_is_refused(other: int) -> None:
    """The seed alone does not make it the same policy."""
    policy, stranger = (wv.Policy(d, wv.keep(), wv.greedy(), seed=1) for d in (3, other))
    policy.choose(np.eye(3))
    choice = stranger.choose(np.eye(other))
    with pytest.raises(wv.WindvaneError):
        policy.learn(choice, 1.0)
    with pytest.raises(wv.WindvaneError):
        policy.learn_many([choice], [1.0])
    assert not policy.theta.any()


@every_memory
@every_exploration
def test_choose_many_equals_repeated_choose(
    memory: wv.Memory, exploration: wv.Exploration, tmp_path: Path
) -> None:
    """The same choices and the same state, with restarts on the way."""
    (many, _), (one, _) = busy(memory, exploration), busy(memory, exploration)
    at_once = many.choose_many(ARMS[20:70])
    in_turn = [one.choose(arms) for arms in ARMS[20:70]]
    assert [c.index for c in at_once] == [c.index for c in in_turn]
    assert [c.round for c in at_once] == [c.round for c in in_turn]
    for a, b in zip(at_once, in_turn, strict=True):
        np.testing.assert_array_equal(a.features, b.features)
    assert contents(many, tmp_path) == contents(one, tmp_path)
    mixed = many.choose_many([ARMS[0].tolist(), ARMS[1][:2]])
    assert [c.index for c in mixed] == [one.choose(ARMS[0]).index, one.choose(ARMS[1][:2]).index]


@every_memory
@every_exploration
def test_learn_many_equals_repeated_learn(memory: wv.Memory, exploration: wv.Exploration) -> None:
    """Bit for bit, for choices and bare features mixed, some of them from before a restart."""
    (many, open_many), (one, open_one) = busy(memory, exploration), busy(memory, exploration)
    more_many, more_one = many.choose_many(ARMS[20:60]), one.choose_many(ARMS[20:60])
    extra = [ARMS[70, 0], ARMS[71, 0]]
    rewards = np.random.default_rng(1).random(44)
    many.learn_many([*open_many, *more_many, *extra], rewards)
    for choice, reward in zip([*open_one, *more_one, *extra], rewards, strict=True):
        one.learn(choice, float(reward))
    assert many._arrays.block.tobytes() == one._arrays.block.tobytes()
    assert many._arrays.tally.tobytes() == one._arrays.tally.tobytes()
    assert many._open == one._open == set()
    held = many.belief.seen
    assert many._arrays.past[:held].tobytes() == one._arrays.past[:held].tobytes()
    assert [many.choose(a).index for a in ARMS[:40]] == [one.choose(a).index for a in ARMS[:40]]


def test_learn_many_accepts_whatever_repeated_learn_accepts() -> None:
    """What has faded or left the window no longer counts towards the largest sum of squares."""
    xs = 1e5 * unit_rows(np.random.default_rng(0), 3000, 2)
    for memory in (wv.discount(0.9), wv.window(50)):
        one = wv.Policy(2, memory, wv.greedy(), seed=0)
        many = wv.Policy(2, memory, wv.greedy(), seed=0)
        for x in xs:
            one.learn(x, 1.0)
        many.learn_many(xs, np.ones(3000))
        assert many.theta.tobytes() == one.theta.tobytes()


def test_learning_nothing_at_once_changes_nothing(tmp_path: Path) -> None:
    """An empty batch is no mistake."""
    policy, _ = busy(wv.window(5), wv.thompson(1.0))
    before = contents(policy, tmp_path)
    policy.learn_many([], [])
    assert policy.choose_many([]) == []
    assert contents(policy, tmp_path) == before


@pytest.mark.parametrize("memory", [m for m in MEMORIES if not m.kind.raises_alarms], ids=repr)
def test_rewards_may_come_late_and_in_any_order(memory: wv.Memory) -> None:
    """The belief is that of what was learned, in the order in which it was learned."""
    policy = wv.Policy(3, memory, wv.optimism(1.0), seed=2)
    choices = [policy.choose(arms) for arms in ARMS[:60]]
    order = np.random.default_rng(4).permutation(60)[:40]
    for t in order:
        policy.learn(choices[t], REWARDS[t])
    xs = np.array([choices[t].features for t in order])
    wanted = naive.estimate(memory, 1.0, naive.History(xs, REWARDS[order], order, 59))
    np.testing.assert_allclose(policy.theta, wanted.theta, rtol=0, atol=1e-12)
    np.testing.assert_allclose(policy.belief.noise, wanted.W_noise, rtol=0, atol=1e-12)


@every_memory
def test_a_round_without_reward_leaves_no_trace_but_its_tick(memory: wv.Memory) -> None:
    """Nothing at all for keep, discount and window; its tick for restarts and half-lives."""
    policy = wv.Policy(3, memory, wv.optimism(1.0), seed=2)
    xs, ys, rounds = [], [], []
    for t in range(60):
        choice = policy.choose(ARMS[t])
        if t % 4 == 1:
            policy.learn(choice, REWARDS[t])
            xs.append(choice.features)
            ys.append(REWARDS[t])
            rounds.append(t)
    history = naive.History(np.array(xs), np.array(ys), np.array(rounds), 59)
    wanted = naive.estimate(memory, 1.0, history)
    np.testing.assert_allclose(policy.theta, wanted.theta, rtol=0, atol=1e-12)
    if not memory.name.startswith(("restart", "half_life")):
        gapless = naive.estimate(memory, 1.0, naive.observed(history.xs, history.ys))
        np.testing.assert_array_equal(wanted.W, gapless.W)


@pytest.mark.parametrize("memory", [wv.restart(5), wv.restart_at([5])], ids=repr)
@pytest.mark.parametrize("exploration", EXPLORATIONS, ids=repr)
def test_rewards_for_choices_before_a_restart_are_dropped(
    memory: wv.Memory, exploration: wv.Exploration
) -> None:
    """They belong to what was dropped, yet cannot be learned twice either."""
    policy = wv.Policy(3, memory, exploration, seed=2)
    before = policy.choose_many(ARMS[:5])
    after = policy.choose(ARMS[5])
    policy.learn(before[0], 1.0)
    policy.learn_many(before[1:4], np.ones(3))
    assert policy.belief.seen == 0
    assert not policy.theta.any()
    with pytest.raises(wv.ChoiceError, match="learned already"):
        policy.learn(before[0], 1.0)
    policy.learn_many([before[4], after], [1.0, 1.0])
    assert policy.belief.seen == 1
    np.testing.assert_allclose(policy.belief.gram, np.outer(after.features, after.features))


def test_a_restart_comes_before_the_round_of_its_number() -> None:
    """Round H, counted from 0, is the first to see nothing of what came before."""
    policy = wv.Policy(3, wv.restart(4), wv.greedy(), seed=0)
    seen = []
    for t in range(10):
        choice = policy.choose(ARMS[t])
        seen.append(policy.belief.seen)
        policy.learn(choice, 1.0)
    assert seen == [0, 1, 2, 3, 0, 1, 2, 3, 0, 1]


def read_only(arms: Floats) -> Floats:
    """The same, which nobody may write to."""
    arms = arms.copy()
    arms.flags.writeable = False
    return arms


FORMS: dict[str, Callable[[Floats], npt.ArrayLike]] = {
    "read-only": read_only,
    "Fortran order": np.asfortranarray,
    "every other row": lambda arms: np.repeat(arms, 2, axis=0)[::2],
    "reversed twice": lambda arms: arms[::-1].copy()[::-1],
    "float32": lambda arms: arms.astype(np.float32),
    "integers": lambda arms: arms.astype(np.int64),
    "lists": lambda arms: arms.tolist(),
    "tuples of rows": lambda arms: tuple(arms),
    "big-endian": lambda arms: arms.astype(">f8"),
    "unaligned": lambda arms: np.frombuffer(
        b"x" + arms.tobytes(), dtype=np.float64, offset=1
    ).reshape(arms.shape),
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS.keys())
@every_exploration
def test_arms_in_any_form_are_the_same_arms(
    exploration: wv.Exploration, form: Callable[[Floats], npt.ArrayLike]
) -> None:
    """Whole numbers in float64 rows, and the same in other clothes, to the bit."""
    plain, other = (wv.Policy(3, wv.discount(0.9), exploration, seed=3) for _ in range(2))
    for t in range(40):
        arms = np.rint(4 * ARMS[t]) + 0.0
        one, two = plain.choose(arms), other.choose(form(arms))
        assert one.index == two.index
        assert one.features.tobytes() == two.features.tobytes()
        assert (
            plain.propensities(arms, samples=3).tobytes()
            == other.propensities(form(arms), samples=3).tobytes()
        )
        plain.learn(one, REWARDS[t])
        other.learn(two, REWARDS[t])
    assert plain.theta.tobytes() == other.theta.tobytes()


def test_changing_the_arms_after_choosing_does_not_change_what_is_learned() -> None:
    """A choice keeps its own copy of the features."""
    arms = ARMS[0].copy()
    policy = wv.Policy(3, wv.window(4), wv.perturbed_history(1.0), seed=0)
    choice = policy.choose(arms)
    wanted = arms[choice.index].copy()
    arms[:] = 99.0
    policy.learn(choice, 1.0)
    choice.features[:] = -99.0
    policy.learn(np.ones(3), 1.0)
    np.testing.assert_allclose(policy.belief.gram, np.outer(wanted, wanted) + np.ones((3, 3)))


def test_what_is_read_off_a_policy_cannot_change_it() -> None:
    """θ̂ and the arrays of a belief are copies."""
    policy, _ = busy(wv.discount(0.9), wv.optimism(1.0))
    theta, gram = policy.theta.copy(), policy.belief.gram.copy()
    policy.theta[:] = 0.0
    policy.belief.gram[:] = 0.0
    policy.belief.moment[:] = 0.0
    np.testing.assert_array_equal(policy.theta, theta)
    np.testing.assert_array_equal(policy.belief.gram, gram)


@pytest.mark.parametrize("reward", [1, True, np.float32(1), np.int8(1), np.float64(1)])
def test_any_real_number_is_a_reward(reward: float) -> None:
    """Whole, NumPy's own, or a truth value."""
    policy = wv.Policy(1, wv.keep(), wv.greedy(), seed=0)
    policy.learn([1.0], reward)
    assert policy.theta.tolist() == [0.5]


def test_a_choice_may_be_dismissed_once() -> None:
    """It leaves nothing to wait for, and cannot be learned or dismissed again."""
    policy = wv.Policy(2, wv.keep(), wv.greedy(), seed=0)
    choice, other = policy.choose(np.eye(2)), policy.choose(np.eye(2))
    policy.dismiss(choice)
    assert policy._open == {other.round}
    for again in (policy.dismiss, lambda made: policy.learn(made, 1.0)):
        with pytest.raises(wv.ChoiceError):
            again(choice)
    with pytest.raises(wv.ChoiceError, match="another policy"):
        wv.Policy(2, wv.keep(), wv.greedy(), seed=1).dismiss(other)


@pytest.mark.parametrize(
    "call",
    [
        lambda policy: policy.choose_many(5),
        lambda policy: policy.learn_many(5, [1.0]),
        lambda policy: policy.learn_many([policy.choose(np.eye(2))], 1.0),
        lambda policy: policy.learn_many([policy.choose(np.eye(2))], [1.0], at=5.0),
        lambda policy: policy.dismiss("a"),
        lambda policy: wv.finite(np.eye(2)).best("abc"),
        lambda policy: wv.GeneralizedPolicy(2, ["logistic"], wv.keep()),  # type: ignore[arg-type]
        lambda policy: wv.GeneralizedPolicy(2, "logistic", wv.discount(0.9, single=True)),
    ],
)
def test_what_is_no_list_and_no_choice_gets_a_sentence(
    call: Callable[[wv.Policy], object],
) -> None:
    with pytest.raises(wv.WindvaneError, match="must be"):
        call(wv.Policy(2, wv.keep(), wv.greedy(), seed=0))
