"""The Python client of the 2022 preview, played against an address; prints what it saw."""

import json
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
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


def wait_for(read: Callable[[], Any]) -> Any:
    """Until it has ended, as the client's own samples wait."""
    end = time.monotonic() + 90
    while (found := read())["status"] in ("Running", "NotSubmitted", "Pending"):
        if time.monotonic() > end:
            raise SystemExit(f"it does not end: {found}")
        time.sleep(0.2)
    return found


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
seen["epsilon"] = admin.update_policy({"name": "x", "arguments": "--cb_explore_adf --epsilon 0.2"})
bad = {"name": "x", "arguments": "--cb_explore_adf -l 0.5"}
seen["bad policy"] = code_of(lambda: admin.update_policy(bad))
seen["reset"] = admin.reset_policy()

dates = admin.get_log_properties()["dateRange"]
since = datetime.fromisoformat(dates["from"]) - timedelta(days=1)
until = datetime.fromisoformat(dates["to"]) + timedelta(days=1)
contract = {
    "name": "sdk",
    "startTime": since.date().isoformat(),
    "endTime": until.date().isoformat() + "T23:59:59Z",
    "policies": [{"name": "custom", "arguments": "--cb_explore_adf --epsilon 0.1"}],
    "enableOfflineExperimentation": False,
}
admin.create_evaluation("evaluation/1", contract)
seen["again"] = code_of(lambda: admin.create_evaluation("evaluation/1", contract))
period = {"start_time": since.astimezone(UTC), "end_time": until.astimezone(UTC)}
seen["evaluation"] = wait_for(lambda: admin.get_evaluation("evaluation/1", **period))
hours = {**period, "interval_in_minutes": 60, "window": "Rolling"}
seen["hours"] = admin.get_evaluation("evaluation/1", **hours)["content"]["intervalInMinutes"]
listed = admin.list_evaluations(filter_expression="metadata=evaluationType eq 'Manual'", top=5)
seen["evaluations"] = [each["id"] for each in listed]
admin.apply_from_evaluation({"evaluationId": "evaluation/1", "policyName": "custom"})
seen["applied"] = admin.get_service_configuration()["explorationPercentage"]
admin.reset_policy()
seen["no policy"] = code_of(
    lambda: admin.apply_from_evaluation({"evaluationId": "evaluation/1", "policyName": "none"})
)
admin.create_feature_importance(
    "importance", {name: contract[name] for name in ("name", "startTime", "endTime")}
)
seen["importance"] = wait_for(lambda: admin.get_feature_importance("importance"))
seen["importances"] = [each["id"] for each in admin.list_feature_importances()]
admin.delete_feature_importance("importance")
admin.delete_evaluation("evaluation/1")
seen["deleted"] = code_of(lambda: admin.get_evaluation("evaluation/1", **period))
print(json.dumps(seen))
