"""The kernels of the diagonal belief and of its weights, compared with the formulas as written."""

import math

import numpy as np
import pytest

from windvane import memory
from windvane.beliefs.diagonal.kernels import (
    LEAST_FADE,
    MOMENT,
    PRECISION,
    WEIGHTS,
    amend_entries,
    claim_slots,
    drop_weights,
    fade_weights,
    find_slots,
    learn_entries,
    predict_entries,
    scale_sums,
)
from windvane.beliefs.diagonal.policy_belief import make_blank_weights, make_room
from windvane.beliefs.diagonal.weight_table import ABSENT

RANDOM = np.random.default_rng(41)
INDICES = np.array([4, 1, 6])
VALUES = np.array([0.7, -1.2, 0.4])
PRIORS = np.array([0.5, 2.0, 1.0])
FADE = 0.3


def make_sums() -> np.ndarray:
    """Sums of eight weights in three columns."""
    sums = RANDOM.random((8, 3, 2))
    sums[..., MOMENT] -= 0.5
    return sums


def read_column(sums: np.ndarray, column: int) -> tuple[np.ndarray, np.ndarray]:
    """The means and variances of the entries of the row."""
    own = FADE * sums[INDICES, column]
    variances = 1 / (own[:, PRECISION] + PRIORS)
    return variances * own[:, MOMENT], variances


@pytest.mark.parametrize("column", range(3))
def test_a_row_is_predicted_from_its_column(column: int) -> None:
    sums = make_sums()
    means, variances = read_column(sums, column)
    mean, variance = predict_entries(sums, column, FADE, INDICES, VALUES, PRIORS)
    assert mean == pytest.approx(VALUES @ means, abs=1e-14)
    assert variance == pytest.approx(VALUES**2 @ variances, abs=1e-14)


def test_an_index_below_0_is_a_weight_without_data() -> None:
    mean, variance = predict_entries(make_sums(), 1, FADE, np.full(3, -1), VALUES, PRIORS)
    assert mean == 0.0
    assert variance == pytest.approx(float(VALUES**2 @ (1 / PRIORS)), abs=1e-14)


@pytest.mark.parametrize("weight", [1.0, 0.25])
@pytest.mark.parametrize("column", range(3))
def test_a_lesson_gives_the_mean_and_the_diagonal_of_the_exact_posterior(
    column: int, weight: float
) -> None:
    """By the covariance form of Bayes' rule, for a prior without correlations."""
    sums = make_sums()
    before = sums.copy()
    means, variances = read_column(sums, column)
    error, spread = learn_entries(sums, column, FADE, INDICES, VALUES, PRIORS, 0.9, weight)
    prior = np.diag(variances)
    total = 1 / weight + VALUES @ prior @ VALUES
    gain = prior @ VALUES / total
    posterior = prior - np.outer(gain, VALUES @ prior)
    new_means, new_variances = read_column(sums, column)
    np.testing.assert_allclose(new_means, means + gain * (0.9 - VALUES @ means), atol=1e-13)
    np.testing.assert_allclose(new_variances, np.diag(posterior), atol=1e-13)
    assert error == pytest.approx(0.9 - VALUES @ means, abs=1e-14)
    assert spread == pytest.approx(weight * total, abs=1e-14)
    others = [j for j in range(3) if j != column]
    np.testing.assert_array_equal(sums[:, others], before[:, others])
    np.testing.assert_array_equal(sums[[0, 2, 3, 5, 7]], before[[0, 2, 3, 5, 7]])


def test_a_row_of_one_entry_adds_its_square_however_large_it_is() -> None:
    """The precision has no rounding error of the prior variance, which is far larger."""
    sums = np.zeros((1, 1, 2))
    place, priors = np.zeros(1, np.int64), np.array([1e-9])
    for x in (1.0, 3.0, 1e6):
        learn_entries(sums, 0, 1.0, place, np.array([x]), priors, 0.5, 1.0)
    assert sums[0, 0, PRECISION] == pytest.approx(10.0 + 1e12, rel=1e-15)


def test_an_observation_of_weight_0_changes_nothing() -> None:
    sums = make_sums()
    before = sums.copy()
    error, spread = learn_entries(sums, 0, FADE, INDICES, VALUES, PRIORS, 0.9, 0.0)
    amend_entries(sums, 0, FADE, INDICES, VALUES, PRIORS, 0.9, 0.0)
    np.testing.assert_allclose(sums, before, rtol=1e-15)
    assert math.isfinite(error)
    assert spread == 1.0


def test_an_amended_reward_of_one_entry_equals_the_whole_reward() -> None:
    """Also after other observations of the same weight, and after fading."""
    place, x, priors = np.array([2]), np.array([0.6]), np.array([0.8])
    whole, parts = np.zeros((3, 1, 2)), np.zeros((3, 1, 2))
    for sums, first in ((whole, 1.1), (parts, 0.4)):
        learn_entries(sums, 0, 1.0, place, x, priors, first, 1.0)
        learn_entries(sums, 0, 0.5, place, x + 0.1, priors, -0.2, 1.0)
    amend_entries(parts, 0, 0.5, place, x, priors, 0.7, 0.5)
    np.testing.assert_allclose(parts, whole, atol=1e-14)


def test_a_column_is_scaled_alone_and_traces_vanish() -> None:
    sums = make_sums()
    sums[0, 1] = [1e-150, -1e-150]
    expected = sums.copy()
    expected[:, 1] *= 1e-60
    expected[0, 1] = 0.0
    scale_sums(sums, 1, 1e-60)
    np.testing.assert_array_equal(sums, expected)


def test_weights_get_slots_in_the_order_of_their_first_lesson() -> None:
    """Also after the table has grown many times, from any indices up to 2⁶²."""
    weights = make_blank_weights(memory.discount(0.9))
    order: list[int] = []
    for _ in range(200):
        indices = np.unique(RANDOM.integers(0, 2**62, 5) >> RANDOM.integers(0, 60, 5))
        weights = make_room(weights, indices.size)
        slots = claim_slots(weights, indices)
        order += [i for i in indices.tolist() if i not in order]
        assert slots.tolist() == [order.index(i) for i in indices.tolist()]
    found = np.empty(len(order), np.int64)
    find_slots(weights, np.array(order), found)
    assert found.tolist() == list(range(len(order)))
    assert weights.counters[WEIGHTS] == len(order) > 500
    find_slots(weights, np.arange(2**61, 2**61 + 100), found)
    assert (found[:100] == ABSENT).all()


def test_scaling_back_changes_no_digit() -> None:
    """p = f·sums and q = f²·squares have the same bits before and after."""
    weights = make_blank_weights(memory.discount(0.9))
    claim_slots(weights, np.arange(40))
    weights.sums[:40] = RANDOM.random((40, 1, 2))
    weights.squares[:40] = RANDOM.random(40)
    fade = 0.9**1092  # just above the least fade
    weights.fade[0] = fade
    assert LEAST_FADE < fade < 1.2 * LEAST_FADE
    sums, squares = weights.sums[:40].copy(), weights.squares[:40].copy()
    fade_weights(weights, 0.7)
    assert weights.fade[0] >= 0.5
    np.testing.assert_array_equal(weights.fade[0] * weights.sums[:40], 0.7 * fade * sums)
    square = (0.7 * fade) * (0.7 * fade)
    np.testing.assert_allclose(weights.fade[0] ** 2 * weights.squares[:40], square * squares)


@pytest.mark.parametrize("factor", [0.0, 5e-324, 1e-300])
def test_a_jump_in_time_leaves_nothing(factor: float) -> None:
    weights = make_blank_weights(memory.half_life(1.0))
    claim_slots(weights, np.arange(3))
    weights.sums[:3] = 1.0
    weights.squares[:3] = 1.0
    fade_weights(weights, factor)
    assert 0.5 <= weights.fade[0] <= 1.0
    assert (weights.fade[0] * weights.sums[:3] <= 1e-200).all()
    assert (weights.squares[:3] <= 1e-200).all()


def test_dropped_weights_are_absent_and_their_slots_are_blank() -> None:
    weights = make_blank_weights(memory.keep())
    weights.sums[claim_slots(weights, np.arange(5))] = 3.0
    drop_weights(weights)
    slots = np.empty(5, np.int64)
    find_slots(weights, np.arange(5), slots)
    assert (slots == ABSENT).all()
    assert not weights.sums[claim_slots(weights, np.arange(4, 6))].any()
