"""CSV and Parquet files of anybody, with columns mapped to what a log needs.

If no column has the offered actions, every row offers all actions that the files have. If no column
has probabilities, they are estimated: rate(a) is the share of the rows offering a in which a was
chosen, and π(a) = rate(a) / Σ_b rate(b) over the offered actions b. Both need a first pass over the
files.

The Open Bandit Dataset: CSV files with item_id, position, click and propensity_score.

A row is a decision for one position. The position and the user features are its context. The
features of an item come from the file `item_context.csv` beside the log, if there is one, and from
the affinity of the user to the item.
"""

import csv
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
import polars as pl

from windvane.errors import FeatureError, FileError, SettingError
from windvane.evaluation.log_batch import DecisionFeatures, LogBatch, LoggedAction
from windvane.evaluation.readers.column_mapping import ColumnMapping, map_columns
from windvane.evaluation.readers.file_log import ITEM_FILE, FilePart, FileReader
from windvane.evaluation.readers.frames import (
    TableFrame,
    explain_polars_errors,
    find_eligible,
    flatten_lists,
    iterate_frames,
    parse_numbers,
    read_columns,
    to_booleans,
    to_floats,
    to_polars,
)
from windvane.evaluation.readers.rows import RowReport, parse_time
from windvane.types import Floats, Places

NULL_NUMBERS = ("NA", "null", "NULL", "None", "NaN", "nan")
TRUTHS = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
_decode_texts = msgspec.json.Decoder(list[str | int]).decode
_decode_numbers = msgspec.json.Decoder(list[float]).decode
MAX_ACTIONS_PER_ROW = 100_000
FIRST_PASS_ROWS = 20_000
MAX_SEEN_ACTIONS = 10_000
MAX_BATCH_ACTIONS = 2_000_000  # actions of all rows of a batch
ReadFeatures = Callable[[int], DecisionFeatures]
COLUMNS = {
    "action": "item_id",
    "reward": "click",
    "probability": "propensity_score",
    "time": "timestamp",
    "context": "position:text;user_feature_*:text",
}
AFFINITY = "user-item_affinity_"  # followed by the id of the item
ITEM_FEATURE = "item_feature_"


class TableRows:
    """Rows of a table that get the types of a log column by column."""

    def __init__(self, path: Path, part: TableFrame, report: RowReport) -> None:
        self.path = path
        self.frame = part.frame
        self.lines = part.lines
        self.has_decimal_commas = part.has_decimal_commas
        self.report = report

    def refuse(self, is_bad: pl.Series, describe: Callable[[int], str]) -> None:
        """Report rows and leave them out; `describe` gives the reason for a row."""
        marks = is_bad.fill_null(False).to_numpy()
        if not marks.any():
            return
        for row in np.flatnonzero(marks).tolist():
            self.report.refuse(str(self.path), int(self.lines[row]), describe(row))
        self.frame = self.frame.filter(~is_bad.fill_null(False))
        self.lines = self.lines[~marks]

    def replace(self, key: str, name: str, column: pl.Series, demand: str) -> None:
        """Put a converted column in its place; rows in which only it is null are refused."""
        before = self.frame[name]
        self.frame = self.frame.with_columns(column.alias(name))
        self.refuse(
            column.is_null() & before.is_not_null(),
            lambda row: f"{key} must be {demand}, got {str(before[row])[:60]!r} in column {name}",
        )

    def cast(self, key: str, name: str, kind: pl.DataType, demand: str) -> pl.Series:
        """Cast a column; values that do not fit are null, a column that cannot fit is refused."""
        column = self.frame[name]
        try:
            if column.dtype.is_nested() == kind.is_nested():
                return column.cast(kind, strict=False)
        except pl.exceptions.PolarsError:
            pass
        message = f"{self.path}: {key} must be {demand}"
        raise FileError(f"{message}, got the type {column.dtype} in column {name}")

    def convert_numbers(self, key: str, name: str, is_required: bool = False) -> None:
        """Convert a column to 64-bit floats; NaN becomes null, and true is 1."""
        column = self.frame[name]
        if column.dtype == pl.String:
            column = column.str.strip_chars()
            column = column.set(column.is_in(list(NULL_NUMBERS)), None)
            self.frame = self.frame.with_columns(column.alias(name))
            numbers = parse_numbers(column, self.has_decimal_commas).fill_nan(None)
        else:
            numbers = self.cast(key, name, pl.Float64(), "a number").fill_nan(None)
            self.frame = self.frame.with_columns(numbers.alias(name))  # NaN is no mistake
        self.replace(key, name, numbers, "a number")
        if is_required:
            self.require(key, name)

    def require(self, key: str, name: str) -> None:
        """Refuse the rows in which a column is null."""
        self.refuse(
            self.frame[name].is_null(), lambda row: f"{key} must be known, got nothing in {name}"
        )

    def convert_texts(self, key: str, name: str) -> None:
        self.replace(key, name, self.cast(key, name, pl.String(), "a text"), "a text")

    def convert_booleans(self, key: str, name: str) -> None:
        column = self.frame[name]
        if column.dtype == pl.String:
            lower = column.str.to_lowercase()
            column = lower.replace_strict(TRUTHS, default=None, return_dtype=pl.Boolean)
        else:
            column = self.cast(key, name, pl.Boolean(), "true or false")
        self.replace(key, name, column, "true or false")

    def convert_times(self, key: str, name: str, seconds_per_unit: float) -> None:
        """Convert a column to seconds since 1970."""
        column = self.frame[name]
        if column.dtype == pl.Date:
            column = column.cast(pl.Datetime("us"))
        if isinstance(column.dtype, pl.Datetime):
            seconds = column.dt.timestamp("us") / 1e6
        elif column.dtype == pl.String:
            seconds = column.str.strip_chars().cast(pl.Float64, strict=False) * seconds_per_unit
            if seconds.null_count():
                pairs = zip(seconds.to_list(), column.to_list(), strict=True)
                values = [_parse_time(text) if value is None else value for value, text in pairs]
                seconds = pl.Series(values, dtype=pl.Float64)
        else:
            demand = "a time in ISO 8601 or a number"
            seconds = self.cast(key, name, pl.Float64(), demand) * seconds_per_unit
        self.replace(key, name, seconds, "a time in ISO 8601 or a number")
        self.require(key, name)

    def convert_lists(self, key: str, name: str, are_numbers: bool) -> None:
        """Convert a column to lists of numbers, or of texts; a text is read as JSON."""
        inner = pl.Float64() if are_numbers else pl.String()
        column = self.frame[name]
        if column.dtype == pl.String:
            decode = _decode_numbers if are_numbers else _decode_texts
            lists = [_decode_list(decode, text) for text in column.to_list()]
            if not are_numbers:
                lists = [None if each is None else list(map(str, each)) for each in lists]
            column = pl.Series(lists, dtype=pl.List(inner))
        else:
            column = self.cast(key, name, pl.List(inner), "a list")
        self.replace(key, name, column, "a list")
        self.require(key, name)


def convert_columns(
    rows: TableRows, mapping: ColumnMapping, kinds: Mapping[str, pl.DataType]
) -> None:
    """Convert all mapped columns; `kinds` are the types of the columns with features."""
    numbers = partial(rows.convert_numbers, is_required=True)
    ids = partial(rows.convert_lists, are_numbers=False)
    rows.convert_texts("action", mapping.action)
    rows.require("action", mapping.action)
    rows.convert_numbers("reward", mapping.reward)
    for name in mapping.probability_columns:
        rows.convert_numbers("probabilities", name)
    conversions: dict[str, Callable[[str, str], None]] = {
        "probability": numbers,
        "probabilities": partial(rows.convert_lists, are_numbers=True),
        "count": numbers,
        "actions": ids,
        "excluded": ids,
        "time": partial(rows.convert_times, seconds_per_unit=mapping.seconds_per_unit),
        "event_id": rows.convert_texts,
        "multiplicity": numbers,
        "defaulted": rows.convert_booleans,
    }
    for key, convert in conversions.items():
        if name := getattr(mapping, key):
            convert(key, name)
    for name in (*mapping.context, *mapping.others):
        if kinds[name].is_numeric():
            rows.convert_numbers("context", name)
        elif kinds[name] == pl.Boolean():
            rows.convert_booleans("context", name)
        elif not kinds[name].is_nested():
            rows.convert_texts("context", name)


def _parse_time(text: str | None) -> float | None:
    try:
        return None if text is None else parse_time(text.strip())
    except ValueError:
        return None


def _decode_list(
    decode: Callable[[str], Sequence[object]], text: str | None
) -> Sequence[object] | None:
    try:
        return None if text is None else decode(text)
    except (msgspec.MsgspecError, RecursionError):
        return None


class Offers(NamedTuple):
    """The offered actions of all rows."""

    starts: Places  # (n + 1,)
    chosen: Places  # (n,)
    flat_ids: pl.Series  # of all actions of all rows

    def list_ids(self, row: int) -> list[str]:
        return self.flat_ids[self.starts[row] : self.starts[row + 1]].to_list()


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


def _count_offers(frame: pl.DataFrame, mapping: ColumnMapping) -> pl.Series:
    if mapping.actions:
        return frame[mapping.actions].list.len()
    if mapping.count:
        return frame[mapping.count].cast(pl.UInt32)
    if mapping.probabilities:
        return frame[mapping.probabilities].list.len()
    return pl.zeros(len(frame), dtype=pl.UInt32, eager=True)  # no row of the files can be used


def _list_offers(
    rows: TableRows, mapping: ColumnMapping, ids: Sequence[str]
) -> tuple[Places, pl.Series]:
    """How many actions each row offers, and the ids of all of them."""
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


def _find_chosen(actions: pl.Series, counts: Places, flat_ids: pl.Series) -> Places:
    """The place of each row's action among those offered; −1: it was not offered."""
    rows = np.repeat(np.arange(len(counts)), counts)
    starts = np.concatenate([[0], np.cumsum(counts)])
    matches = np.flatnonzero((flat_ids == actions.gather(rows)).fill_null(False).to_numpy())
    chosen = np.full(len(counts), -1)
    matched = rows[matches][::-1]
    chosen[matched] = (matches[::-1]) - starts[matched]  # the first match is written last
    return chosen


def find_probabilities(
    frame: pl.DataFrame, mapping: ColumnMapping, offers: Offers, rates: Mapping[str, float]
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
    flat = offers.flat_ids.replace_strict(
        dict(rates) or {"": 0.0}, default=0.0, return_dtype=pl.Float64()
    ).to_numpy()
    sums = np.add.reduceat(flat, offers.starts[:-1]) if len(flat) else flat
    shares: Floats = flat / np.repeat(sums, np.diff(offers.starts))
    return shares


class TableReader(FileReader):
    """Reads tables in CSV or Parquet files."""

    def __init__(self, paths: Sequence[Path], columns: Mapping[str, str] | None = None) -> None:
        super().__init__(paths)
        self.kinds = self.read_kinds()
        self.requested_columns = columns
        self.mapping = self.map(columns)
        self.has_event_ids = self.mapping.event_id is not None
        self.kinds |= {name: pl.String() for name in self.mapping.texts}
        self.has_times = self.mapping.time is not None
        self.has_fitted_probabilities = not self.mapping.has_probabilities
        numbered = map(str, range(self.mapping.fixed_count))
        self.ids = list(self.mapping.action_ids or numbered)  # [] until they are known
        self.rates: dict[str, float] = {}
        self._is_prepared = False

    def read_kinds(self) -> dict[str, pl.DataType]:
        return read_columns(self.paths[0])

    def iterate_frames(
        self, path: Path, report: RowReport, batch_rows: int
    ) -> Iterator[TableFrame]:
        """Read the mapped columns of a file, some rows at a time."""
        return iterate_frames(path, self.mapping.names, report, batch_rows)

    def map(self, columns: Mapping[str, str] | None) -> ColumnMapping:
        return map_columns(columns, list(self.kinds))

    def with_columns(
        self, names: Sequence[str], rewards: Sequence[str], features: Sequence[str]
    ) -> "TableReader":
        """Keep more columns; names and rewards are no features of the context any more."""
        if missing := [name for name in (*names, *rewards) if name not in self.kinds]:
            have = ", ".join(list(self.kinds)[:20])
            raise SettingError(f"columns: there is no column {missing[0]!r}; there are {have}")
        kept = [*names, *rewards[1:], *(name for name in features if name in self.kinds)]
        mapping = replace(
            self.mapping,
            reward=rewards[0] if rewards else self.mapping.reward,
            context=tuple(n for n in self.mapping.context if n not in (*names, *rewards)),
            others=tuple(dict.fromkeys(kept)),
        )
        other = copy(self)
        other.mapping = mapping
        return other

    def prepare(self) -> None:
        """Read the files once if the actions or their probabilities must be found in them."""
        if self._is_prepared:
            return
        has_offers = self.ids or self.mapping.actions or self.mapping.count
        if not has_offers and not self.mapping.probabilities:
            self.ids = sorted(self._count_actions(with_offers=False)[0])
            if all(id_.isdecimal() for id_ in self.ids):
                self.ids.sort(key=int)
        if self.has_fitted_probabilities:
            chosen, offered = self._count_actions(with_offers=True)
            self.rates = {id_: chosen[id_] / count for id_, count in offered.items()}
        self._is_prepared = True

    def read_parts(self, path: Path, report: RowReport, batch_rows: int) -> Iterator[FilePart]:
        rows_at_once = min(batch_rows, max(1, MAX_BATCH_ACTIONS // max(1, len(self.ids))))
        for rows, share in self._iterate_rows(path, report, rows_at_once):
            offers = find_offers(rows, self.mapping, self.ids)
            yield FilePart(self._make_batch(path, rows, offers), share)

    def make_feature_reader(self, frame: pl.DataFrame, offers: Offers) -> ReadFeatures:
        """Make what reads the features of a row; the ids of the actions are known at least."""
        return TableFeatures(frame, self.mapping, offers)

    def _iterate_rows(
        self, path: Path, report: RowReport, batch_rows: int
    ) -> Iterator[tuple[TableRows, float]]:
        for part in self.iterate_frames(path, report, batch_rows):
            rows = TableRows(path, part, report)
            convert_columns(rows, self.mapping, self.kinds)
            yield rows, part.share

    def _count_actions(self, with_offers: bool) -> tuple[Counter[str], Counter[str]]:
        """Count how many rows of all files chose and how many offered each action."""
        chosen: Counter[str] = Counter()
        offered: Counter[str] = Counter()
        for path in self.paths:
            for rows, _ in self._iterate_rows(path, RowReport(), FIRST_PASS_ROWS):
                if with_offers:
                    offers = find_offers(rows, self.mapping, self.ids)
                    offered.update(_count_values(offers.flat_ids))
                chosen.update(_count_values(rows.frame[self.mapping.action]))
                if len(chosen) > MAX_SEEN_ACTIONS and not with_offers:
                    raise SettingError(
                        f"columns: action must have at most {MAX_SEEN_ACTIONS} different ids, if "
                        "neither actions=COLUMN nor count=COLUMN says which were offered"
                    )
        return chosen, offered

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
            is_eligible=find_eligible(
                frame[mapping.excluded] if mapping.excluded else None,
                offers.starts,
                offers.list_ids,
            ),
            multiplicities=(
                to_floats(frame[mapping.multiplicity]) if mapping.multiplicity else np.ones(count)
            ),
            is_defaulted=to_booleans(frame, mapping.defaulted),
            is_degraded=np.zeros(count, np.bool_),
            lines=lines,
            source=str(path),
            read_features=self.make_feature_reader(frame, offers),
            columns={
                name: to_floats(frame[name])
                if frame[name].dtype.is_numeric()
                else frame[name].to_list()
                for name in mapping.others
            },
        )


class FrameReader(TableReader):
    """Reads a frame in memory, or the lazy one of a query, of which the mapped columns are kept."""

    _kept: pl.DataFrame | None = None

    def __init__(self, source: object, columns: Mapping[str, str] | None) -> None:
        self.frame = to_polars(source)
        with explain_polars_errors(Path("the frame")):
            super().__init__([Path("the frame")], columns)

    def read_kinds(self) -> dict[str, pl.DataType]:
        return dict(self.frame.collect_schema())

    def measure(self, path: Path) -> int:
        """The size of the frame, for the progress: it is one file."""
        return 1

    def iterate_frames(
        self, path: Path, report: RowReport, batch_rows: int
    ) -> Iterator[TableFrame]:
        if self._kept is None or set(self._kept.columns) != set(self.mapping.names):
            self._kept = self.frame.select(self.mapping.names).collect()
        frame = self._kept
        for first in range(0, len(frame), batch_rows):
            part = frame.slice(first, batch_rows)
            numbers = np.arange(first + 1, first + 1 + len(part))
            yield TableFrame(part, numbers, (first + len(part)) / len(frame))


class TableFeatures:
    """The features of the rows of a frame."""

    def __init__(self, frame: pl.DataFrame, mapping: ColumnMapping, offers: Offers) -> None:
        self._frame = frame.select(mapping.context)
        self._texts = frame[mapping.context_json] if mapping.context_json else None
        self._offers = offers

    def __call__(self, row: int) -> DecisionFeatures:
        """Read the features of a row; a null is left out."""
        context = self.read_context(row)
        return DecisionFeatures(context, [LoggedAction(i, []) for i in self._offers.list_ids(row)])

    def read_context(self, row: int) -> list[dict[str, object]]:
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
            if not all(isinstance(each, dict) for each in objects):
                raise FeatureError(f"features of row {row}: context_json must hold objects")
        return objects


def _count_values(column: pl.Series) -> dict[str, int]:
    return dict(column.drop_nulls().value_counts().iter_rows())


def is_open_bandit(names: Sequence[str]) -> bool:
    """Whether a table with these columns is of the Open Bandit Dataset."""
    return {"timestamp", "item_id", "position", "click", "propensity_score"} <= set(names)


class OpenBanditReader(TableReader):
    def __init__(self, paths: Sequence[Path], columns: Mapping[str, str] | None = None) -> None:
        super().__init__(paths)
        self.items = read_items(self.paths[0].with_name(ITEM_FILE))
        self.affinities = {
            name.removeprefix(AFFINITY): name for name in self.kinds if name.startswith(AFFINITY)
        }
        self.ids = list(self.items) or list(self.affinities)

    def map(self, columns: Mapping[str, str] | None) -> ColumnMapping:
        names = list(self.kinds)
        if not is_open_bandit(names):
            raise SettingError("open_log: a file of format obd must have the columns of the data")
        context = COLUMNS["context"]
        if any(name.startswith(AFFINITY) for name in names):
            context += f";{AFFINITY}*"
        return map_columns(COLUMNS | {"context": context}, names)

    def make_feature_reader(self, frame: pl.DataFrame, offers: Offers) -> ReadFeatures:
        table = TableFeatures(frame, self.mapping, offers)

        def read(row: int) -> DecisionFeatures:
            (context,) = table.read_context(row)
            affinities = {id_: context.pop(name, None) for id_, name in self.affinities.items()}
            actions = [
                LoggedAction(id_, [self.items.get(id_, {}), {"affinity": affinities.get(id_)}])
                for id_ in self.ids
            ]
            return DecisionFeatures([context], actions)

        return read


def read_items(path: Path) -> dict[str, dict[str, object]]:
    """Read the features of the items; item_feature_0 is a number, the others are texts."""
    if not path.is_file():
        return {}
    try:
        with path.open(encoding="utf-8", newline="") as file:
            return {
                row["item_id"]: {
                    name: float(text) if name == f"{ITEM_FEATURE}0" else text
                    for name, text in row.items()
                    if name.startswith(ITEM_FEATURE)
                }
                for row in csv.DictReader(file)
            }
    except (AttributeError, KeyError, OSError, TypeError, ValueError, csv.Error):
        message = "must be a CSV file in UTF-8 with item_id and item_feature_0, a number"
        raise FileError(f"{path}: the file {message}") from None
