"""The Python client of the retired service, played against an address; prints what it saw."""

import json
import sys
from collections.abc import Callable
from typing import Any

from azure.cognitiveservices.personalizer import PersonalizerClient, models
from msrest.authentication import CognitiveServicesCredentials
from msrest.exceptions import HttpOperationError

client = PersonalizerClient(sys.argv[1], CognitiveServicesCredentials("key"))
client.config.retry_policy.retries = 0
actions = [
    models.RankableAction(id=name, features=[{"taste": name, "price": price}])
    for name, price in (("pasta", 7), ("soup", 4.5), ("salad", 5))
]


def code_of(call: Callable[[], object]) -> list[object] | None:
    try:
        call()
    except HttpOperationError as error:
        return [error.response.status_code, error.response.json()["error"]["code"]]
    return None


def ranked(event: str, **more: object) -> Any:
    request = models.RankRequest(
        actions=actions, context_features=[{"day": "monday"}], event_id=event, **more
    )
    return client.rank(rank_request=request)


seen: dict[str, Any] = {"events": {}}
for event in json.loads(sys.argv[2]):
    answer = ranked(event, excluded_actions=["soup"], defer_activation=True)
    client.events.activate(event)
    client.events.reward(event, value=0.5)
    seen["events"][answer.event_id] = {
        "chosen": answer.reward_action_id,
        "ranking": {one.id: one.probability for one in answer.ranking},
    }
seen["reward 2"] = code_of(lambda: client.events.reward("e", value=2.0))
seen["unknown"] = code_of(lambda: client.events.activate("nobody knows"))
seen["bad rank"] = code_of(lambda: ranked("e", excluded_actions=["pizza"]))
print(json.dumps(seen))
