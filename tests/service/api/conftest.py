"""A server with one connection for each test, and loops of its own for each test."""

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from browser_pages import start_browser
from loop_client import LoopClient
from server_process import Client, Nursery, Server

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(scope="module")
def server(nursery: Nursery, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(nursery, tmp_path_factory.mktemp("api") / "data") as server:
        yield server


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    with closing(server.client()) as client:
        yield client


@pytest.fixture
def loop(
    server: Server, client: Client, request: pytest.FixtureRequest
) -> Callable[..., LoopClient]:
    """A function that creates loops, named after the test."""

    def create(name: str = "", **settings: object) -> LoopClient:
        return LoopClient(
            server, client, f"{request.node.name[:50].split('[')[0]}{name}", **settings
        )

    return create


@pytest.fixture(scope="module")
def browser() -> "Iterator[Browser]":
    with start_browser() as browser:
        yield browser


@pytest.fixture
def problems() -> list[str]:
    """Errors and dialogs of a page, which a test expects to be none."""
    return []
