"""Several workers behind one port: each of them decides, and one writer process writes for all.

The supervisor holds the socket that listens, so that a request waits for another worker if one is
killed. It replaces workers and the writer process if they end.
"""

import logging
import select
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from typing import IO

import msgspec
from msgspec.structs import replace

from windvane.errors import SettingError, StoreError
from windvane.service.loops.warmup import compile_kernels
from windvane.service.processes import build_command, build_environment
from windvane.service.server import SHUTDOWN_SECONDS, listen
from windvane.service.shared_parts import SharedParts
from windvane.service.store.database import resolve_url
from windvane.service.store.writer_client import (
    CLOSE_TIMEOUT_SECONDS,
    RESTART_INTERVAL_SECONDS,
    START_TIMEOUT_SECONDS,
    start_writer_process,
)
from windvane.service.store.writer_protocol import MessageSplitter, decode_start
from windvane.service.worker import WorkerOptions, decode_report

WORKER_CODE = "from windvane.service.worker import main; main()"
WATCH_INTERVAL_SECONDS = 0.1
WAITING_WORKERS = 64  # that connect to the writer process at the same time
logger = logging.getLogger("windvane.service")


class WriterProcess:
    """The writer process of all workers; a new one takes over its socket."""

    def __init__(self, where: str, path: str) -> None:
        self._url = resolve_url(where).render_as_string(hide_password=False)
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(path)
        self._listening.listen(WAITING_WORKERS)
        self._process: subprocess.Popen[bytes] | None = None
        self._own_end: socket.socket | None = None

    def start(self) -> None:
        """Start a writer process and wait until it has opened the log."""
        self._own_end, self._process = start_writer_process(self._url, self._listening)
        splitter = MessageSplitter()
        self._own_end.settimeout(START_TIMEOUT_SECONDS)
        try:
            while data := self._own_end.recv(4096):
                for message in splitter.feed(data):
                    if error := decode_start(message):
                        raise StoreError(*error)
                    return
        except TimeoutError:
            pass
        raise StoreError("serve: the writer process does not start", "unreachable")

    def has_ended(self) -> bool:
        """Whether there is no writer process any more."""
        return self._process is None or self._process.poll() is not None

    def close(self) -> None:
        """Let the writer process write all that it received, and end."""
        if self._own_end is not None:
            self._own_end.close()
        if self._process is not None:
            try:
                self._process.wait(CLOSE_TIMEOUT_SECONDS)
            except subprocess.TimeoutExpired:
                logger.error("the writer process does not end; its last operations may be lost")
                self._process.kill()
                self._process.wait()
        self._listening.close()


class Worker:
    """One worker process."""

    def __init__(self, options: WorkerOptions, shared: SharedParts) -> None:
        self.is_ready = False
        self.error: str | None = None  # why the worker could not start
        self.process = subprocess.Popen(
            build_command(WORKER_CODE),
            pass_fds=[shared.listening],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is meant for the supervisor
            env=build_environment(),
        )
        stdin = self._pipe(self.process.stdin)
        stdin.write(msgspec.json.encode(replace(options, shared=shared)) + b"\n")
        stdin.flush()

    @staticmethod
    def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
        assert pipe is not None
        return pipe

    def read_report(self) -> None:
        """Take in the line that the worker has sent, if it has."""
        stdout = self._pipe(self.process.stdout)
        if not self.is_ready and select.select([stdout], [], [], 0)[0]:
            line = stdout.readline()
            if line:
                self.error = decode_report(line).error
                self.is_ready = self.error is None

    def has_ended(self) -> bool:
        """Whether the process has ended."""
        return self.process.poll() is not None

    def stop(self) -> None:
        """Ask the worker to finish its requests and end."""
        if not self.has_ended():
            self.process.send_signal(signal.SIGTERM)

    def close(self, timeout_seconds: float) -> None:
        """Wait until the worker has ended; kill it after so many seconds."""
        try:
            self.process.wait(timeout_seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            self._pipe(pipe).close()


class Supervisor:
    """Starts the writer process and the workers, and replaces those that end."""

    def __init__(
        self, options: WorkerOptions, shared: SharedParts, count: int, writer: WriterProcess
    ) -> None:
        self._options = options
        self._shared = shared
        self._writer = writer
        self._workers = [self._start_worker(number) for number in range(count)]
        self._restart_at: dict[int, float] = {}  # by number of the worker

    def _start_worker(self, number: int) -> Worker:
        return Worker(self._options, replace(self._shared, number=number))

    def watch(self, stop: threading.Event, on_ready: Callable[[], None]) -> None:
        """Replace what ends, until `stop` is set; `on_ready` is called once all workers answer."""
        is_announced = False
        while not stop.wait(WATCH_INTERVAL_SECONDS):
            for number, worker in enumerate(self._workers):
                worker.read_report()
                if worker.has_ended():
                    self._replace(number, worker, is_announced)
            if not is_announced and all(worker.is_ready for worker in self._workers):
                is_announced = True
                on_ready()
            if self._writer.has_ended():
                logger.error("the writer process has ended; a new one is started")
                try:
                    self._writer.start()
                except StoreError as error:
                    logger.warning("the writer process cannot start: %s", error)
                    stop.wait(RESTART_INTERVAL_SECONDS)

    def _replace(self, number: int, worker: Worker, is_announced: bool) -> None:
        worker.read_report()
        if not is_announced:
            raise SettingError(worker.error or f"serve: worker {number} has ended")
        due = self._restart_at.setdefault(number, time.monotonic() + RESTART_INTERVAL_SECONDS)
        if time.monotonic() >= due:
            logger.error("worker %s has ended; a new one is started", number)
            del self._restart_at[number]
            worker.close(0.0)
            self._workers[number] = self._start_worker(number)

    def close(self) -> None:
        """Let all workers finish their requests and end."""
        for worker in self._workers:
            worker.stop()
        patience = self._options.drain_seconds + SHUTDOWN_SECONDS + CLOSE_TIMEOUT_SECONDS
        deadline = time.monotonic() + patience
        for worker in self._workers:
            worker.close(max(deadline - time.monotonic(), 0.0))


def run_workers(options: WorkerOptions, count: int, on_ready: Callable[[str], None]) -> None:
    """Serve by several workers until SIGTERM or Ctrl-C; `on_ready` gets the URL."""
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    compile_kernels()  # once, before the workers load them
    with (
        tempfile.TemporaryDirectory(prefix="windvane-") as directory,
        listen(options.address) as listening,
    ):
        shared = SharedParts(directory, listening.fileno())
        writer = WriterProcess(options.where, shared.writer_socket)
        try:
            writer.start()
            supervisor = Supervisor(options, shared, count, writer)
            try:
                url = options.address.build_url(listening.getsockname()[1])
                supervisor.watch(stop, lambda: on_ready(url))
            finally:
                supervisor.close()
        finally:
            writer.close()
