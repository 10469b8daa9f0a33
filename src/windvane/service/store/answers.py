"""The answer of a decision: rendered when it is given, and rebuilt when asked again."""

import msgspec
import numpy as np

from windvane.errors import StoreError
from windvane.service.schemas import Ranked, RankResponse
from windvane.service.store.rows import DecisionRow

_encode_json = msgspec.json.Encoder().encode
decode_action_ids = msgspec.json.Decoder(list[str]).decode  # of a JSON list of action ids


def render_answer(
    event_id: str, action_ids: list[str], probabilities: list[float], chosen: int, degraded: bool
) -> bytes:
    """Render the answer to a rank request; the same decision always has the same bytes."""
    ranking = [*map(Ranked, action_ids, probabilities)]
    return _encode_json(RankResponse(ranking, event_id, action_ids[chosen], degraded))


def get_answer(decision: DecisionRow) -> bytes:
    """Rebuild the answer of a decision from its fields."""
    return rebuild_answer(
        decision.event_id,
        decision.actions,
        decision.probabilities,
        decision.chosen,
        decision.degraded,
    )


def rebuild_answer(
    event_id: str, action_ids_json: str, probabilities: bytes, chosen: int, degraded: bool
) -> bytes:
    """Render the answer of a stored decision, from its columns."""
    try:
        action_ids = decode_action_ids(action_ids_json)
        numbers = np.frombuffer(probabilities).tolist()
        return render_answer(event_id, action_ids, numbers, chosen, degraded)
    except (ValueError, IndexError):
        message = f"store: the log holds a damaged decision of the event {event_id!r}"
        raise StoreError(message, "damaged") from None
