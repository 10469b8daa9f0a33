"""Write files atomically: a reader sees the old file or the whole new one, never a part."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4


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
