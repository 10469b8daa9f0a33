"""The engines of an experiment are compiled once, one of them in another process."""

import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from compilation_runs import run_with_empty_cache
from windvane import text_form
from windvane.lab.engines import entry_points, side_by_side
from windvane.lab.engines.game import Player
from windvane.lab.worlds.draw import Draw

FIXED = Draw(
    np.ones((1, 2)),
    np.zeros(3, np.int64),
    np.eye(2),
    np.zeros((1, 2), np.int32),
    np.zeros(3),
    False,
    0.0,
    1.0,
)


@pytest.mark.parametrize(
    ("memory", "exploration", "engine"),
    [
        ("discount(0.9)", "optimism(1)", "widths"),
        ("discount(0.9)", "thompson(1)", "samples"),
        ("keep()", "greedy()", "samples"),
        ("window(5)", "thompson(1)", "linear"),
    ],
)
def test_a_player_has_one_engine(memory: str, exploration: str, engine: str) -> None:
    parts = text_form.as_memory("test", memory), text_form.as_exploration("test", exploration)
    player = Player("test", *parts)
    assert entry_points.name_engine(player, FIXED) == engine
    fresh = FIXED._replace(picks=np.zeros((3, 2), np.int32))
    assert entry_points.name_engine(player, fresh) == "linear"


def test_the_example_of_an_engine_is_played_by_it(monkeypatch: pytest.MonkeyPatch) -> None:
    played: list[str] = []
    for name, (play, *_) in entry_points.ENGINES.items():
        for module in (sys.modules[play.__module__], side_by_side):
            if hasattr(module, play.__name__):
                note = partial(_note, played, name)
                monkeypatch.setattr(module, play.__name__, note)
        entry_points.load_engine(name)
    assert played == [*entry_points.ENGINES]


def _note(played: list[str], name: str, *_: object) -> None:
    """Note that an engine played."""
    played.append(name)


RUN = """
from windvane import lab
lab.reproduce(replications=2, panels="10x10")
from windvane.lab.engines.entry_points import ENGINES
print(*(sum(ENGINES[name].play.stats.cache_misses.values()) for name in ("widths", "samples")))
"""


def test_another_process_compiles_the_largest_engine_and_nothing_is_compiled_twice(
    tmp_path: Path,
) -> None:
    assert run_with_empty_cache(RUN, tmp_path) == "0 1\n"
