"""The queries with which monitoring follows the log of a loop."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import and_, func, select

from windvane.service.store.log import LogReader
from windvane.service.store.rows import Funnel, join_request
from windvane.service.store.schema import (
    ACTION_IDS,
    DECISIONS_WITH_OFFERS,
    counters,
    decisions,
    lessons,
    loops,
    offers,
    waiting,
)

BATCH_LOOPS = 500  # in one query


_SELECT_REQUESTS = select(
    *decisions.c["event_id", "request"], offers.c.actions, decisions.c.offer_at
).select_from(DECISIONS_WITH_OFFERS)


_SELECT_SUMMARIES = select(  # what monitoring needs of a decision
    *decisions.c["id", "at", "chosen", "probabilities", "mode", "degraded", "slots"], ACTION_IDS
).select_from(DECISIONS_WITH_OFFERS)


def find_window_start(log: LogReader, loop: int, decision_count: int) -> tuple[int, int]:
    """The last decision and the last lesson (ids) before the newest `decision_count` decisions."""
    ids = select(decisions.c.id).where(decisions.c.loop == loop).order_by(decisions.c.id.desc())
    decision = log.fetch_value(ids.offset(decision_count).limit(1)) or 0
    of_loop = lessons.c.loop == loop
    first = select(func.min(lessons.c.id)).where(of_loop, lessons.c.decision > decision)
    if (first_lesson := log.fetch_value(first)) is not None:
        return decision, first_lesson - 1
    return decision, log.fetch_value(select(func.max(lessons.c.id)).where(of_loop)) or 0


def read_funnels(log: LogReader) -> dict[int, Funnel]:
    """Read the counts of what became of decisions and rewards, by the id of the loop."""
    rows = log.fetch_all(select(counters.c.loop, *counters.c[Funnel._fields]))
    return {row[0]: Funnel(*row[1:]) for row in rows}


def find_last_lesson_times(log: LogReader, loop_ids: Sequence[int]) -> dict[int, int]:
    """Find the time of the last lesson of some loops, by id; a loop without lessons is absent."""
    of_loop = select(lessons.c.at).where(lessons.c.loop == loops.c.id)
    last = of_loop.order_by(lessons.c.id.desc()).limit(1).scalar_subquery()
    times: dict[int, int] = {}
    for first in range(0, len(loop_ids), BATCH_LOOPS):
        ids = loop_ids[first : first + BATCH_LOOPS]
        rows = log.fetch_all(select(loops.c.id, last).where(loops.c.id.in_(ids)))
        times |= {id_: at for id_, at in rows if at is not None}
    return times


def find_first_decision(log: LogReader, loop: int) -> int | None:
    first: int | None = log.fetch_value(
        select(func.min(decisions.c.id)).where(decisions.c.loop == loop)
    )
    return first


def count_observations(log: LogReader, loop: int, after_lesson: int) -> int:
    """Count the lessons after a lesson that give a decision its reward; amendments do not."""
    is_later = and_(lessons.c.loop == loop, lessons.c.id > after_lesson)
    return int(log.fetch_value(select(func.count()).where(is_later, lessons.c.kind != "amend")))


def count_waiting_decisions(log: LogReader, loop: int) -> int:
    return int(log.fetch_value(select(func.count()).where(waiting.c.loop == loop)))


def find_first_waiting(log: LogReader, loop: int) -> int:
    """Find the id of the first decision that waits for its reward, or the first id after all."""
    newest = log.fetch_value(select(func.max(decisions.c.id)).where(decisions.c.loop == loop))
    first = log.fetch_value(select(func.min(waiting.c.decision)).where(waiting.c.loop == loop))
    return int(newest or 0) + 1 if first is None else int(first)


def list_decision_summaries(log: LogReader, loop: int, after: int, limit: int) -> Sequence[Any]:
    """List the first `limit` decisions with an id greater than `after`, ordered by id."""
    query = _SELECT_SUMMARIES.where(decisions.c.loop == loop, decisions.c.id > after)
    return log.fetch_all(query.order_by(decisions.c.id).limit(limit))


def list_contexts(log: LogReader, loop: int, after: int, limit: int) -> list[tuple[int, str]]:
    """List the first `limit` requests after a decision, without the offers that were cut out."""
    columns = decisions.c["id", "request", "offer_at"]
    query = select(*columns).where(decisions.c.loop == loop, decisions.c.id > after)
    rows = log.fetch_all(query.order_by(decisions.c.id).limit(limit))
    return [
        (id_, join_request(request, None if offer_at is None else "null", offer_at))
        for id_, request, offer_at in rows
    ]


def list_recent_decisions(log: LogReader, loop: int, limit: int) -> Sequence[Any]:
    """List the last decisions, newest first."""
    query = _SELECT_SUMMARIES.where(decisions.c.loop == loop)
    return log.fetch_all(query.order_by(decisions.c.id.desc()).limit(limit))


def find_request(log: LogReader, decision: int) -> str | None:
    """Find the JSON text of a decision's request; returns None if the decision was deleted."""
    query = _SELECT_REQUESTS.where(decisions.c.id == decision)
    return next((join_request(*parts) for _, *parts in log.fetch_all(query)), None)


def list_recent_requests(log: LogReader, loop: int, limit: int) -> list[tuple[str, str]]:
    """List the event ids and the JSON of the last rank requests, newest first."""
    query = _SELECT_REQUESTS.where(decisions.c.loop == loop)
    rows = log.fetch_all(query.order_by(decisions.c.id.desc()).limit(limit))
    return [(event_id, join_request(*parts)) for event_id, *parts in rows]
