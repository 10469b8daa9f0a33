"""The route table: roles, versions, prefixes and methods of every endpoint."""

import json
import re

import pytest

from loop_client import check_refusal
from server_process import BASE, Client
from windvane.service.api.routes import LOOP_ENDPOINTS, VERSIONS, find_needed_role, match_endpoint

MISSING = ("EvaluationNotFound", "FeatureImportanceNotFound")  # codes of paths that exist
BODY = {"actions": [{"id": name, "features": [{"name": name}]} for name in ("ice", "tea")]}


@pytest.mark.parametrize(
    ("method", "path", "role"),
    [
        ("POST", f"{BASE}/rank", "rank"),
        ("POST", "/personalizer/rank", "rank"),
        ("POST", f"/loops/home{BASE}/events/a/b/reward", "rank"),
        ("POST", f"{BASE}/events/e\n1/activate", "rank"),
        ("GET", f"{BASE}/configurations/service", "read"),
        ("GET", "/metrics", "read"),
        ("GET", "/", "read"),
        ("GET", "/healthz", None),
        ("PUT", f"{BASE}/configurations/service", "admin"),
        ("DELETE", f"{BASE}/model", "admin"),
        ("DELETE", f"{BASE}/rank", "admin"),
        ("POST", "/loops", "admin"),
        ("POST", "/loops/rank", "admin"),
        ("POST", "/healthz", "admin"),
    ],
)
def test_every_request_takes_one_role(method: str, path: str, role: str | None) -> None:
    assert find_needed_role(method, match_endpoint(method, path)) == role


@pytest.mark.parametrize("version", [*VERSIONS, ""])
def test_every_version_is_answered_alike(client: Client, version: str) -> None:
    query = "" if version else "?api-version=v1.1-preview.3"
    for prefix in ("", "/loops/default"):
        base = f"{prefix}/personalizer" + (f"/{version}" if version else "")
        ranked = client.call("POST", f"{base}/rank{query}", BODY)
        assert ranked.status == 201
        event = f"{base}/events/{ranked.json['eventId']}"
        assert client.call("POST", f"{event}/activate{query}").status == 204
        rewarded = client.call("POST", f"{event}/reward{query}", {"value": 1})
        assert rewarded.status == 204
        url = rewarded.headers["x-ms-original-url"]
        assert url.endswith(f"/events/{ranked.json['eventId']}/reward")
        assert "personalizer" not in url
        assert client.call("GET", f"{base}/configurations/service{query}").status == 200


@pytest.mark.parametrize(
    ("path", "status"),
    [
        (f"{BASE}/rank?loop=default&loop=other", 400),
        (f"{BASE}/rank?loop=other&loop=default", 400),
        (f"{BASE}/rank?loop=default&%6Coop=other", 400),
        (f"/loops/default{BASE}/rank?loop=other", 400),
        (f"{BASE}/rank?%6Coop=other", 404),
        (f"{BASE}/rank?loop=other", 404),
        (f"{BASE}/rank?loop=", 201),
        (f"{BASE}/rank?loop=default&loop=default", 201),
        (f"/loops/default{BASE}/rank?loop=default", 201),
    ],
)
def test_a_request_names_one_loop(client: Client, path: str, status: int) -> None:
    assert client.call("POST", path, BODY).status == status
    settings = path.replace("/rank", "/configurations/service")
    assert client.call("GET", settings).status == (200 if status == 201 else status)


def fill(path: str) -> str:
    """A path with its parameters filled in."""
    return re.sub(r"{\w+(:path)?}", "e", path)


def test_every_path_refuses_with_the_envelope(client: Client) -> None:
    methods: dict[str, list[str]] = {}
    for endpoint in LOOP_ENDPOINTS:
        methods.setdefault(endpoint.path, []).append(endpoint.method)
    for path, allowed in methods.items():
        filled = fill(path)
        for method in {"GET", "POST", "PUT", "PATCH", "DELETE"} - set(allowed):
            answer = client.call(method, BASE + filled)
            check_refusal(answer, 405)
            assert set(answer.headers["allow"].split(", ")) - {"HEAD"} == set(allowed)
            message = answer.json["error"]["message"]
            assert set(re.findall(r"\b[A-Z]+\b", message)) - {"HEAD"} == set(allowed)
        match = match_endpoint(allowed[0], BASE + filled)
        assert match is not None
        slots = [{"id": "top", "baselineAction": "ice"}]
        body = BODY | {"value": 1, "slots": slots}
        nobody = client.call(allowed[0], f"/loops/none{BASE}{filled}", body)
        check_refusal(nobody, 403 if match.endpoint.refusal else 404)
        deeper = client.call(allowed[0], f"{BASE}{filled}/more")
        check_refusal(deeper, 404)


def test_a_path_that_does_not_exist_is_refused_with_the_place_of_the_list(client: Client) -> None:
    for path in ("/rank", f"{BASE}/rankings", "/loops/home/rank"):
        answer = client.call("POST", path, BODY)
        check_refusal(answer, 404, "ResourceNotFound")
        assert "/openapi.json" in answer.json["error"]["message"]


@pytest.mark.parametrize("path", ["/events//reward", "/events//activate"])
def test_a_path_without_an_event_is_not_found(client: Client, path: str) -> None:
    check_refusal(client.call("POST", BASE + path, {"value": 1}), 404, "ResourceNotFound")


def test_the_document_describes_paths_that_exist_and_schemas_that_resolve(client: Client) -> None:
    document = json.loads(client.call("GET", "/openapi.json").body)
    assert document["openapi"].startswith("3.1")
    for ref in re.findall(r'"#/components/schemas/(\w+)"', json.dumps(document)):
        assert ref in document["components"]["schemas"]
    for path, item in document["paths"].items():
        filled = path.replace("{loop}", "default").replace("{version}", "v1.0")
        filled = re.sub("{.*?}", "e1", filled)
        for method in set(item) - {"parameters"}:
            body = b"{" if "requestBody" in item[method] else b""
            place = filled
            if (method, path) == ("delete", "/loops/{loop}"):  # others need the default loop
                place = "/loops/brief"
                client.call("POST", "/loops", {"name": "brief"})
            answer = client.call(method.upper(), place, body)
            is_missing = answer.status == 404 and answer.json["error"]["code"] in MISSING
            assert is_missing or answer.status not in (404, 405), (method, path)
            assert answer.status < 300 or set(answer.json) == {"error"}
            assert str(answer.status) in item[method]["responses"]
