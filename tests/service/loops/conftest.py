"""A store on SQLite."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from windvane.service.store.log import Store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path) as store:
        yield store
