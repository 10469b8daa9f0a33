"""The file format of a saved policy: arrays and JSON, safe to open even if its origin is unknown.

A file is an uncompressed zip archive: `policy.json` with the settings, the counters and a checksum,
and one `.npy` for each array. Reading a file never runs anything that the file contains.
"""

import hashlib
import io
import json
import os
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from windvane._files import replace_file
from windvane.errors import FileError

FORMATS = {  # the name of the format in the file, by class
    "Policy": "windvane policy",
    "DiagonalPolicy": "windvane diagonal policy",
    "GeneralizedPolicy": "windvane generalized policy",
    "Adaptive": "windvane adaptive policy",
    "Learner": "windvane learner",
}
VERSION = 1
HEADER = "policy.json"
Array = np.ndarray[Any, np.dtype[Any]]
Arrays = dict[str, Array]
Header = dict[str, Any]
Target = str | PathLike[str] | BinaryIO


def write(target: Target, header: Header, arrays: Arrays, kind: str = "Policy") -> None:
    """Write a policy to a path or to a binary file that is open for writing.

    A path is replaced atomically: a reader sees the old file or the whole new one.
    """
    contents = {f"{name}.npy": _pack(array) for name, array in arrays.items()}
    full_header = {"format": FORMATS[kind], "version": VERSION, **header}
    full_header["sha256"] = compute_digest(full_header, contents)
    if not isinstance(target, str | PathLike):
        _write_archive(target, full_header, contents)
        return
    folder = Path(target).parent
    if not folder.is_dir():
        raise FileError(f"save: the folder {folder} does not exist")
    with replace_file(target) as draft:
        _write_archive(draft, full_header, contents)


def _write_archive(target: Path | BinaryIO, header: Header, contents: dict[str, bytes]) -> None:
    import zipfile  # imported late: most policies are never saved

    with zipfile.ZipFile(target, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr(HEADER, json.dumps(header))
        for name, content in contents.items():
            archive.writestr(name, content)


def read(source: Target, kind: str = "Policy") -> tuple[Header, Arrays]:
    """Return the header and the arrays of a file of this kind, once its checksum is verified."""
    import zipfile

    who = describe(source)
    if isinstance(source, str | PathLike) and not os.path.exists(source):
        raise FileError(f"{who} does not exist")
    try:
        with zipfile.ZipFile(source) as archive:
            members = archive.infolist()
            if any(member.compress_type != zipfile.ZIP_STORED for member in members):
                raise FileError(f"{who} is not a policy that Windvane saved")
            contents = {member.filename: archive.read(member) for member in members}
    except FileError:
        raise
    except (zipfile.BadZipFile, OSError, EOFError, RuntimeError, ValueError) as reason:
        raise FileError(f"{who} is truncated or not a Windvane file ({reason})") from None
    header = _parse_header(who, contents.pop(HEADER, b""), kind)
    if header.pop("sha256", None) != compute_digest(header, contents):
        raise FileError(f"{who} was changed after it was saved: its checksum does not fit")
    return header, {name.removesuffix(".npy"): _unpack(who, c) for name, c in contents.items()}


def describe(source: Target) -> str:
    """Return how an error message names a file: `load: folder/policy.npz`."""
    if isinstance(source, str | PathLike):
        return f"load: {os.fspath(source)}"
    return "load: the file"


def compute_digest(header: Header, contents: dict[str, bytes]) -> str:
    """Return the SHA-256 checksum of a header and the arrays beside it."""
    digest = hashlib.sha256(json.dumps(header, sort_keys=True).encode())
    for name in sorted(contents):
        digest.update(f"{name} {len(contents[name])}\n".encode())
        digest.update(contents[name])
    return digest.hexdigest()


def _parse_header(who: str, text: bytes, kind: str) -> Header:
    try:
        header = json.loads(text)
    except (ValueError, RecursionError):
        raise FileError(f"{who} is not a policy that Windvane saved") from None
    if not isinstance(header, dict) or header.get("format") not in FORMATS.values():
        raise FileError(f"{who} is not a policy that Windvane saved")
    actual = next(name for name, format_ in FORMATS.items() if format_ == header["format"])
    if actual != kind:
        raise FileError(f"{who} holds a {actual}, not a {kind}: {actual}.load reads it")
    if header.get("version") != VERSION:
        raise FileError(
            f"{who} has format version {header.get('version')!r}, this Windvane reads {VERSION}"
        )
    return header


def _pack(array: Array) -> bytes:
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, array, allow_pickle=False)
    return buffer.getvalue()


def _unpack(who: str, content: bytes) -> Array:
    try:
        return np.lib.format.read_array(io.BytesIO(content), allow_pickle=False)
    except Exception as reason:  # NumPy raises errors of many classes for a malformed header
        raise FileError(f"{who} holds an array that cannot be read: {reason}") from None
