"""How far a sum can stray from its mean at any time: the gamma-exponential mixture boundary.

If X_i ≥ −ℓ, and X̂_i ≤ 1 is known before X_i, then for every λ in [0, 1) and any conditional
means ν_i

    exp(λ s − ψ(λ) V),   s = Σ(X_i − ν_i)/(1+ℓ),   V = Σ(X_i − X̂_i)²/(1+ℓ)²,   ψ(λ) = −log(1−λ) − λ

is a supermartingale that starts at 1, and so is its mixture M over 1 − λ with the density of a
gamma law truncated to [0, 1], with shape and rate ρ:

    log M = s + V + ρ log ρ − a log x + log γ(a, x) − log γ(ρ, ρ),   a = V + ρ,  x = s + V + ρ

γ is the lower incomplete gamma function. M stays below 1/α at all times with probability 1 − α,
so s stays below the boundary, the s with log M = log(1/α).

Howard, Ramdas, McAuliffe & Sekhon (2021), "Time-uniform, nonparametric, nonasymptotic confidence
sequences".
"""

import math

import numpy as np
import numpy.typing as npt
from scipy.special import gammainc, gammaln

from windvane.errors import FitError
from windvane.types import Floats

RHO = 1.0  # ρ: the boundary is tightest if V is a small multiple of ρ
STIRLING_FROM = 16.0  # the series of the log-gamma function has all digits from here on
MAX_STEPS = 100
TOLERANCE = 1e-13  # of the boundary, relative
LOG_GAMMA_RHO = float(np.log(gammainc(RHO, RHO)) + gammaln(RHO))  # log γ(ρ, ρ)


def log_wealth(deviation: npt.ArrayLike, variance: npt.ArrayLike) -> Floats:
    """Compute log M for deviations s ≥ 0 and variances V ≥ 0.

    The formula above loses all digits for large V. With the series of Stirling,
    log Γ(a) = (a − ½) log a − a + ½ log 2π + δ(a), it becomes, with the regularised P = γ/Γ,

        log M = s − a log(1 + s/a) − ½ log a − ρ + ρ log ρ + ½ log 2π + δ(a) + log P(a, x)
                − log γ(ρ, ρ)

    s ≥ 0 means x ≥ a, so P(a, x) ≥ ½ and its logarithm is exact.

    >>> float(log_wealth(3.0, 0.0).round(6))
    2.053895
    """
    s = np.asarray(deviation, dtype=np.float64)
    a = np.asarray(variance, dtype=np.float64) + RHO
    wealth: Floats = (
        s
        - a * np.log1p(s / a)
        - np.log(a) / 2
        - RHO
        + RHO * math.log(RHO)
        + math.log(2 * math.pi) / 2
        + _stirling_remainder(a)
        + np.log(gammainc(a, a + s))
        - LOG_GAMMA_RHO
    )
    return wealth


def find_boundary(variance: npt.ArrayLike, alpha: float) -> Floats:
    """Find the s at which log M = log(1/α), for each variance V.

    log M is convex and increasing in s, so Newton's method from a point above the root falls
    monotonically to the root.

    >>> bool(abs(log_wealth(find_boundary(50.0, 0.025), 50.0) - np.log(40.0)) < 1e-12)
    True
    """
    v = np.asarray(variance, dtype=np.float64)
    a = v + RHO
    goal = math.log(1 / alpha)
    enough = goal + np.log(a) / 2 + 1
    s = np.sqrt(2 * a * enough) + enough
    while True:
        is_low = log_wealth(s, v) < goal
        if not is_low.any():
            break
        s = np.where(is_low, 2 * s, s)
    is_falling = np.ones(s.shape, dtype=bool)
    for _ in range(MAX_STEPS):
        step = (log_wealth(s, v) - goal) / _slope(s, a)
        s = np.where(is_falling, s - step, s)
        is_falling &= step > TOLERANCE * s  # rounding ends the fall for very large V
        if not is_falling.any():
            return np.asarray(s)
    raise FitError(f"find_boundary: no convergence in {MAX_STEPS} steps for alpha = {alpha}")


def _slope(s: Floats, a: Floats) -> Floats:
    """The derivative of log M in s: 1 − a/x + x^(a−1) e^(−x) / γ(a, x)."""
    x = a + s
    log_density = (
        s - a * np.log1p(s / a) - np.log(a) / 2 + math.log(2 * math.pi) / 2 + _stirling_remainder(a)
    )  # log Γ(a) − a log x + x, so that its negative is the logarithm of x^a e^(−x) / Γ(a)
    slope: Floats = s / x + np.exp(-log_density) / x / gammainc(a, x)
    return slope


def _stirling_remainder(a: Floats) -> Floats:
    """δ(a) = log Γ(a) − (a − ½) log a + a − ½ log 2π."""
    large = np.maximum(a, STIRLING_FROM)
    inverse = 1 / (large * large)
    series = np.polyval([1 / 1188, -1 / 1680, 1 / 1260, -1 / 360, 1 / 12], inverse) / large
    small = np.minimum(a, STIRLING_FROM)
    direct = gammaln(small) - (small - 0.5) * np.log(small) + small - math.log(2 * math.pi) / 2
    remainder: Floats = np.where(a < STIRLING_FROM, direct, series)
    return remainder
