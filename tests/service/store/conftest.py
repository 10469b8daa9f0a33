"""A store on either database, and a loop in it."""

from collections.abc import Iterator

import pytest

from store_helpers import create_loop
from windvane.service.store.log import Store


@pytest.fixture
def store(where: str) -> Iterator[Store]:
    with Store(where) as store:
        yield store


@pytest.fixture
def loop(store: Store) -> int:
    """The id of the loop `home`."""
    return create_loop(store)
