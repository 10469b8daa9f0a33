"""The paper's theory as numbers: constants, tunings, the regret bound, the surrogate parameter.

d is the dimension, T the horizon, B the total variation of θ*, K the number of arms, λ the ridge.
"""

import math
from typing import Literal, NamedTuple

import numpy as np

from windvane import validation
from windvane.errors import SettingError
from windvane.exploration import anytime, mass, radius
from windvane.types import Floats

__all__ = [
    "Constants",
    "anytime",
    "bias_horizon",
    "constants",
    "discount_for",
    "mass",
    "radius",
    "regret_bound",
    "span_for",
    "summary",
    "surrogate",
]

Exploring = Literal["randomized", "thompson"]
Tuning = Literal["corrected", "uncorrected"]
TUNINGS: tuple[Tuning, ...] = ("corrected", "uncorrected")


def discount_for(
    dim: int,
    horizon: int,
    drift: float,
    arms: int | None = None,
    tuning: Tuning = "corrected",
) -> float:
    """The discount that balances noise against drift; given `arms`, the one for thompson.

    corrected:   γ = 1 − d^{−1/4}·B^{1/2}·T^{−1/2}, times (log K)^{−1/4} for thompson
    uncorrected: γ = 1 − (B/(dT))^{2/3}, as the literature first had it
    """
    who = "discount_for"
    d, T = validation.whole(who, "dim", dim), validation.whole(who, "horizon", horizon)
    B = validation.positive(who, "drift", drift)
    if tuning == "corrected":
        step = math.sqrt(B / T / math.sqrt(d))
        if arms is not None:
            step *= math.log(validation.whole(who, "arms", arms, least=2)) ** -0.25
    elif tuning == "uncorrected":
        step = (B / (d * T)) ** (2 / 3)
    else:
        raise SettingError(f"{who}: tuning must be one of {', '.join(TUNINGS)}, got {tuning!r}")
    if step >= 1:
        raise SettingError(
            f"{who}: a drift of {B:g} within {T} rounds leaves nothing to remember; "
            "the horizon must be longer or the drift smaller"
        )
    return 1.0 - step


def span_for(dim: int, horizon: int, drift: float) -> int:
    """The window, or the rounds between two restarts: ⌈d^{1/4}·√(T/B)⌉."""
    d, T = (
        validation.whole("span_for", "dim", dim),
        validation.whole("span_for", "horizon", horizon),
    )
    return math.ceil(math.sqrt(math.sqrt(d) * T / validation.positive("span_for", "drift", drift)))


def bias_horizon(horizon: int, gamma: float) -> int:
    """D = ⌈log T/(1−γ)⌉, the age beyond which the bound writes the past off."""
    T = validation.whole("bias_horizon", "horizon", horizon, least=2)
    return math.ceil(math.log(T) / (1.0 - validation.inside("bias_horizon", "gamma", gamma)))


class Constants(NamedTuple):
    """What the analysis is made of."""

    c1: float  # how far θ̂ strays from the surrogate, in widths
    c2: float  # how far the perturbed scores stray from θ̂'s, in widths
    c3: float  # the mean squared width of the arms played
    p1: float  # the chance that c1 fails
    p2: float  # the chance that c2 fails
    p3: float  # the chance that the best arm looks good enough
    a: float  # the scale of the perturbation; for study, far too careful for use


def constants(
    dim: int,
    horizon: int,
    gamma: float,
    ridge: float = 1.0,
    arms: int | None = None,
    exploration: Exploring = "randomized",
) -> Constants:
    """The constants of the paper's lemmas; `arms` counts for thompson only.

    c₁ = √(2·log T + d·log(1 + (1−γ^{2(T−1)})/(λd(1−γ²)))) + √λ,  a² = 14·c₁²
    c₂ = a√(2·log(T/2)) for randomized, a√(2·log(KT/2)) for thompson
    c₃ = 2d·log(1/γ) + (2d/T)·log(1 + 1/(dλ(1−γ)))
    """
    who = "constants"
    d, T = validation.whole(who, "dim", dim), validation.whole(who, "horizon", horizon, least=3)
    gamma, ridge = validation.inside(who, "gamma", gamma), validation.positive(who, "ridge", ridge)
    if exploration == "thompson":
        K = validation.whole(who, "arms", arms)
    elif exploration == "randomized":
        K = 1
    else:
        raise SettingError(f"{who}: exploration must be randomized or thompson, got {exploration}")
    c1 = radius(mass(T - 1, gamma, 0), d, ridge, 1.0 / T, 1.0, 1.0, 1.0)
    a = math.sqrt(14.0) * c1
    return Constants(
        c1=c1,
        c2=a * math.sqrt(2.0 * math.log(K * T / 2.0)),
        c3=2.0 * d * -math.log(gamma) + 2.0 * d / T * math.log1p(1.0 / (d * ridge * (1.0 - gamma))),
        p1=1.0 / T,
        p2=1.0 / T,
        p3=math.exp(-0.25) / (8.0 * math.sqrt(math.pi)),
        a=a,
    )


def regret_bound(
    dim: int,
    horizon: int,
    drift: float,
    gamma: float,
    ridge: float = 1.0,
    arms: int | None = None,
    exploration: Exploring = "randomized",
) -> float:
    """The bound on the expected dynamic regret, with T√c₃ where the paper misprints √(c₃T).

    (c₁+c₂)(1 + 2/(p₃−p₂))·T√c₃ + T(p₁+p₂) + d + 2√(d/λ)·D^{3/2}·B + (4/λ)·γ^D/(1−γ)·T
    """
    who = "regret_bound"
    B = validation.not_negative(who, "drift", drift)
    if validation.positive(who, "ridge", ridge) < 1:
        raise SettingError(f"{who}: the theorem asks for a ridge of at least 1, got {ridge!r}")
    T = validation.whole(who, "horizon", horizon)
    if T < 19:
        raise SettingError(f"{who}: horizon must be at least 19, so that p3 > 1/T, got {T}")
    c = constants(dim, T, gamma, ridge, arms, exploration)
    D = bias_horizon(T, gamma)
    surrogate_regret = (c.c1 + c.c2) * (1.0 + 2.0 / (c.p3 - c.p2)) * T * math.sqrt(c.c3)
    bias = (
        2.0 * math.sqrt(dim / ridge) * math.pow(D, 1.5) * B
        + 4.0 / ridge * gamma**D / (1.0 - gamma) * T
    )
    return surrogate_regret + T * (c.p1 + c.p2) + dim + bias


def summary(
    dim: int, horizon: int, drift: float, arms: int, ridge: float = 1.0, delta: float = 0.01
) -> dict[str, list[dict[str, str | float | None]]]:
    """Everything above for one problem, as tables."""
    span = span_for(dim, horizon, drift)
    memories: list[dict[str, str | float | None]] = []
    analyses: list[dict[str, str | float | None]] = []
    explorings: tuple[Exploring, ...] = ("randomized", "thompson")
    for exploring in explorings:
        counted = arms if exploring == "thompson" else None
        for tuning in TUNINGS:
            gamma = discount_for(dim, horizon, drift, counted, tuning)
            held = mass(horizon, gamma, 0)
            memories.append(
                {
                    "exploration": exploring,
                    "tuning": tuning,
                    "discount": gamma,
                    "window or epoch": span if tuning == "corrected" else None,
                    "D": bias_horizon(horizon, gamma),
                    "radius": radius(held, dim, ridge, delta, 1.0, 1.0, 1.0),
                }
            )
            chosen = constants(dim, horizon, gamma, ridge, arms, exploring)
            bound = regret_bound(dim, horizon, drift, gamma, ridge, arms, exploring)
            analyses.append(
                {
                    "exploration": exploring,
                    "tuning": tuning,
                    **chosen._asdict(),
                    "regret bound": bound,
                }
            )
    return {"Tunings": memories, "Analysis": analyses}


def surrogate(features: Floats, thetas: Floats, now: Floats, gamma: float, ridge: float) -> Floats:
    """θ̄_t = W⁻¹(Σ γ^{t−1−l}·x_l x_lᵀθ*_l + λθ*_t): what θ̂ estimates while θ* moves.

    `features` and `thetas` are (t−1, d), oldest first, `now` is θ*_t.
    """
    if features.ndim != 2 or features.shape != thetas.shape or now.shape != features.shape[1:]:
        raise SettingError(
            "surrogate: features and thetas must be (n, d) and now (d,), "
            f"got {features.shape}, {thetas.shape} and {now.shape}"
        )
    weights = gamma ** np.arange(len(features) - 1, -1, -1.0)
    weighted = features * weights[:, None]
    W = weighted.T @ features + ridge * np.eye(now.size)
    target = weighted.T @ np.einsum("nd,nd->n", features, thetas) + ridge * now
    answer: Floats = np.linalg.solve(W, target)
    return answer
