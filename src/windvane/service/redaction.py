"""Passwords are cut out of texts that leave the process."""

import re

_IN_URL = re.compile(r"(://[^\s:/@]*:)\S*@")  # scheme://user:PASSWORD@host
_IN_OPTION = re.compile(r"(\bpassword\s*=\s*)('[^']*'|[^\s'&]+)", re.IGNORECASE)


def hide_passwords(text: str) -> str:
    """Replace every password of a database URL or a connection string by `***`.

    >>> hide_passwords("cannot connect to postgresql://me:secret@db.example/log")
    'cannot connect to postgresql://me:***@db.example/log'
    """
    return _IN_OPTION.sub(r"\1***", _IN_URL.sub(r"\1***@", text))
