"""Laws: how the confidence level of a round is drawn, and what scales it: radius, or noise."""

import math
from dataclasses import dataclass, replace
from typing import Literal

from windvane import validation
from windvane.errors import SettingError

__all__ = [
    "Confidence",
    "Law",
    "Posterior",
    "confidence",
    "grid",
    "half_normal",
    "normal",
    "posterior",
]

PRIOR_NOISE = 0.5  # σ₀, the estimated noise before anything was learned
PRIOR_NOISE_WEIGHT = 2.0  # n₀, the number of observations as which σ₀ counts


def mass(seen: int, gamma: float, window: int) -> float:
    """The effective number of observations in memory: Σ of the squared weights.

    n for keep, min(n, w) for a window, (1−γ^{2n})/(1−γ²) for a discount.
    """
    if gamma < 1.0:
        return (1.0 - gamma ** (2 * seen)) / (1.0 - gamma * gamma)
    return float(min(seen, window) if window > 0 else seen)


def radius(
    effective: float,
    dim: int,
    ridge: float,
    delta: float,
    noise: float,
    theta_norm: float,
    arm_norm: float,
) -> float:
    """β = √λ·S + σ√(2·log(1/δ) + d·log(1 + L²·m/(λd))) for m effective observations."""
    spread = dim * math.log1p(arm_norm * arm_norm * effective / (ridge * dim))
    return math.sqrt(ridge) * theta_norm + noise * math.sqrt(2.0 * math.log(1.0 / delta) + spread)


def anytime(delta: float, seen: int) -> float:
    """δ_n = δ/(2n(1+ln n)²), whose sum over all n ≥ 1 stays below δ."""
    count = max(seen, 1)
    return delta / (2.0 * count * (1.0 + math.log(count)) ** 2)


def estimate_noise(squared_errors: float, weight: float) -> float:
    """σ̂ = √((n₀σ₀² + Σ w·e²/S)/(n₀ + Σ w)), with σ₀ = 0.5 and n₀ = 2."""
    prior = PRIOR_NOISE_WEIGHT * PRIOR_NOISE * PRIOR_NOISE
    return math.sqrt((prior + squared_errors) / (PRIOR_NOISE_WEIGHT + weight))


@dataclass(frozen=True)
class Confidence(validation.Scalable):
    """A multiple of the radius β_n of theory, which grows with the number of observations.

    >>> 0.4 * confidence(delta=0.01, noise=0.5)
    0.4 * confidence(0.01, 0.5, 1.0, 1.0)
    """

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


@dataclass(frozen=True)
class Posterior(validation.Scalable):
    """A share of the noise σ̂ that a policy estimates from its own errors of prediction.

    >>> 0.5 * posterior(0.6)
    posterior(0.3)
    """

    share: float

    def __mul__(self, factor: float) -> "Posterior":
        validation.not_negative("posterior", "a factor", factor)
        return replace(self, share=self.share * float(factor))

    __rmul__ = __mul__

    def __repr__(self) -> str:
        return f"posterior({self.share!r})"


Width = float | Confidence | Posterior


def confidence(
    delta: float = 0.01,
    noise: float = 1.0,
    theta_norm: float = 1.0,
    arm_norm: float = 1.0,
    *,
    horizon: int | None = None,
    anytime: bool = False,
) -> Confidence:
    """The radius β_n of theory: ‖θ̂−θ*‖_V ≤ β_n with probability at least 1−δ.

    β_n = √λ·S + σ√(2·log(1/δ) + d·log(1 + L²·m/(λd))), m the Σ of the squared weights in memory.

    The promise holds at each fixed round (the default, as in the paper), for all rounds of a
    `horizon` together, or, with `anytime`, for all rounds together. A discounted or windowed β_n
    levels off, and the error exceeds it in some rounds, so the default promises no more.

    >>> confidence(delta=0.05, noise=0.4)
    confidence(0.05, 0.4, 1.0, 1.0)
    >>> 0.4 * confidence(noise=0.4, horizon=10_000)
    0.4 * confidence(0.01, 0.4, 1.0, 1.0, horizon=10000)

    Kim & Tewari (2020), §3.2, Lemma 1, after Russac, Vernade & Cappé (2019), Theorem 1.
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


def posterior(share: float = 1.0) -> Posterior:
    """A share of the estimated noise: with share 1, a width is a standard deviation of xᵀθ.

    σ̂² = (n₀σ₀² + Σ w·e²/S)/(n₀ + Σ w),  e = y − xᵀθ̂ before y is learned,  S = 1 + ‖x‖²_{V⁻¹}

    The weights w fade as those of the memory do. σ₀ = 0.5, counted as n₀ = 2 observations, is the
    noise of a policy that has learned nothing.

    >>> posterior(0.5)
    posterior(0.5)
    >>> half_normal(posterior(0.5))
    half_normal(posterior(0.5))

    Zellner (1971), "An introduction to Bayesian inference in econometrics", with the estimate σ̂
    in place of the distribution of the noise.
    """
    return Posterior(validation.not_negative("posterior", "share", share))


@dataclass(frozen=True)
class Law:
    """The probability law of the confidence level Z of a round.

    >>> half_normal(1.5).scale
    1.5
    """

    name: Literal["point", "normal", "half_normal", "grid"]
    scale: Width
    points: int = 0
    sigma: float = 0.0
    top: float = 0.0

    def __repr__(self) -> str:
        shape = f", {self.points}, {self.sigma!r}, {self.top!r}" if self.name == "grid" else ""
        return f"{self.name}({self.scale!r}{shape})"


def check_width(who: str, name: str, value: Width) -> Width:
    """Return a radius or a share of the noise as it is, or a number of at least 0."""
    if isinstance(value, Confidence | Posterior):
        return value
    return validation.not_negative(who, name, value)


def read_factor(width: Width) -> float:
    """The number in a width: itself, or the factor of the radius or of the noise."""
    if isinstance(width, Confidence):
        return width.times
    return width.share if isinstance(width, Posterior) else width


def normal(scale: Width) -> Law:
    """A normal level for `randomized`: Z ~ N(0, s²).

    >>> normal(0.5)
    normal(0.5)

    Kim & Tewari (2020), §2.2.
    """
    return Law("normal", check_width("normal", "scale", scale))


def half_normal(scale: Width) -> Law:
    """A level above 0 for `randomized`: Z = |N(0, s²)|, s the scale before it is cut at 0.

    >>> half_normal(0.4 * confidence(noise=0.4))
    half_normal(0.4 * confidence(0.01, 0.4, 1.0, 1.0))

    Kim & Tewari (2020), §4.
    """
    return Law("half_normal", check_width("half_normal", "scale", scale))


def grid(scale: Width, points: int = 20, sigma: float = 0.125, top: float = 1e-7) -> Law:
    """A level for `randomized` from the M points 0, u/(M−1), …, u, with u = `scale`, as in RandUCB.

    P(Z = u) = `top`; the other points share the rest in proportion to exp(−(Z/u)²/(2·sigma²)).

    >>> grid(2.0, points=10)
    grid(2.0, 10, 0.125, 1e-07)

    Vaswani, Mehrabian, Durand & Kveton (2020), "Old dog learns new tricks: randomized UCB".
    """
    return Law(
        "grid",
        check_width("grid", "scale", scale),
        points=validation.whole("grid", "points", points, least=2),
        sigma=validation.positive("grid", "sigma", sigma),
        top=validation.share("grid", "top", top),
    )


validation.FACTORIES.update(
    {part.__name__: part for part in (normal, half_normal, grid, confidence, posterior)}
)
