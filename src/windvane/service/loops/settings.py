"""A loop's settings: what it is told about rewards, memory and exploration.

They are kept as JSON, with the names of the wire API where it has one. A change never discards what
was learned: the memory and the exploration go on with the same sums.
"""

import re
from typing import Annotated, Literal

import msgspec

from windvane import exploration as spend
from windvane import memory as fade
from windvane.errors import SettingError
from windvane.exploration import Exploration
from windvane.memory import Memory
from windvane.service.clock import MICROSECONDS_PER_SECOND

LONGEST = 10 * 366 * 86_400  # seconds
Mode = Literal["Online", "Apprentice", "LoggingOnly"]
Share = Annotated[float, msgspec.Meta(ge=0.0, le=1.0)]
ISO = re.compile(
    r"P(?:(?P<days>\d+(?:\.\d+)?)D)?(?:T(?:(?P<hours>\d+(?:\.\d+)?)H)?"
    r"(?:(?P<minutes>\d+(?:\.\d+)?)M)?(?:(?P<seconds>\d+(?:\.\d+)?)S)?)?",
    re.ASCII,
)
CLOCK = re.compile(
    r"(?:(?P<days>\d+)\.)?(?P<hours>\d+):(?P<minutes>\d\d):(?P<seconds>\d\d(?:\.\d+)?)", re.ASCII
)
WORDS = re.compile(
    r"(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>second|minute|hour|day|week|round)s?", re.ASCII
)
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}", re.ASCII)
UNITS = {"second": 1.0, "minute": 60.0, "hour": 3600.0, "day": 86_400.0, "week": 604_800.0}


def seconds(text: str) -> float:
    """A duration as ISO 8601 ("PT10M", "P7D"), as a clock ("00:10:00") or in words ("7 days")."""
    given = text.strip()
    for pattern in (ISO, CLOCK):
        found = pattern.fullmatch(given)
        if found and any(found.groupdict().values()):
            parts = found.groupdict().items()
            return _bounded(
                text, sum(float(value or 0) * UNITS[name[:-1]] for name, value in parts)
            )
    words = WORDS.fullmatch(given.lower())
    if words and words["unit"] in UNITS:
        return _bounded(text, float(words["number"]) * UNITS[words["unit"]])
    raise SettingError(f"settings: {text!r} must be a duration such as PT10M, 00:10:00 or 7 days")


def _bounded(text: str, span: float) -> float:
    if not 0 < span <= LONGEST:
        raise SettingError(f"settings: a duration must lie within (0, 10 years], got {text!r}")
    return span


class Settings(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"
):
    """All that can be set; `rewardWaitTime` and the like are named as clients name them."""

    reward_wait_time: str = "PT10M"
    default_reward: Annotated[float, msgspec.Meta(ge=-1.0, le=1.0)] = 0.0
    reward_aggregation: Literal["earliest", "sum"] = "earliest"
    exploration_percentage: Share = 0.1
    learning_mode: Mode = "Online"
    log_retention_days: Annotated[int, msgspec.Meta(ge=-1, le=2**31 - 1)] = 90
    model_export_frequency: str = "PT5M"
    half_life: str = "7 days"
    dim: Annotated[int, msgspec.Meta(ge=2, le=4096)] = 128
    ridge: Annotated[float, msgspec.Meta(ge=1e-3, le=1e6)] = 1.0
    noise: Annotated[float, msgspec.Meta(gt=0.0, le=1000.0)] = 0.5
    width: Annotated[float, msgspec.Meta(ge=0.0, le=1000.0)] = 0.4
    seed: Annotated[int, msgspec.Meta(ge=0, le=2**53)] = 0

    def __post_init__(self) -> None:
        seconds(self.reward_wait_time)
        seconds(self.model_export_frequency)
        self.memory()

    @property
    def wait(self) -> int:
        """Microseconds for which a decision waits for its reward."""
        return round(seconds(self.reward_wait_time) * MICROSECONDS_PER_SECOND)

    @property
    def adds(self) -> bool:
        """Whether several rewards of one decision add up."""
        return self.reward_aggregation == "sum"

    @property
    def in_rounds(self) -> bool:
        """Whether observations age by rounds instead of by time."""
        return "round" in self.half_life

    def memory(self) -> Memory:
        """How the past fades: a half-life in rounds or in seconds, or never."""
        text = self.half_life.strip().lower()
        if text == "never":
            return fade.keep()
        words = WORDS.fullmatch(text)
        if words and words["unit"] == "round":
            return fade.half_life(float(words["number"]))
        return fade.half_life(seconds(self.half_life))

    def exploration(self) -> Exploration:
        """One confidence level a round for all actions, a half-normal share of the radius."""
        return spend.randomized(spend.half_normal(self.width * spend.confidence(0.01, self.noise)))


def loop_name(text: str) -> str:
    """A name that can stand in an address."""
    if not NAME.fullmatch(text):
        raise SettingError(
            f"settings: a loop's name has 1 to 64 of A-Z a-z 0-9 . _ - and starts with none of . - "
            f"got {text[:80]!r}"
        )
    return text


def read(text: bytes | str) -> Settings:
    """Settings from JSON, each checked."""
    try:
        return msgspec.json.decode(text, type=Settings)
    except msgspec.ValidationError as reason:
        raise SettingError(f"settings: {str(reason).removeprefix('settings: ')}") from None


def write(settings: Settings) -> str:
    """Settings as JSON."""
    return msgspec.json.encode(settings).decode()
