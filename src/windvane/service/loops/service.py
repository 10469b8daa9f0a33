"""All loops of one log: rank, reward, activate and administer them.

A decision, a reward or a change of settings counts once it is in the log; the loop learns what
follows from it in the order of the log. If the log or a loop fails, rank requests are answered
with the first action, and nothing is learned of them: the service is degraded.

If other servers share the log, a loop also learns what they write: see `windvane.service.sharing`.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeVar

from msgspec.structs import replace

from windvane.errors import StoreError
from windvane.service.clock import (
    MICROSECONDS_PER_SECOND,
    ClockStep,
    ServiceClock,
    format_seconds,
)
from windvane.service.errors import ServiceError
from windvane.service.loops.decision_pages import DecisionStream
from windvane.service.loops.imports import make_imported_decisions
from windvane.service.loops.loop import Loop
from windvane.service.loops.rank_requests import (
    OfferedActions,
    add_explanation,
    check_event_id,
    explain_actions,
)
from windvane.service.loops.settings import LOOP_NAME, LoopSettings, check_loop_name
from windvane.service.loops.withdrawals import Withdrawals
from windvane.service.schemas import ImportedItem, PageOptions, RankOptions, RewardItem, SlotReward
from windvane.service.sharing.fold import FORGET, teach
from windvane.service.sharing.servers import MAX_SKEW_SECONDS, LogSharing, RoundSupply
from windvane.service.store.files.data_directory import OpenedFiles
from windvane.service.store.log import LogReader
from windvane.service.store.rows import DecisionRow, LogPosition, LoopRow, get_answer
from windvane.service.store.writer.decision_operations import (
    Activate,
    ImportedDecision,
    PutDecision,
    PutImport,
    PutImportResult,
)
from windvane.service.store.writer.group_commit import OUTDATED, TOO_LONG, Operation
from windvane.service.store.writer.log_news import LogNews
from windvane.service.store.writer.loop_operations import (
    SNAPSHOTS_BEFORE_DELETION,
    DeleteLogs,
    DeleteLoop,
    PutLoop,
    PutSettings,
    PutSnapshot,
    split_snapshot,
)
from windvane.service.store.writer.reward_operations import (
    INVALID,
    MAX_REWARDS_PER_EVENT,
    REFUSED,
    MatchResult,
    PutReward,
)
from windvane.service.store.writer.server_operations import RoundRange, TakeRounds
from windvane.service.store.writer.writer_client import WriterClient

WRITE_TIMEOUT_SECONDS = 2.0  # seconds until a request gives up on the log
DEGRADED_WRITE_TIMEOUT_SECONDS = 0.2  # the same for a rank request while the log fails
MAX_REQUEST_ID_LENGTH = 256
MAX_WAITING_BATCH_REWARDS = 10_000  # rewards of batches on their way to the log
SLICE_REWARDS = 250  # of a batch that are written at a time: some ten milliseconds
FILES = "files"  # the kind of failure of a log whose files are gone
NO_WRITER = "the writer process has ended; a new one is started"
WRITER_BEHIND = "there is no writer process, or too many decisions wait for it"
# Errors after which a write may have been committed although its acknowledgement was lost.
MAYBE_COMMITTED = ("unreachable", "disk")

Result = TypeVar("Result")
logger = logging.getLogger("windvane.service")


class LoopRegistry:
    """The loops of one log by name or id; each is loaded at the start or when it is first used.

    A loop that cannot be loaded does not keep the others from their work.
    """

    def __init__(
        self, store: LogReader, clock: ServiceClock, prepare: Callable[[Loop], None]
    ) -> None:
        """Load all loops that the log has; `prepare` gets each loop once it is loaded."""
        self._store = store
        self._clock = clock
        self._prepare = prepare
        self.loops: dict[str, Loop] = {}
        self._loops_by_id: dict[int, Loop] = {}
        self.failures: dict[str, str] = {}  # why loops could not be loaded, by name
        self._failed_ids: dict[int, str] = {}  # the names of these loops
        for row in store.list_loops():
            self._try_to_load(row)
        if self.failures and not self.loops:
            reasons = "; ".join(self.failures.values())
            raise StoreError(f"serve: the loops cannot be loaded ({reasons})", "broken")
        for reason in self.failures.values():
            logger.error(reason)

    def has(self, name: str) -> bool:
        """Whether the log has a loop of this name, loaded or not."""
        return name in self.loops or name in self.failures

    async def get(self, name: str) -> Loop:
        """Return the loop of a name; one that another process created is loaded on first use."""
        if name in self.failures:
            raise StoreError(f"store: {self.failures[name]}; restore a backup", "damaged")
        if name not in self.loops:
            is_possible = LOOP_NAME.fullmatch(name)
            loop = await asyncio.to_thread(self._load, name) if is_possible else None
            if loop is None:
                raise ServiceError("unknown loop", f"there is no loop {name!r}", "loop")
            self._add(loop)
        return self.loops[name]

    def find_by_id(self, loop_id: int) -> Loop | None:
        """Return the loop of an id, unless it is not loaded."""
        return self._loops_by_id.get(loop_id)

    def list_ids(self) -> set[int]:
        """The ids of all loops, loaded or not."""
        return self._loops_by_id.keys() | self._failed_ids.keys()

    def drop(self, loop_id: int) -> None:
        """Forget a loop that was deleted; another one may have its name already."""
        loop = self._loops_by_id.pop(loop_id, None)
        if loop is not None and self.loops.get(loop.name) is loop:
            del self.loops[loop.name]
        self.failures.pop(self._failed_ids.pop(loop_id, ""), None)

    def _try_to_load(self, row: LoopRow) -> None:
        """Load a loop, or keep the reason why it cannot be loaded."""
        try:
            self._add(Loop(row, self._store, self._clock))
        except Exception as error:
            if isinstance(error, StoreError) and error.kind in ("locked", "unreachable"):
                raise
            if isinstance(error, StoreError) and error.kind == "gone":
                return
            sentence = f"{type(error).__name__}: {error}".splitlines()[0]
            self.failures[row.name] = f"loop {row.name} cannot be loaded: {sentence}"
            self._failed_ids[row.id] = row.name

    def _load(self, name: str) -> Loop | None:
        row = self._store.find_loop(name)
        return None if row is None else Loop(row, self._store, self._clock)

    def _add(self, loop: Loop) -> None:
        if loop.name in self.loops:  # it was loaded meanwhile
            return
        self.loops[loop.name] = self._loops_by_id[loop.id] = loop
        self._prepare(loop)


class Service:
    """All loops of one log, and the operations of the API on them."""

    def __init__(
        self,
        store: LogReader,
        writer: WriterClient,
        clock: ServiceClock,
        withdrawals: Withdrawals,
        sharing: LogSharing | None = None,
    ) -> None:
        """`sharing` is None if no other server can write to the log."""
        self.store = store
        self.sharing = sharing
        self.writer = writer
        self.clock = clock
        self.withdrawals = withdrawals
        self.unwritten_steps: list[ClockStep] = []  # of service time, not in the log yet
        self._defect: str | None = None  # why a loop could not choose
        self._logged_reason: str | None = None  # why ranks were degraded, as logged last
        self.has_free_space = asyncio.Event()  # after decisions were deleted
        self.has_free_space.set()  # a service before this one may have deleted some
        self.decision_stream = DecisionStream()
        self._waiting_batch_rewards = 0  # number of those not yet in the log
        self._batch_turn = asyncio.Lock()
        self._files = OpenedFiles(store.url)
        self._registry = LoopRegistry(store, self.clock, self._prepare_loop)
        self.loops = self._registry.loops
        self.has_loop = self._registry.has
        self.get_loop = self._registry.get
        self.find_loop = self._registry.find_by_id
        writer.on_replacement = self._reload_loops
        writer.on_news = self.take_news

    @property
    def degraded_reason(self) -> str | None:
        """Why rank requests may get the first action, or other writes fail; None if all works."""
        if reason := self._defect or self.writer.failures.describe():
            return reason
        return next(
            iter(self._registry.failures.values()), None if self.writer.is_ready else NO_WRITER
        )

    @property
    def warnings(self) -> list[str]:
        """What an operator should know although all works: damages, deletions, a wrong clock."""
        loops = list(self.loops.values())
        sentences = [loop.damage for loop in loops]
        sentences += [loop.postponed.sentence for loop in loops if loop.postponed is not None]
        return [each for each in (*sentences, self.describe_skew()) if each is not None]

    @property
    def is_leader(self) -> bool:
        """Whether this server does the work that one server does for all."""
        return self.sharing is None or self.sharing.is_leader

    def check_files(self) -> None:
        """Note a failure if the files of the log are gone, also if nothing is written."""
        try:
            self._files.check()
        except StoreError as reason:
            self.writer.failures.add(FILES, str(reason))
        else:
            self.writer.failures.note_recovery(FILES)

    def _prepare_loop(self, loop: Loop) -> None:
        """Let a loop take its rounds from the log, if other servers can write to the log."""
        if self.sharing is not None:
            loop.rounds = RoundSupply(partial(self._take_rounds, loop))
            loop.lags = self.sharing.lags

    async def _take_rounds(self, loop: Loop, count: int) -> RoundRange:
        take = TakeRounds(loop.id, count, loop.model.learner.round)
        return await self.write(take, timeout=WRITE_TIMEOUT_SECONDS)

    async def create_loop(self, name: str, settings: LoopSettings, by: str) -> Loop:
        """Create a loop; `by` says in the log who did."""
        put = PutLoop(check_loop_name(name), settings.to_json(), self.clock.now_us(), by)
        try:
            row = await self.write(put, timeout=WRITE_TIMEOUT_SECONDS)
        except StoreError as reason:
            if reason.kind != "refused":
                raise
            raise ServiceError("loop exists", f"there is a loop {name!r} already", "name") from None
        if name in self.loops and self.loops[name].id != row.id:
            self._drop_loop(self.loops[name].id)  # another process has deleted it
        return await self.get_loop(name)

    async def delete_loop(self, name: str, by: str) -> None:
        """Delete a loop with its log and its belief; `by` says in the log of the service who did.

        Once it is deleted, nobody finds it; a background task then deletes its rows.
        """
        is_possible = LOOP_NAME.fullmatch(name)
        row = await asyncio.to_thread(self.store.find_loop, name) if is_possible else None
        if row is None:
            raise ServiceError("unknown loop", f"there is no loop {name!r}", "loop")
        await self.write(DeleteLoop(row.id, self.clock.now_us()), timeout=WRITE_TIMEOUT_SECONDS)
        self._drop_loop(row.id)
        logger.info("loop deleted", extra={"facts": {"loop": name, "id": row.id, "by": by}})

    async def drop_deleted_loops(self) -> dict[int, LogPosition]:
        """Forget loops that another process has deleted; returns the positions of all others."""
        known = self._registry.list_ids()  # before the read: a later one may be new
        positions = await asyncio.to_thread(self.store.read_positions)
        for loop_id in known - positions.keys():
            self._drop_loop(loop_id)
        return positions

    def _drop_loop(self, loop_id: int) -> None:
        """Forget a loop that was deleted, and let the background task delete its rows."""
        self._registry.drop(loop_id)
        self.has_free_space.set()

    async def rank(
        self, loop_name: str, request: RankOptions | PageOptions, offer: OfferedActions, text: str
    ) -> bytes:
        """The response to a rank request once the log has the decision.

        If the log cannot take the decision, the response is degraded: the first action, or the
        baselines of a page.
        """
        loop = await self.get_loop(loop_name)
        answer = await self._rank(loop, request, offer, text)
        is_explained = loop.settings.is_inference_explainability_enabled
        if not is_explained or isinstance(request, PageOptions):
            return answer
        explain = partial(explain_actions, loop.model, request, offer)
        try:
            return add_explanation(answer, await loop.work.call(explain, is_long=True))
        except Exception:  # the decision is in the log, and its answer counts
            logger.exception("the decision %s cannot be explained", request.event_id)
            return answer

    async def _rank(
        self, loop: Loop, request: RankOptions | PageOptions, offer: OfferedActions, text: str
    ) -> bytes:
        if not (self.writer.is_ready and self.withdrawals.has_room()):
            self.writer.failures.add("PutDecision", WRITER_BEHIND, is_vague=True)
            replacement = self._degrade(loop, request, offer, text, WRITER_BEHIND)
            return get_answer(replacement)
        round_ = None
        if loop.rounds is not None:
            try:
                round_ = await loop.rounds.take()
            except (StoreError, TimeoutError) as reason:
                _raise_if_gone(reason)
                why = str(reason) or TOO_LONG
                return get_answer(self._degrade(loop, request, offer, text, why))
        slot_count = len(request.slots) if isinstance(request, PageOptions) else 1
        is_long = loop.is_long_rank(offer, len(text), slot_count)
        if loop.work.can_run_now(is_long):
            decision = self._decide(loop, request, offer, text, round_)
        else:
            loop.work.check_room()
            decide = partial(self._decide, loop, request, offer, text, round_)
            decision = await loop.work.call(decide, is_long)
            # Service time may have stepped meanwhile, and the log is in the order of time.
            decision = decision._replace(at=self.clock.now_us())
        is_submitted = False
        self.withdrawals.begin_decision(decision)
        try:
            put = PutDecision(decision, loop.terms, request.event_id is None)
            is_failing = self.writer.failures.is_log_failing
            timeout = DEGRADED_WRITE_TIMEOUT_SECONDS if is_failing else WRITE_TIMEOUT_SECONDS
            writing = self.write(put, loop, timeout)
            is_submitted = True
            answer = get_answer(decision)  # while the log is written
            kept = await writing
        except (StoreError, TimeoutError) as reason:
            _raise_if_gone(reason)
            named = replace(request, event_id=decision.event_id)
            replacement = self._degrade(loop, named, offer, text, str(reason) or TOO_LONG)
            if isinstance(reason, TimeoutError) or (
                is_submitted and reason.kind in MAYBE_COMMITTED
            ):
                self.withdrawals.add(decision, replacement, loop.terms)
            return get_answer(replacement)
        finally:
            self.withdrawals.end_decision(decision)
        if not decision.degraded:
            self._defect = self._logged_reason = None
        if kept.is_new:
            return answer
        if not kept.answer:
            message = "the event was decided by the other kind of rank request"
            raise ServiceError("rank", message, "eventId")
        return kept.answer

    def _decide(
        self,
        loop: Loop,
        request: RankOptions | PageOptions,
        offer: OfferedActions,
        text: str,
        round_: int | None = None,
    ) -> DecisionRow:
        """A decision; a degraded one if a defect keeps the loop from choosing."""
        try:
            return loop.decide(request, offer, text, round_=round_)
        except ServiceError:
            raise
        except Exception as reason:
            self._defect = f"no choice could be made ({type(reason).__name__}: {reason})"
            self._log_degraded(self._defect, reason)
            return loop.decide(request, offer, text, degraded=True)

    def _degrade(
        self,
        loop: Loop,
        request: RankOptions | PageOptions,
        offer: OfferedActions,
        text: str,
        reason: str,
    ) -> DecisionRow:
        """The decision of a degraded answer, because the log cannot take another one."""
        self._log_degraded(reason)
        return loop.decide(request, offer, text, degraded=True)

    def _log_degraded(self, reason: str, defect: Exception | None = None) -> None:
        """Log why rank requests get the baseline, if the reason has changed."""
        if reason != self._logged_reason:
            self._logged_reason = reason
            facts = {"reason": reason}
            logger.warning("rank degraded", exc_info=defect, extra={"facts": facts})

    async def reward(
        self,
        loop_name: str,
        event_id: str,
        value: float,
        request_id: str | None = None,
        slots: Sequence[SlotReward] = (),
    ) -> None:
        """Put a reward in the log, or those of slots instead of `value`.

        A second one of the same event and request id counts once.
        """
        loop = await self.get_loop(loop_name)
        check_event_id(event_id)
        if request_id is not None and len(request_id) > MAX_REQUEST_ID_LENGTH:
            raise ServiceError(
                "reward", f"x-ms-client-request-id must have at most {MAX_REQUEST_ID_LENGTH} bytes"
            )
        if len({slot.slot_id for slot in slots}) < len(slots):
            raise ServiceError("reward", "reward: a slot must come once", "slotId")
        loop.work.check_room()
        done = await self._write_reward(loop, event_id, value, request_id, slots)
        if done.status == INVALID:
            raise ServiceError("reward", done.fault, "slotId")
        if done.status == REFUSED:
            message = f"the event {event_id[:80]!r} has {MAX_REWARDS_PER_EVENT} rewards already"
            raise ServiceError("too many", f"{message}, the log keeps no more of it", "eventId")

    def _write_reward(
        self,
        loop: Loop,
        event_id: str,
        value: float,
        request_id: str | None,
        slots: Sequence[SlotReward],
    ) -> "asyncio.Future[MatchResult]":
        now, terms = self.read_reward_time(), loop.terms
        put = PutReward(loop.id, event_id, value, now, terms, request_id, tuple(slots))
        return self.write(put, loop, WRITE_TIMEOUT_SECONDS)

    def _write_item(self, loop: Loop, item: RewardItem) -> "asyncio.Future[MatchResult]":
        slots = () if item.slot_id is None else (SlotReward(item.slot_id, item.value),)
        return self._write_reward(loop, item.event_id, item.value, item.request_id, slots)

    async def put_rewards(
        self, loop_name: str, items: Sequence[RewardItem]
    ) -> Sequence[MatchResult]:
        """Put valid rewards in the log; returns what became of each of them.

        One batch is written at a time, in slices, so that no other write waits for all of it.
        """
        loop = await self.get_loop(loop_name)
        loop.work.check_room()
        if self._waiting_batch_rewards + len(items) > MAX_WAITING_BATCH_REWARDS:
            message = f"{self._waiting_batch_rewards} rewards of batches wait for the log"
            raise ServiceError("too many", f"{message}, no more are accepted", "rewards", 1)
        self._waiting_batch_rewards += len(items)
        results: list[MatchResult] = []
        try:
            async with asyncio.timeout(WRITE_TIMEOUT_SECONDS):
                await self._batch_turn.acquire()
            try:
                for first in range(0, len(items), SLICE_REWARDS):
                    some = items[first : first + SLICE_REWARDS]
                    writes = [self._write_item(loop, item) for item in some]
                    results += await asyncio.gather(*writes)
            finally:
                self._batch_turn.release()
            return results
        finally:
            self._waiting_batch_rewards -= len(items)

    async def import_decisions(
        self, loop_name: str, items: Sequence[ImportedItem]
    ) -> PutImportResult:
        """Put decisions of another system in the log, and learn their rewards."""
        loop = await self.get_loop(loop_name)
        loop.work.check_room()
        taken = None if loop.rounds is None else [await loop.rounds.take() for _ in items]

        def make() -> tuple[ImportedDecision, ...]:
            learner = loop.model.learner
            rounds = taken or range(learner.round, learner.round + len(items))
            now = self.clock.now_us()
            rows = make_imported_decisions(loop.model, loop.id, rounds, items, now)
            learner.round = max(learner.round, rounds[-1] + 1)
            return rows

        rows = await loop.work.call(make, is_long=True)
        return await self.write(PutImport(loop.id, rows), loop, WRITE_TIMEOUT_SECONDS)

    async def activate(self, loop_name: str, event_id: str) -> None:
        """Activate a decision whose activation was deferred."""
        loop = await self.get_loop(loop_name)
        check_event_id(event_id)
        activate = Activate(loop.id, event_id, self.read_reward_time(), loop.terms)
        done = await self.write(activate, loop, WRITE_TIMEOUT_SECONDS)
        if done.status == "unknown":
            raise ServiceError(
                "unknown event", f"no decision has the event id {event_id!r}", "eventId"
            )

    async def change_settings(self, name: str, changes: Mapping[str, object], by: str) -> Loop:
        """Change some settings of a loop, by their wire names; the belief stays."""
        loop = await self.get_loop(name)
        async with loop.changing:
            while not await self._put_settings(loop, changes, by):
                await loop.work.call(loop.catch_up, is_long=True)
            await loop.work.wait()
        return loop

    async def _put_settings(self, loop: Loop, changes: Mapping[str, object], by: str) -> bool:
        """Write changed settings; False if another server has changed some meanwhile."""
        settings, terms, _ = loop.in_force
        merged = settings.merge(changes).to_json()
        put = PutSettings(loop.id, merged, self.clock.now_us(), by, terms.change)
        try:
            await self.write(put, loop, WRITE_TIMEOUT_SECONDS)
        except StoreError as reason:
            if reason.kind != OUTDATED:
                raise
            return False
        return True

    async def forget(self, name: str) -> None:
        """Reset the belief of a loop; its log and its settings stay."""
        await self.change_settings(name, {}, FORGET)

    async def encode_model(self, name: str) -> bytes:
        """The belief of a loop as the store keeps it."""
        loop = await self.get_loop(name)
        return await loop.work.call(loop.encode_snapshot, is_long=True)

    async def delete_log(self, name: str) -> None:
        """Delete all decisions of a loop made until now; its belief stays."""
        loop = await self.get_loop(name)
        span = await asyncio.to_thread(self.store.find_time_span, loop.id)
        until = self.clock.now_us()
        if span is not None:  # the clock of another server may be ahead
            until = max(until, span.until)
        await self.delete_decisions(loop, until + 1, include_waiting=True)

    async def delete_decisions(
        self, loop: Loop, before: int, include_waiting: bool = False, change: int = 0
    ) -> None:
        """Delete decisions made before a time; two snapshots keep belief and round.

        `change` is the change of settings (id) that the time follows from; 0: from none.
        """
        for _ in range(SNAPSHOTS_BEFORE_DELETION):
            await self.save_snapshot(loop)
        delete = DeleteLogs(loop.id, before, include_waiting=include_waiting, change=change)
        while await self.write(delete):
            pass
        self.has_free_space.set()

    async def save_snapshot(self, loop: Loop) -> None:
        """Store the belief of a loop."""
        async with loop.saving:
            put = await loop.work.call(partial(_make_snapshot, loop), is_long=True)
            for operation in split_snapshot(put):
                await self.write(operation)

    def write(
        self, operation: Operation[Result], loop: Loop | None = None, timeout: float | None = None
    ) -> "asyncio.Future[Result]":
        """Submit an operation; before the future resolves, the loop learns what follows from it.

        If that takes long, it is queued before the future resolves, and comes before all later
        work on the loop. The future fails with a TimeoutError after so many seconds; the
        operation may still be written then.
        """
        then = None if loop is None else partial(teach, loop)
        self.withdrawals.submit()
        return self.writer.submit(operation, then, timeout)

    def bound_expiry(self, at: int, wait_us: int) -> int:
        """The time before which decisions have waited long enough, by the clocks of all servers.

        No server may still withdraw one of them.
        """
        if self.sharing is not None:
            at = min(at, self.sharing.settled_until)
        return self.withdrawals.bound_expiry(at - wait_us)

    def read_reward_time(self) -> int:
        """Service time, at which a reward arrives; a server that is ahead calls none late."""
        now = self.clock.now_us()
        return now if self.sharing is None else self.sharing.bound_time(now)

    def describe_skew(self) -> str | None:
        """Say that the clock of this machine is wrong, if it is by more than a decision may wait.

        Service time follows the clock of the database, so nothing else depends on it.
        """
        if self.sharing is None:
            return None
        waits = [loop.terms.wait_us / MICROSECONDS_PER_SECOND for loop in self.loops.values()]
        skew = self.sharing.clock.skew_seconds
        if abs(skew) <= min([MAX_SKEW_SECONDS, *waits]):
            return None
        word = "ahead of" if skew > 0 else "behind"
        return (
            f"The clock of this machine is {format_seconds(abs(skew))} {word} that of the "
            "database, whose time the service follows: set it right."
        )

    def take_news(self, news: LogNews) -> None:
        """Let a loop learn what another server, or another process of this one, has written."""
        loop = self.find_loop(news.loop)
        if loop is not None and (loop.must_restore or loop.is_behind(news.lesson, news.change)):
            teach(loop, news)

    async def _reload_loops(self) -> None:
        """Read what the log has got before a new writer process writes.

        While there was none, another service may have written to the log.
        """
        await self.drop_deleted_loops()
        for loop in list(self.loops.values()):
            await loop.work.call(loop.restore_if_outdated, is_long=True)


def _raise_if_gone(reason: StoreError | TimeoutError) -> None:
    """Raise the error of a write to a deleted loop: no answer is better than a degraded one."""
    if isinstance(reason, StoreError) and reason.kind == "gone":
        raise reason


def _make_snapshot(loop: Loop) -> PutSnapshot:
    loop.state.lessons_since_snapshot = 0
    return PutSnapshot(loop.id, loop.last_lesson, loop.encode_snapshot(), loop.clock.now_us())
