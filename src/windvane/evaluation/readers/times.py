"""Times of a log as seconds since 1970."""

from datetime import UTC, datetime


def parse_time(text: str) -> float:
    """Seconds since 1970 of a time in ISO 8601, in UTC if it names no zone; raises ValueError.

    >>> parse_time("1970-01-02T00:00:00.5Z"), parse_time("1970-01-02 01:00:00+01:00")
    (86400.5, 86400.0)
    """
    time = datetime.fromisoformat(text)
    try:
        return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()
    except OverflowError as error:  # a zone that leads before year 1
        raise ValueError(str(error)) from None
