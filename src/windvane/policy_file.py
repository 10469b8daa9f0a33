"""A saved policy: one file of plain arrays and JSON, safe to open whoever made it.

It is an uncompressed zip: `policy.json` with the settings, counters and a checksum, and one `.npy`
for each array. Nothing in it is ever run.
"""

import hashlib
import io
import json
import os
import zipfile
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO
from uuid import uuid4

import numpy as np

from windvane.errors import FileError

FORMATS = {
    "Policy": "windvane policy",
    "GeneralizedPolicy": "windvane generalized policy",
    "Adaptive": "windvane adaptive policy",
}
VERSION = 1
HEADER = "policy.json"
Arrays = dict[str, np.ndarray[Any, np.dtype[Any]]]
Header = dict[str, Any]


def write(
    path: str | PathLike[str] | BinaryIO, header: Header, arrays: Arrays, kind: str = "Policy"
) -> None:
    """Write a file whole or not at all: a reader never sees half of it. An open file is filled."""
    packed = {f"{name}.npy": _pack(array) for name, array in arrays.items()}
    full = {"format": FORMATS[kind], "version": VERSION, **header}
    full["sha256"] = _digest(full, packed)
    if not isinstance(path, str | PathLike):
        _zip(path, full, packed)
        return
    target = Path(path)
    draft = target.with_name(f".{target.name}.{uuid4().hex}.tmp")
    try:
        _zip(draft, full, packed)
        os.replace(draft, target)
    finally:
        draft.unlink(missing_ok=True)


def _zip(target: Path | BinaryIO, header: Header, packed: dict[str, bytes]) -> None:
    with zipfile.ZipFile(target, "w", zipfile.ZIP_STORED) as file:
        file.writestr(HEADER, json.dumps(header))
        for name, content in packed.items():
            file.writestr(name, content)


def read(path: str | PathLike[str] | BinaryIO, kind: str = "Policy") -> tuple[Header, Arrays]:
    """The header and arrays of a file that is whole, of this kind, and as it was written."""
    who = "load: the file"
    if isinstance(path, str | PathLike):
        who = f"load: {os.fspath(path)}"
        if not os.path.exists(path):
            raise FileError(f"{who} does not exist")
    try:
        with zipfile.ZipFile(path) as file:
            if any(member.compress_type != zipfile.ZIP_STORED for member in file.infolist()):
                raise FileError(f"{who} is not a policy that Windvane saved")
            content = {member.filename: file.read(member) for member in file.infolist()}
    except FileError:
        raise
    except (zipfile.BadZipFile, OSError, EOFError, RuntimeError, ValueError) as reason:
        raise FileError(f"{who} is truncated or not a Windvane file ({reason})") from None
    header = _header(who, content.pop(HEADER, b""), kind)
    if header.pop("sha256", None) != _digest(header, content):
        raise FileError(f"{who} was changed after it was saved: its checksum does not fit")
    return header, {name.removesuffix(".npy"): _unpack(who, c) for name, c in content.items()}


def _header(who: str, text: bytes, kind: str) -> Header:
    try:
        header = json.loads(text)
    except (ValueError, RecursionError):
        raise FileError(f"{who} is not a policy that Windvane saved") from None
    if not isinstance(header, dict) or header.get("format") not in FORMATS.values():
        raise FileError(f"{who} is not a policy that Windvane saved")
    found = next(name for name, format_ in FORMATS.items() if format_ == header["format"])
    if found != kind:
        raise FileError(f"{who} holds a {found}, not a {kind}: {found}.load reads it")
    if header.get("version") != VERSION:
        raise FileError(
            f"{who} has format version {header.get('version')!r}, this Windvane reads {VERSION}"
        )
    return header


def _pack(array: np.ndarray[Any, np.dtype[Any]]) -> bytes:
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, array, allow_pickle=False)
    return buffer.getvalue()


def _unpack(who: str, content: bytes) -> np.ndarray[Any, np.dtype[Any]]:
    try:
        return np.lib.format.read_array(io.BytesIO(content), allow_pickle=False)
    except Exception as reason:  # a stranger's header can upset the reader in any way it likes
        raise FileError(f"{who} holds an array that cannot be read: {reason}") from None


def _digest(header: Header, packed: dict[str, bytes]) -> str:
    digest = hashlib.sha256(json.dumps(header, sort_keys=True).encode())
    for name in sorted(packed):
        digest.update(f"{name} {len(packed[name])}\n".encode())
        digest.update(packed[name])
    return digest.hexdigest()
