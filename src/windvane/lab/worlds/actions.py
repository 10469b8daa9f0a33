"""Actions: the arms that a world offers, or the set of actions to choose from."""

import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import numpy.typing as npt

from windvane import sets, validation
from windvane.errors import SettingError
from windvane.lab.worlds.draw import Picks
from windvane.lab.worlds.drift import Eras, Generator, draw_directions
from windvane.sets import ActionSet, paths
from windvane.types import Floats

ROUTE_COST = 3.0  # in units of S/√d: only one street in a thousand has a positive reward
MAX_FRESH_VECTORS = 20_000  # fresh arms are picked from this many vectors, to bound the memory


@dataclass(frozen=True)
class Actions:
    """The source of the arms of a world."""

    text: str
    drawn_each_round: bool
    vectors: Floats | None = field(default=None, compare=False)  # (N, d) pool after pool
    pool_sizes: tuple[int, ...] = ()
    label: str = ""  # a note about the arms, for every output
    # makes the action set of a dimension, if there is no list of arms
    make_set: Callable[[int], ActionSet] | None = field(default=None, compare=False)
    cost: float = 0.0  # subtracted from every coordinate of θ, in units of S/√d

    def __repr__(self) -> str:
        return self.text


def fresh() -> Actions:
    """New arms in every round, uniform on the unit sphere: ‖x‖ = 1.

    >>> from windvane.lab.worlds import fresh, world
    >>> world(3, 5, 100, actions=fresh()).draw(1).picks.shape  # 5 arms in each of 100 rounds
    (100, 5)
    """
    return Actions("fresh()", drawn_each_round=True)


def fixed(arms: npt.ArrayLike | None = None) -> Actions:
    """The same arms in every round: x_{t,k} = x_k. Without `arms`, they are drawn as by `fresh`.

    >>> from windvane.lab.worlds import fixed, world
    >>> world(2, 3, 100, actions=fixed([[1, 0], [0, 1], [0.6, 0.8]]))
    world(2, 3, 100, stationary(), fixed([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]]), gaussian(0.15),
    start=1.0)
    """
    if arms is None:
        return Actions("fixed()", drawn_each_round=False)
    vectors = validation.check_numbers("fixed", "arms", arms, 2)
    text = f"fixed({vectors.tolist()})"
    return Actions(text, drawn_each_round=False, vectors=vectors, pool_sizes=(len(vectors),))


def pools(*sets: npt.ArrayLike, new_each_round: bool = True, label: str = "") -> Actions:
    """Different arms from each pool, K/n of each of n pools.

    They are drawn in every round, or once a replication if `new_each_round` is False. `label` is a
    note for every output.

    >>> from windvane.lab.worlds import pools, world
    >>> actions = pools([[1.0, 0.0], [0.8, 0.6]], [[0.0, 1.0], [0.6, 0.8]], new_each_round=False)
    >>> world(2, 2, 100, actions=actions).draw(1).picks.shape  # one arm of each pool
    (1, 2)
    """
    parts = [validation.check_numbers("pools", "a pool", pool, 2) for pool in sets]
    if not parts or len({part.shape[1] for part in parts}) > 1:
        raise SettingError("pools: at least one pool is needed, all of one dimension")
    vectors = np.concatenate(parts)
    sizes = tuple(len(part) for part in parts)
    checksum = f"{zlib.crc32(vectors.tobytes()):08x}"
    text = f"pools({' + '.join(map(str, sizes))} arms #{checksum}, new_each_round={new_each_round})"
    return Actions(text, new_each_round, vectors, sizes, label)


def ball(radius: float = 1.0) -> Actions:
    """Any point of a ball: ‖x‖ ≤ radius.

    >>> from windvane.lab.worlds import ball, world
    >>> world(3, 1, 100, actions=ball(2.0)).action_set.best([0.0, 0.0, 5.0]).features
    array([0., 0., 2.])
    """
    radius = validation.positive("ball", "radius", radius)
    make_set = partial(sets.ball, radius=radius)
    return Actions(f"ball({radius!r})", drawn_each_round=False, make_set=make_set)


def routes(rows: int, columns: int) -> Actions:
    """Routes right and down through a grid of crossings, d = r(c−1) + c(r−1) streets.

    The reward of a street is θ_t = v_t − 3S/√d: a cost, and a part v that starts and drifts as the
    parameter of any world, with ‖v_0‖ = S. With this cost, 999 of 1000 streets have a negative
    reward.

    >>> from windvane.lab.worlds import routes, world
    >>> grid = world(12, 1, 100, actions=routes(3, 3))  # 12 streets between 9 crossings
    >>> int(grid.action_set.best([-1.0] * 12).features.sum())  # streets on a route
    4
    """
    size = tuple(validation.whole("routes", "a side", side) for side in (rows, columns))
    if max(size) < 2:
        raise SettingError("routes: there must be at least two crossings, got one")
    make_set = partial(make_routes, rows=size[0], columns=size[1])
    return Actions(f"routes{size}", drawn_each_round=False, make_set=make_set, cost=ROUTE_COST)


def make_routes(dim: int, rows: int, columns: int) -> ActionSet:
    """Make the set of routes between opposite corners of a grid; each street is a coordinate."""
    number = np.arange(rows * columns).reshape(rows, columns)
    right = np.stack([number[:, :-1].ravel(), number[:, 1:].ravel()], axis=1)
    down = np.stack([number[:-1].ravel(), number[1:].ravel()], axis=1)
    edges = np.concatenate([right, down])
    if len(edges) != dim:
        raise SettingError(
            f"world: dim must be {len(edges)}, the number of streets of routes, got {dim}"
        )
    return paths(edges, 0, rows * columns - 1)


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
