"""What the service's commands share: where the log is, which extra is missing, setting flags."""

import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from windvane.errors import SettingError, StoreError

try:
    from windvane.service.loops.settings import SETTINGS
except ModuleNotFoundError as missing:  # the extra `serve` is not installed
    if (missing.name or "").startswith("windvane"):
        raise
    SETTINGS = ()

if TYPE_CHECKING:
    from windvane.service.store.log import Store

Data = Annotated[Path, typer.Option(envvar="WINDVANE_DATA", help="Directory of the service's log.")]
Database = Annotated[
    str | None,
    typer.Option(envvar="WINDVANE_DATABASE", help="postgresql://... in place of --data."),
]
DEFAULT_DATA = Path("windvane-data")
Flags = dict[str, str | int | float]  # values of the flags that the command line has, by wire name
# Without the extra, flags are not known, and the command itself says what to install.
LOOP_CONTEXT = {} if SETTINGS else {"ignore_unknown_options": True, "allow_extra_args": True}


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


def with_setting_flags(command: Callable[..., None]) -> Callable[..., None]:
    """A command with a flag for each setting in place of its parameter `settings`."""

    def run(**values: Any) -> None:
        flag_values = {setting.name: values.pop(setting.field) for setting in SETTINGS}
        flags: Flags = {name: value for name, value in flag_values.items() if value is not None}
        command(settings=flags, **values)

    hints = get_type_hints(command, include_extras=True)
    parameters: list[inspect.Parameter] = []
    for parameter in inspect.signature(command).parameters.values():
        if parameter.name == "settings":
            parameters += map(_build_flag, SETTINGS)
        else:
            annotation = hints[parameter.name]
            parameters.append(
                parameter.replace(annotation=annotation, kind=inspect.Parameter.KEYWORD_ONLY)
            )
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    run.__doc__ = command.__doc__
    return run


def _build_flag(setting: Any) -> inspect.Parameter:
    return inspect.Parameter(
        setting.field,
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[
            setting.type | None,
            typer.Option(setting.flag, help=setting.meaning, show_default=str(setting.default)),
        ],
    )
