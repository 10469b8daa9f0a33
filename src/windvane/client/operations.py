"""The operations of a client, without any network: what to send, and what the answers mean.

An operation is a generator that yields calls and receives their decoded answers. A call that no
server takes in time raises a DeliveryError inside the operation.
"""

import math
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from windvane.client.errors import DeliveryError, RequestError
from windvane.client.results import (
    Decision,
    DecisionPage,
    Health,
    Reward,
    RewardOutcome,
    make_id,
)
from windvane.errors import ChoiceError, FeatureError, RewardError, SettingError
from windvane.features.request_reader import (
    Features,
    check_list,
    find_places,
    read_context,
    read_offered_action,
)

MAX_BATCH_REWARDS = 1000  # in one request
MAX_BATCH_BYTES = 1 << 19  # of one request; the service takes twice as many
MAX_ID_LENGTH = 256
NOT_SENT = "the client made the decision itself, because no server answered"
Event = Decision | str
Result = TypeVar("Result")


class Call(NamedTuple):
    """A request to any of the servers."""

    name: str  # of the operation, for messages
    method: str
    path: str
    decode: Callable[[bytes], Any]
    timeout: float  # seconds, for all attempts together
    body: bytes | None = None
    request_id: str = ""
    wait: float = 0.0  # seconds for which a server may let the request wait, beside the timeout


Operation = Generator[Call, Any, Result]


class _Ranked(msgspec.Struct):
    id: str
    probability: float


class _RankAnswer(msgspec.Struct, rename="camel"):
    ranking: list[_Ranked]
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


class RankOptions(NamedTuple):
    """What a rank request has beside its context and its actions."""

    exclude: Sequence[str]
    event_id: str | None
    defer_activation: bool
    loop: str
    timeout: float


def rank(
    context: Features | Sequence[Features],
    actions: Sequence[str | Features],
    options: RankOptions,
) -> Operation[Decision]:
    """Choose one of the actions; the first one if no server answers in time."""
    contexts = read_context(context)
    offered = [read_offered_action(action) for action in check_list("actions", actions)]
    ids = [action.id for action in offered]
    places = find_places(ids, options.exclude)
    _check_finite([contexts, [action.features for action in offered]])
    event_id = make_id() if options.event_id is None else _check_id("rank", options.event_id)
    eligible = {ids[place] for place in places}
    request = {
        "eventId": event_id,
        "contextFeatures": contexts,
        "actions": [{"id": action.id, "features": action.features} for action in offered],
        "excludedActions": [id_ for id_ in ids if id_ not in eligible],
        "deferActivation": options.defer_activation,
    }
    call = Call(
        name="rank",
        method="POST",
        path=_loop_path(options.loop, "rank"),
        decode=_decode_rank,
        timeout=options.timeout,
        body=_encode("rank", request),
        request_id=make_id(),
    )
    try:
        answer = yield call
    except DeliveryError:
        probabilities = [0.0] * len(ids)
        probabilities[places[0]] = 1.0
        return Decision(
            action=ids[places[0]],
            index=places[0],
            probabilities=tuple(probabilities),
            event_id=event_id,
            loop=options.loop,
            degraded=True,
            is_local=True,
        )
    return _read_decision(answer, ids, options.loop)


def _read_decision(answer: _RankAnswer, ids: list[str], loop: str) -> Decision:
    """The decision of an answer; a repeated event may have been decided among other actions."""
    if answer.reward_action_id not in ids:
        message = f"rank: the event {answer.event_id!r} was decided before, for the action"
        raise ChoiceError(f"{message} {answer.reward_action_id!r}, which is not offered now")
    by_id = {each.id: each.probability for each in answer.ranking}
    return Decision(
        action=answer.reward_action_id,
        index=ids.index(answer.reward_action_id),
        probabilities=tuple(by_id.get(id_, 0.0) for id_ in ids),
        event_id=answer.event_id,
        loop=loop,
        degraded=answer.degraded,
    )


def activate(event: Event, loop: str, timeout: float) -> Operation[bool]:
    """Activate a decision; False if the client made the decision itself."""
    if isinstance(event, Decision):
        if event.is_local:
            return False
        loop, event = event.loop, event.event_id
    # Dots are escaped too: a path that ends with ".." would name another one.
    name = quote(_check_id("activate", event), safe="").replace(".", "%2E")
    path = _loop_path(loop, f"events/{name}/activate")
    yield Call("activate", "POST", path, _ignore_body, timeout, request_id=make_id())
    return True


def make_reward(
    event: Event, value: float, loop: str | None = None, request_id: str | None = None
) -> Reward | RewardOutcome:
    """A checked reward to send; its outcome if the client made the decision itself."""
    if not isinstance(value, int | float) or not -1.0 <= value <= 1.0:
        raise RewardError(f"reward: the value must be a number in [-1, 1], got {value!r}")
    if isinstance(event, Decision):
        if event.is_local:
            return RewardOutcome(event.event_id, "not sent", NOT_SENT)
        loop, event = event.loop, event.event_id
    checked = _check_id("reward", event)
    number = make_id() if request_id is None else _check_id("reward", request_id, "request_id")
    return Reward(checked, float(value), number, loop)


def put_rewards(
    many: Iterable[Reward | tuple[Event, float]], loop: str, timeout: float
) -> Operation[list[RewardOutcome]]:
    """Send many rewards in as few requests as possible; returns the outcome of each, in order."""
    items = [_read_reward(each) for each in many]
    outcomes: dict[int, RewardOutcome] = {}
    by_loop: dict[str, dict[int, Reward]] = {}  # the rewards of each loop, by place
    for place, item in enumerate(items):
        if isinstance(item, Reward):
            by_loop.setdefault(item.loop or loop, {})[place] = item
        else:
            outcomes[place] = item
    for name, rewards in by_loop.items():
        for chunk in _split(rewards):
            call = Call(
                name="rewards",
                method="POST",
                path=_loop_path(name, "rewards"),
                decode=partial(_decode_outcomes, len(chunk)),
                timeout=timeout,
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


def _read_reward(item: object) -> Reward | RewardOutcome:
    if isinstance(item, Reward):
        return make_reward(item.event_id, item.value, item.loop, item.request_id)
    if isinstance(item, tuple) and len(item) == 2:
        return make_reward(*item)
    raise RewardError(f"rewards: a Reward, or an event and a value, must be given, got {item!r}")


def _list_missing(
    items: Sequence[Reward | RewardOutcome], outcomes: Mapping[int, RewardOutcome]
) -> tuple[Reward, ...]:
    """The rewards that no server has acknowledged."""
    places = (place for place in range(len(items)) if place not in outcomes)
    return tuple(item for place in places if isinstance(item := items[place], Reward))


def _split(rewards: Mapping[int, Reward]) -> Generator[dict[int, bytes], None, None]:
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


class PageQuery(NamedTuple):
    """Which decisions to read, and for how long the server waits for the first of them."""

    after: int
    limit: int
    wait: float
    final: bool


def read_page(query: PageQuery, loop: str, timeout: float) -> Operation[DecisionPage]:
    """Read a page of decisions; the servers get `timeout` seconds beside the wait."""
    parameters: dict[str, object] = {"after": query.after, "limit": query.limit}
    if query.wait:
        parameters["wait"] = query.wait
    if query.final:
        parameters["final"] = "true"
    path = f"{_loop_path(loop, 'decisions')}?{urlencode(parameters)}"
    page: DecisionPage = yield Call(
        "decisions", "GET", path, _decode_page, timeout, request_id=make_id(), wait=query.wait
    )
    return page


def read_settings(loop: str, timeout: float) -> Operation[Mapping[str, object]]:
    """Read the settings of a loop, by their names on the wire."""
    path = _loop_path(loop, "configurations/service")
    settings: Mapping[str, object] = yield Call("settings", "GET", path, _decode_settings, timeout)
    return settings


def read_health(timeout: float) -> Operation[Health]:
    """Read the health of the first server that answers."""
    health: Health = yield Call("health", "GET", "/healthz", _decode_health, timeout)
    return health


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
