"""Run one experiment, on threads or on Ray."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from windvane.lab.experiments import (
    Chunk,
    Experiment,
    ExperimentResult,
    Runner,
    open_runner,
    play_chunk,
    run_experiments,
    run_on_threads,
)
from windvane.types import Floats


def run_experiment(
    experiment: Experiment,
    runner: Runner | None = None,
    progress: Callable[[int], None] | None = None,
    checkpoint: Path | None = None,
) -> ExperimentResult:
    """Play every replication."""

    def report(name: str, replications: int) -> None:
        if progress:
            progress(replications)

    runner = runner or make_thread_runner()
    return run_experiments({"": experiment}, runner, report, checkpoint)[""]


def make_thread_runner(threads: int | None = None) -> Runner:
    """A runner on this number of threads."""
    return partial(run_on_threads, play_chunk, threads=threads)


def make_ray_runner(on: str = "ray") -> Runner:
    """A runner that connects to Ray when it has chunks to play."""

    def run_chunks(chunks: Sequence[Chunk]) -> Iterator[tuple[Chunk, Floats]]:
        with open_runner(on) as runner:
            yield from runner(chunks)

    return run_chunks
