"""The queries that read many decisions of a loop with their learned rewards.

For an evaluation or an export, decisions are read column by column in batches, in the order of
time. Most decisions of a batch share a few offers, so that the text and the ids of an offer are
read once for a batch.

For a pipeline, they are read page by page, in the order of their ids. Every page is the state of
one moment: a decision and its lessons are read by one statement.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec
from sqlalchemy import and_, exists, func, or_, select

from windvane.service.store.log import LogReader, is_made_between
from windvane.service.store.rows import WHOLE_PAGE, SlotChoice, decode_page, join_request
from windvane.service.store.schema import (
    ACTION_IDS,
    DECISIONS_WITH_OFFERS,
    FIRST_KIND,
    LEARNED_REWARD,
    decisions,
    lessons,
    offers,
    waiting,
)
from windvane.service.store.writer.group_commit import make_gone_error

BATCH_ROWS = 10_000
IDS_PER_QUERY = 500
GAP = "0"  # stands in a request for the offer that was cut out
GAP_BYTES = GAP.encode()


class SlotParts(msgspec.Struct, rename="camel"):
    """What a client sent of a slot."""

    features: msgspec.Raw = msgspec.Raw(b"[]")
    excluded_actions: list[str] = []


class RequestParts(msgspec.Struct, rename="camel"):
    """The parts of a rank request, as the client sent them."""

    actions: msgspec.Raw = msgspec.Raw(b"[]")
    context_features: msgspec.Raw = msgspec.Raw(b"[]")
    excluded_actions: list[str] = []
    slots: list[SlotParts] = []


decode_request_parts = msgspec.json.Decoder(RequestParts).decode


class DecisionColumns(NamedTuple):
    """Decisions with the sums of their lessons, column by column."""

    id: Sequence[int]
    event_id: Sequence[str]
    at: Sequence[int]
    round: Sequence[int]
    mode: Sequence[str]
    chosen: Sequence[int]
    probabilities: Sequence[bytes]
    deferred: Sequence[bool]
    activated_at: Sequence[int | None]
    degraded: Sequence[bool]
    actions: Sequence[str]
    request: Sequence[str]
    offer: Sequence[int | None]
    offer_at: Sequence[int | None]
    slots: Sequence[bytes | None]
    reward: Sequence[float | None]
    first_kind: Sequence[str | None]


class OfferTexts(NamedTuple):
    """The ids of offered actions as JSON, and the actions as the client sent them."""

    ids: str
    actions: str


class SlotLesson(NamedTuple):
    """What the lessons of a slot add up to; None: there is none."""

    reward: float | None = None
    is_default: bool = False


class LoggedPage(NamedTuple):
    """A page with several slots, and what was learned of it."""

    reward_model: str
    slots: Sequence[SlotChoice]
    lessons: Sequence[SlotLesson]  # of each slot
    whole: SlotLesson  # of the page as a whole, if its model is `sum`

    @property
    def rewards(self) -> list[float | None]:
        """The rewards of the slots; nobody looked below the click of a cascade."""
        rewards = [lesson.reward for lesson in self.lessons]
        is_clicked = self.reward_model == "cascade" and any(rewards)
        return [0.0 if reward is None and is_clicked else reward for reward in rewards]

    @property
    def reward(self) -> float | None:
        """The reward of the page; None if that of a slot is not known."""
        rewards = [self.whole.reward] if self.reward_model == "sum" else self.rewards
        known = [reward for reward in rewards if reward is not None]
        return sum(known) if len(known) == len(rewards) else None


def read_pages(log: LogReader, blobs: Mapping[int, bytes | None]) -> dict[int, LoggedPage]:
    """Decode pages and read what was learned of them, by the id of the decision."""
    pages = {id_: decode_page(blob) for id_, blob in blobs.items() if blob is not None}
    ids = list(pages)
    found: dict[tuple[int, int], SlotLesson] = {}
    columns = lessons.c["decision", "slot"]
    query = select(*columns, func.sum(lessons.c.value), func.min(lessons.c.kind)).group_by(*columns)
    for first in range(0, len(ids), IDS_PER_QUERY):
        some = lessons.c.decision.in_(ids[first : first + IDS_PER_QUERY])
        for decision, slot, reward, kind in log.fetch_all(query.where(some)):
            found[decision, slot] = SlotLesson(reward, kind == "default")
    return {
        id_: LoggedPage(
            model,
            slots,
            [found.get((id_, place), SlotLesson()) for place in range(len(slots))],
            found.get((id_, WHOLE_PAGE), SlotLesson()),
        )
        for id_, (model, slots) in pages.items()
    }


class Requests(NamedTuple):
    """The requests of a batch: the distinct offers, and for each row its offer and its context."""

    offers: list[OfferTexts]
    offer_numbers: list[int]  # place of the offer of each row
    contexts: list[str]  # JSON, as the client sent it
    excluded: list[list[str]]  # ids of the excluded actions of each row
    slots: list[list[SlotParts]]  # of each row; empty if it is no page


def count_decisions(
    log: LogReader,
    loop: int,
    since: int | None = None,
    until: int | None = None,
    mode: str | None = None,
) -> int:
    """How many decisions were made in [since, until), of one mode or of all."""
    query = select(func.count()).where(is_made_between(loop, since, until))
    if mode is not None:
        query = query.where(decisions.c.mode == mode)
    return int(log.fetch_value(query))


def iterate_batches(
    log: LogReader, loop: int, since: int | None = None, until: int | None = None
) -> Iterator[tuple[DecisionColumns, Requests]]:
    """Iterate over the decisions that the log has now, made in [since, until), ordered by time."""
    last = log.fetch_value(select(func.max(decisions.c.id)).where(decisions.c.loop == loop))
    query = (
        select(*decisions.c[DecisionColumns._fields[:-2]], LEARNED_REWARD, FIRST_KIND)
        .where(is_made_between(loop, since, until), decisions.c.id <= (last or 0))
        .order_by(decisions.c.at, decisions.c.id)
        .limit(BATCH_ROWS)
    )
    page = query
    while rows := log.fetch_all(page):
        offers_by_id = _read_offers(log, {row.offer for row in rows if row.offer is not None})
        # A decision whose offer is missing was deleted since it was read.
        kept = [row for row in rows if row.offer is None or row.offer in offers_by_id]
        if kept:
            columns = DecisionColumns(*zip(*kept, strict=True))
            yield columns, _split_requests(columns, offers_by_id)
        end = rows[-1]
        is_later = or_(
            decisions.c.at > end.at, and_(decisions.c.at == end.at, decisions.c.id > end.id)
        )
        page = query.where(decisions.c.at >= end.at, is_later)
    if not log.read_positions(loop):  # what is left of a deleted loop is not its log
        raise make_gone_error(loop)


def _split_requests(batch: DecisionColumns, offers_by_id: dict[int | None, OfferTexts]) -> Requests:
    numbers: dict[OfferTexts, int] = {}  # of the distinct offers of the batch
    offer_numbers = []
    contexts = []
    excluded = []
    slots = []
    for request, offer_id, offer_at, actions in zip(
        batch.request, batch.offer, batch.offer_at, batch.actions, strict=True
    ):
        offer, parts = _split_request(request, offers_by_id.get(offer_id), offer_at, actions)
        offer_numbers.append(numbers.setdefault(offer, len(numbers)))
        contexts.append(bytes(parts.context_features).decode())
        excluded.append([] if parts.slots else parts.excluded_actions)
        slots.append(parts.slots)
    return Requests(list(numbers), offer_numbers, contexts, excluded, slots)


def _read_offers(log: LogReader, ids: set[int]) -> dict[int | None, OfferTexts]:
    offer_ids = sorted(ids)
    by_id: dict[int | None, OfferTexts] = {}
    for first in range(0, len(offer_ids), IDS_PER_QUERY):
        chunk = offers.c.id.in_(offer_ids[first : first + IDS_PER_QUERY])
        for row in log.fetch_all(select(*offers.c["id", "ids", "actions"]).where(chunk)):
            by_id[row.id] = OfferTexts(row.ids, row.actions)
    return by_id


def _split_request(
    request: str, offer: OfferTexts | None, offer_at: int | None, action_ids: str
) -> tuple[OfferTexts, RequestParts]:
    """The offer of a decision, and the other parts of its request."""
    if offer is not None:
        parts = decode_request_parts(f"{request[:offer_at]}{GAP}{request[offer_at:]}")
        if bytes(parts.actions) == GAP_BYTES:
            return offer, parts
        action_ids = offer.ids
    # The request has no offer cut out, or the text of its actions occurs elsewhere in it too.
    text = join_request(request, None if offer is None else offer.actions, offer_at)
    parts = decode_request_parts(text)
    return OfferTexts(action_ids, bytes(parts.actions).decode()), parts


PAGE_BYTES = 1 << 21  # of a page of several decisions, about
ROW_BYTES = 300  # of a decision without its actions and probabilities, about
JSON_BYTES_PER_STORED_BYTE = 5  # of probabilities and their names: 8 bytes become about 40


class StreamRow(NamedTuple):
    """The columns of a decision that a pipeline needs, and what its lessons add up to."""

    id: int
    event_id: str
    at: int
    mode: str
    degraded: bool
    activated_at: int | None
    chosen: int
    probabilities: bytes
    actions: str  # JSON list of the ids
    reward: float | None
    first_kind: str | None  # of its lessons, in alphabetical order; None: there is none
    is_waiting: bool
    slots: bytes | None = None


def read_stream_page(log: LogReader, loop: int, after: int, limit: int) -> list[StreamRow]:
    """Read the first decisions with an id greater than `after`, ordered by id.

    The page ends after `limit` decisions, or earlier if it would be large. It has at least one
    decision if there is one.
    """
    last = _find_page_end(log, loop, after, limit)
    if last is None:
        return []
    is_waiting = exists().where(
        waiting.c.loop == decisions.c.loop, waiting.c.decision == decisions.c.id
    )
    query = (
        select(
            *decisions.c["id", "event_id", "at", "mode", "degraded", "activated_at", "chosen"],
            decisions.c.probabilities,
            ACTION_IDS,
            LEARNED_REWARD,
            FIRST_KIND,
            is_waiting.label("is_waiting"),
            decisions.c.slots,
        )
        .select_from(DECISIONS_WITH_OFFERS)
        .where(decisions.c.loop == loop, decisions.c.id > after, decisions.c.id <= last)
        .order_by(decisions.c.id)
    )
    return [StreamRow(*row) for row in log.fetch_all(query)]


def _find_page_end(log: LogReader, loop: int, after: int, limit: int) -> int | None:
    """Find the id of the last decision of a page; None if there is none after `after`."""
    query = (
        select(
            decisions.c.id,
            func.length(func.coalesce(decisions.c.slots, decisions.c.probabilities)),
            func.length(ACTION_IDS.element),
        )
        .select_from(DECISIONS_WITH_OFFERS)
        .where(decisions.c.loop == loop, decisions.c.id > after)
        .order_by(decisions.c.id)
        .limit(limit)
    )
    last = None
    total = 0
    for id_, probability_bytes, name_bytes in log.fetch_all(query):
        total += ROW_BYTES + JSON_BYTES_PER_STORED_BYTE * probability_bytes + name_bytes
        if last is not None and total > PAGE_BYTES:
            break
        last = int(id_)
    return last
