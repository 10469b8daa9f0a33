"""How a memory is found among candidates: EXP3 over critical windows, or by prediction.

The formulas of `adaptive`; the lab compiles them too, so that both find the same.
"""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from windvane import validation
from windvane.errors import SettingError
from windvane.memory import Memory, keep, memory_of_size
from windvane.types import Floats

OVER = 0x9E3779B9  # turns a key into that of the draws among memories
HANDICAP = 0.5  # nats by which a memory must predict better than the next longer one


def block_length(dim: int, horizon: int) -> int:
    """H = ⌊d^{1/4}·√T⌋, the rounds of a block."""
    return max(1, math.floor(math.sqrt(math.sqrt(dim) * horizon)))


def critical_windows(dim: int, horizon: int) -> list[int]:
    """J = {⌊H^{k/Δ}⌋ : k = 0, …, Δ} with Δ = ⌊ln H⌋."""
    H = block_length(dim, horizon)
    steps = max(1, math.floor(math.log(H)))
    return sorted({math.floor(H ** (k / steps) * (1 + 1e-12)) for k in range(steps + 1)})


def exp3_rate(count: int, blocks: int) -> float:
    """min{1, √(N·ln N/((e−1)·blocks))}."""
    return min(1.0, math.sqrt(count * math.log(count) / ((math.e - 1.0) * blocks)))


def feedback_scale(block: int, horizon: int, noise: float) -> float:
    """Q = 2H + 4σ√(H·ln(T/√H)), so that ½ + ΣY/Q lies in [0, 1] but for rare noise."""
    return 2.0 * block + 4.0 * noise * math.sqrt(block * math.log(horizon / math.sqrt(block)))


@dataclass(frozen=True)
class Adaptation:
    """How the memory that acts is found among candidates."""

    kind: Literal["bandits", "warm", "predictive"]
    memories: tuple[Memory, ...]
    span: int = 1  # rounds for which it acts
    rate: float = 0.0  # of EXP3
    largest: float = 1.0  # Q, by which a block's reward is divided
    fade: float = 1.0  # of a predictive loss

    def __post_init__(self) -> None:
        who = "Adaptation"
        if self.kind not in ("bandits", "warm", "predictive") or not self.memories:
            raise SettingError(f"{who}: kind must be bandits, warm or predictive, with memories")
        validation.whole(who, "span", self.span)
        validation.share(who, "rate", self.rate)
        validation.positive(who, "largest", self.largest)
        validation.share(who, "fade", self.fade)


def bandits(
    dim: int, horizon: int, family: str, noise: float = 1.0, warm: bool = False
) -> Adaptation:
    """EXP3 over the critical windows of the paper; warm, over memories from d to T observations."""
    who = "BanditsOverBandits"
    d, T = validation.whole(who, "dim", dim), validation.whole(who, "horizon", horizon, least=8)
    H, noise = block_length(d, T), validation.not_negative(who, "noise", noise)
    if validation.of_kind(who, "warm", warm, bool):
        steps = math.floor(math.log(T))
        lengths = sorted({max(2, d, math.floor(T ** (k / steps))) for k in range(1, steps + 1)})
        memories = tuple(memory_of_size(who, family, D, 1.0 - 1.0 / D) for D in lengths)
    else:
        memories = tuple(
            memory_of_size(who, family, D, T ** (-1.0 / D)) for D in critical_windows(d, T)
        )
    return Adaptation(
        "warm" if warm else "bandits",
        memories,
        span=H,
        rate=exp3_rate(len(memories), math.ceil(T / H)),
        largest=feedback_scale(H, T, noise),
    )


def predictive(
    family: str, shortest: int = 20, longest: int = 5120, fading: float = 0.995
) -> Adaptation:
    """Memories of `shortest`, twice that, … up to `longest` observations, and one for all time."""
    who = "PredictiveMemory"
    least = validation.whole(who, "shortest", shortest, least=2)
    most = validation.whole(who, "longest", longest, least=least)
    lengths = [least << k for k in range((most // least).bit_length())]
    memories = (*(memory_of_size(who, family, D, 1.0 - 1.0 / D) for D in lengths), keep())
    return Adaptation("predictive", memories, fade=validation.inside(who, "fading", fading))


def exp3_chances(scores: Floats, rate: float) -> Floats:
    """p = (1−α)·s/Σs + α/N for weights s = e^scores."""
    weights = np.exp(scores - scores.max())
    chances: Floats = (1.0 - rate) * weights / weights.sum() + rate / scores.size
    return chances


def predictive_chances(losses: Floats, held: float) -> Floats:
    """w ∝ e^{−L/2σ̂² − rank/2}: L the faded squared errors, σ̂² the least by what is held."""
    least = losses.min()
    weights = np.empty(losses.size)
    for j in range(losses.size):
        extra = 0.0
        if losses[j] > least:
            extra = 0.5 * held * (losses[j] - least) / least if least > 0.0 else np.inf
        weights[j] = math.exp(-extra - HANDICAP * (losses.size - 1 - j))
    chances: Floats = weights / weights.sum()
    return chances


def draw_from(chances: Floats, chance: float) -> int:
    """The place at which the chances, added up, pass `chance`."""
    for j in range(chances.size - 1):
        chance -= chances[j]
        if chance < 0.0:
            return j
    return chances.size - 1


def credit(total: float, largest: float) -> float:
    """What EXP3 is told of a block: ½ + ΣY/Q, cut to [0, 1]."""
    return min(1.0, max(0.0, 0.5 + total / largest))


def block_chance(key: int, block: int) -> float:
    """Uniform on (0, 1), one for each block."""
    from windvane import _random  # here, because compiled code takes a while to load

    return _random.uniform(np.uint64(_random.opening(np.uint64(key ^ OVER), block)), 0)


def block_key(key: int, block: int) -> int:
    """The key of the policy that starts anew with a block."""
    from windvane import _random

    return int(_random.word(np.uint64(_random.opening(np.uint64(key ^ OVER), block)), 1)) >> 1
