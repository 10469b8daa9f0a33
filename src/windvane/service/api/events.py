"""Rank, reward and activate: asked all the time, and answered without a framework around them."""

import math
import re
from collections.abc import Callable
from typing import NamedTuple, TypeVar

import msgspec
from starlette.types import Receive, Scope

from windvane.service.clock import now_us
from windvane.service.loops.offered_actions import offer_of
from windvane.service.loops.service import PATIENCE, Service
from windvane.service.schemas import RankLine, RewardRequest, bad
from windvane.service.store.decision_operations import Activate, PutReward

MOST_BYTES = 1 << 20  # of a body
VERSIONS = ("v1.0", "v1.1-preview.1", "v1.1-preview.2", "v1.1-preview.3")
PATH = re.compile(
    rf"(?:/loops/(?P<loop>[^/]+))?/personalizer(?:/(?:{'|'.join(map(re.escape, VERSIONS))}))?"
    r"/(?:rank|events/(?P<event>.+)/(?P<what>reward|activate))",
    re.DOTALL,
)

Result = TypeVar("Result")
read_rank = msgspec.json.Decoder(RankLine).decode
read_reward = msgspec.json.Decoder(RewardRequest).decode


class Asked(NamedTuple):
    """What a path asks for: rank, reward or activate, of a loop, and of which event."""

    what: str
    loop: str
    event: str


def asked(scope: Scope) -> Asked | None:
    """What a request asks for; None where it is for the framework."""
    found = PATH.fullmatch(scope["path"]) if scope["method"] == "POST" else None
    if found is None:
        return None
    loop, event, what = found.groups()
    return Asked(what or "rank", loop or _named(scope["query_string"]), event or "")


def _named(query: bytes) -> str:
    """The loop that is asked where a client loses it from the path: `?loop=`."""
    if b"loop=" not in query:
        return "default"
    from urllib.parse import parse_qs

    return parse_qs(query.decode("latin-1")).get("loop", ["default"])[0]


async def answered(service: Service, ask: Asked, scope: Scope, receive: Receive) -> bytes:
    """What is answered; nothing where there is nothing to say."""
    if ask.what == "rank":
        body = await body_of(receive)
        line = parsed(read_rank, body, "InvalidRankRequest")
        offer = parsed(offer_of, bytes(line.actions), "InvalidRankRequest")
        return await service.rank(ask.loop, line, offer, body.decode(errors="replace"))
    loop = await service.loop(ask.loop)
    if len(ask.event) > 256 or "\0" in ask.event:
        message = "eventId must have at most 256 characters, none of them NUL"
        raise bad("BadRequest", message, "eventId")
    if ask.what == "activate":
        activate = Activate(loop.id, ask.event, now_us(), loop.terms)
        done = await service.write(activate, loop, PATIENCE)
        if done.status == "unknown":
            message = f"no decision has the event id {ask.event!r}"
            raise bad("InvalidEventIdToActivate", message, "eventId")
        return b""
    given = parsed(read_reward, await body_of(receive), "InvalidRewardRequest")
    if not math.isfinite(given.value):
        raise bad("InvalidRewardRequest", "value must be a number")
    again = header(scope, b"x-ms-client-request-id")
    if again is not None and len(again) > 256:
        raise bad("InvalidRewardRequest", "x-ms-client-request-id must have at most 256 bytes")
    request = None if again is None else again.decode("latin-1")
    put = PutReward(loop.id, ask.event, given.value, now_us(), loop.terms, request)
    await service.write(put, loop, PATIENCE)
    return b""


def header(scope: Scope, name: bytes) -> bytes | None:
    """A header of a request."""
    for key, value in scope["headers"]:
        if key == name:
            return bytes(value)
    return None


async def body_of(receive: Receive) -> bytes:
    """The body, unless it is too large; no more of it is read than that takes."""
    parts, size, more = [], 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise bad("BadRequest", "the body ended before its length")
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > MOST_BYTES:
            raise bad("PayloadSizeExceeded", f"the body must have at most {MOST_BYTES} bytes")
        more = message.get("more_body", False)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def parsed(read: Callable[[bytes], Result], body: bytes, code: str) -> Result:
    """What a body says, or a sentence on why it says nothing."""
    try:
        return read(body)
    except msgspec.ValidationError as reason:
        raise bad(code, str(reason)) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as reason:
        raise bad(code, f"the body is not JSON: {reason}") from None
