"""The features of some rows of a log, parsed and encoded once for all candidates.

Only actions that the request did not exclude are encoded, so that a place among the actions of a
block differs from the place in the log if actions were excluded.
"""

from collections.abc import Iterator

import numpy as np

from windvane._numba.compilation import compiled_in_order
from windvane.beliefs.bank.feature_parts import PackedSides
from windvane.beliefs.diagonal.sparse_rows import CheckedRows, SparseRows, read_arms
from windvane.errors import FeatureError
from windvane.evaluation.estimates.confidence_sequence import ActionModel
from windvane.evaluation.learners.own_policies import Offer, make_offer, read_row
from windvane.evaluation.log_batch import DecisionFeatures, LogBatch
from windvane.features.hashing import cross_parts, weigh_parts
from windvane.features.packed_features import Encoder, PackedActions, join_sides, pack_actions
from windvane.learner import Learner
from windvane.types import Floats, Places, UnsignedIntegers

MAX_BLOCK_ACTIONS = 4096  # actions of all rows: 4 MiB if an action has 128 numbers


class FeatureBlock:
    """Rows of a log with their features; encodings are made when a candidate first needs them."""

    def __init__(self, batch: LogBatch, rows: Places) -> None:
        self.rows = rows  # (n,) places in the batch
        self.times = batch.times[rows]
        self.rewards = batch.rewards[rows]
        self.multiplicities = batch.multiplicities[rows]
        self.probabilities = batch.chosen_probabilities[rows]  # (n,) of the chosen actions
        self.chosen, self.starts = _find_chosen(batch, rows)  # places in this block
        self.places = _find_eligible(batch, rows)  # (actions,) in the flat columns of the batch
        self.logged = batch.probabilities[self.places]  # (actions,)
        self.slots = None if batch.slots is None else batch.slots[rows]  # (n,)
        self._batch = batch
        self._packed: list[tuple[DecisionFeatures, PackedActions]] = []
        self._sides: dict[tuple[str, int], list[PackedSides]] = {}
        self._dense: dict[int, Floats] = {}
        self._sparse: dict[int, list[CheckedRows]] = {}

    @property
    def page_starts(self) -> list[int]:
        """The first row of each page, and the number of rows."""
        if self.slots is None:
            return list(range(self.rows.size + 1))
        return [*np.flatnonzero(self.slots == 0).tolist(), self.rows.size]

    def make_action_model(self, probabilities: Floats, predictions: Floats) -> ActionModel:
        """What a policy and a model of the rewards say of all actions of the block."""
        return ActionModel(predictions, probabilities, self.logged, self.starts, self.chosen)

    def get_dense(self, dim: int) -> Floats:
        """All actions of all rows as vectors, (actions, dim)."""
        if dim not in self._dense:
            encoder = Encoder(dim)
            rows = [encoder.encode(features.context, actions) for features, actions in self._pack()]
            self._dense[dim] = np.concatenate(rows) if rows else np.empty((0, dim))
        return self._dense[dim]

    def get_sparse(self, dim: int) -> list[CheckedRows]:
        """The hashed features of the actions of each row."""
        if dim not in self._sparse:
            sides = [join_sides(features.context, actions) for features, actions in self._pack()]
            rows = [SparseRows(*hash_sparsely(*each, dim)) for each in sides]
            self._sparse[dim] = [read_arms("evaluate", each, dim) for each in rows]
        return self._sparse[dim]

    def get_sides(self, learner: Learner) -> list[PackedSides]:
        """The packed features of each row, as a learner reads them; alike learners share them."""
        key = learner.crossings, learner.array_size
        if key not in self._sides:
            self._sides[key] = [
                learner.join(features.context, actions) for features, actions in self._pack()
            ]
        return self._sides[key]

    def get_offers(self) -> list[Offer]:
        """What each row was about, as a program takes it."""
        return [make_offer(self._batch, row) for row in self.rows.tolist()]

    def _pack(self) -> list[tuple[DecisionFeatures, PackedActions]]:
        if not self._packed:
            batch = self._batch
            for row in self.rows.tolist():
                features = read_row(batch, row)
                eligible = batch.is_eligible[batch.starts[row] : batch.starts[row + 1]]
                actions = features.actions
                if not eligible.all():
                    actions = [actions[k] for k in np.flatnonzero(eligible).tolist()]
                try:
                    self._packed.append((features, pack_actions(actions)))
                except FeatureError as error:
                    line = int(batch.lines[row])
                    raise FeatureError(f"{batch.source}, line {line}: {error}") from None
        return self._packed


def split_blocks(batch: LogBatch, rows: Places) -> Iterator[FeatureBlock]:
    """Split rows into blocks whose encoded actions fit into memory, the same for any candidate.

    A page with several slots is never split.
    """
    actions = batch.action_counts[rows]
    first = 0
    while first < rows.size:
        totals = np.cumsum(actions[first : first + MAX_BLOCK_ACTIONS])
        count = max(1, int(np.searchsorted(totals, MAX_BLOCK_ACTIONS, "right")))
        while batch.slots is not None and batch.slots[rows[first + count :][:1]].any():
            count += 1
        yield FeatureBlock(batch, rows[first : first + count])
        first += count


def _find_chosen(batch: LogBatch, rows: Places) -> tuple[Places, Places]:
    """Find the chosen action among those not excluded, and where each row begins in a block.

    A chosen action that was excluded has the place −1.
    """
    counts_before = np.concatenate(([0], np.cumsum(batch.is_eligible)))
    first, last = batch.starts[rows], batch.starts[rows + 1]
    places = first + batch.chosen[rows]
    chosen = np.where(batch.is_eligible[places], counts_before[places] - counts_before[first], -1)
    starts = np.concatenate(([0], np.cumsum(counts_before[last] - counts_before[first])))
    return chosen.astype(np.int64), starts.astype(np.int64)


def _find_eligible(batch: LogBatch, rows: Places) -> Places:
    """The places of all actions of these rows that were not excluded."""
    counts = batch.action_counts[rows]
    shifts = np.repeat(batch.starts[rows] - np.concatenate(([0], np.cumsum(counts[:-1]))), counts)
    places = np.arange(counts.sum()) + shifts
    return places[batch.is_eligible[places]]


@compiled_in_order
def hash_sparsely(
    hashes: UnsignedIntegers, numbers: Floats, sizes: Places, feature_counts: Places, dim: int
) -> tuple[Places, Floats, Places]:
    """Compute the entries of each action's row, and where they end, as `hash_rows` does densely."""
    part_hashes, weights, ends = weigh_parts(hashes, numbers, sizes, feature_counts)
    count = feature_counts.size - 1
    row_ends = np.empty(count, np.int64)
    total = 0
    for k in range(count):
        total += ends[0] * (ends[k + 1] - ends[k])
        row_ends[k] = total
    indices, values = np.empty(total, np.int64), np.empty(total)
    place = 0
    for k in range(count):
        row_indices, row_values = cross_parts(
            part_hashes, weights, ends[0], ends[k], ends[k + 1], dim
        )
        for i in range(row_indices.size):
            indices[place] = row_indices[i]
            values[place] = row_values[i]
            place += 1
    return indices, values, row_ends
