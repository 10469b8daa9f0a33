"""What the service's commands share: where the log is, how it is opened, which extra is missing."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from windvane.errors import SettingError, StoreError

if TYPE_CHECKING:
    from windvane.service.store.log import Store

Data = Annotated[Path, typer.Option(envvar="WINDVANE_DATA", help="Directory of the service's log.")]
Database = Annotated[
    str | None,
    typer.Option(envvar="WINDVANE_DATABASE", help="postgresql://... in place of --data."),
]
DEFAULT_DATA = Path("windvane-data")


def require_posix(command: str) -> None:
    """Refuse a system without the signals and socket passing that the service needs."""
    if sys.platform == "win32":
        raise SettingError(f"{command}: the service needs Linux, macOS or WSL, got Windows")


def locate(data: Path, database: str | None) -> str:
    """Where the log is: a directory or a URL."""
    return database or str(data)


@contextmanager
def open_store(data: Path, database: str | None, create: bool = False) -> Iterator["Store"]:
    """The log; without `create` it must exist."""
    require_posix("store")
    with needs_extra("serve"):
        from windvane.service.store.database import may_have_log, resolve_url
        from windvane.service.store.log import Store
    where = locate(data, database)
    if not create and not may_have_log(resolve_url(where)):
        raise StoreError(f"store: there is no log in {data}", "unreachable")
    with Store(where) as store:
        yield store


@contextmanager
def needs_extra(name: str) -> Iterator[None]:
    """Name the extra to install if a module is missing."""
    try:
        yield
    except ModuleNotFoundError as missing:
        if (missing.name or "").startswith("windvane"):
            raise
        message = f"{missing.name} is missing: pip install 'windvane[{name}]'"
        raise SettingError(message) from None
