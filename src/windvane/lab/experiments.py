"""Run experiments: several players in many replications of a world, on threads.

A run is divided into chunks of replications. Compiled code plays a chunk without the GIL, so
threads play chunks in parallel. The result depends neither on the number of threads nor on the
order in which the chunks are played.
"""

import hashlib
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np

from windvane._numba.instructions import LANES
from windvane._terminal.console import make_bars
from windvane.beliefs.chooser import make_key
from windvane.lab.engines.game import Player
from windvane.lab.engines.lanes import can_play_side_by_side, replay_side_by_side
from windvane.lab.engines.replay import select_engine
from windvane.lab.worlds.definition import World
from windvane.lab.worlds.draw import Draw, Marks
from windvane.persistence import replace_file
from windvane.types import Floats

if TYPE_CHECKING:
    from rich.progress import TaskID

POINTS_PER_CURVE = 200
REPLICATIONS_PER_CHUNK = LANES  # all of them are played side by side


class TaskProgress(NamedTuple):
    """How much of a task is done."""

    task: str  # the name of a world or of a panel, or "reading"
    done: int
    total: int
    unit: str  # "replications", "runs" or "bytes"


Report = Callable[[TaskProgress], None]
Count = Callable[[str, int], None]  # the name of a task, and how many replications are new
Task = TypeVar("Task")


@contextmanager
def open_report(progress: bool | Report) -> Iterator[Report]:
    """Give the function that takes progress: bars for True, nothing for False, else `progress`.

    There is one bar a task on stderr, with the time left; none if stderr is no terminal.
    """
    if callable(progress) or not progress:
        yield progress or (lambda _: None)
        return
    bars = make_bars()
    tasks: dict[str, TaskID] = {}

    def report(progress: TaskProgress) -> None:
        name = progress.task
        if name not in tasks:
            tasks[name] = bars.add_task(name, start=False, total=progress.total, unit=progress.unit)
        if progress.done:
            bars.start_task(tasks[name])
            bars.update(tasks[name], completed=progress.done, total=progress.total)

    with bars:
        yield report


def make_counter(totals: Mapping[str, int], report: Report, unit: str = "replications") -> Count:
    """Return a function that adds up what is finished of each task and reports the sum."""
    done = dict.fromkeys(totals, 0)

    def count(name: str, more: int) -> None:
        done[name] += more
        report(TaskProgress(name, done[name], totals[name], unit))

    for name in totals:
        count(name, 0)
    return count


@dataclass(frozen=True)
class Experiment:
    """Players that all play the same replications of one world."""

    players: tuple[Player, ...]
    world: World
    replications: int
    seed: int
    points: int = POINTS_PER_CURVE  # evenly spaced round counts at which regret is recorded
    extra: tuple[int, ...] = ()  # further round counts at which regret is recorded

    @property
    def marks(self) -> Marks:
        """The round counts at which regret is recorded."""
        even = np.linspace(0, self.world.horizon, min(self.points, self.world.horizon) + 1)
        extra = [rounds for rounds in self.extra if 0 < rounds <= self.world.horizon]
        return np.unique([*np.rint(even[1:]), *extra]).astype(np.int64)

    @property
    def fingerprint(self) -> str:
        """A name for the files of this experiment's chunks, different for each experiment."""
        parts = (self.players, self.world, self.seed, self.marks.tolist())
        return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


class Chunk(NamedTuple):
    """Consecutive replications of an experiment."""

    experiment: Experiment
    first: int
    last: int  # not included
    name: str = ""  # of the experiment

    @property
    def shape(self) -> tuple[int, int, int]:
        """The shape of its curves, (players, replications, M)."""
        marks = self.experiment.marks.size
        return len(self.experiment.players), self.last - self.first, marks

    @property
    def cost(self) -> int:
        """The rounds that all players play together, as an estimate of the time they take."""
        players, replications, _ = self.shape
        return players * replications * self.experiment.world.horizon


# plays chunks and yields the curves of each chunk when it is done
Runner = Callable[[Sequence[Chunk]], Iterator[tuple[Chunk, Floats]]]


class ExperimentResult(NamedTuple):
    """The cumulative regret of every player in every replication."""

    names: tuple[str, ...]
    marks: Marks  # (M,) round counts
    regret: Floats  # (players, replications, M) cumulative

    def mean(self) -> Floats:
        """The mean curve of each player, (players, M)."""
        mean: Floats = self.regret.mean(axis=1)
        return mean

    def at(self, rounds: int) -> Floats:
        """The regret after `rounds` rounds, (players, replications)."""
        return self.regret[:, :, int(np.searchsorted(self.marks, rounds))]


def play_chunk(chunk: Chunk) -> Floats:
    """Play a chunk and return its curves, (players, replications, M).

    The replications of a chunk are played side by side if the engine can do this; only then the
    draws of all of them are held in memory.
    """
    experiment = chunk.experiment
    marks = experiment.marks
    curves = np.empty(chunk.shape)
    draws: list[Draw] = []
    keys: list[int] = []
    together: list[int] = []  # players whose replications are played side by side
    for r in range(chunk.first, chunk.last):
        seed = np.random.SeedSequence(experiment.seed, spawn_key=(r,))
        draw = experiment.world.draw(seed)
        keys.append(make_key("lab", seed))
        if r == chunk.first and not experiment.world.action_set:
            players = enumerate(experiment.players)
            together = [p for p, player in players if can_play_side_by_side(player, draw)]
        if together:
            draws.append(draw)
        for p, player in enumerate(experiment.players):
            if p not in together:
                engine = select_engine(player, experiment.world, r)
                curves[p, r - chunk.first] = engine(draw, keys[-1], marks)
    for p in together:
        curves[p] = replay_side_by_side(experiment.players[p], draws, keys, marks)
    return curves


def run_on_threads(
    play: Callable[[Task], Floats], tasks: Sequence[Task], threads: int | None = None
) -> Iterator[tuple[Task, Floats]]:
    """Play tasks on threads, and yield each task with its numbers when it is done."""
    with ThreadPoolExecutor(threads or os.cpu_count() or 1) as pool:
        waiting = {pool.submit(play, task): task for task in tasks}
        try:
            for future in as_completed(waiting):
                yield waiting[future], future.result()
        finally:
            for future in waiting:
                future.cancel()


def run_experiments(
    experiments: Mapping[str, Experiment],
    runner: Runner,
    progress: Count,
    checkpoint: Path | None = None,
) -> dict[str, ExperimentResult]:
    """Play every replication of several experiments.

    `progress` gets the name of an experiment and how many replications were just finished. Chunks
    in the folder `checkpoint` are not played again, and finished ones are saved there.
    The chunks of all experiments are played as one list, the longest first, so that all processors
    have work until the end.
    """
    results: dict[str, ExperimentResult] = {}
    missing = []
    for name, experiment in experiments.items():
        names, marks = tuple(player.name for player in experiment.players), experiment.marks
        regret = np.empty((len(names), experiment.replications, marks.size))
        results[name] = ExperimentResult(names, marks, regret)
        for first in range(0, experiment.replications, REPLICATIONS_PER_CHUNK):
            last = min(first + REPLICATIONS_PER_CHUNK, experiment.replications)
            chunk = Chunk(experiment, first, last, name)
            curves = _load_chunk(checkpoint, chunk) if checkpoint else None
            if curves is None:
                missing.append(chunk)
                continue
            regret[:, chunk.first : chunk.last] = curves
            progress(name, chunk.last - chunk.first)
    missing.sort(key=lambda chunk: chunk.cost, reverse=True)
    for chunk, curves in runner(missing):
        results[chunk.name].regret[:, chunk.first : chunk.last] = curves
        if checkpoint:
            checkpoint.mkdir(parents=True, exist_ok=True)
            with replace_file(_chunk_path(checkpoint, chunk)) as draft, open(draft, "wb") as file:
                np.save(file, curves, allow_pickle=False)
        progress(chunk.name, chunk.last - chunk.first)
    return results


def _chunk_path(folder: Path, chunk: Chunk) -> Path:
    return folder / f"{chunk.experiment.fingerprint}-{chunk.first}-{chunk.last}.npy"


def _load_chunk(folder: Path, chunk: Chunk) -> Floats | None:
    """Return the saved curves of a chunk, or None if there is no valid file."""
    try:
        curves: Floats = np.load(_chunk_path(folder, chunk), allow_pickle=False)
    except (OSError, ValueError, EOFError):
        return None
    return curves if curves.shape == chunk.shape and np.isfinite(curves).all() else None


def run_all(
    experiments: Mapping[str, Experiment],
    report: Report,
    checkpoint: str | PathLike[str] | None = None,
) -> dict[str, ExperimentResult]:
    """Run every experiment and return the results by name.

    If the run is interrupted, the folder `checkpoint` holds the finished chunks, and the next run
    starts from them. A run that ends well removes the folder.
    """
    folder = None if checkpoint is None else Path(checkpoint)
    count = make_counter({name: each.replications for name, each in experiments.items()}, report)
    results = run_experiments(experiments, partial(run_on_threads, play_chunk), count, folder)
    if folder:
        shutil.rmtree(folder, ignore_errors=True)
    return results
