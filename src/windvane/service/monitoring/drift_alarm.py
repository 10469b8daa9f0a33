"""When predictions become worse than they usually are: a CUSUM over groups of lessons.

C ← max(0, C + min(z, 4) − ½), where z is how far the mean of a group's squared errors lies above
the usual one, in standard errors of their difference; where C > 8, an alarm is raised, and what is
usual is learned anew. The usual is that of all groups since the last alarm that were not suspect.
"""

from math import isnan, sqrt
from typing import NamedTuple

GROUP = 25  # lessons
ENOUGH = 8 * GROUP  # lessons from which the usual error is known
SLACK, CAP, LIMIT = 0.5, 4.0, 8.0  # in standard errors


class Squares(NamedTuple):
    """Squared errors: how many, their sum, and the sum of their squares."""

    size: int = 0
    total: float = 0.0
    squares: float = 0.0

    def plus(self, other: "Squares") -> "Squares":
        """These and others."""
        return Squares(
            self.size + other.size, self.total + other.total, self.squares + other.squares
        )

    @property
    def mean(self) -> float:
        """Their mean m."""
        return self.total / self.size

    @property
    def variance(self) -> float:
        """Their variance v."""
        return max(self.squares / self.size - self.mean**2, 0.0)


class Alarm:
    """Is shown one error after the other, and says when something has changed."""

    def __init__(self) -> None:
        self.usual = self.group = Squares()
        self.level = 0.0  # C

    @property
    def knows(self) -> bool:
        """Whether enough was seen to say what is usual."""
        return self.usual.size >= ENOUGH

    def raised_by(self, error: float) -> bool:
        """Whether predictions have become worse, now that this error is seen; NaN says nothing."""
        if isnan(error):
            return False
        square = error * error
        self.group = self.group.plus(Squares(1, square, square * square))
        if self.group.size < GROUP:
            return False
        group, self.group = self.group, Squares()
        if self.knows:
            self.level = max(0.0, self.level + min(self._excess(group), CAP) - SLACK)
        if self.level > LIMIT:
            self.usual, self.level = Squares(), 0.0
            return True
        if self.level < LIMIT / 2:  # what is suspect is no measure of the usual
            self.usual = self.usual.plus(group)
        return False

    def _excess(self, group: Squares) -> float:
        """How unusual a group is, z = (m − m₀) / √(v₀/n + v₀/n₀)."""
        usual = self.usual
        deviation = sqrt(usual.variance / group.size + usual.variance / usual.size)
        return (group.mean - usual.mean) / max(deviation, 1e-12)
