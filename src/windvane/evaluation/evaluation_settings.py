"""How an evaluation is made: its half-life, level, period and range of rewards."""

from datetime import UTC, datetime
from typing import NamedTuple

import numpy as np

from windvane import validation
from windvane.beliefs.bank.settings import HalfLife, parse_half_life
from windvane.errors import SettingError
from windvane.evaluation.policy_record import DEFAULT_HALF_LIFE
from windvane.evaluation.usable_rows import Period

Moment = float | str | datetime | None


class Settings(NamedTuple):
    """How an evaluation is made."""

    half_life: float | None = DEFAULT_HALF_LIFE  # seconds, of the recent value
    reward_model: bool | None = None
    level: float = 0.05
    seed: int = 0
    period: Period = Period()
    reward_range: tuple[float, float] | None = None
    scored_since: float = -np.inf  # rows before are learned from, and not scored


def make_settings(
    half_life: str | None = None,
    reward_model: bool | None = None,
    level: float = 0.05,
    seed: int = 0,
    since: Moment = None,
    until: Moment = None,
    reward_range: tuple[float, float] | None = None,
) -> Settings:
    """Check the arguments of `evaluate`."""
    return Settings(
        half_life=parse_recent_half_life(half_life),
        reward_model=reward_model,
        level=validation.inside("evaluate", "level", level),
        seed=validation.whole("evaluate", "seed", seed, least=0),
        period=Period(_read_moment("since", since, -np.inf), _read_moment("until", until, np.inf)),
        reward_range=reward_range,
    )


def parse_recent_half_life(text: str | None) -> float | None:
    """Seconds of a half-life such as "7 days"; None for "never"."""
    if text is None:
        return DEFAULT_HALF_LIFE
    try:
        parsed = parse_half_life(text)
    except SettingError:
        parsed = HalfLife(0.0, in_rounds=True)
    if parsed is not None and parsed.in_rounds:
        raise SettingError(
            f"evaluate: half_life must be never, or a time such as 7 days or PT12H, got {text!r}"
        )
    return None if parsed is None else parsed.length


def _read_moment(name: str, moment: Moment, default: float) -> float:
    """Seconds since 1970 of a number, a datetime or a text in ISO 8601; UTC if no zone is given."""
    if moment is None:
        return default
    if isinstance(moment, str):
        try:
            moment = datetime.fromisoformat(moment)
        except ValueError:
            raise SettingError(
                f"evaluate: {name} must be a time such as 2026-01-31 or 2026-01-31T12:00, "
                f"got {moment!r}"
            ) from None
    if isinstance(moment, datetime):
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        return moment.timestamp()
    return validation.real("evaluate", name, moment)
