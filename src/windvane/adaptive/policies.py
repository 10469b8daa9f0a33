"""Memories chosen as one goes, where nobody knows how fast the world moves.

Several policies that differ only in their memory stand ready, and one of them acts.

- Bandits over bandits: EXP3 draws the one that acts for a block of rounds, and is paid what the
  block earned. As in the paper, each block starts it from nothing; or, warm, all of them learn from
  every observation and only take turns in acting.
- Predictive memory: every memory can be judged on every observation by how well it predicted the
  reward, whoever chose. The one that has predicted best of late acts, a longer one if in doubt.
"""

from dataclasses import asdict
from os import PathLike
from typing import ClassVar, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from windvane import policy_file, text_form, validation
from windvane.action_sets.continuous import ActionSet
from windvane.adaptive.selection import (
    Adaptation,
    bandits,
    block_chance,
    block_key,
    credit,
    draw_from,
    exp3_chances,
    predictive,
    predictive_chances,
)
from windvane.chooser import Choice, Chooser
from windvane.errors import FileError
from windvane.exploration import Exploration
from windvane.memory import Memory
from windvane.policy import Policy
from windvane.types import Floats


class Turn(NamedTuple):
    """Who acts, and what EXP3 knows then."""

    acting: int
    base: Policy
    scores: Floats
    chance: float
    block: int


class Adaptive(Chooser):
    """Several policies that differ in their memory, and a way to find the one that should act."""

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
        self.exploration = text_form.as_exploration(type(self).__name__, exploration)
        self.ridge, self.floor = ridge, floor
        self._bases = [self._base(memory) for memory in adaptation.memories]
        self._scores = np.zeros(len(self._bases))  # of EXP3 in log, or faded squared errors
        self._held = 0.0  # how many errors are in each of them
        self._acting, self._chance = len(self._bases) - 1, 1.0
        self._block, self._earned = -1, 0.0  # which block is open, and its reward

    def __repr__(self) -> str:
        kinds = sorted({memory.name for memory in self.candidates})
        return (
            f"{type(self).__name__}(dim={self.dim}, exploration={self.exploration!r}, "
            f"{len(self.candidates)} memories of {' and '.join(kinds)})"
        )

    @property
    def candidates(self) -> tuple[Memory, ...]:
        """The memories among which it looks, the shortest first."""
        return self.adaptation.memories

    @property
    def chances(self) -> Floats:
        """How much it believes in each candidate; sums to 1."""
        if self.adaptation.kind == "predictive":
            return predictive_chances(self._scores, self._held)
        return exp3_chances(self._scores, self.adaptation.rate)

    @property
    def memory(self) -> Memory:
        """The memory that it believes in most."""
        return self.candidates[int(self.chances.argmax())]

    @property
    def theta(self) -> Floats:
        """The estimate of the policy whose memory it believes in most, (d,)."""
        return self._bases[int(self.chances.argmax())].theta

    def choose(self, arms: npt.ArrayLike | ActionSet) -> Choice:
        """Pick one of the arms, given as rows of features (K, d), or the best of an action set."""
        turn = self._turn()
        if isinstance(arms, ActionSet):
            best = turn.base.find_best(arms)
            self._take(turn)
            return self._record_choice(-1, best.features, best.action)
        rows = self._read_arms(arms)
        index = turn.base.pick_arm(rows, arms)
        self._take(turn)
        return self._record_choice(index, rows[index].copy())

    def propensities(
        self, arms: npt.ArrayLike, samples: int = 200, chosen: int | None = None
    ) -> Floats:
        """The probability with which `choose` would play each arm now, (K,), as Policy has it."""
        if not self._block_is_due():
            return self._turn().base.propensities(arms, samples, chosen)
        bases = self._bases if self._warm else [self._base(memory) for memory in self.candidates]
        shares = [base.propensities(arms, samples, chosen) for base in bases]
        chances = exp3_chances(self._credited(), self.adaptation.rate)
        mixed: Floats = chances @ np.array(shares)
        return mixed

    def save(self, path: str | PathLike[str]) -> None:
        """Write everything to one file of arrays and JSON."""
        inner = [base.export_state() for base in self._bases]
        header = {
            "dim": self.dim,
            "adaptation": {
                **asdict(self.adaptation),
                "memories": [repr(memory) for memory in self.candidates],
            },
            "exploration": repr(self.exploration),
            "ridge": self.ridge,
            "floor": self.floor,
            "key": self.key,
            "round": self.round,
            "held": self._held,
            "acting": self._acting,
            "chance": self._chance,
            "block": self._block,
            "earned": self._earned,
            "bases": [{**contents[0], "key": 0} for contents in inner],  # theirs follow from ours
        }
        arrays = {f"{j}-{name}": a for j, (_, own) in enumerate(inner) for name, a in own.items()}
        arrays |= {"scores": self._scores, "open": self._open_rounds()}
        policy_file.write(path, header, arrays, "Adaptive")

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Self:
        """Go on from a saved file, bit for bit as if never stopped."""
        header, arrays = policy_file.read(path, "Adaptive")
        try:
            given = dict(header["adaptation"])
            if given["kind"] not in cls.KINDS:
                raise ValueError(f"it holds {given['kind']!r}, which is no {cls.__name__}")
            given["memories"] = tuple(text_form.read_memory(text) for text in given["memories"])
            made = cls.__new__(cls)
            Adaptive.__init__(
                made,
                header["dim"],
                Adaptation(**given),
                text_form.read_exploration(header["exploration"]),
                header["ridge"],
                floor=header["floor"],
            )
            made.restore_state(header, arrays)
        except (KeyError, TypeError, ValueError, MemoryError, OverflowError) as reason:
            raise FileError(f"load: {path} holds nothing that fits together: {reason}") from None
        return made

    def restore_state(self, header: policy_file.Header, arrays: policy_file.Arrays) -> None:
        """Take over a saved state, once it is seen to fit these settings."""
        count, scores = len(self._bases), arrays["scores"]
        if scores.shape != (count,) or scores.dtype != np.float64 or len(header["bases"]) != count:
            raise ValueError(f"it needs {count} scores and policies")
        for j, base in enumerate(self._bases):
            own = {name: arrays[f"{j}-{name}"] for name in ("block", "past", "open")}
            base.restore_state(header["bases"][j], own)
        self._restore_rounds(header, arrays["open"])
        self._scores = np.array(scores)
        self._held = validation.not_negative("load", "held", header["held"])
        self._acting = validation.whole("load", "acting", header["acting"], least=0)
        self._chance = validation.positive("load", "chance", header["chance"])
        self._block = validation.whole("load", "block", header["block"], least=-1)
        self._earned = validation.real("load", "earned", header["earned"])
        if self._acting >= count or not np.isfinite(self._scores).all():
            raise ValueError("its counters are out of bounds")

    @property
    def _warm(self) -> bool:
        return self.adaptation.kind != "bandits"

    def _base(self, memory: Memory) -> Policy:
        return Policy(self.dim, memory, self.exploration, self.ridge, 0, self.floor)

    @property
    def _began(self) -> int:
        """The first round of the block that is open."""
        return self._block * self.adaptation.span

    def _block_is_due(self) -> bool:
        predicts = self.adaptation.kind == "predictive"
        return not predicts and self.round // self.adaptation.span != self._block

    def _credited(self) -> Floats:
        """EXP3's scores once it knows what the last block earned."""
        scores = self._scores.copy()
        if self._block >= 0:
            gained = credit(self._earned, self.adaptation.largest) / self._chance
            scores[self._acting] += self.adaptation.rate / len(self._bases) * gained
        return scores

    def _turn(self) -> "Turn":
        """Who acts in this round; nothing has changed yet."""
        acting, scores, chance, block = self._acting, self._scores, self._chance, self._block
        base = self._bases[acting]
        if self.adaptation.kind == "predictive":
            acting = int(self.chances.argmax())
            base = self._bases[acting]
        elif self._block_is_due():
            block, scores = self.round // self.adaptation.span, self._credited()
            chances = exp3_chances(scores, self.adaptation.rate)
            acting = draw_from(chances, block_chance(self.key, block))
            base, chance = self._bases[acting], float(chances[acting])
            if not self._warm:
                base = self._base(self.candidates[acting])
        base.key = self.key if self._warm else block_key(self.key, block)
        return Turn(acting, base, scores, chance, block)

    def _take(self, turn: "Turn") -> None:
        """Let a turn count, and the round go by for every policy, whether it was asked or not."""
        if turn.block != self._block:
            self._earned = 0.0
        self._acting, base, self._scores, self._chance, self._block = turn
        self._bases[self._acting] = base
        base.round += 1
        for other in self._bases if self._warm else ():
            if other is not base:
                other.skip_round()

    def learn_row(self, features: Floats, reward: float, round_: int, at: float) -> None:
        for base in self._bases:
            base.check_learnable(features[None])
        if self.adaptation.kind == "predictive":
            misses = [reward - float(features @ base.theta) for base in self._bases]
            self._scores = self.adaptation.fade * self._scores + np.square(misses)
            self._held = self.adaptation.fade * self._held + 1.0
        elif self._began <= round_ < self.round:
            self._earned += reward
        if self._warm:
            for base in self._bases:
                base.learn_row(features, reward, round_, at)
        elif round_ >= self._began:
            self._bases[self._acting].learn_row(features, reward, round_ - self._began, at)

    def learn_rows(self, rows: Floats, rewards: Floats, rounds: list[int], at: Floats) -> None:
        for base in self._bases:
            base.check_learnable(rows)
        times = at.tolist()
        for features, reward, round_, time in zip(rows, rewards, rounds, times, strict=True):
            self.learn_row(features, float(reward), round_, time)


class BanditsOverBandits(Adaptive):
    """EXP3 over memories: for a drift that nobody knows, as the paper's appendix has it.

    H = ⌊d^{1/4}√T⌋ rounds a block; a critical window D from J = {⌊H^{k/Δ}⌋}, Δ = ⌊ln H⌋; with it a
    fresh policy of memory γ = T^{−1/D}, w = D or one that restarts every D rounds. With `warm`, the
    policies remember across blocks, and γ = 1 − 1/D.

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
    """Acts with the memory that has predicted rewards best of late, a longer one if in doubt.

    Memories of 20, 40, … 5120 observations and one for all time learn from everything. The weight
    of each is w ∝ e^{−L/2σ̂²−rank/2}, L ← fading·L + (y − xᵀθ̂)², and the heaviest acts.

    >>> import windvane as wv
    >>> policy = wv.PredictiveMemory(dim=3, exploration=wv.thompson(0.4), seed=1)
    >>> policy.memory                                  # before anything is seen
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


def adapted(
    dim: int,
    adaptation: Adaptation,
    exploration: Exploration,
    ridge: float = 1.0,
    seed: int | np.random.SeedSequence | None = None,
    floor: float = 0.0,
) -> Adaptive:
    """The policy that finds its memory in the given way."""
    kind = PredictiveMemory if adaptation.kind == "predictive" else BanditsOverBandits
    made = kind.__new__(kind)
    Adaptive.__init__(made, dim, adaptation, exploration, ridge, seed, floor)
    return made
