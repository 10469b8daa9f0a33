"""Which actions each row of a table offers, which of them was chosen, and how likely each was."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from windvane.evaluation.readers.column_mapping import ColumnMapping
from windvane.evaluation.readers.frame_columns import flatten_lists, to_floats
from windvane.evaluation.readers.table_types import TableRows
from windvane.types import Booleans, Floats, Places

if TYPE_CHECKING:
    import polars as pl

MAX_ACTIONS_PER_ROW = 100_000


class Offers(NamedTuple):
    """The offered actions of all rows."""

    starts: Places  # (n + 1,)
    chosen: Places  # (n,)
    flat_ids: "pl.Series"  # of all actions of all rows

    def list_ids(self, row: int) -> list[str]:
        """The ids of the actions of a row."""
        ids: list[str] = self.flat_ids[self.starts[row] : self.starts[row + 1]].to_list()
        return ids


def find_offers(rows: TableRows, mapping: ColumnMapping, ids: Sequence[str]) -> Offers:
    """Find the offered actions; `ids` are those of every row, if no column has them.

    Rows whose chosen action was not offered are refused.
    """
    if not ids:
        _refuse_wrong_sizes(rows, mapping)
    counts, flat_ids = _list_offers(rows, mapping, ids)
    chosen = _find_chosen(rows.frame[mapping.action], counts, flat_ids)
    is_missing = chosen < 0
    if is_missing.any():
        import polars as pl

        actions = rows.frame[mapping.action]
        rows.refuse(
            pl.Series(is_missing),
            lambda row: f"action must be one of those offered, got {str(actions[row])[:60]!r}",
        )
        counts, flat_ids = _list_offers(rows, mapping, ids)
        chosen = chosen[~is_missing]
    return Offers(np.concatenate([[0], np.cumsum(counts)]), chosen, flat_ids)


def _refuse_wrong_sizes(rows: TableRows, mapping: ColumnMapping) -> None:
    """Refuse rows whose lists have different lengths, or whose count is no whole number."""
    if mapping.count:
        counts = rows.frame[mapping.count]
        rows.refuse(
            (counts != counts.round()) | (counts < 1) | (counts > MAX_ACTIONS_PER_ROW),
            lambda row: f"count must be a whole number >= 1, got {counts[row]:g}",
        )
    if mapping.probabilities:
        sizes = rows.frame[mapping.probabilities].list.len()
        expected = _count_offers(rows.frame, mapping)
        rows.refuse(
            sizes != expected,
            lambda row: f"probabilities must be {expected[row]} numbers, got {sizes[row]}",
        )


def _count_offers(frame: "pl.DataFrame", mapping: ColumnMapping) -> "pl.Series":
    import polars as pl

    if mapping.actions:
        return frame[mapping.actions].list.len()
    if mapping.count:
        return frame[mapping.count].cast(pl.UInt32)
    assert mapping.probabilities is not None
    return frame[mapping.probabilities].list.len()


def _list_offers(
    rows: TableRows, mapping: ColumnMapping, ids: Sequence[str]
) -> tuple[Places, "pl.Series"]:
    """How many actions each row offers, and the ids of all of them."""
    import polars as pl

    frame = rows.frame
    if ids:
        places = np.tile(np.arange(len(ids)), len(frame))
        return np.full(len(frame), len(ids)), pl.Series(ids, dtype=pl.String())[places]
    counts = _count_offers(frame, mapping).to_numpy().astype(np.int64)
    if mapping.actions:
        lists = frame[mapping.actions]
        return counts, lists.filter(lists.list.len() > 0).explode()
    starts = np.concatenate([[0], np.cumsum(counts)])
    places = np.arange(starts[-1]) - np.repeat(starts[:-1], counts)
    return counts, pl.Series(places).cast(pl.String())


def _find_chosen(actions: "pl.Series", counts: Places, flat_ids: "pl.Series") -> Places:
    """The place of each row's action among those offered; −1: it was not offered."""
    rows = np.repeat(np.arange(len(counts)), counts)
    starts = np.concatenate([[0], np.cumsum(counts)])
    matches = np.flatnonzero((flat_ids == actions.gather(rows)).fill_null(False).to_numpy())
    chosen = np.full(len(counts), -1)
    matched = rows[matches][::-1]
    chosen[matched] = (matches[::-1]) - starts[matched]  # the first match is written last
    return chosen


def find_probabilities(
    frame: "pl.DataFrame", mapping: ColumnMapping, offers: Offers, rates: Mapping[str, float]
) -> Floats:
    """The probabilities of all actions of all rows; NaN: not logged.

    If the table has none, they are π(a) = rate(a) / Σ_b rate(b) over the offered actions b.
    """
    if mapping.probabilities:
        return flatten_lists(frame[mapping.probabilities])[0]
    if mapping.probability_columns:
        table = [to_floats(frame[name]) for name in mapping.probability_columns]
        return np.column_stack(table).reshape(-1)
    if mapping.probability:
        probabilities = np.full(offers.starts[-1], np.nan)
        probabilities[offers.starts[:-1] + offers.chosen] = to_floats(frame[mapping.probability])
        return probabilities
    import polars as pl

    flat = offers.flat_ids.replace_strict(
        dict(rates) or {"": 0.0}, default=0.0, return_dtype=pl.Float64()
    ).to_numpy()
    sums = np.add.reduceat(flat, offers.starts[:-1]) if len(flat) else flat
    shares: Floats = flat / np.repeat(sums, np.diff(offers.starts))
    return shares


def find_eligible(frame: "pl.DataFrame", mapping: ColumnMapping, offers: Offers) -> Booleans:
    """Which of all actions of all rows were not excluded."""
    is_eligible = np.ones(offers.starts[-1], np.bool_)
    if mapping.excluded:
        lists = frame[mapping.excluded]
        for row in np.flatnonzero((lists.list.len() > 0).to_numpy()).tolist():
            excluded = set(lists[row])
            first = offers.starts[row]
            for place, id_ in enumerate(offers.list_ids(row)):
                is_eligible[first + place] = id_ not in excluded
    return is_eligible
