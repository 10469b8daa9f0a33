"""The paper's theory as numbers: constants, tunings and the regret bound.

d is the dimension, T the horizon, B the total variation of θ*, K the number of arms, λ the ridge.

>>> from windvane import theory
>>> round(theory.discount_for(dim=10, horizon=10_000, drift=1.0), 4)
0.9944
"""

import math
from typing import Literal, NamedTuple

from windvane import validation
from windvane.errors import SettingError, shorten
from windvane.laws import anytime, mass, radius

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
]

Exploring = Literal["randomized", "thompson"]
Tuning = Literal["corrected", "uncorrected"]
TUNINGS: tuple[Tuning, ...] = ("corrected", "uncorrected")


def discount_for(
    dim: int, horizon: int, drift: float, arms: int | None = None, tuning: Tuning = "corrected"
) -> float:
    """Return the discount γ that balances noise and drift; with `arms`, the one for thompson.

    corrected:   γ = 1 − d^{−1/4}·B^{1/2}·T^{−1/2}, times (log K)^{−1/4} for thompson
    uncorrected: γ = 1 − (B/(dT))^{2/3}, as in the first publications

    >>> round(discount_for(dim=10, horizon=10_000, drift=1.0, arms=20), 4)
    0.9957
    """
    who = "discount_for"
    d = validation.whole(who, "dim", dim)
    T = validation.whole(who, "horizon", horizon)
    B = validation.positive(who, "drift", drift)
    if tuning == "corrected":
        step = math.sqrt(B / T / math.sqrt(d))
        if arms is not None:
            step *= math.log(validation.whole(who, "arms", arms, least=2)) ** -0.25
    elif tuning == "uncorrected":
        step = (B / (d * T)) ** (2 / 3)
    else:
        raise SettingError(
            f"{who}: tuning must be one of {', '.join(TUNINGS)}, got {shorten(tuning)}"
        )
    if step >= 1:
        raise SettingError(
            f"{who}: the horizon must be longer or the drift smaller, "
            f"because a drift of {B:g} within {T} rounds leaves no past to learn from"
        )
    return 1.0 - step


def span_for(dim: int, horizon: int, drift: float) -> int:
    """Return the length of a window, or the rounds between two restarts: ⌈d^{1/4}·√(T/B)⌉.

    >>> span_for(dim=10, horizon=10_000, drift=1.0)
    178
    """
    who = "span_for"
    d = validation.whole(who, "dim", dim)
    T = validation.whole(who, "horizon", horizon)
    return math.ceil(math.sqrt(math.sqrt(d) * T / validation.positive(who, "drift", drift)))


def bias_horizon(horizon: int, gamma: float) -> int:
    """Return D = ⌈log T/(1−γ)⌉, the age beyond which the bound ignores observations.

    >>> bias_horizon(horizon=10_000, gamma=0.99)
    922
    """
    T = validation.whole("bias_horizon", "horizon", horizon, least=2)
    return math.ceil(math.log(T) / (1.0 - validation.inside("bias_horizon", "gamma", gamma)))


class Constants(NamedTuple):
    """The constants of the analysis.

    >>> round(constants(dim=10, horizon=10_000, gamma=0.99).p3, 4)
    0.0549
    """

    c1: float  # bounds the distance of θ̂ from the parameter that it estimates, in widths
    c2: float  # bounds the distance of the perturbed scores from those of θ̂, in widths
    c3: float  # bounds the mean squared width of the chosen arms
    p1: float  # the probability that the bound c1 fails
    p2: float  # the probability that the bound c2 fails
    p3: float  # the probability that the perturbed score of the best arm is high enough
    a: float  # the scale of the perturbation; too large for practical use


def constants(
    dim: int,
    horizon: int,
    gamma: float,
    ridge: float = 1.0,
    arms: int | None = None,
    exploration: Exploring = "randomized",
) -> Constants:
    """Return the constants of the paper's lemmas; only thompson needs `arms`.

    c₁ = √(2·log T + d·log(1 + (1−γ^{2(T−1)})/(λd(1−γ²)))) + √λ,  a² = 14·c₁²
    c₂ = a√(2·log(T/2)) for randomized, a√(2·log(KT/2)) for thompson
    c₃ = 2d·log(1/γ) + (2d/T)·log(1 + 1/(dλ(1−γ)))

    >>> round(constants(dim=10, horizon=10_000, gamma=0.99, ridge=1.0).c1, 3)
    7.032
    """
    who = "constants"
    d = validation.whole(who, "dim", dim)
    T = validation.whole(who, "horizon", horizon, least=3)
    gamma = validation.inside(who, "gamma", gamma)
    ridge = validation.positive(who, "ridge", ridge)
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
    """Return the bound on the expected dynamic regret.

    (c₁+c₂)(1 + 2/(p₃−p₂))·T√c₃ + T(p₁+p₂) + d + 2√(d/λ)·D^{3/2}·B + (4/λ)·γ^D/(1−γ)·T

    The paper prints √(c₃T) instead of T√c₃, which is a misprint.

    >>> regret_bound(dim=10, horizon=10_000, drift=1.0, gamma=0.99) > 10_000
    True
    """
    who = "regret_bound"
    B = validation.not_negative(who, "drift", drift)
    if validation.positive(who, "ridge", ridge) < 1:
        raise SettingError(f"{who}: ridge must be at least 1 for the theorem, got {shorten(ridge)}")
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
    """Return the tunings and the analysis of one problem as tables, each a list of rows.

    >>> tables = summary(dim=10, horizon=10_000, drift=1.0, arms=20)
    >>> [row["tuning"] for row in tables["Tunings"]]
    ['corrected', 'uncorrected', 'corrected', 'uncorrected']
    """
    span = span_for(dim, horizon, drift)
    tunings: list[dict[str, str | float | None]] = []
    analyses: list[dict[str, str | float | None]] = []
    explorations: tuple[Exploring, ...] = ("randomized", "thompson")
    for exploration in explorations:
        arms_for_tuning = arms if exploration == "thompson" else None
        for tuning in TUNINGS:
            gamma = discount_for(dim, horizon, drift, arms_for_tuning, tuning)
            squared_weights = mass(horizon, gamma, 0)
            tunings.append(
                {
                    "exploration": exploration,
                    "tuning": tuning,
                    "discount": gamma,
                    "window or epoch": span if tuning == "corrected" else None,
                    "D": bias_horizon(horizon, gamma),
                    "radius": radius(squared_weights, dim, ridge, delta, 1.0, 1.0, 1.0),
                }
            )
            numbers = constants(dim, horizon, gamma, ridge, arms, exploration)
            bound = regret_bound(dim, horizon, drift, gamma, ridge, arms, exploration)
            analyses.append(
                {
                    "exploration": exploration,
                    "tuning": tuning,
                    **numbers._asdict(),
                    "regret bound": bound,
                }
            )
    return {"Tunings": tunings, "Analysis": analyses}
