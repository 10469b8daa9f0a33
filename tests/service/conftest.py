"""Test clients on localhost: a service without keys refuses all others."""

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session", autouse=True)
def local_test_clients() -> Iterator[None]:
    """Let requests of Starlette's test client come from localhost, unless a test says otherwise."""
    testclient = pytest.importorskip("starlette.testclient", reason="pip install 'windvane[serve]'")
    create = testclient.TestClient.__init__

    def create_local(self: object, app: object, *args: object, **options: object) -> None:
        options = {"base_url": "http://localhost", "client": ("127.0.0.1", 50_000)} | options
        create(self, app, *args, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(testclient.TestClient, "__init__", create_local)
        yield
