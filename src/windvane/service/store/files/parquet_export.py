"""Export of a loop's log to a Parquet file: decisions, their probabilities, learned rewards.

docs/how-to/read-logs.md has the meaning of every column. A column that is added, removed or gets
another meaning increases `EXPORT_SCHEMA_VERSION`.
"""

import math
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from windvane.errors import FileError, SettingError
from windvane.persistence import check_parquet_path, replace_file
from windvane.service.store.database import check_output
from windvane.service.store.decision_queries import (
    DecisionColumns,
    LoggedPage,
    Requests,
    SlotParts,
    count_decisions,
    iterate_batches,
    read_pages,
)
from windvane.service.store.log import LogReader
from windvane.service.store.rows import decode_action_ids

EXPORT_SCHEMA_VERSION = 2
ROW_GROUP_ROWS = 30_000  # larger groups take more memory
Report = Callable[[int, int], None]  # takes how many decisions are written, and of how many

SCHEMA = pl.Schema(
    {
        "event_id": pl.String(),
        "time": pl.Datetime("us", "UTC"),
        "round": pl.Int64(),
        "mode": pl.String(),
        "action": pl.String(),
        "chosen": pl.Int64(),
        "probability": pl.Float64(),
        "actions": pl.List(pl.String()),
        "probabilities": pl.List(pl.Float64()),
        "reward": pl.Float64(),
        "defaulted": pl.Boolean(),
        "deferred": pl.Boolean(),
        "activated": pl.Boolean(),
        "degraded": pl.Boolean(),
        "context_json": pl.String(),
        "actions_json": pl.String(),
        "excluded": pl.List(pl.String()),
        "slot_ids": pl.List(pl.String()),
        "slot_chosen": pl.List(pl.Int64()),
        "slot_probability": pl.List(pl.Float64()),
        "slot_probabilities": pl.List(pl.List(pl.Float64())),
        "slot_rewards": pl.List(pl.Float64()),
        "slot_defaulted": pl.List(pl.Boolean()),
        "slot_baseline": pl.List(pl.Int64()),
        "slot_excluded": pl.List(pl.List(pl.String())),
        "slot_features_json": pl.List(pl.String()),
        "reward_model": pl.String(),
        "joint_probability": pl.Float64(),
        "schema_version": pl.Int64(),
    }
)


def export_log(log: LogReader, loop_name: str, path: Path, report: Report | None = None) -> int:
    """Write the log of a loop to a file, completely or not at all; returns how many decisions."""
    check_output(log.url, path)
    check_parquet_path(path)
    loop = log.find_loop(loop_name)
    if loop is None:
        raise SettingError(f"export: there is no loop {loop_name!r}")
    decision_count = 0
    try:
        with (
            tempfile.TemporaryDirectory(dir=path.parent, prefix=".export-") as directory,
            replace_file(path, private=True) as draft,
        ):
            total = count_decisions(log, loop.id)
            for part, (batch, requests) in enumerate(iterate_batches(log, loop.id)):
                pages = read_pages(log, dict(zip(batch.id, batch.slots, strict=True)))
                frame = _make_frame(batch, requests, pages)
                frame.write_parquet(Path(directory) / f"{part:09d}.parquet", compression="lz4")
                decision_count += len(batch.id)
                if report is not None:
                    report(decision_count, max(total, decision_count))
            if decision_count:
                parts = pl.scan_parquet(Path(directory) / "*.parquet")
                parts.sink_parquet(draft, row_group_size=ROW_GROUP_ROWS)
            else:
                pl.DataFrame(schema=SCHEMA).write_parquet(draft)
    except OSError as error:
        raise FileError(f"export: {path} cannot be written ({error.strerror})") from None
    return decision_count


def _make_frame(
    batch: DecisionColumns, requests: Requests, pages: Mapping[int, LoggedPage]
) -> pl.DataFrame:
    found = [pages.get(id_) for id_ in batch.id]
    rewards = zip(batch.reward, found, strict=True)
    ids = [decode_action_ids(offer.ids) for offer in requests.offers]
    texts = [offer.actions for offer in requests.offers]
    frame = pl.DataFrame(
        {
            "event_id": batch.event_id,
            "time": batch.at,
            "round": batch.round,
            "mode": batch.mode,
            "chosen": batch.chosen,
            "actions": pl.Series(ids, dtype=pl.List(pl.String())).gather(requests.offer_numbers),
            "probabilities": _make_lists(batch.probabilities),
            "reward": pl.Series(
                [reward if page is None else page.reward for reward, page in rewards],
                dtype=pl.Float64(),
            ),
            "defaulted": [kind == "default" for kind in batch.first_kind],
            "deferred": batch.deferred,
            "activated": [at is not None for at in batch.activated_at],
            "degraded": batch.degraded,
            "context_json": requests.contexts,
            "actions_json": pl.Series(texts, dtype=pl.String()).gather(requests.offer_numbers),
            "excluded": pl.Series(requests.excluded, dtype=pl.List(pl.String())),
            **_make_slot_columns(found, requests.slots),
        }
    )
    frame = frame.with_columns(
        action=pl.col("actions").list.get(pl.col("chosen")),
        probability=pl.col("probabilities").list.get(pl.col("chosen")),
        time=pl.col("time").cast(pl.Datetime("us")).dt.replace_time_zone("UTC"),
        deferred=pl.col("deferred").cast(pl.Boolean()),
        degraded=pl.col("degraded").cast(pl.Boolean()),
        schema_version=pl.lit(EXPORT_SCHEMA_VERSION),
    )
    return frame.select(SCHEMA.names()).cast(SCHEMA)


def _make_slot_columns(
    pages: Sequence[LoggedPage | None], parts: Sequence[Sequence[SlotParts]]
) -> dict[str, pl.Series]:
    """The columns of pages, null in the rows of other decisions."""
    rows = [
        {} if page is None else _list_slots(page, sent)
        for page, sent in zip(pages, parts, strict=True)
    ]
    names = [name for name in SCHEMA if name.startswith("slot_")]
    return {
        name: pl.Series([row.get(name) for row in rows], dtype=SCHEMA[name])
        for name in (*names, "reward_model", "joint_probability")
    }


def _list_slots(page: LoggedPage, parts: Sequence[SlotParts]) -> dict[str, Any]:
    probabilities = [np.frombuffer(slot.probabilities).tolist() for slot in page.slots]
    chosen = [slot.chosen for slot in page.slots]
    own = [each[place] for each, place in zip(probabilities, chosen, strict=True)]
    return {
        "slot_ids": [slot.id for slot in page.slots],
        "slot_chosen": chosen,
        "slot_probability": own,
        "slot_probabilities": probabilities,
        "slot_rewards": page.rewards,
        "slot_defaulted": [lesson.is_default for lesson in page.lessons],
        "slot_baseline": [slot.baseline for slot in page.slots],
        "slot_excluded": [each.excluded_actions for each in parts],
        "slot_features_json": [bytes(each.features).decode() for each in parts],
        "reward_model": page.reward_model,
        "joint_probability": math.prod(own),
    }


def _make_lists(blobs: Sequence[bytes]) -> pl.Series:
    """Make a column of lists from the bytes of float64 arrays."""
    sizes = np.array([len(blob) // 8 for blob in blobs])
    flat = np.frombuffer(b"".join(blobs))
    if (sizes == sizes[0]).all():
        return pl.Series(flat.reshape(len(blobs), -1)).arr.to_list()
    rows = np.repeat(np.arange(len(blobs)), sizes)
    lists = pl.DataFrame({"row": rows, "number": flat}).group_by("row", maintain_order=True)
    return lists.agg("number")["number"]
