"""Warm-start a loop from a log of another system: its decisions and rewards become the loop's own.

Imported decisions keep their times, so that the half-lives of the loop fade them by their age. They
enter the log by the same operations as decisions of clients, in the order of time, and each reward
is a lesson: the belief of the loop stays a fold over the lessons. A row that was imported before is
known by its event id, so that an import that was cut off can be repeated. No service may run on
the log meanwhile, because a service would not learn what another process writes.
"""

import hashlib
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

import msgspec
import numpy as np

from windvane.errors import FeatureError, SettingError
from windvane.evaluation.log_batch import DecisionFeatures, Log, LogBatch
from windvane.features.packed_features import pack_actions
from windvane.service.clock import MICROSECONDS_PER_SECOND, read_wall_us
from windvane.service.loops.learner_model import LearnerModel
from windvane.service.loops.rank_requests import MAX_EVENT_ID_LENGTH, cut_offer
from windvane.service.loops.settings import LoopSettings, check_loop_name
from windvane.service.store.files.service_lock import hold_service_lock
from windvane.service.store.log import Store
from windvane.service.store.rows import DecisionRow, LoopRow
from windvane.service.store.writer.decision_operations import PutDecision
from windvane.service.store.writer.loop_operations import PutLoop
from windvane.service.store.writer.reward_operations import PutReward, RewardTerms
from windvane.service.store.writer.server_operations import PutClock

ROWS_PER_COMMIT = 500
REQUEST_ID = "import"  # of imported rewards: the second import of a row changes nothing
BY_IMPORT = "import"  # author of the settings of a loop that an import creates
LARGEST_REWARD = 1.0
NO_REWARD = "no reward is known"
NOT_DECIDED = "the service answered it without deciding"
Report = Callable[[int], None]  # takes how many rows were read
_encode_json = msgspec.json.Encoder().encode


class ImportCounts(NamedTuple):
    """What became of the rows of a log."""

    imported: int
    known: int  # rows that the loop had already
    left_out: dict[str, int]  # how many rows, by reason


def import_log(
    store: Store,
    log: Log,
    loop_name: str,
    settings: LoopSettings | None = None,
    report: Report | None = None,
) -> ImportCounts:
    """Import the decisions of a log into a loop; the loop is created if there is none."""
    with hold_service_lock(store.url, timeout_seconds=0.0):
        newest = store.find_newest_time()
        now = read_wall_us() if newest is None else newest
        # Imported times lie in the past, and service time must not follow them.
        store.submit(PutClock(now)).result()
        importer = LogImporter(store, _find_or_create_loop(store, loop_name, settings, now), now)
        for batch in log.iterate_batches():
            importer.add(batch)
            if report is not None:
                report(importer.row_count)
        return importer.finish()


def _find_or_create_loop(
    store: Store, name: str, settings: LoopSettings | None, at: int
) -> LoopRow:
    loop = store.find_loop(check_loop_name(name))
    if loop is not None and settings is not None:
        raise SettingError(f"import: the loop {name!r} exists and keeps its settings")
    if loop is None:
        chosen = (settings or LoopSettings()).to_json()
        loop = store.submit(PutLoop(name, chosen, at, BY_IMPORT)).result()
    return loop


class LogImporter:
    """Writes batches of a log into a loop."""

    def __init__(self, store: Store, loop: LoopRow, now: int) -> None:
        self._store = store
        self._loop = loop.id
        self._now = now
        settings = LoopSettings.from_json(loop.settings)
        self._model = LearnerModel(settings)
        self._terms = RewardTerms(settings.reward_wait_us, settings.sums_rewards)
        last_round = store.find_last_round(loop.id)
        self._round = 0 if last_round is None else last_round + 1
        self._left_out: Counter[str] = Counter()
        self._imported = 0
        self._known = 0
        self.row_count = 0

    def add(self, batch: LogBatch) -> None:
        """Write the rows of a batch that can be learned."""
        read = batch.read_features
        if read is None:
            raise SettingError(f"import: {batch.source} has no features, so nothing can be learned")
        decisions = []
        for row in range(batch.size):
            self.row_count += 1
            reason = self._find_reason_to_leave_out(batch, row)
            if reason is None:
                try:
                    decisions.append((self._make_decision(batch, row, read(row)), row))
                except FeatureError:
                    reason = "its features cannot be read"
            if reason is not None:
                self._left_out[reason] += 1
            if len(decisions) == ROWS_PER_COMMIT:
                self._write(batch, decisions)
                decisions = []
        self._write(batch, decisions)

    def finish(self) -> ImportCounts:
        """What became of all rows."""
        return ImportCounts(self._imported, self._known, dict(self._left_out))

    def _find_reason_to_leave_out(self, batch: LogBatch, row: int) -> str | None:
        reward = batch.rewards[row]
        shares = batch.probabilities[batch.starts[row] : batch.starts[row + 1]]
        if np.isnan(reward):
            return NO_REWARD
        if batch.is_degraded[row]:
            return NOT_DECIDED
        if not -LARGEST_REWARD <= reward <= LARGEST_REWARD:
            return "its reward must lie in [-1, 1]"
        if np.isnan(shares).any():
            return "its probabilities are not known"
        if not 0 <= batch.times[row] * MICROSECONDS_PER_SECOND <= self._now:
            return "its time must not lie in the future"
        if len(batch.event_ids[row]) > MAX_EVENT_ID_LENGTH or "\0" in batch.event_ids[row]:
            return f"its event id must have at most {MAX_EVENT_ID_LENGTH} characters and no NUL"
        return None

    def _make_decision(self, batch: LogBatch, row: int, features: DecisionFeatures) -> DecisionRow:
        """The decision of a row, as a loop that had made it would have written it."""
        context, actions = features
        chosen = int(batch.chosen[row])
        flat = slice(batch.starts[row], batch.starts[row + 1])
        ids = [action.id for action in actions]
        excluded = [
            id_ for id_, usable in zip(ids, batch.is_eligible[flat], strict=True) if not usable
        ]
        offer = _encode_json([{"id": each.id, "features": each.features} for each in actions])
        request = _encode_json(
            {
                "contextFeatures": context,
                "actions": msgspec.Raw(offer),
                "excludedActions": excluded,
            }
        )
        rest, offer_at = cut_offer(request.decode(), offer.decode())
        decision = DecisionRow(
            loop=self._loop,
            event_id=batch.event_ids[row] or _name_event(batch, row),
            round=self._round,
            at=round(batch.times[row] * MICROSECONDS_PER_SECOND),
            mode="Online",
            deferred=False,
            degraded=False,
            chosen=chosen,
            features=self._model.encode_action(context, pack_actions(actions), chosen),
            probabilities=np.ascontiguousarray(batch.probabilities[flat], float).tobytes(),
            actions=_encode_json(ids).decode(),
            request=rest or "",
            offer=offer.decode(),
            offer_at=offer_at,
        )
        self._round += 1
        return decision

    def _write(self, batch: LogBatch, decisions: list[tuple[DecisionRow, int]]) -> None:
        """Write decisions with their rewards, and wait until they are on disk."""
        submit = self._store.submit
        puts = [submit(PutDecision(decision, self._terms)) for decision, _ in decisions]
        rewards = [
            submit(
                PutReward(
                    self._loop,
                    decision.event_id,
                    float(batch.rewards[row]),
                    decision.at,
                    self._terms,
                    REQUEST_ID,
                )
            )
            for decision, row in decisions
        ]
        for put, reward in zip(puts, rewards, strict=True):
            self._imported += put.result().is_new
            self._known += not put.result().is_new
            reward.result()


def _name_event(batch: LogBatch, row: int) -> str:
    """An event id for a row without one, the same at every import of the same file."""
    place = f"{batch.source}:{batch.lines[row]}".encode()
    return f"import-{hashlib.sha256(place).hexdigest()[:32]}"
