"""Requests and answers as clients of the retired service speak them, and one shape of errors."""

from datetime import UTC, datetime
from typing import Annotated, Any

import msgspec

from windvane.service.clock import MICROSECONDS_PER_SECOND

JSON = "application/json; charset=utf-8"
NOT_BUILT = {
    "multislot": "multi-slot ranking is not offered; rank each slot as a loop of its own",
    "evaluations": "offline evaluations are not offered; export the log with its propensities",
    "applyFromEvaluation": "offline evaluations are not offered",
}
MOST_ACTIONS = 10_000
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
Objects = list[dict[str, Any]]


class Action(msgspec.Struct, frozen=True):
    """What can be chosen."""

    id: Name
    features: Objects


Actions = Annotated[list[Action], msgspec.Meta(min_length=1, max_length=MOST_ACTIONS)]


class Rank(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a rank says beside its actions."""

    context_features: Objects = []
    excluded_actions: list[str] = []
    event_id: Name | None = None
    defer_activation: bool = False


class RankRequest(Rank, frozen=True, kw_only=True):
    """Which action, given what is known?"""

    actions: Actions


decode_rank_request = msgspec.json.Decoder(RankRequest).decode


class RankLine(Rank, frozen=True, kw_only=True):
    """The same, with its actions left as they came."""

    actions: msgspec.Raw


class Ranked(msgspec.Struct, frozen=True):
    """An action and how likely it was to be chosen."""

    id: str
    probability: float


class RankResponse(msgspec.Struct, frozen=True, rename="camel"):
    """The action to take is `rewardActionId`."""

    ranking: list[Ranked]
    event_id: str
    reward_action_id: str
    degraded: bool = False


class RewardRequest(msgspec.Struct, frozen=True):
    """What the action earned."""

    value: Annotated[float, msgspec.Meta(ge=-1.0, le=1.0)]


class PolicyConfiguration(msgspec.Struct, frozen=True):
    """The policy that follows from a loop's settings."""

    name: str
    arguments: str


class ModelProperties(msgspec.Struct, frozen=True, rename="camel"):
    """Since when a loop is there, and when it was last asked."""

    creation_time: datetime
    last_modified_time: datetime


class DateRange(msgspec.Struct, frozen=True, rename={"since": "from", "until": "to"}):
    """The times of the first and the last decision of a log."""

    since: datetime
    until: datetime


class LogsProperties(msgspec.Struct, frozen=True, rename="camel"):
    """How far a log reaches; null where it is empty."""

    date_range: DateRange | None


def date(at: int) -> datetime:
    """Microseconds since 1970 as a time of day."""
    return datetime.fromtimestamp(at / MICROSECONDS_PER_SECOND, UTC)


class WireError(Exception):
    """What is answered in place of a result."""

    def __init__(self, status: int, code: str, message: str, target: str | None = None) -> None:
        super().__init__(message)
        self.status, self.code, self.message, self.target = status, code, message, target

    def body(self) -> bytes:
        """The envelope of every error."""
        error = {"code": self.code, "message": self.message}
        if self.target:
            error["target"] = self.target
        return msgspec.json.encode({"error": error})


def bad(code: str, message: str, target: str | None = None) -> WireError:
    """A request that cannot be answered, and why."""
    return WireError(400, code, message, target)
