"""Warnings and errors as one line of JSON each on stderr; no line holds a body or a key."""

import logging
import sys
import time

import msgspec


class JsonFormatter(logging.Formatter):
    """A record as one line: time, level, logger, message, and the items of `facts` in `extra`."""

    def format(self, record: logging.LogRecord) -> str:
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line: dict[str, object] = {
            "time": f"{moment}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line.update(getattr(record, "facts", {}))
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line, enc_hook=str).decode()


def log_to_stderr() -> None:
    """Send warnings and errors of this process to stderr."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.WARNING)
    # The service logs the same failures with more facts.
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
