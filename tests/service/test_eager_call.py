"""A coroutine without a task begins at once, waits as a task would, and can be cancelled."""

import asyncio
import contextvars

from windvane.service.eager_call import EagerCall

NAME: contextvars.ContextVar[str] = contextvars.ContextVar("NAME", default="outside")


def test_a_coroutine_begins_at_once_and_goes_on_after_each_wait() -> None:
    seen: list[str] = []

    async def work(first: asyncio.Future[str], second: asyncio.Future[str]) -> None:
        seen.append("begun")
        seen.append(await first)
        await asyncio.sleep(0)
        seen.append("next turn")
        try:
            await second
        except ValueError as error:
            seen.append(str(error))

    async def run() -> None:
        loop = asyncio.get_running_loop()
        first, second = loop.create_future(), loop.create_future()
        EagerCall(work(first, second), loop).start()
        assert seen == ["begun"]
        first.set_result("first")
        assert seen == ["begun"]  # a future never runs its callbacks at once
        await asyncio.sleep(0)
        assert seen == ["begun", "first"]
        await asyncio.sleep(0)
        assert seen[2:] == ["next turn"]
        second.set_exception(ValueError("second"))
        await asyncio.sleep(0)
        assert seen[3:] == ["second"]

    asyncio.run(run())


def test_each_call_has_a_context_of_its_own() -> None:
    seen: list[str] = []

    async def work(name: str, future: asyncio.Future[None]) -> None:
        NAME.set(name)
        await future
        seen.append(NAME.get())

    async def run() -> None:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        for name in ("a", "b"):
            EagerCall(work(name, future), loop).start()
        assert NAME.get() == "outside"
        future.set_result(None)
        await asyncio.sleep(0)
        assert seen == ["a", "b"]

    asyncio.run(run())


def test_a_call_that_waits_can_be_cancelled() -> None:
    seen: list[str] = []

    async def work(future: asyncio.Future[None]) -> None:
        try:
            await future
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    async def run() -> None:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        call = EagerCall(work(future), loop)
        assert not call.cancel()  # it has not begun
        call.start()
        assert call.cancel(msg="stop")
        await asyncio.sleep(0)
        assert seen == ["cancelled"]
        assert future.cancelled()
        assert not call.cancel()

    asyncio.run(run())
