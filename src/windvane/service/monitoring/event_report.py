"""The report of one event: what was chosen, with which probabilities, why, and its rewards."""

import numpy as np

from windvane.errors import FeatureError
from windvane.service.loops.loop import Loop
from windvane.service.monitoring.panels import FeatureWeight, PageStruct
from windvane.service.schemas import decode_rank_request
from windvane.service.store.rows import DecisionRow, RewardRow, decode_action_ids
from windvane.types import Floats

SHOWN_REASONS = 12
SHOWN_ACTIONS = 30


class Option(PageStruct, frozen=True):
    """An action of the request: its probability at the decision, its estimated reward now."""

    name: str
    chance: float
    estimate: float | None  # None if the features cannot be encoded
    chosen: bool


class RewardReport(PageStruct, frozen=True):
    """A reward and its outcome, which is a field of `Funnel`."""

    at: int
    value: float
    status: str


class EventReport(PageStruct, frozen=True):
    """A decision, the reason for it, and its rewards."""

    event: str
    at: int
    round: int
    mode: str
    activated: bool
    chosen: str
    chance: float
    explored: bool
    why: str
    options: list[Option]
    left_out: int
    reasons: list[FeatureWeight]  # the parts of the chosen action's current estimate
    rewards: list[RewardReport]


def report_event(loop: Loop, event: str) -> EventReport | None:
    """Report an event of a loop; returns None if the log has no decision with this event id."""
    decision = loop.store.find_decision(loop.id, event)
    if decision is None:
        return None
    return _build_report(loop, decision, loop.store.list_rewards(loop.id, event))


def _build_report(loop: Loop, decision: DecisionRow, rewards: list[RewardRow]) -> EventReport:
    names = decode_action_ids(decision.actions)
    probabilities = np.frombuffer(decision.probabilities)
    chosen = decision.chosen
    estimates, reasons = _estimate_actions(loop, decision)
    order = sorted(range(len(names)), key=lambda k: (k != chosen, -probabilities[k]))
    options = [
        Option(
            name=names[k],
            chance=float(probabilities[k]),
            estimate=estimates[k] if estimates else None,
            chosen=k == chosen,
        )
        for k in order[:SHOWN_ACTIONS]
    ]
    return EventReport(
        event=decision.event_id,
        at=decision.at,
        round=decision.round,
        mode=decision.mode,
        activated=decision.activated_at is not None,
        chosen=names[chosen],
        chance=float(probabilities[chosen]),
        explored=bool(probabilities[chosen] < probabilities.max()),
        why=_explain_choice(decision, names, probabilities),
        options=sorted(options, key=lambda option: -option.chance),
        left_out=len(names) - len(options),
        reasons=reasons,
        rewards=[RewardReport(reward.at, reward.value, reward.status) for reward in rewards],
    )


def _estimate_actions(loop: Loop, decision: DecisionRow) -> tuple[list[float], list[FeatureWeight]]:
    """Compute the current estimate of each action, and the parts of the chosen one's."""
    request = decode_rank_request(decision.whole_request)
    context, actions = request.context_features, request.actions
    try:
        values = loop.model.estimate_actions(context, actions)
        parts = loop.model.explain(context, actions, decision.chosen)
    except FeatureError:  # such a request is answered, but the loop does not learn from it
        return [], []
    reasons = [FeatureWeight(*part) for part in parts[:SHOWN_REASONS] if part.amount]
    return values, reasons


def _explain_choice(decision: DecisionRow, names: list[str], probabilities: Floats) -> str:
    """Say in a sentence or two why this action was chosen."""
    probability = float(probabilities[decision.chosen])
    likeliest = int(probabilities.argmax())
    possible = int(np.count_nonzero(probabilities))
    if decision.degraded:
        return (
            "The log could not be written, so the service took the first action. "
            "The loop learns nothing from it."
        )
    if decision.mode == "Apprentice":
        return "As an apprentice, the loop always takes the first action and learns from it."
    if possible == 1:
        return "No other action could be chosen."
    if probability < probabilities[likeliest]:
        return (
            f"This was exploration: the action had a probability of {probability:.1%}, and "
            f"“{names[likeliest]}” was the most likely one with {probabilities[likeliest]:.1%}. "
            "The loop tries other actions in order to notice changes."
        )
    return f"It was the most likely of {possible} actions, with a probability of {probability:.1%}."
