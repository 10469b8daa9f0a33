"""Requests and responses of the wire API, which clients of Azure AI Personalizer speak."""

from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec

MAX_ACTIONS = 10_000
MAX_SLOTS = 50  # of a page
MAX_BATCH_REWARDS = 1000
MAX_IMPORTED_DECISIONS = 100  # of a request: the service stops for some milliseconds
MAX_ARGUMENTS_LENGTH = 1024  # of the text of a policy
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
Objects = list[dict[str, Any]]
Reward = Annotated[float, msgspec.Meta(ge=-1.0, le=1.0)]


class Action(msgspec.Struct, frozen=True):
    """An action that can be chosen, with its features."""

    id: Name
    features: Objects


Actions = Annotated[list[Action], msgspec.Meta(min_length=1, max_length=MAX_ACTIONS)]


class EventOptions(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What every rank request may have beside its actions."""

    context_features: Objects = []
    event_id: Name | None = None
    defer_activation: bool = False


class RankOptions(EventOptions, frozen=True, kw_only=True, rename="camel"):
    """All of a rank request except its actions."""

    excluded_actions: list[str] = []


class RankRequest(RankOptions, frozen=True, kw_only=True):
    """A request to choose one of the actions."""

    actions: Actions


decode_options = msgspec.json.Decoder(RankOptions).decode
decode_rank_request = msgspec.json.Decoder(RankRequest).decode


class RawRankRequest(RankOptions, frozen=True, kw_only=True):
    """A rank request whose actions are left as the JSON that came."""

    actions: msgspec.Raw


class Ranked(msgspec.Struct, frozen=True):
    """An action and the probability with which it was chosen."""

    id: str
    probability: float


class RankResponse(msgspec.Struct, frozen=True, rename="camel"):
    """The probabilities of all actions; the action to take is `rewardActionId`."""

    ranking: list[Ranked]
    event_id: str
    reward_action_id: str
    degraded: bool = False


class SlotRequest(msgspec.Struct, frozen=True, rename="camel"):
    """A slot of a page to fill, and the action that the client would show there."""

    id: Name
    baseline_action: Name
    features: Objects = []
    excluded_actions: list[str] = []


Slots = Annotated[list[SlotRequest], msgspec.Meta(min_length=1, max_length=MAX_SLOTS)]


class PageOptions(EventOptions, frozen=True, kw_only=True, rename="camel"):
    """All of a rank request for the slots of a page except its actions."""

    slots: Slots


class PageRequest(PageOptions, frozen=True, kw_only=True):
    """A request to choose an action for each slot of a page; no action fills two."""

    actions: Actions


class RawPageRequest(EventOptions, frozen=True, kw_only=True):
    """A page to fill whose actions and slots are left as the JSON that came."""

    actions: msgspec.Raw
    slots: msgspec.Raw


class ShownAction(msgspec.Struct, frozen=True, rename="camel"):
    """The action of a slot, and its probability given the slots before."""

    id: str
    reward_action_id: str
    probability: float


class PageResponse(msgspec.Struct, frozen=True, rename="camel"):
    """What each slot of a page shows, in the order of the request."""

    slots: list[ShownAction]
    event_id: str
    degraded: bool = False


class FeatureScore(msgspec.Struct, frozen=True):
    """What a feature, or a crossing of two, adds to the estimate of an action."""

    name: str
    score: float


class ActionExplanation(msgspec.Struct, frozen=True):
    """What the features add to the estimate of an action, the largest part first."""

    id: str
    features: list[FeatureScore]


class ExplainedRankResponse(RankResponse, frozen=True, rename="camel"):
    """A response of a loop whose setting isInferenceExplainabilityEnabled is true."""

    inference_explanation: list[ActionExplanation] = []


class RewardRequest(msgspec.Struct, frozen=True):
    """The reward of a decision."""

    value: Reward


class SlotReward(msgspec.Struct, frozen=True, rename="camel"):
    """The reward of a slot."""

    slot_id: Name
    value: Reward


SlotRewards = Annotated[list[SlotReward], msgspec.Meta(min_length=1, max_length=MAX_SLOTS)]


class PageRewardRequest(msgspec.Struct, frozen=True):
    """The rewards of some slots of a page; those of others may come later."""

    reward: SlotRewards


class EitherRewardRequest(msgspec.Struct, frozen=True):
    """The reward of a decision, or those of slots: clients send both to the same paths."""

    value: Reward | None = None
    reward: SlotRewards | None = None


class RewardItem(msgspec.Struct, frozen=True, rename="camel"):
    """One reward of many."""

    event_id: Name
    value: Reward
    request_id: Name | None = None
    slot_id: Name | None = None  # of a page


class RewardBatchRequest(msgspec.Struct, frozen=True):
    """Many rewards; each is read on its own, so that a bad one does not spoil the others."""

    rewards: Annotated[
        list[msgspec.Raw],
        msgspec.Meta(
            min_length=1,
            max_length=MAX_BATCH_REWARDS,
            description="Objects with eventId, value in [-1, 1] optional requestId, slotId.",
        ),
    ]


RewardStatus = Literal[
    "learned", "summed", "extra", "held", "late", "orphan", "duplicate", "unlearned",
    "refused", "invalid",
]  # fmt: skip


class RewardOutcome(msgspec.Struct, frozen=True, rename="camel"):
    """What became of one reward of many."""

    event_id: str | None  # null: the entry is invalid
    status: RewardStatus
    reason: str | None = None  # why the reward is refused or invalid


class RewardBatchResponse(msgspec.Struct, frozen=True):
    """What became of each reward, in the order of the request."""

    rewards: list[RewardOutcome]


class ImportedItem(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A decision that another system made, and its reward; probabilities may be unknown."""

    event_id: Name
    time: Annotated[datetime, msgspec.Meta(tz=True)]
    context_features: Objects = []
    actions: Actions
    excluded_actions: list[str] = []
    reward_action_id: Name
    probabilities: list[float | None] = []  # of all actions, in their order; empty: none is known
    reward: Reward


class ImportRequest(msgspec.Struct, frozen=True):
    """Decisions of another system, in the order of time."""

    decisions: Annotated[
        list[ImportedItem], msgspec.Meta(min_length=1, max_length=MAX_IMPORTED_DECISIONS)
    ]


class ImportResponse(msgspec.Struct, frozen=True):
    """How many decisions were imported, and how many the loop had already."""

    imported: int
    known: int


class StreamedSlot(msgspec.Struct, frozen=True, rename="camel"):
    """What a slot of a page showed, given the slots before it, and what was learned of it."""

    id: str
    ranking: list[Ranked]
    reward_action_id: str
    baseline_action: str
    reward: float | None  # null: nothing was learned, or only of the page as a whole
    is_default_reward: bool


class StreamedDecision(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A decision of the log, and what is known of its reward by now."""

    id: int
    event_id: str
    time: datetime
    mode: str
    ranking: list[Ranked]
    reward_action_id: str
    degraded: bool
    is_activated: bool
    reward: float | None  # the sum of what was learned so far; null: nothing
    is_default_reward: bool  # whether no reward came in time
    is_final: bool  # whether the reward can no longer change
    slots: list[StreamedSlot] | msgspec.UnsetType = msgspec.UNSET  # of a page: all of them


class DecisionPage(msgspec.Struct, frozen=True):
    """Decisions in the order of their ids, and the id after which the next page begins."""

    decisions: list[StreamedDecision]
    after: int


class PolicyConfiguration(msgspec.Struct, frozen=True):
    """The policy that follows from a loop's settings."""

    name: Name
    arguments: Annotated[str, msgspec.Meta(max_length=MAX_ARGUMENTS_LENGTH)]


class PolicyAnswer(PolicyConfiguration, frozen=True, omit_defaults=True):
    """The policy of a loop, and what of the text that was put has no counterpart."""

    warnings: list[str] = []


class ModelProperties(msgspec.Struct, frozen=True, rename="camel"):
    """When a loop was created, and when it made its last decision."""

    creation_time: datetime
    last_modified_time: datetime


class DateRange(msgspec.Struct, frozen=True, rename={"since": "from", "until": "to"}):
    """The times of the first and the last decision of a log."""

    since: datetime
    until: datetime


class LogsProperties(msgspec.Struct, frozen=True, rename="camel"):
    """The times that a log covers; null if the log is empty."""

    date_range: DateRange | None
