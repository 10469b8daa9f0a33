"""Statistics over replications."""

import math

from windvane.types import Floats


def standard_error(values: Floats) -> float:
    """Return the standard error of the mean, or 0 for a single value."""
    return float(values.std(ddof=1) / math.sqrt(values.size)) if values.size > 1 else 0.0
