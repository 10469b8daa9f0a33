"""The ids of events: how the service makes them, and which of a client's it refuses."""

import os
from base64 import urlsafe_b64encode

from windvane.service.errors import EventIdError

MAX_EVENT_ID_LENGTH = 256
_RANDOM_BYTES_PER_EVENT = 9  # a multiple of 3, of which base64 makes whole letters
_EVENTS_PER_SYSTEM_CALL = 256
_random_suffixes: list[str] = []


def make_event_id(at_us: int) -> str:
    """An event id that nobody can guess, of 25 letters.

    Ids sort by time, which keeps a database index compact.
    """
    if not _random_suffixes:
        random_bytes = os.urandom(_RANDOM_BYTES_PER_EVENT * _EVENTS_PER_SYSTEM_CALL)
        letters = urlsafe_b64encode(random_bytes).decode()
        width = len(letters) // _EVENTS_PER_SYSTEM_CALL
        _random_suffixes.extend(letters[k : k + width] for k in range(0, len(letters), width))
    return f"{at_us:013x}{_random_suffixes.pop()}"


def check_event_id(event_id: str) -> None:
    """Refuse an event id that the log cannot hold."""
    if len(event_id) > MAX_EVENT_ID_LENGTH or "\0" in event_id:
        message = f"eventId must have at most {MAX_EVENT_ID_LENGTH} characters, none of them NUL"
        raise EventIdError(message, "eventId")
