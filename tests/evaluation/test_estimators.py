"""Sums over decisions, estimates from them against the formulas, and when not to trust them."""

from typing import NamedTuple

import numpy as np
import pytest

from naive_estimators import mean_and_error
from windvane.evaluation.estimates.estimators import ValueSums, estimate_gain, estimate_values
from windvane.evaluation.estimates.result import Diagnostics, TrustSums, diagnose, warn
from windvane.types import Floats

N = 400


class Columns(NamedTuple):
    """The arguments of `ValueSums.from_rows`."""

    rewards: Floats
    weights: Floats
    model_values: Floats
    model_chosen: Floats
    coefficients: Floats


@pytest.fixture(params=["ones", "coefficients"])
def columns(request: pytest.FixtureRequest) -> Columns:
    rng = np.random.default_rng(3)
    chances = np.array([0.5, 0.3, 0.15, 0.01])
    chosen = rng.choice(4, size=N, p=chances / chances.sum())
    target = np.array([0.1, 0.1, 0.3, 0.5])
    return Columns(
        rng.normal(0.3, 1.0, N),
        (target / chances)[chosen] * (rng.random(N) < 0.9),
        rng.normal(0.3, 0.2, N),
        rng.normal(0.3, 0.3, N),
        rng.uniform(0.2, 3.0, N) if request.param == "coefficients" else np.ones(N),
    )


def test_estimates_and_errors_match_the_formulas(columns: Columns) -> None:
    r, w, m, q, b = columns
    sums = ValueSums.from_rows(*columns)
    scores = {"logged": r, "ips": w * r, "dm": m, "dr": m + w * (r - q)}
    for name, score in scores.items():
        found = estimate_values(name, sums)
        assert found == pytest.approx(mean_and_error(score, b), rel=1e-9)
    found = estimate_gain(sums)
    assert found == pytest.approx(mean_and_error(m + w * (r - q) - r, b), rel=1e-9)
    mean_weight = (b * w).sum() / b.sum()
    snips = (b * w * r).sum() / (b * w).sum()
    error = mean_and_error(w * (r - snips) / mean_weight, b)[1]
    assert estimate_values("snips", sums) == pytest.approx((snips, error), rel=1e-9)
    mean = (b * r).sum() / b.sum()
    error = mean_and_error(w * (r - snips) / mean_weight - (r - mean), b)[1]
    assert estimate_gain(sums, "snips") == pytest.approx((snips - mean, error), rel=1e-9)
    assert sums.effective_rows == pytest.approx((b * w).sum() ** 2 / ((b * w) ** 2).sum())
    ratio = (b * w * (r - q)).sum() / (b * w).sum()
    error = mean_and_error(m + w * (r - q - ratio) / mean_weight, b)[1]
    value = (b * m).sum() / b.sum() + ratio
    assert estimate_values("sndr", sums) == pytest.approx((value, error), rel=1e-9)


def test_sums_of_groups_add_up_to_the_sums_of_all(columns: Columns) -> None:
    whole = ValueSums.from_rows(*columns)
    groups = ValueSums.from_rows(*columns, starts=np.array([0, 1, 100, 399]))
    for sums in (groups.total(), groups.accumulate().select(3)):
        assert sums.moments == pytest.approx(whole.moments, rel=1e-12)
        assert sums.products == pytest.approx(whole.products, rel=1e-12)
        assert (sums.rows, sums.positive) == (whole.rows, whole.positive)
        assert sums.largest_weight == whole.largest_weight
    first = groups.select(0).merge(groups.select(1))
    assert first.moments == pytest.approx(groups.accumulate().moments[1], rel=1e-12)


def test_without_a_model_the_model_terms_are_those_of_no_prediction() -> None:
    rng = np.random.default_rng(1)
    r, w = rng.normal(size=50), rng.random(50)
    plain = ValueSums.from_rows(r, w)
    zero = ValueSums.from_rows(r, w, np.zeros(50), np.zeros(50), np.ones(50))
    assert plain.moments == pytest.approx(zero.moments, rel=1e-12)
    assert plain.products == pytest.approx(zero.products, rel=1e-12)


def diagnose_rows(
    weights: Floats, unsupported: float = 0.0, defaulted: float = 0.0, degraded: float = 0.0
) -> Diagnostics:
    n = len(weights)
    sums = ValueSums.from_rows(np.zeros(n), weights)
    return diagnose(sums, TrustSums(unsupported * n, defaulted * n, degraded * n))


def test_numbers_match_their_formulas() -> None:
    weights = np.random.default_rng(1).exponential(1.1, 500) * np.tile([1.0, 0.0], 250)
    found = diagnose_rows(weights, unsupported=0.4)
    error = weights.std(ddof=1) / np.sqrt(500)
    assert found.mean_weight == pytest.approx(weights.mean(), rel=1e-12)
    assert found.mean_weight_z == pytest.approx((weights.mean() - 0.6) / error, rel=1e-9)
    assert found.effective_rows == pytest.approx(weights.sum() ** 2 / (weights**2).sum())
    assert found.largest_weight == weights.max()
    assert (found.rows, found.positive_share) == (500, 0.5)


def test_the_z_test_is_calibrated_and_finds_wrong_probabilities() -> None:
    rng = np.random.default_rng(2)
    weights = 2.0 * (rng.random((400, 1000)) < 0.5)
    scores = [diagnose_rows(row).mean_weight_z or 0.0 for row in weights]
    assert np.mean(np.abs(scores) > 1.96) == pytest.approx(0.05, abs=0.03)
    assert warn(diagnose_rows(weights[0])) == []
    (sentence,) = warn(diagnose_rows(1.3 * weights[0]))
    assert "the logged probabilities are wrong" in sentence
    assert sentence.startswith("the mean weight is 1.3")


def test_each_problem_has_its_sentence() -> None:
    plain = np.tile([2.0, 0.0], 5000)
    rare = np.zeros(10_000)
    rare[:12] = 10_000 / 12
    cases = {
        "all weights are 1.25, not 1": diagnose_rows(np.full(100, 1.25)),
        "no logged decision has an action": diagnose_rows(np.zeros(10)),
        "never logged with a probability above 0 in 31 % of": diagnose_rows(0.69 * plain, 0.31),
        "10,000 decisions tell as much about the policy as 12 of": diagnose_rows(rare),
        "one decision has 50 % of all weight": diagnose_rows(np.append(plain, 10_000.0)),
        "2 % of the decisions were degraded": diagnose_rows(plain, degraded=0.02),
        "99 % of the decisions have the default reward": diagnose_rows(plain, defaulted=0.99),
        "there are no decisions": diagnose_rows(np.zeros(0)),
    }
    for start, diagnostics in cases.items():
        assert any(start in sentence for sentence in warn(diagnostics)), (start, warn(diagnostics))
    assert warn(diagnose_rows(np.ones(100))) == []  # the logged policy itself
