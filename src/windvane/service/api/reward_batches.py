"""Many rewards in one request."""

import msgspec
from starlette.types import Scope

from windvane.service.api.events import EventEndpoint, ReadBody
from windvane.service.api.requests import get_loop_name, parse_body
from windvane.service.errors import EventIdError
from windvane.service.invalid_values import describe_invalid_value
from windvane.service.loops.rank_requests import check_event_id
from windvane.service.loops.service import Service
from windvane.service.schemas import (
    RewardBatchRequest,
    RewardBatchResponse,
    RewardItem,
    RewardOutcome,
)
from windvane.service.store.writer.reward_operations import (
    MAX_REWARDS_PER_EVENT,
    REFUSED,
    RewardEntry,
)

FULL = f"the event has {MAX_REWARDS_PER_EVENT} rewards already, the log keeps no more of it"
_decode_batch = msgspec.json.Decoder(RewardBatchRequest).decode
_decode_item = msgspec.json.Decoder(RewardItem).decode


async def _put_rewards(service: Service, scope: Scope, read: ReadBody) -> bytes:
    loop_name = get_loop_name(scope)
    await service.get_loop(loop_name)
    batch = parse_body(_decode_batch, await read(), "InvalidRewardRequest")
    entries = [_read_entry(raw) for raw in batch.rewards]
    valid = [entry for entry in entries if isinstance(entry, RewardEntry)]
    statuses = iter(await service.put_rewards(loop_name, valid))
    outcomes = [
        _describe(entry, next(statuses)) if isinstance(entry, RewardEntry) else entry
        for entry in entries
    ]
    return msgspec.json.encode(RewardBatchResponse(outcomes))


def _read_entry(raw: msgspec.Raw) -> RewardEntry | RewardOutcome:
    """Read one reward; one that is not valid becomes its outcome."""
    try:
        item = _decode_item(raw)
        check_event_id(item.event_id)
    except msgspec.ValidationError as reason:
        return RewardOutcome(None, "invalid", describe_invalid_value(reason, "the entry"))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, EventIdError) as reason:
        return RewardOutcome(None, "invalid", str(reason))
    if item.request_id is not None and "\0" in item.request_id:
        return RewardOutcome(None, "invalid", "requestId must have no character NUL")
    return RewardEntry(item.event_id, item.value, item.request_id)


def _describe(entry: RewardEntry, status: str) -> RewardOutcome:
    reason = FULL if status == REFUSED else None
    return msgspec.convert(
        {"eventId": entry.event_id, "status": status, "reason": reason}, RewardOutcome
    )


put_rewards = EventEndpoint(200, _put_rewards)
