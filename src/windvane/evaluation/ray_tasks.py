"""Tasks on a Ray cluster: connect, keep every CPU busy, send a lost task again.

Each task is for one CPU. Every machine of the cluster needs the same version of Windvane. To agree
to the last bit, the machines also need the same kind of processor.
"""

import logging
import socket
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import NamedTuple

from windvane.errors import SettingError, WindvaneError

MAX_ATTEMPTS = 4  # for each task
TASKS_PER_CPU = 2  # in flight, so that no CPU waits for its next task
CONNECT_TIMEOUT_SECONDS = 10.0
QUIET_OPTIONS = {
    "include_dashboard": False,
    "log_to_driver": False,
    "logging_level": logging.CRITICAL,
}


class RayTask(NamedTuple):
    """A call of a function on the cluster."""

    name: str  # for the message if it is lost, such as "replications 0 to 4"
    arguments: tuple[object, ...]  # a reference from `share` stands for its value


def check_installed() -> None:
    """Refuse to go on without Ray."""
    if find_spec("ray") is None:
        raise SettingError("ray: Ray is not installed: pip install 'windvane[ray]'")


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


def share(value: object) -> object:
    """Pickle a value once for all tasks; they receive its bytes.

    Pickled: arrays that Ray shares are read-only, and numba would compile again for those.
    """
    import ray

    return ray.put(ray.cloudpickle.dumps(value))


def run_tasks(
    function: Callable[..., object], tasks: Sequence[RayTask]
) -> Iterator[tuple[int, object]]:
    """Keep every CPU of the cluster busy, and yield the place and result of each task when done.

    A task whose worker process dies is sent again.
    """
    import ray
    from ray.exceptions import RayError, RayTaskError

    # Retries are counted here, because Ray may retry without limit.
    call = ray.remote(num_cpus=1, max_retries=0)(function)
    waiting = deque((place, 1) for place in range(len(tasks)))
    running: dict[object, tuple[int, int]] = {}
    try:
        while waiting or running:
            capacity = TASKS_PER_CPU * max(1, int(ray.cluster_resources().get("CPU", 1)))
            while waiting and len(running) < capacity:
                place, attempt = waiting.popleft()
                running[call.remote(*tasks[place].arguments)] = place, attempt
            [reference], _ = ray.wait(list(running))
            place, attempt = running.pop(reference)
            try:
                result = ray.get(reference)
            except RayTaskError as error:  # the task itself raised
                if isinstance(error.cause, WindvaneError):
                    raise error.cause from None
                raise WindvaneError(f"ray: a worker failed: {_one_line(error, -1)}") from error
            except RayError as reason:
                if attempt == MAX_ATTEMPTS:
                    raise WindvaneError(
                        f"ray: {tasks[place].name} were lost {attempt} times: {_one_line(reason)}"
                    ) from None
                waiting.appendleft((place, attempt + 1))
            else:
                yield place, result
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


def _one_line(reason: Exception, line: int = 0) -> str:
    return (str(reason).strip().splitlines() or [type(reason).__name__])[line]
