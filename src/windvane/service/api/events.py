"""Rank, reward, many rewards and activate: the requests that come all the time.

Their handlers work without Starlette's Request and Response, which makes them faster.
"""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import NamedTuple, cast

import msgspec
from starlette.types import Receive, Scope

from windvane.service.api.request_limits import LargeRequests
from windvane.service.api.requests import (
    MAX_BODY_BYTES,
    MAX_RANK_BYTES,
    ApiError,
    bad_request,
    check_values,
    get_header,
    get_loop_name,
    parse_body,
    read_body,
)
from windvane.service.errors import ServiceError, describe_invalid_value
from windvane.service.loops.rank_requests import (
    OfferedActions,
    check_event_id,
    parse_offer,
    parse_slots,
)
from windvane.service.loops.service import Service
from windvane.service.schemas import (
    EitherRewardRequest,
    PageOptions,
    RankOptions,
    RawPageRequest,
    RawRankRequest,
    RewardBatchRequest,
    RewardBatchResponse,
    RewardItem,
    RewardOutcome,
    RewardStatus,
)
from windvane.service.store.writer.reward_operations import (
    MAX_REWARDS_PER_EVENT,
    REFUSED,
    MatchResult,
)

FULL = f"the event has {MAX_REWARDS_PER_EVENT} rewards already, the log keeps no more of it"

_decode_rank = msgspec.json.Decoder(RawRankRequest).decode
_decode_page = msgspec.json.Decoder(RawPageRequest).decode
_decode_reward = msgspec.json.Decoder(EitherRewardRequest).decode
_decode_batch = msgspec.json.Decoder(RewardBatchRequest).decode
_decode_item = msgspec.json.Decoder(RewardItem).decode


class EventEndpoint(NamedTuple):
    """An endpoint whose function returns the JSON body of the response, or an empty one."""

    status: int
    answer: Callable[[Service, Scope, Receive], Awaitable[bytes]]


ParsedRank = tuple[RankOptions | PageOptions, OfferedActions, str]
Parse = Callable[[bytes], ParsedRank]


async def _rank(parse: Parse, service: Service, scope: Scope, receive: Receive) -> bytes:
    large_requests: LargeRequests = scope["app"].large_requests
    with large_requests.hold() as held:
        body = await read_body(scope, receive, MAX_RANK_BYTES, held.take)
        if not held.is_large:
            return await service.rank(get_loop_name(scope), *parse(body))
        loop = await service.get_loop(get_loop_name(scope))
        async with large_requests.turn:
            array_size = loop.settings.array_size
            parsed = await large_requests.run(_parse_large_rank, parse, body, array_size)
            return await service.rank(loop.name, *parsed)


def _parse_rank(body: bytes) -> ParsedRank:
    request = parse_body(_decode_rank, body, "InvalidRankRequest")
    offer = parse_body(parse_offer, bytes(request.actions), "InvalidRankRequest")
    return request, offer, body.decode(errors="replace")


def _parse_page(body: bytes) -> ParsedRank:
    raw = parse_body(_decode_page, body, "InvalidRankRequest")
    offer = parse_body(parse_offer, bytes(raw.actions), "InvalidRankRequest")
    request = PageOptions(
        context_features=raw.context_features,
        event_id=raw.event_id,
        defer_activation=raw.defer_activation,
        slots=parse_body(parse_slots, bytes(raw.slots), "InvalidRankRequest"),
    )
    return request, offer, body.decode(errors="replace")


def _parse_large_rank(parse: Parse, body: bytes, array_size: int) -> ParsedRank:
    """Parse and pack a rank request; arrays that are projected have fewer crossings than here."""
    check_values(body, MAX_RANK_BYTES)
    request, offer, text = parse(body)
    offer.pack([] if array_size else request.context_features)
    return request, offer, text


async def _reward(service: Service, scope: Scope, receive: Receive) -> bytes:
    event_id = _get_event_id(scope)
    sent = parse_body(_decode_reward, await read_body(scope, receive), "InvalidRewardRequest")
    if (sent.value is None) == (sent.reward is None):
        message = "either value, or reward with the values of slots, must be there"
        raise bad_request("InvalidRewardRequest", message, "value")
    header = get_header(scope, b"x-ms-client-request-id")
    request_id = None if header is None else header.decode("latin-1")
    slots = sent.reward or ()
    await service.reward(get_loop_name(scope), event_id, sent.value or 0.0, request_id, slots)
    return b""


async def _activate(service: Service, scope: Scope, receive: Receive) -> bytes:
    await service.activate(get_loop_name(scope), _get_event_id(scope))
    return b""


def _get_event_id(scope: Scope) -> str:
    event_id: str = scope["path_params"]["eventId"]
    if not event_id:
        raise ApiError(404, "ResourceNotFound", "the path names no event", "eventId")
    return event_id


async def _put_rewards(service: Service, scope: Scope, receive: Receive) -> bytes:
    loop_name = get_loop_name(scope)
    await service.get_loop(loop_name)
    with scope["app"].large_requests.hold() as held:
        body = await read_body(scope, receive, MAX_BODY_BYTES, held.take)
        batch = parse_body(_decode_batch, body, "InvalidRewardRequest")
        entries = [_read_entry(raw) for raw in batch.rewards]
        valid = [entry for entry in entries if isinstance(entry, RewardItem)]
        results = iter(await service.put_rewards(loop_name, valid))
        outcomes = [
            _describe(entry, next(results)) if isinstance(entry, RewardItem) else entry
            for entry in entries
        ]
        return msgspec.json.encode(RewardBatchResponse(outcomes))


def _read_entry(raw: msgspec.Raw) -> RewardItem | RewardOutcome:
    """Read one reward; one that is not valid becomes its outcome."""
    try:
        item = _decode_item(raw)
        check_event_id(item.event_id)
    except msgspec.ValidationError as reason:
        return RewardOutcome(None, "invalid", describe_invalid_value(reason, "the entry"))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ServiceError) as reason:
        return RewardOutcome(None, "invalid", str(reason))
    if "\0" in f"{item.request_id}{item.slot_id}":
        return RewardOutcome(None, "invalid", "requestId and slotId must have no character NUL")
    return item


def _describe(entry: RewardItem, done: MatchResult) -> RewardOutcome:
    reason = FULL if done.status == REFUSED else done.fault or None
    return RewardOutcome(entry.event_id, cast(RewardStatus, done.status), reason)


rank = EventEndpoint(201, partial(_rank, _parse_rank))
rank_slots = EventEndpoint(201, partial(_rank, _parse_page))
reward = EventEndpoint(204, _reward)
activate = EventEndpoint(204, _activate)
put_rewards = EventEndpoint(200, _put_rewards)
