"""Candidate memories side by side: the sums of up to eight candidates, one in each lane.

All candidates learn the same observations, with weights that fade at different rates. After every
observation the matrices of all of them are inverted, with their whole ridge. The candidate that
acts is copied from its lane to the arrays of a policy, and chooses with the kernels of `Policy`.
"""

from typing import NamedTuple

import numpy as np

from windvane._numba.compilation import compiled
from windvane._numba.lanes import LANES, load, repeat, store
from windvane.beliefs.adaptive.selection import Adaptation
from windvane.beliefs.full.belief import State
from windvane.beliefs.full.block import compute_spread
from windvane.beliefs.full.layout import HISTORY, NOISE, SAMPLE, WIDTH, PolicyArrays
from windvane.lab.engines.lane_algebra import invert_packed, multiply_packed, rotate_into_root
from windvane.types import Floats, Records

MOST_DIMENSIONS = 24  # above this, inverses cost more than rank-one steps of each candidate


class CandidateRows(NamedTuple):
    """The first row of each part of the lanes; a matrix is packed as in `lane_algebra`."""

    dim: int  # d
    fades: int  # 1: γ of each candidate
    moment: int  # d: b
    theta: int  # d: θ̂
    gram: int  # packed: S
    noise: int  # packed: S̃
    inverse: int  # packed: W⁻¹
    root: int  # packed: R with RᵀR = S̃, if θ is sampled
    prediction: int  # 1: xᵀθ̂ of the last observation
    features: int  # d: x of the last observation
    scratch: int  # d
    residual: int  # d
    end: int


def can_play_in_lanes(adaptation: Adaptation, rules: Records) -> bool:
    """Whether all candidates keep or fade the sums of all observations, and choose by them."""
    has_sums = all(
        memory.name == "keep" or (memory.name == "discount" and not memory.single)
        for memory in adaptation.memories
    )
    return bool(
        has_sums
        and adaptation.kind != "bandits"
        and rules["style"][0] != HISTORY
        and rules["unit"][0] != NOISE
        and rules["dim"][0] <= MOST_DIMENSIONS
    )


def lay_out_candidates(dim: int) -> CandidateRows:
    """Return the first row of each part for d features."""
    packed = dim * (dim + 1) // 2
    sizes = [1, dim, dim, packed, packed, packed, packed, 1, dim, dim, dim]
    return CandidateRows(dim, *np.cumsum([0, *sizes]).tolist())


def make_candidate_lanes(rules: Records, rows: CandidateRows) -> Floats:
    """Make the lanes of candidates that have learned nothing, (groups, rows, 8)."""
    groups = -(-len(rules) // LANES)
    lanes = np.zeros((groups, rows.end, LANES))
    lanes[:, rows.fades] = 1.0
    for j, gamma in enumerate(rules["gamma"]):
        lanes[j // LANES, rows.fades, j % LANES] = gamma
    for i in range(rows.dim):
        lanes[:, rows.inverse + i * (i + 1) // 2 + i] = 1.0 / rules["ridge"][0]
    return lanes


@compiled
def predict_in_lanes(lanes: Floats, rows: CandidateRows, x: Floats) -> None:
    """Write xᵀθ̂ of every candidate to its lane."""
    total = repeat(0.0)
    for i in range(rows.dim):
        total = total + x[i] * load(lanes, rows.theta + i)
    store(lanes, rows.prediction, total)


@compiled
def learn_in_lanes(
    rules: Records, lanes: Floats, rows: CandidateRows, x: Floats, reward: float
) -> None:
    """Let every candidate learn an observation.

    S ← γS + xxᵀ,  S̃ ← γ²S̃ + xxᵀ,  b ← γb + xy,  θ̂ = (S + λI)⁻¹b
    """
    rule, d, at = rules[0], rows.dim, 0
    fade = load(lanes, rows.fades)
    noise_fade = fade * fade
    for i in range(d):
        moment = fade * load(lanes, rows.moment + i) + x[i] * reward
        store(lanes, rows.moment + i, moment)
        store(lanes, rows.features + i, repeat(x[i]))
        for j in range(i + 1):
            square = x[i] * x[j]
            entry = fade * load(lanes, rows.gram + at) + square
            store(lanes, rows.gram + at, entry)
            store(lanes, rows.inverse + at, entry + rule.ridge if i == j else entry)
            noise = noise_fade * load(lanes, rows.noise + at) + square
            store(lanes, rows.noise + at, noise)
            at += 1
    if rule.style == SAMPLE:
        rotate_into_root(lanes, d, rows.root, fade, rows.features, rows.scratch)
    invert_packed(lanes, d, rows.inverse, rows.scratch)
    estimate_in_lanes(lanes, rows, rule.ridge)


@compiled
def estimate_in_lanes(lanes: Floats, rows: CandidateRows, ridge: float) -> None:
    """Compute θ̂ = Pb, and correct it once against W itself: θ̂ ← θ̂ + P(b − Wθ̂)."""
    d = rows.dim
    multiply_packed(lanes, d, rows.inverse, rows.moment, rows.theta)
    multiply_packed(lanes, d, rows.gram, rows.theta, rows.residual)
    for i in range(d):
        image = load(lanes, rows.residual + i) + ridge * load(lanes, rows.theta + i)
        store(lanes, rows.residual + i, load(lanes, rows.moment + i) - image)
    multiply_packed(lanes, d, rows.inverse, rows.residual, rows.scratch)
    for i in range(d):
        store(lanes, rows.theta + i, load(lanes, rows.theta + i) + load(lanes, rows.scratch + i))


@compiled
def read_lane(
    lanes: Floats, rows: CandidateRows, lane: int, seen: int, arrays: PolicyArrays, state: State
) -> None:
    """Copy a candidate that has learned `seen` observations from its lane to its arrays."""
    rule, counts = arrays.rules[0], arrays.tally[0]
    counts.seen = seen
    counts.ridge = rule.ridge
    counts.noise_ridge = rule.ridge
    for i in range(rows.dim):
        state.moment[i] = lanes[rows.moment + i, lane]
        state.theta[i] = lanes[rows.theta + i, lane]
    copy_packed(lanes, rows.gram, lane, state.gram)
    copy_packed(lanes, rows.inverse, lane, state.inverse)
    if rule.twin and rule.style == WIDTH:
        copy_packed(lanes, rows.noise, lane, state.noise)
        compute_spread(arrays, state)
    if rule.style == SAMPLE:
        at = rows.root
        for k in range(rows.dim):
            for i in range(k, rows.dim):
                state.root[k, i] = lanes[at, lane]
                at += 1


@compiled
def copy_packed(lanes: Floats, first: int, lane: int, out: Floats) -> None:
    """Write a packed symmetric matrix of one lane to `out` (d, d)."""
    at = first
    for i in range(out.shape[0]):
        for j in range(i + 1):
            out[i, j] = lanes[at, lane]
            out[j, i] = lanes[at, lane]
            at += 1
