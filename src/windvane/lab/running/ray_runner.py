"""Run the chunks of an experiment on a Ray cluster, with the same numbers as on threads."""

import pickle
from collections.abc import Iterator, Sequence

import numpy as np

from windvane.evaluation.ray_tasks import RayTask, check_installed, connect_to_ray, run_tasks, share
from windvane.lab.running.experiment import Chunk, Runner, play_chunk
from windvane.types import Floats


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
