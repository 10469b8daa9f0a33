"""Drifts: how the parameter of a world moves.

A drift prints as the call that makes it. It draws a path: the distinct parameters, and which of
them is the parameter of each round. Rounds count from 0: after a change at 4000, round 4000 is the
first with the new parameter.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import numpy.typing as npt

from windvane import validation
from windvane._numba.compilation import compiled
from windvane.errors import SettingError
from windvane.types import Floats

Eras = npt.NDArray[np.int64]
Generator = np.random.Generator
Path = tuple[Floats, Eras]  # (P, d) the distinct parameters, (T,) the row of each round
Jump = Callable[[Floats, int, Generator], Floats]  # (parameter, jump i, rng) → the next


@dataclass(frozen=True)
class Drift:
    """How the parameter moves; `path(start, horizon, rng)` draws the parameters of all rounds."""

    text: str
    path: Callable[[Floats, int, Generator], Path] = field(compare=False)

    def __repr__(self) -> str:
        return self.text


def stationary() -> Drift:
    """Never move: θ_t = θ_0.

    >>> from windvane.lab.worlds import stationary, world
    >>> world(3, 5, 100, stationary()).draw(1).theta.shape  # one parameter for all rounds
    (1, 3)
    """
    return Drift("stationary()", partial(_draw_jumps, at=(), jump=_jump_to_random_direction))


def abrupt(at: Iterable[int], flip: float | None = None, to: npt.ArrayLike | None = None) -> Drift:
    """Jump at the rounds `at`: θ_t = θ^(i) from jump i to the next.

    By default, a jump takes a random direction of the same norm. `flip` flips ⌊flip·d⌋ signs that
    are drawn at each jump. `to` lists the parameters after the jumps.

    >>> from windvane.lab.worlds import abrupt, world
    >>> theta = world(10, 5, 100, abrupt([50], flip=0.6)).draw(1).theta  # before and after
    >>> int((theta[0] == -theta[1]).sum())
    6
    """
    jumps = validation.check_sequence("abrupt", "at", at)
    rounds = sorted({validation.whole("abrupt", "a round", round_) for round_ in jumps})
    if flip is not None and to is not None:
        raise SettingError("abrupt: flip and to exclude each other")
    jump: Jump = _jump_to_random_direction
    option = ""
    if flip is not None:
        share = validation.share("abrupt", "flip", flip)
        jump, option = partial(_flip_share, share=share), f", flip={share!r}"
    elif to is not None:
        rows = validation.check_numbers("abrupt", "to", to, 2)
        if len(rows) != len(rounds):
            raise SettingError(f"abrupt: to must have {len(rounds)} rows, got {len(rows)}")
        jump, option = partial(_take_row, rows=rows), f", to={rows.tolist()}"
    return Drift(f"abrupt({rounds}{option})", partial(_draw_jumps, at=tuple(rounds), jump=jump))


def rotation(angle: float) -> Drift:
    """Rotate by `angle` radians over the horizon, at constant speed, in a random plane.

    θ_t = cos(α_t)·θ_0 + sin(α_t)·S·u,  u ⟂ θ_0,  α_t = angle·t/(T−1)

    >>> from windvane.lab.worlds import rotation, world
    >>> theta = world(3, 5, 100, rotation(3.14159)).draw(1).theta  # half a turn
    >>> round(float(theta[0] @ theta[-1]), 6)
    -1.0
    """
    angle = validation.real("rotation", "angle", angle)
    return Drift(f"rotation({angle!r})", partial(_draw_rotation, angle=angle))


def walk(budget: float) -> Drift:
    """Walk at random on the sphere, in T−1 equal steps whose lengths add up to the budget B.

    ‖θ_t‖ = S,  ‖θ_{t+1} − θ_t‖ = B/(T−1)

    >>> from windvane.lab.worlds import walk, world
    >>> round(world(3, 5, 100, walk(4.0)).draw(1).variation, 6)
    4.0
    """
    budget = validation.not_negative("walk", "budget", budget)
    return Drift(f"walk({budget!r})", partial(_draw_walk, budget=budget))


def periodic(period: int, to: npt.ArrayLike | None = None) -> Drift:
    """Oscillate between θ_0 and another parameter θ_1, with a period of `period` rounds.

    θ_t = (1−w)·θ_0 + w·θ_1,  w = (1 − cos(2πt/period))/2

    θ_1 is `to`, or a random direction of the same norm.

    >>> from windvane.lab.worlds import periodic, world
    >>> draw = world(2, 5, 100, periodic(40, to=[0, 1]), start=[1, 0]).draw(1)
    >>> draw.theta[draw.era[[0, 20, 40]]].round(6)
    array([[1., 0.],
           [0., 1.],
           [1., 0.]])
    """
    period = validation.whole("periodic", "period", period, least=2)
    rows = None if to is None else validation.check_numbers("periodic", "to", np.atleast_2d(to), 2)
    jump: Jump = _jump_to_random_direction if rows is None else partial(_take_row, rows=rows)
    option = "" if rows is None else f", to={rows[0].tolist()}"
    path = partial(_draw_oscillation, period=period, jump=jump)
    return Drift(f"periodic({period}{option})", path)


def draw_directions(rng: Generator, count: int, dim: int) -> Floats:
    """Draw vectors uniformly on the unit sphere, one a row."""
    vectors = rng.standard_normal((count, dim))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors


def _draw_jumps(
    start: Floats, horizon: int, rng: Generator, at: tuple[int, ...], jump: Jump
) -> Path:
    if at and at[-1] >= horizon:
        raise SettingError(f"abrupt: every round must lie before the horizon {horizon}, got {at}")
    rows = [start]
    for i in range(len(at)):
        rows.append(jump(rows[-1], i, rng))
    return np.array(rows), np.searchsorted(at, np.arange(horizon), side="right").astype(np.int64)


def _jump_to_random_direction(theta: Floats, _: int, rng: Generator) -> Floats:
    new: Floats = np.linalg.norm(theta) * draw_directions(rng, 1, theta.size)[0]
    return new


def _flip_share(theta: Floats, _: int, rng: Generator, share: float) -> Floats:
    signs = np.ones(theta.size)
    # 1e-9, because 0.29 × 100 is 28.999… in floating point
    signs[rng.permutation(theta.size)[: math.floor(share * theta.size + 1e-9)]] = -1.0
    return theta * signs


def _take_row(theta: Floats, i: int, _: Generator, rows: Floats) -> Floats:
    if rows.shape[1] != theta.size:
        raise SettingError(f"drift: to must have {theta.size} columns, got {rows.shape[1]}")
    row: Floats = rows[i]
    return row


def _draw_rotation(start: Floats, horizon: int, rng: Generator, angle: float) -> Path:
    _check_plane("rotation", start)
    length = np.linalg.norm(start)
    across = rng.standard_normal(start.size)
    across -= (across @ start) / length**2 * start
    across *= length / np.linalg.norm(across)
    angles = np.linspace(0.0, angle, horizon)[:, None]
    return np.cos(angles) * start + np.sin(angles) * across, np.arange(horizon)


def _draw_walk(start: Floats, horizon: int, rng: Generator, budget: float) -> Path:
    _check_plane("walk", start)
    length = float(np.linalg.norm(start))
    step = budget / max(horizon - 1, 1)
    # 1e-12, because a drawn start has its norm only up to rounding
    if step > 2 * length * (1 + 1e-12) or (horizon == 1 and budget > 0):
        most = 2 * length * (horizon - 1)
        raise SettingError(f"walk: budget must be at most 2S(T-1) = {most:g}, got {budget:g}")
    aims = rng.standard_normal((horizon - 1, start.size))
    angle = 2 * math.asin(min(1.0, step / (2 * length)))
    return _walk_on_sphere(start, aims, angle), np.arange(horizon)


@compiled
def _walk_on_sphere(start: Floats, aims: Floats, angle: float) -> Floats:
    """θ_{t+1} = cos(φ)·θ_t + sin(φ)·S·u_t,  u_t ⟂ θ_t the direction of an aim, ‖u_t‖ = 1."""
    theta = np.empty((len(aims) + 1, start.size))
    theta[0] = start
    square = np.sum(start * start)
    for t in range(len(aims)):
        across = aims[t] - np.sum(aims[t] * theta[t]) / square * theta[t]
        across *= math.sqrt(square / np.sum(across * across))
        step = math.cos(angle) * theta[t] + math.sin(angle) * across
        # normalised: a rounding error in the norm would grow from step to step
        theta[t + 1] = step * math.sqrt(square / np.sum(step * step))
    return theta


def _draw_oscillation(start: Floats, horizon: int, rng: Generator, period: int, jump: Jump) -> Path:
    other = jump(start, 0, rng)
    rounds = np.arange(min(period, horizon))
    weight = (0.5 - 0.5 * np.cos(2 * np.pi * rounds / period))[:, None]
    return (1 - weight) * start + weight * other, np.arange(horizon) % period


def _check_plane(who: str, start: Floats) -> None:
    if start.size < 2:
        raise SettingError(f"{who}: dim must be at least 2, got {start.size}")
