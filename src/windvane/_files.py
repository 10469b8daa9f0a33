"""Write files atomically: a reader sees the old file or the whole new one, never a part."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4


@contextmanager
def replace_file(target: str | os.PathLike[str]) -> Iterator[Path]:
    """Give the path of a draft beside `target`; when the block succeeds, it replaces `target`.

    If the block raises, the draft is removed and `target` stays as it was.
    """
    path = Path(target)
    draft = path.with_name(f".{path.name}.{uuid4().hex}.tmp")
    try:
        yield draft
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)
