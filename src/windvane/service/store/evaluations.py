"""Evaluations in the log: the operations that write them, and the queries that read them."""

import zlib
from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import asdict
from sqlalchemy import ColumnElement, and_, delete, func, insert, select, update

from windvane.service.store.log import LogReader
from windvane.service.store.rows import EvaluationRow
from windvane.service.store.schema import (
    EVALUATION_PART_BYTES,
    RUNNING,
    evaluation_parts,
    evaluations,
)
from windvane.service.store.writer.group_commit import Operation, Transaction

AUTO = "Auto"
MAX_EVALUATIONS_PER_LOOP = 500
MAX_AUTO_EVALUATIONS_PER_LOOP = 24  # the newest stay in the log


class PutEvaluation(Operation[str], frozen=True):
    """Write down what is to be evaluated; returns "created", "exists" or "full".

    Of those that auto-optimisation asks for, the log keeps `MAX_AUTO_EVALUATIONS_PER_LOOP`.
    """

    loop: int
    key: str
    name: str
    type: str
    contract: str
    at: int

    def run(self, transaction: Transaction) -> str:
        connection = transaction.connection
        of_loop = evaluations.c.loop == self.loop
        count = select(func.count()).where(of_loop)
        is_same = and_(of_loop, evaluations.c.key == self.key)
        if connection.scalar(select(evaluations.c.id).where(is_same)) is not None:
            return "exists"
        if self.type == AUTO:
            is_auto = and_(of_loop, evaluations.c.type == AUTO)
            newest = select(evaluations.c.id).where(is_auto).order_by(evaluations.c.id.desc())
            for old in connection.scalars(newest.offset(MAX_AUTO_EVALUATIONS_PER_LOOP - 1)).all():
                _delete(transaction, old)
        elif connection.execute(count).scalar_one() >= MAX_EVALUATIONS_PER_LOOP:
            return "full"
        row = asdict(self)
        row |= {"status": RUNNING, "created": row.pop("at")}
        connection.execute(insert(evaluations), row)
        return "created"


class PutEvaluationPart(Operation[None], frozen=True):
    """Write a part of a result, before `EndEvaluation`; parts without an end count for nothing.

    An evaluation that was deleted gets no parts.
    """

    id: int
    place: int
    blob: bytes

    def run(self, transaction: Transaction) -> None:
        columns = evaluation_parts.c
        own = select(evaluations.c.id).where(evaluations.c.id == self.id)
        if transaction.connection.scalar(own.with_for_update()) is None:
            return
        is_same = and_(columns.evaluation == self.id, columns.place == self.place)
        transaction.connection.execute(delete(evaluation_parts).where(is_same))
        row = {"evaluation": self.id, "place": self.place, "blob": self.blob}
        transaction.connection.execute(insert(evaluation_parts), row)


class EndEvaluation(Operation[bool], frozen=True):
    """Write how an evaluation ended; False if it had ended before, or was deleted."""

    id: int
    status: str
    outcome: str
    at: int

    def run(self, transaction: Transaction) -> bool:
        is_running = and_(evaluations.c.id == self.id, evaluations.c.status == RUNNING)
        change = update(evaluations).where(is_running)
        values = {"status": self.status, "outcome": self.outcome, "ended": self.at}
        return transaction.connection.execute(change.values(values)).rowcount == 1


class DeleteEvaluation(Operation[bool], frozen=True):
    """Delete an evaluation with its result; False if there is none with this id."""

    id: int

    def run(self, transaction: Transaction) -> bool:
        return _delete(transaction, self.id)


def _delete(transaction: Transaction, id_: int) -> bool:
    parts = delete(evaluation_parts).where(evaluation_parts.c.evaluation == id_)
    transaction.connection.execute(parts)
    row = delete(evaluations).where(evaluations.c.id == id_)
    return transaction.connection.execute(row).rowcount == 1


def split_result(id_: int, result: bytes) -> list[PutEvaluationPart]:
    """The operations that write a result of any size, in order."""
    blob = zlib.compress(result)
    size = EVALUATION_PART_BYTES
    return [
        PutEvaluationPart(id_, place, blob[start : start + size])
        for place, start in enumerate(range(0, len(blob), size))
    ]


def read_result(log: LogReader, id_: int) -> bytes:
    """Read the result of an evaluation; empty if it has none."""
    query = select(evaluation_parts.c.blob).where(evaluation_parts.c.evaluation == id_)
    rows = log.fetch_all(query.order_by(evaluation_parts.c.place))
    return zlib.decompress(b"".join(row.blob for row in rows)) if rows else b""


def find_evaluation(log: LogReader, loop: int, key: str) -> EvaluationRow | None:
    """Find an evaluation by its id on the wire; returns None if there is none."""
    if "\0" in key:  # PostgreSQL refuses a query with it
        return None
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
