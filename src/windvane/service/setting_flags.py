"""Command-line flags for a loop's settings, one for each field of `LoopSettings`."""

import inspect
from collections.abc import Callable
from typing import Annotated, Any, get_type_hints

import typer

try:
    from windvane.service.loops.settings import SETTINGS
except ModuleNotFoundError as missing:  # the extra `serve` is not installed
    if (missing.name or "").startswith("windvane"):
        raise
    SETTINGS = ()

Flags = dict[str, str | int | float]  # values of the flags that the command line has, by wire name
# Without the extra, flags are not known, and the command itself says what to install.
CONTEXT = {} if SETTINGS else {"ignore_unknown_options": True, "allow_extra_args": True}


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
