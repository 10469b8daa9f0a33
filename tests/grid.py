"""Every memory and every exploration, so that each property runs over each pair."""

import math
import zipfile
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import settings

import windvane as wv
from windvane import kernels

Floats = npt.NDArray[np.float64]

RADIUS = wv.confidence(0.05, noise=0.3, theta_norm=0.8, arm_norm=2.0)

MEMORIES = [
    wv.keep(),
    wv.discount(0.9),
    wv.discount(0.999),
    wv.window(2),
    wv.window(30),
    wv.restart(25),
    wv.restart_at([0, 10, 45]),
    wv.discount(0.95, single=True),
    wv.half_life(20.0),
    wv.half_life(0.4),
    wv.kalman(0.97, 0.5),
    wv.detect(0.2, alarm=6.0),
]
MERGEABLE = [memory for memory in MEMORIES if memory.name in ("keep", "discount")]

LAWS = [
    wv.normal(0.7),
    wv.half_normal(0.4 * RADIUS),
    wv.grid(1.5, points=9, sigma=0.4, top=0.01),
]
SAMPLED = [
    wv.thompson(0.6),
    wv.perturbed_history(0.6),
    wv.perturbed_history(3, "coins"),
]
EXPLORATIONS = [
    wv.greedy(),
    wv.epsilon(0.3),
    wv.optimism(0.8),
    wv.optimism(RADIUS),
    *(wv.randomized(law) for law in LAWS),
    *SAMPLED,
    wv.inverse_gap(4.0),
]

every_memory = pytest.mark.parametrize("memory", MEMORIES, ids=repr)
every_mergeable = pytest.mark.parametrize("memory", MERGEABLE, ids=repr)
every_exploration = pytest.mark.parametrize("exploration", EXPLORATIONS, ids=repr)
every_law = pytest.mark.parametrize("law", LAWS, ids=repr)

same_every_time = settings(derandomize=True, database=None, deadline=None, max_examples=60)


def unit_rows(random: np.random.Generator, count: int, dim: int) -> Floats:
    """Directions drawn evenly, (count, dim)."""
    rows = random.standard_normal((count, dim))
    unit: Floats = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return unit


def loosened(policy: wv.Policy) -> wv.Policy:
    """The same, inverting so rarely that what is kept at hand strays by a fifth from the truth."""
    policy._arrays.rules["refresh"] = min(64, int(0.4 / -math.log(policy.memory.gamma)))
    kernels.blank(policy._arrays)
    return policy


def contents(policy: wv.Policy | wv.GeneralizedPolicy, folder: Path) -> dict[str, bytes]:
    """Everything that a policy saves, by name."""
    path = folder / "contents.npz"
    policy.save(path)
    with zipfile.ZipFile(path) as file:
        found = {name: file.read(name) for name in file.namelist()}
    path.unlink()
    return found
