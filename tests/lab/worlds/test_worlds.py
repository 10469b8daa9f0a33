"""Worlds: drifts, arms and rewards follow their equations, and tables are read."""

import math
import pickle
import tomllib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from game import compute_reward, list_arms
from windvane.errors import SettingError
from windvane.lab.worlds import (
    Drift,
    RewardLaw,
    abrupt,
    bernoulli,
    bounded,
    fixed,
    fresh,
    from_table,
    gaussian,
    periodic,
    poisson,
    pools,
    rotation,
    stationary,
    walk,
    world,
)
from windvane.lab.worlds.actions import MAX_FRESH_VECTORS
from windvane.lab.worlds.draw import compute_means

DRIFTS = [stationary(), abrupt([30, 70], flip=0.6), rotation(2.0), walk(3.0), periodic(40)]
REWARDS = [
    gaussian(0.15),
    bounded(0.5),
    bernoulli(),
    bernoulli("clip"),
    bernoulli("logistic"),
    poisson(),
]


def same(one: tuple[object, ...], two: tuple[object, ...]) -> bool:
    return all(np.array_equal(np.asarray(a), np.asarray(b)) for a, b in zip(one, two, strict=True))


@pytest.mark.parametrize("drift", DRIFTS, ids=repr)
@pytest.mark.parametrize("reward", REWARDS, ids=repr)
def test_a_seed_gives_the_same_draw_every_time(drift: Drift, reward: RewardLaw) -> None:
    place = world(3, 4, 100, drift, reward=reward)
    seed = np.random.SeedSequence(5).spawn(2)[1]
    first = place.draw(seed)
    assert same(first, place.draw(seed))
    assert same(first, pickle.loads(pickle.dumps(place)).draw(seed))
    assert not np.array_equal(first.noise, place.draw(np.random.SeedSequence(5)).noise)
    assert first.theta.shape[1] == 3
    assert first.rounds == 100
    assert [first.era.dtype, first.picks.dtype] == [np.dtype("int64"), np.dtype("int32")]


def test_another_drift_leaves_arms_and_noise_as_they_were() -> None:
    still, moving = (world(3, 4, 100, drift).draw(1) for drift in (stationary(), walk(3.0)))
    assert same(still[2:], moving[2:])
    assert np.array_equal(still.theta[0], moving.theta[0])


@pytest.mark.parametrize(("dim", "flip", "count"), [(10, 0.6, 6), (5, 0.5, 2), (100, 0.29, 29)])
def test_flip_turns_exactly_its_share_of_signs(dim: int, flip: float, count: int) -> None:
    draw = world(dim, 4, 100, abrupt([30, 70], flip=flip)).draw(3)
    assert draw.theta.shape == (3, dim)
    for before, after in zip(draw.theta, draw.theta[1:], strict=False):
        assert np.sum(before == -after) == count
        assert np.sum(before == after) == dim - count


def test_flips_are_drawn_at_every_jump_and_for_every_seed() -> None:
    place = world(10, 4, 100, abrupt([30, 70], flip=0.5))
    flipped = [np.diff(np.sign(place.draw(seed).theta), axis=0) != 0 for seed in range(200)]
    share = np.mean(flipped, axis=0)  # (2, 10): each coordinate half of the time
    assert np.abs(share - 0.5).max() < 5 * 0.5 / math.sqrt(200)


def test_the_new_parameter_holds_from_the_round_of_the_jump() -> None:
    draw = world(4, 4, 100, abrupt([30], to=[[0, 0, 0, 2]]), start=[1, 0, 0, 0]).draw(0)
    assert draw.era.tolist() == [0] * 30 + [1] * 70
    assert draw.theta.tolist() == [[1, 0, 0, 0], [0, 0, 0, 2]]
    assert draw.variation == pytest.approx(math.sqrt(5))
    assert draw.theta_norm == 2


def test_a_new_direction_keeps_the_norm() -> None:
    draw = world(4, 4, 100, abrupt([30]), start=2.5).draw(0)
    assert np.linalg.norm(draw.theta, axis=1) == pytest.approx([2.5, 2.5])
    assert draw.variation == pytest.approx(np.linalg.norm(draw.theta[1] - draw.theta[0]))
    assert abs(draw.theta[0] @ draw.theta[1]) < 0.99 * 2.5**2


@settings(max_examples=30)
@given(
    dim=st.integers(2, 30),
    rounds=st.integers(2, 400),
    share=st.floats(0, 1),
    norm=st.floats(0.1, 10),
)
def test_walk_uses_up_its_budget_on_the_sphere(
    dim: int, rounds: int, share: float, norm: float
) -> None:
    budget = share * 2 * norm * (rounds - 1)
    draw = world(dim, 2, rounds, walk(budget), start=norm).draw(1)
    steps = np.linalg.norm(np.diff(draw.theta, axis=0), axis=1)
    assert draw.variation == pytest.approx(budget, rel=1e-9, abs=1e-9)
    assert steps == pytest.approx(np.full(rounds - 1, budget / (rounds - 1)), rel=1e-6, abs=1e-9)
    assert np.linalg.norm(draw.theta, axis=1) == pytest.approx(np.full(rounds, norm))


@pytest.mark.parametrize("seed", range(20))
def test_walk_may_use_the_largest_budget_although_norms_are_rounded(seed: int) -> None:
    draw = world(3, 2, 2, walk(2.0)).draw(seed)
    assert draw.variation == pytest.approx(2.0)


def test_walk_goes_another_way_for_another_seed() -> None:
    place = world(3, 2, 50, walk(5.0), start=[1, 0, 0])
    ends = np.array([place.draw(seed).theta[1] for seed in range(400)])
    # the first step is uniform on a circle around the start
    assert np.abs(ends[:, 1:].mean(axis=0)).max() < 5 * 0.102 / math.sqrt(800)


def test_rotation_turns_by_its_angle_at_an_even_pace() -> None:
    draw = world(5, 4, 1001, rotation(math.pi / 2), start=2.0).draw(4)
    cosine = draw.theta @ draw.theta[0] / 4
    assert cosine == pytest.approx(np.cos(np.linspace(0, math.pi / 2, 1001)))
    assert np.linalg.matrix_rank(draw.theta, tol=1e-9) == 2
    assert draw.variation == pytest.approx(1000 * 2 * 2.0 * math.sin(math.pi / 4000))


def test_periodic_swings_to_the_other_parameter_and_back() -> None:
    draw = world(2, 4, 100, periodic(40, to=[0, 3]), start=[1, 0]).draw(0)
    path = draw.theta[draw.era]
    assert draw.theta.shape == (40, 2)
    assert path[[0, 40, 80]] == pytest.approx(np.tile([1, 0], (3, 1)))
    assert path[[20, 60]] == pytest.approx(np.tile([0, 3], (2, 1)))
    assert path[10] == pytest.approx([0.5, 1.5])
    assert draw.variation == pytest.approx(math.sqrt(10) * (4 + (1 - math.cos(0.95 * math.pi)) / 2))


def test_stationary_never_moves() -> None:
    draw = world(3, 4, 100).draw(0)
    assert len(draw.theta) == 1
    assert [draw.variation, draw.theta_norm] == pytest.approx([0, 1])


def test_fresh_arms_are_never_offered_twice_while_the_pool_holds_them() -> None:
    draw = world(3, 4, 100, actions=fresh()).draw(0)
    assert np.array_equal(np.unique(draw.picks), np.arange(400))
    assert np.linalg.norm(draw.arms, axis=1) == pytest.approx(np.ones(400))
    assert np.abs(draw.arms.mean(axis=0)).max() < 5 / math.sqrt(3 * 400)
    assert draw.arm_norm == pytest.approx(1)


def test_fresh_arms_differ_within_a_round_and_memory_is_bounded() -> None:
    draw = world(3, 100, 2000, actions=fresh()).draw(0)
    assert len(draw.arms) == MAX_FRESH_VECTORS
    assert all(len(set(row)) == 100 for row in draw.picks.tolist())


def test_fixed_arms_stay() -> None:
    drawn = world(3, 4, 100, actions=fixed()).draw(0)
    assert drawn.picks.shape == (1, 4)
    assert np.array_equal(list_arms(drawn, 0), list_arms(drawn, 99))
    listed = world(2, 3, 100, actions=fixed([[1, 0], [0, 1], [2, 2]])).draw(0)
    assert list_arms(listed, 50).tolist() == [[1, 0], [0, 1], [2, 2]]
    assert listed.arm_norm == pytest.approx(math.sqrt(8))


@pytest.mark.parametrize("size", [10, 300])  # rows are permuted, or drawn again
def test_pools_give_equally_many_different_arms_all_equally_likely(size: int) -> None:
    first, second = np.arange(2.0 * size).reshape(2, size, 1)
    draw = world(1, 10, 4000, actions=pools(first, second), start=[1.0]).draw(0)
    assert (draw.picks[:, 0::2] < size).all()
    assert (draw.picks[:, 1::2] >= size).all()
    assert all(len(set(row)) == 10 for row in draw.picks.tolist())
    counts = np.bincount(draw.picks.ravel(), minlength=2 * size)
    expected = 4000 * 5 / size
    assert np.abs(counts - expected).max() < 5 * math.sqrt(expected)


def test_pools_drawn_once_stay_for_the_replication() -> None:
    place = world(1, 4, 100, actions=pools([[1], [2], [3]], [[4], [5], [6]], new_each_round=False))
    draw = place.draw(0)
    assert draw.picks.shape == (1, 4)
    assert any(not np.array_equal(draw.picks, place.draw(seed).picks) for seed in range(9))
    assert draw.arm_norm == 6


def test_a_label_and_the_content_of_pools_are_part_of_the_world() -> None:
    one, two = pools([[1.0]], label="not real"), pools([[2.0]])
    assert world(1, 1, 9, actions=one).actions.label == "not real"
    assert repr(one) != repr(two)
    assert one != two


def test_gaussian_and_bounded_noise_have_the_given_spread() -> None:
    normal = world(2, 2, 50_000, reward=gaussian(0.15)).draw(1).noise
    even = world(2, 2, 50_000, reward=bounded(0.6)).draw(1).noise
    assert [normal.mean(), even.mean()] == pytest.approx([0, 0], abs=5 * math.sqrt(0.15 / 50_000))
    assert [normal.var(), even.var()] == pytest.approx([0.15, 0.12], rel=5 * math.sqrt(2 / 50_000))
    assert 0.599 < np.abs(even).max() <= 0.6


def test_rewards_are_the_mean_plus_noise() -> None:
    draw = world(2, 3, 50, periodic(10), reward=gaussian(0.5)).draw(2)
    theta = draw.theta[draw.era[17]]
    expected = [float(draw.arms[i] @ theta) for i in draw.picks[17]]
    assert compute_means(draw, 17) == pytest.approx(expected)
    assert compute_reward(draw, 17, 2) == pytest.approx(expected[2] + draw.noise[17])


def test_bernoulli_means_map_the_widest_range_onto_0_and_1() -> None:
    arms = fixed([[2, 0], [-2, 0], [0, 1]])
    draw = world(2, 3, 9, actions=arms, reward=bernoulli(), start=[3, 0]).draw(0)
    assert compute_means(draw, 0) == pytest.approx([1, 0, 0.5])
    cut = world(2, 3, 9, actions=arms, reward=bernoulli("clip"), start=[0.3, 0]).draw(0)
    assert compute_means(cut, 0) == pytest.approx([0.6, 0, 0])


@pytest.mark.parametrize("mean", ["affine", "clip", "logistic"])
def test_bernoulli_rewards_are_0_or_1_with_their_mean(mean: str) -> None:
    arms = fixed([[0.2, 0.1], [0.9, 0.1]])
    draw = world(2, 2, 20_000, actions=arms, reward=bernoulli(mean), start=[0.7, 0.7]).draw(0)
    rewards = [compute_reward(draw, t, t % 2) for t in range(20_000)]
    assert set(rewards) == {0.0, 1.0}
    for arm in (0, 1):
        assert np.mean(rewards[arm::2]) == pytest.approx(
            compute_means(draw, 0)[arm], abs=5 * 0.5 / 100
        )


def test_logistic_means_are_those_of_the_link() -> None:
    arms = fixed([[2, 0], [-2, 0], [0, 1]])
    draw = world(2, 3, 9, actions=arms, reward=bernoulli("logistic"), start=[3, 0]).draw(0)
    assert compute_means(draw, 0) == pytest.approx(
        [1 / (1 + math.exp(-6)), 1 / (1 + math.exp(6)), 0.5]
    )


def test_counts_are_the_quantiles_of_the_poisson_law_of_their_mean() -> None:
    arms = fixed(np.array([[1, 0], [-3, 0], [2.5, 1]]))
    draw = world(2, 3, 3000, actions=arms, reward=poisson(), start=[2, 0]).draw(0)
    assert compute_means(draw, 0) == pytest.approx([math.exp(2), math.exp(-6), math.exp(5)])
    for arm, mean in enumerate(compute_means(draw, 0)):
        counts = [compute_reward(draw, t, arm) for t in range(3000)]
        assert counts == stats.poisson.ppf(draw.noise, mean).tolist()
        assert np.mean(counts) == pytest.approx(mean, abs=5 * math.sqrt(mean / 3000))


def test_counts_too_large_to_draw_are_refused() -> None:
    with pytest.raises(SettingError, match="poisson: ⟨x, θ⟩ must be at most 6, but could be 7"):
        world(2, 3, 9, reward=poisson(), start=7.0).draw(0)


@pytest.mark.parametrize("reward", REWARDS, ids=repr)
def test_what_a_reward_prints_can_be_read_back(reward: RewardLaw) -> None:
    assert from_table({"dim": 2, "arms": 2, "horizon": 9, "reward": repr(reward)}).reward == reward


def test_a_table_reads_as_the_world_that_prints_it() -> None:
    text = """
        dim = 2
        arms = 2
        horizon = 500
        drift = "abrupt([100, 300], flip=0.5)"
        actions = "fixed([[1, 0], [0, 1]])"
        reward = "bernoulli('clip')"
        start = [0.5, 0.25]
    """
    actions = fixed([[1, 0], [0, 1]])
    place = world(2, 2, 500, abrupt([100, 300], flip=0.5), actions, bernoulli("clip"), [0.5, 0.25])
    assert from_table(tomllib.loads(text)) == place
    assert from_table({"dim": 3, "arms": 2, "horizon": 9}) == world(3, 2, 9)


@pytest.mark.parametrize(
    "drift",
    [*DRIFTS, abrupt([3]), abrupt([3], to=[[1, 2]]), periodic(9, [1, 2])],
    ids=repr,
)
def test_what_a_drift_prints_can_be_read_back(drift: Drift) -> None:
    table = {"dim": 2, "arms": 2, "horizon": 100, "drift": repr(drift)}
    assert from_table(table).drift == drift
    assert same(from_table(table).draw(1), world(2, 2, 100, drift).draw(1))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"dim": 0}, "world: dim must be a whole number >= 1, got 0"),
        ({"dims": 3}, "world: unknown dims; the keys are dim, arms, horizon, drift"),
        ({"start": 0}, "world: start must be above 0, got 0"),
        ({"start": [1.0]}, "world: start must be 2 numbers, not all 0, got 1"),
        ({"start": [0, 0]}, "world: start must be 2 numbers, not all 0"),
        ({"start": ["a", "b"]}, "world: start must be rows of finite numbers"),
        ({"start": [[1.0], [1.0, 2.0]]}, "world: start must be rows of finite numbers"),
        ({"start": [[1.0, 0.0], [0.0, 1.0]]}, "world: start must be rows of finite numbers"),
        ({"drift": "abrupt([100])"}, "abrupt: every round must lie before the horizon 100"),
        ({"drift": "abrupt(50)"}, "abrupt: at must be a sequence, got 50"),
        ({"drift": "abrupt([0])"}, "abrupt: a round must be a whole number >= 1, got 0"),
        ({"drift": "abrupt([9], flip=2)"}, r"abrupt: flip must lie in \[0, 1\], got 2"),
        ({"drift": "abrupt([9], flip=1, to=[[1, 2]])"}, "flip and to exclude each other"),
        ({"drift": "abrupt([9], to=[[1, 2, 3]])"}, "drift: to must have 2 columns, got 3"),
        ({"drift": "abrupt([9, 8], to=[[1, 2]])"}, "abrupt: to must have 2 rows, got 1"),
        ({"drift": "walk(999)"}, r"walk: budget must be at most 2S\(T-1\) = 198, got 999"),
        ({"drift": "walk(-1)"}, "walk: budget must be at least 0, got -1"),
        ({"dim": 1, "drift": "walk(1)"}, "walk: dim must be at least 2, got 1"),
        ({"dim": 1, "drift": "rotation(1)"}, "rotation: dim must be at least 2, got 1"),
        ({"drift": "periodic(1)"}, "periodic: period must be a whole number >= 2, got 1"),
        (
            {"drift": "wind()"},
            "world: drift: 'wind' is unknown; known names are stationary, abrupt",
        ),
        ({"drift": "walk"}, r"world: drift: 'walk' must be a call such as walk\(budget\)"),
        ({"drift": 7}, "world: drift: must be a text such as 'periodic"),
        ({"drift": "7"}, "world: drift: must be a call such as stationary"),
        ({"drift": "walk(1, 2)"}, r"world: drift: 'walk\(1, 2\)' cannot be read"),
        ({"drift": "walk(open('x'))"}, "world: drift: 'open' is unknown"),
        ({"drift": "walk("}, "cannot be read"),
        ({"reward": "gaussian(-1)"}, "gaussian: variance must be at least 0, got -1"),
        (
            {"reward": "bernoulli('odd')"},
            "bernoulli: mean must be 'affine', 'clip' or 'logistic', got",
        ),
        ({"actions": "fixed([[1, 0]])"}, "world: arms is 2, but fixed has 1"),
        ({"actions": "fixed([[1], [1]])"}, "world: dim is 2, but the arms have 1 features"),
        ({"actions": "fixed([[1, 0], [1]])"}, "fixed: arms must be rows of finite numbers"),
    ],
    ids=str,
)
def test_a_table_that_makes_no_world_is_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        from_table({"dim": 2, "arms": 2, "horizon": 100} | change)


def test_a_table_without_its_size_is_refused() -> None:
    with pytest.raises(SettingError, match="world: arms, horizon must be given"):
        from_table({"dim": 2})


def test_pools_that_do_not_fit_are_refused() -> None:
    pair = pools([[1.0], [2.0]], [[3.0], [4.0]])
    with pytest.raises(SettingError, match="arms must be a multiple of 2 pools, got 3"):
        world(1, 3, 9, actions=pair)
    with pytest.raises(SettingError, match="a pool must have at least 3 arms, got 2"):
        world(1, 6, 9, actions=pair)
    with pytest.raises(SettingError, match="at least one pool is needed, all of one dimension"):
        pools([[1.0]], [[1.0, 2.0]])
    with pytest.raises(SettingError, match="a pool must be rows of finite numbers"):
        pools([[math.nan]])
