"""Every memory and every exploration of the registries, so that properties run over each pair."""

import math
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import naive
import windvane as wv
from windvane import persistence, validation
from windvane.beliefs.full.block import reset
from windvane.exploration import EXPLORATIONS as EXPLORATION_KINDS
from windvane.exploration import read_exploration
from windvane.memory import MEMORIES as MEMORY_KINDS
from windvane.memory import read_memory

Floats = npt.NDArray[np.float64]

MEMORIES = [read_memory(example) for kind in MEMORY_KINDS.values() for example in kind.examples]
MERGEABLE = [  # by the number of observations
    memory for memory in MEMORIES if memory.kind.mergeable and not memory.kind.is_timed
]
EXPLORATIONS = [
    read_exploration(example) for kind in EXPLORATION_KINDS.values() for example in kind.examples
]
SAMPLED = [part for part in EXPLORATIONS if part.kind.needs in ("sample", "history")]
LAWS = [part.law for part in EXPLORATIONS if part.name == "randomized" and part.law]

ARMS = np.random.default_rng(31).standard_normal((400, 6, 3))
REWARDS = np.random.default_rng(32).random(400)

every_memory = pytest.mark.parametrize("memory", MEMORIES, ids=repr)
every_mergeable = pytest.mark.parametrize("memory", MERGEABLE, ids=repr)
every_exploration = pytest.mark.parametrize("exploration", EXPLORATIONS, ids=repr)
every_law = pytest.mark.parametrize("law", LAWS, ids=repr)
PAIRS = [  # one row and one column of all pairs, for laws of bookkeeping, which no pair changes
    *((memory, wv.thompson(wv.posterior(0.6))) for memory in MEMORIES),
    *((wv.discount(0.9), exploration) for exploration in EXPLORATIONS),
]
DIAGONAL_PAIRS = [
    (memory, exploration)
    for memory, exploration in PAIRS
    if memory.kind.diagonal and exploration.kind.needs != "history"
]
row_and_column = pytest.mark.parametrize(("memory", "exploration"), PAIRS, ids=repr)
row_and_column_of_each_belief = pytest.mark.parametrize(
    ("belief", "memory", "exploration"),
    [*(("full", *pair) for pair in PAIRS), *(("diagonal", *pair) for pair in DIAGONAL_PAIRS)],
    ids=repr,
)


def unit_rows(random: np.random.Generator, count: int, dim: int) -> Floats:
    """Directions drawn uniformly, (count, dim)."""
    rows = random.standard_normal((count, dim))
    unit: Floats = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return unit


def check_estimate(
    policy: wv.Policy, expected: naive.Estimate, arms: Floats, within: float = 1e-9
) -> None:
    """Compare W, W̃, b, θ̂, V⁻¹ and widths with those of the formulas, relative to their sizes."""
    belief = policy.belief
    for got, wanted, least_size in (
        (belief.precision, expected.W, 0.0),
        (belief.noise, expected.W_noise, 0.0),
        (belief.moment, expected.b, 1.0),
        (policy.theta, expected.theta, 1.0),
        (belief.theta, expected.theta, 1.0),
        (belief.covariance, expected.V_inverse, 0.0),
        (policy.widths(arms), expected.widths(arms), 0.0),
    ):
        assert np.abs(got - wanted).max() <= within * (least_size + np.abs(wanted).max())


def make_inversions_rare(policy: wv.Policy) -> wv.Policy:
    """The same policy, but it inverts so rarely that its inverse is wrong by up to a fifth."""
    policy._belief.arrays.rules["refresh"] = min(64, int(0.4 / -math.log(policy.memory.gamma)))
    reset(policy._belief.arrays)
    return policy


def contents(policy: wv.Chooser, folder: Path) -> dict[str, bytes]:
    """Everything that a policy saves, by name."""
    path = folder / "contents.npz"
    policy.save(path)
    with zipfile.ZipFile(path) as file:
        parts = {name: file.read(name) for name in file.namelist()}
    path.unlink()
    return parts


def rewrite_saved(path: Path, change: Callable[[Any, Any], object], kind: str = "Policy") -> None:
    """Change the header and the arrays of a saved file; its checksum fits again."""
    header, arrays = persistence.read(path, kind)
    for name in ("format", "version"):
        header.pop(name)
    change(header, arrays)
    persistence.write(path, header, arrays, kind)


def busy_policy(
    memory: wv.Memory, exploration: wv.Exploration, belief: str = "full"
) -> tuple[wv.Policy, list[wv.Choice]]:
    """A policy that has learned in 14 rounds, and two choices without a reward."""
    policy = wv.Policy(3, memory, exploration, seed=7, belief=belief)
    for t in range(14):
        policy.learn(policy.choose(ARMS[t]), REWARDS[t])
    return policy, [policy.choose(ARMS[14]), policy.choose(ARMS[15])]


def play_with_late_rewards(
    policy: wv.Policy, arms: Floats, rewards: Floats, start: int, stop: int
) -> list[tuple[int, bytes, bytes]]:
    """Play rounds in which every third reward comes late; return what could be seen in each."""
    seen, late = [], []
    for t in range(start, stop):
        shares = policy.propensities(arms[t], samples=7).tobytes()
        choice = policy.choose(arms[t])
        if t % 3 == 0:
            late.append((choice, rewards[t]))
        else:
            policy.learn(choice, rewards[t])
        if t % 10 == 9:
            policy.learn_many([c for c, _ in late], [y for _, y in late])
            late = []
        seen.append((choice.index, policy.theta.tobytes(), shares))
    return seen


def read_any(text: str) -> object:
    """The memory, exploration, law, confidence or posterior that a text stands for."""
    return validation.read_part("text", text, object, list(validation.FACTORIES))
