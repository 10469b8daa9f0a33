"""The clients against servers that lie, dribble and flood: an own error or the local decision."""

import asyncio
import gzip
import json
import re
import socket
import threading
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from decision_pages import make_decision_page
from windvane.client import AsyncClient, Client, ClientError, RankedDecision, RequestError
from windvane.client.transport import MAX_ANSWER_BYTES

ACTIONS = ["a", "b", "c"]
LENGTH = re.compile(rb"content-length: [1-9]", re.IGNORECASE)
BOMB = gzip.compress(bytes(1 << 27), 1)
DEEP = b"[" * 100_000 + b"]" * 100_000
Request = dict[str, Any]
Parts = Iterator[bytes]


def respond(body: bytes, status: str = "201 Created", **headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"content-length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


def decide(request: Request, **changes: Any) -> bytes:
    """An honest answer to a rank of a, b and c without c, with some fields changed."""
    shares = {"a": 0.25, "b": 0.75, "c": 0.0}
    ranking = [{"id": id_, "probability": share} for id_, share in shares.items()]
    honest = {"ranking": ranking, "eventId": request["eventId"], "rewardActionId": "b"}
    return json.dumps({**honest, **changes}).encode()


def say(**changes: Any) -> Callable[[Request], bytes]:
    return lambda request: respond(decide(request, **changes))


def rank_with(*shares: object, ids: str = "abc") -> Callable[[Request], bytes]:
    ranking = [{"id": id_, "probability": share} for id_, share in zip(ids, shares, strict=True)]
    return say(ranking=ranking)


def replace_text(old: bytes, new: bytes) -> Callable[[Request], bytes]:
    return lambda request: respond(decide(request).replace(old, new))


def encode(how: str, pack: Callable[[bytes], bytes]) -> Callable[[Request], bytes]:
    return lambda request: respond(pack(decide(request)), content_encoding=how)


def flood(opening: bytes, part: bytes) -> Callable[[Request], Parts]:
    """An answer without end, as fast as the client takes it."""

    def answer(request: Request) -> Parts:
        yield opening
        while True:
            yield part

    return answer


def dribble(opening: bytes, part: bytes = b"x") -> Callable[[Request], Parts]:
    """An answer without end, in parts that come long before any time-out of a single read."""

    def answer(request: Request) -> Parts:
        yield opening
        while True:
            threading.Event().wait(0.02)
            yield part

    return answer


CHUNKED = b"HTTP/1.1 201 Created\r\ntransfer-encoding: chunked\r\n\r\n"
LONG = b"HTTP/1.1 201 Created\r\ncontent-length: 1000000000\r\n\r\n"
LOCAL, ERROR, HONEST = "the local decision", "an error", "the answer"

LIES: dict[str, tuple[bytes | Callable[[Request], bytes | Parts], str]] = {
    "nothing is wrong": (say(), HONEST),
    "it says that it is not encoded": (encode("identity", bytes), HONEST),
    "it has one more field": (say(more={"x": [1]}), HONEST),
    # not HTTP
    "it closes": (b"", LOCAL),
    "noise": (b"\x00\xff\x16\x03\x01" * 50, LOCAL),
    "HTTP 0.9": (b"<html>hello</html>", LOCAL),
    "HTTP 2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", LOCAL),
    "a status that is no number": (b"HTTP/1.1 abc OK\r\n\r\n", LOCAL),
    "a status of four digits": (b"HTTP/1.1 2000 OK\r\n\r\n", LOCAL),
    "a negative length": (b"HTTP/1.1 201 C\r\ncontent-length: -5\r\n\r\n", LOCAL),
    "a length of 400 digits": (b"HTTP/1.1 201 C\r\ncontent-length: " + b"9" * 400, LOCAL),
    "two lengths": (b"HTTP/1.1 201 C\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\n", LOCAL),
    "a header of a megabyte": (b"HTTP/1.1 201 C\r\nx: " + b"x" * 10**6 + b"\r\n\r\n", LOCAL),
    "a header with NUL": (b"HTTP/1.1 201 C\r\nx: \x00\r\n\r\n", LOCAL),
    "chunks whose size is no number": (CHUNKED + b"zz\r\nhello\r\n", LOCAL),
    "a chunk of a negative size": (CHUNKED + b"-5\r\nhello\r\n", LOCAL),
    "it switches protocols": (
        b"HTTP/1.1 101 S\r\nupgrade: x\r\n\r\n",
        LOCAL,
    ),
    # too slow
    "the status comes slowly": (dribble(b"HTTP/1.1 201 "), LOCAL),
    "headers come slowly": (dribble(b"HTTP/1.1 201 C\r\n", b"x: y\r\n"), LOCAL),
    "one header comes slowly": (dribble(b"HTTP/1.1 201 C\r\nx: "), LOCAL),
    "early hints come slowly": (dribble(b"", b"HTTP/1.1 103 E\r\n\r\n"), LOCAL),
    "the body comes slowly": (dribble(LONG), LOCAL),
    "chunks come slowly": (dribble(CHUNKED, b"1\r\nx\r\n"), LOCAL),
    "the size of a chunk comes slowly": (dribble(CHUNKED, b"0"), LOCAL),
    "a body without a length comes slowly": (dribble(b"HTTP/1.1 201 C\r\n\r\n"), LOCAL),
    "an error comes slowly": (
        dribble(b"HTTP/1.1 400 B\r\ncontent-length: 1000000000\r\n\r\n"),
        LOCAL,
    ),
    # too much
    "the body has no end": (flood(LONG, b"x" * 65536), LOCAL),
    "chunks have no end": (flood(CHUNKED, b"10000\r\n" + b"x" * 65536 + b"\r\n"), LOCAL),
    "early hints have no end": (flood(b"", b"HTTP/1.1 103 E\r\n\r\n" * 100), LOCAL),
    "the answer has a byte too much": (
        lambda request: respond(decide(request).ljust(MAX_ANSWER_BYTES + 1)),
        LOCAL,
    ),
    "a gzip bomb": (encode("gzip", lambda _: BOMB), LOCAL),
    # encoded
    "gzip": (encode("gzip", gzip.compress), LOCAL),
    "broken gzip": (encode("gzip", lambda body: gzip.compress(body)[:-12] + b"x" * 12), LOCAL),
    "gzip that is none": (encode("gzip", bytes), LOCAL),
    "deflate": (encode("deflate", zlib.compress), LOCAL),
    "gzip twice": (encode("gzip, gzip", lambda b: gzip.compress(gzip.compress(b))), LOCAL),
    "an unknown encoding": (encode("x" * 5000, bytes), LOCAL),
    # not JSON
    "no body": (respond(b"", "204 No Content"), LOCAL),
    "an empty body": (respond(b""), LOCAL),
    "HTML": (respond(b"<html>"), LOCAL),
    "the answer is cut short": (lambda request: respond(decide(request)[:-9]), LOCAL),
    "the body is shorter than its length": (lambda request: respond(decide(request))[:-9], LOCAL),
    "bytes that are no text": (replace_text(b'"b"', b'"\xff\xfe"'), LOCAL),
    "a lone surrogate": (replace_text(b'"b"', rb'"\ud800"'), LOCAL),
    "null": (respond(b"null"), LOCAL),
    "a list": (respond(b"[]"), LOCAL),
    "deep nesting": (respond(DEEP), LOCAL),
    "deep nesting in an unknown field": (replace_text(b'{"ranking"', b'{"x":' + DEEP), LOCAL),
    # not a decision
    "an empty object": (respond(b"{}"), LOCAL),
    "no ranking": (say(ranking=[]), LOCAL),
    "a ranking that is an object": (say(ranking={"a": 1.0}), LOCAL),
    "a probability of 7": (rank_with(7.0, 0.0, 0.0), LOCAL),
    "a negative probability": (rank_with(-0.5, 1.5, 0.0), LOCAL),
    "a probability that is a text": (rank_with("0.25", 0.75, 0.0), LOCAL),
    "a probability that is NaN": (replace_text(b"0.75", b"NaN"), LOCAL),
    "a probability that is null": (replace_text(b"0.75", b"null"), LOCAL),
    "a probability that is too large for a float": (replace_text(b"0.75", b"1e999"), LOCAL),
    "a probability of 400 digits": (replace_text(b"0.75", b"9" * 400), LOCAL),
    "probabilities that sum to a half": (rank_with(0.25, 0.25, 0.0), LOCAL),
    "probabilities that sum to two": (rank_with(1.0, 1.0, 0.0), LOCAL),
    "the chosen action has probability 0": (rank_with(1.0, 0.0, 0.0), LOCAL),
    "an excluded action can be chosen": (rank_with(0.25, 0.5, 0.25), LOCAL),
    "an action comes twice": (rank_with(0.25, 0.5, 0.25, 0.0, ids="abbc"), LOCAL),
    "an action is missing": (rank_with(0.25, 0.75, ids="ab"), LOCAL),
    "another action": (rank_with(0.25, 0.75, 0.0, ids="abd"), LOCAL),
    "one action more": (rank_with(0.25, 0.75, 0.0, 0.0, ids="abcd"), LOCAL),
    "it chooses another action": (say(rewardActionId="d"), LOCAL),
    "it chooses an excluded action": (say(rewardActionId="c"), LOCAL),
    "it chooses a number": (say(rewardActionId=1), LOCAL),
    "the decision of another event": (say(eventId="another"), LOCAL),
    "degraded is a text": (say(degraded="yes"), LOCAL),
    # not now, or never
    "it is busy until a date of no calendar": (
        respond(b"", "503 S", retry_after="Mon, 99 Foo 99999999999 99:99:99 +99999999"),
        LOCAL,
    ),
    "it is busy for 10^400 seconds": (respond(b"", "429 T", retry_after="9" * 400), LOCAL),
    "it is busy and says so in a megabyte": (
        respond(b'{"error":{"message":"%s"}}' % (b"x" * 10**6), "503 S"),
        LOCAL,
    ),
    "it refuses and says so in a megabyte": (
        respond(b'{"error":{"message":"%s"}}' % (b"x" * 10**6), "400 B"),
        ERROR,
    ),
    "it refuses with deep nesting": (respond(b'{"error":' + DEEP + b"}", "400 B"), ERROR),
    "it refuses with a number": (respond(b'{"error":{"message":1e999}}', "403 F"), ERROR),
    "an unknown status": (respond(b"", "799 Unknown"), ERROR),
    "a redirection": (respond(b"", "302 F", location="http://127.0.0.1:1/"), ERROR),
    "a redirection to no address": (respond(b"", "302 F", location="http://[::x"), LOCAL),
    "a redirection without address": (respond(b"", "307 F"), ERROR),
}


@contextmanager
def run_server(answer: Any) -> Iterator[str]:
    """The address of a server that gives every request this answer."""
    stopped = threading.Event()

    def serve(connection: socket.socket) -> None:
        # The time of a client may be over before it has sent all of its request.
        incomplete = (OSError, json.JSONDecodeError)
        with connection, suppress(*incomplete), connection.makefile("rb") as reader:
            length = 0
            for line in reader:
                if line == b"\r\n":
                    break
                if LENGTH.match(line):
                    length = int(line.split()[1])
            else:
                return
            request = json.loads(reader.read(length) if length else b"{}")
            parts = answer(request) if callable(answer) else answer
            for part in [parts] if isinstance(parts, bytes) else parts:
                if stopped.is_set():
                    return
                connection.sendall(part)

    def accept() -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=serve, args=listening.accept()[:1], daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=accept, daemon=True).start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        stopped.set()
        listening.shutdown(socket.SHUT_RDWR)


def check(decide: Callable[[float], RankedDecision], expected: str) -> None:
    if expected == ERROR:
        with pytest.raises(RequestError) as caught:
            decide(20.0)
        assert len(str(caught.value)) < 1000
        return
    decision = decide(20.0 if expected == HONEST else 0.15)
    assert decision.is_local == (expected == LOCAL)
    assert decision.action == ("a" if decision.is_local else "b")
    assert decision.probabilities == ((1.0, 0.0, 0.0) if decision.is_local else (0.25, 0.75, 0.0))


@pytest.mark.parametrize("lie", LIES)
def test_a_lying_server_gets_no_more_than_its_time(lie: str) -> None:
    """A rank returns whatever a server sends, and its decision can be right."""
    answer, expected = LIES[lie]
    with run_server(answer) as url, Client(url) as client:
        check(lambda seconds: client.rank({}, ACTIONS, exclude=["c"], timeout=seconds), expected)


@pytest.mark.parametrize(
    "lie", ["nothing is wrong", "headers come slowly", "chunks have no end", "broken gzip"]
)
def test_a_lying_server_gets_no_more_time_from_the_asynchronous_client(lie: str) -> None:
    answer, expected = LIES[lie]

    async def rank(url: str, seconds: float) -> RankedDecision:
        async with AsyncClient(url) as client:
            return await client.rank({}, ACTIONS, exclude=["c"], timeout=seconds)

    with run_server(answer) as url:
        check(lambda seconds: asyncio.run(rank(url, seconds)), expected)


def test_a_flood_takes_little_memory() -> None:
    """Bytes above the bound are not kept."""
    tracemalloc.start()
    for lie in ("the body has no end", "a gzip bomb"):
        with run_server(LIES[lie][0]) as url, Client(url) as client:
            assert client.rank({}, ACTIONS, timeout=1.0).is_local
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4 * MAX_ANSWER_BYTES


def make_page(after: int, *ids: int) -> bytes:
    return respond(json.dumps(make_decision_page(after, ids)).encode(), "200 OK")


def make_outcomes(*outcomes: tuple[object, object]) -> bytes:
    rewards = [{"eventId": event, "status": status} for event, status in outcomes]
    return respond(json.dumps({"rewards": rewards}).encode(), "200 OK")


@pytest.mark.parametrize(
    ("ask", "answer"),
    [
        (lambda client: client.reward("e", 1.0), make_outcomes()),
        (lambda client: client.reward("e", 1.0), make_outcomes(("f", "learned"))),
        (lambda client: client.reward("e", 1.0), make_outcomes((None, "learned"))),
        (lambda client: client.reward("e", 1.0), make_outcomes(("e", "done"))),
        (lambda client: client.reward("e", 1.0), make_outcomes(("e", "not sent"))),
        (lambda client: client.reward("e", 1.0), make_outcomes(*[("e", "learned")] * 2)),
        (lambda client: list(client.decisions(5)), make_page(3)),
        (lambda client: list(client.decisions(5)), make_page(6, 4)),
        (lambda client: list(client.decisions(5)), make_page(8, 7, 6)),
        (lambda client: list(client.decisions(5)), make_page(9, 7, 7)),
        (lambda client: list(client.decisions(5)), make_page(6, 7)),
        (lambda client: list(client.decisions(5)), make_page(10**400)),
        (lambda client: client.read_decisions(5, limit=1), make_page(8, 6, 7)),
        (lambda client: client.settings(), respond(b"[]", "200 OK")),
        (lambda client: client.settings(), respond(b'{"x":' + DEEP + b"}", "200 OK")),
        (lambda client: client.health(), respond(b'{"status": 1}', "200 OK")),
        (lambda client: client.activate("e"), dribble(b"HTTP/1.1 201 C\r\n", b"x: y\r\n")),
    ],
)
def test_an_answer_that_cannot_be_right_is_an_error_of_the_client(
    ask: Callable[[Client], object], answer: bytes
) -> None:
    with (
        run_server(answer) as url,
        Client(url, timeout=0.15) as client,
        pytest.raises(ClientError) as caught,
    ):
        ask(client)
    assert len(str(caught.value)) < 1000


def test_cookies_of_a_server_are_not_kept() -> None:
    with run_server(lambda request: respond(decide(request), set_cookie="a=1")) as url:
        client = Client(url)
        assert not client.rank({}, ACTIONS).is_local
        assert not client._http.cookies
        client.close()
