"""A loop's settings: rewards, memory, exploration, features and log.

Each setting is one field of `Settings`. From the field follow the name and the check on the wire,
the flag of `windvane loop create`, the row of the documentation and the loop's model. A log keeps
settings as JSON. A change of settings keeps the belief: the new memory and exploration continue
with the same sums.

The belief is diagonal (`windvane.Learner`) or full (`windvane.Policy`, as release 0.1.0 has it).
The settings of 0.1.0 name no belief, because theirs is always full.
"""

import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, get_args

import msgspec

from windvane.beliefs.bank.settings import (
    AUTO,
    EXPLORATION,
    MAX_ARRAY_SIZE,
    parse_half_life,
    parse_seconds,
)
from windvane.errors import SettingError
from windvane.features.crossings import ALL_CROSSINGS
from windvane.service.clock import MICROSECONDS_PER_SECOND
from windvane.service.dates import parse_date
from windvane.service.errors import LoopNameError, LoopSettingsError
from windvane.service.invalid_values import describe_invalid_value, find_invalid_place
from windvane.service.loops.setting_values import describe_invalid_setting

# Imported late, because the command line reads the settings without them: NumPy takes long to load.
if TYPE_CHECKING:
    from windvane.exploration import Exploration
    from windvane.learner import Learner
    from windvane.memory import Memory
    from windvane.policy import Policy

LOOP_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}", re.ASCII)
MAX_NEW_DIM = 1024  # of a new loop: a lesson takes d² steps, and every d lessons one takes d³
MAX_DIM = 4096  # of a loop that was created by version 0.1.0
Mode = Literal["Online", "Apprentice", "LoggingOnly"]
Belief = Literal["diagonal", "full"]
NAMES_OF_FULL = ("dim", "ridge", "noise", "width")  # settings that only a full belief has
DEFAULTS_OF_FULL = {"halfLife": "7 days", "explorationPercentage": 0.1}  # those of 0.1.0


def _setting(flag: str, meaning: str, kind: str = "", fixed: bool = False, **bounds: Any) -> object:
    """What a field says of its setting; `kind` names a type that the field's own type is not."""
    extra = {"flag": flag, "meaning": meaning, "kind": kind, "fixed": fixed}
    return msgspec.Meta(extra=extra, **bounds)


class Settings(
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
    exploration_percentage: Annotated[
        float,
        _setting(
            "--exploration",
            "Share of decisions in which every action has the same probability. A larger share "
            "finds changes sooner and makes estimates of other rules exacter; it costs this share "
            "of the gain. Default of a full belief: 0.1.",
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
            'Age at which a reward counts half. "auto" keeps seven half-lives, from an hour to '
            "never, side by side and follows the one that predicts best. A fixed one is written as "
            '"7 days", "500 rounds" or "never". Default of a full belief, which has no "auto": '
            '"7 days".',
            "auto, duration, rounds or never",
        ),
    ] = AUTO
    dim: Annotated[
        int,
        _setting(
            "--dim",
            "Of a full belief: dimension of the hashed features.",
            f"integer in [2, {MAX_NEW_DIM}]",
            fixed=True,
            ge=2,
            le=MAX_DIM,
            extra_json_schema={"maximum": MAX_NEW_DIM},
        ),
    ] = 128
    ridge: Annotated[
        float,
        _setting(
            "--ridge",
            "Of a full belief: ridge of the regression; a larger one shrinks the estimate more.",
            fixed=True,
            ge=1e-3,
            le=1e6,
        ),
    ] = 1.0
    noise: Annotated[
        float,
        _setting(
            "--noise",
            "Of a full belief: standard deviation of a reward's noise. A diagonal belief "
            "estimates it.",
            gt=0.0,
            le=1000.0,
        ),
    ] = 0.5
    width: Annotated[
        float,
        _setting(
            "--width",
            "Of a full belief: scale of exploration, as a multiple of the confidence radius; 0 "
            "explores only by the exploration percentage.",
            ge=0.0,
            le=1000.0,
        ),
    ] = 0.4
    seed: Annotated[
        int,
        _setting("--seed", "Seed of the random choices.", fixed=True, ge=0, le=2**53),
    ] = 0
    belief: Annotated[
        Belief,
        _setting(
            "--belief",
            "What is kept of the rewards: diagonal keeps a mean and a precision for every feature "
            "and crossing, however many there are; full keeps all correlations between dim "
            "numbers, as release 0.1.0 does. Default: full if dim, ridge, noise or width is given, "
            "otherwise diagonal.",
            fixed=True,
        ),
    ] = "diagonal"
    crossings: Annotated[
        str,
        _setting(
            "--crossings",
            "Of a diagonal belief: which namespaces of the context are crossed with which of the "
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
            "Of a diagonal belief: arrays of more numbers, such as long embeddings, are projected "
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
            "and one that is surely better replaces the present ones.",
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
            _check("halfLife", parse_half_life, self.half_life)
            self.build_memory()  # refuses 0 rounds
        elif self.belief == "full":
            raise SettingError("settings: halfLife must not be auto if the belief is full")

    @classmethod
    def from_json(cls, text: bytes | str) -> Self:
        """Settings as a log keeps them; those of release 0.1.0 name no belief, it is full."""
        stored = msgspec.json.decode(text)
        return cls.from_names({"belief": "full"} | stored)

    @classmethod
    def from_names(cls, values: Mapping[str, object]) -> Self:
        """Settings by wire name, each checked; the others have the defaults of the belief.

        The belief is full if `values` has one of its own settings and no belief.
        """
        is_full = "belief" not in values and any(name in values for name in NAMES_OF_FULL)
        complete = ({"belief": "full"} if is_full else {}) | dict(values)
        if complete.get("belief") == "full":
            complete = DEFAULTS_OF_FULL | complete
        return cls._convert(complete)

    @classmethod
    def _convert(cls, values: Mapping[str, object]) -> Self:
        try:
            return msgspec.convert(values, cls)
        except msgspec.ValidationError as reason:
            raise SettingError(f"settings: {_describe_error(values, reason)}") from None

    def to_json(self) -> str:
        """These settings as JSON."""
        return msgspec.json.encode(self).decode()

    def merge(self, changes: Mapping[str, object]) -> "Settings":
        """These settings with changes by wire name; null and unknown names change nothing."""
        old = msgspec.to_builtins(self)
        merged = old | {
            name: value for name, value in changes.items() if name in old and value is not None
        }
        for name in list_fixed_names():
            if merged[name] != old[name]:
                message = f"{name} is fixed when a loop is created"
                raise LoopSettingsError(f"{message}: the belief depends on it", name)
        try:
            return self._convert(merged)
        except SettingError as reason:
            raise LoopSettingsError(str(reason)) from None

    @property
    def reward_wait_us(self) -> int:
        """Microseconds for which a decision waits for its reward."""
        return round(parse_seconds(self.reward_wait_time) * MICROSECONDS_PER_SECOND)

    @property
    def sums_rewards(self) -> bool:
        """Whether several rewards of one decision add up."""
        return self.reward_aggregation == "sum"

    @property
    def ages_in_rounds(self) -> bool:
        """Whether observations age by rounds instead of by time."""
        if self.finds_half_life:
            return False
        half_life = parse_half_life(self.half_life)
        return half_life is not None and half_life.in_rounds

    @property
    def finds_half_life(self) -> bool:
        """Whether the loop finds its half-life by itself."""
        return self.half_life.strip().lower() == AUTO

    def build_memory(self) -> "Memory":
        """The memory: a half-life in rounds or in seconds, or none."""
        from windvane import memory

        half_life = parse_half_life(self.half_life)
        return memory.keep() if half_life is None else memory.half_life(half_life.length)

    def build_exploration(self) -> "Exploration":
        """The exploration: randomized confidence bounds, the radius scaled by a half-normal draw.

        All actions of a round share one draw.
        """
        from windvane import exploration, laws

        radius = laws.confidence(0.01, self.noise)
        return exploration.randomized(laws.half_normal(self.width * radius))

    def build_policy(self) -> "Policy":
        """A policy of these settings, for a full belief, that has learned nothing."""
        from windvane.policy import Policy

        return Policy(
            self.dim,
            self.build_memory(),
            self.build_exploration(),
            self.ridge,
            seed=self.seed,
            floor=self.exploration_percentage,
        )

    def build_learner(self) -> "Learner":
        """A learner of these settings, for a diagonal belief, that has learned nothing."""
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


def _describe_error(values: Mapping[str, object], error: msgspec.ValidationError) -> str:
    """Say why values by wire name are no settings."""
    if isinstance(error.__cause__, SettingError):  # of `__post_init__`
        return str(error.__cause__).removeprefix("settings: ")
    place = find_invalid_place(error)
    for field in msgspec.structs.fields(Settings):
        if field.encode_name == place:
            return describe_invalid_setting(field, values[place])
    return describe_invalid_value(error)


@cache
def list_fixed_names() -> tuple[str, ...]:
    """The wire names of the settings that cannot change after a loop was created."""
    fields = msgspec.structs.fields(Settings)
    return tuple(field.encode_name for field in fields if get_args(field.type)[1].extra["fixed"])


def check_new_settings(settings: Settings) -> Settings:
    """The settings of a new loop, if it can be served at a bearable speed."""
    if settings.dim > MAX_NEW_DIM:
        message = f"settings: dim must be at most {MAX_NEW_DIM} in a new loop, got {settings.dim}"
        raise LoopSettingsError(f"{message}: learning would take too long", "dim")
    return settings


def check_loop_name(text: str) -> str:
    """The name of a loop, if it can be part of a URL."""
    if not LOOP_NAME.fullmatch(text):
        raise LoopNameError(
            "settings: a loop's name must have 1 to 64 of A-Z a-z 0-9 . _ - and must not start "
            f"with . or -, got {text[:80]!r}",
            "name",
        )
    return text
