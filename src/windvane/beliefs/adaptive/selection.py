"""How an adaptive policy selects among candidate memories: by EXP3, or by prediction errors.

The lab compiles these formulas, so that a simulation selects exactly as a policy does.
"""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from windvane import validation
from windvane.errors import SettingError
from windvane.memory import Memory, keep, memory_of_size
from windvane.types import Floats

SELECTION_KEY = 0x9E3779B9  # key ^ SELECTION_KEY is the key of the draws among memories
HANDICAP_NATS = 0.5  # by which a memory must predict better than the next longer one


def block_length(dim: int, horizon: int) -> int:
    """Return H = ⌊d^{1/4}·√T⌋, the rounds of a block."""
    return max(1, math.floor(math.sqrt(math.sqrt(dim) * horizon)))


def critical_windows(dim: int, horizon: int) -> list[int]:
    """Return J = {⌊H^{k/Δ}⌋ : k = 0, …, Δ} with Δ = ⌊ln H⌋."""
    H = block_length(dim, horizon)
    steps = max(1, math.floor(math.log(H)))
    return sorted({math.floor(H ** (k / steps) * (1 + 1e-12)) for k in range(steps + 1)})


def exp3_rate(count: int, blocks: int) -> float:
    """Return the rate of EXP3, min{1, √(N·ln N/((e−1)·blocks))}."""
    return min(1.0, math.sqrt(count * math.log(count) / ((math.e - 1.0) * blocks)))


def feedback_scale(block: int, horizon: int, noise: float) -> float:
    """Return Q = 2H + 4σ√(H·ln(T/√H)): ½ + ΣY/Q lies in [0, 1] unless the noise is rare."""
    return 2.0 * block + 4.0 * noise * math.sqrt(block * math.log(horizon / math.sqrt(block)))


@dataclass(frozen=True)
class Adaptation:
    """How an adaptive policy selects the memory that acts among candidates.

    `BanditsOverBandits` and `PredictiveMemory` compute an adaptation from the problem.

    >>> import windvane as wv
    >>> wv.PredictiveMemory(dim=2, exploration=wv.greedy(), longest=40).adaptation
    Adaptation(kind='predictive', memories=(discount(0.95), discount(0.975), keep()), span=1,
               rate=0.0, largest=1.0, fade=0.995)
    """

    kind: Literal["bandits", "warm", "predictive"]
    memories: tuple[Memory, ...]  # the shortest first
    span: int = 1  # rounds in a block
    rate: float = 0.0  # of EXP3
    largest: float = 1.0  # Q, by which the reward of a block is divided
    fade: float = 1.0  # the factor by which a squared prediction error fades in each observation

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
    """Return EXP3 over the critical windows; if warm, over memories of d to T observations."""
    who = "BanditsOverBandits"
    d = validation.whole(who, "dim", dim)
    T = validation.whole(who, "horizon", horizon, least=8)
    H = block_length(d, T)
    noise = validation.not_negative(who, "noise", noise)
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
    """Return memories of `shortest`, 2·`shortest`, … `longest` observations, and one of all."""
    who = "PredictiveMemory"
    least = validation.whole(who, "shortest", shortest, least=2)
    most = validation.whole(who, "longest", longest, least=least)
    lengths = [least << k for k in range((most // least).bit_length())]
    memories = (*(memory_of_size(who, family, D, 1.0 - 1.0 / D) for D in lengths), keep())
    return Adaptation("predictive", memories, fade=validation.inside(who, "fading", fading))


def exp3_chances(scores: Floats, rate: float) -> Floats:
    """Return p = (1−α)·s/Σs + α/N for weights s = e^scores and the rate α, (N,)."""
    weights = np.exp(scores - scores.max())
    chances: Floats = (1.0 - rate) * weights / weights.sum() + rate / scores.size
    return chances


def predictive_chances(losses: Floats, count: float) -> Floats:
    """Return w ∝ e^{−L/2σ̂² − rank/2}, (N,): L the faded squared errors, σ̂² the least L / count.

    The longest memory stands last and has rank 0.
    """
    least = losses.min()
    weights = np.empty(losses.size)
    for j in range(losses.size):
        extra = 0.0
        if losses[j] > least:
            extra = 0.5 * count * (losses[j] - least) / least if least > 0.0 else np.inf
        weights[j] = math.exp(-extra - HANDICAP_NATS * (losses.size - 1 - j))
    chances: Floats = weights / weights.sum()
    return chances


def draw_index(chances: Floats, uniform: float) -> int:
    """Return the index at which the cumulative sum of the chances passes a number in (0, 1)."""
    for j in range(chances.size - 1):
        uniform -= chances[j]
        if uniform < 0.0:
            return j
    return chances.size - 1


def scale_block_reward(total: float, largest: float) -> float:
    """Return the reward of EXP3 for a block, ½ + ΣY/Q, clipped to [0, 1]."""
    return min(1.0, max(0.0, 0.5 + total / largest))


def block_uniform(key: int, block: int) -> float:
    """Return the random number of a block, uniform on (0, 1)."""
    from windvane import _random  # imported late, because compiled code is slow to load

    return _random.uniform(np.uint64(_random.start_round(np.uint64(key ^ SELECTION_KEY), block)), 0)


def block_key(key: int, block: int) -> int:
    """Return the key of the new policy that acts in a block."""
    from windvane import _random

    start = np.uint64(_random.start_round(np.uint64(key ^ SELECTION_KEY), block))
    return int(_random.draw_word(start, 1)) >> 1
