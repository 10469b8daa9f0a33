"""The Parquet file that `windvane export` writes, up to the newest version of its schema.

The JSON of features is read only if somebody asks for the features of a row. Then it is read for
the whole batch.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import polars as pl

from windvane.errors import FeatureError, FileError
from windvane.evaluation.log_batch import DecisionFeatures, LogBatch, LoggedAction
from windvane.evaluation.readers.file_log import FilePart, FileReader
from windvane.evaluation.readers.frames import (
    TableFrame,
    explain_polars_errors,
    find_eligible,
    flatten_lists,
    iterate_parquet_slices,
    read_parquet_schema,
    read_parquet_slice,
    to_booleans,
    to_floats,
)
from windvane.evaluation.readers.rows import (
    NEVER_ACTIVATED,
    LoggedSlot,
    RowReport,
    select_rows,
    split_pages,
)

NEWEST_SCHEMA_VERSION = 2
REQUIRED = ("event_id", "time", "chosen", "probabilities", "reward")
OPTIONAL = ("schema_version", "excluded", "defaulted", "degraded", "deferred", "activated")
FEATURES = ("actions", "context_json", "actions_json")
SLOTS = (  # of pages, which `windvane export` writes from schema version 2 on
    *("slot_ids", "slot_features_json", "slot_excluded", "slot_chosen", "slot_probabilities"),
    *("slot_rewards", "slot_defaulted", "slot_baseline", "reward_model"),
)

_decode_json = msgspec.json.decode


def is_windvane_export(names: Sequence[str]) -> bool:
    return {*REQUIRED, "actions", "round", "mode"} <= set(names)


class WindvaneParquetReader(FileReader):
    def read_parts(self, path: Path, report: RowReport, batch_rows: int) -> Iterator[FilePart]:
        names = read_parquet_schema(path).names()
        if missing := [name for name in REQUIRED if name not in names]:
            message = f"{path}: an export of Windvane must have the column {missing[0]}"
            raise FileError(message)
        has_features = all(name in names for name in FEATURES)
        columns = [*REQUIRED, *(name for name in OPTIONAL if name in names)]
        if "excluded" in columns:
            columns.append("actions")
        if has_features:
            columns += [name for name in SLOTS if name in names]
        for part in iterate_parquet_slices(path, columns, batch_rows):
            with explain_polars_errors(path):
                _check_version(path, part.frame)
                batch = _drop_not_activated(
                    _make_batch(path, part, has_features), part.frame, report
                )
                if "slot_ids" in part.frame.columns and part.frame["slot_ids"].count():
                    pages = [_list_slots(row) for row in part.frame.iter_rows(named=True)]
                    first = int(part.lines[0])
                    batch, _ = split_pages(batch, [pages[line - first] for line in batch.lines])
            yield FilePart(batch, part.share)


def _list_slots(row: Mapping[str, Any]) -> list[LoggedSlot]:
    """The slots of a page; none of a decision without slots."""
    ids = row["slot_ids"] or []
    is_slate = row["reward_model"] == "sum"
    return [
        LoggedSlot(
            id_,
            _decode_json(row["slot_features_json"][place]),
            row["slot_excluded"][place],
            row["slot_chosen"][place],
            row["slot_probabilities"][place],
            row["reward"] if is_slate else row["slot_rewards"][place],
            row["defaulted"] if is_slate else row["slot_defaulted"][place],
            is_slate,
            row["slot_baseline"][place],
        )
        for place, id_ in enumerate(ids)
    ]


class ExportedFeatures:
    """The features of the rows of a slice, read from the file when the first is asked for."""

    def __init__(self, path: Path, first: int, count: int) -> None:
        self._path, self._first, self._count = path, first, count
        self._frame: pl.DataFrame | None = None

    def __call__(self, row: int) -> DecisionFeatures:
        if self._frame is None:
            self._frame = read_parquet_slice(self._path, FEATURES, self._first, self._count)
        ids, context, actions = self._frame.row(row)
        try:
            objects = _decode_json(context)
            sent = _decode_json(actions)
        except (msgspec.DecodeError, RecursionError, TypeError) as error:
            raise FeatureError(f"features of row {self._first + row}: {error}") from None
        return DecisionFeatures(objects, _join_actions(ids, sent))


def _join_actions(ids: Sequence[str], sent: object) -> list[LoggedAction]:
    """The actions of a decision, with the features that the client sent for them."""
    objects = [each for each in sent if isinstance(each, dict)] if isinstance(sent, list) else []
    named = [each for each in objects if isinstance(each.get("id"), str)]
    features = {each["id"]: each.get("features") or [] for each in named}
    return [LoggedAction(id_, features.get(id_, [])) for id_ in ids]


def _check_version(path: Path, frame: pl.DataFrame) -> None:
    if "schema_version" in frame.columns and len(frame):
        newest = frame["schema_version"].max()
        if isinstance(newest, int) and newest > NEWEST_SCHEMA_VERSION:
            raise FileError(
                f"{path}: schema_version must be at most {NEWEST_SCHEMA_VERSION}, got {newest}: "
                "a later version of Windvane wrote the file"
            )


def _make_batch(path: Path, part: TableFrame, has_features: bool) -> LogBatch:
    frame, first = part.frame, int(part.lines[0]) - 1
    probabilities, counts = flatten_lists(frame["probabilities"])
    starts = np.concatenate([[0], np.cumsum(counts)])
    return LogBatch(
        event_ids=frame["event_id"].fill_null("").to_list(),
        times=to_floats(frame["time"].dt.timestamp("us") / 1e6),
        rewards=to_floats(frame["reward"]),
        chosen=frame["chosen"].fill_null(-1).to_numpy().astype(np.int64),
        starts=starts,
        probabilities=probabilities,
        is_eligible=find_eligible(
            frame["excluded"] if "excluded" in frame.columns else None,
            starts,
            lambda row: frame["actions"][row].to_list(),
        ),
        multiplicities=np.ones(len(frame)),
        is_defaulted=to_booleans(frame, "defaulted"),
        is_degraded=to_booleans(frame, "degraded"),
        lines=part.lines,
        source=str(path),
        read_features=ExportedFeatures(path, first, len(frame)) if has_features else None,
    )


def _drop_not_activated(batch: LogBatch, frame: pl.DataFrame, report: RowReport) -> LogBatch:
    """Leave out deferred decisions that were not activated: nobody saw them."""
    if "deferred" not in frame.columns or "activated" not in frame.columns:
        return batch
    is_hidden = to_booleans(frame, "deferred") & ~to_booleans(frame, "activated")
    if not is_hidden.any():
        return batch
    report.note(NEVER_ACTIVATED, int(is_hidden.sum()))
    return select_rows(batch, np.flatnonzero(~is_hidden))
