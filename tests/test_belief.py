"""Beliefs: the sums, estimate and widths of every memory against the plain formulas."""

import copy
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import naive
import windvane as wv
from grid import (
    Floats,
    check_estimate,
    every_exploration,
    every_memory,
    every_mergeable,
    make_inversions_rare,
    unit_rows,
)
from windvane.beliefs.full import block
from windvane.beliefs.full.block import reset, view_belief
from windvane.beliefs.full.learning import learn_and_track
from windvane.beliefs.full.widths import (
    TrackedArms,
    bound_width_error,
    compute_exact_width,
    measure_arms,
    read_width,
)
from windvane.errors import BeliefError

GAMMAS = [0.05, 0.5, 0.9, 0.99, 0.999, 0.9999]


def learn_all(memory: wv.Memory, xs: Floats, ys: Floats, ridge: float = 1.0) -> wv.Policy:
    """A policy that has chosen each row as its only arm and learned the reward."""
    policy = wv.Policy(xs.shape[1], memory, wv.optimism(1.0), ridge=ridge, seed=0)
    for x, y in zip(xs, ys, strict=True):
        policy.learn(policy.choose(x[None, :]), float(y))
    return policy


def check_belief(policy: wv.Policy, history: naive.History, arms: Floats) -> None:
    """Compare with the formulas over the whole history, also the widths of compiled code."""
    expected = naive.estimate(policy.memory, policy.ridge, history)
    check_estimate(policy, expected, arms)
    np.testing.assert_allclose(compiled_widths(policy, arms), expected.widths(arms), rtol=1e-9)


def compiled_widths(policy: wv.Policy, arms: Floats) -> Floats:
    """The widths as the compiled code of `choose` computes them."""
    state = view_belief(policy._belief.arrays)
    return np.array([compute_exact_width(policy._belief.arrays, state, x) for x in arms])


@every_memory
@pytest.mark.parametrize("dim", [1, 2, 10, 50])
def test_every_memory_agrees_with_the_formulas_over_thousands_of_rounds(
    memory: wv.Memory, dim: int
) -> None:
    """The running sums differ from those of the whole history by at most 1e-9 of their size."""
    random = np.random.default_rng(dim)
    count = 2000
    xs, arms = unit_rows(random, count, dim) * 1.7, unit_rows(random, 3, dim)
    ys = xs @ random.standard_normal(dim) + random.standard_normal(count)
    policy = wv.Policy(dim, memory, wv.optimism(1.0), ridge=0.5, seed=0)
    for n in range(1, count + 1):
        policy.learn(policy.choose(xs[n - 1 : n]), float(ys[n - 1]))
        if (n < 70 and n % 3 == 0) or n % 211 == 0 or n == count:
            check_belief(policy, naive.observed(xs[:n], ys[:n]), arms)


@pytest.mark.parametrize("single", [False, True], ids=["", "single"])
@pytest.mark.parametrize("gamma", GAMMAS)
@pytest.mark.parametrize("rarely", [False, True], ids=["", "inverting rarely"])
def test_every_discount_agrees_with_the_formulas(gamma: float, rarely: bool, single: bool) -> None:
    """From a γ that forgets in one step to a γ close to 1."""
    random = np.random.default_rng(3)
    xs, ys = random.standard_normal((700, 4)), random.standard_normal(700)
    policy = wv.Policy(4, wv.discount(gamma, single), wv.optimism(1.0), ridge=2.0, seed=0)
    if rarely:
        make_inversions_rare(policy)
    for n in range(1, 701):
        policy.learn(xs[n - 1], float(ys[n - 1]))
        if n % 23 == 0:
            check_belief(policy, naive.observed(xs[:n], ys[:n]), np.eye(4))


memories = st.one_of(
    st.just(wv.keep()),
    st.sampled_from(GAMMAS).map(wv.discount),
    st.sampled_from(GAMMAS).map(lambda gamma: wv.discount(gamma, single=True)),
    st.sampled_from([0.01, 0.4, 3.0, 1e6]).map(wv.half_life),
    st.sampled_from([0.3, 0.9, 0.999]).map(lambda rho: wv.kalman(rho, 0.7)),
    st.sampled_from([0.5, 3.0, 25.0]).map(lambda alarm: wv.detect(0.3, alarm=alarm)),
    st.sampled_from([1, 2, 5, 1000]).map(wv.window),
    st.sampled_from([1, 2, 7, 1000]).map(wv.restart),
    st.lists(st.integers(0, 25), max_size=3).map(wv.restart_at),
)


@st.composite
def histories(draw: st.DrawFn, least: int = 1) -> naive.History:
    """Observations that contain zeros, repeats and multiples of each other."""
    dim, count = draw(st.integers(1, 4)), draw(st.integers(least, 25))
    number = st.integers(-8, 8).map(lambda eighths: eighths / 8)
    pool = [np.zeros(dim), *(np.eye(dim)), -2.0 * np.ones(dim)]
    pool += draw(st.lists(st.lists(number, min_size=dim, max_size=dim).map(np.array), max_size=3))
    xs = np.array(draw(st.lists(st.sampled_from(pool), min_size=count, max_size=count)))
    ys = np.array(draw(st.lists(number, min_size=count, max_size=count)))
    return naive.observed(xs.reshape(count, dim), ys)


@given(memory=memories, history=histories(), ridge=st.sampled_from([0.01, 1.0, 30.0]))
def test_every_short_history_agrees_with_the_formulas(
    memory: wv.Memory, history: naive.History, ridge: float
) -> None:
    """Zero vectors, repeats, missing directions, short and long windows, restarts in round 0."""
    policy = learn_all(memory, history.xs, history.ys, ridge)
    arms = np.vstack([np.eye(history.xs.shape[1]), np.ones(history.xs.shape[1])])
    check_belief(policy, history, arms)


@given(memory=memories, history=histories(), ridge=st.sampled_from([0.01, 1.0, 30.0]))
def test_uncertainty_never_exceeds_that_of_a_blank_belief(
    memory: wv.Memory, history: naive.History, ridge: float
) -> None:
    """V⁻¹ ≼ W⁻¹ ≼ I/λ."""
    belief = learn_all(memory, history.xs, history.ys, ridge).belief
    inverse = np.linalg.inv(belief.precision)
    blank = np.eye(belief.dim) / ridge
    assert np.linalg.eigvalsh(inverse - belief.covariance).min() >= -1e-9 / ridge
    assert np.linalg.eigvalsh(blank - inverse).min() >= -1e-9 / ridge


def test_a_window_forgets_large_observations_completely() -> None:
    random = np.random.default_rng(0)
    sizes = np.where(np.arange(120) < 14, 1e6 * 10.0 ** (-0.45 * np.arange(120)), 0.0)
    xs = 0.3 * random.standard_normal((120, 3)) + sizes[:, None] / np.sqrt(3)
    ys = random.standard_normal(120)
    policy = wv.Policy(3, wv.window(60), wv.optimism(1.0), seed=0)
    for n in range(1, 121):
        policy.learn(xs[n - 1], float(ys[n - 1]))
        expected = naive.estimate(policy.memory, 1.0, naive.observed(xs[:n], ys[:n]))
        if np.linalg.cond(expected.W) < 100:
            size = np.abs(expected.theta).max()
            np.testing.assert_allclose(policy.theta, expected.theta, rtol=0, atol=1e-8 * size)


TRACKED = [wv.keep(), wv.window(40), wv.discount(0.999), wv.discount(0.98), wv.half_life(30.0)]
TRACKED += [wv.discount(0.98, single=True), wv.kalman(0.99, 0.5), wv.detect(0.3, 0.0, alarm=3.0)]


@pytest.mark.parametrize("memory", TRACKED, ids=repr)
@pytest.mark.parametrize("count", [1, 5, 8])
def test_widths_of_fixed_arms_are_updated_with_each_observation(
    memory: wv.Memory, count: int
) -> None:
    """They equal recomputed widths, and their error stays within the stated bound."""
    random = np.random.default_rng(6)
    xs, arms = random.standard_normal((500, 6)), random.standard_normal((count, 6))
    policy = wv.Policy(6, memory, wv.optimism(1.0), seed=0)
    if memory.gamma < 1:
        make_inversions_rare(policy)
    policy._belief.make_room(500)
    state = view_belief(policy._belief.arrays)
    sizes = np.einsum("kd,kd->k", arms, arms)
    tracked = TrackedArms(arms, sizes, np.empty(count), np.empty(count))
    measure_arms(state, tracked)
    for t, x in enumerate(xs):
        learn_and_track(policy._belief.arrays, state, x, 1.0, float(t), tracked)
        fresh = np.einsum("kd,kd->k", arms @ state.spread, arms)
        np.testing.assert_allclose(tracked.squared_widths, fresh, rtol=1e-9)
        loose = bound_width_error(policy._belief.arrays)
        rough = np.sqrt(tracked.squared_widths)
        assert (np.abs(rough - policy.widths(arms)) <= loose * rough + 1e-9).all()
        if not policy._belief.arrays.rules["fades"][0]:
            continue
        lengths = np.sum((arms @ state.inverse) ** 2, axis=1)
        np.testing.assert_allclose(tracked.squared_images, lengths, rtol=1e-9)
        for k, true in enumerate(policy.widths(arms)):
            width, error = read_width(policy._belief.arrays, tracked, k, loose)
            assert abs(width - true) <= error + 1e-9


@every_mergeable
@given(history=histories(3), cuts=st.tuples(st.floats(0, 1), st.floats(0, 1)))
def test_merge_is_associative_and_the_same_as_learning_in_turn(
    memory: wv.Memory, history: naive.History, cuts: tuple[float, float]
) -> None:
    """(A ∘ B) ∘ C = A ∘ (B ∘ C) = the belief of one policy that learned all."""
    n = len(history.ys)
    ends = [0, *sorted(round(cut * n) for cut in cuts), n]
    a, b, c = (
        learn_all(memory, history.xs[start:stop], history.ys[start:stop]).belief
        for start, stop in pairwise(ends)
    )
    whole = learn_all(memory, history.xs, history.ys).belief
    for merged in (a.merge(b).merge(c), a.merge(b.merge(c))):
        assert merged.seen == whole.seen == n
        for name in ("gram", "noise_gram", "moment", "theta"):
            got, wanted = getattr(merged, name), getattr(whole, name)
            np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-11)


@every_mergeable
@given(history=histories())
def test_a_blank_belief_changes_nothing_in_a_merge(
    memory: wv.Memory, history: naive.History
) -> None:
    blank = wv.Policy(history.xs.shape[1], memory, wv.greedy(), seed=0).belief
    belief = learn_all(memory, history.xs, history.ys).belief
    for merged in (blank.merge(belief), belief.merge(blank)):
        assert merged.seen == belief.seen
        for name in ("gram", "noise_gram", "moment"):
            np.testing.assert_array_equal(getattr(merged, name), getattr(belief, name))


@every_mergeable
def test_the_order_of_a_merge_matters_if_the_past_fades(memory: wv.Memory) -> None:
    """Newer observations weigh more under a discount, and equally under keep."""
    old = learn_all(memory, np.eye(2), np.ones(2)).belief
    new = learn_all(memory, 2 * np.eye(2), np.ones(2)).belief
    same = np.array_equal(old.merge(new).gram, new.merge(old).gram)
    assert same == (memory.name == "keep")


@every_mergeable
@pytest.mark.parametrize(
    "exploration",
    [wv.greedy(), wv.optimism(0.5), wv.randomized(wv.normal(0.5)), wv.thompson(0.5)],
    ids=repr,
)
def test_a_policy_given_a_merged_belief_goes_on_as_if_it_had_learned_all(
    memory: wv.Memory, exploration: wv.Exploration
) -> None:
    random = np.random.default_rng(5)
    xs, ys = random.standard_normal((300, 3)), random.standard_normal(300)
    policies = [wv.Policy(3, memory, exploration, seed=4) for _ in range(3)]
    half, rest, whole = policies
    half.learn_many(xs[:120], ys[:120])
    rest.learn_many(xs[120:], ys[120:])
    whole.learn_many(xs, ys)
    half.belief = half.belief.merge(rest.belief)
    for _ in range(150):
        arms = random.standard_normal((6, 3))
        mine, theirs = half.choose(arms), whole.choose(arms)
        assert exploration.name == "thompson" or mine.index == theirs.index
        reward = float(random.standard_normal())
        half.learn(mine.features, reward)
        whole.learn(mine.features, reward)
    np.testing.assert_allclose(half.theta, whole.theta, rtol=0, atol=1e-11)
    for widths in (half.widths(xs), compiled_widths(half, xs)):
        np.testing.assert_allclose(widths, whole.widths(xs), rtol=0, atol=1e-11)
    if exploration.name == "thompson":
        root = view_belief(half._belief.arrays).root
        np.testing.assert_allclose(np.triu(root), root, rtol=0, atol=0)
        np.testing.assert_allclose(root.T @ root, whole.belief.noise_gram, rtol=0, atol=1e-9)


@pytest.mark.parametrize("memory", [wv.window(3), wv.restart(9), wv.restart_at([4])], ids=repr)
def test_memories_that_drop_observations_cannot_be_merged(memory: wv.Memory) -> None:
    """Sums do not contain the observations that are to be dropped later."""
    policy = wv.Policy(2, memory, wv.greedy(), seed=0)
    with pytest.raises(BeliefError, match="only beliefs of keep, discount, half_life can"):
        policy.belief.merge(policy.belief)
    with pytest.raises(BeliefError, match="only keep, discount, half_life can be given"):
        policy.belief = policy.belief


@pytest.mark.parametrize(
    "other",
    [
        wv.Policy(2, wv.discount(0.8), wv.greedy(), seed=0),
        wv.Policy(2, wv.keep(), wv.greedy(), seed=0),
        wv.Policy(2, wv.discount(0.9), wv.greedy(), ridge=2.0, seed=0),
        wv.Policy(3, wv.discount(0.9), wv.greedy(), seed=0),
    ],
    ids=repr,
)
def test_beliefs_of_other_settings_are_refused(other: wv.Policy) -> None:
    policy = wv.Policy(2, wv.discount(0.9), wv.greedy(), seed=0)
    with pytest.raises(BeliefError, match="must be the same"):
        policy.belief.merge(other.belief)
    with pytest.raises(BeliefError, match="merge: a Belief must be given, got 3"):
        policy.belief.merge(3)  # type: ignore[arg-type]
    with pytest.raises(BeliefError, match="belief: a Belief must be given, got 3"):
        policy.belief = 3  # type: ignore[assignment]
    with pytest.raises(BeliefError, match="memory, ridge and dim of this policy are"):
        policy.belief = other.belief


@pytest.mark.parametrize("broken", [np.nan, np.inf, -5.0])
def test_an_invalid_belief_is_refused_and_changes_nothing(broken: float) -> None:
    policy = learn_all(wv.discount(0.9), np.eye(2), np.ones(2))
    before = copy.deepcopy(policy)
    with pytest.raises(BeliefError):
        policy.belief = replace(policy.belief, gram=np.full((2, 2), broken))
    assert policy == before


def test_a_belief_is_a_copy_that_later_learning_does_not_change() -> None:
    policy = learn_all(wv.keep(), np.eye(2), np.ones(2))
    belief = policy.belief
    policy.learn([1.0, 1.0], 1.0)
    np.testing.assert_array_equal(belief.gram, np.eye(2))
    np.testing.assert_array_equal(belief.moment, np.ones(2))


@every_memory
@every_exploration
def test_a_blank_belief_has_the_bits_of_the_kernel(
    memory: wv.Memory, exploration: wv.Exploration
) -> None:
    for dim, ridge in ((1, 1.0), (5, 0.3)):
        policy = wv.Policy(dim, memory, exploration, ridge)
        block, tally = policy._belief.arrays.block.tobytes(), policy._belief.arrays.tally.tobytes()
        reset(policy._belief.arrays)
        assert policy._belief.arrays.block.tobytes() == block
        assert policy._belief.arrays.tally.tobytes() == tally


def test_a_large_policy_is_made_without_an_inversion(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(block, "reset", None)
    policy = wv.Policy(512, wv.half_life(60.0), wv.optimism(1.0))
    assert policy.belief.seen == 0
