"""Pages of the stream of decisions, as a server sends them to a client."""

from collections.abc import Iterable


def make_decision_page(after: int, ids: Iterable[int]) -> dict[str, object]:
    """A page of decisions with these ids, which ends at `after`."""
    fields = {
        "time": "2026-01-01T00:00:00Z",
        "mode": "Online",
        "ranking": [{"id": "a", "probability": 1.0}],
        "rewardActionId": "a",
        "degraded": False,
        "isActivated": True,
        "reward": None,
        "isDefaultReward": False,
        "isFinal": False,
    }
    return {
        "decisions": [{"id": id_, "eventId": f"e{id_}", **fields} for id_ in ids],
        "after": after,
    }
