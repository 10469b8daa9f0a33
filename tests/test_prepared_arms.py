"""Prepared arms: the same choices as from plain rows, whatever is screened away."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import windvane as wv
from grid import Floats, contents, every_exploration, every_memory, make_inversions_rare, unit_rows
from windvane import sets
from windvane.beliefs.full.block import view_belief
from windvane.errors import ArmsError
from windvane.laws import Confidence, Law
from windvane.sets import finite_arms, kernels

DIM, COUNT = 6, 5000
WIDE = wv.confidence(0.01, noise=0.4)


def near_twins(random: np.random.Generator) -> Floats:
    """Every arm eight times over, with differences that float32 cannot see."""
    rows = np.tile(unit_rows(random, COUNT // 8, DIM), (8, 1))
    return rows + 1e-9 * random.standard_normal(rows.shape)


def unit(random: np.random.Generator) -> Floats:
    return unit_rows(random, COUNT, DIM)


def uneven(random: np.random.Generator) -> Floats:
    """Norms from 1e-3 to 1e3."""
    return unit(random) * 10.0 ** random.uniform(-3, 3, (COUNT, 1))


KINDS: dict[str, Callable[[np.random.Generator], Floats]] = {
    "unit": unit,
    "twins": lambda random: np.tile(unit_rows(random, COUNT // 3, DIM), (3, 1)),
    "near twins": near_twins,
    "uneven": uneven,
    "flat": lambda random: random.standard_normal((COUNT, 2)) @ random.standard_normal((2, DIM)),
}


def together(plain: wv.Policy, quick: wv.Policy, rows: Floats, rounds: int) -> list[int]:
    """Let both choose and learn, one from the rows and one from them prepared: the same."""
    arms, random = sets.finite(rows), np.random.default_rng(4)
    chosen = []
    for _ in range(rounds):
        one, two = plain.choose(rows), quick.choose(arms)
        assert one.index == two.index
        assert one.features.tobytes() == two.features.tobytes()
        reward = float(np.tanh(one.features.sum()) + 0.3 * random.standard_normal())
        plain.learn(one, reward)
        quick.learn(two, reward)
        chosen.append(one.index)
    assert plain.theta.tobytes() == quick.theta.tobytes()
    return chosen


@every_memory
@every_exploration
def test_prepared_arms_are_the_same_arms(memory: wv.Memory, exploration: wv.Exploration) -> None:
    """Whatever the arms are like, from a blank belief on, floor and restarts included."""
    for kind in KINDS.values():
        rows = kind(np.random.default_rng(3))
        one, two = (wv.Policy(DIM, memory, exploration, seed=8, floor=0.1) for _ in range(2))
        together(one, two, rows, 30)


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("width", [0.3, 3.0, WIDE], ids=repr)
def test_widths_read_off_a_stale_inverse_are_screened_as_loosely(
    width: float | Confidence, kind: Callable[[np.random.Generator], Floats]
) -> None:
    rows = kind(np.random.default_rng(5))
    memory, exploration = wv.discount(0.99), wv.optimism(width)
    one, two = (make_inversions_rare(wv.Policy(DIM, memory, exploration, seed=2)) for _ in range(2))
    together(one, two, rows, 60)


@pytest.mark.parametrize("law", [wv.normal(2.0), wv.half_normal(WIDE)], ids=repr)
def test_splits_of_the_spectrum_leave_the_choice_as_it_is(
    law: Law, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In more dimensions, several blocks and a rest."""
    monkeypatch.setattr(finite_arms, "BLOCK_ARMS", 1500)
    for dim in (19, 22):
        rows = unit_rows(np.random.default_rng(6), 20_000, dim)
        one, two = (wv.Policy(dim, wv.discount(0.98), wv.randomized(law), seed=1) for _ in "12")
        together(one, two, rows, 60)


def scores_of(policy: wv.Policy, rows: Floats) -> Floats:
    """Exact scores for a width of 1, or means."""
    widths = policy.widths(rows) if policy.exploration.name == "optimism" else 0.0
    scores: Floats = rows @ policy.theta + widths
    return scores


@pytest.mark.parametrize("exploration", [wv.greedy(), wv.optimism(1.0)], ids=repr)
def test_the_screen_keeps_the_best_and_little_else(exploration: wv.Exploration) -> None:
    """Of 20 000 arms no more than one in a hundred is scored again."""
    rows = unit_rows(np.random.default_rng(7), 20_000, 10)
    policy = wv.Policy(10, wv.keep(), exploration, seed=0)
    policy.learn_many(rows[:500], rows[:500] @ np.ones(10))
    places = finite_arms.screen(sets.finite(rows), policy._belief.arrays, policy.key, policy.round)
    assert places is not None
    assert places.size < 200
    assert np.argmax(scores_of(policy, rows)) in places
    assert np.all(np.diff(places) > 0)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_every_upper_bound_lies_above_the_score(sign: float) -> None:
    """The wide one, every split and the tight one; the tight ones enclose it closely."""
    random = np.random.default_rng(9)
    rows = uneven(random)
    policy = wv.Policy(DIM, wv.keep(), wv.optimism(1.0), seed=0)
    policy.learn_many(unit_rows(random, 8, DIM), random.random(8))
    arms, state = sets.finite(rows), view_belief(policy._belief.arrays)
    bounds = finite_arms.Bounds(arms, policy._belief.arrays, state, sign)
    scores = rows @ policy.theta + sign * policy.widths(rows)
    scores /= bounds.scale * arms.unit
    theta = (policy.theta / bounds.scale).astype(np.float32)
    ladder = bounds.build_ladder(np.arange(0, COUNT, 10))
    given = (arms.table, arms.norms, theta, 0, -np.inf)  # nothing is out of the question
    spans = []
    for rungs in range(1, ladder.rests.size + 1):
        upper = kernels.compute_upper_bounds(ladder._replace(rests=ladder.rests[:rungs]), *given)
        assert np.all(upper >= scores)
        spans.append(np.mean((upper - scores) / arms.norms))
    assert spans == sorted(spans, reverse=True)
    assert spans[-1] < 1e-3
    high, low = bounds.bound_tightly(np.arange(COUNT))
    assert np.all(high >= scores)
    assert np.all(low <= scores)
    np.testing.assert_array_less(high - low, 1e-6 * arms.norms + 1e-12)


@pytest.mark.parametrize("size", [1e-300, 1e-40, 1e-3, 1e20, 1e49])
@pytest.mark.parametrize("exploration", [wv.thompson(1.0), wv.optimism(1.0)], ids=repr)
def test_arms_that_float32_could_not_hold_are_scaled(
    exploration: wv.Exploration, size: float
) -> None:
    rows = size * unit_rows(np.random.default_rng(1), COUNT, DIM)
    both = [wv.Policy(DIM, wv.keep(), exploration, seed=8) for _ in range(2)]
    for policy in both:
        policy.learn_many(np.eye(DIM), np.linspace(0.0, 5.0, DIM))
    assert [both[0].choose(rows).index for _ in "123"] == [
        both[1].choose(sets.finite(rows)).index for _ in "123"
    ]


def test_arms_of_nothing_but_zeros_are_drawn_by_lot() -> None:
    rows = np.zeros((COUNT, DIM))
    plain, quick = (wv.Policy(DIM, wv.keep(), wv.thompson(1.0), seed=8) for _ in range(2))
    assert len(set(together(plain, quick, rows, 10))) == 10


def test_what_counts_as_equal_is_measured_by_the_largest_score_of_all() -> None:
    """Be it a negative one: 1e-8 and a little more are equal beside −1, not beside themselves."""
    rows = -unit_rows(np.random.default_rng(1), COUNT, DIM)
    rows[:, 0] = -0.5 - np.abs(rows[:, 0])
    rows[40], rows[70] = 1e-8 * np.eye(DIM)[0], (1e-8 + 2e-13) * np.eye(DIM)[0]
    arms = sets.finite(rows)
    plain, quick = (wv.Policy(DIM, wv.keep(), wv.greedy(), seed=8) for _ in range(2))
    for policy in (plain, quick):
        policy.learn(np.eye(DIM)[0], 1.0)
    chosen = [quick.choose(arms).index for _ in range(40)]
    assert chosen == [plain.choose(rows).index for _ in range(40)]
    assert set(chosen) == {40, 70}


def test_prepared_arms_are_a_copy() -> None:
    rows = unit(np.random.default_rng(1))
    arms = sets.finite(rows)
    wanted = rows.copy()
    rows[:] = np.nan
    policy = wv.Policy(DIM, wv.keep(), wv.greedy(), seed=0)
    policy.choose(arms).features[:] = 7.0
    np.testing.assert_array_equal(np.asarray(arms), wanted)
    assert len(arms) == COUNT
    assert repr(arms) == f"finite({COUNT} arms, dim={DIM})"


def test_best_is_the_first_of_the_largest_products() -> None:
    """Exactly, where float32 sees only equals."""
    random = np.random.default_rng(2)
    rows, theta = near_twins(random), random.standard_normal(DIM)
    features, index = sets.finite(rows).best(theta)
    assert index == np.argmax(rows @ theta)
    np.testing.assert_array_equal(features, rows[index])
    assert sets.finite(np.ones((9, DIM))).best(theta)[1] == 0
    assert sets.finite(rows).best(np.zeros(DIM))[1] == 0
    with pytest.raises(ArmsError, match="6 finite numbers"):
        sets.finite(rows).best([np.nan] * DIM)


@every_exploration
def test_whatever_takes_rows_takes_prepared_arms(
    exploration: wv.Exploration, tmp_path: Path
) -> None:
    """Widths, propensities and batches; and a loaded policy goes on as the saved one."""
    rows = unit(np.random.default_rng(1))
    arms = sets.finite(rows)
    policy = wv.Policy(DIM, wv.discount(0.9), exploration, seed=5)
    policy.learn_many(rows[:50], rows[:50, 0])
    np.testing.assert_array_equal(policy.widths(arms), policy.widths(rows))
    np.testing.assert_array_equal(policy.propensities(arms, 5), policy.propensities(rows, 5))
    policy.save(tmp_path / "policy.npz")
    other = wv.Policy.load(tmp_path / "policy.npz")
    ours, theirs = policy.choose_many([arms, rows, arms]), other.choose_many([rows] * 3)
    assert [choice.index for choice in ours] == [choice.index for choice in theirs]
    assert contents(policy, tmp_path) == contents(other, tmp_path)


@pytest.mark.parametrize(
    ("arms", "message"),
    [
        (np.empty((0, 3)), r"finite: there must be at least one arm and feature, got \(0, 3\)"),
        (np.empty((3, 0)), r"got \(3, 0\)"),
        (np.ones(3), r"got \(3,\)"),
        ([[1.0, 2.0], [3.0]], "finite: arms must be rows of numbers"),
        ("arms", "finite: arms must be rows of numbers"),
        ([[1.0, 2.0], [np.nan, 1.0]], "finite: arms must be finite.*arm 1 is"),
        ([[1.0, np.inf]], "arm 0 is"),
        ([[1e51, 0.0]], r"with norm up to 1e\+50"),
    ],
)
def test_bad_arms_are_refused(arms: Floats, message: str) -> None:
    with pytest.raises(ArmsError, match=message):
        sets.finite(arms)


def test_arms_of_another_dimension_are_refused_and_nothing_has_changed(tmp_path: Path) -> None:
    """Not even if a restart is due."""
    policy = wv.Policy(DIM, wv.restart(1), wv.thompson(1.0), seed=5)
    policy.learn(policy.choose(np.eye(DIM)), 1.0)
    before = contents(policy, tmp_path)
    for refused in (policy.choose, policy.widths, policy.propensities):
        with pytest.raises(ArmsError, match=r"shape \(K, 6\), .* got \(4, 4\)"):
            refused(sets.finite(np.eye(4)))
    with pytest.raises(ArmsError, match=r"shape \(K, 6\)"):
        policy.choose_many([sets.finite(np.eye(DIM)), sets.finite(np.eye(4))])
    assert contents(policy, tmp_path) == before
