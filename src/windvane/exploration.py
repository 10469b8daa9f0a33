"""Explorations: how doubt is spent.

An exploration sees the estimate θ̂ = W⁻¹b and its doubt V⁻¹, never the memory behind them.

| exploration                | plays the arm with the largest                                |
|----------------------------|---------------------------------------------------------------|
| `greedy()`                 | xᵀθ̂                                                           |
| `epsilon(e)`               | xᵀθ̂, or with probability e any arm at all                     |
| `optimism(a)`              | xᵀθ̂ + a‖x‖_{V⁻¹}                                              |
| `randomized(law)`          | xᵀθ̂ + Z‖x‖_{V⁻¹}, one Z ~ law a round for all arms            |
| `thompson(a)`              | xᵀθ̃, θ̃ ~ N(θ̂, a²V⁻¹)                                          |
| `perturbed_history(a)`     | xᵀθ̃, θ̃ refitted to past rewards, each with fresh noise        |
| `inverse_gap(η)`           | xᵀθ̂ most often, each other arm the less the further it is off |
"""

import math
from dataclasses import dataclass, replace
from typing import Literal

from windvane import validation
from windvane.errors import SettingError


def mass(seen: int, gamma: float, window: int) -> float:
    """How many full observations the memory holds: Σ of the squared weights.

    n for keep, min(n, w) for a window, (1−γ^{2n})/(1−γ²) for a discount.
    """
    if gamma < 1.0:
        return (1.0 - gamma ** (2 * seen)) / (1.0 - gamma * gamma)
    return float(min(seen, window) if window > 0 else seen)


def radius(
    held: float,
    dim: int,
    ridge: float,
    delta: float,
    noise: float,
    theta_norm: float,
    arm_norm: float,
) -> float:
    """β = √λ·S + σ√(2·log(1/δ) + d·log(1 + L²·m/(λd))), m the mass held in memory."""
    spread = dim * math.log1p(arm_norm * arm_norm * held / (ridge * dim))
    return math.sqrt(ridge) * theta_norm + noise * math.sqrt(2.0 * math.log(1.0 / delta) + spread)


def anytime(delta: float, seen: int) -> float:
    """δ_n = δ/(2n(1+ln n)²), whose sum over all n ≥ 1 stays below δ."""
    count = max(seen, 1)
    return delta / (2.0 * count * (1.0 + math.log(count)) ** 2)


@dataclass(frozen=True)
class Confidence:
    """A multiple of the radius β_n of theory, which grows with what has been seen."""

    delta: float
    noise: float
    theta_norm: float
    arm_norm: float
    when: Literal["round", "horizon", "anytime"]
    horizon: int
    times: float = 1.0

    def __mul__(self, factor: float) -> "Confidence":
        validation.not_negative("confidence", "a factor", factor)
        return replace(self, times=self.times * float(factor))

    __rmul__ = __mul__

    def __repr__(self) -> str:
        promise = {
            "round": "",
            "horizon": f", horizon={self.horizon}",
            "anytime": ", anytime=True",
        }[self.when]
        factor = "" if self.times == 1.0 else f"{self.times!r} * "
        return (
            f"{factor}confidence({self.delta!r}, {self.noise!r}, {self.theta_norm!r}, "
            f"{self.arm_norm!r}{promise})"
        )


Width = float | Confidence


def confidence(
    delta: float = 0.01,
    noise: float = 1.0,
    theta_norm: float = 1.0,
    arm_norm: float = 1.0,
    *,
    horizon: int | None = None,
    anytime: bool = False,
) -> Confidence:
    """The radius β_n: ‖θ̂−θ*‖_V ≤ β_n but for a chance δ.

    At each fixed round (the paper's, the default), over all rounds of a `horizon`, or at
    `anytime`. A discounted or windowed β_n levels off while the error goes on wandering, so the
    default promises nothing about all rounds together.
    """
    if horizon is not None and anytime:
        raise SettingError("confidence: give a horizon or anytime, not both")
    return Confidence(
        delta=validation.inside("confidence", "delta", delta),
        noise=validation.not_negative("confidence", "noise", noise),
        theta_norm=validation.not_negative("confidence", "theta_norm", theta_norm),
        arm_norm=validation.positive("confidence", "arm_norm", arm_norm),
        when="anytime" if anytime else "round" if horizon is None else "horizon",
        horizon=1 if horizon is None else validation.whole("confidence", "horizon", horizon),
    )


@dataclass(frozen=True)
class Law:
    """Where the confidence level Z of a round comes from."""

    name: Literal["point", "normal", "half_normal", "grid"]
    scale: Width
    points: int = 0
    sigma: float = 0.0
    top: float = 0.0

    def __repr__(self) -> str:
        rest = f", {self.points}, {self.sigma!r}, {self.top!r}" if self.name == "grid" else ""
        return f"{self.name}({self.scale!r}{rest})"


def _width(who: str, name: str, value: Width) -> Width:
    if isinstance(value, Confidence):
        return value
    return validation.not_negative(who, name, value)


def normal(scale: Width) -> Law:
    """Z ~ N(0, s²)."""
    return Law("normal", _width("normal", "scale", scale))


def half_normal(scale: Width) -> Law:
    """Z = |N(0, s²)|: the normal law cut off below 0, s its scale before the cut."""
    return Law("half_normal", _width("half_normal", "scale", scale))


def grid(scale: Width, points: int = 20, sigma: float = 0.125, top: float = 1e-7) -> Law:
    """RandUCB's law on the points 0, u/(M−1), …, u with u = `scale`.

    P(Z = u) = `top`; the others share the rest in proportion to exp(−(Z/u)²/(2·sigma²)).
    """
    return Law(
        "grid",
        _width("grid", "scale", scale),
        points=validation.whole("grid", "points", points, least=2),
        sigma=validation.positive("grid", "sigma", sigma),
        top=validation.share("grid", "top", top),
    )


DETERMINISTIC = ("greedy", "optimism")  # the same belief and arms always give the same choice
BY_ORACLE = ("greedy", "thompson", "perturbed_history")  # ask only for argmax xᵀθ over the arms


@dataclass(frozen=True)
class Exploration:
    """How doubt is spent; made by the functions below."""

    name: str
    law: Law | None = None
    scale: float = 0.0
    chance: float = 0.0
    pseudo: Literal["normal", "coins"] = "normal"

    def __repr__(self) -> str:
        coins = self.pseudo == "coins"
        given = {
            "epsilon": f"{self.chance!r}",
            "inverse_gap": f"{self.scale!r}",
            "optimism": f"{self.law.scale!r}" if self.law else "",
            "randomized": f"{self.law!r}",
            "thompson": f"{self.scale!r}",
            "perturbed_history": f"{self.scale:.0f}, 'coins'" if coins else f"{self.scale!r}",
        }
        return f"{self.name}({given.get(self.name, '')})"


def greedy() -> Exploration:
    """Play the arm that looks best: max xᵀθ̂."""
    return Exploration("greedy")


def epsilon(chance: float) -> Exploration:
    """Play the arm that looks best, but with probability `chance` any arm at all."""
    return Exploration("epsilon", chance=validation.share("epsilon", "chance", chance))


def optimism(width: Width) -> Exploration:
    """Play the arm that could be best: max xᵀθ̂ + a‖x‖_{V⁻¹}."""
    return Exploration("optimism", law=Law("point", _width("optimism", "width", width)))


def randomized(law: Law) -> Exploration:
    """Optimism whose width is drawn: max xᵀθ̂ + Z‖x‖_{V⁻¹}, one Z a round for all arms."""
    if not isinstance(law, Law):
        raise SettingError(
            f"randomized: law must be normal(...), half_normal(...) or grid(...), got {law!r}"
        )
    return Exploration("randomized", law=law)


def thompson(scale: float = 1.0) -> Exploration:
    """Believe a sample: max xᵀθ̃ with θ̃ ~ N(θ̂, a²V⁻¹)."""
    return Exploration("thompson", scale=validation.not_negative("thompson", "scale", scale))


def perturbed_history(
    scale: float = 1.0, pseudo: Literal["normal", "coins"] = "normal"
) -> Exploration:
    """Refit to a perturbed past, afresh each round; it keeps the features it has learned from.

    normal: θ̃ = W⁻¹(Σ w·x(y + a·Z) + a√λ·ζ), Z and ζ standard normal; as thompson(a) in law.
    coins:  θ̃ = W⁻¹ Σ w·x(y + Bin(a, ½))/(a+1), as LinPHE, for rewards in [0, 1].
    """
    who = "perturbed_history"
    if pseudo == "coins":
        count = validation.whole(who, "the number of coins", scale)
        if count > 64:
            raise SettingError(f"{who}: the number of coins must be at most 64, got {scale!r}")
    elif pseudo != "normal":
        raise SettingError(f"{who}: pseudo must be 'normal' or 'coins', got {pseudo!r}")
    return Exploration(who, scale=validation.not_negative(who, "scale", scale), pseudo=pseudo)


def inverse_gap(eta: float) -> Exploration:
    """Play each arm the more rarely the further it seems to be off the best.

    P(k) = 1/(K + η(x_bᵀθ̂ − x_kᵀθ̂)) for every arm k but the best b, which gets the rest.
    """
    return Exploration("inverse_gap", scale=validation.not_negative("inverse_gap", "eta", eta))
