"""Chunks of an experiment on a Ray cluster: the same numbers as on threads, on more machines.

A chunk is a task for one CPU; one whose worker is lost is sent out again. The machines need the
same Windvane as this one, and the same kind of processor if the numbers are to agree to the bit.
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

TRIES = 4  # times a chunk is sent out before it is given up
AHEAD = 2  # chunks in flight for each CPU, so that none waits for its next
QUIET = {"include_dashboard": False, "log_to_driver": False, "logging_level": logging.CRITICAL}


def on_ray(address: str | None = None) -> Runner:
    """Play chunks on the Ray at an address; without one, on a Ray of this machine's own."""
    if find_spec("ray") is None:
        raise SettingError("on_ray: Ray is missing: pip install 'windvane[ray]'")

    def run(chunks: Sequence[Chunk]) -> Iterator[tuple[Chunk, Floats]]:
        if chunks:
            with connected(address):
                yield from _spread(chunks)

    return run


@contextmanager
def connected(address: str | None = None) -> Iterator[None]:
    """Use the Ray that this process is on, or else join or start one and leave it at the end."""
    import ray
    from ray._private import worker

    if ray.is_initialized():
        if address:
            raise SettingError(f"on_ray: already on a Ray, so leave out the address {address!r}")
        yield
        return
    try:
        worker._worker_logs_enabled = False  # or it prints among our results who was lost
        _connect(address)
        yield
    finally:
        ray.shutdown()
        worker._worker_logs_enabled = True


def _connect(address: str | None) -> None:
    import ray

    try:
        host, _, port = (address or "").removeprefix("ray://").rpartition(":")
        if host:  # Ray itself would wait for minutes
            socket.create_connection((host, int(port)), timeout=10.0).close()
        ray.init(address or "local", **QUIET)
    except (ImportError, OSError, RuntimeError, ValueError) as reason:
        where = f"at {address!r}" if address else "on this machine"
        raise SettingError(f"on_ray: no Ray {where}: {_line(reason)}") from None


def _spread(chunks: Sequence[Chunk]) -> Iterator[tuple[Chunk, Floats]]:
    """Keep every CPU of the cluster busy, and hand over each chunk as it is done."""
    import ray
    from ray.exceptions import RayError, RayTaskError

    play = ray.remote(num_cpus=1, max_retries=0)(_play)  # retried here: Ray may do so for ever
    experiments = {id(chunk.experiment): chunk.experiment for chunk in chunks}
    # As bytes: arrays that Ray shares are read-only, and kernels would be compiled anew for them.
    packed = {key: ray.put(ray.cloudpickle.dumps(each)) for key, each in experiments.items()}
    todo = deque((chunk, 1) for chunk in chunks)
    sent: dict[object, tuple[Chunk, int]] = {}
    try:
        while todo or sent:
            room = AHEAD * max(1, int(ray.cluster_resources().get("CPU", 1)))
            while todo and len(sent) < room:
                chunk, tries = todo.popleft()
                task = play.remote(packed[id(chunk.experiment)], chunk.first, chunk.last)
                sent[task] = chunk, tries
            [task], _ = ray.wait(list(sent))
            chunk, tries = sent.pop(task)
            try:
                curves = np.array(ray.get(task))
            except RayTaskError as error:  # what the chunk itself raised
                if isinstance(error.cause, WindvaneError):
                    raise error.cause from None
                raise WindvaneError(f"on_ray: a worker failed: {_line(error, -1)}") from error
            except RayError as reason:
                if tries == TRIES:
                    lost = f"replications {chunk.first} to {chunk.last - 1} were lost {tries} times"
                    raise WindvaneError(f"on_ray: {lost}: {_line(reason)}") from None
                todo.appendleft((chunk, tries + 1))
            else:
                yield chunk, curves
    finally:
        left = list(sent)
        for _ in range(TRIES):  # Ray overlooks a task that is about to start
            for task in left:
                ray.cancel(task, force=True)
            if left:
                _, left = ray.wait(left, num_returns=len(left), timeout=1.0)


def _play(packed: bytes, first: int, last: int) -> Floats:
    return play_chunk(Chunk(pickle.loads(packed), first, last))


def _line(reason: Exception, which: int = 0) -> str:
    return (str(reason).strip().splitlines() or [type(reason).__name__])[which]
