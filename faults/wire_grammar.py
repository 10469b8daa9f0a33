"""A grammar of hostile requests: methods, paths, headers, bodies, encodings and sizes.

Every part is drawn from what is valid, what is almost valid and what is not. Hostile requests name
the loops `victim` and `default`, or loops that do not exist; other loops belong to the innocent.
"""

import json
import random
from collections.abc import Callable
from typing import NamedTuple

METHODS = ("GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH", "TRACE", "CONNECT", "BREW")
ODD_METHODS = (b"get", b"P\x00ST", b"", b"POST POST", b"\xff\xfe", b"G" * 3000)
VERSIONS = (b"HTTP/1.1", b"HTTP/1.1", b"HTTP/1.0")
ODD_VERSIONS = (b"HTTP/2.0", b"HTTP/9.9", b"http/1.1", b"", b"HTTP/1.1 extra", b"\x00")
BASES = (
    "/personalizer/v1.0",
    "/personalizer/v1.1-preview.1",
    "/personalizer/v9.9",
    "/personalizer",
    "//personalizer//v1.0",
)
LOOP_PATHS = (
    "",
    "/loops/victim",
    "/loops/default",
    "/loops/%00",
    "/loops/" + "a" * 400,
    "/loops/..",
)
ENDPOINTS = (
    ("POST", "/rank"),
    ("POST", "/events/{event}/reward"),
    ("POST", "/events/{event}/activate"),
    ("PUT", "/configurations/service"),
    ("GET", "/configurations/service"),
    ("GET", "/configurations/policy"),
    ("GET", "/model"),
    ("GET", "/model/properties"),
    ("DELETE", "/model"),
    ("GET", "/logs/properties"),
    ("DELETE", "/logs"),
)
ENDPOINT_WEIGHTS = (40, 25, 8, 5, 3, 2, 3, 2, 1, 2, 1)
PARTS = (
    "method",
    "path",
    "version",
    "host",
    "headers",
    "body",
    "body",
    "body",
    "body bytes",
    "framing",
    "end",
    "bytes",
)
PLAIN_PATHS = ("/healthz", "/readyz", "/metrics", "/openapi.json", "/loops", "/", "/nowhere")
EVENTS = ("e1", "e2", "%2e%2e", "a%2Fb", "%00", "%ff%fe", "é", "x" * 300, "%F0%9F%8D%A6", "", " ")
QUERIES = (
    "",
    "",
    "",
    "?loop=victim",
    "?loop=victim&loop=default",
    "?loop=",
    "?loop=%00",
    "?" + "q=1&" * 200,
)
ODD_NUMBERS: tuple[object, ...] = (
    0,
    -1,
    1e308,
    -1e308,
    1e-320,
    2**63,
    2**70,
    0.1,
    True,
    None,
    "1",
    "NaN",
    [],
    {},
)
ODD_TEXTS = (
    "",
    " ",
    "\x00",
    "é",
    "𝔘",
    "a" * 257,
    "a" * 5000,
    "../../etc/passwd",
    "' OR 1=1 --",
    "%s%n",
    "\ud800",
)
HEADERS = (
    b"X-Forwarded-For: x",
    b"X-Forwarded-For: 127.0.0.1, 10.0.0.1",
    b"X-Forwarded-Proto: https",
    b"Forwarded: for=_hidden",
    b"Origin: http://evil.example",
    b"Ocp-Apim-Subscription-Key: wrong",
    b"Authorization: Bearer " + b"k" * 500,
    b"x-ms-client-request-id: " + b"r" * 300,
    b"x-ms-client-request-id: \xff\xfe",
    b"Content-Type: text/plain",
    b"Content-Encoding: gzip",
    b"Expect: 100-continue",
    b"Connection: upgrade\r\nUpgrade: websocket",
    b"Connection: close",
    b"Accept: " + b"a/b," * 500,
    b"Range: bytes=0-1",
    b"If-None-Match: *",
    b"Cookie: " + b"c=1;" * 300,
    b"Bad Header: x",
    b": no name",
    b"no colon",
    b"Folded: a\r\n b",
    b"Nul: \x00",
    b"Long: " + b"l" * 70_000,
)
SETTING_VALUES: dict[str, tuple[object, ...]] = {
    "halfLife": ("500 ROUNDS", "1 day", "never", "0 days", "-1 days", "P1Y", 7, None, "∞"),
    "rewardWaitTime": ("PT1S", "00:00:01", "P99999Y", "", 1, "PT-1S"),
    "defaultReward": (0.5, 2.0, -1e300, "0", None),
    "explorationPercentage": (0.2, -0.1, 1.1, "0.1", 1e-320),
    "rewardAggregation": ("sum", "earliest", "SUM", 1),
    "learningMode": ("Online", "Apprentice", "LoggingOnly", "online", None),
    "logRetentionDays": (1, 0, -1, 10**9, 0.5),
    "arraySize": (16, 0, -1, 10**9, "16"),
    "modelRetrainDays": (0, 1, -1, 1e308),
}


class HostileRequest(NamedTuple):
    """The bytes of a request, and how they are sent."""

    data: bytes
    is_complete: bool  # whether the service has all it needs to answer
    is_head: bool  # whether the answer has no body
    pieces: int  # in which the bytes are sent


def draw_request(draw: random.Random) -> HostileRequest:
    """Draw one request: a valid one of which up to four parts are spoiled."""
    spoiled = draw.sample(PARTS, draw.choices((0, 1, 2, 4), (2, 5, 2, 1))[0])
    target = draw_target(draw, spoiled)
    method = target.method.encode()
    if "method" in spoiled:
        method = draw.choice((*(name.encode() for name in METHODS), *ODD_METHODS))
    version = draw.choice(ODD_VERSIONS if "version" in spoiled else VERSIONS)
    headers = [b"Host: 127.0.0.1", b"Content-Type: application/json"]
    if "host" in spoiled:
        headers[:1] = draw.choice(([], [b"Host: evil.example"], [b"Host: "], [b"Host: \xff"]))
    if "headers" in spoiled:
        headers += [draw.choice(HEADERS) for _ in range(draw.choice((1, 2, 5)))]
        if draw.random() < 0.05:
            headers += [b"X-Many-%d: 1" % number for number in range(draw.choice((90, 2000)))]
    body = damage_bytes(draw, target.body) if "body bytes" in spoiled else target.body
    framing, sent_body, is_complete = draw_framing(draw, body, "framing" in spoiled)
    headers += framing
    draw.shuffle(headers)
    head = b" ".join((method, target.path, version))
    data = b"\r\n".join((head, *headers, b"", b"")) + sent_body
    if "end" in spoiled:
        data = data[: draw.randrange(1, len(data) + 1)]
    if "bytes" in spoiled:
        data = damage_bytes(draw, data)
    # Only if its frame is whole must a request be answered; otherwise it may be waited for or cut.
    if not {"method", "version", "headers", "end", "bytes"}.isdisjoint(spoiled):
        is_complete = False
    pieces = draw.choice((1, 1, 1, 1, 2, 7))
    return HostileRequest(data, is_complete, method == b"HEAD", pieces)


class Target(NamedTuple):
    """What a request is about."""

    method: str
    path: bytes
    body: bytes


def draw_target(draw: random.Random, spoiled: list[str]) -> Target:
    """Draw method and path, and a body that the path might expect."""
    if draw.random() < 0.08:
        path = draw.choice(PLAIN_PATHS)
        if path == "/loops" and draw.random() < 0.5:
            return Target("POST", path.encode(), dump_json(draw, draw_loop(draw)))
        return Target("GET", path.encode(), b"")
    method, endpoint = draw.choices(ENDPOINTS, ENDPOINT_WEIGHTS)[0]
    is_odd = "path" in spoiled
    path = draw.choice(LOOP_PATHS) + draw.choice(BASES) if is_odd else f"/loops/victim{BASES[0]}"
    path += endpoint.replace("{event}", draw.choice(EVENTS if is_odd else EVENTS[:2]))
    path += draw.choice(QUERIES) if is_odd else ""
    is_body_odd = "body" in spoiled
    make_body: dict[str, Callable[[random.Random, bool], object]] = {
        "/rank": draw_rank,
        "/events/{event}/reward": draw_reward,
        "/configurations/service": draw_settings,
    }
    body = b""
    if endpoint in make_body and method != "GET":
        body = dump_json(draw, make_body[endpoint](draw, is_body_odd))
    if is_body_odd and draw.random() < 0.2:
        body = draw_odd_body(draw)
    return Target(method, path.encode(), body)


def draw_rank(draw: random.Random, is_odd: bool) -> object:
    """Draw the body of a rank request."""
    count = draw.choices((1, 3, 50, 1000), (3, 10, 3, 0.05))[0]
    if is_odd and draw.random() < 0.1:
        count = draw.choice((0, 0, 0, 10_001))
    actions: list[object] = [
        {"id": f"a{number}", "features": [draw_features(draw, is_odd)]} for number in range(count)
    ]
    body: dict[str, object] = {"actions": actions, "contextFeatures": [draw_features(draw, is_odd)]}
    if draw.random() < 0.5:
        body["eventId"] = draw.choice(("e1", "e2", *map(str, range(1000))))
    if draw.random() < 0.3:
        body["excludedActions"] = ["a1"]
    if draw.random() < 0.3:
        body["deferActivation"] = draw.choice((True, False))
    if is_odd:
        for _ in range(draw.randrange(3)):
            body[draw.choice((*body, "eventId", "excludedActions", "extra"))] = draw_value(draw, 0)
        if draw.random() < 0.3:
            actions.append(draw.choice(({"id": "a0", "features": []}, {"id": 7}, {}, None, [])))
    return body


def draw_features(draw: random.Random, is_odd: bool) -> object:
    """Draw one object of features; an odd one may have any shape."""
    return draw_value(draw, 0) if is_odd and draw.random() < 0.5 else {"x": draw.random()}


def draw_value(draw: random.Random, depth: int) -> object:
    """Draw any JSON value."""
    what = draw.randrange(4 if depth < 4 else 2)
    if what == 0:
        return draw.choice(ODD_NUMBERS)
    if what == 1:
        return draw.choice(ODD_TEXTS)
    if what == 2:
        return [draw_value(draw, depth + 1) for _ in range(draw.randrange(4))]
    names = draw.sample(ODD_TEXTS, draw.randrange(4))
    return {name: draw_value(draw, depth + 1) for name in names}


def draw_reward(draw: random.Random, is_odd: bool) -> object:
    """Draw the body of a reward."""
    value = draw.choice((1.0, 0.5, -1.0, *((2.0, *ODD_NUMBERS, *ODD_TEXTS) if is_odd else ())))
    if is_odd and draw.random() < 0.3:
        return draw.choice(({"value": value, "more": 1}, {}, value, [value]))
    return {"value": value}


def draw_settings(draw: random.Random, is_odd: bool) -> object:
    """Draw changes of settings; the first value of each setting is valid."""
    names = draw.sample(sorted(SETTING_VALUES), draw.randrange(1, 4))
    return {name: draw.choice(SETTING_VALUES[name][: None if is_odd else 1]) for name in names}


def draw_loop(draw: random.Random) -> object:
    """Draw the body that creates a loop; valid names are few, so that there are few loops."""
    name = draw.choice((*ODD_TEXTS, "victim", "other", "default", 7, None))
    return {"name": name, "settings": draw_settings(draw, is_odd=True)}


def draw_odd_body(draw: random.Random) -> bytes:
    """Draw a body that is hardly JSON."""
    return draw.choice(
        (
            b"[" * 100_000,
            b'{"a":' * 5000 + b"1" + b"}" * 5000,
            b"\xef\xbb\xbf{}",
            '{"value": 1.0}'.encode("utf-16"),
            b'{"value": NaN}',
            b'{"value": 1, "value": 2}',
            b'{"value": ' + b"9" * 4000 + b"}",
            b'"\\ud800"',
            b"\x1f\x8b\x08" + bytes(100),
            b"{} {}",
            b" " * 100_000,
            b"x" * 1_200_000,
        )
    )


def draw_framing(draw: random.Random, body: bytes, is_odd: bool) -> tuple[list[bytes], bytes, bool]:
    """Draw how the length of the body is told: headers, bytes to send, whether all is there."""
    if not is_odd and (draw.random() < 0.8 or len(body) > 100_000):
        return [b"Content-Length: %d" % len(body)], body, True
    if not is_odd:
        size = draw.choice((7, 4096))
        parts = [body[start : start + size] for start in range(0, len(body), size)]
        chunks = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts)
        return [b"Transfer-Encoding: chunked"], chunks + b"0\r\n\r\n", True
    odd: tuple[list[bytes], ...] = (
        [b"Content-Length: -1"],
        [b"Content-Length: 1e3"],
        [b"Content-Length: %d" % (len(body) + 100)],
        [b"Content-Length: 99999999999999999999"],
        [b"Content-Length: 1", b"Content-Length: 2"],
        [b"Content-Length: 3", b"Transfer-Encoding: chunked"],
        [b"Transfer-Encoding: gzip, chunked"],
        [b"Transfer-Encoding: chunked"],
        [],
    )
    return draw.choice(odd), body, False


def dump_json(draw: random.Random, value: object) -> bytes:
    """JSON as bytes, sometimes without escapes for what is no ASCII."""
    text = json.dumps(value, ensure_ascii=draw.random() < 0.5)
    return text.encode("utf-8", "surrogatepass")


def damage_bytes(draw: random.Random, data: bytes) -> bytes:
    """Change, remove or insert a few bytes."""
    damaged = bytearray(data)
    for _ in range(draw.choice((1, 1, 2, 8))):
        place = draw.randrange(len(damaged) + 1)
        damaged[place : place + draw.randrange(2)] = draw.randbytes(draw.randrange(3))
    return bytes(damaged)
