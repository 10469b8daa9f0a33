"""Draw the arms of every round of a replication."""

import numpy as np

from windvane.lab.worlds.actions import Actions
from windvane.lab.worlds.draw import Picks
from windvane.lab.worlds.drift import Eras, Generator, draw_directions
from windvane.types import Floats

MAX_FRESH_VECTORS = 20_000  # fresh arms are picked from this many vectors, to bound the memory


def draw_arms(
    actions: Actions, count: int, dim: int, horizon: int, rng: Generator
) -> tuple[Floats, Picks]:
    """Return all vectors, (N, d), and the rows that are offered in each round, (T or 1, count)."""
    rounds = horizon if actions.drawn_each_round else 1
    vectors = actions.vectors
    sizes = actions.pool_sizes
    if vectors is None:
        size = min(rounds * count, max(MAX_FRESH_VECTORS, count))
        vectors = draw_directions(rng, size, dim)
        sizes = (size,)
        if size == rounds * count:
            return vectors, np.arange(size, dtype=np.int32).reshape(rounds, count)
    each = count // len(sizes)
    starts = np.cumsum((0, *sizes[:-1]))
    picks = [
        start + _draw_distinct(rng, rounds, each, size)
        for start, size in zip(starts, sizes, strict=True)
    ]
    return vectors, np.stack(picks, axis=2).reshape(rounds, count).astype(np.int32)


def _draw_distinct(rng: Generator, rows: int, count: int, size: int) -> Eras:
    """Draw `count` different numbers below `size` in each row, every set equally likely."""
    if count == size:
        return np.tile(np.arange(size), (rows, 1))
    if count * count > 2 * size:  # too many rows would have to be drawn again
        return np.array([rng.permutation(size)[:count] for _ in range(rows)])
    picks = rng.integers(size, size=(rows, count))
    repeated = np.arange(rows)  # rows that may have a number twice
    while repeated.size:
        ordered = np.sort(picks[repeated], axis=1)
        repeated = repeated[(ordered[:, 1:] == ordered[:, :-1]).any(axis=1)]
        picks[repeated] = rng.integers(size, size=(repeated.size, count))
    return picks
