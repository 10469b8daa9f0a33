"""The operations on evaluations."""

import zlib

from sqlalchemy import and_, delete, func, insert, select, update

from windvane.service.store.schema import EVALUATION_PART_BYTES, evaluation_parts, evaluations
from windvane.service.store.writer.group_commit import Operation, Transaction

RUNNING = "Running"
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
        is_same = and_(of_loop, evaluations.c.key == self.key)
        if connection.scalar(select(evaluations.c.id).where(is_same)) is not None:
            return "exists"
        if self.type == AUTO:
            is_auto = and_(of_loop, evaluations.c.type == AUTO)
            newest = select(evaluations.c.id).where(is_auto).order_by(evaluations.c.id.desc())
            for old in connection.scalars(newest.offset(MAX_AUTO_EVALUATIONS_PER_LOOP - 1)).all():
                _delete(transaction, old)
        elif (
            connection.scalar(select(func.count()).where(of_loop)) or 0
        ) >= MAX_EVALUATIONS_PER_LOOP:
            return "full"
        row = {
            "loop": self.loop,
            "key": self.key,
            "name": self.name,
            "type": self.type,
            "contract": self.contract,
            "status": RUNNING,
            "created": self.at,
        }
        connection.execute(insert(evaluations), row)
        return "created"


class PutEvaluationPart(Operation[None], frozen=True):
    """Write a part of a result, before `EndEvaluation`; parts without an end count for nothing."""

    id: int
    place: int
    blob: bytes

    def run(self, transaction: Transaction) -> None:
        columns = evaluation_parts.c
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
