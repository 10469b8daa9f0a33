"""What a client returns, the rewards that it sends, and its errors.

ClientError
├── RequestError   a server refuses a request: it is wrong, and a repetition would be too
└── DeliveryError  no server took a request in time
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Literal
from uuid import uuid4

import msgspec

from windvane.errors import WindvaneError

RewardStatus = Literal[
    "learned", "summed", "extra", "held", "late", "orphan", "duplicate", "unlearned",
    "refused", "invalid", "not sent",
]  # fmt: skip


def make_id() -> str:
    """A random id of 32 letters, of an event or a request."""
    return uuid4().hex


class RankedDecision(msgspec.Struct, frozen=True, kw_only=True):
    """The chosen action, and the probability of every action.

    If `is_local`, no server answered in time, and the client took the first action that is not
    excluded. Such a decision must not be rewarded, and `reward` does not send its reward.

    >>> from windvane.client import RankedDecision
    >>> decision = RankedDecision(
    ...     action="news", index=0, probabilities=(1.0, 0.0), event_id="visit-1"
    ... )
    >>> decision.probability
    1.0
    """

    action: str  # the id of the chosen action
    index: int  # its place among the actions that were given
    probabilities: tuple[float, ...]  # of each action; 0 for an excluded action
    event_id: str
    loop: str = "default"
    degraded: bool = False  # whether nothing is learned of this decision
    is_local: bool = False

    @property
    def probability(self) -> float:
        """The probability of the chosen action."""
        return self.probabilities[self.index]


class RankedSlot(msgspec.Struct, frozen=True, rename="camel"):
    """The action of a slot, and its probability given the slots before."""

    id: str
    action: str = msgspec.field(name="rewardActionId")
    probability: Annotated[float, msgspec.Meta(ge=0.0, le=1.0)]


class RankedPage(msgspec.Struct, frozen=True, kw_only=True):
    """What each slot of a page shows.

    If `is_local`, no server answered in time, and the slots show their baselines. Such a page must
    not be rewarded, and `reward` does not send its rewards.

    >>> from windvane.client import RankedPage, RankedSlot
    >>> page = RankedPage(slots=(RankedSlot("top", "news", 0.5),), event_id="visit-1")
    >>> page.actions
    {'top': 'news'}
    """

    slots: tuple[RankedSlot, ...]
    event_id: str
    loop: str = "default"
    degraded: bool = False  # whether nothing is learned of this page
    is_local: bool = False

    @property
    def actions(self) -> dict[str, str]:
        """The id of the action of each slot, by the id of the slot."""
        return {slot.id: slot.action for slot in self.slots}


class RewardRequest(msgspec.Struct, frozen=True):
    """A reward to send; a repetition with the same request id counts once.

    >>> from windvane.client import RewardRequest
    >>> RewardRequest("visit-1", 1.0).request_id == RewardRequest("visit-1", 1.0).request_id
    False
    """

    event_id: str
    value: float
    request_id: str = msgspec.field(default_factory=make_id)
    loop: str | None = None  # None: that of the client
    slot: str | None = None  # of a page; None: the reward of all there is


class RewardOutcome(msgspec.Struct, frozen=True, rename="camel"):
    """What became of a reward.

    | status | |
    |---|---|
    | learned | the first reward of its decision |
    | summed | added to the first one |
    | extra | not the first, and only the first counts |
    | duplicate | a repetition of a reward with the same request id |
    | held | the decision is not activated yet |
    | orphan | the event has no decision yet |
    | late | after the wait time |
    | unlearned | nothing is learned of this decision |
    | refused | the event has too many rewards; `reason` says how many |
    | invalid | `reason` says why |
    | not sent | the client made the decision itself, because no server answered |

    >>> from windvane.client import RewardOutcome
    >>> RewardOutcome("visit-1", "learned").status
    'learned'
    """

    event_id: str | None
    status: RewardStatus
    reason: str | None = None


class RankedAction(msgspec.Struct, frozen=True):
    """An action and its probability."""

    id: str
    probability: Annotated[float, msgspec.Meta(ge=0.0, le=1.0)]


class LoggedSlot(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a slot of a page showed, and what was learned of it."""

    id: str
    ranking: tuple[RankedAction, ...]  # given the slots before
    reward_action_id: str
    baseline_action: str
    reward: float | None  # None: nothing was learned, or only of the page as a whole
    is_default_reward: bool


class LoggedDecision(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A decision of the log, and what is known of its reward by now.

    >>> from windvane.client import LoggedDecision
    >>> LoggedDecision.__struct_fields__[:3]
    ('id', 'event_id', 'time')
    """

    id: int
    event_id: str
    time: datetime
    mode: str
    ranking: tuple[RankedAction, ...]
    reward_action_id: str
    degraded: bool
    is_activated: bool
    reward: float | None  # the sum of what was learned so far; None: nothing
    is_default_reward: bool  # whether no reward came in time
    is_final: bool  # whether the reward can no longer change
    slots: tuple[LoggedSlot, ...] | None = None  # of a page, whose first slot `ranking` is about

    @property
    def action(self) -> str:
        """The id of the chosen action."""
        return self.reward_action_id

    @property
    def actions(self) -> tuple[str, ...]:
        """The ids of the offered actions."""
        return tuple(each.id for each in self.ranking)

    @property
    def probabilities(self) -> tuple[float, ...]:
        """The probability of each action."""
        return tuple(each.probability for each in self.ranking)


class DecisionPage(msgspec.Struct, frozen=True):
    """Decisions in the order of their ids, and the id after which the next page begins.

    >>> from windvane.client import DecisionPage
    >>> DecisionPage(decisions=(), after=7).after
    7
    """

    decisions: tuple[LoggedDecision, ...]
    after: Annotated[int, msgspec.Meta(le=2**63 - 1)]


class Health(msgspec.Struct, frozen=True):
    """ok, or degraded; only a key of the role read gets the reason.

    >>> from windvane.client import Health
    >>> Health("ok").status
    'ok'
    """

    status: str
    reason: str | None = None


class ClientError(WindvaneError):
    """The base class of the errors of a client.

    >>> from windvane.client import ClientError, DeliveryError
    >>> issubclass(DeliveryError, ClientError)
    True
    """


class RequestError(ClientError):
    """A server refuses a request; `status` and `code` say why.

    >>> from windvane.client import RequestError
    >>> RequestError("rank: there is no loop 'home'", 404, "ResourceNotFound").status
    404
    """

    def __init__(self, message: str, status: int, code: str = "", target: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.target = target
        self.undelivered: tuple[RewardRequest, ...] = ()  # rewards that no server has acknowledged

    def __reduce__(self) -> tuple[type["RequestError"], tuple[str, int, str, str]]:
        return RequestError, (str(self), self.status, self.code, self.target)


class DeliveryError(ClientError):
    """No server took a request in time.

    `undelivered` has the rewards that no server has acknowledged. They keep their request ids, so
    that `rewards` can send them again later, and each of them counts once.

    >>> from windvane.client import DeliveryError, RewardRequest
    >>> request = RewardRequest("visit-1", 1.0)
    >>> DeliveryError("rewards: no server answered in 10 s", [request]).undelivered
    (RewardRequest(event_id='visit-1', value=1.0, request_id=..., loop=None, slot=None),)
    """

    def __init__(self, message: str, undelivered: Sequence[RewardRequest] = ()) -> None:
        super().__init__(message)
        self.undelivered = tuple(undelivered)

    def __reduce__(self) -> tuple[type["DeliveryError"], tuple[str, tuple[RewardRequest, ...]]]:
        return DeliveryError, (str(self), self.undelivered)
