"""The literature's names: each stands for a memory times an exploration, tuned from theory.

A few have a link besides and stand for a generalised policy; others find their memory as they go.
"""

import math
from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np

from windvane import exploration as spend
from windvane import memory as fade
from windvane import validation
from windvane.adaptive.policies import adapted
from windvane.adaptive.selection import FAMILIES, Adaptation, bandits, predictive
from windvane.chooser import Chooser
from windvane.errors import SettingError
from windvane.exploration import Exploration
from windvane.glm.policy import GeneralizedPolicy
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
    single: bool = False  # one Gram matrix
    finding: str = ""  # bandits, warm or predictive, where the memory is found


STATIONARY, DRIFTING, KNOWN_CHANGES = "Stationary", "Drifting", "Changing at known rounds"
UNKNOWN = "Drifting by an unknown amount"
MINIMAX, WITH_ARMS = "d√T", "d√(T log K)"
DYNAMIC, DYNAMIC_WITH_ARMS = "d^7/8 B^1/4 T^3/4", "d^7/8 (log K)^3/8 B^1/4 T^3/4"

SPENDING = (
    ("LinUCB", "optimism", DYNAMIC),
    ("RandLinUCB", "randomized", DYNAMIC),
    ("LinTS", "thompson", DYNAMIC_WITH_ARMS),
)

NAMES = [
    Name("LinUCB", "keep", "optimism", MINIMAX, STATIONARY),
    Name("LinTS", "keep", "thompson", "d^3/2 √T", STATIONARY, inflated=True),
    Name("Gaussian-LinTS", "keep", "thompson", WITH_ARMS, STATIONARY),
    Name("LinPHE", "keep", "perturbed_history", WITH_ARMS, STATIONARY),
    Name("FPL-GLM", "keep", "perturbed_history", WITH_ARMS, STATIONARY, linked=True),
    Name("RandLinUCB", "keep", "randomized", MINIMAX, STATIONARY),
    Name("SquareCB", "keep", "inverse_gap", "√(d K T)", STATIONARY),
    Name("D-LinUCB", "discount", "optimism", DYNAMIC, DRIFTING),
    Name("LB-WeightUCB", "discount", "optimism", "d^3/4 B^1/4 T^3/4", DRIFTING, single=True),
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
    Name("D-SquareCB", "discount", "inverse_gap", "", DRIFTING),
    Name("Kalman-LinTS", "kalman", "thompson", "", DRIFTING),
    Name("CUSUM-LinUCB", "detect", "optimism", "", UNKNOWN),
    Name("CUSUM-RandLinUCB", "detect", "randomized", "", UNKNOWN),
    Name("CUSUM-LinTS", "detect", "thompson", "", UNKNOWN),
    *(
        Name(f"BOB {prefix}-{base}", memory, exploration, bound, UNKNOWN, finding="bandits")
        for prefix, memory in (("D", "discount"), ("SW", "window"), ("Restart", "restart"))
        for base, exploration, bound in SPENDING
    ),
    *(
        Name(f"{found} D-{base}", "discount", exploration, "", UNKNOWN, finding=finding)
        for found, finding in (("Warm BOB", "warm"), ("Predictive", "predictive"))
        for base, exploration, _ in SPENDING
    ),
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
    link: str = "",
) -> Chooser:
    """A policy by its name in the literature, tuned from theory for the given problem.

    >>> named("D-RandLinUCB", dim=10, horizon=10_000, drift=4.0, noise=0.5, seed=1)
    Policy(dim=10, memory=discount(0.98875...), exploration=randomized(half_normal(0.4 * \
confidence(0.01, 0.5, 1.0, 1.0))), ridge=1.0)
    """
    known = tuple(changes) if changes is not None else None
    problem = Problem(dim, horizon, drift, arms, noise, delta, theta_norm, arm_norm, known, tuning)
    found = row(name)
    if found.linked != bool(link):
        need = "needs a link, such as link='logistic'" if found.linked else "has no link"
        raise SettingError(f"named: {name} {need}, got {link!r}")
    if found.finding:
        explores = EXPLORATIONS[found.exploration](found, problem)
        return adapted(dim, adaptation(name, problem), explores, ridge, seed, floor)
    memory, exploration = pair(name, problem)
    if link:
        return GeneralizedPolicy(dim, link, memory, exploration.scale, ridge, seed, floor)
    return Policy(dim, memory, exploration, ridge, seed, floor)


def adaptation(name: str, problem: Problem) -> Adaptation:
    """How a name finds its memory."""
    found = row(name)
    family = next(each for each in FAMILIES if each == found.memory)
    if found.finding == "predictive":
        return predictive(family)
    horizon, noise = int(_need(found, problem, "horizon")), problem.noise
    warm = found.finding == "warm"
    return bandits(problem.dim, horizon, family, 1.0 if noise is None else noise, warm)


def pair(name: str, problem: Problem) -> tuple[Memory, Exploration]:
    """The memory and the exploration that a name stands for."""
    found = row(name)
    return MEMORIES[found.memory](found, problem), EXPLORATIONS[found.exploration](found, problem)


def _need(found: Name, problem: Problem, field: str) -> float:
    value = getattr(problem, field)
    if value is None:
        raise SettingError(f"named: {found.name} is tuned from {field}, which must be given")
    if field in ("horizon", "arms"):
        return validation.whole("named", field, value)
    return validation.positive("named", field, value)


def _discount(found: Name, problem: Problem) -> Memory:
    horizon, drift = int(_need(found, problem, "horizon")), _need(found, problem, "drift")
    by_arms = found.exploration in ("thompson", "perturbed_history")
    arms = int(_need(found, problem, "arms")) if by_arms else None
    gamma = discount_for(problem.dim, horizon, drift, arms, problem.tuning)
    return fade.discount(gamma, single=found.single)


def _span(found: Name, problem: Problem) -> int:
    horizon, drift = int(_need(found, problem, "horizon")), _need(found, problem, "drift")
    return span_for(problem.dim, horizon, drift)


def _kalman(found: Name, problem: Problem) -> Memory:
    """Wandering by q = (1−γ)²σ²d a round makes a filter forget at the pace of theory's γ."""
    step = 1.0 - _discount(found, problem).gamma
    noise = _noise(problem)
    return fade.kalman(math.sqrt(max(0.5, 1.0 - step * step * noise * noise * problem.dim)), noise)


def _detect(found: Name, problem: Problem) -> Memory:
    return fade.detect(_noise(problem), problem.theta_norm)


def _noise(problem: Problem) -> float:
    """σ where it must be above 0, or 1 where it is unknown."""
    return 1.0 if problem.noise is None else validation.positive("named", "noise", problem.noise)


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
    """a = σ, or 1 where it is unknown; the LinTS of Agrawal and Goyal takes σ√(9d·log(T/δ)).

    The covariance of a filter has σ in it already.
    """
    scale = 1.0 if problem.noise is None or found.memory == "kalman" else problem.noise
    if found.inflated:
        horizon = _need(found, problem, "horizon")
        scale *= math.sqrt(9.0 * problem.dim * math.log(horizon / problem.delta))
    return spend.thompson(scale)


def _inverse_gap(found: Name, problem: Problem) -> Exploration:
    """η = √(K·n/(σ²·d·log n)): n rounds' worth of choices against what their regression costs."""
    arms, noise = _need(found, problem, "arms"), _noise(problem)
    length = _need(found, problem, "horizon")
    if found.memory == "discount":
        length = 1.0 / (1.0 - _discount(found, problem).gamma)
    cost = noise * noise * problem.dim * math.log(max(length, 3.0))
    return spend.inverse_gap(math.sqrt(arms * length / cost))


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
    "kalman": _kalman,
    "detect": _detect,
}
EXPLORATIONS: dict[str, Callable[[Name, Problem], Exploration]] = {
    "optimism": lambda found, problem: spend.optimism(_radius(problem)),
    "randomized": lambda found, problem: spend.randomized(
        spend.half_normal(0.4 * _radius(problem))
    ),
    "thompson": _thompson,
    "perturbed_history": _perturbed_history,
    "inverse_gap": _inverse_gap,
}
