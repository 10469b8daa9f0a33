"""The stage of all cases: the process that forks services, PostgreSQL, and folders for logs."""

import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import cached_property
from pathlib import Path
from typing import NamedTuple, Self

from postgresql_server import create_database, run_postgresql
from server_process import Nursery


class Site(NamedTuple):
    """Where the log of a case is."""

    data: Path  # the directory of an SQLite log; for PostgreSQL only a name for files beside it
    database: str | None  # the URL of a PostgreSQL database

    @property
    def location(self) -> str:
        """The directory or the URL."""
        return self.database or str(self.data)


class Stage:
    """Starts what cases share when it is first needed, and ends it with the block."""

    def __init__(self, folder: Path, nursery: Nursery | None = None) -> None:
        """`nursery` forks the services, if there is one already."""
        self.folder = folder
        if nursery is not None:
            self.nursery = nursery
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @cached_property
    def nursery(self) -> Nursery:
        """Forks services."""
        nursery = Nursery()
        self._stack.callback(nursery.close)
        return nursery

    @cached_property
    def postgresql(self) -> str:
        """The URL of a PostgreSQL server."""
        return self._stack.enter_context(run_postgresql())

    @contextmanager
    def make_nursery(self, environment: Mapping[str, str]) -> Iterator[Nursery]:
        """A process that forks services with more environment variables."""
        nursery = Nursery(environment)
        try:
            yield nursery
        finally:
            nursery.close()

    def make_site(self, name: str, database: str) -> Site:
        """An empty place for a log."""
        folder = self.folder / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        url = create_database(self.postgresql) if database == "postgresql" else None
        return Site(folder / "data", url)

    def remove_site(self, name: str) -> None:
        """Remove the files of a case."""
        shutil.rmtree(self.folder / name, ignore_errors=True)
