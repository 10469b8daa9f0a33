"""Diagnostics: their formulas, and a sentence for each way in which an answer cannot be trusted."""

import numpy as np
import pytest

from windvane.evaluation.estimates.diagnostics import TrustSums, diagnose, warn
from windvane.evaluation.estimates.estimators import ValueSums
from windvane.evaluation.estimates.result import Diagnostics
from windvane.types import Floats


def diagnose_rows(
    weights: Floats,
    unsupported: float = 0.0,
    defaulted: float = 0.0,
    degraded: float = 0.0,
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
