"""Warm-start a loop from a log of another system: the loop learns its rewards as lessons.

Imported decisions keep their times, so that the half-lives of the loop fade them by their age.
Those of a log without times have the time of the import. A row that was imported before is known by
its event id, so that an import that was cut off can be repeated. Learning needs no probabilities.

An import goes to a running service over HTTP, a few rows at a time, or straight into a log. No
service may run on that log meanwhile, because it would not learn what another process writes.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import count
from typing import NamedTuple
from urllib.parse import quote

import msgspec
import numpy as np

from windvane.errors import FeatureError
from windvane.evaluation.log_batch import LogBatch, SlotLog
from windvane.service.clock import MICROSECONDS_PER_SECOND, read_wall_us, to_datetime
from windvane.service.errors import ServiceError
from windvane.service.loops.imports import make_imported_decision
from windvane.service.loops.learner_model import LearnerModel
from windvane.service.loops.rank_requests import MAX_EVENT_ID_LENGTH
from windvane.service.loops.settings import LoopSettings, check_loop_name
from windvane.service.schemas import (
    MAX_IMPORTED_DECISIONS,
    Action,
    ImportedItem,
    ImportRequest,
    ImportResponse,
)
from windvane.service.store.files.service_lock import hold_service_lock
from windvane.service.store.log import Store
from windvane.service.store.writer.decision_operations import PutImport
from windvane.service.store.writer.loop_operations import PutLoop
from windvane.service.store.writer.server_operations import PutClock

ROWS_PER_COMMIT = 500
BY_IMPORT = "import"  # author of the settings of a loop that an import creates
LARGEST_REWARD = 1.0
MAX_REQUEST_BYTES = 900_000  # of one row or more; the service takes 1 MiB
API = "/personalizer/v1.0"
NO_REWARD = "no reward is known"
NOT_DECIDED = "the service answered it without deciding"
Report = Callable[[int], None]  # takes how many rows were read
Send = Callable[[str, str, bytes], object]  # method, path and body of a request; returns JSON


class ImportCounts(NamedTuple):
    """What became of the rows of a log."""

    imported: int
    known: int  # rows that the loop had already
    left_out: dict[str, int]  # how many rows, by reason


Write = Callable[[Sequence[ImportedItem]], int]  # writes decisions; returns how many are new


def import_log(
    store: Store, log: SlotLog, loop_name: str, report: Report | None = None
) -> ImportCounts:
    """Import the decisions of a log into a loop; the loop is created if there is none."""
    with hold_service_lock(store.url, timeout_seconds=0.0):
        newest = store.find_newest_time()
        now = read_wall_us() if newest is None else newest
        # Imported times lie in the past, and service time must not follow them.
        store.write(PutClock(now))
        loop = store.find_loop(check_loop_name(loop_name)) or store.write(
            PutLoop(loop_name, LoopSettings().to_json(), now, BY_IMPORT)
        )
        model = LearnerModel(LoopSettings.from_json(loop.settings))
        last_round = store.find_last_round(loop.id)
        rounds = count(0 if last_round is None else last_round + 1)

        def write(items: Sequence[ImportedItem]) -> int:
            rows = [
                make_imported_decision(model, loop.id, next(rounds), item, now) for item in items
            ]
            return store.write(PutImport(loop.id, tuple(rows))).new

        return _import_rows(log, write, ROWS_PER_COMMIT, now, report)


def import_over_http(
    send: Send, log: SlotLog, loop_name: str, report: Report | None = None
) -> ImportCounts:
    path = f"/loops/{quote(check_loop_name(loop_name))}{API}/decisions"

    def write(items: Sequence[ImportedItem]) -> int:
        body = msgspec.json.encode(ImportRequest(list(items)))
        if len(body) > MAX_REQUEST_BYTES and len(items) > 1:
            middle = len(items) // 2
            return write(items[:middle]) + write(items[middle:])
        return msgspec.convert(send("POST", path, body), ImportResponse).imported

    return _import_rows(log, write, MAX_IMPORTED_DECISIONS, read_wall_us(), report)


def _import_rows(
    log: SlotLog, write: Write, rows_at_once: int, now: int, report: Report | None
) -> ImportCounts:
    """Write the rows of a log that can be learned, some at a time."""
    left_out: Counter[str] = Counter()
    written = imported = rows_read = 0
    model = LearnerModel(LoopSettings())  # it refuses the same features as any other
    items: list[ImportedItem] = []

    def flush() -> None:
        nonlocal written, imported
        if items:
            imported += write(items)
            written += len(items)
            items.clear()

    for batch in log.iterate_slots():
        for row in range(batch.size):
            reason = _find_reason_to_leave_out(batch, row)
            if reason is None:
                try:
                    item = _make_item(batch, row, log, now)
                    make_imported_decision(model, 0, 0, item, now)
                    items.append(item)
                except (FeatureError, TypeError):
                    reason = "its features cannot be read"
                except ServiceError as error:
                    reason = str(error)
            if reason is not None:
                left_out[reason] += 1
            if len(items) >= rows_at_once:
                flush()
        rows_read += batch.size
        if report is not None:
            report(rows_read)
    flush()
    return ImportCounts(imported, written - imported, dict(left_out))


def _find_reason_to_leave_out(batch: LogBatch, row: int) -> str | None:
    reward = batch.rewards[row]
    if np.isnan(reward):
        return NO_REWARD
    if batch.is_degraded[row]:
        return NOT_DECIDED
    if not -LARGEST_REWARD <= reward <= LARGEST_REWARD:
        return "its reward must lie in [-1, 1]"
    if not 0 <= batch.times[row] < 1e11:
        return "its time must lie after 1970 and not in the future"
    return None


def _make_item(batch: LogBatch, row: int, log: SlotLog, now: int) -> ImportedItem:
    assert batch.read_features is not None
    context, actions = batch.read_features(row)
    flat = slice(batch.starts[row], batch.starts[row + 1])
    ids = [_shorten(action.id) for action in actions]
    probabilities: list[float | None] = []
    if not log.has_fitted_probabilities:
        logged = batch.probabilities[flat].tolist()
        probabilities = [None if np.isnan(share) else share for share in logged]
    # the same at every import of the file, whose name may hold any bytes
    place = f"{batch.source}:{batch.lines[row]}".encode(errors="surrogateescape")
    name = f"import-{hashlib.sha256(place).hexdigest()[:32]}"
    at = round(batch.times[row] * MICROSECONDS_PER_SECOND) if log.has_times else now
    return ImportedItem(
        event_id=_shorten(batch.event_ids[row]) or name,
        time=to_datetime(at),
        context_features=[dict(each) for each in context],
        actions=[
            Action(id_, [dict(each) for each in action.features])
            for id_, action in zip(ids, actions, strict=True)
        ],
        excluded_actions=[
            id_ for id_, usable in zip(ids, batch.is_eligible[flat], strict=True) if not usable
        ],
        reward_action_id=ids[batch.chosen[row]],
        probabilities=probabilities,
        reward=float(batch.rewards[row]),
    )


def _shorten(id_: str) -> str:
    """An id that the log can hold; a longer one ends with a hash of the whole."""
    if len(id_) <= MAX_EVENT_ID_LENGTH:
        return id_
    digest = hashlib.sha256(id_.encode()).hexdigest()[:32]
    return f"{id_[: MAX_EVENT_ID_LENGTH - len(digest) - 1]}#{digest}"
