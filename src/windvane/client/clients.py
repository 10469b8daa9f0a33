"""`Client` and `AsyncClient`: the same operations, with a wait or with `await`."""

import asyncio
import inspect
import os
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from functools import update_wrapper
from typing import Any, Concatenate, ParamSpec, Self, TypeVar, get_args

from windvane.client import operations
from windvane.client.results import LoggedDecision
from windvane.client.transport import Connection, Operation

Result = TypeVar("Result")
Options = ParamSpec("Options")
Method = TypeVar("Method", bound=Callable[..., object])


def _document(method: Method, operation: Callable[..., object]) -> Method:
    """Give a method the name, the parameters, the result and the docstring of its operation."""
    update_wrapper(method, operation)
    signature = inspect.signature(operation)
    result = get_args(signature.return_annotation)[-1]
    vars(method)["__signature__"] = signature.replace(return_annotation=result)
    method.__annotations__ = {**method.__annotations__, "return": result}
    return method


def _wait_for(
    operation: Callable[Concatenate[Connection, Options], Operation[Result]],
) -> "Callable[Concatenate[Client, Options], Result]":
    """Make a method that returns the result of an operation."""

    def call(client: "Client", /, *args: Options.args, **options: Options.kwargs) -> Result:
        return client._wait_for(operation(client, *args, **options))

    return _document(call, operation)


def _await(
    operation: Callable[Concatenate[Connection, Options], Operation[Result]],
) -> "Callable[Concatenate[AsyncClient, Options], Coroutine[Any, Any, Result]]":
    """Make a method to await, for the result of an operation."""

    async def call(
        client: "AsyncClient", /, *args: Options.args, **options: Options.kwargs
    ) -> Result:
        return await client._perform(operation(client, *args, **options))

    return _document(call, operation)


class Client(Connection):
    """A client of one or several servers on the same log.

    Threads may share a client. Processes may not: make one in each. `timeout` and `rank_timeout`
    are seconds for a request with all its repetitions, whatever the servers do. `http` is an
    `httpx2.AsyncClient` for other settings of TLS or proxies, which this client uses in a thread
    of its own and closes.

    >>> from windvane.client import Client
    >>> with Client(["http://127.0.0.1:9", "http://127.0.0.1:19"], rank_timeout=0.2) as client:
    ...     decision = client.rank({"device": "phone"}, ["news", "match"])  # nobody is there
    >>> decision.action, decision.probability, decision.degraded
    ('news', 1.0, True)
    """

    rank = _wait_for(operations.rank)
    rank_slots = _wait_for(operations.rank_slots)
    reward = _wait_for(operations.reward)
    rewards = _wait_for(operations.rewards)
    activate = _wait_for(operations.activate)
    read_decisions = _wait_for(operations.read_decisions)
    settings = _wait_for(operations.settings)
    health = _wait_for(operations.health)
    request = _wait_for(operations.request)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections."""
        run_in_background(self._http.aclose())

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
        place: int | None = after
        while place is not None:
            found, place = self._wait_for(
                operations.read_next_decisions(self, place, final, follow, loop)
            )
            yield from found

    def _wait_for(self, operation: Operation[Result]) -> Result:
        return run_in_background(self._perform(operation))


class AsyncClient(Connection):
    """A client of one or several servers on the same log, as `Client`, with methods to await.

    An AsyncClient belongs to one event loop of asyncio; its tasks may share it.

    >>> import asyncio
    >>> from windvane.client import AsyncClient
    >>> async def decide() -> str:
    ...     async with AsyncClient("http://127.0.0.1:9", rank_timeout=0.2) as client:
    ...         return (await client.rank({}, ["news", "match"], exclude=["news"])).action
    >>> asyncio.run(decide())  # nobody is there
    'match'
    """

    rank = _await(operations.rank)
    rank_slots = _await(operations.rank_slots)
    reward = _await(operations.reward)
    rewards = _await(operations.rewards)
    activate = _await(operations.activate)
    read_decisions = _await(operations.read_decisions)
    settings = _await(operations.settings)
    health = _await(operations.health)
    request = _await(operations.request)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections."""
        await self._http.aclose()

    async def decisions(
        self,
        after: int = 0,
        *,
        final: bool = False,
        follow: bool = False,
        loop: str | None = None,
    ) -> AsyncIterator[LoggedDecision]:
        """Iterate over decisions as `Client.decisions`, with `async for`."""
        place: int | None = after
        while place is not None:
            found, place = await self._perform(
                operations.read_next_decisions(self, place, final, follow, loop)
            )
            for decision in found:
                yield decision


_background_loops: dict[int, asyncio.AbstractEventLoop] = {}  # by process
_starting = threading.Lock()


def run_in_background(work: Coroutine[Any, Any, Result]) -> Result:
    """Wait for work that an event loop does in a thread of its own, one for each process.

    Only there every limit in time holds: a thread that reads from a socket cannot be stopped.
    """
    with _starting:
        loop = _background_loops.get(os.getpid())
        if loop is None:
            loop = _background_loops[os.getpid()] = asyncio.new_event_loop()
            threading.Thread(target=loop.run_forever, name="windvane-client", daemon=True).start()
    future = asyncio.run_coroutine_threadsafe(work, loop)
    try:
        return future.result()
    finally:
        future.cancel()  # if the wait was interrupted
