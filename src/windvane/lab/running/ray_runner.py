"""Run the chunks of an experiment on a Ray cluster, with the same numbers as on threads.

Each chunk is a task for one CPU. A chunk whose worker process dies is sent again. Every machine
of the cluster needs the same version of Windvane. To agree to the last bit, the machines also need
the same kind of processor.
"""

import logging
import pickle
import socket
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec

import numpy as np

from windvane.errors import SettingError, WindvaneError
from windvane.lab.running.experiment import Chunk, Runner, play_chunk
from windvane.types import Floats

MAX_ATTEMPTS = 4  # for each chunk
TASKS_PER_CPU = 2  # in flight, so that no CPU waits for its next chunk
CONNECT_TIMEOUT_SECONDS = 10.0
QUIET_OPTIONS = {
    "include_dashboard": False,
    "log_to_driver": False,
    "logging_level": logging.CRITICAL,
}


def make_ray_runner(address: str | None = None) -> Runner:
    """Return a runner that uses the Ray cluster at `address`, or else starts Ray locally."""
    if find_spec("ray") is None:
        raise SettingError("ray: Ray is not installed: pip install 'windvane[ray]'")

    def run_chunks(chunks: Sequence[Chunk]) -> Iterator[tuple[Chunk, Floats]]:
        if chunks:
            with connect_to_ray(address):
                yield from _run_on_cluster(chunks)

    return run_chunks


@contextmanager
def connect_to_ray(address: str | None = None) -> Iterator[None]:
    """Connect this process to Ray, and disconnect at the end.

    If the process is already connected, that connection is used and stays open.
    """
    import ray

    if ray.is_initialized():
        if address:
            raise SettingError(
                f"ray: this process is already connected to Ray, so omit the address {address!r}"
            )
        yield
        return
    with _hide_worker_messages():
        try:
            _connect(address)
            yield
        finally:
            ray.shutdown()


@contextmanager
def _hide_worker_messages() -> Iterator[None]:
    """Keep Ray from printing to stdout that a worker died.

    Ray prints these messages even with `log_to_driver=False`; only this private flag stops them.
    """
    from ray._private import worker

    worker._worker_logs_enabled = False
    try:
        yield
    finally:
        worker._worker_logs_enabled = True


def _connect(address: str | None) -> None:
    import ray

    try:
        host, _, port = (address or "").removeprefix("ray://").rpartition(":")
        if host:  # Ray itself would try for minutes
            timeout = CONNECT_TIMEOUT_SECONDS
            socket.create_connection((host, int(port)), timeout=timeout).close()
        ray.init(address or "local", **QUIET_OPTIONS)
    except (ImportError, OSError, RuntimeError, ValueError) as reason:
        place = f"at {address!r}" if address else "on this machine"
        raise SettingError(f"ray: no Ray {place}: {_one_line(reason)}") from None


def _run_on_cluster(chunks: Sequence[Chunk]) -> Iterator[tuple[Chunk, Floats]]:
    """Keep every CPU of the cluster busy, and yield each chunk when it is done."""
    import ray
    from ray.exceptions import RayError, RayTaskError

    # Retries are counted here, because Ray may retry without limit.
    play = ray.remote(num_cpus=1, max_retries=0)(_play_pickled)
    experiments = {id(chunk.experiment): chunk.experiment for chunk in chunks}
    # Pickled: arrays that Ray shares are read-only, and numba would compile again for those.
    pickled = {key: ray.put(ray.cloudpickle.dumps(each)) for key, each in experiments.items()}
    waiting = deque((chunk, 1) for chunk in chunks)
    running: dict[object, tuple[Chunk, int]] = {}
    try:
        while waiting or running:
            capacity = TASKS_PER_CPU * max(1, int(ray.cluster_resources().get("CPU", 1)))
            while waiting and len(running) < capacity:
                chunk, attempt = waiting.popleft()
                task = play.remote(pickled[id(chunk.experiment)], chunk.first, chunk.last)
                running[task] = chunk, attempt
            [task], _ = ray.wait(list(running))
            chunk, attempt = running.pop(task)
            try:
                curves = np.array(ray.get(task))
            except RayTaskError as error:  # the chunk itself raised
                if isinstance(error.cause, WindvaneError):
                    raise error.cause from None
                raise WindvaneError(f"ray: a worker failed: {_one_line(error, -1)}") from error
            except RayError as reason:
                if attempt == MAX_ATTEMPTS:
                    lost = f"replications {chunk.first} to {chunk.last - 1}"
                    raise WindvaneError(
                        f"ray: {lost} were lost {attempt} times: {_one_line(reason)}"
                    ) from None
                waiting.appendleft((chunk, attempt + 1))
            else:
                yield chunk, curves
    finally:
        _cancel(list(running))


def _cancel(tasks: list[object]) -> None:
    """Cancel tasks; repeated, because Ray ignores the request for a task that is just starting."""
    import ray

    for _ in range(MAX_ATTEMPTS):
        for task in tasks:
            ray.cancel(task, force=True)
        if tasks:
            _, tasks = ray.wait(tasks, num_returns=len(tasks), timeout=1.0)


def _play_pickled(experiment: bytes, first: int, last: int) -> Floats:
    return play_chunk(Chunk(pickle.loads(experiment), first, last))


def _one_line(reason: Exception, line: int = 0) -> str:
    return (str(reason).strip().splitlines() or [type(reason).__name__])[line]
