"""How an evaluation is made: the checked arguments of `evaluate`."""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

import numpy as np

from windvane import validation
from windvane.errors import SettingError
from windvane.evaluation.log_batch import Period
from windvane.evaluation.readers.rows import parse_time

Moment = float | str | datetime | None


class EvaluationSettings(NamedTuple):
    """How an evaluation is made."""

    reward_model: bool | None = None
    level: float = 0.05
    seed: int = 0
    period: Period = Period()
    reward_range: tuple[float, float] | None = None
    scored_since: float = -np.inf  # rows before are learned from, and not scored
    pairs: Sequence[tuple[str, str]] = ()  # names, beside those with the reference
    by: str = ""  # column or context feature of the segments
    unit: str = ""  # the same, whose rows depend on each other
    rewards: Sequence[str] = ()  # columns; the first is learned, the others are metrics

    def check(self, since: Moment = None, until: Moment = None) -> "EvaluationSettings":
        """Check the level and the seed, and read what is given as a text."""
        return self._replace(
            level=validation.inside("evaluate", "level", self.level),
            seed=validation.whole("evaluate", "seed", self.seed, least=0),
            period=Period(
                _read_moment("since", since, -np.inf), _read_moment("until", until, np.inf)
            ),
        )


def _read_moment(name: str, moment: Moment, default: float) -> float:
    """Seconds since 1970 of a number, a datetime or a text in ISO 8601; UTC if no zone is given."""
    if moment is None:
        return default
    if not isinstance(moment, str | datetime):
        return validation.real("evaluate", name, moment)
    try:
        return parse_time(str(moment))
    except ValueError:
        example = "2026-01-31 or 2026-01-31T12:00"
        message = f"{name} must be a time such as {example}, got {moment!r}"
        raise SettingError(f"evaluate: {message}") from None
