"""The queries that read the decisions of a loop page by page, in the order of their ids.

Every page is the state of one moment: a decision and its lessons are read by one statement.
"""

from typing import NamedTuple

from sqlalchemy import exists, func, select

from windvane.service.store.log import LogReader
from windvane.service.store.schema import (
    ACTION_IDS,
    DECISIONS_WITH_OFFERS,
    decisions,
    lessons,
    waiting,
)

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


def read_stream_page(log: LogReader, loop: int, after: int, limit: int) -> list[StreamRow]:
    """Read the first decisions with an id greater than `after`, ordered by id.

    The page ends after `limit` decisions, or earlier if it would be large. It has at least one
    decision if there is one.
    """
    last = _find_page_end(log, loop, after, limit)
    if last is None:
        return []
    of_decision = lessons.c.decision == decisions.c.id
    is_waiting = exists().where(
        waiting.c.loop == decisions.c.loop, waiting.c.decision == decisions.c.id
    )
    query = (
        select(
            *decisions.c["id", "event_id", "at", "mode", "degraded", "activated_at", "chosen"],
            decisions.c.probabilities,
            ACTION_IDS,
            select(func.sum(lessons.c.value)).where(of_decision).scalar_subquery(),
            select(func.min(lessons.c.kind)).where(of_decision).scalar_subquery(),
            is_waiting.label("is_waiting"),
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
            decisions.c.id, func.length(decisions.c.probabilities), func.length(ACTION_IDS.element)
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
