"""What a policy refuses: settings, arms, rewards, features and choices; nothing changes then."""

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import windvane as wv
from grid import (
    ARMS,
    REWARDS,
    Floats,
    busy_policy,
    contents,
    read_any,
    row_and_column,
    row_and_column_of_each_belief,
)
from windvane import sets
from windvane.errors import ArmsError, ChoiceError, RewardError, SettingError

COINS = "perturbed_history: the number of coins must be"
BAD_PARTS = {
    "optimism(-1.0)": "optimism: width must be at least 0, got -1.0",
    "epsilon(1.1)": "epsilon: chance must lie in [0, 1], got 1.1",
    "normal(-0.1)": "normal: scale must be at least 0, got -0.1",
    "half_normal(-0.1)": "half_normal: scale must be at least 0, got -0.1",
    "grid(1.0, points=1)": "grid: points must be a whole number >= 2, got 1",
    "grid(1.0, sigma=0.0)": "grid: sigma must be above 0, got 0.0",
    "confidence(0.0)": "confidence: delta must lie in (0, 1), got 0.0",
    "confidence(noise=-1.0)": "confidence: noise must be at least 0, got -1.0",
    "-1.0 * confidence()": "confidence: a factor must be at least 0, got -1.0",
    "confidence(horizon=5, anytime=True)": "confidence: give a horizon or anytime, not both",
    "posterior(-0.5)": "posterior: share must be at least 0, got -0.5",
    "-1.0 * posterior()": "posterior: a factor must be at least 0, got -1.0",
    "perturbed_history(posterior())": "scale must be a finite number, got posterior(1.0)",
    "perturbed_history(0, 'coins')": f"{COINS} a whole number >= 1, got 0",
    "perturbed_history(65, 'coins')": f"{COINS} at most 64, got 65",
    "perturbed_history(1, 'dice')": "pseudo must be 'normal', 'coins' or 'evill', got 'dice'",
    "randomized(0.5)": "law must be normal(...), half_normal(...) or grid(...), got 0.5",
    **{
        f"discount({gamma})": f"discount: gamma must lie in (0, 1), got {gamma}"
        for gamma in (1.2, 1.0, 0.0, -0.5)
    },
    **{
        f"window({rounds!r})": f"window: rounds must be a whole number >= 1, got {rounds!r}"
        for rounds in (0, -3, 2.5, "3", None, True)
    },
    "restart(0)": "restart: every must be a whole number >= 1, got 0",
    "restart_at(4)": "restart_at: rounds must be a sequence, got 4",
    "restart_at([4, -1])": "restart_at: a round must be a whole number >= 0, got -1",
}


@pytest.mark.parametrize("text", BAD_PARTS)
def test_a_part_outside_its_range_is_refused(text: str) -> None:
    with pytest.raises(SettingError, match=re.escape(BAD_PARTS[text])):
        read_any(text)


@pytest.mark.parametrize("factory", [wv.discount, wv.thompson, wv.half_life])
@pytest.mark.parametrize("number", [math.nan, math.inf])
def test_a_number_that_is_not_finite_is_refused(
    factory: Callable[[float], object], number: float
) -> None:
    with pytest.raises(SettingError, match=f"must be a finite number, got {number}"):
        factory(number)


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"dim": 0}, "dim must be a whole number >= 1, got 0"),
        ({"ridge": 0.0}, "ridge must be above 0, got 0.0"),
        ({"ridge": -1}, "ridge must be above 0, got -1"),
        ({"ridge": math.inf}, "ridge must be a finite number, got inf"),
        ({"floor": 1.5}, "floor must lie in [0, 1], got 1.5"),
        ({"seed": -1}, "seed must be a whole number >= 0, got -1"),
        ({"memory": wv.greedy()}, "memory must be a Memory or a text such as 'discount(0.99)'"),
    ],
    ids=repr,
)
@pytest.mark.parametrize("belief", ["full", "diagonal"])
def test_a_setting_outside_its_range_is_refused(
    given: dict[str, Any], complaint: str, belief: str
) -> None:
    settings: dict[str, Any] = {
        "dim": 2,
        "memory": "keep()",
        "exploration": "greedy()",
        "belief": belief,
    }
    with pytest.raises(SettingError, match=re.escape(f"Policy: {complaint}")):
        wv.Policy(**(settings | given))


def arms_with(value: float) -> Floats:
    """Six arms, with this number in the third."""
    arms: Floats = ARMS[20].copy()
    arms[2, 1] = value
    return arms


BAD_ARMS: list[tuple[npt.ArrayLike, str]] = [
    (np.ones((4, 2)), "choose: arms must have shape (K, 3), one row for each arm, got (4, 2)"),
    (np.ones(3), "choose: arms must have shape (K, 3), one row for each arm, got (3,)"),
    (np.ones((2, 2, 3)), "choose: arms must have shape (K, 3), one row for each arm, got (2, 2,"),
    (np.ones((0, 3)), "choose: there must be at least one arm and feature, got (0, 3)"),
    ([], "choose: arms must have shape (K, 3), one row for each arm, got (0,)"),
    (1j * np.ones((2, 3)), "choose: arms must be rows of numbers: complex128 is not a real number"),
    (np.ones((2, 3), "M8[s]"), "choose: arms must be rows of numbers: datetime64[s] is not a real"),
    ([[1.0, 2.0, 3.0], [1.0]], "choose: arms must be rows of numbers"),
    ([["a", "b", "c"]], "choose: arms must be rows of numbers"),
    *(
        (arms_with(number), "choose: arms must be finite, with norm up to 1e+50; arm 2 is [")
        for number in (math.nan, math.inf, -math.inf, 1e60)
    ),
]


@row_and_column
def test_arms_that_cannot_be_scored_are_refused_and_change_nothing(
    memory: wv.Memory, exploration: wv.Exploration, tmp_path: Path
) -> None:
    """Every method that takes arms refuses them with the condition and the value."""
    policy, _ = busy_policy(memory, exploration)
    before = contents(policy, tmp_path)
    for arms, complaint in BAD_ARMS:
        for ask in (
            policy.choose,
            policy.widths,
            policy.propensities,
            lambda bad: policy.choose_many([ARMS[0], bad, ARMS[1]]),
        ):
            with pytest.raises(ArmsError, match=re.escape(complaint)):
                ask(arms)
    assert contents(policy, tmp_path) == before


def test_bad_arms_in_the_round_of_a_restart_do_not_restart(tmp_path: Path) -> None:
    policy = wv.Policy(3, wv.restart(5), wv.optimism(1.0), seed=7)
    for t in range(5):
        policy.learn(policy.choose(ARMS[t]), REWARDS[t])
    before = contents(policy, tmp_path)
    with pytest.raises(ArmsError):
        policy.choose(arms_with(math.nan))
    assert contents(policy, tmp_path) == before
    policy.choose(ARMS[5])
    assert not policy.theta.any()


NO_REWARDS: tuple[Any, ...] = (math.nan, math.inf, -math.inf, 1e200, None, "1.5")
OTHER_TYPES: tuple[Any, ...] = ("high", b"1.5", [0.5], 1j, {})


@row_and_column
def test_a_reward_that_is_no_number_is_refused_and_changes_nothing(
    memory: wv.Memory, exploration: wv.Exploration, tmp_path: Path
) -> None:
    """For a choice, which can still be learned afterwards, and for features."""
    policy, (first, second) = busy_policy(memory, exploration)
    before = contents(policy, tmp_path)
    for reward in (*NO_REWARDS, *(OTHER_TYPES if memory.name == "keep" else ())):
        bound = " of at most 1e+100 in size" if reward == 1e200 else ""
        complaint = f"learn: the reward must be a finite number{bound}, got {reward!r}"
        for what in (first, first.features):
            with pytest.raises(RewardError, match=re.escape(complaint)):
                policy.learn(what, reward)
        with pytest.raises(RewardError, match="learn"):
            policy.learn_many([first, second], [0.5, reward])
    for rewards in ([0.5], [0.5, 0.5, 0.5], [[0.5], [0.5]], [[0.5], [0.5, 1.0]]):
        with pytest.raises(RewardError, match="learn_many"):
            policy.learn_many([first, second], rewards)  # type: ignore[arg-type]
    assert contents(policy, tmp_path) == before
    policy.learn(first, 0.5)


BAD_FEATURES: list[tuple[npt.ArrayLike, str]] = [
    (np.ones(2), "learn: features must have shape (3,), got (2,)"),
    (np.ones((1, 3)), "learn: features must have shape (3,), got (1, 3)"),
    (1.0, "learn: features must have shape (3,), got 1.0"),
    (None, "learn: features must have shape (3,), got None"),  # type: ignore[list-item]
    (1j * np.ones(3), "learn: features must be numbers: complex128 is not a real number"),
    (["a", "b", "c"], "learn: features must be numbers"),
    *(
        ([1.0, number, 0.0], "learn: features must be finite, with norm up to 1e+50")
        for number in (math.nan, math.inf, 1e60)
    ),
    ([1e7, 0.0, 0.0], "learn: the squared features learned so far must sum to at most 1e+13 times"),
]


@row_and_column
def test_features_that_cannot_be_learned_are_refused_and_change_nothing(
    memory: wv.Memory, exploration: wv.Exploration, tmp_path: Path
) -> None:
    policy, choices = busy_policy(memory, exploration)
    before = contents(policy, tmp_path)
    for features, complaint in BAD_FEATURES:
        with pytest.raises(ArmsError, match=re.escape(complaint)):
            policy.learn(features, 0.5)
        with pytest.raises(ArmsError, match=re.escape(complaint)):
            policy.learn_many([*choices, features], np.ones(3))
    assert contents(policy, tmp_path) == before


@pytest.mark.parametrize("seen", [0, 1, 64, 128])
@pytest.mark.parametrize("exploration", [wv.thompson(1.0), wv.perturbed_history(1.0)], ids=repr)
@pytest.mark.parametrize("memory", [wv.keep(), wv.discount(0.99), wv.window(200)], ids=repr)
def test_a_refused_observation_does_not_grow_the_history(
    memory: wv.Memory, exploration: wv.Exploration, seen: int, tmp_path: Path
) -> None:
    """Policies that keep past observations have as much room after the error as before."""
    policy = wv.Policy(3, memory, exploration, seed=0)
    policy.learn_many(ARMS[:seen, 0], REWARDS[:seen])
    before = contents(policy, tmp_path)
    with pytest.raises(ArmsError):
        policy.learn([1e7, 0.0, 0.0], 0.5)
    with pytest.raises(ArmsError):
        policy.learn_many(np.array([[1.0, 0.0, 0.0], [1e7, 0.0, 0.0]]), [0.5, 0.5])
    assert contents(policy, tmp_path) == before


@row_and_column_of_each_belief
def test_a_choice_is_learned_once_and_only_by_its_policy(
    belief: str, memory: wv.Memory, exploration: wv.Exploration, tmp_path: Path
) -> None:
    policy, (first, second) = busy_policy(memory, exploration, belief)
    policy.learn(first, 0.5)
    stranger = wv.Policy(3, memory, exploration, seed=8, belief=belief).choose(ARMS[0])
    unmade = wv.Choice(second.index, second.features, policy.round, policy.key)
    before = contents(policy, tmp_path)
    for choice, complaint in (
        (first, "the choice of round 14 was learned or dismissed already"),
        (stranger, "this choice was made by another policy"),
        (unmade, "this choice was made by another policy"),
    ):
        with pytest.raises(ChoiceError, match=f"^learn: {complaint}"):
            policy.learn(choice, 0.5)
        with pytest.raises(ChoiceError, match=f"^learn_many: {complaint}"):
            policy.learn_many([second, choice], [0.5, 0.5])
        with pytest.raises(ChoiceError, match=f"^dismiss: {complaint}$"):
            policy.dismiss(choice)
    with pytest.raises(ChoiceError, match="a choice can be learned once"):
        policy.learn_many([second, second], [0.5, 0.5])
    assert contents(policy, tmp_path) == before
    policy.learn(stranger.features, 0.5)
    policy.learn(second, 0.5)


@pytest.mark.parametrize("belief", ["full", "diagonal"])
@pytest.mark.parametrize("other", [2, 4])
def test_a_choice_of_a_policy_with_the_same_seed_and_other_features_is_refused(
    other: int, belief: str
) -> None:
    policy, stranger = (
        wv.Policy(dim, "keep()", "greedy()", seed=1, belief=belief) for dim in (3, other)
    )
    policy.choose(np.eye(3))
    choice = stranger.choose(np.eye(other))
    with pytest.raises(ChoiceError, match="made by another policy"):
        policy.learn(choice, 1.0)
    with pytest.raises(ChoiceError, match="made by another policy"):
        policy.learn_many([choice], [1.0])
    assert not policy.theta.any()


@pytest.mark.parametrize(
    "call",
    [
        lambda policy: policy.choose_many(5),
        lambda policy: policy.learn_many(5, [1.0]),
        lambda policy: policy.learn_many([policy.choose(np.eye(2))], 1.0),
        lambda policy: policy.learn_many([policy.choose(np.eye(2))], [1.0], at=5.0),
        lambda policy: policy.dismiss("a"),
        lambda policy: sets.finite(np.eye(2)).best("abc"),
        lambda policy: wv.GeneralizedPolicy(2, ["logistic"], wv.keep()),  # type: ignore[arg-type]
        lambda policy: wv.GeneralizedPolicy(2, "logistic", wv.discount(0.9, single=True)),
        lambda policy: wv.GeneralizedPolicy(2, "logistic", wv.keep(), wv.posterior()),  # type: ignore[arg-type]
    ],
)
def test_arguments_of_another_type_are_refused(call: Callable[[wv.Policy], object]) -> None:
    with pytest.raises(wv.WindvaneError, match="must be"):
        call(wv.Policy(2, wv.keep(), wv.greedy(), seed=0))


@pytest.mark.parametrize(("dim", "gamma"), [(1, 0.99), (10, 0.99), (50, 0.998), (200, 0.9995)])
def test_a_policy_without_settings_has_a_memory_for_its_dimension(dim: int, gamma: float) -> None:
    """discount(1 − 1/n) with n = max(100, 10·d), and a half-normal half of the noise."""
    policy = wv.Policy(dim)
    assert policy.memory.name == "discount"
    assert policy.memory.gamma == pytest.approx(gamma, abs=1e-12)
    assert policy.exploration == wv.randomized(wv.half_normal(wv.posterior(0.5)))
    assert (policy.ridge, policy.floor) == (0.01, 0.0)


def test_a_policy_with_an_exploration_has_a_ridge_of_one() -> None:
    assert wv.Policy(2, wv.keep(), wv.thompson(0.5)).ridge == 1.0
    assert wv.Policy(2, exploration=wv.thompson(0.5)).ridge == 1.0
    assert wv.Policy(2, ridge=2.0).ridge == 2.0


@pytest.mark.parametrize("size", [1.0, 100.0])
def test_a_policy_without_settings_finds_the_best_arm_and_the_next_best(size: float) -> None:
    """Before and after a change of the best arm, nine of ten late choices are right."""
    worth = size * np.array([[0.2, 0.8, 0.5], [0.9, 0.1, 0.5]])
    late = []
    for seed in range(10):
        policy, random = wv.Policy(3, seed=seed), np.random.default_rng(seed)
        for t in range(1200):
            choice, means = policy.choose(np.eye(3)), worth[t // 600]
            policy.learn(choice, float(means[choice.index] + 0.1 * size * random.normal()))
            if t % 600 >= 400:
                late.append(means[choice.index] == means.max())
    assert np.mean(late) > 0.9
