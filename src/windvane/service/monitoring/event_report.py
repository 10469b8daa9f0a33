"""One event: what was chosen, with which chances, why, and what came of it."""

import numpy as np

from windvane.errors import FeatureError
from windvane.service.loops.loop import Loop
from windvane.service.monitoring.panels import PageStruct, Weight
from windvane.service.schemas import decode_rank_request
from windvane.service.store.schema import Decision, Reward, decode_action_ids
from windvane.types import Floats

REASONS = 12
SHOWN = 30  # actions


class Option(PageStruct, frozen=True):
    """An action that could be chosen: its chance then, its estimate xᵀθ̂ now."""

    name: str
    chance: float
    estimate: float | None
    chosen: bool


class Came(PageStruct, frozen=True):
    """A reward and what became of it, a field of `Funnel`."""

    at: int
    value: float
    status: str


class Event(PageStruct, frozen=True):
    """A decision and the reason for it."""

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
    reasons: list[Weight]  # what makes up the estimate of the chosen action, as believed now
    rewards: list[Came]


def look_up(loop: Loop, event: str) -> Event | None:
    """What is known of an event; None where nobody ranked it."""
    decision = loop.store.find_decision(loop.id, event)
    return (
        None if decision is None else told(loop, decision, loop.store.list_rewards(loop.id, event))
    )


def told(loop: Loop, decision: Decision, rewards: list[Reward]) -> Event:
    """A decision with its reason; the estimates are those of the belief of now."""
    request = decode_rank_request(decision.request)
    names, chances = decode_action_ids(decision.actions), np.frombuffer(decision.probabilities)
    theta, chosen = loop.policy.theta, decision.chosen
    estimates: list[float | None] = [None] * len(names)
    reasons: list[Weight] = []
    try:
        rows = loop.encoder.encode(request.context_features, request.actions)
        estimates = [float(value) for value in rows @ theta]
        parts = loop.encoder.explain(theta, request.context_features, request.actions, chosen)
        reasons = [Weight(*part) for part in parts[:REASONS] if part.amount]
    except FeatureError:
        pass  # it was answered all the same, without being learned from
    order = sorted(range(len(names)), key=lambda k: (k != chosen, -chances[k]))[:SHOWN]
    options = [Option(names[k], float(chances[k]), estimates[k], k == chosen) for k in order]
    return Event(
        event=decision.event_id,
        at=decision.at,
        round=decision.round,
        mode=decision.mode,
        activated=decision.activated_at is not None,
        chosen=names[chosen],
        chance=float(chances[chosen]),
        explored=bool(chances[chosen] < chances.max()),
        why=why(decision, names, chances),
        options=sorted(options, key=lambda option: -option.chance),
        left_out=len(names) - len(options),
        reasons=reasons,
        rewards=[Came(reward.at, reward.value, reward.status) for reward in rewards],
    )


def why(decision: Decision, names: list[str], chances: Floats) -> str:
    """Why this action, in a sentence or two."""
    mine, best = float(chances[decision.chosen]), int(chances.argmax())
    open_ = int(np.count_nonzero(chances))
    if decision.degraded:
        return "The log could not be written, so the first action was taken, and nothing learned."
    if decision.mode == "Apprentice":
        return "As an apprentice the loop always takes the first action, and learns from it."
    if open_ == 1:
        return "No other action could be chosen."
    if mine < chances[best]:
        return (
            f"Exploration: it had a chance of {mine:.1%}, and “{names[best]}” was the likeliest "
            f"with {chances[best]:.1%}. Other actions are tried so that change is noticed."
        )
    return f"It was the likeliest of {open_} actions, with a chance of {mine:.1%}."
