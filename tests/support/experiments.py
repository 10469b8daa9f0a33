"""Run one experiment, on threads."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from windvane.lab.experiments import (
    Experiment,
    ExperimentResult,
    Runner,
    play_chunk,
    run_experiments,
    run_on_threads,
)


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
