"""Drift alarm: a CUSUM that detects when a loop's predictions become worse than usual.

Squared prediction errors are taken in groups. After each group

    C ← max(0, C + min(z, 4) − ½),   z = (m − m₀) / √(v₀/n + v₀/n₀)

with the mean m of the group's n squared errors, and the mean m₀ and variance v₀ of the n₀ usual
ones. If C > 8, an alarm is raised and the usual errors are learned again. The usual errors are
those of all groups since the last alarm, except groups during which C was at least 4.

This is not the CUSUM of the memory `detect`. `detect` adds up single squared errors, scaled by a
given noise and by the uncertainty of the belief, and an alarm resets the belief. This alarm knows
no noise: it learns the usual error from the log, and it only reports.
"""

from math import isnan, sqrt
from typing import NamedTuple

GROUP_LESSONS = 25
CALIBRATION_LESSONS = 8 * GROUP_LESSONS  # from which the usual error is known
# In standard errors:
SLACK = 0.5
LARGEST_STEP = 4.0
THRESHOLD = 8.0


class SquaredErrors(NamedTuple):
    """Sums over squared prediction errors."""

    size: int = 0
    total: float = 0.0
    total_of_squares: float = 0.0

    def merge(self, other: "SquaredErrors") -> "SquaredErrors":
        """Add the sums of other squared errors."""
        return SquaredErrors(
            self.size + other.size,
            self.total + other.total,
            self.total_of_squares + other.total_of_squares,
        )

    @property
    def mean(self) -> float:
        """The mean m of the squared errors."""
        return self.total / self.size

    @property
    def variance(self) -> float:
        """The variance v of the squared errors."""
        return max(self.total_of_squares / self.size - self.mean**2, 0.0)


class DriftAlarm:
    """Takes in prediction errors one by one and raises an alarm if they grow."""

    def __init__(self) -> None:
        self.usual = SquaredErrors()
        self.group = SquaredErrors()
        self.level = 0.0  # C

    @property
    def is_calibrated(self) -> bool:
        """Whether the usual error is known."""
        return self.usual.size >= CALIBRATION_LESSONS

    def update(self, error: float) -> bool:
        """Take in one prediction error; returns True if it raises an alarm. NaN is ignored."""
        if isnan(error):
            return False
        square = error * error
        self.group = self.group.merge(SquaredErrors(1, square, square * square))
        if self.group.size < GROUP_LESSONS:
            return False
        group = self.group
        self.group = SquaredErrors()
        if self.is_calibrated:
            step = min(self._compute_excess(group), LARGEST_STEP)
            self.level = max(0.0, self.level + step - SLACK)
        if self.level > THRESHOLD:
            self.usual = SquaredErrors()
            self.level = 0.0
            return True
        if self.level < THRESHOLD / 2:  # else the group may already belong to a changed world
            self.usual = self.usual.merge(group)
        return False

    def _compute_excess(self, group: SquaredErrors) -> float:
        """Compute z, by how many standard errors the mean of a group exceeds the usual mean."""
        usual = self.usual
        deviation = sqrt(usual.variance / group.size + usual.variance / usual.size)
        return (group.mean - usual.mean) / max(deviation, 1e-12)
