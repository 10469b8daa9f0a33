"""The table of settings, from the fields of `Settings`: for flags and for the documentation."""

from typing import Literal, NamedTuple, get_args, get_origin

import msgspec

from windvane.service.loops.setting_values import describe_values
from windvane.service.loops.settings import Settings


class Setting(NamedTuple):
    """One setting as its field describes it."""

    field: str  # of `Settings`
    name: str  # on the wire
    flag: str  # of `windvane loop create`
    type: type[str] | type[int] | type[float] | type[bool]
    kind: str  # the values that it takes, in words
    default: str | int | float | bool
    meaning: str
    fixed: bool  # whether it cannot change after a loop was created


def _describe_field(field: msgspec.structs.FieldInfo) -> Setting:
    type_, meta = get_args(field.type)
    base = str if get_origin(type_) is Literal else type_
    return Setting(
        field=field.name,
        name=field.encode_name,
        flag=meta.extra["flag"],
        type=base,
        kind=describe_values(field),
        default=field.default,
        meaning=meta.extra["meaning"],
        fixed=meta.extra["fixed"],
    )


SETTINGS = tuple(map(_describe_field, msgspec.structs.fields(Settings)))


def format_value(value: object) -> str:
    """A value of a setting as the wire has it, without the quotes of a text."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def document_settings() -> list[dict[str, str]]:
    """A row of documentation for each setting: name, flag, type, default, meaning."""
    return [
        {
            "name": setting.name,
            "flag": setting.flag,
            "type": setting.kind,
            "default": format_value(setting.default),
            "meaning": setting.meaning + (" Fixed at creation." if setting.fixed else ""),
        }
        for setting in SETTINGS
    ]
