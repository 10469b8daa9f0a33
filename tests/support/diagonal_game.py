"""What the tests of DiagonalPolicy share: memories, explorations, arms, rewards and a game."""

import numpy as np
import pytest

import windvane as wv
from grid import EXPLORATIONS, MEMORIES, play_with_late_rewards

DIM = 12
SPARSE_MEMORIES = [m for m in MEMORIES if m.kind.diagonal]
SPARSE_EXPLORATIONS = [e for e in EXPLORATIONS if e.kind.needs != "history"]
every_memory = pytest.mark.parametrize("memory", SPARSE_MEMORIES, ids=repr)
every_exploration = pytest.mark.parametrize("exploration", SPARSE_EXPLORATIONS, ids=repr)
RANDOM = np.random.default_rng(71)
DENSE = RANDOM.standard_normal((150, 5, DIM)) * (RANDOM.random((150, 5, DIM)) < 0.3)
REWARDS = np.random.default_rng(72).random(150)


def make_busy(memory: wv.Memory, exploration: wv.Exploration) -> wv.DiagonalPolicy:
    """A policy that has learned in 14 rounds."""
    policy = wv.DiagonalPolicy(DIM, memory, exploration, ridge=0.7, seed=7, floor=0.05)
    play(policy, 0, 14)
    return policy


def play(policy: wv.DiagonalPolicy, start: int, stop: int) -> list[tuple[int, bytes, bytes]]:
    """Rounds in which every third reward comes late, and what could be seen in each of them."""
    return play_with_late_rewards(policy, DENSE, REWARDS, start, stop)
