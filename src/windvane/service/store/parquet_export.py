"""Export of a loop's log to a Parquet file: decisions, their probabilities, learned rewards.

docs/how-to/read-logs.md has the meaning of every column. A column that is added, removed or gets
another meaning increases `SCHEMA_VERSION`; files of 0.1.0 have no `schema_version` and are of
version 1, without `excluded`.

The frame of a batch is built column by column. Most decisions of a batch share a few offers, so
that the text and the ids of an offer are read once for a batch.
"""

import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
import polars as pl
from sqlalchemy import func, select

from windvane._files import replace_file
from windvane.errors import FileError, SettingError
from windvane.service.store.decision_codec import decode_action_ids
from windvane.service.store.log import LogReader
from windvane.service.store.schema import decisions, join_request, lessons, offers

SCHEMA_VERSION = 2
BATCH_ROWS = 10_000
ROW_GROUP_ROWS = 30_000  # of the file; larger ones take more memory
OFFERS_PER_QUERY = 500
GAP = "0"  # stands in a request for the offer that was cut out
GAP_BYTES = GAP.encode()
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
        "schema_version": pl.Int64(),
    }
)


class RequestParts(msgspec.Struct, rename="camel"):
    """The parts of a rank request that are exported as the client sent them."""

    actions: msgspec.Raw = msgspec.Raw(b"[]")
    context_features: msgspec.Raw = msgspec.Raw(b"[]")
    excluded_actions: list[str] = []


decode_request_parts = msgspec.json.Decoder(RequestParts).decode


class DecisionColumns(NamedTuple):
    """Decisions with the sums of their lessons, column by column."""

    id: Sequence[int]
    event_id: Sequence[str]
    at: Sequence[int]
    round: Sequence[int]
    mode: Sequence[str]
    chosen: Sequence[int]
    probabilities: Sequence[bytes]
    deferred: Sequence[bool]
    activated_at: Sequence[int | None]
    degraded: Sequence[bool]
    actions: Sequence[str]
    request: Sequence[str]
    offer: Sequence[int | None]
    offer_at: Sequence[int | None]
    reward: Sequence[float | None]
    first_kind: Sequence[str | None]


class Offer(NamedTuple):
    """The ids of offered actions as JSON, and the actions as the client sent them."""

    ids: str
    actions: str


def export_log(log: LogReader, loop_name: str, path: Path, report: Report | None = None) -> int:
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
            total = _count_decisions(log, loop.id)
            for part, batch in enumerate(iterate_batches(log, loop.id)):
                frame = _make_frame(batch, _read_offers(log, batch))
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


def _count_decisions(log: LogReader, loop: int) -> int:
    ((count,),) = log.fetch_all(select(func.count()).where(decisions.c.loop == loop))
    return int(count)


def iterate_batches(log: LogReader, loop: int) -> Iterator[DecisionColumns]:
    """Iterate over the decisions that the log has now, in batches, ordered by id."""
    ((last,),) = log.fetch_all(select(func.max(decisions.c.id)).where(decisions.c.loop == loop))
    query = (
        select(
            *decisions.c[DecisionColumns._fields[:-2]],
            func.sum(lessons.c.value),
            func.min(lessons.c.kind),
        )
        .select_from(decisions.outerjoin(lessons, lessons.c.decision == decisions.c.id))
        .where(decisions.c.loop == loop, decisions.c.id <= (last or 0))
        .group_by(decisions.c.id)
        .order_by(decisions.c.id)
        .limit(BATCH_ROWS)
    )
    after = 0
    while rows := log.fetch_all(query.where(decisions.c.id > after)):
        after = rows[-1].id
        yield DecisionColumns(*zip(*rows, strict=True))


def _read_offers(log: LogReader, batch: DecisionColumns) -> dict[int, Offer]:
    """Read the offers of a batch, by id."""
    offer_ids = sorted({offer for offer in batch.offer if offer is not None})
    by_id = {}
    for first in range(0, len(offer_ids), OFFERS_PER_QUERY):
        chunk = offers.c.id.in_(offer_ids[first : first + OFFERS_PER_QUERY])
        for row in log.fetch_all(select(*offers.c["id", "ids", "actions"]).where(chunk)):
            by_id[row.id] = Offer(row.ids, row.actions)
    return by_id


def _make_frame(batch: DecisionColumns, offers_by_id: dict[int, Offer]) -> pl.DataFrame:
    """Make a table of decisions, one row each."""
    numbers: dict[Offer, int] = {}  # of the distinct offers of the batch
    offer_numbers = []
    contexts = []
    excluded = []
    for request, offer_id, offer_at, actions in zip(
        batch.request, batch.offer, batch.offer_at, batch.actions, strict=True
    ):
        offer = None if offer_id is None else offers_by_id[offer_id]
        offer, parts = _split_request(request, offer, offer_at, actions)
        offer_numbers.append(numbers.setdefault(offer, len(numbers)))
        contexts.append(bytes(parts.context_features).decode())
        excluded.append(parts.excluded_actions)
    ids = [decode_action_ids(offer.ids) for offer in numbers]
    texts = [offer.actions for offer in numbers]
    frame = pl.DataFrame(
        {
            "event_id": batch.event_id,
            "time": batch.at,
            "round": batch.round,
            "mode": batch.mode,
            "chosen": batch.chosen,
            "actions": pl.Series(ids, dtype=pl.List(pl.String())).gather(offer_numbers),
            "probabilities": _make_lists(batch.probabilities),
            "reward": pl.Series(batch.reward, dtype=pl.Float64()),
            "defaulted": [kind == "default" for kind in batch.first_kind],
            "deferred": batch.deferred,
            "activated": [at is not None for at in batch.activated_at],
            "degraded": batch.degraded,
            "context_json": contexts,
            "actions_json": pl.Series(texts, dtype=pl.String()).gather(offer_numbers),
            "excluded": pl.Series(excluded, dtype=pl.List(pl.String())),
        }
    )
    frame = frame.with_columns(
        action=pl.col("actions").list.get(pl.col("chosen")),
        probability=pl.col("probabilities").list.get(pl.col("chosen")),
        time=pl.col("time").cast(pl.Datetime("us")).dt.replace_time_zone("UTC"),
        deferred=pl.col("deferred").cast(pl.Boolean()),
        degraded=pl.col("degraded").cast(pl.Boolean()),
        schema_version=pl.lit(SCHEMA_VERSION),
    )
    return frame.select(SCHEMA.names()).cast(SCHEMA)


def _split_request(
    request: str, offer: Offer | None, offer_at: int | None, action_ids: str
) -> tuple[Offer, RequestParts]:
    """The offer of a decision, and the parts of its request as the client sent them."""
    if offer is not None:
        parts = decode_request_parts(f"{request[:offer_at]}{GAP}{request[offer_at:]}")
        if bytes(parts.actions) == GAP_BYTES:
            return offer, parts
        action_ids = offer.ids
    # The decision is of 0.1.0, or the text of its actions occurs elsewhere in the request too.
    text = join_request(request, None if offer is None else offer.actions, offer_at)
    parts = decode_request_parts(text)
    return Offer(action_ids, bytes(parts.actions).decode()), parts


def _make_lists(blobs: Sequence[bytes]) -> pl.Series:
    """Make a column of lists from the bytes of float64 arrays."""
    sizes = np.array([len(blob) // 8 for blob in blobs])
    flat = np.frombuffer(b"".join(blobs))
    if (sizes == sizes[0]).all():
        return pl.Series(flat.reshape(len(blobs), -1)).arr.to_list()
    rows = np.repeat(np.arange(len(blobs)), sizes)
    lists = pl.DataFrame({"row": rows, "number": flat}).group_by("row", maintain_order=True)
    return lists.agg("number")["number"]
