"""Explorations: the settings that they refuse."""

import math
import re
from collections.abc import Callable

import pytest

import windvane as wv
from windvane.errors import SettingError


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda: wv.optimism(-1.0), "optimism: width must be at least 0, got -1.0"),
        (lambda: wv.thompson(math.nan), "thompson: scale must be a finite number, got nan"),
        (lambda: wv.epsilon(1.1), "epsilon: chance must lie in [0, 1], got 1.1"),
        (lambda: wv.normal(-0.1), "normal: scale must be at least 0, got -0.1"),
        (lambda: wv.half_normal(-0.1), "half_normal: scale must be at least 0, got -0.1"),
        (lambda: wv.grid(1.0, points=1), "grid: points must be a whole number >= 2, got 1"),
        (lambda: wv.grid(1.0, sigma=0.0), "grid: sigma must be above 0, got 0.0"),
        (lambda: wv.confidence(0.0), "confidence: delta must lie in (0, 1), got 0.0"),
        (lambda: wv.confidence(noise=-1.0), "confidence: noise must be at least 0, got -1.0"),
        (lambda: -1.0 * wv.confidence(), "confidence: a factor must be at least 0, got -1.0"),
        (lambda: wv.posterior(-0.5), "posterior: share must be at least 0, got -0.5"),
        (lambda: -1.0 * wv.posterior(), "posterior: a factor must be at least 0, got -1.0"),
        (
            lambda: wv.perturbed_history(wv.posterior()),  # type: ignore[arg-type]
            "perturbed_history: scale must be a finite number, got posterior(1.0)",
        ),
        (
            lambda: wv.GeneralizedPolicy(2, "logistic", wv.keep(), wv.posterior()),  # type: ignore[arg-type]
            "GeneralizedPolicy: scale must be a finite number, got posterior(1.0)",
        ),
        (
            lambda: wv.confidence(horizon=5, anytime=True),
            "confidence: give a horizon or anytime, not both",
        ),
        (
            lambda: wv.perturbed_history(0, "coins"),
            "perturbed_history: the number of coins must be a whole number >= 1, got 0",
        ),
        (
            lambda: wv.perturbed_history(65, "coins"),
            "perturbed_history: the number of coins must be at most 64, got 65",
        ),
        (
            lambda: wv.perturbed_history(1, "dice"),  # type: ignore[arg-type]
            "perturbed_history: pseudo must be 'normal' or 'coins', got 'dice'",
        ),
        (
            lambda: wv.randomized(0.5),  # type: ignore[arg-type]
            "randomized: law must be normal(...), half_normal(...) or grid(...), got 0.5",
        ),
    ],
)
def test_a_setting_outside_its_range_is_refused(make: Callable[[], object], complaint: str) -> None:
    """The message names the factory, the condition and the value."""
    with pytest.raises(SettingError, match=re.escape(complaint)):
        make()
