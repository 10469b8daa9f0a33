"""`Client` and `AsyncClient`: the same operations, with a wait or with `await`."""

import asyncio
import inspect
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from functools import update_wrapper
from typing import Any, Concatenate, ParamSpec, Self, TypeVar, get_args

import httpx2 as httpx

from windvane.client import operations
from windvane.client.operations import (
    MAX_PAGE_DECISIONS,
    MAX_WAIT_SECONDS,
    ClientSettings,
    Operation,
)
from windvane.client.results import ClientError, LoggedDecision
from windvane.client.transport import (
    Attempts,
    Call,
    TimeLeft,
    build_request,
    describe_failure,
    judge_response,
    make_delivery_error,
)

LOCAL_SERVER = "http://127.0.0.1:8787"
TIMEOUT_SECONDS = 10.0
RANK_TIMEOUT_SECONDS = 1.0

Result = TypeVar("Result")
Options = ParamSpec("Options")
Method = TypeVar("Method", bound=Callable[..., object])


def _document(method: Method, operation: Callable[..., object]) -> Method:
    """Give a method the name, the parameters, the result and the docstring of its operation."""
    update_wrapper(method, operation)
    signature = inspect.signature(operation)
    result = get_args(signature.return_annotation)[-1]
    vars(method)["__signature__"] = signature.replace(return_annotation=result)
    return method


def _wait_for(
    operation: Callable[Concatenate[ClientSettings, Options], Operation[Result]],
) -> "Callable[Concatenate[Client, Options], Result]":
    """Make a method that returns the result of an operation."""

    def call(client: "Client", /, *args: Options.args, **options: Options.kwargs) -> Result:
        return client._run(operation(client, *args, **options))

    return _document(call, operation)


def _await(
    operation: Callable[Concatenate[ClientSettings, Options], Operation[Result]],
) -> "Callable[Concatenate[AsyncClient, Options], Coroutine[Any, Any, Result]]":
    """Make a method to await, for the result of an operation."""

    async def call(
        client: "AsyncClient", /, *args: Options.args, **options: Options.kwargs
    ) -> Result:
        return await client._run(operation(client, *args, **options))

    return _document(call, operation)


class Client(ClientSettings):
    """A client of one or several servers on the same log.

    Threads may share a client. Processes may not: make one in each. `timeout` and `rank_timeout`
    are seconds for a request with all its repetitions. `http` is an `httpx2.Client` for other
    settings of TLS or proxies; it is not closed.

    >>> from windvane.client import Client
    >>> with Client(["http://127.0.0.1:9", "http://127.0.0.1:19"], rank_timeout=0.2) as client:
    ...     decision = client.rank({"device": "phone"}, ["news", "match"])  # nobody is there
    >>> decision.action, decision.probability, decision.degraded
    ('news', 1.0, True)
    """

    rank = _wait_for(operations.rank)
    reward = _wait_for(operations.reward)
    rewards = _wait_for(operations.rewards)
    activate = _wait_for(operations.activate)
    read_decisions = _wait_for(operations.read_decisions)
    settings = _wait_for(operations.settings)
    health = _wait_for(operations.health)

    def __init__(
        self,
        servers: str | Sequence[str] = LOCAL_SERVER,
        *,
        key: str | None = None,
        loop: str = "default",
        timeout: float = TIMEOUT_SECONDS,
        rank_timeout: float = RANK_TIMEOUT_SECONDS,
        http: httpx.Client | None = None,
    ) -> None:
        super().__init__(servers, key, loop, timeout, rank_timeout)
        self._owns_http = http is None
        self._http = httpx.Client() if http is None else http

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections."""
        if self._owns_http:
            self._http.close()

    def decisions(
        self,
        after: int = 0,
        *,
        final: bool = False,
        follow: bool = False,
        loop: str | None = None,
    ) -> Iterator[LoggedDecision]:
        """Iterate over the decisions with an id greater than `after`, in the order of the log.

        With `final`, each decision comes when its reward can no longer change. With `follow`, the
        iteration waits for new decisions without end. After an error, go on from the last id.
        """
        wait = MAX_WAIT_SECONDS if follow else 0.0
        while True:
            page = self.read_decisions(
                after, limit=MAX_PAGE_DECISIONS, wait=wait, final=final, loop=loop
            )
            yield from page.decisions
            if page.after == after and not follow:
                return
            after = page.after

    def _run(self, operation: Operation[Result]) -> Result:
        try:
            call = next(operation)
            while True:
                try:
                    answer = self._send(call)
                except ClientError as error:
                    call = operation.throw(error)
                else:
                    call = operation.send(answer)
        except StopIteration as end:
            result: Result = end.value
            return result

    def _send(self, call: Call) -> Any:
        attempts = Attempts(self._servers, call.timeout, call.wait)
        while (attempt := attempts.plan_next()) is not None:
            time.sleep(attempt.pause_seconds)
            extensions = {"timeout": TimeLeft(attempt.seconds)}
            url = self.servers[attempt.server]
            try:
                response = self._http.send(build_request(url, call, self._headers, extensions))
            except httpx.TransportError as error:
                attempts.note_failure(attempt, describe_failure(error))
                continue
            answer = judge_response(call, attempts, attempt, response)
            if answer is not None:
                return answer.value
        raise make_delivery_error(call, attempts)


class AsyncClient(ClientSettings):
    """A client of one or several servers on the same log, as `Client`, with methods to await.

    An AsyncClient belongs to one event loop of asyncio; its tasks may share it. `http` is an
    `httpx2.AsyncClient` for other settings of TLS or proxies; it is not closed.

    >>> import asyncio
    >>> from windvane.client import AsyncClient
    >>> async def decide() -> str:
    ...     async with AsyncClient("http://127.0.0.1:9", rank_timeout=0.2) as client:
    ...         return (await client.rank({}, ["news", "match"], exclude=["news"])).action
    >>> asyncio.run(decide())  # nobody is there
    'match'
    """

    rank = _await(operations.rank)
    reward = _await(operations.reward)
    rewards = _await(operations.rewards)
    activate = _await(operations.activate)
    read_decisions = _await(operations.read_decisions)
    settings = _await(operations.settings)
    health = _await(operations.health)

    def __init__(
        self,
        servers: str | Sequence[str] = LOCAL_SERVER,
        *,
        key: str | None = None,
        loop: str = "default",
        timeout: float = TIMEOUT_SECONDS,
        rank_timeout: float = RANK_TIMEOUT_SECONDS,
        http: httpx.AsyncClient | None = None,
    ) -> None:
        super().__init__(servers, key, loop, timeout, rank_timeout)
        self._owns_http = http is None
        self._http = httpx.AsyncClient() if http is None else http

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections."""
        if self._owns_http:
            await self._http.aclose()

    async def decisions(
        self,
        after: int = 0,
        *,
        final: bool = False,
        follow: bool = False,
        loop: str | None = None,
    ) -> AsyncIterator[LoggedDecision]:
        """Iterate over the decisions with an id greater than `after`, in the order of the log.

        With `final`, each decision comes when its reward can no longer change. With `follow`, the
        iteration waits for new decisions without end. After an error, go on from the last id.
        """
        wait = MAX_WAIT_SECONDS if follow else 0.0
        while True:
            page = await self.read_decisions(
                after, limit=MAX_PAGE_DECISIONS, wait=wait, final=final, loop=loop
            )
            for decision in page.decisions:
                yield decision
            if page.after == after and not follow:
                return
            after = page.after

    async def _run(self, operation: Operation[Result]) -> Result:
        try:
            call = next(operation)
            while True:
                try:
                    answer = await self._send(call)
                except ClientError as error:
                    call = operation.throw(error)
                else:
                    call = operation.send(answer)
        except StopIteration as end:
            result: Result = end.value
            return result

    async def _send(self, call: Call) -> Any:
        attempts = Attempts(self._servers, call.timeout, call.wait)
        while (attempt := attempts.plan_next()) is not None:
            await asyncio.sleep(attempt.pause_seconds)
            request = build_request(
                self.servers[attempt.server], call, self._headers, {"timeout": {}}
            )
            try:
                async with asyncio.timeout(attempt.seconds):
                    response = await self._http.send(request)
            except (httpx.TransportError, TimeoutError) as error:
                attempts.note_failure(attempt, describe_failure(error))
                continue
            answer = judge_response(call, attempts, attempt, response)
            if answer is not None:
                return answer.value
        raise make_delivery_error(call, attempts)
