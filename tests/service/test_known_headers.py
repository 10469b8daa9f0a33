"""Headers that came before are not parsed again, and mean the same as when they were parsed."""

import asyncio
from typing import Any

import pytest

from protocol_connection import RANK, REWARD, Connection, build, play
from windvane.service.event_protocol import EventProtocol
from windvane.service.known_headers import MAX_HEAD_BYTES, MAX_KNOWN, KnownHeaders


@pytest.fixture(autouse=True)
def _nothing_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EventProtocol, "known_headers", KnownHeaders())


class CountingParser:
    """A parser that counts how often it is fed."""

    def __init__(self, connection: Connection) -> None:
        self.count = 0
        self._parser = connection.protocol.parser
        connection.protocol.parser = self  # type: ignore[assignment]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._parser, name)

    def feed_data(self, data: bytes) -> None:
        self.count += 1
        self._parser.feed_data(data)


def test_the_same_headers_are_parsed_once() -> None:
    async def scenario(connection: Connection) -> None:
        parser = CountingParser(connection)
        answers = []
        for body in (b"[1]", b"[2]", b"[3]", b"[4]"):
            answers.append(await connection.send(build(f"{RANK}?loop=news", body)))
        # The parser has to have seen the end of a request before the next one can be known.
        assert parser.count == 2
        assert [answer[-3:] for answer in answers] == [b"[1]", b"[2]", b"[3]", b"[4]"]
        assert len({answer[:-3] for answer in answers}) == 1
        assert b"x-query: loop=news" in answers[3]
        assert connection.app.asked == [f"event rank {RANK} 3"] * 4
        assert connection.state.total_requests == 4
        sent = await connection.send(build(REWARD, b"[5]"))  # another line, the same headers
        assert b"x-query: \r\n" in sent
        assert parser.count == 2
        await connection.send(build(RANK, b"[10]"))  # another size
        await connection.send(build(RANK, b"[6]", "accept: */*"))
        assert parser.count == 4
        asked = [f"event reward {REWARD} 3", f"event rank {RANK} 4", f"event rank {RANK} 3"]
        assert connection.app.asked[4:] == asked

    play(scenario)


def test_a_known_head_has_the_connection_of_its_own_request() -> None:
    async def run() -> None:
        first, second = Connection(), Connection()
        second.protocol.client = ("::1", 7)
        second.protocol.scheme = "https"
        for connection in (first, first, second):
            await connection.send(build(RANK, b"[1]"))
        scopes: list[dict[str, Any]] = []

        async def answer(scope: Any, match: Any, read: Any) -> Any:
            scopes.append(scope)
            scope["client"] = None  # as a proxy may have it: it concerns this request alone
            return await type(second.app).answer_event(second.app, scope, match, read)

        second.app.answer_event = first.app.answer_event = answer  # type: ignore[method-assign]
        parser = CountingParser(second)
        for _ in range(2):
            await second.send(build(RANK, b"[1]"))
        assert parser.count == 0
        assert second.transport.sent.endswith(b"[1]")
        assert [scope["scheme"] for scope in scopes] == ["https", "https"]
        assert scopes[0] is not scopes[1]
        assert scopes[0]["headers"] == [(b"host", b"here"), (b"content-length", b"3")]

    asyncio.run(run())


@pytest.mark.parametrize(
    "pieces",
    [
        [build(RANK, b"[1]")[:-1], b"]"],
        [build(RANK, b"[1]")[:20], build(RANK, b"[1]")[20:]],
        [build(RANK, b"[1]") + build(RANK, b"[1]")],
        [build(RANK, b"[1]") + b"P", build(RANK, b"[1]")[1:]],
    ],
)
def test_parts_of_requests_and_several_at_once_are_parsed(pieces: list[bytes]) -> None:
    async def scenario(connection: Connection) -> None:
        for _ in range(3):
            await connection.send(build(RANK, b"[1]"))
        before = len(connection.app.asked)
        sent = b""
        for piece in pieces:
            sent += await connection.send(piece)
        requests = b"".join(pieces).count(b"POST")
        assert len(connection.app.asked) == before + requests
        assert sent.count(b"HTTP/1.1 20") == requests
        assert (await connection.send(build(RANK, b"[2]"))).endswith(b"[2]")

    play(scenario)


def test_a_known_request_after_the_beginning_of_another_is_a_part_of_that() -> None:
    async def scenario(connection: Connection) -> None:
        for _ in range(3):
            await connection.send(build(RANK, b"[1]"))
        begun = b"GET /healthz HTTP/1.1\r\nhost: here\r\nx-part: "
        await connection.send(build(RANK, b"[1]") + begun)
        await connection.send(build(RANK, b"[1]"))
        assert connection.app.asked[3:] == [f"event rank {RANK} 3", "asgi /healthz 3"]
        await connection.send(build(RANK, b"[1]") + b"P")
        assert b"HTTP/1.1 400 " in await connection.send(build(RANK, b"[1]"))
        assert connection.transport.is_closed
        assert connection.app.asked[5:] == [f"event rank {RANK} 3"]

    play(scenario)


def test_a_request_that_comes_before_the_answer_waits_for_it() -> None:
    async def scenario(connection: Connection) -> None:
        for _ in range(3):
            await connection.send(build(RANK, b"[1]"))
        connection.app.gate.clear()
        assert await connection.send(build(RANK, b"[2]")) == b""
        assert await connection.send(build(RANK, b"[3]")) == b""
        connection.app.gate.set()
        sent = await connection.wait()
        assert sent.index(b"[2]") < sent.index(b"asgi")

    play(scenario)


@pytest.mark.parametrize(
    "request_",
    [
        build(RANK, b"{}", "x-ms-client-request-id: 1"),
        build(RANK, b"{}", f"x-long: {'a' * MAX_HEAD_BYTES}"),
        build(RANK, b"{}", "connection: close"),
        f"POST {RANK} HTTP/1.1\r\nhost: here\r\ntransfer-encoding: chunked\r\n\r\n".encode()
        + b"2\r\n{}\r\n0\r\n\r\n",
    ],
)
def test_headers_that_do_not_come_again_are_not_kept(request_: bytes) -> None:
    async def scenario(connection: Connection) -> None:
        await connection.send(build(RANK, b"[1]"))
        await connection.send(request_)
        assert EventProtocol.known_headers.read(request_) is None

    play(scenario)


def test_an_empty_body_is_empty() -> None:
    async def scenario(connection: Connection) -> None:
        for _ in range(3):
            sent = await connection.send(build(RANK, b""))
            assert sent.endswith(b"x-query: \r\n\r\n")
        assert connection.app.asked == [f"event rank {RANK} 0"] * 3
        assert EventProtocol.known_headers.read(build(RANK, b"")) is not None

    play(scenario)


@pytest.mark.parametrize(
    "request_",
    [
        build("/personalizer/v1.0/nothing", b"[1]"),
        build("/personalizer/v1.0/events/a%2Fb/reward", b"[1]"),
        build(RANK, b"[1]", method="PUT"),
        build(RANK, b"[1]", version="1.0"),
        build(f"{RANK}?loop=%41", b"[1]"),
        build(f"{RANK}#part", b"[1]"),
        build(f"http://here{RANK}", b"[1]"),
    ],
)
def test_unusual_request_lines_are_parsed(request_: bytes) -> None:
    async def scenario(connection: Connection) -> None:
        for _ in range(2):
            await connection.send(build(RANK, b"[1]"))
        parser = CountingParser(connection)
        await connection.send(build(RANK, b"[1]"))
        assert parser.count == 0
        assert await connection.send(request_)
        assert parser.count == 1

    play(scenario)


def test_there_are_never_too_many_headers() -> None:
    requests = [build(RANK, b"{}", f"number: {number}") for number in range(MAX_KNOWN + 3)]

    async def scenario(connection: Connection) -> None:
        for request in requests:
            await connection.send(request)
        known = [request for request in requests if EventProtocol.known_headers.read(request)]
        assert known == requests[-2:]

    play(scenario)
