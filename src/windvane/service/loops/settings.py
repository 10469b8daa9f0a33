"""A loop's settings: rewards, memory, exploration, features and log.

Each setting is one field of `LoopSettings`. From the field follow the name and the check on the
wire, the flag of `windvane loop create`, the row of the documentation and the loop's learner. A log
keeps settings as JSON. A change of settings keeps what was learned: the new half-life and
exploration continue with the same sums.
"""

import math
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, Self, get_args, get_origin

import msgspec

from windvane.errors import SettingError
from windvane.features import ALL_CROSSINGS
from windvane.service.clock import MICROSECONDS_PER_SECOND, parse_date
from windvane.service.errors import ServiceError, describe_invalid_value, find_invalid_place
from windvane.settings import (
    AUTO,
    EXPLORATION,
    MAX_ARRAY_SIZE,
    parse_half_life,
    parse_seconds,
)

# Imported late, because the command line reads the settings without it: NumPy takes long to load.
if TYPE_CHECKING:
    from windvane.learner import Learner

LOOP_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}", re.ASCII)
Mode = Literal["Online", "Apprentice", "LoggingOnly"]
ARTICLES = {"integer": "an ", "number": "a ", "duration": "a ", "date": "a "}
NOTE_MARK = ": "  # between the author of a change of settings and a sentence about it
MAX_SHOWN_CHARACTERS = 80  # of a value that is refused


def _setting(flag: str, meaning: str, kind: str = "", fixed: bool = False, **bounds: Any) -> object:
    """What a field says of its setting; `kind` names a type that the field's own type is not."""
    extra = {"flag": flag, "meaning": meaning, "kind": kind, "fixed": fixed}
    return msgspec.Meta(extra=extra, **bounds)


class LoopSettings(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"
):
    """All that can be set; `rewardWaitTime` and the like are named as clients name them."""

    reward_wait_time: Annotated[
        str,
        _setting("--wait", "How long a decision waits for its reward.", "duration"),
    ] = "PT10M"
    default_reward: Annotated[
        float,
        _setting("--default-reward", "The reward if none comes in time.", ge=-1.0, le=1.0),
    ] = 0.0
    reward_aggregation: Annotated[
        Literal["earliest", "sum"],
        _setting("--aggregation", "Which of several rewards counts: the earliest, or their sum."),
    ] = "earliest"
    reward_model: Annotated[
        Literal["slot", "sum", "cascade"],
        _setting(
            "--reward-model",
            "What the rewards of a page with several slots mean: one for each slot; one for the "
            "page, to which all slots add; or one click in a list that is read from the top.",
        ),
    ] = "slot"
    exploration_percentage: Annotated[
        float,
        _setting(
            "--exploration",
            "Share of decisions in which every action has the same probability. A larger share "
            "finds changes sooner and makes estimates of other rules exacter; it costs this share "
            "of the gain.",
            ge=0.0,
            le=1.0,
        ),
    ] = EXPLORATION
    learning_mode: Annotated[
        Mode,
        _setting(
            "--mode",
            "Online chooses and learns; Apprentice always takes the first action and learns; "
            "LoggingOnly chooses and does not learn.",
        ),
    ] = "Online"
    log_retention_days: Annotated[
        int,
        _setting(
            "--log-retention-days",
            "Days after which a decision is deleted from the log; -1 keeps all.",
            ge=-1,
            le=2**31 - 1,
        ),
    ] = 90
    model_export_frequency: Annotated[
        str,
        _setting(
            "--model-export-frequency",
            "Accepted for clients that send it; it has no effect.",
            "duration",
        ),
    ] = "PT5M"
    half_life: Annotated[
        str,
        _setting(
            "--half-life",
            'Age at which a reward counts half. With "auto", each weight is a sum of parts that '
            "fade after 30, 300 or 3000 rewards, or never. A fixed one is written as "
            '"7 days", "500 rounds" or "never".',
            "auto, duration, rounds or never",
        ),
    ] = AUTO
    seed: Annotated[
        int,
        _setting("--seed", "Seed of the random choices.", fixed=True, ge=0, le=2**53),
    ] = 0
    crossings: Annotated[
        str,
        _setting(
            "--crossings",
            "Which namespaces of the context are crossed with which of the "
            'action, such as "user*article, device*article"; "none" crosses nothing. Without a '
            "crossing, the feature of the context changes the reward of all actions alike.",
            "pairs of namespaces",
            fixed=True,
        ),
    ] = ALL_CROSSINGS
    array_size: Annotated[
        int,
        _setting(
            "--array-size",
            "Arrays of more numbers, such as long embeddings, are projected "
            "to so many numbers by fixed random signs. A smaller size makes the loop faster and "
            "its predictions coarser; 0 keeps arrays as they are.",
            fixed=True,
            ge=0,
            le=MAX_ARRAY_SIZE,
        ),
    ] = 0
    is_auto_optimization_enabled: Annotated[
        bool,
        _setting(
            "--auto-optimize",
            "Whether other half-lives and exploration percentages are evaluated again and again, "
            "and one that is better with 95 % confidence replaces the present ones.",
        ),
    ] = False
    auto_optimization_frequency: Annotated[
        str,
        _setting("--auto-optimize-every", "How often auto-optimisation evaluates.", "duration"),
    ] = "P7D"
    auto_optimization_start_date: Annotated[
        str,
        _setting(
            "--auto-optimize-from",
            "When auto-optimisation evaluates first; a date in the past: as soon as it is enabled.",
            "date",
        ),
    ] = "1970-01-01T00:00:00Z"
    is_inference_explainability_enabled: Annotated[
        bool,
        _setting(
            "--explain",
            "Whether the answer to a rank request lists what each feature adds to the estimate of "
            "each action, as inferenceExplanation. It takes longer.",
        ),
    ] = False
    model_retrain_days: Annotated[
        int,
        _setting(
            "--model-retrain-days",
            "Accepted for clients that send it; it has no effect.",
            ge=0,
            le=2**31 - 1,
        ),
    ] = 0

    def __post_init__(self) -> None:
        _check("rewardWaitTime", parse_seconds, self.reward_wait_time)
        _check("modelExportFrequency", parse_seconds, self.model_export_frequency)
        _check("autoOptimizationFrequency", parse_seconds, self.auto_optimization_frequency)
        _check("autoOptimizationStartDate", parse_date, self.auto_optimization_start_date)
        if self.crossings != ALL_CROSSINGS:
            from windvane.features.crossings import parse_crossings

            parse_crossings(self.crossings)
        if not self.finds_half_life:
            _check("halfLife", _parse_positive_half_life, self.half_life)

    @classmethod
    def from_json(cls, text: bytes | str) -> Self:
        """LoopSettings as a log keeps them."""
        return cls.from_names(msgspec.json.decode(text))

    @classmethod
    def from_names(cls, values: Mapping[str, object]) -> Self:
        """LoopSettings by wire name, each checked; the others have their defaults."""
        try:
            return msgspec.convert(values, cls)
        except msgspec.ValidationError as reason:
            raise SettingError(f"settings: {_describe_error(values, reason)}") from None

    def to_json(self) -> str:
        return msgspec.json.encode(self).decode()

    def merge(self, changes: Mapping[str, object]) -> "LoopSettings":
        """These settings with changes by wire name; null and unknown names change nothing."""
        old = msgspec.to_builtins(self)
        merged = old | {
            name: value for name, value in changes.items() if name in old and value is not None
        }
        for name in (setting.name for setting in SETTINGS if setting.fixed):
            if merged[name] != old[name]:
                message = f"{name} is fixed when a loop is created"
                raise ServiceError("settings", f"{message}: the belief depends on it", name)
        try:
            return self.from_names(merged)
        except SettingError as reason:
            raise ServiceError("settings", str(reason)) from None

    @property
    def reward_wait_us(self) -> int:
        return round(parse_seconds(self.reward_wait_time) * MICROSECONDS_PER_SECOND)

    @property
    def sums_rewards(self) -> bool:
        """Whether several rewards of one decision add up."""
        return self.reward_aggregation == "sum"

    @property
    def finds_half_life(self) -> bool:
        return self.half_life.strip().lower() == AUTO

    def build_learner(self) -> "Learner":
        """A learner of these settings that has learned nothing."""
        from windvane.learner import Learner

        return Learner(
            half_life=self.half_life,
            exploration=self.exploration_percentage,
            crossings=self.crossings,
            array_size=self.array_size,
            seed=self.seed,
        )


def _check(name: str, parse: Callable[[str], object], text: str) -> None:
    """Refuse a text that cannot be parsed, and say of which setting it is."""
    try:
        parse(text)
    except SettingError as reason:
        sentence = str(reason).removeprefix("settings: ")
        raise SettingError(f"settings: {name}: {sentence}") from None


def _parse_positive_half_life(text: str) -> None:
    half_life = parse_half_life(text)
    if half_life is not None and not 0.0 < half_life.length < math.inf:
        raise SettingError(f"settings: {text[:MAX_SHOWN_CHARACTERS]!r} must be above 0 and finite")


def _describe_error(values: Mapping[str, object], error: msgspec.ValidationError) -> str:
    """Say why values by wire name are no settings."""
    if isinstance(error.__cause__, SettingError):  # of `__post_init__`
        return str(error.__cause__).removeprefix("settings: ")
    place = find_invalid_place(error)
    for setting in SETTINGS:
        if setting.name == place:
            article = ARTICLES.get(setting.kind.split()[0], "")
            shown = repr(values[place])[:MAX_SHOWN_CHARACTERS]
            return f"{place} must be {article}{setting.kind}, got {shown}"
    return describe_invalid_value(error)


def _describe_values(field: msgspec.structs.FieldInfo) -> str:
    """The values that a setting takes, such as "number in [0, 1]"."""
    type_, meta = get_args(field.type)
    if meta.extra["kind"]:
        return str(meta.extra["kind"])
    if get_origin(type_) is Literal:
        return " or ".join(get_args(type_))
    if type_ is bool:
        return "true or false"
    word = "integer" if type_ is int else "number"
    return f"{word} in [{meta.ge:.16g}, {meta.le:.16g}]"


def check_loop_name(text: str) -> str:
    """The name of a loop, if it can be part of a URL."""
    if not LOOP_NAME.fullmatch(text):
        raise ServiceError(
            "loop name",
            "settings: a loop's name must have 1 to 64 of A-Z a-z 0-9 . _ - and must not start "
            f"with . or -, got {text[:80]!r}",
            "name",
        )
    return text


class Setting(NamedTuple):
    """One setting as its field describes it."""

    field: str  # of `LoopSettings`
    name: str  # on the wire
    flag: str  # of `windvane loop create`
    type: type[str] | type[int] | type[float] | type[bool]
    kind: str  # the values that it takes, in words
    default: str | int | float | bool
    meaning: str
    fixed: bool  # whether it cannot change after a loop was created


def _describe_field(field: msgspec.structs.FieldInfo) -> Setting:
    type_, meta = get_args(field.type)
    return Setting(
        field=field.name,
        name=field.encode_name,
        flag=meta.extra["flag"],
        type=str if get_origin(type_) is Literal else type_,
        kind=_describe_values(field),
        default=field.default,
        meaning=meta.extra["meaning"],
        fixed=meta.extra["fixed"],
    )


SETTINGS = tuple(map(_describe_field, msgspec.structs.fields(LoopSettings)))


def format_value(value: object) -> str:
    """A value of a setting as the wire has it, without the quotes of a text."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def document_settings() -> list[dict[str, str]]:
    """A row of documentation for each setting: name, flag, type, default, meaning."""
    return [
        {
            "name": setting.name,
            "flag": setting.flag,
            "type": setting.kind,
            "default": format_value(setting.default),
            "meaning": setting.meaning + (" Fixed at creation." if setting.fixed else ""),
        }
        for setting in SETTINGS
    ]
