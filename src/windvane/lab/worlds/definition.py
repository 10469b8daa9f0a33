"""Worlds: what a simulated policy plays in.

A world is a drift of the parameter, a source of arms and a law of rewards. Everything random in one
replication is drawn from one seed before the first round.

>>> from windvane.lab.worlds import abrupt, world
>>> place = world(dim=10, arms=20, horizon=10_000, drift=abrupt([4000], flip=0.6))
>>> place
world(10, 20, 10000, abrupt([4000], flip=0.6), fresh(), gaussian(0.15), start=1.0)
>>> draw = place.draw(7)
>>> draw.theta.shape, draw.picks.shape, round(draw.theta_norm, 12)
((2, 10), (10000, 20), 1.0)

A world may be a table of a TOML file, with the keys of KEYS. A ball and routes have no list of
arms, and only theory uses the number K of arms.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar, cast

import numpy as np
import numpy.typing as npt

from windvane import validation
from windvane.beliefs.links import LINKS
from windvane.errors import SettingError
from windvane.lab.worlds import drift as drifts
from windvane.lab.worlds.actions import Actions, ball, draw_arms, fixed, fresh, routes
from windvane.lab.worlds.draw import Draw, RewardLaw, bernoulli, bounded, gaussian, poisson
from windvane.lab.worlds.drift import Drift, Generator, Path, draw_directions, stationary
from windvane.sets import ActionSet

MAX_POISSON_SCORE = 6.0  # the mean of a count is then at most 400
Part = TypeVar("Part")
KEYS = ("dim", "arms", "horizon", "drift", "actions", "reward", "start")
REQUIRED_KEYS = KEYS[:3]
DRIFTS: dict[str, Callable[..., Drift]] = {
    f.__name__: f
    for f in (stationary, drifts.abrupt, drifts.rotation, drifts.walk, drifts.periodic)
}
ACTIONS: dict[str, Callable[..., Actions]] = {f.__name__: f for f in (fresh, fixed, ball, routes)}
REWARDS: dict[str, Callable[..., RewardLaw]] = {
    f.__name__: f for f in (gaussian, bounded, bernoulli, poisson)
}


@dataclass(frozen=True)
class World:
    """What a policy plays in; made by `world` or `from_table`."""

    dim: int
    arms: int
    horizon: int
    drift: Drift
    actions: Actions
    reward: RewardLaw
    start: float | tuple[float, ...]

    def draw(self, seed: int | np.random.SeedSequence) -> Draw:
        """Draw one replication; the same seed always gives the same draw."""
        root = seed if isinstance(seed, np.random.SeedSequence) else np.random.SeedSequence(seed)
        theta, era = self.path(spawn(root, 0))
        rng = spawn(root, 1)
        if actions := self.action_set:  # one action stands for all: no action has a larger norm
            arms = actions.best(np.ones(self.dim)).features[None]
            picks = np.zeros((1, 1), np.int32)
        else:
            arms, picks = draw_arms(self.actions, self.arms, self.dim, self.horizon, rng)
        noise = self.reward.draw_noise(self.horizon, spawn(root, 2))
        is_binary = self.reward.law == "bernoulli"
        draw = Draw(theta, era, arms, picks, noise, is_binary, 0.0, 1.0, LINKS[self.reward.link])
        largest = draw.theta_norm * draw.arm_norm
        if self.reward.law == "poisson" and largest > MAX_POISSON_SCORE:
            raise SettingError(
                f"poisson: ⟨x, θ⟩ must be at most {MAX_POISSON_SCORE:g}, but could be {largest:g}"
            )
        if self.reward.parameter == "affine":
            slope = 0.5 / (draw.theta_norm * draw.arm_norm)
            draw = draw._replace(centre=0.5, slope=slope)
        return draw

    def path(self, rng: Generator) -> Path:
        """Draw the parameters of all rounds."""
        if isinstance(self.start, tuple):
            first = np.array(self.start)
        else:
            first = self.start * draw_directions(rng, 1, self.dim)[0]
        theta, era = self.drift.path(first, self.horizon, rng)
        spread = float(np.linalg.norm(first)) / math.sqrt(self.dim)
        return theta - self.actions.cost * spread, era

    @property
    def is_log(self) -> bool:
        """Whether only the rewards of logged actions are known."""
        return False

    @property
    def action_set(self) -> ActionSet | None:
        """The set of actions, or None if the world offers a list of arms."""
        return self.actions.make_set(self.dim) if self.actions.make_set else None

    def __repr__(self) -> str:
        size = f"{self.dim}, {self.arms}, {self.horizon}"
        start = list(self.start) if isinstance(self.start, tuple) else self.start
        return f"world({size}, {self.drift}, {self.actions}, {self.reward}, start={start})"


def world(
    dim: int,
    arms: int,
    horizon: int,
    drift: Drift = stationary(),  # noqa: B008
    actions: Actions = fresh(),  # noqa: B008
    reward: RewardLaw = gaussian(0.15),  # noqa: B008
    start: float | npt.ArrayLike = 1.0,
) -> World:
    """Make a world, and check that its parts fit each other.

    `start` is the first θ, or its norm S if its direction is drawn at random.

    >>> from windvane.lab.worlds import abrupt, world
    >>> world(2, 5, 100, abrupt([50], to=[[0, 1]]), start=[1, 0]).draw(1).theta
    array([[1., 0.],
           [0., 1.]])
    """
    place = World(
        validation.whole("world", "dim", dim),
        validation.whole("world", "arms", arms),
        validation.whole("world", "horizon", horizon),
        validation.of_kind("world", "drift", drift, Drift),
        validation.of_kind("world", "actions", actions, Actions),
        validation.of_kind("world", "reward", reward, RewardLaw),
        _check_start(start, dim),
    )
    _check_arms(place)
    place.path(np.random.default_rng(0))  # raises if the drift does not fit
    return place


def _check_start(start: float | npt.ArrayLike, dim: int) -> float | tuple[float, ...]:
    if np.array(start, dtype=object).ndim == 0:  # objects: its rows may differ in length
        return validation.positive("world", "start", start)
    theta = validation.check_numbers("world", "start", [start], 2)[0]  # type: ignore[arg-type]
    if theta.size != dim or not theta.any():
        raise SettingError(f"world: start must be {dim} numbers, not all 0, got {theta.size}")
    return tuple(theta.tolist())


def _check_arms(place: World) -> None:
    vectors = place.actions.vectors
    sizes = place.actions.pool_sizes
    count = place.arms
    if vectors is None:
        _ = place.action_set  # raises if the set does not fit
        return
    if vectors.shape[1] != place.dim:
        raise SettingError(
            f"world: dim is {place.dim}, but the arms have {vectors.shape[1]} features"
        )
    if count % len(sizes):
        raise SettingError(f"world: arms must be a multiple of {len(sizes)} pools, got {count}")
    if place.actions.text.startswith("fixed") and count != len(vectors):
        raise SettingError(f"world: arms is {count}, but fixed has {len(vectors)}")
    each = count // len(sizes)
    if each > min(sizes):
        raise SettingError(f"world: a pool must have at least {each} arms, got {min(sizes)}")


def spawn(root: np.random.SeedSequence, place: int) -> Generator:
    """Return the generator of one of the places at which a draw needs random numbers."""
    # SeedSequence.spawn() counts its calls, so its next call would give another draw
    child = np.random.SeedSequence(root.entropy, spawn_key=(*root.spawn_key, place))
    return np.random.default_rng(child)


def from_table(table: Mapping[str, object]) -> World:
    """Make the world of a table with the keys of KEYS; texts are parsed, never executed.

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
        **{key: validation.whole("world", key, table[key]) for key in REQUIRED_KEYS},
        drift=_read("drift", table.get("drift", "stationary()"), DRIFTS),
        actions=_read("actions", table.get("actions", "fresh()"), ACTIONS),
        reward=_read("reward", table.get("reward", "gaussian(0.15)"), REWARDS),
        start=start if isinstance(start, list) else validation.real("world", "start", start),
    )


def _read(key: str, text: object, factories: dict[str, Callable[..., Part]]) -> Part:
    """Return the part of a world that a text such as "walk(2.0)" stands for."""
    part = validation.read_call(f"world: {key}", text, factories)
    if isinstance(part, int | float | str | list | None):
        raise SettingError(f"world: {key}: must be a call such as {next(iter(factories))}(...)")
    return cast(Part, part)
