"""The engines that players need, compiled at the same time in two processes."""

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np

from windvane import text_form
from windvane._compile_ahead import compiling_ahead
from windvane._numba.disk_cache import is_compiled
from windvane.lab.engines import lane_samples, lane_widths, linear
from windvane.lab.engines.game import Player
from windvane.lab.engines.perturbed import can_play_perturbed
from windvane.lab.engines.side_by_side import (
    can_play_side_by_side,
    chooses_by_widths,
    replay_side_by_side,
)
from windvane.lab.worlds.draw import Draw

COMPILE_ENGINE = "from windvane.lab.engines.entry_points import main; main()"


class Engine(NamedTuple):
    """Compiled code that plays some pairs, and one of these pairs."""

    play: Callable[..., object]
    memory: str
    exploration: str


ENGINES = {  # those that take longest to compile come first
    "widths": Engine(lane_widths.play_widths, "discount(0.9)", "optimism(1)"),
    "linear": Engine(linear.play, "window(1)", "thompson(1)"),
    "samples": Engine(lane_samples.play_samples, "discount(0.9)", "thompson(1)"),
}


def name_engine(player: Player, draw: Draw) -> str | None:
    """Name the engine that plays a player in a world with such draws; None if it is another."""
    if player.adaptation or player.link or can_play_perturbed(player):
        return None
    if not can_play_side_by_side(player, draw):
        return "linear"
    return "widths" if chooses_by_widths(player) else "samples"


@contextmanager
def compiling_engine(name: str) -> Iterator[None]:
    """Let another process compile an engine in the meantime, if it has not been compiled."""
    with compiling_ahead(ENGINES[name].play, COMPILE_ENGINE, name):
        _ahead.add(name)
        try:
            yield
        finally:
            _ahead.discard(name)


_ahead: set[str] = set()  # the engines that another process compiles


def compile_engines(needed: Iterable[str | None]) -> None:
    """Compile the engines of these that have not been compiled, one of them in another process.

    One engine alone is compiled when it plays.
    """
    missing = [name for name, engine in ENGINES.items() if not is_compiled(engine.play)]
    if len(missing) > 1:  # only then, because naming what is needed draws every world
        names = set(needed)
        missing = [name for name in missing if name in names]
    if _ahead.isdisjoint(missing) and len(missing) > 1:
        with compiling_engine(missing[0]):
            compile_engines(missing)
    elif len(missing) > 1:
        for name in missing:
            if name not in _ahead:
                load_engine(name)


def load_engine(name: str) -> None:
    """Load or compile an engine: play one round."""
    memory = text_form.as_memory(name, ENGINES[name].memory)
    exploration = text_form.as_exploration(name, ENGINES[name].exploration)
    player, marks = Player(name, memory, exploration), np.ones(1, np.int64)
    draw = Draw(
        theta=np.ones((1, 1)),
        era=np.zeros(1, np.int64),
        arms=np.ones((1, 1)),
        picks=np.zeros((1, 1), np.int32),
        noise=np.zeros(1),
        binary=False,
        centre=0.0,
        slope=1.0,
    )
    if name == "linear":
        linear.replay(player, draw, 0, marks)
    else:
        replay_side_by_side(player, [draw], [0], marks)


def main() -> None:
    """Compile the engine whose name is the argument of the process."""
    load_engine(sys.argv[1])
