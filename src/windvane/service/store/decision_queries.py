"""Select decisions of the log, with or without their payloads, and make them of the rows."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Select, func, select

from windvane.service.store.decision_codec import get_answer, unpack_features
from windvane.service.store.rows import Decision, LoggedDecision
from windvane.service.store.schema import (
    ACTION_IDS,
    DECISIONS_WITH_OFFERS,
    decisions,
    lessons,
    offers,
)

# The large columns of a decision, and what a decision that is read without them has instead.
PAYLOAD_COLUMNS: dict[str, str | bytes | None] = {
    "actions": "",
    "answer": b"",
    "request": "",
    "offer": None,
    "offer_at": None,
}
LIGHT_COLUMNS = [name for name in Decision._fields if name not in PAYLOAD_COLUMNS]


def select_logged_decisions(with_payloads: bool) -> Select[Any]:
    """Select decisions, the sum of their lessons, and whether that is the default reward."""
    of_decision = lessons.c.decision == decisions.c.id
    return select_decisions(Decision._fields if with_payloads else LIGHT_COLUMNS).add_columns(
        select(func.sum(lessons.c.value)).where(of_decision).scalar_subquery(),
        select(func.min(lessons.c.kind)).where(of_decision).scalar_subquery(),
    )


def select_decisions(names: Sequence[str]) -> Select[Any]:
    """Select fields of decisions; the payloads of a decision with an offer are in the offer."""
    if not set(names) & set(PAYLOAD_COLUMNS):
        return select(*decisions.c[tuple(names)])
    of_offer = {"actions": ACTION_IDS, "offer": offers.c.actions}
    columns = [of_offer[name] if name in of_offer else decisions.c[name] for name in names]
    return select(*columns).select_from(DECISIONS_WITH_OFFERS)


def to_logged_decision(row: Sequence[Any], with_payloads: bool) -> LoggedDecision:
    """The decision of a row of `select_logged_decisions`, with its reward."""
    *columns, reward, first_kind = row
    if with_payloads:
        decision = to_decision(columns)
    else:
        fields: dict[str, Any] = dict(zip(LIGHT_COLUMNS, columns, strict=True))
        decision = _unpack_decision(Decision(**(PAYLOAD_COLUMNS | fields)))
    return LoggedDecision(decision, reward=reward, defaulted=first_kind == "default")


def to_decision(columns: Sequence[Any]) -> Decision:
    """The decision of all its columns, in the order of its fields."""
    decision = _unpack_decision(Decision(*columns))
    return decision._replace(answer=get_answer(decision))


def _unpack_decision(decision: Decision) -> Decision:
    if decision.features is None:
        return decision
    return decision._replace(features=unpack_features(decision.features))
