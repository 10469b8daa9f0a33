"""Very many arms that stay the same: prepared once, screened in float32, decided in float64.

The screen only tells which arms can be the best. Its margins bound every rounding, so that the
arms left over contain all that `choose` would look at, and `choose` itself decides among them.
"""

import os
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from windvane import validation
from windvane._layout import GAP, MEAN, WIDTH, PolicyArrays
from windvane.belief import State
from windvane.types import Floats

if TYPE_CHECKING:
    from windvane.kernels.float32_bounds import Ladder

Singles = npt.NDArray[np.float32]
Places = npt.NDArray[np.intp]

FEW = 4096  # up to so many arms it is as fast to score them all
SAMPLE = 2048  # arms scored first, to see how well the bounds will part the rest
BLOCK = 32_768  # arms at a time
STEEP = 0.1  # the share of the arms from which on eigenvectors are worth their products
CROWD = 0.25  # the share of the arms from which on all are scored instead
HALF_ULP = 2.0**-24  # relative error of one rounding to float32
TINY = 1e-17  # more than float32 can lose below its smallest numbers, the largest norm being 1
EQUAL = 4e-12  # more than the differences at which scores count as equal


class Finite:
    """Arms (K, d) that stay the same from round to round, for a policy to choose from.

    They are copied: 12 bytes a number, 600 MB for a million arms of dimension 50.

    >>> import windvane as wv
    >>> arms = wv.finite([[1.0, 0.0], [0.6, 0.8]])
    >>> len(arms), arms.dim
    (2, 2)
    """

    def __init__(self, rows: Floats) -> None:
        self.rows = rows  # (K, d)
        count, self.dim = rows.shape
        exponent = np.frexp(np.abs(rows).max() * self.dim**0.5)[1]
        self.unit = 2.0 ** max(int(exponent), -1000)  # so that no arm is longer than 1
        self.table: Singles = np.empty((self.dim, count), np.float32)  # the arms as columns
        self.norms: Singles = np.empty(count, np.float32)  # rounded up
        for begin in range(0, count, BLOCK):
            part = slice(begin, begin + BLOCK)
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
        """The features and the place of the arm with the largest xᵀθ; of equals, the first."""
        direction = validation.check_vector("best", "theta", theta, self.dim)
        places = leaders(self, direction)
        if places is None:
            places = np.arange(len(self))
        index = int(places[np.argmax(self.rows[places] @ direction)])
        return self.rows[index].copy(), index


def finite(arms: npt.ArrayLike) -> Finite:
    """Prepare arms that stay the same, given as rows of features (K, d).

    >>> import numpy as np, windvane as wv
    >>> arms = wv.finite(np.eye(3))
    >>> wv.Policy(3, wv.keep(), wv.thompson(1.0), seed=7).choose(arms).index
    0
    """
    rows = validation.check_arms("finite", arms, copy=True)
    return Finite(validation.check_finite_arms(rows, "finite"))


def screen(arms: Finite, arrays: PolicyArrays, key: int, round_: int) -> Places | None:
    """The places, in order, of the arms among which `choose` decides; None where of all.

    What is left out changes neither the best score nor which scores count as equal to it.
    """
    from windvane import _random, kernels
    from windvane.kernels.choosing import ANY, MIX

    start = np.uint64(_random.opening(np.uint64(key), round_))
    rule = arrays.rules[0]
    if _random.uniform(start, MIX) < rule["mix"]:
        return np.array([int(_random.uniform(start, ANY) * len(arms))])
    if len(arms) <= FEW or rule["style"] == GAP:  # every arm has its chance by its gap
        return None
    state = kernels.parts(arrays)
    if rule["style"] == MEAN:
        return leaders(arms, state.theta)
    if rule["style"] == WIDTH:
        z = kernels.level(arrays.rules, kernels.scale_of(arrays), start)
        return rivals(arms, state, band(arrays, z))
    return leaders(arms, kernels.sampled(arrays, state, start))


def leaders(arms: Finite, direction: Floats) -> Places | None:
    """Arms whose xᵀ·direction may be the largest or, where it sets the scale, the smallest.

    |x̃ᵀq − xᵀq| ≤ (d+3)·2⁻²⁴·‖x‖·‖q‖ for a product in float32, in whatever order it is summed.
    """
    peak = np.abs(direction).max()
    if not 0.0 < peak < 1e250:
        return None
    q = direction / peak
    near: Singles = np.dot((q / np.linalg.norm(q)).astype(np.float32), arms.table)
    error = (arms.dim + 16) * HALF_ULP
    top, bottom, margin = float(near.max()), float(near.min()), 2.0 * (error + TINY) + EQUAL
    places = np.flatnonzero(near >= top - margin)
    errors = error * arms.norms[places].astype(np.float64) + TINY
    scores = near[places].astype(np.float64)
    places = places[scores + errors >= (scores - errors).max() - EQUAL]
    if -bottom >= top - margin:
        places = np.union1d(places, np.flatnonzero(near <= bottom + margin))
    return places if places.size < CROWD * len(arms) else None


class Band(NamedTuple):
    """Scores lie from xᵀθ̂ + low·w − grain·‖x‖ to xᵀθ̂ + high·w + grain·‖x‖ for w² = xᵀQx."""

    high: float
    low: float
    grain: float


def band(arrays: PolicyArrays, z: float) -> Band:
    """How `choose` brackets a score before it looks more closely."""
    from windvane.kernels.choosing import ROUGH
    from windvane.kernels.widths import looseness

    loose = abs(z) * looseness(arrays)
    return Band(z + loose, z - loose, abs(z) * ROUGH / float(arrays.rules["ridge"][0]) ** 0.5)


class Bounds:
    """Upper and lower bounds of the scores of prepared arms, from cheap and wide to tight.

    All scores are divided by the unit of the arms and by the largest of ‖θ̂‖ and |high|·√λ, so that
    they lie between −2 and 2, and |high| is drawn into the eigenvalues of Q.
    """

    def __init__(self, arms: Finite, state: State, span: Band) -> None:
        values, vectors = np.linalg.eigh(state.spread)
        self.sign = -1.0 if span.high < 0.0 else 1.0
        if self.sign > 0.0:
            values, vectors = values[::-1], vectors[:, ::-1]
        widest = abs(span.high) * float(np.abs(values).max()) ** 0.5
        self.scale = max(float(np.linalg.norm(state.theta)), widest)
        share = span.high / self.scale if self.scale > 0.0 else 0.0
        self.arms, self.state, self.span = arms, state, span
        self.values = np.maximum(values, 0.0) * share * share  # (d,), the one that bounds w first
        self.vectors = vectors  # (d, d)
        digits = arms.dim * 2.0**-50
        clipped = max(-float(values.min()), 0.0) ** 0.5 * abs(share)
        self.slack = digits + digits**0.5 + clipped + span.grain / (self.scale or 1.0)
        self.error = (arms.dim + 16) * HALF_ULP

    def tight(self, places: Places) -> tuple[Floats, Floats]:
        """Upper and lower bounds in float64, as `choose` has them."""
        from windvane.kernels import linear_scores, squared_widths

        rows, size = self.arms.rows[places], self.scale * self.arms.unit
        widths = np.sqrt(np.maximum(squared_widths(rows, self.state.spread), 0.0)) / size
        means = linear_scores(rows, self.state.theta) / size
        slack = self.slack * self.arms.norms[places] + TINY
        return means + self.span.high * widths + slack, means + self.span.low * widths - slack

    def ladder(self, places: Places) -> "Ladder":
        """The eigenvectors in the order that bounds w² best for some typical arms.

        Each rung takes so many from either end of the spectrum that the mean of the bound,
        Σ over both ends λ(xᵀv)² and rest·Σ(xᵀv)² in between, comes closest to that of w².
        """
        from windvane.kernels.float32_bounds import RUNG, Ladder

        dim, values = self.arms.dim, np.append(self.values, self.values[-1])
        squares = np.square((self.arms.rows[places] / self.arms.unit) @ self.vectors).mean(axis=0)
        held = np.concatenate([[0.0], np.cumsum(squares)])
        weighed = np.concatenate([[0.0], np.cumsum(self.values * squares)])
        first, end, order, rests = 0, dim, [], [values[0]]
        while first < end:
            step = min(RUNG, end - first)
            firsts = first + np.arange(step + 1)
            ends = end - step + np.arange(step + 1)
            means = weighed[firsts] - weighed[ends] + values[firsts] * (held[ends] - held[firsts])
            best = int(np.argmin(self.sign * means))
            order += [*range(first, firsts[best]), *range(ends[best], end)]
            first, end = int(firsts[best]), int(ends[best])
            rests.append(values[first])
        empty = -dim % RUNG
        return Ladder(
            np.pad(self.vectors[:, order].T, (0, empty)).astype(np.float32, order="C"),
            np.pad(self.values[order], (0, empty)).astype(np.float32),
            np.array(rests, dtype=np.float32),
            self.sign,
            loss=4.0 * self.error * (1.0 + dim**0.5),
            slope=4.0 * self.error + self.slack,
            tiny=TINY,
        )


def rivals(arms: Finite, state: State, span: Band) -> Places | None:
    """Arms whose score xᵀθ̂ + z‖x‖_{V⁻¹} may be the best.

    From block to block the best lower bound rises, and fewer and fewer arms reach it.
    """
    from windvane.kernels.float32_bounds import upper_bounds

    bounds = Bounds(arms, state, span)
    if not 1e-150 < bounds.scale < 1e150 or arms.unit < 1e-150:
        return None
    sample = np.arange(0, len(arms), max(len(arms) // SAMPLE, 1))
    high, low = bounds.tight(sample)
    least = float(low.max())
    if np.mean(high >= least) >= CROWD:
        return None
    ladder = bounds.ladder(sample[::8])
    ground = ladder._replace(rests=ladder.rests[:1])  # ‖x‖ alone
    means: Singles = np.dot((state.theta / bounds.scale).astype(np.float32), arms.table)

    lowest = [least]  # the best lower bound so far, which every thread may raise
    kept: dict[int, tuple[Places, Floats]] = {}  # by block

    def sift(begin: int) -> None:
        part, bar = slice(begin, begin + BLOCK), lowest[0]
        given = (arms.table, arms.norms[part], means[part], begin, bar)
        upper = upper_bounds(ground, *given)
        if np.mean(upper >= bar) > STEEP:
            upper = upper_bounds(ladder, *given)
        places = begin + np.flatnonzero(upper >= bar)
        if places.size:
            high, low = bounds.tight(places)
            lowest[0] = max(lowest[0], float(low.max()))
            kept[begin] = places[high >= lowest[0]], high[high >= lowest[0]]

    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        list(pool.map(sift, range(0, len(arms), BLOCK)))
    found = np.concatenate(
        [places[high >= lowest[0]] for _, (places, high) in sorted(kept.items())]
    )
    return found if found.size < CROWD * len(arms) else None
