"""The operations of a client, without any network: what to send, and what the answers mean.

An operation is a generator that yields calls and receives their decoded answers. A call that no
server takes in time raises a DeliveryError inside the operation. `Client` and `AsyncClient` have a
method for each of them.
"""

import json
import re
from collections.abc import Generator, Iterable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from urllib.parse import quote, urlencode

import msgspec

from windvane.client.results import (
    DecisionPage,
    DeliveryError,
    Health,
    LoggedDecision,
    RankedAction,
    RankedDecision,
    RankedPage,
    RankedSlot,
    RequestError,
    RewardOutcome,
    RewardRequest,
    make_id,
)
from windvane.client.transport import Call, Connection, Operation
from windvane.errors import ChoiceError, FeatureError, RewardError, SettingError, shorten
from windvane.features.request_reader import (
    Features,
    check_list,
    find_places,
    read_context,
    read_offered_action,
)
from windvane.features.slots import fill_slots, read_slots
from windvane.settings import check_sequence, positive, real, whole

MAX_WAIT_SECONDS = 30.0
MAX_PAGE_DECISIONS = 1000
MAX_BATCH_REWARDS = 1000  # in one request
MAX_BATCH_BYTES = 1 << 19  # of one request; the service takes twice as many
MAX_ID_LENGTH = 256
NOT_IN_AN_ID = re.compile("[\0\ud800-\udfff]")  # NUL, and halves of characters
NOT_SENT = "the client made the decision itself, because no server answered"
Event = RankedDecision | RankedPage | str


class _RankAnswer(msgspec.Struct, rename="camel"):
    ranking: list[RankedAction]
    event_id: str
    reward_action_id: str
    degraded: bool = False


class _PageAnswer(msgspec.Struct, rename="camel"):
    slots: tuple[RankedSlot, ...]
    event_id: str
    degraded: bool = False


class _BatchAnswer(msgspec.Struct):
    rewards: list[RewardOutcome]


_rank_decoder = msgspec.json.Decoder(_RankAnswer)
_page_answer_decoder = msgspec.json.Decoder(_PageAnswer)
_batch_decoder = msgspec.json.Decoder(_BatchAnswer)
_page_decoder = msgspec.json.Decoder(DecisionPage)
_decode_health = msgspec.json.Decoder(Health).decode
_decode_settings = msgspec.json.Decoder(dict[str, object]).decode


def _decode_rank(event_id: str, offered: Mapping[str, bool] | None, body: bytes) -> _RankAnswer:
    """Decode a decision of an event; `offered` has the actions, and whether each is eligible.

    Without `offered`, the event may have been decided before, among other actions.
    """
    answer = _rank_decoder.decode(body)
    by_id = {each.id: each.probability for each in answer.ranking}
    if len(by_id) < len(answer.ranking) or answer.event_id != event_id:
        raise msgspec.ValidationError("an action comes twice, or the event is another one")
    if not abs(sum(by_id.values()) - 1.0) < 1e-6 or not by_id.get(answer.reward_action_id):
        raise msgspec.ValidationError("its probabilities cannot be right")
    if offered is not None and by_id.keys() != offered.keys():
        raise msgspec.ValidationError("its actions are not those that were offered")
    if offered is not None and any(by_id[id_] for id_ in offered if not offered[id_]):
        raise msgspec.ValidationError("an action that is excluded can be chosen")
    return answer


def _decode_outcomes(event_ids: Sequence[str], body: bytes) -> list[RewardOutcome]:
    """Decode the outcomes of the rewards of these events."""
    outcomes = _batch_decoder.decode(body).rewards
    if [outcome.event_id for outcome in outcomes] != list(event_ids):
        raise msgspec.ValidationError("its outcomes are not those of the rewards that were sent")
    if any(outcome.status == "not sent" for outcome in outcomes):
        raise msgspec.ValidationError("a server cannot say that a reward was not sent")
    return outcomes


def _decode_page(after: int, limit: int, body: bytes) -> DecisionPage:
    """Decode a page of at most `limit` decisions whose ids begin after `after`."""
    page = _page_decoder.decode(body)
    ids = [decision.id for decision in page.decisions]
    bounds = [after, *ids, page.after + 1]
    if len(ids) > limit or any(high <= low for low, high in pairwise(bounds)):
        raise msgspec.ValidationError("its ids are not in order")
    return page


def _ignore_body(body: bytes) -> None:
    """Decode an answer without content."""


def rank(
    client: Connection,
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
    loop = client.loop if loop is None else loop
    contexts = read_context(context)
    offered = [read_offered_action(action) for action in check_list("actions", actions)]
    ids = [action.id for action in offered]
    places = find_places(ids, exclude)
    eligible = {ids[place] for place in places}
    is_new = event_id is None  # and cannot have been decided before
    event_id = make_id() if event_id is None else _check_id("rank", event_id)
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
        path=_loop_path(client, loop, "rank"),
        decode=partial(
            _decode_rank, event_id, {id_: id_ in eligible for id_ in ids} if is_new else None
        ),
        timeout=client.rank_timeout if timeout is None else positive("rank", "timeout", timeout),
        body=_encode("rank: the features", request),
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
        message = f"rank: the event {shorten(answer.event_id)} was decided before, for the action"
        raise ChoiceError(f"{message} {shorten(answer.reward_action_id)}, which is not offered now")
    by_id = {each.id: each.probability for each in answer.ranking}
    return RankedDecision(
        action=answer.reward_action_id,
        index=ids.index(answer.reward_action_id),
        probabilities=tuple(by_id.get(id_, 0.0) for id_ in ids),
        event_id=answer.event_id,
        loop=loop,
        degraded=answer.degraded,
    )


def _decode_slots(event_id: str, slots: Sequence[str], body: bytes) -> _PageAnswer:
    """Decode what the slots of an event show."""
    answer = _page_answer_decoder.decode(body)
    if answer.event_id != event_id or [slot.id for slot in answer.slots] != list(slots):
        raise msgspec.ValidationError("the event or its slots are others")
    if len({slot.action for slot in answer.slots}) < len(slots):
        raise msgspec.ValidationError("an action fills two slots")
    return answer


def rank_slots(
    client: Connection,
    context: Features | Sequence[Features],
    actions: Sequence[str | Features],
    slots: Sequence[str | Features],
    *,
    baselines: Sequence[str] = (),
    event_id: str | None = None,
    defer_activation: bool = False,
    loop: str | None = None,
    timeout: float | None = None,
) -> Operation[RankedPage]:
    """Choose an action for each slot, which is an id or an object with id, exclude and features.

    `baselines` are the actions that the slots show if no server answers within `rank_timeout`
    seconds, by default the first ones with which all slots can be filled.
    """
    loop = client.loop if loop is None else loop
    contexts = read_context(context)
    offered = [read_offered_action(action) for action in check_list("actions", actions)]
    ids = [action.id for action in offered]
    find_places(ids, ())
    page = read_slots(slots, ids)
    shown = list(check_list("baselines", baselines)) or fill_slots(page, ids)
    event_id = make_id() if event_id is None else _check_id("rank_slots", event_id)
    request = {
        "eventId": event_id,
        "contextFeatures": contexts,
        "actions": [{"id": action.id, "features": action.features} for action in offered],
        "slots": [
            {
                "id": slot.id,
                "features": slot.features,
                "excludedActions": [id_ for k, id_ in enumerate(ids) if k not in slot.places],
                "baselineAction": baseline,
            }
            for slot, baseline in zip(page, shown, strict=True)
        ],
        "deferActivation": defer_activation,
    }
    call = Call(
        name="rank_slots",
        method="POST",
        path=_loop_path(client, loop, "multislot/rank"),
        decode=partial(_decode_slots, event_id, [slot.id for slot in page]),
        timeout=client.rank_timeout
        if timeout is None
        else positive("rank_slots", "timeout", timeout),
        body=_encode("rank_slots", request),
        request_id=make_id(),
    )
    try:
        answer = yield call
    except DeliveryError:
        local = tuple(RankedSlot(slot.id, id_, 1.0) for slot, id_ in zip(page, shown, strict=True))
        return RankedPage(slots=local, event_id=event_id, loop=loop, degraded=True, is_local=True)
    return RankedPage(
        slots=answer.slots, event_id=answer.event_id, loop=loop, degraded=answer.degraded
    )


def activate(client: Connection, event: Event, *, loop: str | None = None) -> Operation[bool]:
    """Activate a decision whose activation was deferred; False if the client made it itself."""
    if not isinstance(event, str):
        if event.is_local:
            return False
        loop, event = event.loop, event.event_id
    name = _escape(_check_id("activate", event))
    path = _loop_path(client, loop, f"events/{name}/activate")
    yield Call("activate", "POST", path, _ignore_body, client.timeout, request_id=make_id())
    return True


def make_reward(
    event: Event,
    value: float,
    loop: str | None = None,
    request_id: str | None = None,
    slot: str | None = None,
) -> RewardRequest | RewardOutcome:
    """A checked reward to send; its outcome if the client made the decision itself."""
    if not isinstance(value, int | float) or not -1.0 <= value <= 1.0:
        raise RewardError(f"reward: the value must be a number in [-1, 1], got {shorten(value)}")
    if isinstance(event, RankedDecision | RankedPage):
        if event.is_local:
            return RewardOutcome(event.event_id, "not sent", NOT_SENT)
        loop, event = event.loop, event.event_id
    checked = _check_id("reward", event)
    number = make_id() if request_id is None else _check_id("reward", request_id, "request_id")
    if slot is not None:
        _check_id("reward", slot, "slot")
    return RewardRequest(checked, float(value), number, loop, slot)


def reward(
    client: Connection,
    event: Event,
    value: float,
    *,
    slot: str | None = None,
    request_id: str | None = None,
    loop: str | None = None,
) -> Operation[RewardOutcome]:
    """Send the reward of a decision or an event id, in [-1, 1]; it counts once.

    `slot` is the id of a slot of a page; only a page whose reward model is `sum` needs none. The
    reward of a decision that the client made itself is not sent. Raises a DeliveryError if no
    server takes the reward in time.
    """
    request = make_reward(event, value, loop, request_id, slot)
    if isinstance(request, RewardOutcome):
        return request
    [outcome] = yield from rewards(client, [request])
    return outcome


def rewards(
    client: Connection,
    many: Iterable[RewardRequest | tuple[Event, float]],
    *,
    loop: str | None = None,
) -> Operation[list[RewardOutcome]]:
    """Send many rewards in as few requests as possible; returns the outcome of each, in order.

    Raises a DeliveryError if no server takes some of them in time; its `undelivered` can be given
    to this method again.
    """
    items = [_read_reward(each) for each in check_sequence("rewards", "rewards", many)]
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
                path=_loop_path(client, name, "rewards"),
                decode=partial(_decode_outcomes, [requests[place].event_id for place in chunk]),
                timeout=client.timeout,
                body=b'{"rewards":[' + b",".join(chunk.values()) + b"]}",
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
        return make_reward(item.event_id, item.value, item.loop, item.request_id, item.slot)
    if isinstance(item, tuple) and len(item) == 2:
        return make_reward(*item)
    message = "rewards: a RewardRequest, or an event and a value, must be given"
    raise RewardError(f"{message}, got {shorten(item)}")


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
            | ({} if reward.slot is None else {"slotId": reward.slot})
        )
        if chunk and (len(chunk) >= MAX_BATCH_REWARDS or size + len(text) > MAX_BATCH_BYTES):
            yield chunk
            chunk, size = {}, 0
        chunk[place] = text
        size += len(text)
    if chunk:
        yield chunk


def read_decisions(
    client: Connection,
    after: int = 0,
    *,
    limit: int = 100,
    wait: float = 0.0,
    final: bool = False,
    loop: str | None = None,
) -> Operation[DecisionPage]:
    """Read a page of decisions; if there is none, the server waits up to `wait` seconds."""
    whole("decisions", "after", after, least=0)
    if not 1 <= whole("decisions", "limit", limit) <= MAX_PAGE_DECISIONS:
        message = f"decisions: limit must lie in [1, {MAX_PAGE_DECISIONS}], got {shorten(limit)}"
        raise SettingError(message)
    if not 0.0 <= real("decisions", "wait", wait) <= MAX_WAIT_SECONDS:
        message = f"decisions: wait must lie in [0, {MAX_WAIT_SECONDS:g}] s, got {shorten(wait)}"
        raise SettingError(message)
    parameters: dict[str, object] = {"after": after, "limit": limit}
    if wait:
        parameters["wait"] = wait
    if final:
        parameters["final"] = "true"
    page: DecisionPage = yield Call(
        name="decisions",
        method="GET",
        path=f"{_loop_path(client, loop, 'decisions')}?{urlencode(parameters)}",
        decode=partial(_decode_page, after, limit),
        timeout=client.timeout,
        request_id=make_id(),
        wait=wait,
    )
    return page


def read_next_decisions(
    client: Connection, after: int, final: bool, follow: bool, loop: str | None
) -> Operation[tuple[Sequence[LoggedDecision], int | None]]:
    """Read the longest page; return it with the id to go on from, None if it was the last."""
    page = yield from read_decisions(
        client,
        after,
        limit=MAX_PAGE_DECISIONS,
        wait=MAX_WAIT_SECONDS if follow else 0.0,
        final=final,
        loop=loop,
    )
    return page.decisions, page.after if follow or page.after > after else None


def settings(client: Connection, *, loop: str | None = None) -> Operation[Mapping[str, object]]:
    """Read the settings of a loop, by their names on the wire."""
    path = _loop_path(client, loop, "configurations/service")
    found: Mapping[str, object] = yield Call(
        "settings", "GET", path, _decode_settings, client.timeout
    )
    return found


def health(client: Connection) -> Operation[Health]:
    """Read the health of the first server that answers."""
    found: Health = yield Call("health", "GET", "/healthz", _decode_health, client.timeout)
    return found


def request(client: Connection, method: str, path: str, body: object = None) -> Operation[object]:
    """Send a request that has no method of its own, such as GET /loops, and return its JSON.

    A body that is not bytes is sent as JSON. A request that is not answered is sent again, so that
    a POST may count twice.
    """
    if not path.startswith("/"):
        raise SettingError(f"request: path must start with /, got {shorten(path)}")
    content = body if isinstance(body, bytes | None) else _encode("request: the body", body)
    answer: object = yield Call(
        f"{method} {path}", method, path, _decode_json, client.timeout, content, make_id()
    )
    return answer


def _decode_json(body: bytes) -> object:
    return msgspec.json.decode(body or b"null")


def _loop_path(client: Connection, loop: str | None, rest: str) -> str:
    """A path of a loop; None: that of the client."""
    name = _check_id("Client", client.loop if loop is None else loop, "loop")
    return f"/loops/{_escape(name)}/personalizer/v1.0/{rest}"


def _escape(name: str) -> str:
    """Make a name a part of a path; dots are escaped too, because ".." would name another path."""
    return quote(name, safe="").replace(".", "%2E")


def _check_id(who: str, id_: object, name: str = "event_id") -> str:
    if not isinstance(id_, str) or not 0 < len(id_) <= MAX_ID_LENGTH or NOT_IN_AN_ID.search(id_):
        message = f"{who}: {name} must be 1 to {MAX_ID_LENGTH} characters of UTF-8 without NUL"
        raise SettingError(f"{message}, got {shorten(id_)}")
    return id_


def _encode(what: str, request: object) -> bytes:
    try:
        # msgspec would send numbers that JSON does not have as null.
        text = json.dumps(msgspec.to_builtins(request), ensure_ascii=False, allow_nan=False)
        return text.encode()
    except (TypeError, ValueError, RecursionError) as reason:
        raise FeatureError(f"{what} cannot be sent as JSON ({reason})") from None
