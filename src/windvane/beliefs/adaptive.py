"""Adaptive policies, which find their memory while they run, for an unknown speed of drift.

An adaptive policy consists of several base policies, one for each candidate memory. In each round
one of them acts: its choice is the choice of the adaptive policy.

- Bandits over bandits: EXP3 draws the base policy that acts for a block of rounds. The reward of
  EXP3 is the sum of the rewards in the block. As in the paper, the base policy has learned nothing
  when a block starts. If `warm`, all base policies learn from every observation.
- Predictive memory: every observation shows how well each base policy predicts the reward. The base
  policy that predicted best in the recent past acts; among equals, the one with the longest memory.

The lab compiles the formulas of selection, so that a simulation selects exactly as a policy does.
"""

import math
from dataclasses import asdict, dataclass
from typing import ClassVar, Literal, NamedTuple, Self, cast

import numpy as np
import numpy.typing as npt

from windvane import persistence, validation
from windvane.beliefs.chooser import Choice, Chooser
from windvane.beliefs.full.policy_belief import FullPolicyBelief
from windvane.errors import SettingError
from windvane.exploration import Exploration, as_exploration, read_exploration
from windvane.memory import Memory, keep, memory_of_size, read_memory
from windvane.persistence import locked
from windvane.policy import Policy
from windvane.sets.base import ActionSet
from windvane.types import Floats

SELECTION_KEY = 0x9E3779B9  # key ^ SELECTION_KEY is the key of the draws among memories
LEAST_CHANCE = 1e-50  # of the memory that acts, in a saved file
HANDICAP_NATS = 0.5  # how much better than the next longer memory a memory must predict


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


def draw_block(key: int, block: int) -> tuple[float, int]:
    """Return a random number of a block, uniform on (0, 1), and the key of a new policy in it."""
    from windvane import _random  # imported late, because compiled code is slow to load

    start = np.uint64(_random.start_round(np.uint64(key ^ SELECTION_KEY), block))
    return _random.uniform(start, 0), int(_random.draw_word(start, 1)) >> 1


class Turn(NamedTuple):
    """The base policy that acts in a round, and the scores of EXP3 in that round."""

    acting: int  # index of the base policy
    base: Policy
    scores: Floats  # (N,)
    chance: float  # the probability with which EXP3 drew it
    block: int


class Adaptive(Chooser):
    """The base class of the policies that find their memory while they run.

    >>> import windvane as wv
    >>> policy = wv.PredictiveMemory(dim=2, exploration=wv.thompson(0.4), longest=80)
    >>> isinstance(policy, Adaptive)
    True
    >>> policy.candidates
    (discount(0.95), discount(0.975), discount(0.9875), keep())
    """

    FILE_KIND = "Adaptive"
    KINDS: ClassVar[tuple[str, ...]] = ("bandits", "warm", "predictive")

    def __init__(
        self,
        dim: int,
        adaptation: Adaptation,
        exploration: Exploration | str,
        ridge: float = 1.0,
        seed: int | np.random.SeedSequence | None = None,
        floor: float = 0.0,
    ) -> None:
        super().__init__(dim, seed)
        self.adaptation = adaptation
        self.exploration = as_exploration(type(self).__name__, exploration)
        self.ridge = ridge
        self.floor = floor
        self._bases = [self._make_base(memory) for memory in adaptation.memories]
        self._scores = np.zeros(len(self._bases))  # logarithms for EXP3, or faded squared errors
        self._error_count = 0.0  # the faded number of errors in each of the scores
        self._acting = len(self._bases) - 1
        self._chance = 1.0  # the probability with which EXP3 drew the acting base policy
        self._block = -1  # the current block; -1 before the first
        self._block_reward = 0.0  # the rewards of the current block, summed

    @classmethod
    def from_adaptation(
        cls,
        dim: int,
        adaptation: Adaptation,
        exploration: Exploration | str,
        ridge: float = 1.0,
        seed: int | np.random.SeedSequence | None = None,
        floor: float = 0.0,
    ) -> Self:
        """Make a policy from an adaptation; `Adaptive` itself makes one of the fitting class.

        >>> import windvane as wv
        >>> memories = (wv.window(20), wv.window(200))
        >>> how = Adaptation("predictive", memories, fade=0.99)
        >>> Adaptive.from_adaptation(3, how, wv.greedy()).memory
        window(200)
        """
        if adaptation.kind not in cls.KINDS:
            kinds = " or ".join(cls.KINDS)
            raise SettingError(
                f"{cls.__name__}: the kind of adaptation must be {kinds}, got {adaptation.kind!r}"
            )
        fitting = PredictiveMemory if adaptation.kind == "predictive" else BanditsOverBandits
        kind: type[Adaptive] = fitting if cls is Adaptive else cls
        policy = kind.__new__(kind)
        Adaptive.__init__(policy, dim, adaptation, exploration, ridge, seed, floor)
        return cast(Self, policy)

    def __repr__(self) -> str:
        maker = "Adaptive" if type(self) is Adaptive else f"{type(self).__name__}.from_adaptation"
        floor = f", floor={self.floor!r}" if self.floor else ""
        return (
            f"{maker}(dim={self.dim}, adaptation={self.adaptation!r}, "
            f"exploration={self.exploration!r}, ridge={self.ridge!r}{floor})"
        )

    @property
    def candidates(self) -> tuple[Memory, ...]:
        """The candidate memories, the shortest first."""
        return self.adaptation.memories

    @property
    @locked
    def chances(self) -> Floats:
        """The weight of each candidate; the weights sum to 1."""
        if self.adaptation.kind == "predictive":
            return predictive_chances(self._scores, self._error_count)
        return exp3_chances(self._scores, self.adaptation.rate)

    @property
    def memory(self) -> Memory:
        """The candidate with the largest weight."""
        return self.candidates[int(self.chances.argmax())]

    @property
    @locked
    def theta(self) -> Floats:
        """The estimate θ̂ of the base policy with the largest weight, (d,)."""
        return self._bases[int(self.chances.argmax())].theta

    @property
    @locked
    def estimated_noise(self) -> float:
        """The estimate σ̂ of the noise by the base policy with the largest weight.

        As in `Policy`, the exploration must have a scale such as posterior(0.5).
        """
        return self._bases[int(self.chances.argmax())].estimated_noise

    @locked
    def choose(self, arms: npt.ArrayLike | ActionSet) -> Choice:
        """Choose one of the arms, rows of features (K, d), or the best action of an action set."""
        turn = self._plan_turn()
        index, action = -1, None
        if isinstance(arms, ActionSet):
            features, action = turn.base.find_best(arms)
        else:
            rows = self._read_arms(arms)
            index = turn.base.pick_arm(rows, arms)
            features = rows[index].copy()
        self._commit_turn(turn)
        return self._record_choice(index, features, action)

    @locked
    def propensities(
        self, arms: npt.ArrayLike, samples: int = 200, chosen: int | None = None
    ) -> Floats:
        """Return the probability with which `choose` would choose each arm now, (K,).

        The probabilities of the base policies are exact or sampled as in `Policy.propensities`.
        """
        if not self._block_is_due():
            return self._plan_turn().base.propensities(arms, samples, chosen)
        bases = self._bases
        if not self._is_warm:
            bases = [self._make_base(memory) for memory in self.candidates]
        by_base = np.array([base.propensities(arms, samples, chosen) for base in bases])  # (N, K)
        chances = exp3_chances(self._compute_scores(), self.adaptation.rate)
        mixture: Floats = chances @ by_base
        return mixture

    def export_settings(self) -> persistence.Header:
        memories = [repr(memory) for memory in self.candidates]
        return {
            "dim": self.dim,
            "adaptation": {**asdict(self.adaptation), "memories": memories},
            "exploration": repr(self.exploration),
            "ridge": self.ridge,
            "floor": self.floor,
        }

    @classmethod
    def from_settings(cls, header: persistence.Header, arrays: persistence.Arrays) -> Self:
        fields = dict(header["adaptation"])
        if fields["kind"] not in cls.KINDS:
            raise ValueError(f"it holds {fields['kind']!r}, which is no {cls.__name__}")
        dim = validation.whole("load", "dim", header["dim"])
        for j in range(len(fields["memories"])):
            FullPolicyBelief.check_size(dim, {"block": arrays[f"{j}-block"]})
        fields["memories"] = tuple(read_memory(text) for text in fields["memories"])
        return cls.from_adaptation(
            dim,
            Adaptation(**fields),
            read_exploration(header["exploration"]),
            header["ridge"],
            floor=header["floor"],
        )

    def export_state(self) -> tuple[persistence.Header, persistence.Arrays]:
        states = [base.export_state() for base in self._bases]
        header = {
            "key": self.key,
            "round": self.round,
            "held": self._error_count,
            "acting": self._acting,
            "chance": self._chance,
            "block": self._block,
            "earned": self._block_reward,
            # the keys of the base policies follow from the key of this policy
            "bases": [{**base_header, "key": 0} for base_header, _ in states],
        }
        arrays = {
            f"{j}-{name}": array
            for j, (_, base_arrays) in enumerate(states)
            for name, array in base_arrays.items()
        }
        return header, {**arrays, "scores": self._scores, "open": self._list_open_rounds()}

    def restore_state(self, header: persistence.Header, arrays: persistence.Arrays) -> None:
        count = len(self._bases)
        scores = arrays["scores"]
        if scores.shape != (count,) or scores.dtype != np.float64 or len(header["bases"]) != count:
            raise ValueError(f"it needs {count} scores and policies")
        for j, base in enumerate(self._bases):
            base_arrays = {name: arrays[f"{j}-{name}"] for name in ("block", "past", "open")}
            base.restore_state(header["bases"][j], base_arrays)
        self._restore_rounds(header, arrays["open"])
        self._scores = np.array(scores)
        self._error_count = validation.not_negative("load", "held", header["held"])
        self._acting = validation.whole("load", "acting", header["acting"], least=0)
        self._chance = validation.positive("load", "chance", header["chance"])
        self._block = validation.whole("load", "block", header["block"], least=-1)
        self._block_reward = validation.real("load", "earned", header["earned"])
        is_rare = not LEAST_CHANCE <= self._chance <= 1.0
        if self._acting >= count or is_rare or not np.isfinite(self._scores).all():
            raise ValueError("its counters are out of bounds")

    def _comparable_state(self) -> tuple[persistence.Header, persistence.Arrays]:
        header, arrays = self.export_state()
        for j, base in enumerate(self._bases):
            arrays[f"{j}-past"] = base._comparable_state()[1]["past"]
        return header, arrays

    @property
    def _is_warm(self) -> bool:
        """True if the base policies learn from every observation and outlive a block."""
        return self.adaptation.kind != "bandits"

    def _make_base(self, memory: Memory) -> Policy:
        return Policy(self.dim, memory, self.exploration, self.ridge, 0, self.floor)

    @property
    def _block_start(self) -> int:
        """The first round of the current block."""
        return self._block * self.adaptation.span

    def _block_is_due(self) -> bool:
        predicts = self.adaptation.kind == "predictive"
        return not predicts and self.round // self.adaptation.span != self._block

    def _compute_scores(self) -> Floats:
        """Return the scores of EXP3 with the reward of the current block added."""
        scores = self._scores.copy()
        if self._block >= 0:
            gain = scale_block_reward(self._block_reward, self.adaptation.largest) / self._chance
            scores[self._acting] += self.adaptation.rate / len(self._bases) * gain
        return scores

    def _plan_turn(self) -> Turn:
        """Find the base policy that acts in this round, and change nothing yet."""
        acting, scores, chance, block = self._acting, self._scores, self._chance, self._block
        is_due = self._block_is_due()
        if self.adaptation.kind == "predictive":
            acting = int(self.chances.argmax())
        elif is_due:
            block = self.round // self.adaptation.span
            scores = self._compute_scores()
            chances = exp3_chances(scores, self.adaptation.rate)
            acting = draw_index(chances, draw_block(self.key, block)[0])
            chance = float(chances[acting])
        base = self._bases[acting]
        if is_due and not self._is_warm:
            base = self._make_base(self.candidates[acting])
        base.key = self.key if self._is_warm else draw_block(self.key, block)[1]
        return Turn(acting, base, scores, chance, block)

    def _commit_turn(self, turn: Turn) -> None:
        """Store a turn and start the next round of every base policy."""
        if turn.block != self._block:
            self._block_reward = 0.0
        self._acting, base, self._scores, self._chance, self._block = turn
        self._bases[self._acting] = base
        base.round += 1
        if self._is_warm:
            for other in self._bases:
                if other is not base:
                    other.skip_round()

    def learn_row(self, features: Floats, reward: float, round_: int, at: float) -> None:
        for base in self._bases:
            base.check_learnable(features[None])
        if self.adaptation.kind == "predictive":
            errors = [reward - float(features @ base.theta) for base in self._bases]
            self._scores = self.adaptation.fade * self._scores + np.square(errors)
            self._error_count = self.adaptation.fade * self._error_count + 1.0
        elif self._block_start <= round_ < self.round:
            self._block_reward += reward
        if self._is_warm:
            for base in self._bases:
                base.learn_row(features, reward, round_, at)
        elif round_ >= self._block_start:
            self._bases[self._acting].learn_row(features, reward, round_ - self._block_start, at)

    def learn_rows(self, rows: Floats, rewards: Floats, rounds: list[int], at: Floats) -> None:
        for base in self._bases:
            base.check_learnable(rows)
        times = at.tolist()
        for features, reward, round_, time in zip(rows, rewards, rounds, times, strict=True):
            self.learn_row(features, float(reward), round_, time)


class BanditsOverBandits(Adaptive):
    """EXP3 over candidate memories, for an unknown drift, as in the appendix of the paper.

    A block has H = ⌊d^{1/4}√T⌋ rounds. In each block EXP3 draws a critical window D from
    J = {⌊H^{k/Δ}⌋ : k = 0, …, Δ}, Δ = ⌊ln H⌋. A new policy acts in the block, with a discount
    γ = T^{−1/D}, a window of D, or a restart every D rounds. If `warm`, the policies keep what they
    learned across blocks, and γ = 1 − 1/D.

    >>> import windvane as wv
    >>> bob = wv.BanditsOverBandits(dim=10, horizon=10_000, exploration=wv.thompson(0.4), seed=1)
    >>> [round(memory.gamma, 4) for memory in bob.candidates]
    [0.0001, 0.01, 0.2683, 0.6579, 0.862, 0.9493]
    """

    KINDS = ("bandits", "warm")

    def __init__(
        self,
        dim: int,
        horizon: int,
        exploration: Exploration | str,
        family: str = "discount",
        *,
        warm: bool = False,
        noise: float = 1.0,
        ridge: float = 1.0,
        seed: int | np.random.SeedSequence | None = None,
        floor: float = 0.0,
    ) -> None:
        adaptation = bandits(dim, horizon, family, noise, warm)
        super().__init__(dim, adaptation, exploration, ridge, seed, floor)


class PredictiveMemory(Adaptive):
    """Acts with the memory that predicted rewards best in the recent past.

    Memories of 20, 40, … 5120 observations and one that keeps everything all learn from every
    observation. The weight of a memory is w ∝ e^{−L/2σ̂²−rank/2}, with L ← fading·L + (y − xᵀθ̂)².
    The longest memory has rank 0. The memory with the largest weight acts.

    >>> import windvane as wv
    >>> policy = wv.PredictiveMemory(dim=3, exploration=wv.thompson(0.4), seed=1)
    >>> policy.memory                                  # before anything is learned
    keep()
    """

    KINDS = ("predictive",)

    def __init__(
        self,
        dim: int,
        exploration: Exploration | str,
        family: str = "discount",
        *,
        shortest: int = 20,
        longest: int = 5120,
        fading: float = 0.995,
        ridge: float = 1.0,
        seed: int | np.random.SeedSequence | None = None,
        floor: float = 0.0,
    ) -> None:
        adaptation = predictive(family, shortest, longest, fading)
        super().__init__(dim, adaptation, exploration, ridge, seed, floor)
