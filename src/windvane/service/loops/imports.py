"""Decisions of other systems, as rows of the log of a loop.

They keep their times, so that the half-lives of the loop fade them by their age, and they have the
mode `Imported`. Learning needs no probabilities: those that are not known are NaN in the log.
"""

from collections.abc import Sequence

import msgspec
import numpy as np

from windvane.errors import FeatureError
from windvane.features.packed_features import pack_actions
from windvane.service.clock import to_microseconds
from windvane.service.errors import ServiceError
from windvane.service.loops.learner_model import LearnerModel
from windvane.service.loops.rank_requests import check_event_id, cut_offer
from windvane.service.schemas import ImportedItem
from windvane.service.store.rows import IMPORTED, DecisionRow
from windvane.service.store.writer.decision_operations import ImportedDecision


def make_imported_decision(
    model: LearnerModel, loop: int, round_: int, item: ImportedItem, now: int
) -> ImportedDecision:
    """Check a decision, and make its row; raises a ServiceError."""
    ids = [action.id for action in item.actions]
    at = to_microseconds(item.time)
    check_event_id(item.event_id)
    _require(len(set(ids)) == len(ids), "the ids of the actions must differ", "actions")
    _require(item.reward_action_id in ids, "the action must be offered", "rewardActionId")
    _require(0 <= at <= now, "the time must not lie in the future", "time")
    shares = item.probabilities or [None] * len(ids)
    _require(len(shares) == len(ids), "there must be one for each action", "probabilities")
    _require(all(p is None or 0 <= p <= 1 for p in shares), "must lie in [0, 1]", "probabilities")
    chosen = ids.index(item.reward_action_id)
    offer = msgspec.json.encode(item.actions).decode()
    parts = {
        "contextFeatures": item.context_features,
        "actions": msgspec.Raw(offer.encode()),
        "excludedActions": item.excluded_actions,
    }
    rest, offer_at = cut_offer(msgspec.json.encode(parts).decode(), offer)
    try:
        features = model.encode_action(item.context_features, pack_actions(item.actions), chosen)
    except FeatureError as reason:
        raise ServiceError("rank", str(reason), "features") from None
    decision = DecisionRow(
        loop=loop,
        event_id=item.event_id,
        round=round_,
        at=at,
        mode=IMPORTED,
        deferred=False,
        degraded=False,
        chosen=chosen,
        features=features,
        probabilities=np.array(shares, float).tobytes(),  # None becomes NaN
        actions=msgspec.json.encode(ids).decode(),
        request=rest or "",
        offer=offer,
        offer_at=offer_at,
    )
    return ImportedDecision(decision, item.reward)


def make_imported_decisions(
    model: LearnerModel, loop: int, rounds: Sequence[int], items: Sequence[ImportedItem], now: int
) -> tuple[ImportedDecision, ...]:
    """Make the rows of some decisions; an error names the place of the bad one."""
    rows = []
    for place, (round_, item) in enumerate(zip(rounds, items, strict=True)):
        try:
            rows.append(make_imported_decision(model, loop, round_, item, now))
        except ServiceError as error:
            message = f"decisions[{place}]: {error}"
            raise ServiceError(error.reason, message, error.target) from None
    return tuple(rows)


def _require(holds: bool, demand: str, target: str) -> None:
    if not holds:
        raise ServiceError("rank", f"{target}: {demand}", target)
