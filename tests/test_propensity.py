"""Propensities: they are the frequencies of `choose`, and exact where they say so."""

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

import naive
import windvane as wv
from grid import (
    EXPLORATIONS,
    SAMPLED,
    Floats,
    every_exploration,
    every_law,
    every_memory,
    unit_rows,
)
from windvane.beliefs.full import propensities
from windvane.beliefs.full.layout import LAWS as LAW_CODES
from windvane.errors import ArmsError
from windvane.laws import Law

ROUNDS = 20_000
COUNTED = ("thompson", "perturbed_history")


RANDOM = np.random.default_rng(21)
HISTORY = naive.observed(0.8 * unit_rows(RANDOM, 25, 3), 0.5 + 0.1 * RANDOM.random(25))


def ready(exploration: wv.Exploration, floor: float = 0.0) -> wv.Policy:
    """A policy with 25 observations of three features behind it."""
    policy = wv.Policy(3, wv.discount(0.95), exploration, seed=6, floor=floor)
    policy.learn_many(HISTORY.xs, HISTORY.ys)
    return policy


def arms_with_a_twin() -> Floats:
    """Five arms with hardly different means, the last two of them the same."""
    arms = unit_rows(np.random.default_rng(5), 4, 3)
    arms[:, 2] = 1.0 + 0.3 * arms[:, 2]
    return np.vstack([arms, arms[-1:]])


def played(policy: wv.Policy, arms: Floats) -> Floats:
    """How often each arm is chosen in many rounds with nothing learned."""
    chosen = [policy.choose(arms).index for _ in range(ROUNDS)]
    return np.bincount(chosen, minlength=len(arms)).astype(np.float64)


def fits(counts: Floats, shares: Floats) -> None:
    """Arms without a chance are never played, the others as often as chi-square allows."""
    possible = shares > 1e-9
    assert counts[~possible].sum() == 0
    expected = shares[possible] / shares[possible].sum() * counts.sum()
    if possible.sum() > 1:
        assert stats.chisquare(counts[possible], expected).pvalue > 1e-4


@every_exploration
@pytest.mark.parametrize("floor", [0.0, 0.2])
def test_propensities_are_the_frequencies_of_choose(
    exploration: wv.Exploration, floor: float
) -> None:
    """Chi-square over 20 000 choices; counted ones from a million draws, so as good as exact."""
    policy, arms = ready(exploration, floor), arms_with_a_twin()
    samples = 20_000 if exploration.pseudo == "coins" else 1_000_000
    shares = policy.propensities(arms, samples=samples)
    assert shares.sum() == pytest.approx(1.0, abs=1e-12)
    counts = played(policy, arms)
    if exploration.pseudo != "coins":
        fits(counts, shares)
        return
    both = np.array([counts, shares * samples])[:, (counts > 0) | (shares > 0)]
    assert stats.chi2_contingency(both).pvalue > 1e-4


@every_memory
@every_exploration
def test_a_choice_comes_with_the_propensities_of_its_round(
    memory: wv.Memory, exploration: wv.Exploration
) -> None:
    """The same arms as `choose`, the same chances as `propensities`, through restarts and ties."""
    random = np.random.default_rng(8)
    one, other = (wv.Policy(3, memory, exploration, seed=4, floor=0.1) for _ in range(2))
    for t in range(60):
        arms = unit_rows(random, 5, 3) if t % 3 else arms_with_a_twin()
        choice, chances = one.choose_with_propensities(arms)
        assert np.allclose(chances, other.propensities(arms, chosen=choice.index), 1e-12, 1e-15)
        same = other.choose(arms)
        assert (choice.index, choice.round) == (same.index, same.round)
        reward = float(arms[choice.index] @ [0.5, -0.2, 0.1] + 0.1 * random.normal())
        one.learn(choice, reward)
        other.learn(same, reward)


def test_arms_that_hold_no_number_are_refused_and_change_nothing() -> None:
    policy = ready(wv.randomized(wv.normal(0.7)))
    arms = arms_with_a_twin()
    arms[2, 1] = np.nan
    with pytest.raises(ArmsError, match="arm 2"):
        policy.choose_with_propensities(arms)
    assert policy.round == 0


@every_exploration
def test_twins_have_the_same_propensity_and_a_single_arm_is_certain(
    exploration: wv.Exploration,
) -> None:
    policy = ready(exploration, floor=0.1)
    shares = policy.propensities(arms_with_a_twin())
    assert shares[3] == pytest.approx(shares[4], rel=1e-12)
    assert policy.propensities(np.ones((1, 3))).tolist() == pytest.approx([1.0], abs=1e-15)


@every_exploration
def test_a_blank_policy_plays_equal_arms_evenly(exploration: wv.Exploration) -> None:
    """All estimates are 0 and, for arms of one length, all widths the same."""
    policy = wv.Policy(4, wv.keep(), exploration, seed=3)
    arms = np.vstack([np.eye(4), -np.eye(4)[:1]])
    shares = policy.propensities(arms, samples=100_000)
    if exploration.name in COUNTED:
        fits(played(policy, arms), shares)
    else:
        np.testing.assert_allclose(shares, 0.2, rtol=0, atol=1e-12)


@every_exploration
def test_asking_for_propensities_changes_no_choice(exploration: wv.Exploration) -> None:
    """Their draws come from a stream of their own."""
    asked, silent, arms = ready(exploration), ready(exploration), arms_with_a_twin()
    for _ in range(50):
        first = asked.propensities(arms)
        np.testing.assert_array_equal(first, asked.propensities(arms))
        assert asked.choose(arms).index == silent.choose(arms).index


@pytest.mark.parametrize("floor", [0.0, 0.01, 0.25, 1.0])
@every_exploration
def test_the_floor_is_mixed_in(exploration: wv.Exploration, floor: float) -> None:
    """p = (1−ε)·p₀ + ε/K, so that none falls below ε/K."""
    arms = arms_with_a_twin()
    bare, mixed = ready(exploration).propensities(arms), ready(exploration, floor)
    shares = mixed.propensities(arms)
    np.testing.assert_allclose(shares, (1 - floor) * bare + floor / 5, rtol=0, atol=1e-14)
    assert shares.min() >= floor / 5 - 1e-15
    assert shares.sum() == pytest.approx(1.0, abs=1e-12)


def test_epsilon_and_a_floor_mix_one_after_the_other() -> None:
    """The best arm keeps (1−e)(1−ε), the rest is spread evenly."""
    arms = np.eye(3)[:2]
    policy = wv.Policy(3, wv.keep(), wv.epsilon(0.5), seed=1, floor=0.2)
    policy.learn([1.0, 0.0, 0.0], 1.0)
    assert policy.propensities(arms).tolist() == pytest.approx([0.4 + 0.3, 0.3], abs=1e-15)


@pytest.mark.parametrize("seed", range(4))
@every_law
def test_randomized_propensities_are_exact(law: Law, seed: int) -> None:
    """To 1e-6 those of going through the law of Z in two million steps."""
    random = np.random.default_rng(seed)
    policy = ready(wv.randomized(law))
    arms = random.standard_normal((8, 3))
    arms[:, 2] += 2.0
    means, widths = arms @ policy.theta, policy.widths(arms)
    scale = naive.scale(law.scale, policy.memory, 1.0, HISTORY)
    wanted = naive.propensities(means, widths, law, scale)
    np.testing.assert_allclose(policy.propensities(arms), wanted, rtol=0, atol=1e-6)


lines = st.lists(st.tuples(st.integers(-6, 6), st.integers(0, 8)), min_size=1, max_size=9)


@pytest.mark.parametrize("law", [wv.normal(1.0), wv.half_normal(1.0)], ids=repr)
@given(lines=lines, scale=st.sampled_from([0.0, 0.01, 1.0, 30.0]))
def test_the_envelope_of_any_lines_is_where_each_is_on_top(
    law: Law, lines: list[tuple[int, int]], scale: float
) -> None:
    """Between two crossings the top does not change, so its middle tells whose stretch it is."""
    means, widths = np.array(lines, dtype=np.float64).T / 4
    wanted = by_stretches(means, widths, law, scale)
    found = propensities.compute_envelope_shares(means, widths, scale, LAW_CODES[law.name])
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-12)


def by_stretches(means: Floats, widths: Floats, law: Law, scale: float) -> Floats:
    """The same by brute force: cut z at every crossing of two lines and look in between."""
    if scale == 0.0:
        return naive.shares_of(means)
    rise, fall = np.subtract.outer(widths, widths), np.subtract.outer(means, means)
    crossings = -fall[rise != 0] / rise[rise != 0] / scale
    least = -50.0 if law.name == "normal" else 0.0
    cuts = np.unique(np.clip(np.concatenate([[least, 50.0], crossings]), least, 50.0))
    middles = (cuts[1:] + cuts[:-1]) / 2
    total = np.diff(stats.norm.cdf(cuts)) * (1.0 if law.name == "normal" else 2.0)
    shares: Floats = total @ naive.shares_of(means + scale * middles[:, None] * widths)
    return shares


def list_tails() -> Iterator[tuple[str, list[float], list[float], dict[int, float]]]:
    """Yield a law, means and widths of lines, and what some of them get of the law."""
    tail = stats.norm.sf
    for law, full in (("normal", 1.0), ("half_normal", 2.0)):
        for z in (3.0, 9.0, 20.0, 36.0):  # two lines cross at z: P(Z > z) and no 1 − (1 − 1e-90)
            shares = {0: 1 - full * tail(z), 1: full * tail(z)}
            yield law, [z, 0.0, -9 * z], [1.0, 2.0, 2.5], shares
    for z in (3.0, 20.0, 36.0):  # under the normal law a narrow arm wins where Z is far below 0
        yield "normal", [-z, 0.0], [1.0, 2.0], {0: tail(z)}
    for z in (2.0, 12.0, 30.0):  # the middle of three lines is on top from z to z + 0.1 only
        shares = {1: tail(z) - tail(z + 0.1), 2: tail(z + 0.1)}
        yield "normal", [0.0, -z, -2 * z - 0.1], [1.0, 2.0, 3.0], shares


@pytest.mark.parametrize(("law", "means", "widths", "wanted"), [*list_tails()])
def test_an_arm_in_a_far_tail_keeps_its_digits(
    law: str, means: list[float], widths: list[float], wanted: dict[int, float]
) -> None:
    lines = np.array(means), np.array(widths)
    shares = propensities.compute_envelope_shares(*lines, 1.0, LAW_CODES[law])
    for arm, share in wanted.items():
        assert shares[arm] == pytest.approx(share, rel=1e-10, abs=0.0)


@every_law
def test_a_thousand_random_lines_agree_with_dense_integration(law: Law) -> None:
    """K = 1000: few arms on the envelope, all others with no chance at all."""
    random = np.random.default_rng(8)
    arms = random.standard_normal((1000, 3))
    policy = ready(wv.randomized(law))
    shares = policy.propensities(arms)
    assert shares.sum() == pytest.approx(1.0, abs=1e-12)
    on_top = shares > 0
    assert on_top.sum() < 40
    means, widths = arms @ policy.theta, policy.widths(arms)
    scale = naive.scale(law.scale, policy.memory, 1.0, HISTORY)
    z = scale * naive.quantile(law, (np.arange(2000) + 0.5) / 2000)
    coarse = naive.shares_of(means + z[:, None] * widths).mean(axis=0)
    assert np.abs(shares - coarse).max() <= 1 / 2000
    wanted = naive.propensities(means[on_top], widths[on_top], law, scale)
    np.testing.assert_allclose(shares[on_top], wanted, rtol=0, atol=1e-6)


@every_exploration
def test_twins_share_evenly_even_where_their_estimate_cancels_to_nothing(
    exploration: wv.Exploration,
) -> None:
    """Copies of one arm at right angles to θ̂, whose mean is rounding alone, get 1/K each."""
    for seed in range(30):
        random = np.random.default_rng(seed)
        dim, count = int(random.integers(2, 12)), int(random.integers(2, 9))
        policy = wv.Policy(dim, wv.discount(0.9), exploration, seed=seed)
        policy.learn_many(random.standard_normal((20, dim)), random.standard_normal(20))
        x = random.standard_normal(dim)
        x -= policy.theta * (x @ policy.theta) / (policy.theta @ policy.theta)
        shares = policy.propensities(np.tile(x, (count, 1)))
        np.testing.assert_allclose(shares, 1 / count, rtol=0, atol=1e-9)


def test_lines_of_the_same_slope_leave_all_to_the_highest() -> None:
    means, widths = np.array([0.1, 0.3, 0.2, 0.3]), np.full(4, 0.7)
    for law in ("normal", "half_normal"):
        shares = propensities.compute_envelope_shares(means, widths, 1.0, LAW_CODES[law])
        assert shares.tolist() == pytest.approx([0.0, 0.5, 0.0, 0.5], abs=1e-15)


@pytest.mark.parametrize("exploration", [wv.thompson(0.01), wv.perturbed_history(0.01)], ids=repr)
def test_a_chosen_arm_counts_as_one_draw_more(exploration: wv.Exploration) -> None:
    """p̂ = (1 + hits)/(N + 1), never 0 for what was played."""
    policy, arms = ready(exploration), arms_with_a_twin()
    arms[0] -= 9.0 * policy.theta / np.linalg.norm(policy.theta)
    bare, with_chosen = policy.propensities(arms), policy.propensities(arms, chosen=0)
    assert bare[0] == 0.0
    assert with_chosen[0] == pytest.approx(1 / 201, rel=1e-12)
    np.testing.assert_allclose(with_chosen[1:], bare[1:] * 200 / 201, rtol=1e-12)
    assert with_chosen.sum() == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize("chosen", [5, 1.5, "first"])
def test_a_chosen_index_that_is_no_arm_is_refused(chosen: object) -> None:
    with pytest.raises(wv.WindvaneError):
        ready(wv.thompson(1.0)).propensities(arms_with_a_twin(), chosen=chosen)  # type: ignore[arg-type]


@pytest.mark.parametrize("exploration", [e for e in EXPLORATIONS if e not in SAMPLED], ids=repr)
def test_what_was_chosen_changes_no_exact_propensity(exploration: wv.Exploration) -> None:
    policy, arms = ready(exploration), arms_with_a_twin()
    np.testing.assert_array_equal(policy.propensities(arms), policy.propensities(arms, chosen=0))


@pytest.mark.parametrize("exploration", EXPLORATIONS, ids=repr)
def test_propensities_foresee_a_restart_that_is_due(exploration: wv.Exploration) -> None:
    policy = wv.Policy(3, wv.restart(2), exploration, seed=2)
    blank = wv.Policy(3, wv.restart(2), exploration, seed=2)
    arms = arms_with_a_twin()
    for _ in range(2):
        policy.learn(policy.choose(arms), 1.0)
        blank.choose(arms)
    np.testing.assert_array_equal(policy.propensities(arms), blank.propensities(arms))
