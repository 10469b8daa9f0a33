"""Dates and times as clients write them, all in UTC unless they say otherwise."""

import re
from datetime import UTC, datetime, timedelta

from windvane.errors import SettingError
from windvane.service.clock import MICROSECONDS_PER_SECOND

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LOST_PLUS = re.compile(r"(\d) (\d\d:?\d\d)$")  # of an offset whose + was decoded as a space


def parse_date(text: str) -> int:
    """A date or a time as microseconds since 1970.

    Taken are "2022-09-20", "2022-09-20T00:00:00.000Z", "20220920T000000" and other forms of ISO
    8601, with any number of fractional digits.

    >>> parse_date("1970-01-02") == parse_date("19700102T000000") == 86_400_000_000
    True
    """
    try:
        parsed = datetime.fromisoformat(_LOST_PLUS.sub(r"\1+\2", text.strip()))
        if parsed.tzinfo is None:
            parsed = parsed.replace(tzinfo=UTC)
        span = parsed.astimezone(UTC) - _EPOCH
    except (ValueError, OverflowError):
        raise SettingError(
            f"date: {text[:40]!r} must be a date or a time of ISO 8601, such as 2026-01-31"
        ) from None
    seconds = span.days * 86_400 + span.seconds
    return seconds * MICROSECONDS_PER_SECOND + span.microseconds


def format_date(at_us: int) -> str:
    """A time as the wire has it, in UTC.

    >>> format_date(86_400_000_000)
    '1970-01-02T00:00:00Z'
    """
    time = _EPOCH + timedelta(microseconds=at_us)
    return time.isoformat().replace("+00:00", "Z")
