"""Learning: late rewards, many at once, restarts, and copies."""

from pathlib import Path

import numpy as np
import pytest

import naive
import windvane as wv
from grid import (
    ARMS,
    EXPLORATIONS,
    MEMORIES,
    REWARDS,
    busy_policy,
    contents,
    every_memory,
    row_and_column_of_each_belief,
    unit_rows,
)
from windvane.errors import ChoiceError


@row_and_column_of_each_belief
def test_learn_many_equals_repeated_learn(
    belief: str, memory: wv.Memory, exploration: wv.Exploration
) -> None:
    """Bit for bit, for choices and features mixed, some from before a restart."""
    many, open_many = busy_policy(memory, exploration, belief)
    one, open_one = busy_policy(memory, exploration, belief)
    more_many, more_one = many.choose_many(ARMS[20:60]), one.choose_many(ARMS[20:60])
    extra = [ARMS[70, 0], ARMS[71, 0]]
    rewards, times = np.random.default_rng(1).random(44), np.sqrt(np.arange(44.0))
    many.learn_many([*open_many, *more_many, *extra], rewards, at=times)
    for choice, reward, at in zip([*open_one, *more_one, *extra], rewards, times, strict=True):
        one.learn(choice, float(reward), at=float(at))
    assert many == one
    assert many._open == set()
    assert [many.choose(a).index for a in ARMS[:40]] == [one.choose(a).index for a in ARMS[:40]]


def test_learn_many_accepts_whatever_repeated_learn_accepts() -> None:
    """Observations that faded or left the window do not count towards the limit of squares."""
    xs = 1e5 * unit_rows(np.random.default_rng(0), 3000, 2)
    for memory in (wv.discount(0.9), wv.window(50)):
        one = wv.Policy(2, memory, wv.greedy(), seed=0)
        many = wv.Policy(2, memory, wv.greedy(), seed=0)
        for x in xs:
            one.learn(x, 1.0)
        many.learn_many(xs, np.ones(3000))
        assert many.theta.tobytes() == one.theta.tobytes()


def test_learning_nothing_at_once_changes_nothing(tmp_path: Path) -> None:
    policy, _ = busy_policy(wv.window(5), wv.thompson(1.0))
    before = contents(policy, tmp_path)
    policy.learn_many([], [])
    assert policy.choose_many([]) == []
    assert contents(policy, tmp_path) == before


@pytest.mark.parametrize("memory", [m for m in MEMORIES if not m.kind.raises_alarms], ids=repr)
def test_rewards_may_come_late_and_in_any_order(memory: wv.Memory) -> None:
    """The belief depends on the order of learning, not on the order of choosing."""
    policy = wv.Policy(3, memory, wv.optimism(1.0), seed=2)
    choices = [policy.choose(arms) for arms in ARMS[:60]]
    order = np.random.default_rng(4).permutation(60)[:40]
    for t in order:
        policy.learn(choices[t], REWARDS[t])
    xs = np.array([choices[t].features for t in order])
    expected = naive.estimate(memory, 1.0, naive.History(xs, REWARDS[order], order, 59))
    np.testing.assert_allclose(policy.theta, expected.theta, rtol=0, atol=1e-12)
    np.testing.assert_allclose(policy.belief.noise, expected.W_noise, rtol=0, atol=1e-12)


@every_memory
def test_a_round_without_reward_only_advances_the_round(memory: wv.Memory) -> None:
    """It does not change keep, discount and window; restarts and half-lives count the round."""
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
    expected = naive.estimate(memory, 1.0, history)
    np.testing.assert_allclose(policy.theta, expected.theta, rtol=0, atol=1e-12)
    if not memory.name.startswith(("restart", "half_life")):
        gapless = naive.estimate(memory, 1.0, naive.observed(history.xs, history.ys))
        np.testing.assert_array_equal(expected.W, gapless.W)


@pytest.mark.parametrize("memory", [wv.restart(5), wv.restart_at([5])], ids=repr)
@pytest.mark.parametrize("exploration", EXPLORATIONS, ids=repr)
def test_rewards_for_choices_before_a_restart_are_dropped(
    memory: wv.Memory, exploration: wv.Exploration
) -> None:
    policy = wv.Policy(3, memory, exploration, seed=2)
    before = policy.choose_many(ARMS[:5])
    after = policy.choose(ARMS[5])
    policy.learn(before[0], 1.0)
    policy.learn_many(before[1:4], np.ones(3))
    assert policy.belief.seen == 0
    assert not policy.theta.any()
    with pytest.raises(ChoiceError, match="learned or dismissed already"):
        policy.learn(before[0], 1.0)
    policy.learn_many([before[4], after], [1.0, 1.0])
    assert policy.belief.seen == 1
    np.testing.assert_allclose(policy.belief.gram, np.outer(after.features, after.features))


def test_a_restart_comes_before_the_round_with_its_number() -> None:
    policy = wv.Policy(3, wv.restart(4), wv.greedy(), seed=0)
    seen = []
    for t in range(10):
        choice = policy.choose(ARMS[t])
        seen.append(policy.belief.seen)
        policy.learn(choice, 1.0)
    assert seen == [0, 1, 2, 3, 0, 1, 2, 3, 0, 1]


def test_changing_the_arms_after_choosing_does_not_change_what_is_learned() -> None:
    arms = ARMS[0].copy()
    policy = wv.Policy(3, wv.window(4), wv.perturbed_history(1.0), seed=0)
    choice = policy.choose(arms)
    expected = arms[choice.index].copy()
    arms[:] = 99.0
    policy.learn(choice, 1.0)
    choice.features[:] = -99.0
    policy.learn(np.ones(3), 1.0)
    np.testing.assert_allclose(policy.belief.gram, np.outer(expected, expected) + np.ones((3, 3)))


def test_writing_to_theta_or_belief_does_not_change_the_policy() -> None:
    policy, _ = busy_policy(wv.discount(0.9), wv.optimism(1.0))
    theta, gram = policy.theta.copy(), policy.belief.gram.copy()
    policy.theta[:] = 0.0
    policy.belief.gram[:] = 0.0
    policy.belief.moment[:] = 0.0
    np.testing.assert_array_equal(policy.theta, theta)
    np.testing.assert_array_equal(policy.belief.gram, gram)


@pytest.mark.parametrize("reward", [1, True, np.float32(1), np.int8(1), np.float64(1)])
def test_any_real_number_is_a_reward(reward: float) -> None:
    policy = wv.Policy(1, wv.keep(), wv.greedy(), seed=0)
    policy.learn([1.0], reward)
    assert policy.theta.tolist() == [0.5]


def test_a_choice_may_be_dismissed_once() -> None:
    policy = wv.Policy(2, wv.keep(), wv.greedy(), seed=0)
    choice, other = policy.choose(np.eye(2)), policy.choose(np.eye(2))
    policy.dismiss(choice)
    assert policy._open == {other.round}
    for again in (policy.dismiss, lambda choice: policy.learn(choice, 1.0)):
        with pytest.raises(ChoiceError):
            again(choice)
    with pytest.raises(ChoiceError, match="another policy"):
        wv.Policy(2, wv.keep(), wv.greedy(), seed=1).dismiss(other)
