"""A provider of OpenFeature: a string flag is a choice of a loop, a tracked event its reward."""

import asyncio
import logging
import threading
from collections.abc import Mapping, Sequence
from typing import NoReturn

from openfeature import exception
from openfeature.evaluation_context import EvaluationContext
from openfeature.flag_evaluation import FlagMetadata, FlagResolutionDetails, Reason
from openfeature.provider import AbstractProvider, Metadata
from openfeature.track import TrackingEventDetails

from windvane.client import Client, ClientError, RequestError
from windvane.errors import FeatureError, SettingError, WindvaneError
from windvane.features.request_reader import Features
from windvane.validation import of_kind

KEPT_EVENTS = 100_000  # the newest ones, whose targeting key is enough to reward them
EVENT_ID = "event_id"  # in the metadata of a flag, and in the details of a tracked event
logger = logging.getLogger(__name__)


class WindvaneProvider(AbstractProvider):
    """Resolves string flags by the loops of a service.

    `flags` has the actions of each flag, whose loop has the same name. The attributes of the
    evaluation context are the features. Its targeting key is no feature: it says whose flag it was
    when a reward is tracked. `rewards` says which flag a tracked event rewards; the event with the
    name of a flag always does.

    >>> from windvane.client import Client
    >>> from windvane.integrations.openfeature import WindvaneProvider
    >>> provider = WindvaneProvider(Client(), {"banner": ["news", "match"]}, {"click": "banner"})
    >>> provider.get_metadata().name
    'windvane'
    """

    def __init__(
        self,
        client: Client,
        flags: Mapping[str, Sequence[str | Features]],
        rewards: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__()
        self._client = of_kind("WindvaneProvider", "client", client, Client)
        self._flags = {name: list(actions) for name, actions in flags.items()}
        self._rewards = {**{name: name for name in flags}, **(rewards or {})}
        if unknown := {*self._rewards.values()} - {*flags}:
            raise SettingError(f"WindvaneProvider: there is no flag {min(unknown)!r} to reward")
        self._events: dict[tuple[str, str], str] = {}  # ids, by flag and targeting key
        self._lock = threading.Lock()  # of the events

    def get_metadata(self) -> Metadata:
        """Return the name of this provider."""
        return Metadata(name="windvane")

    def shutdown(self) -> None:
        """Close the connections of the client."""
        self._client.close()

    def resolve_string_details(
        self,
        flag_key: str,
        default_value: str,
        evaluation_context: EvaluationContext | None = None,
    ) -> FlagResolutionDetails[str]:
        """Choose an action; the metadata has the event id and the probability."""
        context = evaluation_context or EvaluationContext()
        if flag_key not in self._flags:
            raise exception.FlagNotFoundError(f"there is no flag {flag_key!r}")
        place = flag_key, context.targeting_key or ""
        with self._lock:
            self._events.pop(place, None)  # it is not rewarded for what is shown now
        try:
            features, actions = dict(context.attributes), self._flags[flag_key]
            decision = self._client.rank(features, actions, loop=flag_key)
        except FeatureError as error:
            raise exception.InvalidContextError(str(error)) from None
        except WindvaneError as error:
            if isinstance(error, RequestError) and error.status == 404:
                raise exception.FlagNotFoundError(str(error)) from None
            raise exception.GeneralError(str(error)) from None
        if decision.is_local:  # the caller's default stands in, and no reward is learned
            raise exception.GeneralError(f"no server answered in {self._client.rank_timeout:g} s")
        with self._lock:
            if context.targeting_key:
                self._events[place] = decision.event_id
            if len(self._events) > KEPT_EVENTS:
                del self._events[next(iter(self._events))]  # the oldest
        metadata: FlagMetadata = {
            EVENT_ID: decision.event_id,
            "probability": decision.probability,
            "degraded": decision.degraded,
        }
        id_ = decision.action
        return FlagResolutionDetails(id_, reason=Reason.SPLIT, variant=id_, flag_metadata=metadata)

    async def resolve_string_details_async(
        self,
        flag_key: str,
        default_value: str,
        evaluation_context: EvaluationContext | None = None,
    ) -> FlagResolutionDetails[str]:
        """Choose an action while the event loop goes on."""
        return await asyncio.to_thread(
            self.resolve_string_details, flag_key, default_value, evaluation_context
        )

    def track(
        self,
        tracking_event_name: str,
        evaluation_context: EvaluationContext | None = None,
        tracking_event_details: TrackingEventDetails | None = None,
    ) -> None:
        """Reward the decision that the details name, or the last one of the targeting key.

        An event without a value is a reward of 1. Events that reward no flag are ignored. A reward
        that no server takes is logged and not sent again.
        """
        flag = self._rewards.get(tracking_event_name)
        if flag is None:
            return
        details = tracking_event_details or TrackingEventDetails()
        subject = (evaluation_context or EvaluationContext()).targeting_key
        event = details.attributes.get(EVENT_ID) or self._events.get((flag, subject or ""))
        if event is None:
            logger.warning("%s: no decision of the flag %s is known", tracking_event_name, flag)
            return
        value = 1.0 if details.value is None else details.value
        try:
            self._client.reward(str(event), value, loop=flag)
        except ClientError as error:
            logger.warning("%s", error)

    def _refuse(
        self, flag_key: str, default_value: object, evaluation_context: object = None
    ) -> NoReturn:
        raise exception.TypeMismatchError(f"the flag {flag_key!r} is a string: the id of an action")

    resolve_boolean_details = _refuse
    resolve_integer_details = _refuse
    resolve_float_details = _refuse
    resolve_object_details = _refuse
