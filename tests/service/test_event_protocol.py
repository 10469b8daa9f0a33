"""Requests of events go to the application at once, others through ASGI; HTTP stays the same."""

import pytest
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT

from protocol_connection import RANK, REWARD, Connection, build, play


def test_an_event_is_answered_in_one_piece() -> None:
    async def scenario(connection: Connection) -> None:
        sent = await connection.send(build(f"{RANK}?loop=news", b'{"a":1}'))
        assert connection.app.asked == [f"event rank {RANK} 7"]
        assert sent == (
            b"HTTP/1.1 201 Created\r\ndate: today\r\nx-query: loop=news\r\n"
            b"content-type: application/json; charset=utf-8\r\ncontent-length: 7\r\n\r\n"
            b'{"a":1}'
        )
        assert connection.state.total_requests == 1
        assert not connection.state.tasks
        sent = await connection.send(build(REWARD, b""))
        assert sent == b"HTTP/1.1 201 Created\r\ndate: today\r\nx-query: \r\n\r\n"
        assert connection.app.asked[-1] == f"event reward {REWARD} 0"

    play(scenario)


def test_a_request_may_arrive_byte_by_byte() -> None:
    async def scenario(connection: Connection) -> None:
        for path in (RANK, RANK, f"{RANK}?loop=a", RANK):
            data = build(path, b"[1, 2]")
            for place in range(len(data) - 1):
                assert await connection.send(data[place : place + 1]) == b""
            assert (await connection.send(data[-1:])).endswith(b"\r\n\r\n[1, 2]")
        assert connection.app.asked == [f"event rank {RANK} 6"] * 4

    play(scenario)


def test_a_chunked_body_is_joined() -> None:
    async def scenario(connection: Connection) -> None:
        head = f"POST {RANK} HTTP/1.1\r\nhost: here\r\ntransfer-encoding: chunked\r\n\r\n"
        sent = await connection.send(head.encode() + b"2\r\n[1\r\n4\r\n, 2]\r\n0\r\n\r\n")
        assert sent.endswith(b"\r\n\r\n[1, 2]")

    play(scenario)


@pytest.mark.parametrize(
    ("request_", "path", "size"),
    [
        (build("/healthz", b"", method="GET"), "/healthz", 0),
        (build(RANK, b"", method="PUT"), RANK, 0),
        (build("/personalizer/v1.0/nothing", b"{}"), "/personalizer/v1.0/nothing", 2),
        (build("/personalizer/v1.0/events/a%2Fb/reward", b"{}"), None, 2),
        (build(RANK, b"{}", version="1.0"), RANK, 2),
        (build(RANK, b"{}", "connection: close"), RANK, 2),
        (build(RANK, b"{}", "expect: 100-continue"), RANK, 2),
        (build(RANK, b" " * (HIGH_WATER_LIMIT + 1)), RANK, HIGH_WATER_LIMIT + 1),
    ],
)
def test_other_and_unusual_requests_go_through_asgi(
    request_: bytes, path: str | None, size: int
) -> None:
    async def scenario(connection: Connection) -> None:
        sent = await connection.send(request_)
        expected = path or "/personalizer/v1.0/events/a/b/reward"
        assert connection.app.asked == [f"asgi {expected} {size}"]
        assert sent.endswith(b"asgi")
        is_last = b"HTTP/1.0" in request_ or b"connection: close" in request_
        assert connection.transport.is_closed == is_last
        if not is_last:
            await connection.send(build(RANK, b"{}"))
            assert connection.app.asked[1:] == [f"event rank {RANK} 2"]

    play(scenario)


def test_pipelined_requests_are_answered_in_order() -> None:
    async def scenario(connection: Connection) -> None:
        connection.app.gate.clear()
        get = build("/healthz", b"", method="GET")
        assert await connection.send(build(RANK, b"1") + get + build(RANK, b"22")) == b""
        assert connection.app.asked == [f"event rank {RANK} 1"]
        connection.app.gate.set()
        sent = await connection.wait()
        assert connection.app.asked == [f"event rank {RANK} 1", "asgi /healthz 0", f"asgi {RANK} 2"]
        assert [part[:3] for part in sent.split(b"HTTP/1.1 ")[1:]] == [b"201", b"200", b"200"]
        assert (await connection.send(build(RANK, b"333"))).endswith(b"333")

    play(scenario)


def test_a_server_that_stops_answers_and_closes() -> None:
    async def scenario(connection: Connection) -> None:
        connection.app.gate.clear()
        await connection.send(build(RANK, b"1"))
        connection.protocol.shutdown()
        assert not connection.transport.is_closed
        connection.app.gate.set()
        sent = await connection.wait()
        assert b"\r\nconnection: close\r\n" in sent
        assert sent.endswith(b"\r\n\r\n1")
        assert connection.transport.is_closed

    play(scenario)


def test_an_answer_that_says_close_closes_the_connection() -> None:
    async def scenario(connection: Connection) -> None:
        connection.app.headers = [(b"connection", b"close")]
        sent = await connection.send(build(RANK, b"1"))
        assert sent.count(b"connection: close") == 1
        assert connection.transport.is_closed

    play(scenario)


def test_nothing_is_sent_to_a_client_that_has_gone() -> None:
    async def scenario(connection: Connection) -> None:
        connection.app.gate.clear()
        await connection.send(build(RANK, b"1"))
        connection.protocol.connection_lost(None)
        connection.app.gate.set()
        assert await connection.wait() == b""
        assert not connection.state.tasks

    play(scenario)


def test_no_header_of_an_answer_has_a_line_break() -> None:
    async def scenario(connection: Connection) -> None:
        connection.app.headers = [(b"x-host", b"a\r\nset-cookie: b")]
        assert b"\r\nx-host: aset-cookie: b\r\n" in await connection.send(build(RANK, b"1"))

    play(scenario)


def test_an_idle_connection_is_closed() -> None:
    async def scenario(connection: Connection) -> None:
        seconds = connection.protocol.timeout_keep_alive
        connection.app.gate.clear()
        await connection.send(build(RANK, b"1"))
        for _ in range(2 * seconds):  # while a request is answered, its connection is not idle
            connection.protocol.tick()
        connection.app.gate.set()
        await connection.wait()
        for _ in range(seconds):
            connection.protocol.tick()
        assert not connection.transport.is_closed
        connection.protocol.tick()
        assert connection.transport.is_closed

    play(scenario)
