"""Files that only the user who runs the service can read: the log, its lock, its backups.

The log holds contexts of people, event ids and hashes of keys. Every file is created with its final
permissions, so there is no moment at which another user could open it. SQLite gives the files that
it makes beside a database the permissions of the database.
"""

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path

from windvane.errors import StoreError

FILE_MODE = 0o600
DIRECTORY_MODE = 0o700
_OTHERS = 0o077  # the permissions of the group and of all others


def make_private_directory(directory: Path) -> None:
    """Create a directory for one user, if it does not exist."""
    try:
        directory.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
    except FileExistsError:
        message = f"store: {directory} is a file; name a directory"
        raise StoreError(message, "unreachable") from None
    except OSError as error:
        message = f"store: {directory} cannot be created ({error.strerror})"
        raise StoreError(message, "unreachable") from None


def open_private_file(path: Path) -> int:
    """Open a file for reading and writing, and create it for one user if it does not exist.

    Returns the file descriptor, which child processes do not inherit.
    """
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
    except OSError as error:
        message = (
            f"store: {path} cannot be opened for writing ({error.strerror}); the service needs a "
            "directory that it can write"
        )
        raise StoreError(message, "unreachable") from None


def narrow_permissions(directory: Path, own_names: Iterable[str]) -> None:
    """Take files of the log from the group and all others; older versions let them read.

    The directory is narrowed too, unless it also contains files of somebody else. What another user
    owns stays as it is.
    """
    names = set(own_names)
    entries = list(directory.iterdir())
    for path in entries:
        if path.name in names:
            _narrow(path, FILE_MODE)
    if all(path.name in names for path in entries):
        _narrow(directory, DIRECTORY_MODE)


def _narrow(path: Path, mode: int) -> None:
    with contextlib.suppress(OSError):
        status = path.stat()
        if status.st_mode & _OTHERS and status.st_uid == os.geteuid():
            path.chmod(mode)
