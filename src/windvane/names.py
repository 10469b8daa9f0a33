"""The names of the literature: each is a memory and an exploration, tuned from theory.

Some names have a link as well; those without `one_pass` make a `GeneralizedPolicy`. Others search
for their memory while they play.
"""

import math
from collections.abc import Callable, Iterable
from typing import Literal, NamedTuple

import numpy as np

from windvane import validation
from windvane.beliefs.adaptive import Adaptation, Adaptive, bandits, predictive
from windvane.beliefs.chooser import Chooser
from windvane.beliefs.glm.policy import GeneralizedPolicy
from windvane.errors import SettingError, shorten
from windvane.exploration import (
    Exploration,
    inverse_gap,
    optimism,
    perturbed_history,
    randomized,
    thompson,
)
from windvane.laws import Confidence, confidence, half_normal, posterior
from windvane.memory import (
    Memory,
    detect,
    detect_shift,
    directional,
    discount,
    fading_prior,
    kalman,
    keep,
    one_pass,
    parts,
    restart,
    restart_at,
    window,
)
from windvane.policy import Policy
from windvane.theory import Tuning, discount_for, span_for


class Problem(NamedTuple):
    """What the user knows about the world beforehand, from which theory tunes a policy."""

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
    link: str = ""

    @property
    def noise_or_one(self) -> float:
        """σ, or 1 if it is unknown."""
        return 1.0 if self.noise is None else self.noise


class Name(NamedTuple):
    """A row of the table of names."""

    name: str
    memory: str
    exploration: str
    bound: str  # of the regret, or "" if none is proven
    world: str
    inflated: bool = False  # its scale grows with √d·log T, as in its analysis
    has_link: bool = False  # has the link of the caller
    single: bool = False  # keeps one Gram matrix
    evill: bool = False  # perturbs rewards by noise as large as their own
    predictive: bool = False  # samples only what future rewards can reveal
    search: Literal["", "bandits", "warm", "predictive"] = ""  # how its memory is chosen
    only_in_lab: bool = False  # a baseline that no `Chooser` plays


STATIONARY = "Stationary"
DRIFTING = "Drifting"
KNOWN_CHANGES = "Changing at known rounds"
UNKNOWN = "Drifting by an unknown amount"

BEST_KNOWN = "B^1/3 T^2/3 (arXiv:2607.02891)"  # in a drifting world, of a policy that knows B

MINIMAX = "d√T"
WITH_ARMS = "d√(T log K)"
DYNAMIC = "d^7/8 B^1/4 T^3/4"
DYNAMIC_WITH_ARMS = "d^7/8 (log K)^3/8 B^1/4 T^3/4"
WEIGHTED = "d^3/4 B^1/4 T^3/4"
MULTISCALE = "d^2/3 B^1/3 T^2/3 + d√T"

BASES = (
    ("LinUCB", "optimism", DYNAMIC),
    ("RandLinUCB", "randomized", DYNAMIC),
    ("LinTS", "thompson", DYNAMIC_WITH_ARMS),
)

NAMES = [
    Name("LinUCB", "keep", "optimism", MINIMAX, STATIONARY),
    Name("LinTS", "keep", "thompson", "d^3/2 √T", STATIONARY, inflated=True),
    Name("Gaussian-LinTS", "keep", "thompson", WITH_ARMS, STATIONARY),
    Name("LinPHE", "keep", "perturbed_history", WITH_ARMS, STATIONARY),
    Name("FPL-GLM", "keep", "perturbed_history", WITH_ARMS, STATIONARY, has_link=True),
    Name("EVILL", "keep", "perturbed_history", "d^3/2 √T", STATIONARY, has_link=True, evill=True),
    Name("RandLinUCB", "keep", "randomized", MINIMAX, STATIONARY),
    Name("GLB-OMD", "one_pass", "optimism", "d √(T/κ*)", STATIONARY, has_link=True),
    Name("SquareCB", "keep", "inverse_gap", "√(d K T)", STATIONARY),
    Name("D-LinUCB", "discount", "optimism", DYNAMIC, DRIFTING),
    Name("LB-WeightUCB", "discount", "optimism", WEIGHTED, DRIFTING, single=True),
    Name("SW-LinUCB", "window", "optimism", DYNAMIC, DRIFTING),
    Name("Restart-LinUCB", "restart", "optimism", DYNAMIC, DRIFTING),
    Name("D-RandLinUCB", "discount", "randomized", DYNAMIC, DRIFTING),
    Name("SW-RandLinUCB", "window", "randomized", DYNAMIC, DRIFTING),
    Name("Restart-RandLinUCB", "restart", "randomized", DYNAMIC, DRIFTING),
    Name("D-LinTS", "discount", "thompson", DYNAMIC_WITH_ARMS, DRIFTING),
    Name("SW-LinTS", "window", "thompson", DYNAMIC_WITH_ARMS, DRIFTING),
    Name("Restart-LinTS", "restart", "thompson", DYNAMIC_WITH_ARMS, DRIFTING),
    Name("WSB-LinUCB", "fading_prior", "optimism", WEIGHTED, DRIFTING),
    Name("WSB-RandLinUCB", "fading_prior", "randomized", "below D-RandLinUCB", DRIFTING),
    Name("WSB-LinTS", "fading_prior", "thompson", "below D-LinTS", DRIFTING),
    Name("SIFt-LinUCB", "directional", "optimism", "", DRIFTING),
    Name("SIFt-LinTS", "directional", "thompson", "", DRIFTING),
    Name("D-FPL-GLM", "discount", "perturbed_history", "", DRIFTING, has_link=True),
    Name("SW-FPL-GLM", "window", "perturbed_history", "", DRIFTING, has_link=True),
    Name("DOMD-GLB", "one_pass", "optimism", f"c_μ^-1/2 {WEIGHTED}", DRIFTING, has_link=True),
    Name("D-SquareCB", "discount", "inverse_gap", "", DRIFTING),
    Name("Kalman-LinTS", "kalman", "thompson", "", DRIFTING),
    Name("Kalman-PS", "kalman", "thompson", "", DRIFTING, predictive=True),
    Name("Parts-RandLinUCB", "parts", "randomized", "", UNKNOWN),
    Name("Parts-LinTS", "parts", "thompson", "", UNKNOWN),
    Name("CUSUM-LinUCB", "detect", "optimism", "", UNKNOWN),
    Name("CUSUM-RandLinUCB", "detect", "randomized", "", UNKNOWN),
    Name("CUSUM-LinTS", "detect", "thompson", "", UNKNOWN),
    Name("DAL-style LinUCB", "detect_shift", "optimism", "", UNKNOWN),
    Name("MASTER-LinUCB", "keep", "optimism", MULTISCALE, UNKNOWN, only_in_lab=True),
    *(
        Name(f"BOB {prefix}-{base}", memory, exploration, bound, UNKNOWN, search="bandits")
        for prefix, memory in (("D", "discount"), ("SW", "window"), ("Restart", "restart"))
        for base, exploration, bound in BASES
    ),
    *(
        Name(f"Warm BOB D-{base}", "discount", exploration, "", UNKNOWN, search="warm")
        for base, exploration, _ in BASES
    ),
    *(
        Name(f"Predictive D-{base}", "discount", exploration, "", UNKNOWN, search="predictive")
        for base, exploration, _ in BASES
    ),
    Name("LinUCB-OR", "restart_at", "optimism", "", KNOWN_CHANGES),
    Name("LinTS-OR", "restart_at", "thompson", "", KNOWN_CHANGES),
    Name("RandLinUCB-OR", "restart_at", "randomized", "", KNOWN_CHANGES),
]


def find_name(name: str) -> Name:
    """The row of a name."""
    validation.of_kind("named", "name", name, str)
    rows = {row.name: row for row in NAMES}
    if name not in rows:
        hint = validation.suggest(name, rows, "; `windvane policies` lists all names")
        raise SettingError(f"named: there is no policy named {shorten(name)}{hint}")
    return rows[name]


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
    rounds = tuple(changes) if changes is not None else None
    norms = (theta_norm, arm_norm)
    problem = Problem(dim, horizon, drift, arms, noise, delta, *norms, rounds, tuning, link)
    row = find_name(name)
    if row.only_in_lab:
        raise SettingError(f"named: {name} is a baseline that plays only in the lab")
    if row.has_link != bool(link):
        need = "needs a link, such as link='logistic'" if row.has_link else "has no link"
        raise SettingError(f"named: {name} {need}, got {shorten(link)}")
    exploration = EXPLORATION_TUNINGS[row.exploration](row, problem)
    if row.search:
        adaptation = tune_adaptation(row, problem)
        return Adaptive.from_adaptation(dim, adaptation, exploration, ridge, seed, floor)
    memory = MEMORY_TUNINGS[row.memory](row, problem)
    floor = floor or tune_floor(row, problem)
    if link and not memory.link:
        scale, pseudo = exploration.factor, exploration.pseudo
        return GeneralizedPolicy(dim, link, memory, scale, ridge, seed, floor, pseudo)
    return Policy(dim, memory, exploration, ridge, seed, floor)


def tune_floor(row: Name, problem: Problem) -> float:
    """The share of rounds in which a name explores at random: 0.1·√(log T/T) in DAL, else 0."""
    if row.memory != "detect_shift":
        return 0.0
    horizon = _require(row, problem, "horizon")
    return 0.1 * math.sqrt(math.log(horizon) / horizon)


def tune_adaptation(row: Name, problem: Problem) -> Adaptation:
    """The candidate memories of a name that searches for its memory, and the way it searches."""
    if row.search == "predictive":
        return predictive(row.memory)
    horizon = int(_require(row, problem, "horizon"))
    is_warm = row.search == "warm"
    return bandits(problem.dim, horizon, row.memory, problem.noise_or_one, is_warm)


def _require(row: Name, problem: Problem, field: str) -> float:
    value = getattr(problem, field)
    if value is None:
        raise SettingError(f"named: {row.name} is tuned from {field}, which must be given")
    if field in ("horizon", "arms"):
        return validation.whole("named", field, value)
    return validation.positive("named", field, value)


def _tune_discount(row: Name, problem: Problem) -> Memory:
    horizon = int(_require(row, problem, "horizon"))
    drift = _require(row, problem, "drift")
    by_arms = row.exploration in ("thompson", "perturbed_history")
    arms = int(_require(row, problem, "arms")) if by_arms else None
    gamma = discount_for(problem.dim, horizon, drift, arms, problem.tuning)
    return discount(gamma, single=row.single)


def _tune_one_pass(row: Name, problem: Problem) -> Memory:
    """γ = 1, or that of theory if the world drifts; S is the given norm of θ."""
    gamma = _tune_discount(row, problem).gamma if row.world == DRIFTING else 1.0
    return one_pass(problem.link, gamma, problem.theta_norm)


def _tune_span(row: Name, problem: Problem) -> int:
    horizon = int(_require(row, problem, "horizon"))
    return span_for(problem.dim, horizon, _require(row, problem, "drift"))


def _tune_kalman(row: Name, problem: Problem) -> Memory:
    """1 − ρ² = q for q = (1−γ)²σ²d, so that the filter forgets as fast as the γ of theory."""
    step = 1.0 - _tune_discount(row, problem).gamma
    noise = _positive_noise(problem)
    return kalman(math.sqrt(max(0.5, 1.0 - step * step * noise * noise * problem.dim)), noise)


def _tune_restart_at(row: Name, problem: Problem) -> Memory:
    if problem.changes is None:
        raise SettingError(f"named: {row.name} restarts at changes, which must be given")
    return restart_at(problem.changes)


def _positive_noise(problem: Problem) -> float:
    """σ, checked to be above 0, or 1 if σ is unknown."""
    return validation.positive("named", "noise", problem.noise_or_one)


def _radius(problem: Problem) -> Confidence:
    norms = (problem.theta_norm, problem.arm_norm)
    noise = problem.noise_or_one if problem.link in ("", "identity") else 1.0  # widths have it
    return confidence(problem.delta, noise, *norms)


def _tune_thompson(row: Name, problem: Problem) -> Exploration:
    """a = σ, or 1 if σ is unknown; the LinTS of Agrawal and Goyal takes σ√(9d·log(T/δ)).

    The covariance of a Kalman filter contains σ already, so that a = 1; `parts` estimates σ.
    """
    if row.memory == "parts":
        return thompson(posterior(1.0))
    scale = 1.0 if row.memory == "kalman" else problem.noise_or_one
    if row.inflated:
        horizon = _require(row, problem, "horizon")
        scale *= math.sqrt(9.0 * problem.dim * math.log(horizon / problem.delta))
    return thompson(scale, predictive=row.predictive)


def _tune_randomized(row: Name, problem: Problem) -> Exploration:
    """|N(0, 1)| times 0.4 of the radius, or times the estimate of σ under `parts`."""
    width = posterior(1.0) if row.memory == "parts" else 0.4 * _radius(problem)
    return randomized(half_normal(width))


def _tune_inverse_gap(row: Name, problem: Problem) -> Exploration:
    """η = √(K·n/(σ²·d·log n)), n the horizon, or the length of a discounted memory."""
    arms = _require(row, problem, "arms")
    noise = _positive_noise(problem)
    length = _require(row, problem, "horizon")
    if row.memory == "discount":
        length = 1.0 / (1.0 - _tune_discount(row, problem).gamma)
    cost = noise * noise * problem.dim * math.log(max(length, 3.0))
    return inverse_gap(math.sqrt(arms * length / cost))


def _tune_perturbed_history(row: Name, problem: Problem) -> Exploration:
    """One coin, as in LinPHE; with a link normal noise, of the scale that thompson would have.

    EVILL has the noise of each reward from the link, so that a = 1 unless the link is the identity.
    """
    if row.evill:
        known = problem.noise_or_one if problem.link == "identity" else 1.0
        return perturbed_history(known, "evill")
    if not row.has_link:
        return perturbed_history(1, pseudo="coins")
    return perturbed_history(problem.noise_or_one)


MEMORY_TUNINGS: dict[str, Callable[[Name, Problem], Memory]] = {
    "keep": lambda row, problem: keep(),
    "discount": _tune_discount,
    "fading_prior": lambda row, problem: fading_prior(_tune_discount(row, problem).gamma),
    "directional": lambda row, problem: directional(_tune_discount(row, problem).gamma),
    "detect_shift": lambda row, problem: detect_shift(
        _positive_noise(problem), problem.theta_norm, _require(row, problem, "horizon") ** -0.5
    ),
    "one_pass": _tune_one_pass,
    "window": lambda row, problem: window(_tune_span(row, problem)),
    "restart": lambda row, problem: restart(_tune_span(row, problem)),
    "restart_at": _tune_restart_at,
    "kalman": _tune_kalman,
    "parts": lambda row, problem: parts(),
    "detect": lambda row, problem: detect(_positive_noise(problem), problem.theta_norm),
}
EXPLORATION_TUNINGS: dict[str, Callable[[Name, Problem], Exploration]] = {
    "optimism": lambda row, problem: optimism(_radius(problem)),
    "randomized": _tune_randomized,
    "thompson": _tune_thompson,
    "perturbed_history": _tune_perturbed_history,
    "inverse_gap": _tune_inverse_gap,
}
