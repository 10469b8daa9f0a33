"""A worker process: it decides and answers at a socket that it shares with other workers.

The supervisor starts it, sends its options, and gets one line back: ready, or why not. The worker
stops if the supervisor ends.
"""

import os
import signal
import socket
import sys
import threading
from collections.abc import Callable

import msgspec

from windvane.errors import WindvaneError
from windvane.service import server
from windvane.service.api.middleware import RequestMiddleware
from windvane.service.app import EdgeOptions, create_app
from windvane.service.json_logging import log_to_stderr
from windvane.service.shared_parts import SharedParts
from windvane.service.tracing import open_tracing


class WorkerOptions(msgspec.Struct, frozen=True):
    """What a worker needs to know; sent over a pipe, because the URL may have a password."""

    where: str
    address: server.Address
    believes_wall_clock: bool = False
    trusted_proxies: tuple[str, ...] = ()
    requests_per_second: float | None = None
    drain_seconds: float = 0.0  # after SIGTERM, in which a load balancer notices
    shared: SharedParts | None = None  # None: there is no other worker


class WorkerReport(msgspec.Struct, frozen=True):
    """The one line that a worker sends to its supervisor."""

    error: str | None = None  # None: the worker answers requests


decode_options = msgspec.json.Decoder(WorkerOptions).decode
decode_report = msgspec.json.Decoder(WorkerReport).decode


def main() -> None:
    """Answer requests until SIGTERM, or until the supervisor has ended."""
    options = decode_options(sys.stdin.buffer.readline())
    assert options.shared is not None
    threading.Thread(target=_stop_with_supervisor, daemon=True).start()
    messages = log_to_stderr()
    try:
        serve(options, options.shared)
    except WindvaneError as error:
        report(WorkerReport(str(error)))
        sys.exit(1)
    finally:
        messages.flush()


def serve(options: WorkerOptions, shared: SharedParts) -> None:
    """Answer requests beside other workers until SIGTERM."""
    app = build_app(options)
    with socket.socket(fileno=shared.listening) as listening:
        server.run(
            app,
            options.address,
            lambda _: report(WorkerReport()),
            listening=listening,
            drain_seconds=options.drain_seconds,
        )


def run_alone(options: WorkerOptions, on_ready: Callable[[str], None]) -> None:
    """Answer requests in this process until SIGTERM; `on_ready` gets the URL."""
    app = build_app(options)
    server.run(app, options.address, on_ready, drain_seconds=options.drain_seconds)


def build_app(options: WorkerOptions) -> RequestMiddleware:
    """The application of one worker.

    Beside other workers, it accepts connections once its loops are loaded: the others answer
    meanwhile.
    """
    rate = options.requests_per_second
    is_alone = options.shared is None
    return create_app(
        options.where,
        believes_wall_clock=options.believes_wall_clock,
        edge=EdgeOptions(
            options.trusted_proxies, rate, answers_while_loading=is_alone, tracing=open_tracing()
        ),
        shared=options.shared,
    )


def report(line: WorkerReport) -> None:
    """Send the supervisor a line."""
    sys.stdout.buffer.write(msgspec.json.encode(line) + b"\n")
    sys.stdout.buffer.flush()


def _stop_with_supervisor() -> None:
    """Wait until the supervisor closes the pipe, then stop as after SIGTERM."""
    while os.read(sys.stdin.fileno(), 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
