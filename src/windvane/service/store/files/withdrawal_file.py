"""The file of the withdrawals (`loops/withdrawals.py`) that the log does not have yet.

The file is allocated in advance, so a full disk does not matter. A write reaches the memory of the
system, which survives the death of every process but no power failure.
"""

import contextlib
import hashlib
import os
import struct
import tempfile
import zlib
from pathlib import Path

import msgspec
from sqlalchemy import URL

from windvane.errors import StoreError
from windvane.service.store.database import WITHDRAWALS_SUFFIX
from windvane.service.store.files.data_directory import make_private_directory, open_private_file
from windvane.service.store.files.service_lock import try_lock_file, wait_for_lock
from windvane.service.store.rows import DecisionRow

SLOT_BYTES = 512  # for one record
SLOT_COUNT = 4096
MAX_FILES = 256  # of servers on one machine that share a log
LOCK_TIMEOUT_SECONDS = 5.0  # for a previous service to end
_HEAD = struct.Struct("<II")  # size of the record and its checksum; all zero: the slot is free
RECORD_BYTES = SLOT_BYTES - _HEAD.size  # at most; an event id of 256 ASCII letters fits


_decode_record = msgspec.msgpack.Decoder(DecisionRow).decode


def find_withdrawal_path(url: URL) -> Path:
    """Find the path of the file for a database: beside it, or in a directory of the user.

    A database on PostgreSQL has no directory here, so the name of the file is made from its URL.
    """
    if url.get_backend_name() == "sqlite":
        database = Path(url.database or "")
        return database.with_name(database.name + WITHDRAWALS_SUFFIX)
    place = f"{url.host}:{url.port}/{url.database}?{sorted(url.query.items())}"
    name = hashlib.sha256(place.encode()).hexdigest()[:32] + WITHDRAWALS_SUFFIX
    with contextlib.suppress(StoreError, OSError, RuntimeError):
        state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
        directory = Path(state) / "windvane"
        make_private_directory(directory)
        if os.access(directory, os.W_OK):
            return directory / name
    directory = Path(tempfile.gettempdir()) / f"windvane-{os.geteuid()}"
    make_private_directory(directory)
    if directory.stat().st_uid != os.geteuid():
        message = f"serve: {directory} belongs to another user; set XDG_STATE_HOME to a directory"
        raise StoreError(message, "unreachable")
    return directory / name


def open_withdrawal_file(url: URL) -> "WithdrawalFile":
    """Open the file for a database; waits until a previous service has ended."""
    return WithdrawalFile(find_withdrawal_path(url), LOCK_TIMEOUT_SECONDS)


def open_free_withdrawal_file(url: URL) -> "WithdrawalFile":
    """Open a file for a server that shares its log: the first that no other server has open."""
    path = find_withdrawal_path(url)
    for number in range(MAX_FILES):
        with contextlib.suppress(StoreError):
            return WithdrawalFile(_number_path(path, number))
    message = f"serve: {MAX_FILES} other servers on this machine have locked the files at {path}"
    raise StoreError(message, "locked")


def open_abandoned_withdrawal_files(url: URL) -> list["WithdrawalFile"]:
    """Open the files of servers on this machine that ended and left records."""
    path = find_withdrawal_path(url)
    files = []
    for number in range(MAX_FILES):
        each = _number_path(path, number)
        with contextlib.suppress(StoreError):  # a server has it open
            if each.exists():
                files.append(WithdrawalFile(each))
    return files


def _number_path(path: Path, number: int) -> Path:
    return path.with_name(f"{path.name}-{number}") if number else path


class WithdrawalFile:
    """Records of decisions to withdraw, each in a slot of its own.

    A record is the decision with the choice that the client was answered instead.
    The file stays locked while it is open: two services never share it.
    """

    def __init__(self, path: Path, timeout_seconds: float = 0.0) -> None:
        self.path = path
        self._descriptor = open_private_file(path)
        try:
            wait_for_lock(
                lambda: try_lock_file(self._descriptor),
                timeout_seconds,
                lambda: f"store: another service runs on {path.parent}: it has locked {path}",
            )
            self.records = self._read_records()
            self._allocate()
        except BaseException:
            os.close(self._descriptor)
            raise
        self._free_slots = [slot for slot in range(SLOT_COUNT) if slot not in self.records]

    def close(self) -> None:
        """Close the file and release its lock; the records stay."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = -1

    @property
    def free_count(self) -> int:
        """How many more records fit."""
        return len(self._free_slots)

    def add(self, record: DecisionRow) -> int:
        """Write a record and return its slot; raises an OSError if that fails."""
        content = msgspec.msgpack.encode(record)
        if not self._free_slots or len(content) > RECORD_BYTES:
            raise OSError(f"no slot of {self.path} can take {len(content)} bytes")
        slot = self._free_slots[-1]
        data = _HEAD.pack(len(content), zlib.crc32(content)) + content
        if os.pwrite(self._descriptor, data, slot * SLOT_BYTES) != len(data):
            raise OSError(f"{self.path} took a part of a record")
        self._free_slots.pop()
        self.records[slot] = record
        return slot

    def remove(self, slot: int) -> None:
        """Delete a record, because the log has the withdrawal.

        If that fails, the next start repeats the withdrawal, which changes nothing.
        """
        del self.records[slot]
        with contextlib.suppress(OSError):
            os.pwrite(self._descriptor, bytes(_HEAD.size), slot * SLOT_BYTES)
            self._free_slots.append(slot)

    def _read_records(self) -> dict[int, DecisionRow]:
        """Read all records by slot; a record that was written in part was never answered."""
        records = {}
        content = os.pread(self._descriptor, SLOT_COUNT * SLOT_BYTES, 0)
        for slot in range(len(content) // SLOT_BYTES):
            size, checksum = _HEAD.unpack_from(content, slot * SLOT_BYTES)
            start = slot * SLOT_BYTES + _HEAD.size
            record = content[start : start + size]
            if 0 < size <= RECORD_BYTES and zlib.crc32(record) == checksum:
                with contextlib.suppress(msgspec.DecodeError):
                    records[slot] = _decode_record(record)
        return records

    def _allocate(self) -> None:
        """Take the space on disk now; without it, a record may fail when the disk is full."""
        with contextlib.suppress(OSError):
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(self._descriptor, 0, SLOT_COUNT * SLOT_BYTES)
            elif os.fstat(self._descriptor).st_size < SLOT_COUNT * SLOT_BYTES:
                os.truncate(self._descriptor, SLOT_COUNT * SLOT_BYTES)
