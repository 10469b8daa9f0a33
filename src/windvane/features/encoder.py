"""Encode the context and the actions of a rank request as one vector for each action.

`json_reader` defines which JSON is accepted, `hashing` how names and numbers become a vector. The
id of an action is one of its categories. Actions without features therefore differ by their id, and
the estimate of a new action starts without observations.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from windvane import validation
from windvane.errors import SettingError
from windvane.features.hashing import cross_parts, hash_rows, weigh_parts
from windvane.features.json_reader import (
    Contribution,
    FeatureList,
    JsonObjects,
    label_parts,
    name_crossing,
)
from windvane.features.packed_features import (
    BYTES_PER_NUMBER,
    MAX_CROSSINGS,
    Action,
    PackedActions,
    join_sides,
    pack_actions,
    read_action,
)
from windvane.types import Floats, Places

ENCODING_VERSION = 1  # increases whenever the same features would get another vector
MAX_DIM = 2**16
MAX_CONTRIBUTIONS = 1000  # that are listed one by one
REST = "all smaller contributions"


@dataclass(frozen=True)
class Encoder:
    """Encodes JSON features as vectors of `dim` numbers, with the same bits on every machine."""

    dim: int = 128
    version: int = ENCODING_VERSION

    def __post_init__(self) -> None:
        if validation.whole("Encoder", "dim", self.dim, least=2) > MAX_DIM:
            raise SettingError(f"Encoder: dim must be at most {MAX_DIM}, got {self.dim}")
        if self.version != ENCODING_VERSION:
            raise SettingError(f"Encoder: version must be {ENCODING_VERSION}, got {self.version!r}")

    def encode(self, context: JsonObjects, actions: Sequence[Action] | PackedActions) -> Floats:
        """Encode a request: one row for each action, (K, d), each of length 1 at most."""
        packed = actions if isinstance(actions, PackedActions) else pack_actions(actions)
        return hash_rows(*join_sides(context, packed), self.dim)

    def explain(
        self, theta: npt.ArrayLike, context: JsonObjects, actions: Sequence[Action], index: int
    ) -> list[Contribution]:
        """List the contributions to xᵀθ of one action, the largest first; xᵀθ is their sum.

        Beyond `MAX_CONTRIBUTIONS` the smallest are one contribution, named `REST`, at the end.
        """
        table = self._tabulate(theta, context, [actions[index]], with_category=True)
        amounts = table.amounts[:, 0]
        order = np.argsort(-np.abs(amounts), kind="stable")
        contributions = [
            Contribution(table.name_row(int(row)), float(amounts[row]))
            for row in order[:MAX_CONTRIBUTIONS]
        ]
        if len(order) > MAX_CONTRIBUTIONS:
            rest = float(amounts[order[MAX_CONTRIBUTIONS:]].sum())
            contributions.append(Contribution(REST, rest))
        return contributions

    def measure_importance(
        self,
        theta: npt.ArrayLike,
        requests: Iterable[tuple[JsonObjects, Sequence[Action]]],
        max_crossings: int = MAX_CROSSINGS,
    ) -> list[Contribution]:
        """List the features by how much they distinguish the actions of the given requests.

        The importance of a feature is the mean absolute deviation of its contribution from its mean
        over the actions of a request: what all actions share, such as the context alone, affects no
        choice. All categories of a feature count under its name. A request whose crossings would
        exceed `max_crossings`, together with those of the requests before it, is left out.
        """
        total: defaultdict[str, float] = defaultdict(float)
        action_count = 0
        room = max_crossings
        for context, actions in requests:
            crossings = _count_crossings(context, actions)
            if crossings > room:
                continue
            room -= crossings
            table = self._tabulate(theta, context, actions, with_category=False)
            action_count += len(actions)
            means = table.amounts.mean(axis=1, keepdims=True)
            deviations = np.abs(table.amounts - means).sum(axis=1)
            for row, deviation in enumerate(deviations.tolist()):
                total[table.name_row(row)] += deviation
        importances = [Contribution(name, amount / action_count) for name, amount in total.items()]
        return sorted(importances, key=lambda contribution: -contribution.amount)

    def _tabulate(
        self,
        theta: npt.ArrayLike,
        context: JsonObjects,
        actions: Sequence[Action],
        with_category: bool,
    ) -> "_ContributionTable":
        """Sum the contributions to xᵀθ by labels of action and context, for each action."""
        estimate = np.asarray(theta, np.float64)  # (d,)
        if estimate.shape != (self.dim,):
            raise SettingError(f"Encoder: theta must be {self.dim} numbers, got {estimate.shape}")
        sides = join_sides(context, pack_actions(actions))
        rows = hash_rows(*sides, self.dim)
        part_hashes, weights, ends = weigh_parts(*sides)
        context_numbers: dict[str, int] = {}
        action_numbers: dict[str, int] = {}
        context_places = _number_labels(
            ["", *label_parts("context", FeatureList("the context", context), with_category)],
            context_numbers,
        )
        action_places = [
            _number_labels(["", *label_parts("action", features, with_category)], action_numbers)
            for features in (read_action(action.id, action.features) for action in actions)
        ]
        width = len(context_numbers)
        amounts = np.empty((len(action_numbers) * width, len(actions)))
        for k, places in enumerate(action_places):
            indices, values = cross_parts(
                part_hashes, weights, ends[0], ends[k], ends[k + 1], self.dim
            )
            scale = rows[k, 0] / values[0]  # index 0 holds only the constant
            pairs = (places[:, None] * width + context_places).ravel()
            parts = scale * values * estimate[indices]
            amounts[:, k] = np.bincount(pairs, parts, len(amounts))
        return _ContributionTable(list(context_numbers), list(action_numbers), amounts)


class _ContributionTable(NamedTuple):
    """What each pair of an action's and a context's label contributes to xᵀθ of each action."""

    context_labels: list[str]
    action_labels: list[str]
    amounts: Floats  # (pairs, K), all pairs of the first action label first

    def name_row(self, row: int) -> str:
        """The name of the pair in a row."""
        action, context = divmod(row, len(self.context_labels))
        return name_crossing(self.context_labels[context], self.action_labels[action])


def _number_labels(labels: list[str], numbers: dict[str, int]) -> Places:
    """The number of each label; labels without a number get the next ones."""
    return np.array([numbers.setdefault(label, len(numbers)) for label in labels], np.int64)


def _count_crossings(context: JsonObjects, actions: Sequence[Action]) -> int:
    """How many crossings the context has with all actions, constants included."""
    context_parts = 1 + len(FeatureList("the context", context).numbers)
    packed = pack_actions(actions)
    action_parts = len(actions) + len(packed.numbers) // BYTES_PER_NUMBER
    return context_parts * action_parts
