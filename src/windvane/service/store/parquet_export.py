"""Export of a loop's log to a Parquet file: decisions, their probabilities, learned rewards."""

import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np
import polars as pl

from windvane._files import replace_file
from windvane.errors import FileError, SettingError
from windvane.service.store.decision_codec import decode_action_ids
from windvane.service.store.log import LogReader
from windvane.service.store.schema import LoggedDecision

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


class RequestParts(msgspec.Struct, rename="camel"):
    """The parts of a rank request that are exported as the client sent them."""

    actions: msgspec.Raw = msgspec.Raw(b"[]")
    context_features: msgspec.Raw = msgspec.Raw(b"[]")


decode_request_parts = msgspec.json.Decoder(RequestParts).decode


def export_log(log: LogReader, loop_name: str, path: Path) -> int:
    """Write the log of a loop to a file, completely or not at all; returns how many decisions."""
    loop = log.find_loop(loop_name)
    if loop is None:
        raise SettingError(f"export: there is no loop {loop_name!r}")
    decision_count = 0
    try:
        with (
            tempfile.TemporaryDirectory(dir=path.parent, prefix=".export-") as directory,
            replace_file(path, private=True) as draft,
        ):
            for part, batch in enumerate(log.iterate_decisions(loop.id)):
                _make_frame(batch).write_parquet(Path(directory) / f"{part:09d}.parquet")
                decision_count += len(batch)
            if decision_count:
                pl.scan_parquet(Path(directory) / "*.parquet").sink_parquet(draft)
            else:
                _make_frame(()).write_parquet(draft)
    except OSError as error:
        raise FileError(f"export: {path} cannot be written ({error.strerror})") from None
    return decision_count


def _make_frame(batch: Sequence[LoggedDecision]) -> pl.DataFrame:
    """Make a table of decisions, one row each."""
    return pl.DataFrame([_make_row(logged) for logged in batch], schema=SCHEMA, orient="row")


def _make_row(logged: LoggedDecision) -> dict[str, object]:
    decision = logged.decision
    action_ids = decode_action_ids(decision.actions)
    probabilities = np.frombuffer(decision.probabilities).tolist()
    request = decode_request_parts(decision.whole_request)
    return {
        "event_id": decision.event_id,
        "time": decision.at,
        "round": decision.round,
        "mode": decision.mode,
        "action": action_ids[decision.chosen],
        "chosen": decision.chosen,
        "probability": probabilities[decision.chosen],
        "actions": action_ids,
        "probabilities": probabilities,
        "reward": logged.reward,
        "defaulted": logged.defaulted,
        "deferred": decision.deferred,
        "activated": decision.activated_at is not None,
        "degraded": decision.degraded,
        "context_json": bytes(request.context_features).decode(),
        "actions_json": bytes(request.actions).decode(),
    }
