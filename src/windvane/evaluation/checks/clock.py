"""Checks of the clock: whether the decisions are in the order of time, and the largest gap."""

import math
from collections.abc import Sequence

import numpy as np

from windvane.evaluation.checks.finding import Finding, format_share
from windvane.evaluation.log_batch import LogBatch

GAP_LIMIT = 0.25  # of the time from the first to the last decision


class ClockCheck:
    """Steps from one decision to the next."""

    def __init__(self, has_times: bool) -> None:
        self.has_times = has_times
        self.rows = self.backward_steps = 0
        self.first, self.last = math.inf, -math.inf
        self.largest_backward = self.largest_gap = 0.0  # seconds
        self._previous: float | None = None

    def add(self, batch: LogBatch) -> None:
        """Add the decisions of a batch."""
        times = batch.times if self._previous is None else np.append(self._previous, batch.times)
        steps = np.diff(times)
        self.rows += batch.size
        self.backward_steps += int((steps < 0.0).sum())
        self.largest_backward = max(self.largest_backward, float((-steps).max(initial=0.0)))
        self.largest_gap = max(self.largest_gap, float(steps.max(initial=0.0)))
        self.first = min(self.first, float(times.min()))
        self.last = max(self.last, float(times.max()))
        self._previous = float(times[-1])

    def find(self) -> Sequence[Finding]:
        """What was found in all batches."""
        if not self.has_times:
            return [Finding("clock", "warning", "the log has no times: rounds are used instead")]
        numbers = {
            "backwardSteps": self.backward_steps,
            "largestBackwardSeconds": self.largest_backward,
            "largestGapSeconds": self.largest_gap,
        }
        duration = self.last - self.first
        if self.backward_steps:
            share = format_share(self.backward_steps, self.rows)
            text = f"{self.backward_steps} decisions ({share}) come before the one above them"
            text += f", by up to {format_seconds(self.largest_backward)}: sort the log by time"
            return [Finding("clock", "warning", text, numbers)]
        text = f"in the order of time; the largest gap is {format_seconds(self.largest_gap)}"
        text += f" of {format_seconds(duration)}"
        is_gap = self.rows > 2 and self.largest_gap > GAP_LIMIT * duration
        return [Finding("clock", "warning" if is_gap else "ok", text, numbers)]


def format_seconds(seconds: float) -> str:
    """Format a duration with its largest fitting unit.

    >>> [format_seconds(seconds) for seconds in (0.5, 60.0, 7200.0, 1.5 * 86_400)]
    ['0.5 seconds', '1 minute', '2 hours', '1.5 days']
    """
    units = (("day", 86_400.0), ("hour", 3600.0), ("minute", 60.0), ("second", 1.0))
    unit, size = next((pair for pair in units if seconds >= pair[1]), units[-1])
    number = f"{seconds / size:.3g}"
    return f"{number} {unit}" if number == "1" else f"{number} {unit}s"
