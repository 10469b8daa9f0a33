"""The log as a Parquet file: each decision with its probabilities and what was learned from it."""

import os
import tempfile
from collections.abc import Sequence
from itertools import count
from pathlib import Path

import msgspec
import numpy as np
import polars as pl

from windvane.errors import FileError, SettingError
from windvane.service.store.log import Log
from windvane.service.store.schema import Logged

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
    }
)


class Asked(msgspec.Struct, rename="camel"):
    """The parts of a rank request that are kept as they are."""

    actions: msgspec.Raw = msgspec.Raw(b"[]")
    context_features: msgspec.Raw = msgspec.Raw(b"[]")


read = msgspec.json.Decoder(Asked).decode


def write(store: Log, name: str, path: Path) -> int:
    """Write the log of a loop to a file, whole or not at all; how many decisions it has."""
    loop = store.loop(name)
    if loop is None:
        raise SettingError(f"export: there is no loop {name!r}")
    rows = 0
    try:
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=".export-") as folder:
            part = count()
            for batch in store.log(loop.id):
                frame(batch).write_parquet(Path(folder) / f"{next(part):09d}.parquet")
                rows += len(batch)
            whole = Path(folder) / "whole"
            if rows:
                pl.scan_parquet(Path(folder) / "*.parquet").sink_parquet(whole)
            else:
                frame(()).write_parquet(whole)
            os.replace(whole, path)
    except OSError as reason:
        raise FileError(f"export: {path} cannot be written ({reason.strerror})") from None
    return rows


def frame(batch: Sequence[Logged]) -> pl.DataFrame:
    """Decisions as a table, one row each."""
    return pl.DataFrame([_row(logged) for logged in batch], schema=SCHEMA, orient="row")


def _row(logged: Logged) -> dict[str, object]:
    made = logged.decision
    names: list[str] = msgspec.json.decode(made.actions, type=list[str])
    chances = np.frombuffer(made.probabilities).tolist()
    asked = read(made.request)
    return {
        "event_id": made.event_id,
        "time": made.at,
        "round": made.round,
        "mode": made.mode,
        "action": names[made.chosen],
        "chosen": made.chosen,
        "probability": chances[made.chosen],
        "actions": names,
        "probabilities": chances,
        "reward": logged.reward,
        "defaulted": logged.defaulted,
        "deferred": made.deferred,
        "activated": made.activated_at is not None,
        "degraded": made.degraded,
        "context_json": bytes(asked.context_features).decode(),
        "actions_json": bytes(asked.actions).decode(),
    }
