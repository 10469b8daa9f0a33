"""What the tests of the diagonal belief share: memories, explorations, arms, rewards and a game."""

from typing import Any

import numpy as np
import pytest

import windvane as wv
from grid import DIAGONAL_PAIRS, EXPLORATIONS, MEMORIES, play_with_late_rewards
from windvane.beliefs.diagonal.belief import DiagonalBelief

DIM = 12
SPARSE_MEMORIES = [m for m in MEMORIES if m.kind.diagonal]
SPARSE_EXPLORATIONS = [e for e in EXPLORATIONS if e.kind.needs != "history"]
every_memory = pytest.mark.parametrize("memory", SPARSE_MEMORIES, ids=repr)
every_exploration = pytest.mark.parametrize("exploration", SPARSE_EXPLORATIONS, ids=repr)
row_and_column = pytest.mark.parametrize(("memory", "exploration"), DIAGONAL_PAIRS, ids=repr)
RANDOM = np.random.default_rng(71)
DENSE = RANDOM.standard_normal((150, 5, DIM)) * (RANDOM.random((150, 5, DIM)) < 0.3)
REWARDS = np.random.default_rng(72).random(150)


def make_diagonal(
    dim: int, memory: wv.Memory | str, exploration: wv.Exploration | str, **settings: Any
) -> wv.Policy:
    """A policy with a diagonal belief."""
    return wv.Policy(dim, memory, exploration, belief="diagonal", **settings)


def read(policy: wv.Policy) -> DiagonalBelief:
    """The belief of a policy."""
    belief = policy.belief
    assert isinstance(belief, DiagonalBelief)
    return belief


def make_busy(memory: wv.Memory, exploration: wv.Exploration) -> wv.Policy:
    """A policy that has learned in 14 rounds."""
    policy = make_diagonal(DIM, memory, exploration, ridge=0.7, seed=7, floor=0.05)
    play_with_late_rewards(policy, DENSE, REWARDS, 0, 14)
    return policy
