"""Worlds as tables of a TOML file; only the first three keys are required:

| key       | value                                                                              |
|-----------|------------------------------------------------------------------------------------|
| `dim`     | d, a whole number                                                                  |
| `arms`    | K, a whole number                                                                  |
| `horizon` | T, a whole number                                                                  |
| `drift`   | `"stationary()"`, `"abrupt([4000], flip=0.6)"`, `"rotation(3.14)"`, `"walk(4.0)"`, |
|           | `"periodic(2000)"`                                                                 |
| `actions` | `"fresh()"`, `"fixed()"`, `"fixed([[1, 0], [0, 1]])"`, `"ball()"`, `"ball(2.0)"`,  |
|           | `"routes(4, 4)"`; a ball and routes have no list of arms, and only theory uses K   |
| `reward`  | `"gaussian(0.15)"`, `"bounded(1.0)"`, `"bernoulli()"`, `"bernoulli('clip')"`,      |
|           | `"bernoulli('logistic')"`, `"poisson()"`                                           |
| `start`   | the first θ, or its norm if its direction is drawn; 1.0 by default                 |
"""

from collections.abc import Callable, Mapping
from typing import TypeVar, cast

import numpy as np

from windvane import text_form, validation
from windvane.errors import SettingError
from windvane.lab.worlds.actions import Actions, ball, fixed, fresh, routes
from windvane.lab.worlds.definition import World, world
from windvane.lab.worlds.drift import Drift, abrupt, periodic, rotation, stationary, walk
from windvane.lab.worlds.rewards import Reward, bernoulli, bounded, gaussian, poisson

Part = TypeVar("Part")
KEYS = ("dim", "arms", "horizon", "drift", "actions", "reward", "start")
REQUIRED_KEYS = KEYS[:3]
DRIFTS: dict[str, Callable[..., Drift]] = {
    f.__name__: f for f in (stationary, abrupt, rotation, walk, periodic)
}
ACTIONS: dict[str, Callable[..., Actions]] = {f.__name__: f for f in (fresh, fixed, ball, routes)}
REWARDS: dict[str, Callable[..., Reward]] = {
    f.__name__: f for f in (gaussian, bounded, bernoulli, poisson)
}


def from_table(table: Mapping[str, object]) -> World:
    """Make the world of a table with the keys above; the texts are parsed, never executed.

    >>> from windvane.lab.worlds import from_table
    >>> from_table({"dim": 3, "arms": 5, "horizon": 100, "drift": "walk(2.0)"})
    world(3, 5, 100, walk(2.0), fresh(), gaussian(0.15), start=1.0)
    """
    if unknown := sorted(set(table) - set(KEYS)):
        raise SettingError(f"world: unknown {', '.join(unknown)}; the keys are {', '.join(KEYS)}")
    if missing := [key for key in REQUIRED_KEYS if key not in table]:
        raise SettingError(f"world: {', '.join(missing)} must be given")
    start = table.get("start", 1.0)
    return world(
        validation.whole("world", "dim", table["dim"]),
        validation.whole("world", "arms", table["arms"]),
        validation.whole("world", "horizon", table["horizon"]),
        _read("drift", table.get("drift", "stationary()"), DRIFTS),
        _read("actions", table.get("actions", "fresh()"), ACTIONS),
        _read("reward", table.get("reward", "gaussian(0.15)"), REWARDS),
        np.array(start) if isinstance(start, list) else validation.real("world", "start", start),
    )


def _read(key: str, text: object, factories: dict[str, Callable[..., Part]]) -> Part:
    """Return the part of a world that a text such as "walk(2.0)" stands for."""
    part = text_form.read_call(f"world: {key}", text, factories)
    if isinstance(part, int | float | str | list | None):
        raise SettingError(f"world: {key}: must be a call such as {next(iter(factories))}(...)")
    return cast(Part, part)
