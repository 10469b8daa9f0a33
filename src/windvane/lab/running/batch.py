"""Run several experiments on threads or on a Ray cluster, with the same numbers."""

import pickle
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from os import PathLike
from pathlib import Path

import numpy as np

from windvane.evaluation.ray_tasks import RayTask, check_installed, connect_to_ray, run_tasks, share
from windvane.lab.progress import Report, TaskProgress
from windvane.lab.running.experiment import (
    Chunk,
    Experiment,
    ExperimentResult,
    Runner,
    make_thread_runner,
    play_chunk,
    run_experiments,
)
from windvane.types import Floats


def run_all(
    experiments: Mapping[str, Experiment],
    on: str,
    report: Report,
    checkpoint: str | PathLike[str] | None = None,
) -> dict[str, ExperimentResult]:
    """Run every experiment and return the results by name.

    `on` is "threads", "ray" or the address of a Ray cluster. If the run is interrupted, the folder
    `checkpoint` holds the finished chunks, and the next run starts from them. A run that ends
    well removes the folder.
    """
    folder = None if checkpoint is None else Path(checkpoint)
    for name, experiment in experiments.items():
        report(TaskProgress(name, 0, experiment.replications, "replications"))
    with _open_runner(on) as runner:
        results = run_experiments(experiments, runner, _Counter(experiments, report).add, folder)
    if folder:
        shutil.rmtree(folder, ignore_errors=True)
    return results


class _Counter:
    """Adds up the finished replications of each experiment, and reports the sum."""

    def __init__(self, experiments: Mapping[str, Experiment], report: Report) -> None:
        self._totals = {name: each.replications for name, each in experiments.items()}
        self._done = dict.fromkeys(experiments, 0)
        self._report = report

    def add(self, name: str, replications: int) -> None:
        self._done[name] += replications
        self._report(TaskProgress(name, self._done[name], self._totals[name], "replications"))


@contextmanager
def _open_runner(on: str) -> Iterator[Runner]:
    """Open the runner that `on` names; all experiments share one connection to Ray."""
    if on == "threads":
        yield make_thread_runner()
        return
    runner = make_ray_runner()
    with connect_to_ray(None if on == "ray" else on):
        yield runner


def make_ray_runner(address: str | None = None) -> Runner:
    """Return a runner that uses the Ray cluster at `address`, or else starts Ray locally."""
    check_installed()

    def run_chunks(chunks: Sequence[Chunk]) -> Iterator[tuple[Chunk, Floats]]:
        if chunks:
            with connect_to_ray(address):
                yield from _run_on_cluster(chunks)

    return run_chunks


def _run_on_cluster(chunks: Sequence[Chunk]) -> Iterator[tuple[Chunk, Floats]]:
    """Play the chunks on all CPUs of the cluster, and yield each chunk when it is done."""
    experiments = {id(chunk.experiment): chunk.experiment for chunk in chunks}
    shared = {key: share(experiment) for key, experiment in experiments.items()}
    tasks = [
        RayTask(
            f"replications {chunk.first} to {chunk.last - 1}",
            (shared[id(chunk.experiment)], chunk.first, chunk.last),
        )
        for chunk in chunks
    ]
    for place, curves in run_tasks(_play_pickled, tasks):
        yield chunks[place], np.array(curves)


def _play_pickled(experiment: bytes, first: int, last: int) -> Floats:
    return play_chunk(Chunk(pickle.loads(experiment), first, last))
