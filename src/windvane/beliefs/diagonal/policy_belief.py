"""The diagonal belief of a policy: a mean and a variance for each weight, uncorrelated.

A choice and a lesson cost O(entries that are not 0), and memory grows with the weights that were
learned, so the dimension can be any number. In units of the noise, with W = λ + p:

    m = b/W,  s = 1/W;  score of an arm by Σ xᵢmᵢ and the width √(Σ xᵢ²W̃ᵢ/Wᵢ²)
    lesson (x, y) of weight w:  e = y − Σ xᵢmᵢ,  S = 1/w + Σ xᵢ²sᵢ
    mᵢ ← mᵢ + sᵢxᵢe/S,  pᵢ ← pᵢ + gᵢ,  W̃ᵢ ← W̃ᵢ + w·gᵢ  with gᵢ = xᵢ²/(S − sᵢxᵢ²)
"""

from collections.abc import Sequence
from typing import ClassVar, NoReturn

import numpy as np

from windvane import _random, persistence
from windvane._numba.compilation import compile_for
from windvane.beliefs.diagonal import kernels
from windvane.beliefs.diagonal.belief import DiagonalBelief
from windvane.beliefs.diagonal.kernels import (
    FIRST_VARIANCE,
    LONG_ROWS,
    MOMENT,
    PRECISION,
    VARIANCE,
    WEIGHTS,
    Weights,
    index_slots,
)
from windvane.beliefs.diagonal.parts import learn_by_parts
from windvane.beliefs.diagonal.sparse_rows import (
    Arms,
    CheckedRow,
    CheckedRows,
    Features,
    read_arms,
    read_features,
)
from windvane.beliefs.diagonal.weight_table import ABSENT
from windvane.beliefs.full import layout, propensities
from windvane.beliefs.full.belief import Belief, restore_counters
from windvane.beliefs.policy_belief import PolicyBelief
from windvane.errors import ArmsError, BeliefError, SettingError
from windvane.exploration import Exploration
from windvane.exploration import names_of as explorations_of
from windvane.memory import Memory, names_of
from windvane.types import Floats, Places

LARGEST_RATIO = 1e13  # ‖x‖²/λ beyond this would leave too few digits in the sums of a row
LEAST_ROOM = 64  # weights for which a blank policy has room
PLACES_PER_SLOT = 2  # the hash table is at most half full


def make_blank_weights(memory: Memory, room: int = LEAST_ROOM) -> Weights:
    """Return weights of which none was learned, with room for some; `room` is a power of two."""
    keeps_squares = memory.kind.fades and not memory.single
    parts = len(memory.half_lives)
    columns = parts + memory.finds if parts else 1
    return Weights(
        np.zeros(PLACES_PER_SLOT * room, np.uint64),
        np.zeros(PLACES_PER_SLOT * room, np.int64),
        np.zeros(room, np.int64),
        np.zeros((room, columns, 2)),
        np.zeros(room if keeps_squares else 0),
        np.ones(columns),
        np.zeros(2, np.int64),
        np.zeros((columns + 1 if parts else 0, 3)),
    )


def make_room(weights: Weights, more: int) -> Weights:
    """Return the weights with room for more of them: the same arrays, or larger ones."""
    size, room = int(weights.counters[WEIGHTS]), weights.indices.size
    if size + more <= room:
        return weights
    while size + more > room:
        room *= 2
    places = PLACES_PER_SLOT * room
    larger = weights._replace(
        keys=np.zeros(places, np.uint64),
        slots=np.zeros(places, np.int64),
        indices=_grow(weights.indices, room),
        sums=_grow(weights.sums, room),
        squares=_grow(weights.squares, room if weights.squares.size else 0),
    )
    index_slots(larger)
    return larger


def _grow(array: persistence.Array, size: int) -> persistence.Array:
    grown = np.zeros((size, *array.shape[1:]), array.dtype)
    grown[: len(array)] = array
    return grown


def export_weights(weights: Weights) -> persistence.Arrays:
    """Return copies of the arrays that a saved file holds."""
    size = int(weights.counters[WEIGHTS])
    of_parts = {"evidence": weights.evidence.copy()} if weights.evidence.size else {}
    return {
        "indices": weights.indices[:size].copy(),
        "sums": weights.sums[:size].copy(),
        "squares": weights.squares[:size].copy(),
        "fade": weights.fade.copy(),
        "counters": weights.counters.copy(),
        **of_parts,
    }


def restore_weights(memory: Memory, dim: int, arrays: persistence.Arrays) -> Weights:
    """Return saved weights if they fit the settings; raise ValueError if they do not."""
    blank = make_blank_weights(memory)
    saved = {name: np.array(arrays[name], order="C") for name in export_weights(blank)}
    for name, array in saved.items():
        own: persistence.Array = getattr(blank, name)
        if array.dtype != own.dtype or array.shape[1:] != own.shape[1:]:
            raise ValueError(f"its {name} have shape {array.shape}")
        if not np.isfinite(array).all():
            raise ValueError("it holds a number that is not finite")
    indices, sums, squares = saved["indices"], saved["sums"], saved["squares"]
    fade, counters = saved["fade"], saved["counters"]
    size = indices.size
    if len(sums) != size or squares.size != (size if blank.squares.size else 0):
        raise ValueError("its arrays have different lengths")
    rest = saved.keys() - {"indices", "sums", "squares"}
    if any(len(saved[name]) != len(getattr(blank, name)) for name in rest):
        raise ValueError("its arrays have different lengths")
    if counters[WEIGHTS] != size:
        raise ValueError("its counters have another number of weights")
    if size and not (indices.min() >= 0 and indices.max() < dim):
        raise ValueError("its indices are out of bounds")
    if np.unique(indices).size != size:
        raise ValueError("it has a weight twice")
    if not ((fade > 0) & (fade <= 1)).all() or counters[LONG_ROWS] < 0:
        raise ValueError("its counters are out of bounds")
    evidence = saved.get("evidence", blank.evidence)
    if any((each < 0).any() for each in (sums[..., PRECISION], squares, evidence[:-1])):
        raise ValueError("it has a negative precision")
    weights = make_room(blank, size)
    weights.indices[:size] = indices
    weights.sums[:size] = sums
    weights.squares[: squares.size] = squares
    for name in rest:
        getattr(weights, name)[:] = saved[name]
    index_slots(weights)
    return weights


class DiagonalPolicyBelief(PolicyBelief[CheckedRows, CheckedRow, Sequence[CheckedRow]]):
    """Sums of each weight that was learned, in a hash table."""

    COMPILED: ClassVar[tuple[str, ...]] = ("_choose", "_learn")

    def __init__(
        self, dim: int, memory: Memory, exploration: Exploration, ridge: float, floor: float
    ) -> None:
        super().__init__(dim, memory, exploration, ridge, floor)
        self.clear()
        self._bind_kernels()

    def clear(self) -> None:
        self.arrays = self.arrays._replace(tally=np.zeros(1, layout.TALLY))
        self.weights = make_blank_weights(self.memory)

    def _bind_kernels(self) -> None:
        places, values = np.zeros(1, np.int64), np.zeros(1)
        belief = (self.arrays, self.weights)
        self._choose = compile_for(
            kernels.choose, *belief, CheckedRows(places, values, places), 0, 0
        )
        learn = learn_by_parts if self.memory.half_lives else kernels.learn
        self._learn = compile_for(learn, *belief, places, values, 0.0, 0.0)

    def check_parts(self) -> None:
        memory, exploration = self.memory, self.exploration
        if not memory.kind.diagonal:
            names = ", ".join(names_of(lambda kind: kind.diagonal))
            raise SettingError(
                f"Policy: the memory of a diagonal belief must be one of {names}, got {memory!r}"
            )
        if exploration.kind.needs == "history":
            names = ", ".join(explorations_of(lambda kind: kind.needs != "history"))
            raise SettingError(
                f"Policy: the exploration of a diagonal belief must be one of {names}, "
                f"got {exploration!r}"
            )

    def read_arms(self, arms: Arms) -> CheckedRows:
        return read_arms("choose", arms, self.dim)

    def check_rows(self, rows: CheckedRows) -> CheckedRows:
        return rows  # `read_arms` has checked every number

    def refuse_rows(self, rows: CheckedRows) -> NoReturn:
        raise ArmsError(
            "choose: the scores of the arms are not finite; scale the features to norm 1"
        )

    def count_rows(self, rows: CheckedRows) -> int:
        return rows.ends.size

    def copy_row(self, rows: CheckedRows, index: int) -> CheckedRow:
        return rows.copy_row(index, self.dim)

    def read_features(self, who: str, features: Features) -> CheckedRow:
        return read_features(who, features, self.dim)

    def stack(self, rows: Sequence[CheckedRow]) -> Sequence[CheckedRow]:
        return rows

    def choose(self, rows: CheckedRows, key: int, round_: int) -> int:
        return int(self._choose(self.arrays, self.weights, rows, key, round_))

    def compute_propensities(
        self, rows: CheckedRows, key: int, round_: int, samples: int, chosen: int | None
    ) -> Floats:
        if not propensities.is_counted(self.arrays.rules):
            return propensities.compute_exact_propensities(self.arrays, *self._measure(rows))
        # draws that are counted have a key of their own, so that this call changes no choice
        start = _random.start_round(np.uint64(key ^ propensities.COUNTING_KEY), round_)
        scores = kernels.sample_many_scores(
            self.arrays, self.weights, rows, np.uint64(start), samples
        )
        shares = propensities.add_chosen_draw(propensities.count_wins(scores), samples, chosen)
        return propensities.mix_evenly(shares, float(self.arrays.rules["mix"][0]))

    def choose_with_propensities(
        self, rows: CheckedRows, key: int, round_: int, samples: int
    ) -> tuple[int, Floats]:
        if propensities.is_counted(self.arrays.rules):
            return super().choose_with_propensities(rows, key, round_, samples)
        means, widths = self._measure(rows)
        index = kernels.choose_measured(self.arrays, means, widths, key, round_)
        return index, propensities.compute_exact_propensities(self.arrays, means, widths)

    def predict(self, rows: CheckedRows) -> Floats:
        return self._measure(rows)[0]

    def measure_widths(self, rows: CheckedRows) -> Floats:
        return self._measure(rows)[1]

    def _measure(self, rows: CheckedRows) -> tuple[Floats, Floats]:
        return kernels.measure_rows(self.arrays, self.weights, rows)

    @property
    def theta(self) -> Floats:
        return self.read().theta

    def learn(self, row: CheckedRow, reward: float, at: float) -> None:
        self.check_learnable([row])
        self._learn_row(row, reward, at)

    def _learn_row(self, row: CheckedRow, reward: float, at: float) -> None:
        self.weights = make_room(self.weights, row.indices.size)
        self._learn(self.arrays, self.weights, row.indices, row.values, reward, at)

    def learn_all(self, rows: Sequence[CheckedRow], rewards: Floats, at: Floats) -> None:
        for row, reward, when in zip(rows, rewards.tolist(), at.tolist(), strict=True):
            self._learn_row(row, reward, when)

    def check_learnable(self, rows: Sequence[CheckedRow]) -> None:
        for row in rows:
            if not float(row.values @ row.values) <= LARGEST_RATIO * self.ridge:
                raise ArmsError(
                    f"learn: the squared features of a row must sum to at most {LARGEST_RATIO:g} "
                    f"times the ridge ({self.ridge:g}), or too few digits are left; scale them to "
                    "norm 1"
                )

    def amend(self, row: CheckedRow, more: float, at: float) -> None:
        """Add to a reward: exact for a row of one entry, an approximation for longer rows.

        What the first part of the reward moved depended on the variances at that time.
        """
        self.check_learnable([row])
        self.weights = make_room(self.weights, row.indices.size)
        kernels.amend(self.arrays, self.weights, row.indices, row.values, more, at)

    def read(self) -> DiagonalBelief:
        weights, tally = self.weights, self.arrays.tally
        size, fade = int(weights.counters[WEIGHTS]), float(weights.fade[0])
        order = np.argsort(weights.indices[:size])
        if self.memory.half_lives:
            ridge, gram, moment = self._read_parts(order)
        else:
            ridge, gram = self.ridge, fade * weights.sums[:size, 0, PRECISION][order]
            moment = fade * weights.sums[:size, 0, MOMENT][order]
        has_squares = weights.squares.size > 0
        return DiagonalBelief(
            self.memory,
            ridge,
            tally["seen"].item(),
            gram,
            fade * fade * weights.squares[:size][order] if has_squares else gram.copy(),
            moment,
            tally["clock"].item(),
            tally["held"].item(),
            *(tally[name].item() for name in layout.COUNTERS_OF_ERRORS),
            indices=weights.indices[:size][order],
            full_dim=self.dim,
            has_long_rows=bool(weights.counters[LONG_ROWS] > 0),
        )

    def _read_parts(self, slots: Places) -> tuple[float, Floats, Floats]:
        """Return λ, p and b of the belief that chooses: 1/λ is the variance of a blank weight."""
        slots = np.append(slots, ABSENT)
        means, variances = np.empty(slots.size), np.empty(slots.size)
        kernels.read_slots(self.arrays, self.weights, slots, means, variances)
        precisions = 1.0 / variances
        gram = np.maximum(precisions - precisions[-1], 0.0)
        return float(precisions[-1]), gram[:-1], (means * precisions)[:-1]

    def check_settings(self, belief: Belief) -> None:
        if self.memory.kind.is_filter:
            names = ", ".join(names_of(lambda kind: kind.diagonal and not kind.is_filter))
            raise BeliefError(
                f"belief: {self.memory!r} needs the observations themselves; only {names} can be "
                "given a belief"
            )
        super().check_settings(belief)

    def write(self, belief: Belief) -> None:
        assert isinstance(belief, DiagonalBelief)
        belief.check()
        size, tally = belief.indices.size, self.arrays.tally
        weights = make_room(make_blank_weights(self.memory), size)
        weights.indices[:size] = belief.indices
        weights.sums[:size, 0, PRECISION] = belief.gram
        weights.sums[:size, 0, MOMENT] = belief.moment
        if weights.squares.size:
            weights.squares[:size] = belief.noise_gram
        weights.counters[WEIGHTS] = size
        weights.counters[LONG_ROWS] = belief.has_long_rows
        index_slots(weights)
        for name in ("seen", "clock", "held", *layout.COUNTERS_OF_ERRORS):
            tally[name] = getattr(belief, name)
        self.weights = weights

    def export_arrays(self) -> persistence.Arrays:
        return export_weights(self.weights)

    def restore(self, counters: dict[str, float], arrays: persistence.Arrays) -> None:
        weights = restore_weights(self.memory, self.dim, arrays)
        restore_counters(self.arrays, counters, has_ridge=False)
        evidence = weights.evidence
        variances = [*evidence[:-1, VARIANCE], *evidence[-1:, FIRST_VARIANCE]]
        if self.arrays.tally["seen"][0] and min(variances, default=1.0) <= 0.0:
            raise ValueError("its variances are not positive")
        self.weights = weights
