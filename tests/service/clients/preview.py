"""The Python client of the 2022 preview, played against an address; prints what it saw."""

import json
import sys
from collections.abc import Callable
from typing import Any

from azure.ai.personalizer import PersonalizerAdministrationClient, PersonalizerClient
from azure.core.credentials import AzureKeyCredential
from azure.core.exceptions import HttpResponseError

url = sys.argv[1]
options = {"retry_total": 0}
admin = PersonalizerAdministrationClient(url, AzureKeyCredential("key"), **options)
client = PersonalizerClient(url, AzureKeyCredential("key"), **options)
actions = [
    {"id": name, "features": [{"taste": name, "price": price}]}
    for name, price in (("pasta", 7), ("soup", 4.5), ("salad", 5))
]


def code_of(call: Callable[[], object]) -> list[object] | None:
    try:
        call()
    except HttpResponseError as error:
        body = json.loads(error.response.text())
        return [error.status_code, body["error"]["code"], error.response.headers["x-ms-error-code"]]
    return None


def ranked(event: str, **more: object) -> Any:
    return client.rank(
        {"actions": actions, "contextFeatures": [{"day": "monday"}], "eventId": event, **more}
    )


seen: dict[str, Any] = {"events": {}}
for event in json.loads(sys.argv[2]):
    answer = ranked(event, excludedActions=["soup"], deferActivation=True)
    client.activate(event)
    client.reward(event, {"value": 0.5})
    seen["events"][answer["eventId"]] = {
        "chosen": answer["rewardActionId"],
        "ranking": {one["id"]: one["probability"] for one in answer["ranking"]},
    }
seen["reward 2"] = (code_of(lambda: client.reward("e", {"value": 2.0})) or [])[:2]
seen["unknown"] = (code_of(lambda: client.activate("nobody knows")) or [])[:2]
seen["bad rank"] = (code_of(lambda: ranked("e", excludedActions=["pizza"])) or [])[:2]

settings = admin.get_service_configuration()
changed = {**settings, "isInferenceExplainabilityEnabled": True, "modelRetrainDays": 3,
           "logMirrorEnabled": False, "logMirrorSasUri": ""}  # fmt: skip
seen["settings"] = admin.update_service_configuration(changed)
seen["explanation"] = ranked("explained").get("inferenceExplanation")
admin.update_service_configuration(settings)
policy = admin.get_policy()
seen["policy"] = admin.update_policy(policy)
exported = "--cb_explore_adf --epsilon 0.2 --power_t 0 -l 0.001 --cb_type mtr -q ::"
seen["epsilon"] = admin.update_policy({"name": "x", "arguments": exported})
bad = {"name": "x", "arguments": "--cb_explore_adf --epsilon much"}
seen["bad policy"] = code_of(lambda: admin.update_policy(bad))
enabled = policy["arguments"].replace("--cb_explore_adf", "--ccb_explore_adf")
seen["multislot policy"] = admin.update_policy(
    {"name": "x", "arguments": f"--epsilon 0.2 {enabled}"}
)
slots: list[dict[str, Any]] = [
    {"id": "top", "baselineAction": "pasta", "features": [{"size": "large"}],
     "excludedActions": ["soup"], "positionFeatures": [{"size": "large"}]},
    {"id": "side", "baselineAction": "soup"},
]  # fmt: skip
page = {"actions": actions, "slots": slots, "contextFeatures": [{"day": "monday"}]}
seen["multislot"] = client.rank_multi_slot({**page, "eventId": "page", "deferActivation": True})
client.activate_multi_slot("page")
client.reward_multi_slot("page", {"reward": [{"slotId": "top", "value": 0.5}]})
client.reward_multi_slot("page", {"reward": [{"slotId": "side", "value": 1.0}]})
client.reward("page", {"reward": [{"slotId": "side", "value": 1.0}]})  # as its documentation says
bad_slot = {"reward": [{"slotId": "foot", "value": 1.0}]}
seen["bad slot"] = code_of(lambda: client.reward_multi_slot("page", bad_slot))
seen["reset"] = admin.reset_policy()
print(json.dumps(seen))
