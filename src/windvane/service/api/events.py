"""Rank, reward and activate: the requests that come all the time.

Their handlers work without Starlette's Request and Response, which makes them faster.
"""

from collections.abc import Awaitable, Callable
from functools import partial

import msgspec
from starlette.types import Receive, Scope, Send

from windvane.service.api.errors import ApiError
from windvane.service.api.requests import get_header, get_loop_name, parse_body, read_body
from windvane.service.api.responses import send_response
from windvane.service.loops.rank_requests import parse_offer
from windvane.service.loops.service import Service
from windvane.service.schemas import RawRankRequest, RewardRequest

_decode_rank = msgspec.json.Decoder(RawRankRequest).decode
_decode_reward = msgspec.json.Decoder(RewardRequest).decode


ReadBody = Callable[[], Awaitable[bytes]]  # returns the body of a request


class EventEndpoint:
    """An endpoint whose function returns the body of the response; it is an ASGI endpoint too."""

    def __init__(
        self, status: int, answer: Callable[[Service, Scope, ReadBody], Awaitable[bytes]]
    ) -> None:
        self.status = status
        self.answer = answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = await self.answer(scope["app"].state.service, scope, partial(read_body, receive))
        await send_response(send, self.status, body)


async def _rank(service: Service, scope: Scope, read: ReadBody) -> bytes:
    body = await read()
    request = parse_body(_decode_rank, body, "InvalidRankRequest")
    offer = parse_body(parse_offer, bytes(request.actions), "InvalidRankRequest")
    text = body.decode(errors="replace")
    return await service.rank(get_loop_name(scope), request, offer, text)


async def _reward(service: Service, scope: Scope, read: ReadBody) -> bytes:
    event_id = _get_event_id(scope)
    reward = parse_body(_decode_reward, await read(), "InvalidRewardRequest")
    header = get_header(scope, b"x-ms-client-request-id")
    request_id = None if header is None else header.decode("latin-1")
    await service.reward(get_loop_name(scope), event_id, reward.value, request_id)
    return b""


async def _activate(service: Service, scope: Scope, read: ReadBody) -> bytes:
    await service.activate(get_loop_name(scope), _get_event_id(scope))
    return b""


def _get_event_id(scope: Scope) -> str:
    event_id: str = scope["path_params"]["eventId"]
    if not event_id:
        raise ApiError(404, "ResourceNotFound", "the path names no event", "eventId")
    return event_id


rank = EventEndpoint(201, _rank)
reward = EventEndpoint(204, _reward)
activate = EventEndpoint(204, _activate)
