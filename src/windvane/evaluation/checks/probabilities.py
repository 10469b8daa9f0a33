"""Checks of probabilities: their sums, the weights that follow, and whether choices obey them.

If the logged probabilities are those with which the actions were drawn, the following means are
known, whatever the policy was and however it learned from earlier decisions:

    w = 1 / (K p_chosen)    has the mean (eligible actions with p > 0) / K
    p_chosen                has the mean Σ_a p_a²
    [first action chosen]   has the mean p_first

w is the weight of a policy that chooses at random among the K eligible actions.

z is the distance of a sum from its mean in standard deviations. The variance of a decision follows
from its probabilities if all are known; else it is estimated.
"""

import math
from collections.abc import Sequence

import numpy as np

from windvane.evaluation.checks.finding import Finding, Level, format_share
from windvane.evaluation.log_batch import LogBatch
from windvane.types import Booleans, Floats

SUM_TOLERANCE = 1e-3
Z_WARNING = 3.0
Z_FAILURE = 4.0  # chance alone gives 1 in 16 000
TINY_PROBABILITY = 1e-3
NO_EXPLORATION_SHARE = 0.99  # of decisions with one certain action; more are a failure


class ProbabilityCheck:
    """Sums of probabilities, mean weights, calibration and support."""

    def __init__(self, is_fitted: bool) -> None:
        self.is_fitted = is_fitted
        self.rows = self.complete_rows = 0
        self.largest_error = 0.0  # of a sum of probabilities
        self.wrong_sums = 0
        self.actions = self.known_actions = self.impossible = self.tiny = 0
        self.certain_rows = self.open_rows = 0  # open: more than one action could be chosen
        self.smallest_chosen = math.inf
        self.uniform = MeanTest()
        self.calibration = MeanTest()
        self.first = MeanTest()
        self.weight_sum = self.multiplicity_sum = 0.0

    def add(self, batch: LogBatch) -> None:
        """Add the decisions of a batch."""
        first = batch.starts[:-1]
        p = batch.probabilities
        is_known = ~np.isnan(p)
        is_complete = np.logical_and.reduceat(is_known, first)
        zeros = np.where(is_known, p, 0.0)
        sums = np.add.reduceat(zeros, first)
        chosen = batch.chosen_probabilities
        eligible = np.add.reduceat(batch.is_eligible.astype(np.float64), first)
        self.rows += batch.size
        self._add_sums(sums, is_complete)
        self._add_support(batch, is_known, eligible, chosen)
        possible = np.add.reduceat((batch.is_eligible & ~(p == 0.0)).astype(np.float64), first)
        inverse = np.divide(1.0, p, out=np.zeros_like(p), where=is_known & (p > 0.0))
        inverse[~batch.is_eligible] = 0.0
        weights = 1.0 / (eligible * chosen)
        expected = possible / eligible
        variances = np.where(
            is_complete,
            np.add.reduceat(inverse, first) / eligible**2 - expected**2,
            (weights - expected) ** 2,
        )
        b = batch.multiplicities
        self.uniform.add(weights - expected, variances, b)
        self.weight_sum += float(b @ weights)
        self.multiplicity_sum += float(b.sum())
        squares = np.add.reduceat(zeros**2, first)
        cubes = np.add.reduceat(zeros**3, first)
        errors, error_variances = chosen - squares, cubes - squares**2
        self.calibration.add(errors[is_complete], error_variances[is_complete], b[is_complete])
        p_first = p[first[is_complete]]
        is_first = batch.chosen[is_complete] == 0
        self.first.add(is_first - p_first, p_first * (1.0 - p_first), b[is_complete])

    def find(self) -> Sequence[Finding]:
        """What was found in all batches."""
        return [
            self._find_sums(),
            *([] if self.is_fitted else self._find_means()),
            self._find_support(),
        ]

    def _add_sums(self, sums: Floats, is_complete: Booleans) -> None:
        errors = np.abs(sums - 1.0)[is_complete]
        self.complete_rows += len(errors)
        self.wrong_sums += int((errors > SUM_TOLERANCE).sum())
        self.largest_error = max(self.largest_error, float(errors.max(initial=0.0)))

    def _add_support(
        self, batch: LogBatch, is_known: Booleans, eligible: Floats, chosen: Floats
    ) -> None:
        p = batch.probabilities[batch.is_eligible & is_known]
        self.actions += int(batch.is_eligible.sum())
        self.known_actions += len(p)
        self.impossible += int((p == 0.0).sum())
        self.tiny += int(((p > 0.0) & (p < TINY_PROBABILITY)).sum())
        is_open = eligible > 1
        self.open_rows += int(is_open.sum())
        self.certain_rows += int((chosen[is_open] >= 1.0 - 1e-9).sum())
        self.smallest_chosen = min(self.smallest_chosen, float(chosen.min(initial=math.inf)))

    def _find_sums(self) -> Finding:
        numbers = {"complete": self.complete_rows, "largestError": self.largest_error}
        name = "sums of probabilities"
        if self.is_fitted:
            text = "the log has no probabilities: they were estimated from the shares of actions"
            return Finding(name, "warning", text, numbers)
        if self.wrong_sums:
            share = format_share(self.wrong_sums, self.rows)
            text = f"the probabilities of {self.wrong_sums} decisions ({share}) do not sum to 1"
            return Finding(name, "failure", text, numbers | {"wrong": self.wrong_sums})
        if not self.complete_rows:
            text = "only the probability of the chosen action is known"
        else:
            share = format_share(self.complete_rows, self.rows)
            text = f"all probabilities are known in {share} of the decisions, and sum to 1"
        return Finding(name, "ok", text, numbers)

    def _find_means(self) -> list[Finding]:
        mean = self.weight_sum / self.multiplicity_sum if self.multiplicity_sum else math.nan
        z = self.uniform.z
        level = _judge(z)
        text = f"the weights of choosing at random have the mean {mean:.4g} (z = {z:.1f})"
        if level != "ok":
            text += ": the actions were not drawn with the logged probabilities"
        findings = [Finding("mean weight", level, text, {"mean": mean, "z": z})]
        if self.complete_rows:
            findings.append(_compare("calibration", "likely actions were", self.calibration.z))
            findings.append(_compare("first action", "the first action was", self.first.z))
        return findings

    def _find_support(self) -> Finding:
        known_actions, certain = max(self.known_actions, 1), self.certain_rows
        numbers = {
            "impossible": self.impossible / known_actions,
            "tiny": self.tiny / known_actions,
            "certain": certain / max(self.open_rows, 1),
            "smallestChosen": self.smallest_chosen,
        }
        level: Level = "ok"
        parts = [f"the least likely choice had probability {self.smallest_chosen:.3g}"]
        if self.impossible:
            level = "warning"
            share = format_share(self.impossible, self.known_actions)
            parts.append(f"{share} of the eligible actions had probability 0")
        if self.tiny:
            share = format_share(self.tiny, self.known_actions)
            parts.append(f"{share} had one below {TINY_PROBABILITY:g}")
        if self.open_rows and certain > NO_EXPLORATION_SHARE * self.open_rows:
            level = "failure"
            share = format_share(certain, self.open_rows)
            parts = [f"{share} of the choices were certain: another policy cannot be evaluated"]
        return Finding("support", level, "; ".join(parts), numbers)


class MeanTest:
    """The sum of terms whose mean should be 0, beside its variance."""

    def __init__(self) -> None:
        self.sum = self.variance = 0.0

    def add(self, terms: Floats, variances: Floats, multiplicities: Floats) -> None:
        """Add terms; a term with multiplicity b counts b times."""
        self.sum += float(multiplicities @ terms)
        self.variance += float(multiplicities**2 @ variances)

    @property
    def z(self) -> float:
        """The sum in standard deviations."""
        scale = max(abs(self.sum), 1.0)
        if self.variance <= 1e-12 * scale:  # nothing is random
            return 0.0 if abs(self.sum) <= 1e-6 else math.copysign(math.inf, self.sum)
        return self.sum / math.sqrt(self.variance)


def _judge(z: float) -> Level:
    if abs(z) > Z_FAILURE:
        return "failure"
    return "warning" if abs(z) > Z_WARNING else "ok"


def _compare(name: str, subject: str, z: float) -> Finding:
    level = _judge(z)
    fit = "as often as"
    if level != "ok":
        fit = "more often than" if z > 0 else "less often than"
    text = f"{subject} chosen {fit} the logged probabilities say (z = {z:.1f})"
    return Finding(name, level, text, {"z": z})
