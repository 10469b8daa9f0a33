"""Following a loop's log: its last decisions in memory, and what was believed before each lesson.

The log does not keep what a loop predicted. A second policy of the same settings is taught the same
lessons in the same order, and asked before each. Where the log in hand starts at the loop's first
lesson, this is what the loop itself believed; where it starts later, the first `WARM` errors are
left out, while it catches up.
"""

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from math import isnan
from statistics import fmean
from sys import intern
from threading import Lock
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from windvane.service.clock import MICROSECONDS_PER_SECOND
from windvane.service.loops.loop import Loop
from windvane.service.monitoring.drift_alarm import DriftAlarm
from windvane.service.monitoring.estimates import (
    NAN,
    DecisionColumns,
    LessonColumns,
    compute_distance,
)
from windvane.service.store import monitoring_queries
from windvane.service.store.monitoring_queries import DecisionSummary
from windvane.service.store.schema import Lesson, decode_action_ids

MOST = 20_000  # decisions that are looked at
BATCH = 250
ROOM = 4_000_000  # numbers of estimates that are kept: of large ones, not that of every lesson
WARM = 500
BUDGET = 0.4  # seconds of work at a time
FRESH = 1.0  # seconds for which what was read of the log is fresh enough


class Excluded(msgspec.Struct, rename="camel"):
    """The part of a request that says what was not to be chosen."""

    excluded_actions: list[str] = []


read_excluded = msgspec.json.Decoder(Excluded).decode


@dataclass(slots=True)
class Row:
    """A decision, as much of it as is needed."""

    id: int
    at: int
    baseline: float
    uniform: float
    action: str
    explored: bool
    reward: float = NAN


class Drift(NamedTuple):
    """How much the world drifts, in numbers; NaN where it is not known."""

    alarms: float  # in view
    error: float  # of prediction, √(mean of squares)
    movement: float  # of the estimate


class Watch:
    """A loop as seen from its log; `advance` takes in what is new."""

    def __init__(self, loop: Loop, most: int = MOST) -> None:
        self.loop, self.most = loop, most
        self.lock = Lock()
        self.rows: deque[Row] = deque()
        self.by_id: dict[int, Row] = {}
        self.errors: deque[tuple[int, float]] = deque(maxlen=most)
        self.alarm, self.alarms = DriftAlarm(), deque[int]()
        self.stride = -(-most * loop.settings.dim // ROOM)  # lessons between two kept estimates
        self.path: deque[tuple[int, npt.NDArray[np.float32]]] = deque(
            maxlen=most // self.stride + 1
        )
        self.ages: deque[float] = deque(maxlen=most)  # in the unit of the half-life
        self.count = 0  # lessons taught
        self.behind = True
        self.read = 0.0  # when, in seconds of the monotonic clock
        self._newest = 0, 0  # the round and time of the newest decision learned from
        self._replaced, self.shadow = loop.policy, loop.settings.build_policy()
        self.decision, self.lesson = self._start()
        self.cold = WARM if loop.policy.belief.seen > self._taught() else 0
        if not self.cold:
            self._keep(0)

    def _start(self) -> tuple[int, int]:
        """The last decision and lesson that are not looked at."""
        return monitoring_queries.find_window_start(self.loop.store, self.loop.id, self.most)

    def _taught(self) -> int:
        """How many observations the log in hand has."""
        return monitoring_queries.count_observations(self.loop.store, self.loop.id, self.lesson)

    @property
    def truncated(self) -> bool:
        """Whether there are decisions from before those that are looked at."""
        return len(self.rows) >= self.most

    def waiting(self) -> int:
        """How many decisions still wait for their reward."""
        return monitoring_queries.count_waiting_decisions(self.loop.store, self.loop.id)

    def advance(self, budget: float = BUDGET) -> None:
        """Take in what the log has that is new, for as long as the budget of seconds lasts."""
        until = time.monotonic() + budget
        with self.lock:
            self._follow_deletion()
            self.behind = not (self._take_decisions(until) and self._take_lessons(until))
            self.read = time.monotonic()

    def refresh(self, budget: float = BUDGET) -> None:
        """Take in what is new, unless that was done just now."""
        if time.monotonic() - self.read > FRESH:
            self.advance(budget)

    def _follow_deletion(self) -> None:
        first = monitoring_queries.find_first_decision(self.loop.store, self.loop.id)
        self._drop(lambda row: first is None or row.id < first)

    def _drop(self, gone: Callable[[Row], bool]) -> None:
        while self.rows and gone(self.rows[0]):
            del self.by_id[self.rows.popleft().id]

    def _take_decisions(self, until: float) -> bool:
        """Whether all of them could be taken in."""
        while summaries := monitoring_queries.list_decision_summaries(
            self.loop.store, self.loop.id, self.decision, BATCH
        ):
            for summary in summaries:
                row = self._row(summary)
                if not summary.degraded:
                    self.rows.append(row)
                    self.by_id[summary.id] = row
                self.decision = summary.id
            self._drop(lambda row: len(self.rows) > self.most)
            if len(summaries) < BATCH:
                break
            if time.monotonic() > until:
                return False
        return True

    def _row(self, summary: DecisionSummary) -> Row:
        shares = np.frombuffer(summary.probabilities)
        names = decode_action_ids(summary.actions)
        chosen = summary.chosen
        open_, first, chance = np.arange(len(shares)), 0, float(shares[chosen])
        if summary.mode == "Apprentice":  # which always takes the first that is not excluded
            first = chosen
        elif not shares.all():
            excluded = self._excluded(summary.id)
            open_ = np.array([k for k, name in enumerate(names) if name not in excluded])
            first = int(open_[0])
        baseline = (first == chosen) / chance if shares[first] > 0 else NAN
        uniform = 1.0 / (len(open_) * chance) if shares[open_].all() else NAN
        explored = chance < float(shares.max())
        return Row(summary.id, summary.at, baseline, uniform, intern(names[chosen]), explored)

    def _excluded(self, number: int) -> set[str]:
        request = monitoring_queries.find_request(self.loop.store, number)
        return set() if request is None else set(read_excluded(request).excluded_actions)

    def _take_lessons(self, until: float) -> bool:
        """Whether all of them could be taken in."""
        self._follow_settings()
        for batch in self.loop.store.iterate_lessons(self.loop.id, self.lesson, BATCH):
            for lesson in batch:
                if lesson.decision > self.decision:  # not among those read just before
                    return True
                self._teach(lesson)
            if time.monotonic() > until:
                return False
            time.sleep(0.0005)  # requests come first
        return True

    def _follow_settings(self) -> None:
        policy = self.loop.policy
        if policy is not self._replaced:
            blank = policy.belief.seen == 0
            self.shadow = (
                self.loop.settings.build_policy()
                if blank
                else self.loop.carry_belief(self.shadow, self._newest)
            )
            self._replaced, self.alarm = policy, DriftAlarm()

    def _teach(self, lesson: Lesson) -> None:
        self.lesson = lesson.id
        self._newest = max(self._newest, (lesson.round, lesson.ranked_at))
        if (row := self.by_id.get(lesson.decision)) is not None:
            row.reward = lesson.value + (0.0 if np.isnan(row.reward) else row.reward)
        features = np.frombuffer(lesson.features)
        if features.size != self.shadow.dim:
            return
        in_rounds = self.loop.settings.ages_in_rounds
        at = float(lesson.round) if in_rounds else lesson.ranked_at / MICROSECONDS_PER_SECOND
        if lesson.kind == "amend":
            self.shadow.amend(features, lesson.value, at)
            return
        theta = self.shadow.theta
        error = lesson.value - float(features @ theta) if self.count >= self.cold else NAN
        self.errors.append((lesson.at, error))
        if self.alarm.update(error):
            self.alarms.append(lesson.at)
        while self.alarms and self.alarms[0] < self.errors[0][0]:
            self.alarms.popleft()
        self.shadow.learn(features, lesson.value, at)
        self.ages.append(at)
        self.count += 1
        if self.count % self.stride == 0 and self.count >= self.cold:
            self._keep(lesson.at)

    def _keep(self, at: int) -> None:
        """Remember the estimate; clocks that are set back do not count."""
        last = self.path[-1][0] if self.path else 0
        self.path.append((max(at, last), self.shadow.theta.astype(np.float32)))

    def decided(self) -> tuple[DecisionColumns, list[str]]:
        """The decisions as columns, and the actions by number."""
        rows, places = self.rows, dict[str, int]()
        actions = [places.setdefault(row.action, len(places)) for row in rows]
        columns = DecisionColumns(
            np.array([row.at for row in rows], np.int64),
            np.array([row.reward for row in rows], np.float64),
            np.array([row.baseline for row in rows], np.float64),
            np.array([row.uniform for row in rows], np.float64),
            np.array(actions, np.int64),
            np.array([row.explored for row in rows], np.bool_),
        )
        return columns, list(places)

    def learned(self) -> LessonColumns:
        """The lessons as columns, and the alarms among them."""
        return LessonColumns(
            np.array([at for at, _ in self.errors], np.int64),
            np.array([error for _, error in self.errors], np.float64),
            np.array(self.alarms, np.int64),
            np.array([at for at, _ in self.path], np.int64),
            [theta for _, theta in self.path],
        )

    def drift(self, lessons: int) -> Drift:
        """What the last lessons tell; nothing while there are newer ones to be read."""
        if self.behind:
            return Drift(NAN, NAN, NAN)
        squares = [error**2 for _, error in islice(reversed(self.errors), lessons)]
        known = [square for square in squares if not isnan(square)]
        back = min(lessons // self.stride + 1, len(self.path))
        return Drift(
            float(len(self.alarms)),
            fmean(known) ** 0.5 if known else NAN,
            compute_distance(self.path[-back][1], self.path[-1][1]) if back > 1 else NAN,
        )

    def effective(self) -> float:
        """How many fresh observations the past is worth, Σ 2^(−age / half-life)."""
        ages = np.array(self.ages)
        memory = self.loop.policy.memory
        if not len(ages) or not memory.kind.is_timed:
            return float(len(ages))
        return float(np.exp2((ages - ages.max()) / memory.span).sum())


class Watches:
    """One watch for each loop that someone asked about."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._watches: dict[str, Watch] = {}

    def of(self, loop: Loop, budget: float = BUDGET) -> Watch:
        """The watch of a loop, which has read on; waits for the log, so call it in a thread."""
        with self._lock:
            watch = self._watches.get(loop.name)
            if watch is None or watch.loop is not loop:
                watch = self._watches[loop.name] = Watch(loop)
        watch.refresh(budget)
        return watch
