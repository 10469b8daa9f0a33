"""The mixture boundary, against the integral that it solves."""

import math

import numpy as np
import pytest

from naive_estimators import log_wealth_by_integral
from windvane.evaluation.estimates.confidence_sequence import find_boundary, log_wealth


@pytest.mark.parametrize("variance", [0.0, 0.3, 20.0, 3e3, 1e6, 1e9])
@pytest.mark.parametrize("deviations", [0.0, 0.5, 3.0, 30.0])
def test_wealth_is_the_integral_of_the_mixture(variance: float, deviations: float) -> None:
    s = deviations * math.sqrt(variance + 1)
    expected = log_wealth_by_integral(variance)(s)
    assert float(log_wealth(s, variance)) == pytest.approx(expected, rel=1e-8, abs=1e-8)


def test_the_boundary_solves_its_equation_for_every_variance() -> None:
    variance = 10.0 ** np.linspace(-6, 12, 200)
    for alpha in (0.3, 0.025, 1e-6):
        boundary = find_boundary(variance, alpha)
        assert log_wealth(boundary, variance) == pytest.approx(-math.log(alpha), abs=1e-6)
        assert (np.diff(boundary) > 0).all()
        # the law of the iterated logarithm is a lower limit, and √(V log V) the order
        assert (boundary > np.sqrt(2 * variance * math.log(1 / alpha))).all()
        assert (
            boundary < 3 * np.sqrt((variance + 20) * (np.log(variance + 3) - math.log(alpha)))
        ).all()
