"""Sums over decisions and the estimates from them, against the formulas as written."""

from typing import NamedTuple

import numpy as np
import pytest

from naive_estimators import mean_and_error
from windvane.evaluation.estimates.estimators import ValueSums, estimate_gain, estimate_values
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
