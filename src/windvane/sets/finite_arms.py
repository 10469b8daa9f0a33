"""Very many arms that stay the same: prepared once, screened in float32, decided in float64.

The screen finds the arms that can be the best. Its margins bound all rounding errors, so that the
remaining arms contain every arm that can win, and `choose` itself decides among them.
"""

import os
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from windvane import validation
from windvane.beliefs.full.belief import State
from windvane.beliefs.full.layout import GAP, MEAN, WIDTH, PolicyArrays
from windvane.types import Floats, Places, Singles

if TYPE_CHECKING:
    from windvane.sets.kernels import Ladder

HALF_ULP = 2.0**-24  # the largest relative error of rounding a number to float32
SCREEN_ABOVE_ARMS = 4096  # up to this number of arms, scoring all of them is as fast
SAMPLE_ARMS = 2048  # arms scored first, to see how many arms the bounds can exclude
BLOCK_ARMS = 32_768  # arms that one thread screens at a time
SCORE_ALL_ABOVE_SHARE = 0.25  # of arms left by the screen; from here on, `choose` scores all arms
UNDERFLOW_ERROR = 1e-17  # above what float32 loses below its smallest number, if norms are up to 1
EQUAL_SCORES = 4e-12  # above the differences at which `choose` takes scores for equal


class Finite:
    """Prepared arms (K, d), from which a policy chooses in many rounds; made by `finite`.

    The arms are copied: 12 bytes for each number, 600 MB for a million arms of dimension 50.

    >>> import numpy as np, windvane as wv
    >>> arms = wv.sets.finite(np.eye(3))
    >>> arms, len(arms), arms.dim
    (finite(3 arms, dim=3), 3, 3)
    >>> features, index = arms.best([0.1, 0.7, 0.2])
    >>> index
    1
    """

    def __init__(self, rows: Floats) -> None:
        self.rows = rows  # (K, d)
        count, self.dim = rows.shape
        exponent = np.frexp(np.abs(rows).max() * self.dim**0.5)[1]
        self.unit = 2.0 ** max(int(exponent), -1000)  # the arms divided by it have norm up to 1
        self.table: Singles = np.empty((self.dim, count), np.float32)  # the arms as columns
        self.norms: Singles = np.empty(count, np.float32)  # rounded up
        for begin in range(0, count, BLOCK_ARMS):
            part = slice(begin, begin + BLOCK_ARMS)
            scaled = rows[part] / self.unit
            self.table[:, part] = scaled.T
            lengths = np.sqrt(np.einsum("kd,kd->k", scaled, scaled)).astype(np.float32)
            self.norms[part] = np.nextafter(lengths, np.float32(2.0))

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        return f"finite({len(self)} arms, dim={self.dim})"

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> Floats:
        return np.array(self.rows, dtype=dtype, copy=copy)

    def best(self, theta: npt.ArrayLike) -> tuple[Floats, int]:
        """Return the features and the index of the first arm with the largest xᵀθ."""
        direction = validation.check_vector("best", "theta", theta, self.dim)
        places = find_leaders(self, direction)
        if places is None:
            places = np.arange(len(self))
        index = int(places[np.argmax(self.rows[places] @ direction)])
        return self.rows[index].copy(), index


def finite(arms: npt.ArrayLike) -> Finite:
    """Prepare arms that stay the same in many rounds, given as rows of features (K, d).

    >>> import numpy as np, windvane as wv
    >>> arms = wv.sets.finite(np.eye(3))
    >>> wv.Policy(3, wv.keep(), wv.thompson(1.0), seed=7).choose(arms).index
    0
    """
    rows = validation.check_arms("finite", arms, copy=True)
    return Finite(validation.check_finite_arms(rows, "finite"))


def screen(arms: Finite, arrays: PolicyArrays, key: int, round_: int) -> Places | None:
    """Return the indices, in order, of the arms among which `choose` decides; None for all arms.

    The excluded arms change neither the best score nor the set of scores that count as equal to it.
    """
    from windvane import _random
    from windvane._random import ANY_ARM_PLACE, MIX_PLACE
    from windvane.beliefs.full.block import view_belief
    from windvane.beliefs.full.choosing import compute_scale, draw_level, sample_parameter

    start = np.uint64(_random.start_round(np.uint64(key), round_))
    rule = arrays.rules[0]
    if _random.uniform(start, MIX_PLACE) < rule["mix"]:
        return np.array([int(_random.uniform(start, ANY_ARM_PLACE) * len(arms))])
    if len(arms) <= SCREEN_ABOVE_ARMS or rule["style"] == GAP:  # the gap of every arm counts
        return None
    state = view_belief(arrays)
    if rule["style"] == MEAN:
        return find_leaders(arms, state.theta)
    if rule["style"] == WIDTH:
        z = draw_level(arrays.rules, compute_scale(arrays), start)
        return find_rivals(Bounds(arms, arrays, state, z), state)
    return find_leaders(arms, sample_parameter(arrays, state, start))


def find_leaders(arms: Finite, direction: Floats) -> Places | None:
    """Return the arms whose xᵀ·direction may be the largest; None for all arms.

    The arms whose product may be the smallest are included if they have the largest absolute score,
    because `choose` rounds relative to it. The error of a product in float32 is
    |x̃ᵀq − xᵀq| ≤ (d+3)·2⁻²⁴·‖x‖·‖q‖ for any order of summation.
    """
    peak = np.abs(direction).max()
    if not 0.0 < peak < 1e250:
        return None
    q = direction / peak
    near: Singles = np.dot((q / np.linalg.norm(q)).astype(np.float32), arms.table)
    error = (arms.dim + 16) * HALF_ULP
    top = float(near.max())
    bottom = float(near.min())
    margin = 2.0 * (error + UNDERFLOW_ERROR) + EQUAL_SCORES
    places = np.flatnonzero(near >= top - margin)
    errors = error * arms.norms[places].astype(np.float64) + UNDERFLOW_ERROR
    scores = near[places].astype(np.float64)
    places = places[scores + errors >= (scores - errors).max() - EQUAL_SCORES]
    if -bottom >= top - margin:
        places = np.union1d(places, np.flatnonzero(near <= bottom + margin))
    return places if places.size < SCORE_ALL_ABOVE_SHARE * len(arms) else None


class Bounds:
    """Upper and lower bounds of the scores of prepared arms, from cheap and wide to tight.

    `choose` first places a score from xᵀθ̂ + low·w − grain·‖x‖ to xᵀθ̂ + high·w + grain·‖x‖, with
    w² = xᵀQx. All scores are divided by the unit of the arms and by the larger of ‖θ̂‖ and
    |high|·√λ, so that they lie between −2 and 2. The eigenvalues of Q are multiplied by high².
    """

    def __init__(self, arms: Finite, arrays: PolicyArrays, state: State, z: float) -> None:
        from windvane.beliefs.full.choosing import WIDTH_ROUNDING
        from windvane.beliefs.full.widths import bound_width_error

        loose = abs(z) * bound_width_error(arrays)
        self.high, self.low = z + loose, z - loose
        grain = abs(z) * WIDTH_ROUNDING / float(arrays.rules["ridge"][0]) ** 0.5
        values, vectors = np.linalg.eigh(state.spread)
        self.sign = -1.0 if self.high < 0.0 else 1.0
        if self.sign > 0.0:
            values, vectors = values[::-1], vectors[:, ::-1]
        widest = abs(self.high) * float(np.abs(values).max()) ** 0.5
        self.scale = max(float(np.linalg.norm(state.theta)), widest)
        share = self.high / self.scale if self.scale > 0.0 else 0.0
        self.arms, self.state = arms, state
        self.values = np.maximum(values, 0.0) * share * share  # (d,), the first bounds w
        self.vectors = vectors  # (d, d)
        digits = arms.dim * 2.0**-50
        clipped = max(-float(values.min()), 0.0) ** 0.5 * abs(share)
        self.slack = digits + digits**0.5 + clipped + grain / (self.scale or 1.0)
        self.error = (arms.dim + 16) * HALF_ULP

    def bound_tightly(self, places: Places) -> tuple[Floats, Floats]:
        """Return upper and lower bounds in float64, the same numbers as in `choose`."""
        from windvane.beliefs.full.choosing import score_linearly
        from windvane.beliefs.full.widths import compute_squared_widths

        rows = self.arms.rows[places]
        size = self.scale * self.arms.unit
        squares = np.empty(len(rows))
        compute_squared_widths(rows, self.state.spread, squares)
        widths = np.sqrt(np.maximum(squares, 0.0)) / size
        means = score_linearly(rows, self.state.theta) / size
        slack = self.slack * self.arms.norms[places] + UNDERFLOW_ERROR
        return means + self.high * widths + slack, means + self.low * widths - slack

    def build_ladder(self, places: Places) -> "Ladder":
        """Return the eigenvectors in the order that bounds w² best for the given typical arms.

        Each rung takes eigenvectors from both ends of the spectrum. Their numbers are those for
        which the mean of the bound, Σ λ(xᵀv)² over both ends and rest·Σ(xᵀv)² in between, comes
        closest to the mean of w².
        """
        from windvane.sets.kernels import EIGENVECTORS_PER_RUNG, Ladder

        dim = self.arms.dim
        values = np.append(self.values, self.values[-1])
        squares = np.square((self.arms.rows[places] / self.arms.unit) @ self.vectors).mean(axis=0)
        total = np.concatenate([[0.0], np.cumsum(squares)])
        weighted = np.concatenate([[0.0], np.cumsum(self.values * squares)])
        first = 0
        end = dim
        order: list[int] = []
        rests = [values[0]]
        while first < end:
            step = min(EIGENVECTORS_PER_RUNG, end - first)
            firsts = first + np.arange(step + 1)
            ends = end - step + np.arange(step + 1)
            means = (
                weighted[firsts] - weighted[ends] + values[firsts] * (total[ends] - total[firsts])
            )
            best = int(np.argmin(self.sign * means))
            order += [*range(first, firsts[best]), *range(ends[best], end)]
            first, end = int(firsts[best]), int(ends[best])
            rests.append(values[first])
        empty = -dim % EIGENVECTORS_PER_RUNG
        return Ladder(
            np.pad(self.vectors[:, order].T, (0, empty)).astype(np.float32, order="C"),
            np.pad(self.values[order], (0, empty)).astype(np.float32),
            np.array(rests, dtype=np.float32),
            self.sign,
            loss=4.0 * self.error * (1.0 + dim**0.5),
            slope=4.0 * self.error + self.slack,
            tiny=UNDERFLOW_ERROR,
        )


def find_rivals(bounds: Bounds, state: State) -> Places | None:
    """Return the arms whose score xᵀθ̂ + z‖x‖_{V⁻¹} may be the best; None for all arms.

    The best lower bound rises from block to block, so that ever fewer arms can reach it.
    """
    from windvane.sets.kernels import compute_upper_bounds

    arms = bounds.arms
    if not 1e-150 < bounds.scale < 1e150 or arms.unit < 1e-150:
        return None
    sample = np.arange(0, len(arms), max(len(arms) // SAMPLE_ARMS, 1))
    high, low = bounds.bound_tightly(sample)
    least = float(low.max())
    if np.mean(high >= least) >= SCORE_ALL_ABOVE_SHARE:
        return None
    ladder = bounds.build_ladder(sample[::8])
    theta: Singles = (state.theta / bounds.scale).astype(np.float32)

    from concurrent.futures import ThreadPoolExecutor  # imported late: only many arms need it

    best_lower = [least]  # the best lower bound so far, which every thread can raise
    kept: dict[int, tuple[Places, Floats]] = {}  # by the first arm of the block

    def sift(begin: int) -> None:
        part = slice(begin, begin + BLOCK_ARMS)
        threshold = best_lower[0]
        upper = compute_upper_bounds(ladder, arms.table, arms.norms[part], theta, begin, threshold)
        places = begin + np.flatnonzero(upper >= threshold)
        if places.size:
            high, low = bounds.bound_tightly(places)
            best_lower[0] = max(best_lower[0], float(low.max()))
            kept[begin] = places[high >= best_lower[0]], high[high >= best_lower[0]]

    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        list(pool.map(sift, range(0, len(arms), BLOCK_ARMS)))
    rivals = np.concatenate(
        [places[high >= best_lower[0]] for _, (places, high) in sorted(kept.items())]
    )
    return rivals if rivals.size < SCORE_ALL_ABOVE_SHARE * len(arms) else None
