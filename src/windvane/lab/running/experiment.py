"""Experiments: players in a world, many times over, the same numbers on any number of threads.

The work is cut into chunks of replications. A chunk is played by compiled code that needs no lock,
so threads run it side by side; where chunks are played, and in which order, changes nothing.
"""

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np

from windvane import validation
from windvane.lab.engines.action_set import replay_on
from windvane.lab.engines.adaptive import replay_adaptive
from windvane.lab.engines.generalized import replay_generalized
from windvane.lab.engines.linear import Player, replay
from windvane.lab.worlds.definition import World
from windvane.lab.worlds.draw import Draw, Marks
from windvane.types import Floats

POINTS = 200  # a curve is kept at so many rounds, evenly spaced, unless asked otherwise
CHUNK = 5  # replications


@dataclass(frozen=True)
class Experiment:
    """Some players, all in the same replications of one world."""

    players: tuple[Player, ...]
    world: World
    replications: int
    seed: int
    points: int = POINTS
    extra: tuple[int, ...] = ()  # further round counts at which regret is wanted

    @property
    def marks(self) -> Marks:
        """The round counts at which the curves are kept."""
        even = np.linspace(0, self.world.horizon, min(self.points, self.world.horizon) + 1)
        wanted = [r for r in self.extra if 0 < r <= self.world.horizon]
        return np.unique(np.concatenate([np.rint(even[1:]).astype(np.int64), wanted])).astype(
            np.int64
        )

    @property
    def fingerprint(self) -> str:
        """What tells this experiment's chunks from any other's."""
        parts = (self.players, self.world, self.seed, self.marks.tolist())
        return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


class Chunk(NamedTuple):
    """Some replications of an experiment."""

    experiment: Experiment
    first: int
    last: int  # not included


class Result(NamedTuple):
    """What an experiment found."""

    names: tuple[str, ...]
    marks: Marks  # (M,)
    regret: Floats  # (players, replications, M) cumulative

    def mean(self) -> Floats:
        """The mean curve of each player, (players, M)."""
        mean: Floats = self.regret.mean(axis=1)
        return mean

    def at(self, rounds: int) -> Floats:
        """The regret after so many rounds, (players, replications)."""
        return self.regret[:, :, int(np.searchsorted(self.marks, rounds))]


class Runner(Protocol):
    """Plays chunks somewhere, and hands each result over as it is done."""

    def __call__(self, chunks: Sequence[Chunk]) -> Iterator[tuple[Chunk, Floats]]: ...


def play_chunk(chunk: Chunk) -> Floats:
    """The curves of a chunk, (players, replications, M)."""
    experiment = chunk.experiment
    marks = experiment.marks
    curves = np.empty((len(experiment.players), chunk.last - chunk.first, marks.size))
    for r in range(chunk.first, chunk.last):
        seed = np.random.SeedSequence(experiment.seed, spawn_key=(r,))
        draw = experiment.world.draw(seed)
        key = int(seed.generate_state(1, np.uint64)[0]) >> 1
        for p, player in enumerate(experiment.players):
            curves[p, r - chunk.first] = _game(player, experiment.world)(draw, key, marks)
    return curves


def _game(player: Player, world: World) -> Callable[[Draw, int, Marks], Floats]:
    """How a player plays a replication of a world: its regret at the marks."""
    if actions := world.action_set:
        return partial(replay_on, actions, player)
    if player.adaptation:
        return partial(replay_adaptive, player, player.adaptation)
    if player.link:
        return partial(replay_generalized, player)
    return partial(replay, player)


def on_threads(threads: int | None = None) -> Runner:
    """Play chunks on the cores of this machine."""
    workers = threads or os.cpu_count() or 1

    def run(chunks: Sequence[Chunk]) -> Iterator[tuple[Chunk, Floats]]:
        with ThreadPoolExecutor(validation.whole("on_threads", "threads", workers)) as pool:
            waiting = {pool.submit(play_chunk, chunk): chunk for chunk in chunks}
            try:
                while waiting:
                    done, _ = wait(waiting, return_when=FIRST_COMPLETED)
                    for future in done:
                        yield waiting.pop(future), future.result()
            finally:
                for future in waiting:
                    future.cancel()

    return run


def run(
    experiment: Experiment,
    runner: Runner | None = None,
    progress: Callable[[int], None] | None = None,
    keep: Path | None = None,
) -> Result:
    """Play every replication; with `keep`, what was finished before is not played again."""
    every = range(0, experiment.replications, CHUNK)
    last = experiment.replications
    chunks = [Chunk(experiment, first, min(first + CHUNK, last)) for first in every]
    marks = experiment.marks
    regret = np.empty((len(experiment.players), last, marks.size))
    missing = []
    for chunk in chunks:
        found = _load(keep, chunk) if keep else None
        if found is None:
            missing.append(chunk)
            continue
        regret[:, chunk.first : chunk.last] = found
        if progress:
            progress(chunk.last - chunk.first)
    for chunk, curves in (runner or on_threads())(missing):
        regret[:, chunk.first : chunk.last] = curves
        if keep:
            _save(keep, chunk, curves)
        if progress:
            progress(chunk.last - chunk.first)
    return Result(tuple(player.name for player in experiment.players), marks, regret)


def _file(keep: Path, chunk: Chunk) -> Path:
    return keep / f"{chunk.experiment.fingerprint}-{chunk.first}-{chunk.last}.npy"


def _save(keep: Path, chunk: Chunk, curves: Floats) -> None:
    keep.mkdir(parents=True, exist_ok=True)
    target = _file(keep, chunk)
    draft = target.with_suffix(f".{os.getpid()}.tmp")
    with open(draft, "wb") as file:
        np.save(file, curves, allow_pickle=False)
    os.replace(draft, target)


def _load(keep: Path, chunk: Chunk) -> Floats | None:
    """The kept curves of a chunk, or None where there are none that fit."""
    try:
        curves: Floats = np.load(_file(keep, chunk), allow_pickle=False)
    except (OSError, ValueError, EOFError):
        return None
    shape = (len(chunk.experiment.players), chunk.last - chunk.first, chunk.experiment.marks.size)
    return curves if curves.shape == shape and np.isfinite(curves).all() else None
