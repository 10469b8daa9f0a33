"""One loop: its settings, its belief, and how it decides and learns.

The log is the durable part. The belief is a fold over the lessons of the log in the order of their
ids, and nothing else changes it: a belief that was restored from a snapshot and then learned the
later lessons has the same bits as one that learned them all.
"""

import asyncio
import logging
import math
from collections.abc import Iterable, Sequence

import msgspec
import numpy as np

from windvane.errors import FeatureError
from windvane.service.clock import ServiceClock
from windvane.service.errors import RankRequestError
from windvane.service.loops.event_ids import make_event_id
from windvane.service.loops.expiry_schedule import ExpirySchedule
from windvane.service.loops.learner_model import Choice, LearnerModel, Moment
from windvane.service.loops.log_sharing import LessonLags
from windvane.service.loops.offered_actions import Offer
from windvane.service.loops.round_supply import RoundSupply
from windvane.service.loops.settings import LoopSettings
from windvane.service.loops.snapshot import SnapshotContent, compute_checksum
from windvane.service.loops.snapshot_loading import list_changes_before, load_newest_snapshot
from windvane.service.loops.work_queue import WorkQueue
from windvane.service.schemas import RankOptions
from windvane.service.store.decision_codec import render_answer
from windvane.service.store.log import LogReader
from windvane.service.store.rows import (
    DecisionRow,
    HalfLifeChange,
    Lesson,
    LogPosition,
    LoopRow,
    SettingsChange,
)
from windvane.service.store.writer.reward_matching import RewardTerms

FORGET = "forget"  # author of a change of settings that also deletes the belief
# Beyond one of these, work takes more than some milliseconds, and is done in a thread.
MAX_SHORT_TEXT = 1 << 15  # characters of a rank request
MAX_SHORT_CROSSINGS = 1 << 17  # of context and actions, estimated from the size of their text
SNAPSHOT_EVERY_LESSONS = 1000  # of the loop itself, or more if a snapshot is large
SNAPSHOT_BYTES_PER_LESSON = 1 << 12  # at most, on average
CATCH_UP_LESSONS = 1000  # that are read at a time
CHARACTERS_PER_NUMBER = 4  # of a request with many features; two are the fewest
_encode_json = msgspec.json.Encoder().encode
logger = logging.getLogger("windvane.service")


def cut_offer(
    text: str | None, offer_text: str | None, likely_at: int = 0
) -> tuple[str | None, int | None]:
    """Cut the offered actions out of a request: the rest, and how long it is before the gap.

    The place is None if the text of the actions is not in the request. `likely_at` is tried first.
    """
    if text is None or offer_text is None:
        return text, None
    is_likely = text.startswith(offer_text, likely_at)
    offer_at = likely_at if is_likely else text.find(offer_text)
    if offer_at < 0:
        return text, None
    return text[:offer_at] + text[offer_at + len(offer_text) :], offer_at


def render(decision: DecisionRow, offer: Offer) -> bytes:
    """The answer to the rank request of a decision."""
    probabilities = np.frombuffer(decision.probabilities).tolist()
    return render_answer(
        decision.event_id, offer.ids, probabilities, decision.chosen, decision.degraded
    )


class Loop:
    """One loop in memory. It decides and learns; the store makes its decisions durable."""

    def __init__(self, row: LoopRow, store: LogReader, clock: ServiceClock | None = None) -> None:
        self.id = row.id
        self.name = row.name
        self.created = row.created
        self.store = store
        self.clock = clock or ServiceClock(store.find_newest_time())
        self.settings = LoopSettings.from_json(row.settings)
        self.model = LearnerModel(self.settings)
        self.last_lesson = 0  # id of the last lesson learned
        self.last_change = 0  # id of the last change of settings
        self.changed_at = row.created  # when the settings were changed last
        self.newest = Moment(0, 0)  # of the newest decision that was learned
        self.lessons_since_snapshot = 0
        self.unwritten_changes: list[HalfLifeChange] = []  # of the half-life, for the log
        self.expiries = ExpirySchedule()
        self.work = WorkQueue()
        self.changing = asyncio.Lock()  # one change of settings at a time: each reads the last
        self.saving = asyncio.Lock()  # one snapshot at a time: each deletes the parts of others
        self.damage: str | None = None  # which snapshots could not be read, and what was done
        self.must_restore = False  # whether the log may hold more than this loop was sent
        self.rounds: RoundSupply | None = None  # None: no other server decides in this loop
        self.lags: LessonLags | None = None  # of lessons that other servers have written
        self._apprentice_decisions = 0
        self._apprentice_agreements = 0  # decisions whose first action was the model's choice
        self.restore()

    @property
    def settings(self) -> LoopSettings:
        """The settings that decisions follow now."""
        return self._settings

    @settings.setter
    def settings(self, settings: LoopSettings) -> None:
        self._settings = settings
        self.terms = RewardTerms(settings.reward_wait_us, settings.sums_rewards)

    def restore(self) -> None:
        """Load the last snapshot and apply the lessons and changes of settings after it.

        If the log cannot be read, the loop stays as it was: a loop that had forgotten its round
        would decide in rounds that others had.
        """
        before = (self.settings, self.model, self.newest, self.last_lesson, self.last_change)
        changed_before = self.changed_at
        lessons_before = self.lessons_since_snapshot
        try:
            self._fold_log()
        except BaseException:
            self.settings, self.model, self.newest, self.last_lesson, self.last_change = before
            self.lessons_since_snapshot = lessons_before
            self.changed_at = changed_before
            raise
        self.must_restore = False

    def _fold_log(self) -> None:
        round_before = self.model.round
        snapshot, damage, changes = load_newest_snapshot(self.store, self.id, self.settings)
        self._note_damage(damage)
        if snapshot is not None:
            self.settings, self.model, self.newest, self.last_lesson = snapshot
        else:
            self.settings = LoopSettings.from_json(changes[0].settings)
            self.model = LearnerModel(self.settings)
            self.newest = Moment(0, 0)
            self.last_lesson = 0
        self.lessons_since_snapshot = 0
        applied = list_changes_before(changes, self.last_lesson)
        self.last_change = applied[-1].id if applied else 0
        self.changed_at = applied[-1].at if applied else self.created
        for lessons in self.store.iterate_lessons(self.id, self.last_lesson):
            self._apply(lessons, self._list_due_changes())
        self._apply([], self._list_due_changes())
        last_round = self.store.find_last_round(self.id)
        next_round = 0 if last_round is None else last_round + 1
        position = self.store.read_positions(self.id).get(self.id, LogPosition())
        taken = position.next_round if self.rounds is None else 0  # by servers before this one
        self.model.round = max(round_before, self.model.round, next_round, taken)

    def _note_damage(self, damage: str | None) -> None:
        self.damage = f"loop {self.name}: {damage}" if damage else None
        if self.damage:
            logger.warning(self.damage)

    def _list_due_changes(self) -> list[SettingsChange]:
        """List the changes of settings that are not applied yet.

        If they are read after some lessons, all that were written before one of these lessons are
        among them, also if another server writes at the same time.
        """
        changes = self.store.list_settings_changes(self.id)
        return [change for change in changes if change.id > self.last_change]

    def _apply(self, lessons: Iterable[Lesson], due: list[SettingsChange]) -> None:
        """Learn lessons, with the changes of settings that are due between and after them."""
        for lesson in lessons:
            while due and due[0].lesson < lesson.id:
                self.change_settings(due.pop(0))
            self.learn([lesson])
        while due and due[0].lesson <= self.last_lesson:
            self.change_settings(due.pop(0))

    def catch_up(self) -> None:
        """Apply what other servers have written to the log since the last lesson and change."""
        while True:
            batches = self.store.iterate_lessons(self.id, self.last_lesson, CATCH_UP_LESSONS)
            batch = next(batches, [])
            due = self._list_due_changes()
            position = self.store.read_positions(self.id).get(self.id, LogPosition())
            if position.deleted_lesson > self.last_lesson:
                self.restore()  # lessons that this loop lacks are only in a snapshot
                return
            self._apply(batch, due)
            if self.lags is not None:
                self.lags.observe(batch, self.clock.now_us())
            if len(batch) < CATCH_UP_LESSONS:
                return

    def has_missed(self, lesson: Lesson) -> bool:
        """Whether the log has something before a lesson that this loop has not applied."""
        return lesson.id > self.last_lesson and (
            lesson.previous > self.last_lesson or lesson.change > self.last_change
        )

    def has_missed_change(self, change: SettingsChange) -> bool:
        """Whether the log has something before a change of settings that is not applied."""
        return change.id > self.last_change and (
            change.previous > self.last_change or change.lesson > self.last_lesson
        )

    def is_behind(self, lesson: int, change: int) -> bool:
        """Whether the log has got further than this loop, by the ids of its last rows."""
        return lesson > self.last_lesson or change > self.last_change

    def is_outdated(self) -> bool:
        """Whether the log has lessons, settings or rounds that this loop has not."""
        changes = self.store.list_settings_changes(self.id)
        last_round = self.store.find_last_round(self.id)
        return (
            (last_round is not None and last_round >= self.model.round)
            or any(change.id > self.last_change for change in changes)
            or next(self.store.iterate_lessons(self.id, self.last_lesson, 1), None) is not None
        )

    def change_settings(self, change: SettingsChange) -> None:
        """Take over new settings; the belief stays, unless the change is by `FORGET`."""
        if change.id <= self.last_change:  # a restore has read the change from the log already
            return
        self.last_change = change.id
        self.changed_at = change.at
        self.settings = LoopSettings.from_json(change.settings)
        if change.by == FORGET:
            self.model = self.model.renew(self.settings)
        else:
            self.model = self.model.carry(self.settings, self.newest)

    def decide(
        self,
        request: RankOptions,
        offer: Offer,
        text: str | None = None,
        degraded: bool = False,
        round_: int | None = None,
    ) -> DecisionRow:
        """A decision, ready for the store; a degraded one takes the first action, unlearned.

        `text` is the request as it came, for the log. `round_` is the round of the decision if
        several servers share the log; otherwise it is the next round of the model.
        """
        at = self.clock.now_us()
        event_id = request.event_id or make_event_id(at)
        if "\0" in event_id:
            raise RankRequestError("eventId must have no NUL", "eventId")
        places = offer.places_without(request.excluded_actions)
        chosen = places[0]
        features = None
        if round_ is None or degraded:
            round_ = self.model.round
        else:
            self.model.round = round_
        mode = self.settings.learning_mode
        if degraded:
            probabilities = np.zeros(len(offer.ids))
            probabilities[chosen] = 1.0
        else:
            choice = self._choose(request, offer, places, at)
            chosen = places[choice.chosen]
            probabilities = choice.probabilities
            if len(places) < len(offer.ids):
                probabilities = np.zeros(len(offer.ids))
                probabilities[places] = choice.probabilities
            features = None if mode == "LoggingOnly" else choice.features
        rest, offer_at = cut_offer(text, offer.text, offer.last_start)
        offer.last_start = offer_at or 0
        return DecisionRow(
            loop=self.id,
            event_id=event_id,
            round=round_,
            at=at,
            mode=mode,
            deferred=request.defer_activation,
            degraded=degraded,
            chosen=chosen,
            features=features,
            probabilities=probabilities.tobytes(),
            actions=offer.ids_json,
            answer=b"",  # `render` makes it, and the log rebuilds it
            request=rest or _encode_json(request).decode(),
            offer=None if offer_at is None else offer.text,
            offer_at=offer_at,
        )

    def is_long_rank(self, offer: Offer, text_size: int) -> bool:
        """Whether a rank takes so long that other loops must not wait for it."""
        crossings = (text_size - offer.text_size) * offer.text_size // CHARACTERS_PER_NUMBER**2
        return text_size > MAX_SHORT_TEXT or crossings > MAX_SHORT_CROSSINGS

    def is_long_lesson(self, lessons: Sequence[Lesson]) -> bool:
        """Whether lessons take so long to learn that other loops must not wait for them."""
        return self.model.is_long_lesson([lesson.features for lesson in lessons])

    def _choose(self, request: RankOptions, offer: Offer, places: Sequence[int], at: int) -> Choice:
        """Choose among `places`, by the model or, in mode Apprentice, the first of them."""
        try:
            context, actions = request.context_features, offer.packed_actions
            choice = self.model.rank(context, actions, places, at)
            if self.settings.learning_mode != "Apprentice":
                return choice
            features = self.model.encode_action(context, actions, places[0])
        except FeatureError as reason:
            raise RankRequestError(str(reason), "features") from None
        self._apprentice_decisions += 1
        self._apprentice_agreements += choice.chosen == 0
        baseline = np.zeros(len(places))
        baseline[0] = 1.0
        return Choice(0, baseline, features)

    @property
    def needs_snapshot(self) -> bool:
        """Whether the lessons since the last snapshot are worth the bytes of a new one."""
        lessons = self.model.size_bytes // SNAPSHOT_BYTES_PER_LESSON
        return self.lessons_since_snapshot >= max(SNAPSHOT_EVERY_LESSONS, lessons)

    @property
    def agreement(self) -> float:
        """Share of decisions in mode Apprentice whose first action was the model's choice.

        Counted since this process loaded the loop; NaN without such decisions.
        """
        if not self._apprentice_decisions:
            return math.nan
        return self._apprentice_agreements / self._apprentice_decisions

    def learn(self, lessons: Iterable[Lesson]) -> None:
        """Learn lessons in the order of the log; lessons learned before are skipped."""
        for lesson in lessons:
            if lesson.id <= self.last_lesson:
                continue
            moment = Moment(lesson.round, lesson.ranked_at)
            if lesson.kind == "amend":
                self.model.amend(lesson.features, lesson.value, moment)
            elif self.model.learn(lesson.features, lesson.value, moment):
                half_life = self.model.half_life
                seconds = half_life if math.isfinite(half_life) else None
                self.unwritten_changes.append(HalfLifeChange(lesson.id, lesson.at, seconds))
            self.newest = max(self.newest, moment)
            self.last_lesson = lesson.id
            self.lessons_since_snapshot += 1

    def encode_snapshot(self) -> bytes:
        """The belief as the store keeps it."""
        model = self.model.save()
        checksum = compute_checksum(model, self.newest, self.id, self.last_lesson)
        return msgspec.msgpack.encode(SnapshotContent(model, self.newest, checksum))
