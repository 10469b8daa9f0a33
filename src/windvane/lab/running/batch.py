"""Run several experiments on threads or on Ray."""

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from os import PathLike
from pathlib import Path

from windvane.lab.progress import Report, TaskProgress
from windvane.lab.running.experiment import (
    Experiment,
    ExperimentResult,
    Runner,
    make_thread_runner,
    run_experiments,
)


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
    from windvane.evaluation.ray_tasks import connect_to_ray
    from windvane.lab.running.ray_runner import make_ray_runner

    runner = make_ray_runner()
    with connect_to_ray(None if on == "ray" else on):
        yield runner
