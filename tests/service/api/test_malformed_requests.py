"""Whatever is sent, the service answers in its own words and goes on."""

import json
import random
import string
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from server_process import BASE, Answer, Client, Nursery, Server, send_raw

Json = dict[str, object]
JUNK: list[object] = [None, True, 0, 1.5, 2**70, 1e308, "", "x", [], {}, [[]], {"a": {}}, "é\x00"]
RAW = [
    b"", b"{", b"}", b"null", b"NaN", b"[1,2", b'{"actions":', b"\xff\xfe", b'"\xc3\x28"', b"\x00",
    b'{"value": NaN}', b'{"value": Infinity}', b'{"value": -Infinity}', b'{"value": 1e999}',
    b'{"value": ' + b"9" * 5000 + b"}", b"[" * 100_000, b'{"a":' * 50_000, b"'value'",
    b'{"actions":[{"id":"a","features":[{"x":NaN}]}]}',
    b'{"actions":[{"id":"a","features":[{"x":1e999}]}]}',
    b'{"actions":[{"id":"a","features":[{"x":' + b"[" * 5000 + b"]" * 5000 + b"}]}]}",
    b'{"actions":[{"id":"\xff","features":[]}]}', b'{"actions":[{"id":"\\ud800","features":[]}]}',
    b'{"actions":[{"id":"a","features":[{"x":' + b"7" * 5000 + b"}]}]}",
    b'{"actions":[{"id":"a","features":[{"_x":' + b"[" * 1100 + b"]" * 1100 + b"}]}]}",
    b'{"rewardWaitTime":' + b"[" * 1100 + b"]" * 1100 + b"}",
    b'{"value": 0.5} trailing', b'{"value": "0.5"}', b'{"value": true}', b'{"value": 2}',
    b'{"actions":"' + b"x" * (1 << 17) + b'"}',
]  # fmt: skip
PLACES = [
    ("POST", "/rank"), ("POST", "/events/e/reward"), ("PUT", "/configurations/service"),
]  # fmt: skip
ODD = [
    "/personalizer", "/personalizer/v9/rank", "/personalizer/v1.0/", "/personalizer/v1.0/rank/",
    "/personalizer/v1.0/events//reward", "/personalizer/v1.0/events/%/reward", "/loops//x",
    "/personalizer/v1.0/events/%ff%fe/activate", "/personalizer/v1.0/events/%00/activate",
    "/loops/none/personalizer/v1.0/rank", "/loops/%2e%2e/personalizer/v1.0/rank", "/../../etc",
    "/personalizer/v1.0/events/" + "e" * 300 + "/activate", "/%ff", "//rank", "/%0d%0aX:y",
    "/personalizer/v1.0/multislot/rank", "/personalizer/v1.0/evaluations/%f0", "/rank?%ff=%00",
    "/personalizer/v1.0/events/%ed%a0%80/activate",
]  # fmt: skip


@pytest.fixture(scope="module")
def server(nursery: Nursery, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(nursery, tmp_path_factory.mktemp("malformed") / "data") as server:
        yield server


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[Client]:
    client = server.client(10.0)
    yield client
    client.close()


def valid(draw: random.Random) -> Json:
    names = draw.sample(string.ascii_lowercase, 4)
    return {
        "contextFeatures": [{"hour": 3, "sky": "grey"}],
        "actions": [{"id": name, "features": [{"price": draw.random()}]} for name in names],
        "excludedActions": names[:1],
        "deferActivation": False,
    }


def spoiled(draw: random.Random) -> bytes:
    """A rank that is wrong in one place."""
    body = valid(draw)
    actions = body["actions"]
    assert isinstance(actions, list)
    junk = draw.choice(JUNK)
    kind = draw.randrange(8)
    if kind == 0:
        body["actions"] = draw.choice([None, True, 7, "x", {}, [], [None], [7], [{}], [[]]])
    elif kind == 1:
        actions[1] = {"id": actions[0]["id"], "features": []}
    elif kind == 2:
        body["excludedActions"] = draw.choice([["nobody"], [1], "a", {}, [None], 7])
    elif kind == 3:
        actions[0]["id"] = draw.choice([None, 7, "", "x" * 257, [], {}, True])
    elif kind == 4:
        actions[2]["features"] = draw.choice([None, 7, "x", {}, [7], [[]], [None], ["x"]])
    elif kind == 5:
        actions[2]["features"] = [{"a": {"b": {"c": junk}}}]
    elif kind == 6:
        body["eventId"] = draw.choice([7, "", "x" * 257, [], {}, True])
    else:
        body["excludedActions"] = [action["id"] for action in actions]
    return json.dumps(body).encode()


def refused(answer: Answer, *statuses: int) -> None:
    """The envelope, and its header."""
    assert answer.status in (statuses or (400,)), answer
    error = answer.json["error"]
    assert error["message"]
    assert error["code"] == answer.headers["x-ms-error-code"]


def ranks(client: Client) -> None:
    answer = client.rank(valid(random.Random(1)))
    assert answer.status == 201
    assert not answer.json["degraded"]


def test_a_thousand_malformed_bodies_are_refused_with_the_envelope(client: Client) -> None:
    draw = random.Random(5)
    for number in range(1000):
        if number < len(RAW) * len(PLACES):
            method, path = PLACES[number % len(PLACES)]
            body = RAW[number // len(PLACES)]
            if (path.endswith("service") and b'"value"' in body) or b'"actions":"' in body:
                continue
        elif number % 3:
            (method, path), body = PLACES[0], spoiled(draw)
        else:
            method, path = draw.choice(PLACES)
            whole = json.dumps(valid(draw) if path == "/rank" else {"value": 0.5}).encode()
            body = whole[: draw.randrange(len(whole))]
        headers = {"Content-Type": draw.choice(["application/json", "text/plain", "x", ""])}
        refused(client.call(method, BASE + path, body, headers))
    ranks(client)


def test_a_body_that_is_too_large_is_refused(client: Client) -> None:
    answer = client.rank(b" " * ((1 << 18) + 1))
    refused(answer)
    assert answer.headers["x-ms-error-code"] == "PayloadSizeExceeded"
    ranks(client)


def test_settings_out_of_bounds_are_refused(client: Client) -> None:
    for name, value in [
        ("rewardWaitTime", "soon"), ("rewardWaitTime", "PT0S"), ("rewardWaitTime", 7),
        ("rewardWaitTime", "P999999999999D"), ("halfLife", "0 rounds"), ("halfLife", "9" * 400),
        ("halfLife", "9" * 400 + " days"), ("halfLife", "1" + "0" * 400 + " rounds"),
        ("defaultReward", 2), ("defaultReward", "x"), ("explorationPercentage", -0.1),
        ("logRetentionDays", -2), ("logRetentionDays", 2**70), ("arraySize", 7),
        ("modelRetrainDays", 1e308), ("seed", -1), ("learningMode", "Asleep"),
    ]:  # fmt: skip
        refused(client.call("PUT", f"{BASE}/configurations/service", {name: value}))
    ranks(client)


def test_odd_paths_and_methods_are_refused_with_the_envelope(client: Client) -> None:
    for path in ODD:
        for method in ("GET", "POST", "PUT", "DELETE", "PATCH"):
            body = valid(random.Random(1)) if path.endswith("rank") else None
            refused(client.call(method, path, body), 400, 403, 404, 405)
    for path in ("/rank", "/events/e/reward", "/model/properties", "/logs"):
        refused(client.call("PATCH", BASE + path), 405)
    ranks(client)


def test_bodies_in_chunks_are_read_and_bounded(server: Server, client: Client) -> None:
    head = (
        f"POST {BASE}/rank HTTP/1.1\r\nHost: [::1]\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
    )
    body = json.dumps(valid(random.Random(2))).encode()
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (body[:9], body[9:]))
    assert send_raw(server.port, head + chunks + b"0\r\n\r\n").status == 201
    huge = b"%x\r\n%s\r\n" % (1 << 16, b" " * (1 << 16))
    refused(send_raw(server.port, head + huge * 17 + b"0\r\n\r\n"))
    ranks(client)


def test_connections_that_end_midway_hold_up_nobody(server: Server, client: Client) -> None:
    import socket

    for sent in (
        b"",
        b"POST",
        f"POST {BASE}/rank HTTP/1.1\r\nContent-Length: 99\r\n\r\n{{".encode(),
    ):
        for _ in range(20):
            with socket.create_connection(("127.0.0.1", server.port)) as connection:
                connection.sendall(sent)
    ranks(client)
    assert "Traceback" not in server.log


words = st.text(max_size=12)
numbers = st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**60), 2**60)
plain = st.none() | st.booleans() | numbers | words
lists = st.lists(numbers, max_size=4) | st.lists(words, max_size=4)
values = plain | lists | st.dictionaries(words, plain, max_size=3)
features = st.lists(st.dictionaries(words, values, max_size=4), max_size=2)


@given(
    context=features,
    arms=st.dictionaries(st.text(min_size=1, max_size=20), features, min_size=1, max_size=6),
    data=st.data(),
)
@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_valid_request_is_answered_with_probabilities(
    client: Client, context: list[Json], arms: dict[str, list[Json]], data: st.DataObject
) -> None:
    names = list(arms)
    excluded = data.draw(st.lists(st.sampled_from(names), max_size=len(names) - 1, unique=True))
    answer = client.rank(
        {
            "contextFeatures": context,
            "actions": [{"id": name, "features": arms[name]} for name in names],
            "excludedActions": excluded,
        }
    )
    assert answer.status == 201, answer
    shares = {one["id"]: one["probability"] for one in answer.json["ranking"]}
    assert list(shares) == names
    assert abs(sum(shares.values()) - 1.0) < 1e-9
    assert all(shares[name] == 0.0 for name in excluded)
    assert answer.json["rewardActionId"] in set(names) - set(excluded)
    assert shares[answer.json["rewardActionId"]] > 0.0
