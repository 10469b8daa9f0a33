"""The weights of a diagonal policy as arrays: made, given room, saved, and read as a belief."""

import numpy as np

from windvane import persistence
from windvane.beliefs.diagonal.belief import DiagonalBelief
from windvane.beliefs.diagonal.formulas import MOMENT, PRECISION
from windvane.beliefs.diagonal.sparse_weights import LONG_ROWS, WEIGHTS, Weights, index_slots
from windvane.beliefs.full.layout import COUNTERS_OF_ERRORS, PolicyArrays
from windvane.memory import Memory

LEAST_ROOM = 64  # weights for which a blank policy has room
PLACES_PER_SLOT = 2  # the hash table is at most half full


def make_blank_weights(memory: Memory, room: int = LEAST_ROOM) -> Weights:
    """Return weights of which none was learned, with room for some; `room` is a power of two."""
    keeps_squares = memory.kind.fades and not memory.single
    return Weights(
        np.zeros(PLACES_PER_SLOT * room, np.uint64),
        np.zeros(PLACES_PER_SLOT * room, np.int64),
        np.zeros(room, np.int64),
        np.zeros((room, 1, 2)),
        np.zeros(room if keeps_squares else 0),
        np.ones(1),
        np.zeros(2, np.int64),
    )


def make_room(weights: Weights, more: int) -> Weights:
    """Return the weights with room for more of them: the same arrays, or larger ones."""
    size, room = int(weights.counters[WEIGHTS]), weights.indices.size
    if size + more <= room:
        return weights
    while size + more > room:
        room *= 2
    places = PLACES_PER_SLOT * room
    larger = Weights(
        np.zeros(places, np.uint64),
        np.zeros(places, np.int64),
        _grow(weights.indices, room),
        _grow(weights.sums, room),
        _grow(weights.squares, room if weights.squares.size else 0),
        weights.fade,
        weights.counters,
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
    return {
        "indices": weights.indices[:size].copy(),
        "sums": weights.sums[:size].copy(),
        "squares": weights.squares[:size].copy(),
        "fade": weights.fade.copy(),
        "counters": weights.counters.copy(),
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
    if fade.size != 1 or counters.size != 2 or counters[WEIGHTS] != size:
        raise ValueError("its counters have another number of weights")
    if size and not (indices.min() >= 0 and indices.max() < dim):
        raise ValueError("its indices are out of bounds")
    if np.unique(indices).size != size:
        raise ValueError("it has a weight twice")
    if not (0 < fade[0] <= 1 and counters[LONG_ROWS] >= 0):
        raise ValueError("its counters are out of bounds")
    if (sums[:, 0, PRECISION] < 0).any() or (squares < 0).any():
        raise ValueError("it has a negative precision")
    weights = make_room(blank, size)
    weights.indices[:size] = indices
    weights.sums[:size] = sums
    weights.squares[: squares.size] = squares
    weights.fade[:] = fade
    weights.counters[:] = counters
    index_slots(weights)
    return weights


def read_belief(
    arrays: PolicyArrays, weights: Weights, memory: Memory, ridge: float
) -> DiagonalBelief:
    """Return the belief in the arrays, as copies."""
    size, fade = int(weights.counters[WEIGHTS]), float(weights.fade[0])
    order = np.argsort(weights.indices[:size])
    precision = fade * weights.sums[:size, 0, PRECISION][order]
    keeps_squares = weights.squares.size > 0
    return DiagonalBelief(
        memory,
        ridge,
        int(arrays.rules["dim"][0]),
        arrays.tally["seen"].item(),
        weights.indices[:size][order],
        precision,
        fade * fade * weights.squares[:size][order] if keeps_squares else precision.copy(),
        fade * weights.sums[:size, 0, MOMENT][order],
        bool(weights.counters[LONG_ROWS] > 0),
        arrays.tally["clock"].item(),
        arrays.tally["held"].item(),
        *(arrays.tally[name].item() for name in COUNTERS_OF_ERRORS),
    )


def write_belief(arrays: PolicyArrays, belief: DiagonalBelief) -> Weights:
    """Write a checked belief to the counters, and return its weights."""
    size = belief.indices.size
    weights = make_room(make_blank_weights(belief.memory), size)
    weights.indices[:size] = belief.indices
    weights.sums[:size, 0, PRECISION] = belief.precision
    weights.sums[:size, 0, MOMENT] = belief.moment
    if weights.squares.size:
        weights.squares[:size] = belief.noise_precision
    weights.counters[WEIGHTS] = size
    weights.counters[LONG_ROWS] = belief.has_long_rows
    index_slots(weights)
    arrays.tally["seen"] = belief.seen
    arrays.tally["clock"] = belief.clock
    arrays.tally["held"] = belief.held
    for name in COUNTERS_OF_ERRORS:
        arrays.tally[name] = getattr(belief, name)
    return weights
