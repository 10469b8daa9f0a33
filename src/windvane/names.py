"""The literature's names: each stands for a memory times an exploration, tuned from theory.

A few also have a link and stand for a generalised policy.
"""

import math
from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np

from windvane import checks
from windvane import exploration as spend
from windvane import memory as fade
from windvane.errors import SettingError
from windvane.exploration import Exploration
from windvane.glm import GeneralizedPolicy
from windvane.memory import Memory
from windvane.policy import Policy
from windvane.theory import Tuning, discount_for, span_for


class Problem(NamedTuple):
    """What is known beforehand about the world."""

    dim: int  # d
    horizon: int | None  # T
    drift: float | None  # B
    arms: int | None  # K
    noise: float | None  # σ
    delta: float  # δ
    theta_norm: float  # S
    arm_norm: float  # L
    changes: tuple[int, ...] | None  # rounds before which θ* is known to change
    tuning: Tuning


class Name(NamedTuple):
    """A row of the table."""

    name: str
    memory: str
    exploration: str
    bound: str
    world: str  # stationary, drifting, or with known changes
    inflated: bool = False
    linked: bool = False  # a generalised policy, under the link that is given


STATIONARY, DRIFTING, KNOWN_CHANGES = "Stationary", "Drifting", "Changing at known rounds"
MINIMAX, WITH_ARMS = "d√T", "d√(T log K)"
DYNAMIC, DYNAMIC_WITH_ARMS = "d^7/8 B^1/4 T^3/4", "d^7/8 (log K)^3/8 B^1/4 T^3/4"

NAMES = [
    Name("LinUCB", "keep", "optimism", MINIMAX, STATIONARY),
    Name("LinTS", "keep", "thompson", "d^3/2 √T", STATIONARY, inflated=True),
    Name("Gaussian-LinTS", "keep", "thompson", WITH_ARMS, STATIONARY),
    Name("LinPHE", "keep", "perturbed_history", WITH_ARMS, STATIONARY),
    Name("FPL-GLM", "keep", "perturbed_history", WITH_ARMS, STATIONARY, linked=True),
    Name("RandLinUCB", "keep", "randomized", MINIMAX, STATIONARY),
    Name("D-LinUCB", "discount", "optimism", DYNAMIC, DRIFTING),
    Name("SW-LinUCB", "window", "optimism", DYNAMIC, DRIFTING),
    Name("Restart-LinUCB", "restart", "optimism", DYNAMIC, DRIFTING),
    Name("D-RandLinUCB", "discount", "randomized", DYNAMIC, DRIFTING),
    Name("SW-RandLinUCB", "window", "randomized", DYNAMIC, DRIFTING),
    Name("Restart-RandLinUCB", "restart", "randomized", DYNAMIC, DRIFTING),
    Name("D-LinTS", "discount", "thompson", DYNAMIC_WITH_ARMS, DRIFTING),
    Name("SW-LinTS", "window", "thompson", DYNAMIC_WITH_ARMS, DRIFTING),
    Name("Restart-LinTS", "restart", "thompson", DYNAMIC_WITH_ARMS, DRIFTING),
    Name("D-FPL-GLM", "discount", "perturbed_history", "", DRIFTING, linked=True),
    Name("SW-FPL-GLM", "window", "perturbed_history", "", DRIFTING, linked=True),
    Name("LinUCB-OR", "restart_at", "optimism", "", KNOWN_CHANGES),
    Name("LinTS-OR", "restart_at", "thompson", "", KNOWN_CHANGES),
    Name("RandLinUCB-OR", "restart_at", "randomized", "", KNOWN_CHANGES),
]


def row(name: str) -> Name:
    """The row of a name."""
    for known in NAMES:
        if known.name == name:
            return known
    raise SettingError(f"named: {name!r} is none of {', '.join(known.name for known in NAMES)}")


def named(
    name: str,
    *,
    dim: int,
    horizon: int | None = None,
    drift: float | None = None,
    arms: int | None = None,
    noise: float | None = None,
    delta: float = 0.01,
    theta_norm: float = 1.0,
    arm_norm: float = 1.0,
    changes: Iterable[int] | None = None,
    tuning: Tuning = "corrected",
    ridge: float = 1.0,
    seed: int | np.random.SeedSequence | None = None,
    floor: float = 0.0,
) -> Policy:
    """A policy by its name in the literature, tuned from theory for the given problem.

    >>> named("D-RandLinUCB", dim=10, horizon=10_000, drift=4.0, noise=0.5, seed=1)
    Policy(dim=10, memory=discount(0.98875...), exploration=randomized(half_normal(0.4 * \
confidence(0.01, 0.5, 1.0, 1.0))), ridge=1.0)
    """
    known = tuple(changes) if changes is not None else None
    problem = Problem(dim, horizon, drift, arms, noise, delta, theta_norm, arm_norm, known, tuning)
    if row(name).linked:
        raise SettingError(f"named: {name} has a link; named_glm({name!r}, link, ...) makes it")
    return Policy(dim, *pair(name, problem), ridge=ridge, seed=seed, floor=floor)


def named_glm(
    name: str,
    link: str,
    *,
    dim: int,
    horizon: int | None = None,
    drift: float | None = None,
    arms: int | None = None,
    noise: float | None = None,
    tuning: Tuning = "corrected",
    ridge: float = 1.0,
    seed: int | np.random.SeedSequence | None = None,
    floor: float = 0.0,
) -> GeneralizedPolicy:
    """A generalised policy by its name, tuned as the linear policy of the same memory is.

    >>> named_glm("FPL-GLM", "logistic", dim=10, noise=0.5, seed=1)
    GeneralizedPolicy(dim=10, link='logistic', memory=keep(), scale=0.5, ridge=1.0)
    """
    if not row(name).linked:
        raise SettingError(f"named_glm: {name} has no link; named({name!r}, ...) makes it")
    problem = Problem(dim, horizon, drift, arms, noise, 0.01, 1.0, 1.0, None, tuning)
    memory, exploration = pair(name, problem)
    return GeneralizedPolicy(dim, link, memory, exploration.scale, ridge, seed, floor)


def pair(name: str, problem: Problem) -> tuple[Memory, Exploration]:
    """The memory and the exploration that a name stands for."""
    found = row(name)
    return MEMORIES[found.memory](found, problem), EXPLORATIONS[found.exploration](found, problem)


def _need(found: Name, problem: Problem, field: str) -> float:
    value = getattr(problem, field)
    if value is None:
        raise SettingError(f"named: {found.name} is tuned from {field}, which must be given")
    return checks.positive("named", field, value)


def _discount(found: Name, problem: Problem) -> Memory:
    horizon, drift = int(_need(found, problem, "horizon")), _need(found, problem, "drift")
    by_arms = found.exploration in ("thompson", "perturbed_history")
    arms = int(_need(found, problem, "arms")) if by_arms else None
    return fade.discount(discount_for(problem.dim, horizon, drift, arms, problem.tuning))


def _span(found: Name, problem: Problem) -> int:
    horizon, drift = int(_need(found, problem, "horizon")), _need(found, problem, "drift")
    return span_for(problem.dim, horizon, drift)


def _restart_at(found: Name, problem: Problem) -> Memory:
    if problem.changes is None:
        raise SettingError(f"named: {found.name} restarts at changes, which must be given")
    return fade.restart_at(problem.changes)


def _radius(problem: Problem) -> spend.Confidence:
    noise = 1.0 if problem.noise is None else problem.noise
    return spend.confidence(problem.delta, noise, problem.theta_norm, problem.arm_norm)


def _randomized(found: Name, problem: Problem) -> Exploration:
    return spend.randomized(spend.half_normal(0.4 * _radius(problem)))


def _thompson(found: Name, problem: Problem) -> Exploration:
    """a = σ, or 1 where it is unknown; the LinTS of Agrawal and Goyal takes σ√(9d·log(T/δ))."""
    scale = 1.0 if problem.noise is None else problem.noise
    if found.inflated:
        horizon = _need(found, problem, "horizon")
        scale *= math.sqrt(9.0 * problem.dim * math.log(horizon / problem.delta))
    return spend.thompson(scale)


def _perturbed_history(found: Name, problem: Problem) -> Exploration:
    """LinPHE's one coin; under a link normal, of the scale that thompson would have."""
    if not found.linked:
        return spend.perturbed_history(1, pseudo="coins")
    return spend.perturbed_history(1.0 if problem.noise is None else problem.noise)


MEMORIES: dict[str, Callable[[Name, Problem], Memory]] = {
    "keep": lambda found, problem: fade.keep(),
    "discount": _discount,
    "window": lambda found, problem: fade.window(_span(found, problem)),
    "restart": lambda found, problem: fade.restart(_span(found, problem)),
    "restart_at": _restart_at,
}
EXPLORATIONS: dict[str, Callable[[Name, Problem], Exploration]] = {
    "optimism": lambda found, problem: spend.optimism(_radius(problem)),
    "randomized": lambda found, problem: spend.randomized(
        spend.half_normal(0.4 * _radius(problem))
    ),
    "thompson": _thompson,
    "perturbed_history": _perturbed_history,
}
