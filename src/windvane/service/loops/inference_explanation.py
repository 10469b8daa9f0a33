"""What each feature adds to the estimate of each action, for the answer to a rank request."""

import msgspec

from windvane.errors import FeatureError
from windvane.service.loops.loop import Loop
from windvane.service.loops.offered_actions import Offer
from windvane.service.schemas import (
    ActionExplanation,
    ExplainedRankResponse,
    FeatureScore,
    RankOptions,
    RankResponse,
)

MAX_EXPLAINED_ACTIONS = 50  # the first ones of a request
MAX_EXPLAINED_FEATURES = 100  # of an action, those that add most
_encode_json = msgspec.json.Encoder().encode
_decode_answer = msgspec.json.Decoder(RankResponse).decode


def explain_actions(loop: Loop, request: RankOptions, offer: Offer) -> list[ActionExplanation]:
    """Explain the present estimate of each action; empty if the features cannot be read.

    The scores of an action add up to its estimate, unless some were left out.
    """
    explanations = []
    try:
        for place, action in enumerate(offer.actions[:MAX_EXPLAINED_ACTIONS]):
            parts = loop.model.explain(request.context_features, offer.actions, place)
            scores = [
                FeatureScore(part.name, part.amount)
                for part in parts[:MAX_EXPLAINED_FEATURES]
                if part.amount
            ]
            explanations.append(ActionExplanation(action.id, scores))
    except FeatureError:
        return []
    return explanations


def add_explanation(answer: bytes, explanations: list[ActionExplanation]) -> bytes:
    """The answer to a rank request with explanations."""
    ranked = _decode_answer(answer)
    return _encode_json(
        ExplainedRankResponse(
            ranked.ranking,
            ranked.event_id,
            ranked.reward_action_id,
            ranked.degraded,
            explanations,
        )
    )
