"""Memories: how the past fades.

Most memories are three answers. By what factor does an observation fade when the next one comes?
After how many observations is it dropped? Before which rounds is everything dropped?

| memory          | fades by | dropped after | all dropped              | its clock    |
|-----------------|----------|---------------|--------------------------|--------------|
| `keep()`        | 1        | never         | never                    | none         |
| `discount(γ)`   | γ        | never         | never                    | observations |
| `window(w)`     | 1        | w             | never                    | observations |
| `restart(H)`    | 1        | never         | before round H, 2H, 3H, … | rounds      |
| `restart_at(R)` | 1        | never         | before each round in R   | rounds       |
| `detect(σ)`     | 1        | never         | when an alarm is raised  | observations |
| `half_life(h)`  | ½ in h   | never         | never                    | rounds, or time |

`kalman(ρ, σ)` believes that the parameter itself wanders, and doubts the past accordingly.

An observation is a reward that was learned, a round is an arm set that was chosen from. A round
that never gets a reward is therefore invisible to keep, discount and window, and only its tick
counts for restart and restart_at. A reward that comes after a restart for a choice made before it
belongs to what was dropped, and is dropped too.
"""

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass

from windvane import validation


@dataclass(frozen=True)
class Memory:
    """How the past fades; made by the functions below."""

    name: str
    gamma: float = 1.0
    single: bool = False  # one Gram matrix, W, for estimate and doubt alike
    rounds: int = 0
    every: int = 0
    at: tuple[int, ...] = ()
    span: float = 0.0  # after which an observation counts half
    rho: float = 0.0
    noise: float = 0.0  # σ, where the memory must know it
    theta_norm: float = 0.0  # S
    slack: float = 0.0
    alarm: float = 0.0

    def next_restart(self, after: int) -> int:
        """The first restart in a round later than `after`, or -1 where there is none."""
        if self.every:
            return (after // self.every + 1) * self.every
        place = bisect_right(self.at, after)
        return self.at[place] if place < len(self.at) else -1

    def __repr__(self) -> str:
        given = {
            "discount": f"{self.gamma!r}{', single=True' if self.single else ''}",
            "window": f"{self.rounds}",
            "restart": f"{self.every}",
            "restart_at": f"{list(self.at)}",
            "half_life": f"{self.span!r}",
            "kalman": f"{self.rho!r}, {self.noise!r}",
            "detect": f"{self.noise!r}, {self.theta_norm!r}, {self.slack!r}, {self.alarm!r}",
        }
        return f"{self.name}({given.get(self.name, '')})"


def keep() -> Memory:
    """Forget nothing: W = λI + Σ xxᵀ."""
    return Memory("keep")


def discount(gamma: float, single: bool = False) -> Memory:
    """Let each observation fade by γ whenever a new one is learned.

    W ← γW + xxᵀ + (1−γ)λI,  W̃ ← γ²W̃ + xxᵀ + (1−γ²)λI,  b ← γb + xy

    The doubt is V⁻¹ = W⁻¹W̃W⁻¹; with `single`, it is W⁻¹, as in LB-WeightUCB, and W̃ is not kept.
    """
    gamma = validation.inside("discount", "gamma", gamma)
    return Memory(
        "discount", gamma=gamma, single=validation.of_kind("discount", "single", single, bool)
    )


def window(rounds: int) -> Memory:
    """Keep the last `rounds` observations and nothing before them."""
    return Memory("window", rounds=validation.whole("window", "rounds", rounds))


def half_life(span: float) -> Memory:
    """Let each observation count half after a span of rounds, or of time where it is told.

    Its age is that of the choice, however late its reward comes: with w = 2^{−age/span},
    W = λI + Σ w·xxᵀ,  W̃ = λI + Σ w²·xxᵀ,  b = Σ w·xy. Ages count from the newest one learned.
    """
    return Memory("half_life", span=validation.positive("half_life", "span", span))


def restart(every: int) -> Memory:
    """Keep everything, and drop it all before rounds H, 2H, 3H, … (counted from 0)."""
    return Memory("restart", every=validation.whole("restart", "every", every))


def restart_at(rounds: Iterable[int]) -> Memory:
    """Keep everything, and drop it all before each given round, counted from 0."""
    known = sorted({validation.whole("restart_at", "a round", r, least=0) for r in rounds})
    return Memory("restart_at", at=tuple(known))


def kalman(rho: float, noise: float = 1.0) -> Memory:
    """Believe that θ wanders, θ ← ρθ + N(0, (1−ρ²)I/λ), and follow it by a Kalman filter.

    Σ ← ρ²Σ + (1−ρ²)I/λ,  μ ← ρμ;  then, with p = Σx and c = σ² + xᵀp:
    μ ← μ + p(y − xᵀμ)/c,  Σ ← Σ − ppᵀ/c;  θ̂ = μ and V⁻¹ = Σ.
    """
    return Memory(
        "kalman",
        rho=validation.inside("kalman", "rho", rho),
        noise=validation.positive("kalman", "noise", noise),
    )


def detect(
    noise: float = 1.0, theta_norm: float = 1.0, slack: float = 1.4, alarm: float = 25.0
) -> Memory:
    """Keep everything until rewards stop being what was predicted, then drop it all.

    r² = (y − xᵀθ̂)² / (σ² + (σ² + λS²)‖x‖²_{W⁻¹}),  C ← max(0, C + min(r², 9) − slack);
    where C > alarm, all is dropped, and what raised the alarm is the first to be learned anew.
    """
    return Memory(
        "detect",
        noise=validation.positive("detect", "noise", noise),
        theta_norm=validation.not_negative("detect", "theta_norm", theta_norm),
        slack=validation.positive("detect", "slack", slack),
        alarm=validation.positive("detect", "alarm", alarm),
    )
