"""The operations of a client, without any network: what to send, and what the answers mean.

An operation is a generator that yields calls and receives their decoded answers. A call that no
server takes in time raises a DeliveryError inside the operation. `Client` and `AsyncClient` have a
method for each of them.
"""

import math
from collections.abc import Generator, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from windvane.client.results import (
    DecisionPage,
    DeliveryError,
    Health,
    RankedAction,
    RankedDecision,
    RequestError,
    RewardOutcome,
    RewardRequest,
    make_id,
)
from windvane.client.transport import Call, Servers, build_headers
from windvane.errors import ChoiceError, FeatureError, RewardError, SettingError
from windvane.features.request_reader import (
    Features,
    check_list,
    find_places,
    read_context,
    read_offered_action,
)

MAX_WAIT_SECONDS = 30.0
MAX_PAGE_DECISIONS = 1000
MAX_BATCH_REWARDS = 1000  # in one request
MAX_BATCH_BYTES = 1 << 19  # of one request; the service takes twice as many
MAX_ID_LENGTH = 256
NOT_SENT = "the client made the decision itself, because no server answered"
Event = RankedDecision | str
Result = TypeVar("Result")
Operation = Generator[Call, Any, Result]


class ClientSettings:
    """What `Client` and `AsyncClient` have in common."""

    def __init__(
        self,
        servers: str | Sequence[str],
        key: str | None,
        loop: str,
        timeout: float,
        rank_timeout: float,
    ) -> None:
        for name, seconds in (("timeout", timeout), ("rank_timeout", rank_timeout)):
            if not 0.0 < seconds < float("inf"):
                raise SettingError(f"Client: {name} must be seconds above 0, got {seconds!r}")
        self.loop = loop
        self.timeout = float(timeout)
        self.rank_timeout = float(rank_timeout)
        self._servers = Servers(servers)
        self._headers = build_headers(key)

    @property
    def servers(self) -> tuple[str, ...]:
        """The addresses of the servers, in the order in which they were given."""
        return self._servers.urls

    def __repr__(self) -> str:
        return f"{type(self).__name__}({list(self.servers)!r}, loop={self.loop!r})"


class _RankAnswer(msgspec.Struct, rename="camel"):
    ranking: list[RankedAction]
    event_id: str
    reward_action_id: str
    degraded: bool = False


class _BatchAnswer(msgspec.Struct):
    rewards: list[RewardOutcome]


_decode_rank = msgspec.json.Decoder(_RankAnswer).decode
_decode_batch = msgspec.json.Decoder(_BatchAnswer)
_decode_page = msgspec.json.Decoder(DecisionPage).decode
_decode_health = msgspec.json.Decoder(Health).decode
_decode_settings = msgspec.json.Decoder(dict[str, object]).decode


def _decode_outcomes(count: int, body: bytes) -> list[RewardOutcome]:
    """Decode the outcomes of so many rewards."""
    outcomes = _decode_batch.decode(body).rewards
    if len(outcomes) != count:
        raise msgspec.ValidationError(f"{count} outcomes were expected, got {len(outcomes)}")
    return outcomes


def _ignore_body(body: bytes) -> None:
    """Decode an answer without content."""


def rank(
    client: ClientSettings,
    context: Features | Sequence[Features],
    actions: Sequence[str | Features],
    *,
    exclude: Sequence[str] = (),
    event_id: str | None = None,
    defer_activation: bool = False,
    loop: str | None = None,
    timeout: float | None = None,
) -> Operation[RankedDecision]:
    """Choose one of the actions, which are ids or objects with an id and features.

    If no server answers within `rank_timeout` seconds, the first action that is not excluded is
    chosen, with `degraded` and `is_local`. Only a wrong request raises an error.
    """
    loop = loop or client.loop
    contexts = read_context(context)
    offered = [read_offered_action(action) for action in check_list("actions", actions)]
    ids = [action.id for action in offered]
    places = find_places(ids, exclude)
    _check_finite([contexts, [action.features for action in offered]])
    event_id = make_id() if event_id is None else _check_id("rank", event_id)
    eligible = {ids[place] for place in places}
    request = {
        "eventId": event_id,
        "contextFeatures": contexts,
        "actions": [{"id": action.id, "features": action.features} for action in offered],
        "excludedActions": [id_ for id_ in ids if id_ not in eligible],
        "deferActivation": defer_activation,
    }
    call = Call(
        name="rank",
        method="POST",
        path=_loop_path(loop, "rank"),
        decode=_decode_rank,
        timeout=client.rank_timeout if timeout is None else timeout,
        body=_encode("rank", request),
        request_id=make_id(),
    )
    try:
        answer = yield call
    except DeliveryError:
        probabilities = [0.0] * len(ids)
        probabilities[places[0]] = 1.0
        return RankedDecision(
            action=ids[places[0]],
            index=places[0],
            probabilities=tuple(probabilities),
            event_id=event_id,
            loop=loop,
            degraded=True,
            is_local=True,
        )
    return _read_decision(answer, ids, loop)


def _read_decision(answer: _RankAnswer, ids: list[str], loop: str) -> RankedDecision:
    """The decision of an answer; a repeated event may have been decided among other actions."""
    if answer.reward_action_id not in ids:
        message = f"rank: the event {answer.event_id!r} was decided before, for the action"
        raise ChoiceError(f"{message} {answer.reward_action_id!r}, which is not offered now")
    by_id = {each.id: each.probability for each in answer.ranking}
    return RankedDecision(
        action=answer.reward_action_id,
        index=ids.index(answer.reward_action_id),
        probabilities=tuple(by_id.get(id_, 0.0) for id_ in ids),
        event_id=answer.event_id,
        loop=loop,
        degraded=answer.degraded,
    )


def activate(client: ClientSettings, event: Event, *, loop: str | None = None) -> Operation[bool]:
    """Activate a decision whose activation was deferred; False if the client made it itself."""
    if isinstance(event, RankedDecision):
        if event.is_local:
            return False
        loop, event = event.loop, event.event_id
    # Dots are escaped too: a path that ends with ".." would name another one.
    name = quote(_check_id("activate", event), safe="").replace(".", "%2E")
    path = _loop_path(loop or client.loop, f"events/{name}/activate")
    yield Call("activate", "POST", path, _ignore_body, client.timeout, request_id=make_id())
    return True


def make_reward(
    event: Event, value: float, loop: str | None = None, request_id: str | None = None
) -> RewardRequest | RewardOutcome:
    """A checked reward to send; its outcome if the client made the decision itself."""
    if not isinstance(value, int | float) or not -1.0 <= value <= 1.0:
        raise RewardError(f"reward: the value must be a number in [-1, 1], got {value!r}")
    if isinstance(event, RankedDecision):
        if event.is_local:
            return RewardOutcome(event.event_id, "not sent", NOT_SENT)
        loop, event = event.loop, event.event_id
    checked = _check_id("reward", event)
    number = make_id() if request_id is None else _check_id("reward", request_id, "request_id")
    return RewardRequest(checked, float(value), number, loop)


def reward(
    client: ClientSettings,
    event: Event,
    value: float,
    *,
    request_id: str | None = None,
    loop: str | None = None,
) -> Operation[RewardOutcome]:
    """Send the reward of a decision or an event id, in [-1, 1]; it counts once.

    The reward of a decision that the client made itself is not sent. Raises a DeliveryError if no
    server takes the reward in time.
    """
    request = make_reward(event, value, loop, request_id)
    if isinstance(request, RewardOutcome):
        return request
    [outcome] = yield from rewards(client, [request])
    return outcome


def rewards(
    client: ClientSettings,
    many: Iterable[RewardRequest | tuple[Event, float]],
    *,
    loop: str | None = None,
) -> Operation[list[RewardOutcome]]:
    """Send many rewards in as few requests as possible; returns the outcome of each, in order.

    Raises a DeliveryError if no server takes some of them in time; its `undelivered` can be given
    to this method again.
    """
    items = [_read_reward(each) for each in many]
    outcomes: dict[int, RewardOutcome] = {}
    by_loop: dict[str, dict[int, RewardRequest]] = {}  # the rewards of each loop, by place
    for place, item in enumerate(items):
        if isinstance(item, RewardRequest):
            by_loop.setdefault(item.loop or loop or client.loop, {})[place] = item
        else:
            outcomes[place] = item
    for name, requests in by_loop.items():
        for chunk in _split(requests):
            call = Call(
                name="rewards",
                method="POST",
                path=_loop_path(name, "rewards"),
                decode=partial(_decode_outcomes, len(chunk)),
                timeout=client.timeout,
                body=_join_batch(chunk.values()),
                request_id=make_id(),
            )
            try:
                answer = yield call
            except DeliveryError as reason:
                raise DeliveryError(str(reason), _list_missing(items, outcomes)) from None
            except RequestError as reason:
                reason.undelivered = _list_missing(items, outcomes)
                raise
            outcomes.update(zip(chunk, answer, strict=True))
    return [outcomes[place] for place in range(len(items))]


def _read_reward(item: object) -> RewardRequest | RewardOutcome:
    if isinstance(item, RewardRequest):
        return make_reward(item.event_id, item.value, item.loop, item.request_id)
    if isinstance(item, tuple) and len(item) == 2:
        return make_reward(*item)
    message = "rewards: a RewardRequest, or an event and a value, must be given"
    raise RewardError(f"{message}, got {item!r}")


def _list_missing(
    items: Sequence[RewardRequest | RewardOutcome], outcomes: Mapping[int, RewardOutcome]
) -> tuple[RewardRequest, ...]:
    """The rewards that no server has acknowledged."""
    places = (place for place in range(len(items)) if place not in outcomes)
    return tuple(item for place in places if isinstance(item := items[place], RewardRequest))


def _split(rewards: Mapping[int, RewardRequest]) -> Generator[dict[int, bytes], None, None]:
    """Split rewards into requests of a bounded size: their JSON, by place."""
    chunk: dict[int, bytes] = {}
    size = 0
    for place, reward in rewards.items():
        text = msgspec.json.encode(
            {"eventId": reward.event_id, "value": reward.value, "requestId": reward.request_id}
        )
        if chunk and (len(chunk) >= MAX_BATCH_REWARDS or size + len(text) > MAX_BATCH_BYTES):
            yield chunk
            chunk, size = {}, 0
        chunk[place] = text
        size += len(text)
    if chunk:
        yield chunk


def _join_batch(texts: Iterable[bytes]) -> bytes:
    return b'{"rewards":[' + b",".join(texts) + b"]}"


def read_decisions(
    client: ClientSettings,
    after: int = 0,
    *,
    limit: int = 100,
    wait: float = 0.0,
    final: bool = False,
    loop: str | None = None,
) -> Operation[DecisionPage]:
    """Read a page of decisions; if there is none, the server waits up to `wait` seconds."""
    if not isinstance(after, int) or after < 0:
        raise SettingError(f"decisions: after must be an id of at least 0, got {after!r}")
    if not 1 <= limit <= MAX_PAGE_DECISIONS:
        message = f"decisions: limit must lie in [1, {MAX_PAGE_DECISIONS}], got {limit!r}"
        raise SettingError(message)
    if not 0.0 <= wait <= MAX_WAIT_SECONDS:
        message = f"decisions: wait must lie in [0, {MAX_WAIT_SECONDS:g}] s, got {wait!r}"
        raise SettingError(message)
    parameters: dict[str, object] = {"after": after, "limit": limit}
    if wait:
        parameters["wait"] = wait
    if final:
        parameters["final"] = "true"
    path = f"{_loop_path(loop or client.loop, 'decisions')}?{urlencode(parameters)}"
    page: DecisionPage = yield Call(
        "decisions", "GET", path, _decode_page, client.timeout, request_id=make_id(), wait=wait
    )
    return page


def settings(client: ClientSettings, *, loop: str | None = None) -> Operation[Mapping[str, object]]:
    """Read the settings of a loop, by their names on the wire."""
    path = _loop_path(loop or client.loop, "configurations/service")
    found: Mapping[str, object] = yield Call(
        "settings", "GET", path, _decode_settings, client.timeout
    )
    return found


def health(client: ClientSettings) -> Operation[Health]:
    """Read the health of the first server that answers."""
    found: Health = yield Call("health", "GET", "/healthz", _decode_health, client.timeout)
    return found


def _loop_path(loop: str, rest: str) -> str:
    if not isinstance(loop, str) or not loop:
        raise SettingError(f"Client: loop must be the name of a loop, got {loop!r}")
    return f"/loops/{quote(loop, safe='').replace('.', '%2E')}/personalizer/v1.0/{rest}"


def _check_id(who: str, id_: object, name: str = "event_id") -> str:
    if not isinstance(id_, str) or not 0 < len(id_) <= MAX_ID_LENGTH or "\0" in id_:
        message = f"{who}: {name} must have 1 to {MAX_ID_LENGTH} characters, none of them NUL"
        raise SettingError(f"{message}, got {id_!r:.80}")
    return id_


def _encode(who: str, request: object) -> bytes:
    try:
        return msgspec.json.encode(request)
    except (TypeError, ValueError, RecursionError) as reason:
        raise FeatureError(f"{who}: the features cannot be sent as JSON ({reason})") from None


def _check_finite(value: object) -> None:
    """Refuse numbers that JSON does not have; they would be sent as null."""
    if isinstance(value, float):
        if not math.isfinite(value):
            raise FeatureError(f"rank: features must be finite numbers, got {value}")
    elif isinstance(value, dict):
        for inner in value.values():
            _check_finite(inner)
    elif isinstance(value, list):
        for inner in value:
            _check_finite(inner)
