"""Vectors for contestants that take no named features: columns for values, standardised numbers."""

from collections.abc import Iterable
from math import sqrt
from zlib import crc32

import numpy as np

import windvane as wv
from benchmarks.streams import Features
from windvane.types import Floats, Places

MOST_COLUMNS = 256  # of a context or an action; more values than this are hashed into as many
MOST_CROSSINGS = 720  # more crossings than this are hashed into HASHED_CROSSINGS
HASHED_CROSSINGS = 256
SPARSE_DIM = 2**22
CROSSING_FACTOR = 1_000_003  # odd, so that crossings of two pairs rarely meet


class VectorEncoder:
    """Encodes features as a constant, a column for each value, and a column for each number.

    The columns are those of a sample of features, as if the user knew them. A single number is
    standardised by the mean and the deviation of those seen so far; arrays are taken as they are.
    """

    def __init__(self, sample: Iterable[Features], skip: tuple[str, ...] = ()) -> None:
        self.skip = skip
        names = dict.fromkeys(name for features in sample for name in self._list_names(features))
        self.is_hashed = len(names) >= MOST_COLUMNS
        self.columns = {} if self.is_hashed else {name: 1 + k for k, name in enumerate(names)}
        self.width = MOST_COLUMNS if self.is_hashed else 1 + len(names)
        self._seen: dict[str, tuple[int, float, float]] = {}  # count, mean, sum of squares

    def encode(self, features: Features) -> Floats:
        """Return the vector of a context or an action, (width,)."""
        vector = np.zeros(self.width)
        vector[0] = 1.0
        for name, value in features.items():
            if name in self.skip:
                continue
            if isinstance(value, str):
                vector[self._find_column(f"{name}={value}")] += 1.0
            elif isinstance(value, list) and isinstance(value[0], str):
                for word in value:
                    vector[self._find_column(f"{name}={word}")] += 1.0
            elif isinstance(value, list):
                start = self._find_column(f"{name}_0")
                vector[start : start + len(value)] += value
            else:
                vector[self._find_column(name)] += self.standardise(name, float(value))
        return vector

    def _list_names(self, features: Features) -> Iterable[str]:
        """List the names of the columns that features need."""
        for name, value in features.items():
            if name in self.skip:
                continue
            if isinstance(value, str):
                yield f"{name}={value}"
            elif isinstance(value, list) and isinstance(value[0], str):
                yield from (f"{name}={word}" for word in value)
            elif isinstance(value, list):
                yield from (f"{name}_{k}" for k in range(len(value)))
            else:
                yield name

    def _find_column(self, name: str) -> int:
        """Return the column of a name; a name that was not in the sample is hashed."""
        column = self.columns.get(name)
        return 1 + crc32(name.encode()) % (self.width - 1) if column is None else column

    def standardise(self, name: str, value: float) -> float:
        """Return a number in deviations from the mean of all that came before, itself included."""
        count, mean, squares = self._seen.get(name, (0, 0.0, 0.0))
        count += 1
        step = value - mean
        mean += step / count
        squares += step * (value - mean)
        self._seen[name] = (count, mean, squares)
        return (value - mean) / sqrt(squares / count) if squares > 0 else 0.0


class CrossingEncoder:
    """Encodes a context with each offered action as the products of their columns, (K, dim)."""

    def __init__(self, contexts: VectorEncoder, actions: VectorEncoder) -> None:
        self.contexts, self.actions = contexts, actions
        crossings = contexts.width * actions.width
        self.is_hashed = crossings > MOST_CROSSINGS
        self.dim = HASHED_CROSSINGS if self.is_hashed else crossings
        random = np.random.default_rng(1)
        self._places = random.integers(self.dim, size=crossings)
        self._signs = random.choice([-1.0, 1.0], size=crossings)
        self._vectors: dict[str, Floats] = {}

    def encode(self, context: Features, actions: list[Features]) -> Floats:
        """Return one row for each action."""
        vector = self.contexts.encode(context)
        rows = np.zeros((len(actions), self.dim))
        for row, action in zip(rows, actions, strict=True):
            products = np.outer(self._encode_action(action), vector).ravel()
            if self.is_hashed:
                used = products.nonzero()[0]
                np.add.at(row, self._places[used], products[used] * self._signs[used])
            else:
                row[:] = products
        return rows

    def _encode_action(self, action: Features) -> Floats:
        """Return the vector of an action, made once for each id."""
        vector = self._vectors.get(action["id"])
        if vector is None:
            vector = self._vectors[action["id"]] = self.actions.encode(action)
        return vector


class SparseEncoder:
    """Encodes a context with each offered action as hashed indices and values.

    A row has a constant, the context's features, the action's features and their products.
    """

    def __init__(self) -> None:
        self.dim = SPARSE_DIM
        self._numbers = VectorEncoder([])
        self._actions: dict[str, tuple[Places, Floats]] = {}

    def encode(self, context: Features, actions: list[Features]) -> wv.SparseRows:
        """Return one row for each action."""
        places, values = self._hash_features("context", context)
        pairs = []
        for action in actions:
            known = self._actions.get(action["id"])
            if known is None:
                known = self._actions[action["id"]] = self._hash_features("action", action)
            crossed = (places[:, None] * CROSSING_FACTOR + known[0]) % self.dim
            indices = np.concatenate([[0], places, known[0], crossed.ravel()])
            products = np.outer(values, known[1]).ravel()
            used, where = np.unique(indices, return_inverse=True)
            entries = np.concatenate([[1.0], values, known[1], products])
            pairs.append((used, np.bincount(where, entries)))
        return wv.SparseRows.from_pairs(pairs)

    def _hash_features(self, side: str, features: Features) -> tuple[Places, Floats]:
        """Return the hashed places of features and their values."""
        places: list[int] = []
        values: list[float] = []
        for name, value in features.items():
            if isinstance(value, str):
                named = {f"{name}={value}": 1.0}
            elif isinstance(value, list):
                named = {f"{name}_{k}": float(number) for k, number in enumerate(value)}
            else:
                named = {name: self._numbers.standardise(f"{side} {name}", float(value))}
            places += [crc32(f"{side} {key}".encode()) % self.dim for key in named]
            values += named.values()
        return np.array(places, np.int64), np.array(values)
