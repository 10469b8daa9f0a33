"""MASTER (Wei and Luo, 2021): LinUCB on many scales of time, and a new start if a test fails.

Blocks of 1, 2, 4, … 2ⁿ rounds follow each other. Before round τ of a block, a new LinUCB of 2^m
rounds starts with probability ρ(2ⁿ)/ρ(2^m), for every m ≤ n of which 2^m divides τ. The one with
the fewest rounds acts and learns; the others wait. With its optimistic value g of the chosen arm
and the reward y, the first block follows again after a round t of the block

1. with which a LinUCB of 2^m rounds ends, if the mean of y in these rounds is min g + 9ρ̂(2^m) or
   more, where the minimum is over all rounds of the block so far;
2. if the mean of g − y in the block so far is 3ρ̂(t) or more.

ρ(t) = 2β·√(2d·log(1 + TL²/(dλ))/t), with the radius β after T rounds, bounds the regret of LinUCB
in each of t rounds without drift, and ρ̂ = 6(log₂T + 1)·log(T/δ)·ρ. With these constants no test
fails at horizons that anybody plays (arXiv:2410.13772): MASTER then forgets by its blocks and
draws alone. It needs a base with a proven bound, and plays in Python.
"""

import math
from dataclasses import dataclass

import numpy as np

from windvane._numba.compilation import compiled
from windvane.beliefs.full.block import reset, view_belief
from windvane.beliefs.full.choosing import score_linearly
from windvane.beliefs.full.layout import PolicyArrays, build_rules
from windvane.beliefs.full.learning import learn_into_sums
from windvane.beliefs.full.widths import compute_widths
from windvane.exploration import optimism
from windvane.lab.engines.game import make_arrays
from windvane.laws import radius
from windvane.memory import keep
from windvane.types import Floats


@compiled
def score_optimistically(arrays: PolicyArrays, arms: Floats, level: float) -> Floats:
    """xᵀθ̂ + level·‖x‖_{W⁻¹} of every arm, (K,)."""
    state = view_belief(arrays)
    return score_linearly(arms, state.theta) + level * compute_widths(arrays, state, arms)


@dataclass
class Instance:
    """A LinUCB that lives for some rounds of a block."""

    arrays: PolicyArrays
    first: int
    end: int  # the first round after its last one
    earned: float  # the rewards of the block before its first round
    seen: int = 0  # observations learned


class Master:
    """Plays the instance with the fewest rounds, and starts again if one of two tests fails."""

    def __init__(
        self,
        dim: int,
        horizon: int,
        seed: int,
        noise: float = 1.0,
        delta: float = 0.01,
        theta_norm: float = 1.0,
        arm_norm: float = 1.0,
        ridge: float = 1.0,
    ) -> None:
        self._rules = build_rules(dim, keep(), optimism(1.0), ridge, 0.0)
        self._radius = (dim, ridge, delta, noise, theta_norm, arm_norm)
        spread = math.log1p(horizon * arm_norm**2 / (dim * ridge))
        self._first_rate = 2.0 * radius(horizon, *self._radius) * math.sqrt(2.0 * dim * spread)
        self.caution = 6.0 * (math.log2(horizon) + 1.0) * math.log(horizon / delta)
        self.random = np.random.default_rng(seed)
        self.restarts = 0  # after a test has failed
        self._open_block(0)

    def _open_block(self, order: int) -> None:
        self.order, self.played = order, 0
        self.instances: list[Instance] = []  # that live, the one with the fewest rounds last
        self.least, self.value = math.inf, math.inf  # of g: the minimum, and that of the round
        self.earned, self.excess = 0.0, 0.0  # sums of y and of g − y
        self._is_open = False  # whether the draws of this round were made

    def bound_rate(self, rounds: int) -> float:
        """Return ρ."""
        return self._first_rate / math.sqrt(rounds)

    def choose(self, arms: Floats, round: int) -> int:
        """Return the arm with the largest optimistic value."""
        if not self._is_open:
            self._start_instances()
        acting = self.instances[-1]
        level = radius(acting.seen, *self._radius)
        scores = score_optimistically(acting.arrays, arms, level)
        self.value = float(scores.max())
        return int(scores.argmax())

    def _start_instances(self) -> None:
        self._is_open = True
        for order in range(self.order, -1, -1):
            if self.played % (1 << order):
                continue
            chance = self.bound_rate(1 << self.order) / self.bound_rate(1 << order)
            if self.random.random() < chance:
                arrays = make_arrays(self._rules, keep(), optimism(1.0), 0)
                reset(arrays)
                end = self.played + (1 << order)
                self.instances.append(Instance(arrays, self.played, end, self.earned))

    def learn(self, features: Floats, reward: float) -> None:
        """Let the acting instance learn, make the two tests, and open the next block if due."""
        acting = self.instances[-1]
        learn_into_sums(acting.arrays, features, reward, 0.0)
        acting.seen += 1
        self.played += 1
        self._is_open = False
        self.least = min(self.least, self.value)
        self.earned += reward
        self.excess += self.value - reward
        limit = 3.0 * self.caution * self.bound_rate(self.played)
        has_failed = self.excess / self.played >= limit
        while self.instances and self.instances[-1].end == self.played:
            ended = self.instances.pop()
            length = ended.end - ended.first
            mean = (self.earned - ended.earned) / length
            limit = self.least + 9.0 * self.caution * self.bound_rate(length)
            has_failed = has_failed or mean >= limit
        if has_failed:
            self.restarts += 1
        if has_failed or self.played == 1 << self.order:
            self._open_block(0 if has_failed else self.order + 1)
