"""Drifts: how the parameter of a world moves.

A drift prints as the call that makes it, and draws one path the parameter may take: the distinct
parameters, and which of them holds in each round. Rounds count from 0: a change at 4000 is first
felt in the round of that index.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import numpy.typing as npt

from windvane import validation
from windvane._jit import compiled
from windvane.errors import SettingError
from windvane.types import Floats

Eras = npt.NDArray[np.int64]
Generator = np.random.Generator
Path = tuple[Floats, Eras]  # (P, d) the distinct parameters, (T,) the row that holds in a round
Jump = Callable[[Floats, int, Generator], Floats]  # from a parameter, at jump number i, to the next


@dataclass(frozen=True)
class Drift:
    """How the parameter moves: `path(start, horizon, rng)` draws one way it may go."""

    text: str
    path: Callable[[Floats, int, Generator], Path] = field(compare=False)

    def __repr__(self) -> str:
        return self.text


def stationary() -> Drift:
    """Never move: θ_t = θ_0."""
    return Drift("stationary()", partial(_jumps, at=(), jump=_elsewhere))


def abrupt(
    at: Iterable[int],
    flip: float | None = None,
    chance: float | None = None,
    to: npt.ArrayLike | None = None,
) -> Drift:
    """Jump at the given rounds: to a new direction, by flipping signs, or to given parameters.

    `flip` flips exactly ⌊flip·d⌋ signs, drawn anew at each jump; `chance` flips each by itself.
    """
    rounds = sorted({validation.whole("abrupt", "a round", r) for r in at})
    ways = {"flip": flip, "chance": chance, "to": to}
    if sum(way is not None for way in ways.values()) > 1:
        raise SettingError("abrupt: flip, chance and to exclude each other")
    jump: Jump = _elsewhere
    told = ""
    if flip is not None:
        share = validation.share("abrupt", "flip", flip)
        jump, told = partial(_flip, share=share), f", flip={share!r}"
    elif chance is not None:
        odds = validation.share("abrupt", "chance", chance)
        jump, told = partial(_flip_each, odds=odds), f", chance={odds!r}"
    elif to is not None:
        rows = validation.check_numbers("abrupt", "to", to, 2)
        if len(rows) != len(rounds):
            raise SettingError(f"abrupt: to must have {len(rounds)} rows, got {len(rows)}")
        jump, told = partial(_given, rows=rows), f", to={rows.tolist()}"
    return Drift(f"abrupt({rounds}{told})", partial(_jumps, at=tuple(rounds), jump=jump))


def rotation(angle: float) -> Drift:
    """Turn evenly by `angle` radians over the horizon, in a plane drawn at random.

    θ_t = cos(α_t)·θ_0 + sin(α_t)·S·u,  u ⟂ θ_0,  α_t = angle·t/(T−1)
    """
    angle = validation.real("rotation", "angle", angle)
    return Drift(f"rotation({angle!r})", partial(_turn, angle=angle))


def walk(budget: float) -> Drift:
    """Walk at random on the sphere, in T−1 equal steps that use up the budget.

    ‖θ_t‖ = S,  ‖θ_{t+1} − θ_t‖ = B/(T−1)
    """
    budget = validation.not_negative("walk", "budget", budget)
    return Drift(f"walk({budget!r})", partial(_walk, budget=budget))


def periodic(period: int, to: npt.ArrayLike | None = None) -> Drift:
    """Swing to another parameter and back in `period` rounds; it is drawn unless given.

    θ_t = (1−w)·θ_0 + w·θ_1,  w = (1 − cos(2πt/period))/2
    """
    period = validation.whole("periodic", "period", period, least=2)
    rows = None if to is None else validation.check_numbers("periodic", "to", np.atleast_2d(to), 2)
    jump: Jump = _elsewhere if rows is None else partial(_given, rows=rows)
    told = "" if rows is None else f", to={rows[0].tolist()}"
    return Drift(f"periodic({period}{told})", partial(_swing, period=period, jump=jump))


def directions(rng: Generator, count: int, dim: int) -> Floats:
    """Vectors uniform on the unit sphere, one a row."""
    vectors = rng.standard_normal((count, dim))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors


def _jumps(start: Floats, horizon: int, rng: Generator, at: tuple[int, ...], jump: Jump) -> Path:
    if at and at[-1] >= horizon:
        raise SettingError(f"abrupt: every round must lie before the horizon {horizon}, got {at}")
    rows = [start]
    for i in range(len(at)):
        rows.append(jump(rows[-1], i, rng))
    return np.array(rows), np.searchsorted(at, np.arange(horizon), side="right").astype(np.int64)


def _elsewhere(theta: Floats, _: int, rng: Generator) -> Floats:
    new: Floats = np.linalg.norm(theta) * directions(rng, 1, theta.size)[0]
    return new


def _flip(theta: Floats, _: int, rng: Generator, share: float) -> Floats:
    signs = np.ones(theta.size)
    # 0.29 × 100 is 28.999…: the share is meant, not its rounding
    signs[rng.permutation(theta.size)[: math.floor(share * theta.size + 1e-9)]] = -1.0
    return theta * signs


def _flip_each(theta: Floats, _: int, rng: Generator, odds: float) -> Floats:
    return np.where(rng.random(theta.size) < odds, -theta, theta)


def _given(theta: Floats, i: int, _: Generator, rows: Floats) -> Floats:
    if rows.shape[1] != theta.size:
        raise SettingError(f"drift: to must have {theta.size} columns, got {rows.shape[1]}")
    row: Floats = rows[i]
    return row


def _turn(start: Floats, horizon: int, rng: Generator, angle: float) -> Path:
    _check_plane("rotation", start)
    length = np.linalg.norm(start)
    across = rng.standard_normal(start.size)
    across -= (across @ start) / length**2 * start
    across *= length / np.linalg.norm(across)
    turned = np.linspace(0.0, angle, horizon)[:, None]
    return np.cos(turned) * start + np.sin(turned) * across, np.arange(horizon)


def _walk(start: Floats, horizon: int, rng: Generator, budget: float) -> Path:
    _check_plane("walk", start)
    length = float(np.linalg.norm(start))
    step = budget / max(horizon - 1, 1)
    if step > 2 * length or (horizon == 1 and budget > 0):
        most = 2 * length * (horizon - 1)
        raise SettingError(f"walk: budget must be at most 2S(T-1) = {most:g}, got {budget:g}")
    aims = rng.standard_normal((horizon - 1, start.size))
    return _walked(start, aims, 2 * math.asin(step / (2 * length))), np.arange(horizon)


@compiled
def _walked(start: Floats, aims: Floats, angle: float) -> Floats:
    """θ_{t+1} = cos(φ)·θ_t + sin(φ)·S·u_t,  u_t the part of an aim across θ_t, of length 1."""
    theta = np.empty((len(aims) + 1, start.size))
    theta[0] = start
    square = np.sum(start * start)
    for t in range(len(aims)):
        across = aims[t] - np.sum(aims[t] * theta[t]) / square * theta[t]
        across *= math.sqrt(square / np.sum(across * across))
        step = math.cos(angle) * theta[t] + math.sin(angle) * across
        # back onto the sphere: an error left in the length would grow from step to step
        theta[t + 1] = step * math.sqrt(square / np.sum(step * step))
    return theta


def _swing(start: Floats, horizon: int, rng: Generator, period: int, jump: Jump) -> Path:
    other = jump(start, 0, rng)
    rounds = np.arange(min(period, horizon))
    weight = (0.5 - 0.5 * np.cos(2 * np.pi * rounds / period))[:, None]
    return (1 - weight) * start + weight * other, np.arange(horizon) % period


def _check_plane(who: str, start: Floats) -> None:
    if start.size < 2:
        raise SettingError(f"{who}: dim must be at least 2, got {start.size}")
