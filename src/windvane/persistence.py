"""Copyable and Persistent: what can be copied and pickled; saved, loaded and compared, too.

A saved policy is an uncompressed zip archive: `policy.json` with the settings, the counters and a
checksum, and one `.npy` for each array. It is safe to open even if its origin is unknown: reading
never runs anything that the file contains. Files are replaced atomically: a reader sees the old
file or the whole new one, never a part.
"""

import copy
import errno
import hashlib
import io
import json
import os
import stat
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from os import PathLike
from pathlib import Path
from threading import Lock, RLock
from typing import Any, BinaryIO, ClassVar, Concatenate, ParamSpec, Self, TypeVar
from uuid import uuid4

import numpy as np

from windvane.errors import FileError

FORMATS = {  # the name of the format in the file, by class
    "Policy": "windvane policy",
    "GeneralizedPolicy": "windvane generalized policy",
    "Adaptive": "windvane adaptive policy",
    "Learner": "windvane learner",
}
VERSION = 1
HEADER = "policy.json"
LARGEST_NUMBER = 1e210  # in an array: a sum of squares of numbers up to 1e100
Array = np.ndarray[Any, np.dtype[Any]]
Arrays = dict[str, Array]
Header = dict[str, Any]
Target = str | PathLike[str] | BinaryIO
Result = TypeVar("Result")
Options = ParamSpec("Options")
Owner = TypeVar("Owner", bound="Persistent")


def locked(
    method: Callable[Concatenate[Owner, Options], Result],
) -> Callable[Concatenate[Owner, Options], Result]:
    """Let only one thread at a time be inside the locked methods of an object."""

    @wraps(method)
    def run(owner: Owner, /, *args: Options.args, **options: Options.kwargs) -> Result:
        with owner._lock:
            return method(owner, *args, **options)

    return run


class Copyable:
    """An object with arrays that compiled code changes; a copy binds its own compiled functions."""

    COMPILED: ClassVar[tuple[str, ...]] = ()  # attributes that a copy does not take over

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in self.__dict__.items() if name not in self.COMPILED}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update({name: _own_arrays(value) for name, value in state.items()})
        self._bind_kernels()

    def _bind_kernels(self) -> None:
        """Load the compiled functions that this object calls, into the attributes in COMPILED."""


class Persistent(Copyable, ABC):
    """A policy as an object with settings and a state.

    A copy (`copy.copy`, `copy.deepcopy`, `pickle`) has the same settings and the same state. The
    copy continues with the same choices, and neither of the two changes the other. Two policies are
    equal if class, settings and state are equal: key, round, open rounds and everything learned.

    Threads may share a policy: compiled code runs without the GIL, so a lock lets one of them in.
    """

    COMPILED: ClassVar[tuple[str, ...]] = ("_lock",)
    FILE_KIND: ClassVar[str]  # the kind of a saved file, as FORMATS names it

    def __init__(self) -> None:
        self._lock = RLock()

    @abstractmethod
    def export_settings(self) -> Header:
        """Return the settings as the header of a saved file holds them."""

    @abstractmethod
    def export_state(self) -> tuple[Header, Arrays]:
        """Return everything beyond the settings, as a saved file holds it."""

    @classmethod
    @abstractmethod
    def from_settings(cls, header: Header, arrays: Arrays) -> Self:
        """Make a policy that has learned nothing from the settings in a saved header.

        The arrays bound its size: a small file must not make a large policy.
        """

    @abstractmethod
    def restore_state(self, header: Header, arrays: Arrays) -> None:
        """Take over a saved state if it fits the settings; raise ValueError if it does not."""

    def save(self, path: str | PathLike[str] | BinaryIO) -> None:
        """Write the settings and the whole state to a path or to an open binary file.

        A path is replaced atomically: a reader sees the old file or the whole new one.
        """
        with self._lock:  # not while the file is written, which may take long
            header, arrays = copy.deepcopy(self.export_state())
        write(path, {**self.export_settings(), **header}, arrays, self.FILE_KIND)

    @classmethod
    def load(cls, path: str | PathLike[str] | BinaryIO) -> Self:
        """Return the policy in a saved file, which continues bit by bit where it was saved."""
        header, arrays = read(path, cls.FILE_KIND)
        try:
            policy = cls.from_settings(header, arrays)
            policy.restore_state(header, arrays)
        except Exception as reason:  # whatever a header or an array of a stranger leads to
            raise FileError(
                f"{describe(path)} holds no policy that fits together: {reason}"
            ) from None
        return policy

    def __copy__(self) -> Self:
        return copy.deepcopy(self)  # a shallow copy would share arrays that `learn` changes

    def __deepcopy__(self, memo: dict[int, object]) -> Self:
        twin = object.__new__(type(self))
        memo[id(self)] = twin
        with self._lock:
            twin.__setstate__(copy.deepcopy(super().__getstate__(), memo))
        return twin

    def __getstate__(self) -> dict[str, object]:
        return Copyable.__getstate__(copy.deepcopy(self))  # no other thread changes the copy

    def __setstate__(self, state: dict[str, object]) -> None:
        self._lock = RLock()
        super().__setstate__(state)

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other) or not isinstance(other, Persistent):
            return NotImplemented
        first, second = sorted((self, other), key=id)  # two threads lock in the same order
        with first._lock, second._lock:
            return self.export_settings() == other.export_settings() and are_equal(
                self._comparable_state(), other._comparable_state()
            )

    def _comparable_state(self) -> tuple[Header, Arrays]:
        """Return the state without the spare room in the arrays of past observations."""
        return self.export_state()


def _own_arrays(value: object) -> object:
    """Return a value whose arrays compiled code can change in place.

    An unpickled array can be read-only memory that processes share, as joblib makes it.
    """
    if isinstance(value, np.ndarray):
        is_owned = type(value) is np.ndarray and value.flags.carray
        return value if is_owned else np.array(value, order="C")
    if isinstance(value, tuple) and hasattr(value, "_make"):  # a NamedTuple
        return value._make(map(_own_arrays, value))
    return value


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
            members = sorted(archive.infolist(), key=lambda member: member.header_offset)
            ends = [member.header_offset + member.file_size for member in members]
            starts = [member.header_offset for member in members[1:]]
            if (
                any(member.compress_type != zipfile.ZIP_STORED for member in members)
                or any(start <= end for start, end in zip(starts, ends, strict=False))
                or len({member.filename for member in members}) < len(members)
            ):  # what overlaps would take more memory than the file has bytes
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


_parser_lock = Lock()  # Python 3.11 may fail if two threads parse literals at once


def _unpack(who: str, content: bytes) -> Array:
    try:
        file = io.BytesIO(content)
        if np.lib.format.read_magic(file) != (1, 0):
            raise ValueError("its version is not 1.0")
        with _parser_lock:
            shape, is_by_column, dtype = np.lib.format.read_array_header_1_0(file)
        numbers = np.frombuffer(content, dtype, offset=file.tell())  # never more than there is
        array = numbers.reshape(shape, order="F" if is_by_column else "C").copy()
        if array.dtype == np.float64 and (np.abs(array) > LARGEST_NUMBER).any():
            raise ValueError("a number is too large")
        return array
    except Exception as reason:  # NumPy raises errors of many classes for a malformed header
        raise FileError(f"{who} holds an array that cannot be read: {reason}") from None


class EqualByContents:
    """A base class of frozen dataclasses with arrays: they are equal if all their fields are."""

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return are_equal(vars(self), vars(other))

    def __hash__(self) -> int:
        fields = vars(self).values()
        return hash(tuple(value for value in fields if not isinstance(value, np.ndarray)))


def are_equal(left: object, right: object) -> bool:
    """Tell if two values are equal; arrays must agree in type, shape and every number."""
    if isinstance(left, np.ndarray) or isinstance(right, np.ndarray):
        return (
            isinstance(left, np.ndarray)
            and isinstance(right, np.ndarray)
            and left.dtype == right.dtype
            and np.array_equal(left, right)
        )
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(are_equal(left[k], right[k]) for k in left)
    if isinstance(left, list | tuple) and isinstance(right, list | tuple):
        return (
            type(left) is type(right)
            and len(left) == len(right)
            and all(map(are_equal, left, right))
        )
    return bool(left == right)


@contextmanager
def replace_file(target: str | os.PathLike[str], private: bool = False) -> Iterator[Path]:
    """Give the path of a draft beside `target`; when the block succeeds, it replaces `target`.

    If the block raises, the draft is removed and `target` stays as it was. A private file is
    created before the block, and only its owner can read it.
    """
    path = Path(target)
    if not path.name or path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    draft = path.with_name(f".{path.name}.{uuid4().hex}.tmp")
    try:
        if private:
            os.close(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        yield draft
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)


def check_regular(path: str | os.PathLike[str]) -> None:
    """Refuse a pipe or a device: it may never end, and opening it may take forever."""
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise OSError(errno.EINVAL, "it is not a regular file", os.fspath(path))


def check_parquet_path(path: str | os.PathLike[str]) -> None:
    """Refuse a path that is not UTF-8, because Polars cannot open it."""
    try:
        os.fspath(path).encode()
    except UnicodeEncodeError:
        raise FileError(f"{path}: the path of a Parquet file must be UTF-8; rename it") from None


def read_small_file(path: str | os.PathLike[str], most_bytes: int) -> bytes:
    """Read a file that has at most so many bytes."""
    check_regular(path)
    with open(path, "rb") as file:
        content = file.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise OSError(errno.EFBIG, f"it has more than {most_bytes} bytes", os.fspath(path))
    return content
