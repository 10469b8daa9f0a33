"""CSV and Parquet files of anybody, with columns mapped to what a log needs.

If no column has the offered actions, every row offers all actions that the files have. If no column
has probabilities, they are estimated: rate(a) is the share of the rows offering a in which a was
chosen, and π(a) = rate(a) / Σ_b rate(b) over the offered actions b. Both need a first pass over the
files.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import numpy as np

from windvane.errors import FeatureError, SettingError
from windvane.evaluation.log_batch import DecisionFeatures, LogBatch, LoggedAction
from windvane.evaluation.readers.column_mapping import ColumnMapping, map_columns
from windvane.evaluation.readers.file_log import FilePart
from windvane.evaluation.readers.frame_columns import to_booleans, to_floats
from windvane.evaluation.readers.row_report import RowReport
from windvane.evaluation.readers.table_files import iterate_frames, read_columns
from windvane.evaluation.readers.table_offers import (
    Offers,
    find_eligible,
    find_offers,
    find_probabilities,
)
from windvane.evaluation.readers.table_types import TableRows, convert_columns

if TYPE_CHECKING:
    import polars as pl

FIRST_PASS_ROWS = 20_000
MAX_SEEN_ACTIONS = 10_000
MAX_BATCH_ACTIONS = 2_000_000  # of all rows of a batch

FeatureReader = Callable[[int], DecisionFeatures]


class ActionCounts(NamedTuple):
    """How many rows chose and how many offered each action."""

    chosen: Counter[str]
    offered: Counter[str]


class TableReader:
    """Reads tables in CSV or Parquet files."""

    def __init__(self, paths: Sequence[Path], columns: Mapping[str, str] | None) -> None:
        self.paths = list(paths)
        self.kinds = read_columns(self.paths[0])
        self.mapping = self.map(columns)
        self.kinds |= {name: _text() for name in self.mapping.texts}
        self.has_times = self.mapping.time is not None
        self.has_fitted_probabilities = not self.mapping.has_probabilities
        numbered = map(str, range(self.mapping.fixed_count))
        self.ids = list(self.mapping.action_ids or numbered)  # [] until they are known
        self.rates: dict[str, float] = {}
        self._is_prepared = False

    def map(self, columns: Mapping[str, str] | None) -> ColumnMapping:
        """Map the columns of the table."""
        return map_columns(columns, list(self.kinds))

    def prepare(self) -> None:
        """Read the files once if the actions or their probabilities must be found in them."""
        if self._is_prepared:
            return
        has_offers = self.ids or self.mapping.actions or self.mapping.count
        if not has_offers and not self.mapping.probabilities:
            self.ids = sort_ids(self._count_actions(with_offers=False).chosen)
        if self.has_fitted_probabilities:
            counts = self._count_actions(with_offers=True)
            self.rates = {id_: counts.chosen[id_] / n for id_, n in counts.offered.items()}
        self._is_prepared = True

    def read_parts(self, path: Path, report: RowReport, batch_rows: int) -> Iterator[FilePart]:
        """Read a file frame by frame."""
        rows_at_once = min(batch_rows, max(1, MAX_BATCH_ACTIONS // max(1, len(self.ids))))
        for rows, share in self._iterate_rows(path, report, rows_at_once):
            offers = find_offers(rows, self.mapping, self.ids)
            yield FilePart(self._make_batch(path, rows, offers), share)

    def make_feature_reader(self, frame: "pl.DataFrame", offers: Offers) -> FeatureReader | None:
        """Make what reads the features of a row; None if the table has no features."""
        if not self.mapping.context and not self.mapping.context_json:
            return None
        return TableFeatures(frame, self.mapping, offers)

    def _iterate_rows(
        self, path: Path, report: RowReport, batch_rows: int
    ) -> Iterator[tuple[TableRows, float]]:
        for frame, lines, share in iterate_frames(path, self.mapping.names, report, batch_rows):
            rows = TableRows(path, frame, lines, report)
            convert_columns(rows, self.mapping, self.kinds)
            yield rows, share

    def _count_actions(self, with_offers: bool) -> ActionCounts:
        """Count the actions in all files."""
        counts = ActionCounts(Counter(), Counter())
        for path in self.paths:
            for rows, _ in self._iterate_rows(path, RowReport(), FIRST_PASS_ROWS):
                if with_offers:
                    offers = find_offers(rows, self.mapping, self.ids)
                    counts.offered.update(_count_values(offers.flat_ids))
                counts.chosen.update(_count_values(rows.frame[self.mapping.action]))
                if len(counts.chosen) > MAX_SEEN_ACTIONS and not with_offers:
                    raise SettingError(
                        f"columns: action must have at most {MAX_SEEN_ACTIONS} different ids, if "
                        "neither actions=COLUMN nor count=COLUMN says which were offered"
                    )
        return counts

    def _make_batch(self, path: Path, rows: TableRows, offers: Offers) -> LogBatch:
        frame, mapping, lines = rows.frame, self.mapping, rows.lines
        count = len(frame)
        if mapping.event_id:
            event_ids = frame[mapping.event_id].fill_null("").to_list()
        else:
            event_ids = [f"{path.name}:{line}" for line in lines.tolist()]
        return LogBatch(
            event_ids=event_ids,
            times=to_floats(frame[mapping.time]) if mapping.time else np.zeros(count),
            rewards=to_floats(frame[mapping.reward]),
            chosen=offers.chosen,
            starts=offers.starts,
            probabilities=find_probabilities(frame, mapping, offers, self.rates),
            is_eligible=find_eligible(frame, mapping, offers),
            multiplicities=(
                to_floats(frame[mapping.multiplicity]) if mapping.multiplicity else np.ones(count)
            ),
            is_defaulted=to_booleans(frame, mapping.defaulted),
            is_degraded=np.zeros(count, np.bool_),
            lines=lines,
            source=str(path),
            read_features=self.make_feature_reader(frame, offers),
        )


class TableFeatures:
    """The features of the rows of a frame."""

    def __init__(self, frame: "pl.DataFrame", mapping: ColumnMapping, offers: Offers) -> None:
        self._frame = frame.select(mapping.context)
        self._texts = frame[mapping.context_json] if mapping.context_json else None
        self._offers = offers

    def __call__(self, row: int) -> DecisionFeatures:
        """Read the features of a row; a null is left out."""
        context = self.read_context(row)
        return DecisionFeatures(context, [LoggedAction(i, []) for i in self._offers.list_ids(row)])

    def read_context(self, row: int) -> list[dict[str, object]]:
        """Read the context of a row."""
        objects: list[dict[str, object]] = []
        if self._frame.width:
            values = self._frame.row(row, named=True)
            objects.append({name: each for name, each in values.items() if each is not None})
        if self._texts is not None and self._texts[row] is not None:
            try:
                sent = msgspec.json.decode(self._texts[row])
            except (msgspec.MsgspecError, RecursionError) as error:
                raise FeatureError(f"features of row {row}: {error}") from None
            objects += sent if isinstance(sent, list) else [sent]
        return objects


def sort_ids(ids: Iterator[str] | Mapping[str, int]) -> list[str]:
    """Sort ids, as numbers if all of them are."""
    texts = list(ids)
    if all(text.isdecimal() for text in texts):
        return sorted(texts, key=lambda text: (int(text), text))
    return sorted(texts)


def _count_values(column: "pl.Series") -> dict[str, int]:
    return dict(column.drop_nulls().value_counts().iter_rows())


def _text() -> "pl.DataType":
    import polars as pl

    return pl.String()
