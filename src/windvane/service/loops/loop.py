"""A loop: one decision made again and again, and what it has learned.

What is durable is the store's. The belief is a fold over its lessons, in the order of their ids,
and nothing else moves it: loaded from a snapshot and folded on, it has the same bits.
"""

import io
import math
import os
from collections.abc import Iterable
from dataclasses import replace

import msgspec
import numpy as np

from windvane.errors import FeatureError
from windvane.policy import Policy
from windvane.service.clock import MICROSECONDS_PER_SECOND, now_us
from windvane.service.features.encoder import Encoder
from windvane.service.loops import settings as told
from windvane.service.loops.offered_actions import Offer
from windvane.service.loops.settings import Settings
from windvane.service.schemas import Rank, Ranked, RankResponse, bad
from windvane.service.store.log import LogReader
from windvane.service.store.reward_matching import RewardTerms
from windvane.service.store.schema import Decision, Lesson, LoopRow, SettingsChange
from windvane.types import Floats

OFTEN = 1000  # lessons between two snapshots
FORGET = "forget"  # who changed settings, where all that was learned is to go
encode_json = msgspec.json.Encoder().encode


def fresh_event(at: int) -> str:
    """An event id that nobody can guess; in the order of time, which an index of them likes."""
    if not _chance:
        drawn = os.urandom(9 * 256).hex()  # one call of the system for many events
        _chance.extend(drawn[k : k + 18] for k in range(0, len(drawn), 18))
    return f"{at:014x}{_chance.pop()}"


_chance: list[str] = []


class Packed(msgspec.Struct, frozen=True):
    """A snapshot."""

    policy: bytes
    newest: tuple[int, int]


unpack = msgspec.msgpack.Decoder(Packed).decode


class Loop:
    """One loop in memory: it decides and learns; what it says is durable once the store says so."""

    def __init__(self, row: LoopRow, store: LogReader) -> None:
        self.id, self.name, self.created = row.id, row.name, row.created
        self.store = store
        self.settings = told.read(row.settings)
        self.encoder = Encoder(self.settings.dim)
        self.policy = self._blank()
        self.lesson = 0  # the last one learned
        self.changed = 0  # the last change of settings
        self.newest = 0, 0  # the round and the time of the newest decision learned from
        self.agreed = 0  # decisions as an apprentice in which the first action was its own choice
        self.asked = 0
        self.in_doubt = False  # whether the log may hold more than was told
        self.restore()

    def _blank(self) -> Policy:
        given = self.settings
        return Policy(
            given.dim,
            given.memory(),
            given.exploration(),
            given.ridge,
            seed=given.seed,
            floor=given.exploration_percentage,
        )

    def restore(self) -> None:
        """Load the last snapshot, and go through the lessons and settings that came after it."""
        round_ = self.policy.round
        changes = self.store.list_settings_changes(self.id)
        snapshot = self.store.find_snapshot(self.id)
        if snapshot is not None:
            packed = unpack(snapshot.blob)
            self.policy, self.newest = Policy.load(io.BytesIO(packed.policy)), packed.newest
            self.lesson = snapshot.lesson
        else:
            self.settings = told.read(changes[0].settings)
            self.policy, self.newest, self.lesson = self._blank(), (0, 0), 0
        due = [change for change in changes if change.lesson >= self.lesson]
        before = [change for change in changes if change.lesson < self.lesson]
        self.changed = before[-1].id if before else 0
        if before:
            self.settings = told.read(before[-1].settings)
        for lessons in self.store.iterate_lessons(self.id, self.lesson):
            for lesson in lessons:
                while due and due[0].lesson < lesson.id:
                    self.change(due.pop(0))
                self.learn([lesson])
        for change in due:
            self.change(change)
        last = self.store.find_last_round(self.id)
        self.policy.round = max(round_, self.policy.round, 0 if last is None else last + 1)
        self.in_doubt = False

    def change(self, change: SettingsChange) -> None:
        """Take over new settings; what was learned stays, unless it is to be forgotten."""
        if change.id <= self.changed:  # read from the log before it was told
            return
        self.changed = change.id
        self.settings = told.read(change.settings)
        if change.by == FORGET:
            old, self.policy = self.policy, self._blank()
            self.policy.key, self.policy.round = old.key, old.round
        else:
            self.policy = self.carried(self.policy, self.newest)

    def carried(self, old: Policy, newest: tuple[int, int]) -> Policy:
        """A policy of these settings that believes what the old one did, up to `newest`."""
        fresh = self._blank()
        if repr(fresh) == repr(old):
            return old
        fresh.key, fresh.round = old.key, old.round
        belief = replace(old.belief, memory=fresh.memory, clock=self._clock(*newest))
        if belief.seen:
            fresh.belief = belief
        return fresh

    def _clock(self, round_: int, at: int) -> float:
        """When something was decided, as the memory counts it."""
        return float(round_) if self.in_rounds else at / MICROSECONDS_PER_SECOND

    def decide(
        self, request: Rank, offer: Offer, text: str | None = None, degraded: bool = False
    ) -> Decision:
        """A decision, ready for the store; degraded, the first action and nothing to learn.

        `text` is the request as it came, which is kept.
        """
        at = now_us()
        event = request.event_id or fresh_event(at)
        if "\0" in event:
            raise bad("InvalidRankRequest", "eventId must have no NUL", "eventId")
        open_ = offer.without(request.excluded_actions)
        chosen, features, round_ = open_[0], None, self.policy.round
        mode = self.settings.learning_mode
        if degraded:
            shares = np.zeros(len(offer.ids))
            shares[chosen] = 1.0
        else:
            place, chances, rows = self._choose(request, offer, open_)
            chosen, shares = open_[place], chances
            if len(open_) < len(offer.ids):
                shares = np.zeros(len(offer.ids))
                shares[open_] = chances
            features = None if mode == "LoggingOnly" else rows[place].tobytes()
        ranking = [*map(Ranked, offer.ids, shares.tolist())]
        answer = RankResponse(ranking, event, offer.ids[chosen], degraded)
        return Decision(
            loop=self.id,
            event_id=event,
            round=round_,
            at=at,
            mode=mode,
            deferred=request.defer_activation,
            degraded=degraded,
            chosen=chosen,
            features=features,
            probabilities=shares.tobytes(),
            actions=offer.names,
            answer=encode_json(answer),
            request=text or encode_json(request).decode(),
        )

    def _choose(self, request: Rank, offer: Offer, open_: list[int]) -> tuple[int, Floats, Floats]:
        """The place of the action to take among the open ones, all chances, and all features."""
        try:
            rows = self.encoder.encode(request.context_features, offer.packed)
        except FeatureError as reason:
            raise bad("InvalidRankRequest", str(reason), "features") from None
        if len(open_) < len(rows):
            rows = rows[open_]
        choice, chances = self.policy.choose_with_propensities(rows)
        self.policy.dismiss(choice)
        if self.settings.learning_mode == "Apprentice":
            self.asked += 1
            self.agreed += choice.index == 0
            baseline = np.zeros(len(rows))
            baseline[0] = 1.0
            return 0, baseline, rows
        return choice.index, chances, rows

    @property
    def agreement(self) -> float:
        """The share of an apprentice's choices, since it was loaded, that were the first action."""
        return self.agreed / self.asked if self.asked else math.nan

    @property
    def settings(self) -> Settings:
        """What it was told."""
        return self._settings

    @settings.setter
    def settings(self, settings: Settings) -> None:
        self._settings = settings
        self.terms = RewardTerms(settings.wait, settings.adds)  # on which rewards are taken
        self.in_rounds = settings.in_rounds

    def learn(self, lessons: Iterable[Lesson]) -> None:
        """Learn in the order of the log; what was read there before it is told, once."""
        for lesson in lessons:
            if lesson.id <= self.lesson:
                continue
            features = np.frombuffer(lesson.features)
            at = self._clock(lesson.round, lesson.ranked_at)
            if lesson.kind == "amend":
                self.policy.amend(features, lesson.value, at)
            else:
                self.policy.learn(features, lesson.value, at)
            self.newest = max(self.newest, (lesson.round, lesson.ranked_at))
            self.lesson = lesson.id

    def snapshot(self) -> bytes:
        """What is believed, as bytes."""
        file = io.BytesIO()
        self.policy.save(file)
        return msgspec.msgpack.encode(Packed(file.getvalue(), self.newest))
