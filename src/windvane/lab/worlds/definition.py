"""Worlds: where a simulated policy plays.

A world is a drift of the parameter, a source of arms and a kind of reward. All that chance decides
in one replication is drawn from one seed before the first round.

>>> place = world(dim=10, arms=20, horizon=10_000, drift=abrupt([4000], flip=0.6))
>>> place
world(10, 20, 10000, abrupt([4000], flip=0.6), fresh(), gaussian(0.15), start=1.0)
>>> draw = place.draw(7)
>>> draw.theta.shape, draw.picks.shape, round(draw.theta_norm, 12)
((2, 10), (10000, 20), 1.0)

The same world as a TOML table, for `from_table`; only the first three keys are required:

| key       | value                                                                              |
|-----------|------------------------------------------------------------------------------------|
| `dim`     | d, a whole number                                                                  |
| `arms`    | K, a whole number                                                                  |
| `horizon` | T, a whole number                                                                  |
| `drift`   | `"stationary()"`, `"abrupt([4000], flip=0.6)"`, `"rotation(3.14)"`, `"walk(4.0)"`, |
|           | `"periodic(2000)"`                                                                 |
| `actions` | `"fresh()"`, `"fixed()"`, `"fixed([[1, 0], [0, 1]])"`, `"ball()"`, `"ball(2.0)"`,  |
|           | `"routes(4, 4)"`; from a ball or from routes there is no list of arms to choose:   |
|           | K only tells theory how to tune                                                    |
| `reward`  | `"gaussian(0.15)"`, `"bounded(1.0)"`, `"bernoulli()"`, `"bernoulli('clip')"`,      |
|           | `"bernoulli('logistic')"`, `"poisson()"`                                           |
| `start`   | the first θ, or its norm when its direction is to be drawn; 1.0 unless given       |
"""

import ast
import math
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from windvane import action_sets, validation
from windvane.errors import SettingError
from windvane.glm.links import LINKS
from windvane.lab.worlds.draw import Draw, Picks, means, offered, payoff, regret
from windvane.lab.worlds.drift import (
    Drift,
    Eras,
    Generator,
    Path,
    abrupt,
    directions,
    periodic,
    rotation,
    stationary,
    walk,
)
from windvane.lab.worlds.routes import streets
from windvane.types import Floats

__all__ = [
    "Actions",
    "Draw",
    "Drift",
    "Reward",
    "World",
    "abrupt",
    "ball",
    "bernoulli",
    "bounded",
    "fixed",
    "fresh",
    "from_table",
    "gaussian",
    "means",
    "offered",
    "payoff",
    "periodic",
    "poisson",
    "pools",
    "regret",
    "rotation",
    "routes",
    "stationary",
    "walk",
    "world",
]

Part = TypeVar("Part")
LARGEST_SCORE = 6.0  # of a count, whose mean is then up to 400
POOL = 20_000  # fresh arms come from at most so many vectors: memory stays bounded


@dataclass(frozen=True)
class Actions:
    """Where arms come from, whether anew each round, and what every output must say of them."""

    text: str
    anew: bool
    given: Floats | None = field(default=None, compare=False)  # (N, d) pool after pool
    sizes: tuple[int, ...] = ()  # of the pools
    label: str = ""
    # the set for a dimension, where arms are not listed
    whole: Callable[[int], action_sets.ActionSet] | None = field(default=None, compare=False)
    toll: float = 0.0  # what all of θ lies below 0, in units of its spread S/√d

    def __repr__(self) -> str:
        return self.text


def fresh() -> Actions:
    """New arms in every round, uniform on the unit sphere."""
    return Actions("fresh()", anew=True)


def fixed(arms: npt.ArrayLike | None = None) -> Actions:
    """The same arms in every round: the given ones, or drawn once on the unit sphere."""
    if arms is None:
        return Actions("fixed()", anew=False)
    given = validation.check_numbers("fixed", "arms", arms, 2)
    return Actions(f"fixed({given.tolist()})", anew=False, given=given, sizes=(len(given),))


def pools(*sets: npt.ArrayLike, anew: bool = True, label: str = "") -> Actions:
    """Different arms from each pool in turn, equally many; drawn in every round, or only once."""
    parts = [validation.check_numbers("pools", "a pool", pool, 2) for pool in sets]
    if not parts or len({part.shape[1] for part in parts}) > 1:
        raise SettingError("pools: at least one pool is needed, all of one dimension")
    given, sizes = np.concatenate(parts), tuple(len(part) for part in parts)
    text = (
        f"pools({' + '.join(map(str, sizes))} arms #{zlib.crc32(given.tobytes()):08x}, anew={anew})"
    )
    return Actions(text, anew, given, sizes, label)


def ball(radius: float = 1.0) -> Actions:
    """Any point up to `radius` from 0."""
    radius = validation.positive("ball", "radius", radius)
    return Actions(f"ball({radius!r})", anew=False, whole=partial(action_sets.ball, radius=radius))


def routes(rows: int, columns: int) -> Actions:
    """Routes right and down through a grid of crossings, d = r(c−1) + c(r−1) streets.

    A street pays θ_t = v_t − 3S/√d: a toll, and congestion v that starts and drifts as told, with
    ‖v_0‖ = S. Three spreads of v make all but one street in a thousand cost something.
    """
    size = tuple(validation.whole("routes", "a side", side) for side in (rows, columns))
    if max(size) < 2:
        raise SettingError("routes: there must be at least two crossings, got one")
    whole = partial(streets, rows=size[0], columns=size[1])
    return Actions(f"routes{size}", anew=False, whole=whole, toll=3.0)


@dataclass(frozen=True)
class Reward:
    """How a mean becomes a reward."""

    law: str
    given: float | str

    @property
    def link(self) -> str:
        """The link under which the mean is that of ⟨x, θ⟩, but for a shift and a scale."""
        return (
            "logistic"
            if self.given == "logistic"
            else "poisson"
            if self.given == "exp"
            else "identity"
        )

    def __repr__(self) -> str:
        return "poisson()" if self.law == "poisson" else f"{self.law}({self.given!r})"


def gaussian(variance: float) -> Reward:
    """The mean plus normal noise: y = ⟨x, θ⟩ + σz,  σ² = variance."""
    return Reward("gaussian", validation.not_negative("gaussian", "variance", variance))


def bounded(radius: float) -> Reward:
    """The mean plus noise uniform on [−radius, radius]."""
    return Reward("bounded", validation.not_negative("bounded", "radius", radius))


def bernoulli(mean: str = "affine") -> Reward:
    """1 with probability μ, else 0; regret counts μ.

    affine: μ = ½ + ⟨x, θ⟩/(2SL), in [0, 1] by itself;  clip: μ = min(1, max(0, ⟨x, θ⟩))
    logistic: μ = 1/(1 + exp(−⟨x, θ⟩))
    """
    if mean not in ("affine", "clip", "logistic"):
        raise SettingError(f"bernoulli: mean must be 'affine', 'clip' or 'logistic', got {mean!r}")
    return Reward("bernoulli", mean)


def poisson() -> Reward:
    """A count of mean μ = exp(⟨x, θ⟩); regret counts μ."""
    return Reward("poisson", "exp")


@dataclass(frozen=True)
class World:
    """Where a policy plays; made by `world` or `from_table`."""

    dim: int
    arms: int
    horizon: int
    drift: Drift
    actions: Actions
    reward: Reward
    start: float | tuple[float, ...]

    def draw(self, seed: int | np.random.SeedSequence) -> Draw:
        """One replication; the same seed gives the same draw, however often it is asked."""
        root = seed if isinstance(seed, np.random.SeedSequence) else np.random.SeedSequence(seed)
        theta, era = self.path(_stream(root, 0))
        arms, picks = _offer(self, _stream(root, 1))
        noise = _noise(self.reward, self.horizon, _stream(root, 2))
        binary, link = self.reward.law == "bernoulli", LINKS[self.reward.link]
        draw = Draw(theta, era, arms, picks, noise, binary, 0.0, 1.0, link)
        largest = draw.theta_norm * draw.arm_norm
        if self.reward.law == "poisson" and largest > LARGEST_SCORE:
            raise SettingError(
                f"poisson: ⟨x, θ⟩ must be at most {LARGEST_SCORE:g}, but could be {largest:g}"
            )
        if self.reward.given == "affine":
            slope = 0.5 / (draw.theta_norm * draw.arm_norm)
            draw = draw._replace(centre=0.5, slope=slope)
        return draw

    def path(self, rng: Generator) -> Path:
        """One way the parameter may go."""
        if isinstance(self.start, tuple):
            first = np.array(self.start)
        else:
            first = self.start * directions(rng, 1, self.dim)[0]
        theta, era = self.drift.path(first, self.horizon, rng)
        spread = float(np.linalg.norm(first)) / math.sqrt(self.dim)
        return theta - self.actions.toll * spread, era

    @property
    def action_set(self) -> action_sets.ActionSet | None:
        """What is chosen from where arms are not listed."""
        return self.actions.whole(self.dim) if self.actions.whole else None

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
    reward: Reward = gaussian(0.15),  # noqa: B008
    start: float | npt.ArrayLike = 1.0,
) -> World:
    """A world whose parts fit each other; `start` is the first θ, or its norm if it is drawn."""
    place = World(
        validation.whole("world", "dim", dim),
        validation.whole("world", "arms", arms),
        validation.whole("world", "horizon", horizon),
        validation.of_kind("world", "drift", drift, Drift),
        validation.of_kind("world", "actions", actions, Actions),
        validation.of_kind("world", "reward", reward, Reward),
        _start(start, dim),
    )
    _check_arms(place)
    place.path(np.random.default_rng(0))  # a drift that does not fit says so now
    return place


DRIFTS: dict[str, Callable[..., Drift]] = {
    f.__name__: f for f in (stationary, abrupt, rotation, walk, periodic)
}
ACTIONS: dict[str, Callable[..., Actions]] = {f.__name__: f for f in (fresh, fixed, ball, routes)}
REWARDS: dict[str, Callable[..., Reward]] = {
    f.__name__: f for f in (gaussian, bounded, bernoulli, poisson)
}


def from_table(table: Mapping[str, object]) -> World:
    """The world that a table of the keys above stands for; nothing in it is ever run."""
    known = ("dim", "arms", "horizon", "drift", "actions", "reward", "start")
    if strange := sorted(set(table) - set(known)):
        raise SettingError(f"world: unknown {', '.join(strange)}; the keys are {', '.join(known)}")
    if missing := [key for key in known[:3] if key not in table]:
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


def _read(key: str, text: object, known: dict[str, Callable[..., Part]]) -> Part:
    try:
        call = ast.parse(str(text).strip(), mode="eval").body
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
            raise SettingError(f"world: {key} must be a call such as {next(iter(known))}(...)")
        if call.func.id not in known:
            raise SettingError(f"world: {key} must be one of {', '.join(known)}, got {text!r}")
        given = [ast.literal_eval(value) for value in call.args]
        named = {str(word.arg): ast.literal_eval(word.value) for word in call.keywords}
        return known[call.func.id](*given, **named)
    except SettingError:
        raise
    except (SyntaxError, TypeError, ValueError, RecursionError, MemoryError) as reason:
        raise SettingError(f"world: {key} {text!r} cannot be read: {reason}") from None


def _start(start: float | npt.ArrayLike, dim: int) -> float | tuple[float, ...]:
    if np.ndim(start) == 0:
        return validation.positive("world", "start", start)
    theta = validation.check_numbers("world", "start", np.atleast_2d(start), 2)[0]
    if theta.size != dim or not theta.any():
        raise SettingError(f"world: start must be {dim} numbers, not all 0, got {theta.size}")
    return tuple(theta.tolist())


def _check_arms(place: World) -> None:
    given, sizes, count = place.actions.given, place.actions.sizes, place.arms
    if given is None:
        _ = place.action_set  # one that does not fit says so now
        return
    if given.shape[1] != place.dim:
        raise SettingError(
            f"world: dim is {place.dim}, but the arms have {given.shape[1]} features"
        )
    if count % len(sizes):
        raise SettingError(f"world: arms must be a multiple of {len(sizes)} pools, got {count}")
    if place.actions.text.startswith("fixed") and count != len(given):
        raise SettingError(f"world: arms is {count}, but fixed gives {len(given)}")
    each = count // len(sizes)
    if each > min(sizes):
        raise SettingError(f"world: {each} arms are wanted of a pool that has {min(sizes)}")


def _stream(root: np.random.SeedSequence, place: int) -> Generator:
    # spawn() would count its calls and so give another draw the next time
    child = np.random.SeedSequence(root.entropy, spawn_key=(*root.spawn_key, place))
    return np.random.default_rng(child)


def _offer(place: World, rng: Generator) -> tuple[Floats, Picks]:
    if whole := place.action_set:  # one action stands for all: no other is longer
        return whole.best(np.ones(place.dim)).features[None], np.zeros((1, 1), np.int32)
    rounds = place.horizon if place.actions.anew else 1
    arms, sizes = place.actions.given, place.actions.sizes
    if arms is None:
        size = min(rounds * place.arms, max(POOL, place.arms))
        arms, sizes = directions(rng, size, place.dim), (size,)
        if size == rounds * place.arms:
            return arms, np.arange(size, dtype=np.int32).reshape(rounds, place.arms)
    each = place.arms // len(sizes)
    starts = np.cumsum((0, *sizes[:-1]))
    picks = [
        start + _distinct(rng, rounds, each, n) for start, n in zip(starts, sizes, strict=True)
    ]
    return arms, np.stack(picks, axis=2).reshape(rounds, place.arms).astype(np.int32)


def _distinct(rng: Generator, rows: int, count: int, size: int) -> Eras:
    """`count` different numbers below `size` in each row, every set equally likely."""
    if count == size:
        return np.tile(np.arange(size), (rows, 1))
    if count * count > 2 * size:  # too many rows would have to be drawn again
        return np.array([rng.permutation(size)[:count] for _ in range(rows)])
    picks = rng.integers(size, size=(rows, count))
    again = np.arange(rows)
    while again.size:
        ordered = np.sort(picks[again], axis=1)
        again = again[(ordered[:, 1:] == ordered[:, :-1]).any(axis=1)]
        picks[again] = rng.integers(size, size=(again.size, count))
    return picks


def _noise(reward: Reward, rounds: int, rng: Generator) -> Floats:
    if isinstance(reward.given, str):
        return rng.random(rounds)
    if reward.law == "bounded":
        return rng.uniform(-reward.given, reward.given, rounds)
    return rng.normal(0.0, math.sqrt(reward.given), rounds)
