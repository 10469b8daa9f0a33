"""The diagonal belief: the arms, estimates and probabilities of the formulas, for every pair."""

import numpy as np
import pytest

import naive
import windvane as wv
from diagonal_game import (
    SPARSE_MEMORIES,
    every_exploration,
    every_memory,
    make_diagonal,
    row_and_column,
)
from grid import Floats
from windvane import _random
from windvane.laws import Posterior

DIM = 40
RIDGE = 0.8
Arms = list[naive.Row]


def draw_arms(
    random: np.random.Generator, count: int = 5, longest: int = 4, dim: int = DIM // 2
) -> Arms:
    """Rows of one to four entries, of which some are in several rows."""
    sizes = random.integers(1, longest + 1, count).tolist()
    places = [random.choice(dim, size, replace=False) for size in sizes]
    return [{int(i): float(random.standard_normal()) for i in sorted(row)} for row in places]


def pack(arms: Arms) -> wv.SparseRows:
    """The arms as sparse rows."""
    return wv.SparseRows.from_pairs([(list(row), list(row.values())) for row in arms])


GAMES = [draw_arms(np.random.default_rng([51, t])) for t in range(120)]
REWARDS = np.random.default_rng(52).standard_normal(120).tolist()


def teach(
    policy: wv.Policy, belief: naive.DiagonalWeights, row: naive.Row, reward: float, at: float = 0.0
) -> None:
    """Let a policy and the formulas learn the same."""
    policy.learn((list(row), list(row.values())), reward, at=at)
    belief.learn(row, reward, at)


def check_belief(
    policy: wv.Policy, belief: naive.DiagonalWeights, arms: Arms, within: float = 1e-9
) -> None:
    """Compare the estimate and the widths with those of the formulas."""
    theta = [belief.read(i)[0] for i in range(DIM)]
    np.testing.assert_allclose(policy.theta, theta, atol=within)
    widths = [belief.width(row) for row in arms]
    np.testing.assert_allclose(policy.widths(pack(arms)), widths, rtol=1e-9)


def score(
    exploration: wv.Exploration, belief: naive.DiagonalWeights, arms: Arms, key: int, t: int
) -> Floats:
    """What the exploration maximises in round t, with the random numbers of the policy."""
    start = np.uint64(_random.start_round(np.uint64(key), t))
    means = np.array([belief.mean(row) for row in arms])
    if exploration.name == "thompson":
        draw = np.empty(1)
        totals = np.zeros(len(arms))
        for k, row in enumerate(arms):
            for i, x in row.items():
                _random.fill_normals(start, 3 + i, draw)
                spread = belief.scale(exploration.width, DIM) * belief.deviation(i) * float(draw[0])
                totals[k] += x * (belief.read(i)[0] + spread)
        return totals
    if exploration.law is None:
        return means
    law, level = exploration.law, np.ones(1)
    if law.name == "grid":
        level = naive.quantile(law, np.array([_random.uniform(start, 3)]))
    elif law.name != "point":
        _random.fill_normals(start, 3, level)
        level = level if law.name == "normal" else np.abs(level)
    widths = np.array([belief.width(row) for row in arms])
    scores: Floats = means + belief.scale(law.scale, DIM) * level[0] * widths
    return scores


@every_memory
@every_exploration
def test_every_pair_plays_as_the_formulas_say(
    memory: wv.Memory, exploration: wv.Exploration
) -> None:
    """Estimates, widths and the chosen arm, where every third reward comes four rounds late."""
    policy = make_diagonal(DIM, memory, exploration, ridge=RIDGE, seed=9)
    belief = naive.DiagonalWeights(memory, RIDGE)
    if memory.name == "parts":
        belief = naive.DiagonalParts(memory, RIDGE, DIM)
    late: list[tuple[int, wv.Choice, naive.Row, float]] = []
    oldest = 0
    for t, arms in enumerate(GAMES[:70]):
        if t > 0 and naive.born(memory, t) == t:
            belief.drop()
            oldest = t
        scores = score(exploration, belief, arms, policy.key, t)
        choice = policy.choose(pack(arms))
        start = np.uint64(_random.start_round(np.uint64(policy.key), t))
        if _random.uniform(start, 0) < exploration.chance:
            assert choice.index == int(len(arms) * _random.uniform(start, 1))
        elif exploration.name == "inverse_gap":
            if np.count_nonzero(scores == scores.max()) == 1:  # else a tie was broken first
                chance = _random.uniform(start, 3)
                assert choice.index == naive.by_gap(scores, exploration.factor, chance)
        else:
            assert scores[choice.index] >= scores.max() - 1e-9 * (1 + abs(scores.max()))
        late.append((t + 4 * (t % 3 == 0), choice, arms[choice.index], REWARDS[t]))
        for due, old_choice, row, reward in [each for each in late if each[0] == t]:
            policy.learn(old_choice, reward)
            alarms = belief.alarms
            if old_choice.round >= oldest:
                belief.learn(row, reward, float(old_choice.round))
            if belief.alarms > alarms:
                oldest = policy.round
            assert due == t
        check_belief(policy, belief, arms)
    assert policy.alarms == belief.alarms
    if isinstance(exploration.width, Posterior):
        assert policy.estimated_noise == pytest.approx(belief.noise(), rel=1e-9)
    assert memory.name != "detect" or policy.alarms > 0


@pytest.mark.parametrize("memory", [wv.restart_at([0]), wv.half_life(20.0)], ids=repr)
@every_exploration
def test_propensities_are_those_of_the_formulas(
    memory: wv.Memory, exploration: wv.Exploration
) -> None:
    """Exact from means and widths; for thompson, the law of independent normal weights."""
    policy = make_diagonal(DIM, memory, exploration, ridge=RIDGE, seed=9, floor=0.1)
    belief = naive.DiagonalWeights(memory, RIDGE)
    for t in range(20):
        teach(policy, belief, GAMES[t][0], REWARDS[t], float(t))
    arms = GAMES[30]
    if memory.name == "restart_at":  # a restart is due in round 0
        belief.drop()
    means = np.array([belief.mean(row) for row in arms])
    widths = np.array([belief.width(row) for row in arms])
    tolerance = 2e-6
    if exploration.name in ("greedy", "epsilon"):
        shares = naive.shares_of(means)
    elif exploration.name == "inverse_gap":
        gaps = means.max() - means
        shares = np.where(gaps > 0, 1 / (len(arms) + exploration.factor * gaps), 0.0)
        shares += (1 - shares.sum()) * naive.shares_of(means)
    elif exploration.law is None:
        weights = sorted({i for row in arms for i in row})
        draws = np.random.default_rng(3).standard_normal((40_000, len(weights)))
        thetas = np.array([belief.read(i)[0] for i in weights]) + belief.scale(
            exploration.width, DIM
        ) * (draws * np.array([belief.deviation(i) for i in weights]))
        dense = np.array([[row.get(i, 0.0) for i in weights] for row in arms])
        shares, tolerance = naive.shares_of(thetas @ dense.T).mean(axis=0), 0.015
    else:
        law = exploration.law
        scale = belief.scale(law.scale, DIM)
        shares = naive.shares_of(means + scale * widths)
        if law.name != "point":
            shares = naive.propensities(means, widths, law, scale)
    mix = 1 - 0.9 * (1 - exploration.chance)
    expected = (1 - mix) * shares + mix / len(arms)
    got = policy.propensities(pack(arms), samples=20_000)
    np.testing.assert_allclose(got, expected, atol=tolerance)
    assert got.sum() == pytest.approx(1.0, abs=1e-12)


@every_exploration
def test_propensities_are_the_frequencies_of_choices(exploration: wv.Exploration) -> None:
    policy = make_diagonal(DIM, wv.discount(0.95), exploration, seed=4, floor=0.2)
    for t in range(30):
        row = GAMES[t][1]
        policy.learn((list(row), list(row.values())), REWARDS[t])
    arms = pack(GAMES[31])
    chances = policy.propensities(arms, samples=4000)
    counts = np.bincount([policy.choose(arms).index for _ in range(3000)], minlength=5)
    deviation = np.sqrt(3000 * chances * (1 - chances)) + 3000 * 0.01
    assert (np.abs(counts - 3000 * chances) < 4 * deviation).all()
    assert np.count_nonzero(counts) == 5


@row_and_column
def test_a_choice_with_propensities_is_that_of_choose(
    memory: wv.Memory, exploration: wv.Exploration
) -> None:
    one, other = (make_diagonal(DIM, memory, exploration, seed=2, floor=0.1) for _ in range(2))
    for t in range(30):
        arms = pack(GAMES[t])
        first = one.choose(arms)
        expected = other.propensities(arms, chosen=first.index)
        second, chances = other.choose_with_propensities(arms)
        assert first == second
        np.testing.assert_array_equal(chances, expected)
        one.learn(first, REWARDS[t])
        other.learn(second, REWARDS[t])
    assert one == other


def test_arms_that_share_a_weight_share_its_draw() -> None:
    """Two equal rows have equal scores, and a row that adds nothing to another ties with it."""
    policy = make_diagonal(DIM, wv.keep(), wv.thompson(1.0), seed=3)
    arms = wv.SparseRows.from_pairs([([5, 9], [1.0, 2.0]), ([5, 9], [0.5, 1.0]), ([], [])])
    chances = policy.propensities(arms, samples=2000)
    np.testing.assert_allclose(chances, [0.5, 0.0, 0.5], atol=0.05)


AXES = [draw_arms(np.random.default_rng([61, t]), count=4, longest=1, dim=6) for t in range(60)]


@pytest.mark.parametrize("memory", [m for m in SPARSE_MEMORIES if not m.kind.is_filter], ids=repr)
@every_exploration
def test_a_diagonal_and_a_full_belief_agree_on_rows_of_one_entry(
    memory: wv.Memory, exploration: wv.Exploration
) -> None:
    """θ̂, widths, choices and propensities; thompson draws other numbers of the same law."""
    full = wv.Policy(6, memory, exploration, ridge=RIDGE, seed=9, floor=0.05)
    diagonal = make_diagonal(6, memory, exploration, ridge=RIDGE, seed=9, floor=0.05)
    for t in range(60):
        arms = AXES[t]
        dense = np.array([[row.get(i, 0.0) for i in range(6)] for row in arms])
        if exploration.name == "thompson":
            index, _ = full.choose(dense).index, diagonal.choose(dense)
            for policy in (full, diagonal):
                policy.learn(dense[index], REWARDS[t], at=t - 3.0 * (t % 3))
        else:
            np.testing.assert_allclose(
                full.propensities(dense), diagonal.propensities(pack(arms)), atol=1e-9
            )
            first, second = full.choose(dense), diagonal.choose(pack(arms))
            assert first.index == second.index
            full.learn(first, REWARDS[t], at=t - 3.0 * (t % 3))
            diagonal.learn(second, REWARDS[t], at=t - 3.0 * (t % 3))
        np.testing.assert_allclose(full.theta, diagonal.theta, atol=1e-9)
        np.testing.assert_allclose(full.widths(dense), diagonal.widths(dense), atol=1e-9)
    if exploration.name == "thompson":
        np.testing.assert_allclose(
            full.propensities(dense, samples=10_000),
            diagonal.propensities(dense, samples=10_000),
            atol=0.025,
        )


def test_a_diagonal_and_a_full_belief_agree_on_the_means_of_disjoint_rows() -> None:
    """Rows of three entries, each seen once; the estimate of a full belief never mixes them."""
    full = wv.Policy(30, wv.keep(), wv.greedy(), ridge=RIDGE)
    diagonal = make_diagonal(30, wv.keep(), wv.greedy(), ridge=RIDGE)
    for t in range(10):
        row = np.zeros(30)
        row[3 * t : 3 * t + 3] = np.random.default_rng(t).standard_normal(3)
        full.learn(row, REWARDS[t])
        diagonal.learn(row, REWARDS[t])
    np.testing.assert_allclose(full.theta, diagonal.theta, atol=1e-12)
    overlapping = np.ones(30)
    for policy in (full, diagonal):
        policy.learn(overlapping, 1.0)
        policy.learn(overlapping[::-1] * np.arange(30), 1.0)
    assert np.abs(full.theta - diagonal.theta).max() > 1e-3  # here the belief is approximate


@pytest.mark.parametrize("jump", [3.0, 200.0, 5_000.0, 1e9, 1e300])
def test_a_jump_of_many_half_lives_fades_as_the_formula_says(jump: float) -> None:
    """And a reward that is as old as the jump no longer counts."""
    policy = make_diagonal(DIM, wv.half_life(1.0), wv.optimism(1.0), ridge=RIDGE, seed=1)
    belief = naive.DiagonalWeights(wv.half_life(1.0), RIDGE)
    times = [0.0, 0.5, jump, jump, 0.5, jump, 2 * jump]
    for t, at in enumerate(times):
        teach(policy, belief, GAMES[t][0], REWARDS[t], at)
    check_belief(policy, belief, GAMES[9], 1e-12)


@pytest.mark.parametrize("memory", [wv.discount(0.5), wv.discount(0.5, single=True)], ids=repr)
def test_a_long_run_of_fast_fading_stays_with_the_formula(memory: wv.Memory) -> None:
    """The sums are scaled back many times in 2000 observations."""
    policy = make_diagonal(DIM, memory, wv.greedy(), ridge=RIDGE)
    belief = naive.DiagonalWeights(memory, RIDGE)
    random = np.random.default_rng(8)
    for _ in range(2000):
        teach(policy, belief, draw_arms(random, 1)[0], float(random.standard_normal()))
    check_belief(policy, belief, [{i: 1.0} for i in range(DIM)], 1e-12)
