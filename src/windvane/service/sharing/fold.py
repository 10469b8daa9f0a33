"""The fold over the log of one loop: settings and belief, and how far the log is applied."""

import logging
import zlib
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import partial
from threading import Lock
from typing import Any, NamedTuple

import msgspec

from windvane.errors import FileError, StoreError
from windvane.service.clock import ServiceClock
from windvane.service.loops.learner_model import LearnerModel, Moment
from windvane.service.loops.settings import LoopSettings
from windvane.service.loops.work_queue import WorkQueue
from windvane.service.sharing.servers import LessonLags, RoundSupply
from windvane.service.store.database import is_database_failure
from windvane.service.store.log import LogReader, SnapshotKey
from windvane.service.store.rows import (
    Lesson,
    LogPosition,
    LoopRow,
    SettingsChange,
)
from windvane.service.store.writer.log_news import LogNews
from windvane.service.store.writer.reward_operations import RewardTerms

NOT_DAMAGES = ("locked", "full", "unreachable", "readonly")  # of a snapshot: try again later
FORGET = "forget"  # author of a change of settings that also deletes the belief
CATCH_UP_LESSONS = 1000  # lessons read at a time
SNAPSHOT_EVERY_LESSONS = 1000  # of the loop itself, or more if a snapshot is large
SNAPSHOT_BYTES_PER_LESSON = 1 << 12  # at most, on average
NEVER = Moment(0, 0)
logger = logging.getLogger("windvane.service")


class SnapshotContent(msgspec.Struct, frozen=True):
    """A stored belief: the model, and round and time of the newest decision that it learned."""

    model: bytes
    newest: tuple[int, int]
    checksum: int


decode_snapshot = msgspec.msgpack.Decoder(SnapshotContent).decode


def _compute_checksum(model: bytes, newest: tuple[int, int], loop: int, lesson: int) -> int:
    return zlib.crc32(model, zlib.crc32(repr((*newest, loop, lesson)).encode()))


class SettingsInForce(NamedTuple):
    """The settings that requests and sweeps follow: those of the last change in the log."""

    settings: LoopSettings
    terms: RewardTerms  # of these settings, with the id of the change
    changed_at: int


class FoldedState:
    """The belief after a lesson and a change of settings, and all that a restore replaces."""

    def __init__(self, model: LearnerModel, newest: Moment = NEVER, last_lesson: int = 0) -> None:
        self.model = model
        self.newest = newest  # of the decisions that were learned
        self.last_lesson = last_lesson  # id of the last lesson learned
        self.last_change = 0  # id of the last change of settings that the model follows
        self.lessons_since_snapshot = 0

    def apply(self, lessons: Iterable[Lesson], due: list[SettingsChange]) -> None:
        """Learn lessons, with the changes of settings that are due between and after them."""
        for lesson in lessons:
            while due and due[0].lesson < lesson.id:
                self.change_settings(due.pop(0))
            self.learn([lesson])
        while due and due[0].lesson <= self.last_lesson:
            self.change_settings(due.pop(0))

    def change_settings(self, change: SettingsChange) -> None:
        """Let the model follow new settings; it keeps its belief, unless by `FORGET`."""
        if change.id <= self.last_change:  # a restore has read the change from the log already
            return
        settings = LoopSettings.from_json(change.settings)
        if change.by == FORGET:
            self.model = self.model.renew(settings)
        else:
            self.model = self.model.carry(settings, self.newest)
        self.last_change = change.id

    def learn(self, lessons: Iterable[Lesson]) -> None:
        """Learn lessons in the order of the log; lessons learned before are skipped."""
        for lesson in lessons:
            if lesson.id <= self.last_lesson:
                continue
            self.model.apply(lesson)
            self.newest = max(self.newest, Moment(lesson.round, lesson.ranked_at))
            self.last_lesson = lesson.id
            self.lessons_since_snapshot += 1


def load_newest_snapshot(store: LogReader, loop: int) -> tuple[FoldedState, str]:
    """Load the newest snapshot of a loop (id) that is not damaged, or begin before all lessons.

    Also returns which snapshots are damaged and what is used instead, empty if none is. Raises a
    StoreError if no snapshot can be read and some lessons are deleted.
    """
    keys = store.list_snapshots(loop)
    # Read after the snapshots, so that no change is missing that another server wrote before one.
    changes = store.list_settings_changes(loop)
    damages: list[str] = []
    for key in keys:
        try:
            state = _load_snapshot(store, loop, key, changes)
        except Exception as reason:
            if isinstance(reason, StoreError) and reason.kind in NOT_DAMAGES:
                raise
            damages.append(f"the snapshot after lesson {key.lesson} is damaged ({reason})")
        else:
            remedy = f"the snapshot after lesson {key.lesson} was used"
            return state, "; ".join([*damages, remedy]) if damages else ""
    funnel = store.read_funnel(loop)
    learned = funnel.learned + funnel.summed + funnel.default
    if damages and store.count_lessons(loop) < learned:
        message = f"{damages[0]}, and older lessons are deleted: restore a backup"
        raise StoreError(f"store: {message}", "damaged")
    state = FoldedState(LearnerModel(LoopSettings.from_json(changes[0].settings)))
    remedy = "all lessons of the log were learned again"
    return state, "; ".join([*damages, remedy]) if damages else ""


def _load_snapshot(
    store: LogReader, loop: int, key: SnapshotKey, changes: Sequence[SettingsChange]
) -> FoldedState:
    content = decode_snapshot(store.read_snapshot(loop, key))
    checksum = _compute_checksum(content.model, content.newest, loop, key.lesson)
    if content.checksum != checksum:
        raise FileError("its checksum does not fit")
    applied = [change for change in changes if change.lesson < key.lesson] or changes[:1]
    settings = LoopSettings.from_json(applied[-1].settings)
    model = LearnerModel.load(settings, content.model)
    state = FoldedState(model, Moment(*content.newest), key.lesson)
    state.last_change = applied[-1].id
    return state


class LogFold:
    """The log of one loop, folded up to a lesson.

    Other threads read it at any time. The settings in force are those of the last change that was
    read from the log, and never go back. A restore folds into a state of its own, which takes the
    place of the present one in one step.
    """

    def __init__(self, row: LoopRow, store: LogReader, clock: ServiceClock) -> None:
        self.id = row.id
        self.name = row.name
        self.created = row.created
        self.store = store
        self.clock = clock
        self.rounds: RoundSupply | None = None  # None: no other server decides in this loop
        self.lags: LessonLags | None = None  # of lessons that other servers have written
        self.work = WorkQueue()
        self.must_restore = False  # whether the log may hold more than this fold was sent
        self.damage: str | None = None  # the snapshots that could not be read, and what was done
        self._enforcing = Lock()
        settings = LoopSettings.from_json(row.settings)
        self.in_force = SettingsInForce(settings, _make_terms(settings, 0), row.created)
        self.state = FoldedState(LearnerModel(settings))
        self.restore()

    @property
    def settings(self) -> LoopSettings:
        return self.in_force.settings

    @property
    def terms(self) -> RewardTerms:
        """How rewards are matched under the settings in force."""
        return self.in_force.terms

    @property
    def model(self) -> LearnerModel:
        """What the loop has learned."""
        return self.state.model

    @property
    def last_lesson(self) -> int:
        """The id of the last lesson that the loop has learned."""
        return self.state.last_lesson

    @property
    def last_change(self) -> int:
        """The id of the last change of settings that the model follows."""
        return self.state.last_change

    def enforce(self, change: SettingsChange) -> None:
        """Follow the settings of a change, unless those of a later one are in force; any thread."""
        settings = LoopSettings.from_json(change.settings)
        terms = _make_terms(settings, change.id)
        with self._enforcing:
            if change.id > self.terms.change:
                self.in_force = SettingsInForce(settings, terms, change.at)

    def restore(self) -> None:
        """Load the last snapshot and apply the lessons and changes of settings after it.

        If the log cannot be read, the loop stays as it was: a loop that had forgotten its round
        would decide in rounds that others had.
        """
        state, damage = load_newest_snapshot(self.store, self.id)
        for lessons in self.store.iterate_lessons(self.id, state.last_lesson):
            state.apply(lessons, self._list_due_changes(state))
        state.apply([], self._list_due_changes(state))
        last_round = self.store.find_last_round(self.id)
        next_round = 0 if last_round is None else last_round + 1
        position = self.store.read_positions(self.id).get(self.id, LogPosition())
        taken = position.next_round if self.rounds is None else 0  # by servers before this one
        learner = state.model.learner
        learner.round = max(self.model.learner.round, learner.round, next_round, taken)
        self.damage = f"loop {self.name}: {damage}" if damage else None
        if self.damage:
            logger.warning(self.damage)
        self.state = state
        self.must_restore = False

    def _list_due_changes(self, state: FoldedState) -> list[SettingsChange]:
        """List the changes of settings that a state lacks; the last one is in force from now on.

        If they are read after some lessons, all that were written before one of these lessons are
        among them, also if another server writes at the same time.
        """
        changes = self.store.list_settings_changes(self.id)
        self.enforce(changes[-1])
        return [change for change in changes if change.id > state.last_change]

    def catch_up(self) -> None:
        """Apply what other servers have written to the log since the last lesson and change."""
        state = self.state
        while True:
            batches = self.store.iterate_lessons(self.id, state.last_lesson, CATCH_UP_LESSONS)
            batch = next(batches, [])
            due = self._list_due_changes(state)
            position = self.store.read_positions(self.id).get(self.id, LogPosition())
            if position.deleted_lesson > state.last_lesson:
                self.restore()  # lessons that this loop lacks are only in a snapshot
                return
            state.apply(batch, due)
            if self.lags is not None:
                self.lags.observe(batch, self.clock.now_us())
            if len(batch) < CATCH_UP_LESSONS:
                return

    def has_missed(self, lesson: Lesson) -> bool:
        """Whether the log has something before a lesson that this loop has not applied."""
        return lesson.id > self.last_lesson and self.is_behind(lesson.previous, lesson.change)

    def has_missed_change(self, change: SettingsChange) -> bool:
        """Whether the log has something before a change of settings that is not applied."""
        return change.id > self.last_change and self.is_behind(change.lesson, change.previous)

    def is_behind(self, lesson: int, change: int) -> bool:
        """Whether the log has got further than this loop, by the ids of its last rows."""
        return lesson > self.last_lesson or change > self.last_change

    def restore_if_outdated(self) -> None:
        """Read the log again if it may have lessons, settings or rounds that this loop has not."""
        last_round = self.store.find_last_round(self.id)
        if (
            self.must_restore
            or (last_round is not None and last_round >= self.model.learner.round)
            or self._list_due_changes(self.state)
            or any(self.store.iterate_lessons(self.id, self.last_lesson, 1))
        ):
            self.restore()

    def change_settings(self, change: SettingsChange) -> None:
        """Take over new settings; the belief stays, unless the change is by `FORGET`."""
        self.enforce(change)
        self.state.change_settings(change)

    def learn(self, lessons: Iterable[Lesson]) -> None:
        """Learn lessons in the order of the log; lessons learned before are skipped."""
        self.state.learn(lessons)

    def is_long_lesson(self, lessons: Sequence[Lesson]) -> bool:
        """Whether lessons take so long to learn that other loops must not wait for them."""
        return self.model.is_long_lesson([lesson.features for lesson in lessons])

    @property
    def needs_snapshot(self) -> bool:
        """Whether the lessons since the last snapshot are worth the bytes of a new one."""
        state = self.state
        lessons = state.model.size_bytes // SNAPSHOT_BYTES_PER_LESSON
        return state.lessons_since_snapshot >= max(SNAPSHOT_EVERY_LESSONS, lessons)

    def encode_snapshot(self) -> bytes:
        """The belief as the store keeps it."""
        state = self.state
        saved = state.model.save()
        checksum = _compute_checksum(saved, state.newest, self.id, state.last_lesson)
        return msgspec.msgpack.encode(SnapshotContent(saved, state.newest, checksum))


def _make_terms(settings: LoopSettings, change: int) -> RewardTerms:
    return RewardTerms(settings.reward_wait_us, settings.sums_rewards, change)


def teach(fold: LogFold, result: Any) -> None:
    """Let a fold apply the result of an operation; called in the order of the log."""
    if isinstance(result, SettingsChange):
        fold.enforce(result)  # at once: the fold may have much to learn before
    lessons: Sequence[Lesson] | None = getattr(result, "lessons", None)
    if lessons == () and not fold.must_restore:
        return  # nothing follows from most decisions
    is_long = (
        isinstance(result, (SettingsChange, LogNews))
        or fold.must_restore
        or bool(lessons and (fold.has_missed(lessons[0]) or fold.is_long_lesson(lessons)))
    )
    fold.work.run(partial(_apply_result, fold, result), is_long)


def _catch_up(fold: LogFold) -> bool:
    """Read what a fold has missed; False if the log cannot be read now."""
    try:
        fold.catch_up()
    except StoreError:
        fold.must_restore = True
        return False
    return True


def _apply_result(fold: LogFold, result: Any) -> None:
    """Apply a result, after all that the log has before it."""
    if isinstance(result, StoreError):
        # The operation may be in the log although its acknowledgement was lost.
        fold.must_restore |= is_database_failure(result)
    elif fold.must_restore:
        with suppress(StoreError):
            fold.restore()
    elif isinstance(result, LogNews):
        if fold.is_behind(result.lesson, result.change):
            _catch_up(fold)
    elif isinstance(result, SettingsChange):
        if not fold.has_missed_change(result) or _catch_up(fold):
            fold.change_settings(result)
    else:
        for lesson in getattr(result, "lessons", ()):
            if fold.has_missed(lesson) and not _catch_up(fold):
                return
            fold.learn([lesson])
