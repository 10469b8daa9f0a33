"""Whether an estimate can be trusted: numbers about the weights, and sentences about problems."""

import math
from dataclasses import dataclass

import numpy as np

from windvane.evaluation.estimates.estimators import ONE, WEIGHT, ValueSums
from windvane.evaluation.estimates.result import Diagnostics
from windvane.types import Booleans, Floats

Z_LIMIT = 4.0  # standard errors of the mean weight; chance alone gives 1 in 16 000
FEW_EFFECTIVE_ROWS = 100  # below, an interval of a standard error is not to be trusted
UNSUPPORTED_LIMIT = 0.001  # mean probability of actions that are never logged
DEGRADED_LIMIT = 0.01
DEFAULTED_LIMIT = 0.95
DOMINANT_SHARE = 0.1  # share of all weights that one decision may have


@dataclass
class TrustSums:
    """Sums over decisions that `ValueSums` does not have; they add."""

    unsupported: float = 0.0  # Σ b · (probability of actions that were logged with probability 0)
    defaulted: float = 0.0  # Σ b over decisions with the default reward
    degraded: float = 0.0  # Σ b over decisions that the service answered without deciding

    def add(
        self,
        coefficients: Floats | None,
        unsupported: Floats | None,
        is_defaulted: Booleans | None,
        is_degraded: Booleans | None,
    ) -> None:
        """Add decisions."""
        self.unsupported += _add_up(coefficients, unsupported)
        self.defaulted += _add_up(coefficients, is_defaulted)
        self.degraded += _add_up(coefficients, is_degraded)

    def merge(self, other: "TrustSums") -> None:
        """Add the sums of other decisions."""
        self.unsupported += other.unsupported
        self.defaulted += other.defaulted
        self.degraded += other.degraded


def diagnose(sums: ValueSums, trust: TrustSums) -> Diagnostics:
    """Compute the diagnostics of one group of decisions.

    The mean weight is 1 − u, up to chance, if the policy chooses actions that were logged with
    probability 0 with the mean probability u. z = (mean − 1 + u) / standard error.
    """
    rows = int(sums.rows)
    if rows == 0:
        return Diagnostics(0, 0.0, None, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    mass = float(sums.mass)
    mean = float(sums.moments[WEIGHT]) / mass
    error = float(sums.standard_error({WEIGHT: 1.0, ONE: -mean}))
    unsupported = trust.unsupported / mass
    distance = mean - 1 + unsupported
    if abs(distance) < 1e-9:
        z: float | None = 0.0
    elif not math.isfinite(error) or error <= 1e-9:
        z = None  # one decision, or equal weights
    else:
        z = distance / error
    return Diagnostics(
        rows=rows,
        mean_weight=mean,
        mean_weight_z=z,
        effective_rows=float(sums.effective_rows),
        largest_weight=float(sums.largest_weight),
        positive_share=float(sums.positive) / rows,
        unsupported=unsupported,
        defaulted=trust.defaulted / mass,
        degraded=trust.degraded / mass,
    )


def warn(diagnostics: Diagnostics) -> list[str]:
    """Say in sentences why an estimate with these diagnostics cannot be trusted.

    >>> warn(Diagnostics(10_000, 1.31, 9.2, 4000.0, 9.0, 0.4, 0.0, 0.0, 0.0))
    ['the mean weight is 1.31, not 1 (z = 9.2): the logged probabilities are wrong']
    """
    if diagnostics.rows == 0:
        return ["there are no decisions to judge the policy by"]
    sentences = []
    expected = 1 - diagnostics.unsupported
    goal = "1" if diagnostics.unsupported < UNSUPPORTED_LIMIT else f"{expected:.3g}"
    if diagnostics.positive_share == 0:
        sentences.append("no logged decision has an action that the policy could have chosen")
    elif diagnostics.mean_weight_z is None and diagnostics.rows > 1:
        sentences.append(
            f"all weights are {diagnostics.mean_weight:.6g}, not {goal}: "
            "the logged probabilities are wrong"
        )
    elif diagnostics.mean_weight_z is not None and abs(diagnostics.mean_weight_z) > Z_LIMIT:
        sentences.append(
            f"the mean weight is {diagnostics.mean_weight:.6g}, not {goal} "
            f"(z = {diagnostics.mean_weight_z:.1f}): the logged probabilities are wrong"
            + (", or rare large weights are missing" if diagnostics.mean_weight_z < 0 else "")
        )
    if diagnostics.unsupported >= UNSUPPORTED_LIMIT:
        sentences.append(
            "the policy chooses actions that were never logged with a probability above 0 "
            f"in {_percent(diagnostics.unsupported)} of the decisions"
        )
    if 0 < diagnostics.effective_rows < min(FEW_EFFECTIVE_ROWS, diagnostics.rows):
        sentences.append(
            f"the {diagnostics.rows:,} decisions tell as much about the policy as "
            f"{diagnostics.effective_rows:.0f} of its own (effective sample size)"
        )
    total = diagnostics.mean_weight * diagnostics.rows
    if diagnostics.rows > 1 and diagnostics.largest_weight > max(1.0, DOMINANT_SHARE * total):
        sentences.append(
            f"one decision has {_percent(diagnostics.largest_weight / total)} of all weight "
            f"(w = {diagnostics.largest_weight:.3g})"
        )
    if diagnostics.degraded > DEGRADED_LIMIT:
        sentences.append(
            f"{_percent(diagnostics.degraded)} of the decisions were degraded: the service "
            "answered without deciding"
        )
    if diagnostics.defaulted > DEFAULTED_LIMIT:
        sentences.append(
            f"{_percent(diagnostics.defaulted)} of the decisions have the default reward: rewards "
            "may not reach the log"
        )
    return sentences


def _add_up(coefficients: Floats | None, values: Floats | Booleans | None) -> float:
    if values is None:
        return 0.0
    return float(np.sum(values if coefficients is None else coefficients * values))


def _percent(share: float) -> str:
    return f"{100 * share:.2g} %" if share < 0.995 else "100 %"
