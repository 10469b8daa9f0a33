"""The values that a setting takes, in words: for errors and for the documentation."""

from typing import Any, Literal, get_args, get_origin

import msgspec

ARTICLES = {"integer": "an ", "number": "a ", "duration": "a ", "date": "a "}
MAX_SHOWN_CHARACTERS = 80  # of a value that is refused


def describe_values(field: msgspec.structs.FieldInfo) -> str:
    """The values of a field of `Settings`, such as "number in (0, 1000]"."""
    type_, meta = get_args(field.type)
    return meta.extra["kind"] or _describe_type(type_, meta)


def describe_invalid_setting(field: msgspec.structs.FieldInfo, value: object) -> str:
    """Say which values a setting takes, and which one came."""
    values = describe_values(field)
    article = ARTICLES.get(values.split()[0], "")
    shown = repr(value)[:MAX_SHOWN_CHARACTERS]
    return f"{field.encode_name} must be {article}{values}, got {shown}"


def _describe_type(type_: Any, meta: msgspec.Meta) -> str:
    if get_origin(type_) is Literal:
        return " or ".join(get_args(type_))
    if type_ is bool:
        return "true or false"
    word = "integer" if type_ is int else "number"
    lower = f"({meta.gt:g}" if meta.gt is not None else f"[{meta.ge:.16g}"
    return f"{word} in {lower}, {meta.le:.16g}]"
