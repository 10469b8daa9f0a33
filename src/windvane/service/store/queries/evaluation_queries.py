"""The queries that read evaluations."""

import zlib
from collections.abc import Sequence
from typing import NamedTuple

from sqlalchemy import ColumnElement, and_, select

from windvane.service.store.log import LogReader
from windvane.service.store.rows import EvaluationRow
from windvane.service.store.schema import evaluation_parts, evaluations
from windvane.service.store.writer.evaluation_operations import RUNNING


def read_result(log: LogReader, id_: int) -> bytes:
    """Read the result of an evaluation; empty if it has none."""
    query = select(evaluation_parts.c.blob).where(evaluation_parts.c.evaluation == id_)
    rows = log.fetch_all(query.order_by(evaluation_parts.c.place))
    return zlib.decompress(b"".join(row.blob for row in rows)) if rows else b""


def find_evaluation(log: LogReader, loop: int, key: str) -> EvaluationRow | None:
    """Find an evaluation by its id on the wire; returns None if there is none."""
    columns = evaluations.c
    rows = _select_rows(log, and_(columns.loop == loop, columns.key == key))
    return rows[0] if rows else None


def list_evaluations(
    log: LogReader, loop: int, type_: str | None = None
) -> Sequence[EvaluationRow]:
    """List the evaluations of a loop, the newest first; `type_` is "Manual" or "Auto"."""
    selected = evaluations.c.loop == loop
    if type_ is not None:
        selected &= evaluations.c.type == type_
    return _select_rows(log, selected)[::-1]


class EvaluationHeading(NamedTuple):
    """An evaluation in a list: all but what was asked for and what was found."""

    key: str
    name: str
    type: str
    status: str
    created: int


def list_newest(log: LogReader, loop: int, limit: int) -> list[EvaluationHeading]:
    """List the newest evaluations of a loop, the newest first."""
    columns = evaluations.c
    query = (
        select(*columns[EvaluationHeading._fields])
        .where(columns.loop == loop)
        .order_by(columns.id.desc())
        .limit(limit)
    )
    return [EvaluationHeading(*row) for row in log.fetch_all(query)]


def list_running(log: LogReader) -> Sequence[EvaluationRow]:
    """List what has not ended yet, of all loops, the oldest first."""
    return _select_rows(log, evaluations.c.status == RUNNING)


def _select_rows(log: LogReader, selected: ColumnElement[bool]) -> list[EvaluationRow]:
    query = select(*evaluations.c[EvaluationRow._fields]).where(selected)
    return [EvaluationRow(*row) for row in log.fetch_all(query.order_by(evaluations.c.id))]
