"""Follows a loop's log: its last decisions in memory, and the prediction before each lesson.

The log does not contain a loop's predictions. Therefore a second model with the same settings, the
shadow, learns the same lessons in the same order and predicts each reward before it learns it. If
the followed part of the log starts at the loop's first lesson, these are the loop's own
predictions. If it starts later, the errors of the first `WARMUP_LESSONS` lessons are left out. The
memory of the shadow is limited: in a loop with very many weights, the shadow knows only those that
were learned most.
"""

import logging
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from math import isnan
from statistics import fmean
from sys import intern
from threading import Lock
from typing import Any, NamedTuple

import numpy as np

from windvane.evaluation.log_batch import find_feature
from windvane.evaluation.scores import format_label
from windvane.service.loops.learner_model import SUMMARY_SIZE, LearnerModel, Moment
from windvane.service.loops.loop import Loop
from windvane.service.monitoring.alarms import ClickMonitor, DriftAlarm, Outcomes, RateChange
from windvane.service.monitoring.estimates import (
    NAN,
    DecisionArrays,
    LessonArrays,
    Parameter,
    compute_distance,
)
from windvane.service.schemas import decode_options
from windvane.service.store import monitoring_queries
from windvane.service.store.decision_queries import decode_request_parts
from windvane.service.store.rows import (
    IMPORTED,
    WHOLE_PAGE,
    Lesson,
    decode_action_ids,
    decode_page,
    decode_page_features,
)

MAX_DECISIONS = 20_000  # the newest decisions that are kept
MAX_PATH_NUMBERS = 4_000_000  # of all estimates kept; of large ones only some are kept
BATCH_ROWS = 250
MAX_LABELLED_FEATURES = 4  # whose values in all followed decisions are kept
MAX_LABEL_CHARACTERS = 80
WARMUP_LESSONS = 500
BUDGET_SECONDS = 0.4  # of work at a time
FRESH_SECONDS = 1.0  # seconds until the log is read again
PAUSE_SECONDS = 0.0005  # pause between two batches, so that requests are answered


logger = logging.getLogger("windvane.service")


@dataclass(slots=True)
class FollowedDecision:
    """The values of a decision that the statistics use; see `DecisionArrays`."""

    id: int
    at: int
    baseline: float
    uniform: float
    action: str
    explored: bool
    reward: float = NAN


class DriftNumbers(NamedTuple):
    """How much the world drifts; NaN if unknown."""

    alarms: float  # count, in the followed part of the log
    click_alarms: float  # count, in the followed part of the log
    error: float  # root mean square prediction error
    movement: float  # distance between two estimates


class LogFollower:
    """Follows the log of one loop; `advance` reads new entries."""

    def __init__(
        self, loop: Loop, max_decisions: int = MAX_DECISIONS, decision_count: int | None = None
    ) -> None:
        """Follow a loop; if `decision_count`, of all times, is known, less of the log is read."""
        self.loop = loop
        self.max_decisions = max_decisions
        self.lock = Lock()
        self.is_behind = True  # whether the log has entries that were not read
        self.read_at = 0.0  # seconds of the monotonic clock
        self.decisions: deque[FollowedDecision] = deque()
        self.errors: deque[tuple[int, float]] = deque(maxlen=max_decisions)  # time, y − xᵀθ̂
        self.alarm = DriftAlarm()
        self.alarm_times: deque[int] = deque()
        self.clicks = ClickMonitor()
        self.rate_changes: deque[RateChange] = deque()
        self.observation_times: deque[float] = deque(maxlen=max_decisions)  # as in the memory
        self.observation_count = 0
        self.observations_per_estimate = -(-max_decisions * SUMMARY_SIZE // MAX_PATH_NUMBERS)
        self.path: deque[tuple[int, Parameter]] = deque(
            maxlen=max_decisions // self.observations_per_estimate + 1
        )
        self.shadow = LearnerModel(loop.settings)
        self.shadow.limit_memory()
        self._decisions_by_id: dict[int, FollowedDecision] = {}
        self._imported: set[int] = set()  # decisions whose lesson is still to come
        self._labels: dict[str, dict[int, str]] = {}  # by context feature, then by decision
        self._followed_model = loop.model  # the shadow has its settings
        self._newest = Moment(0, 0)  # of the newest decision learned from
        self._last_decision = self._last_lesson = 0
        if decision_count is None or decision_count > max_decisions:
            self._last_decision, self._last_lesson = monitoring_queries.find_window_start(
                loop.store, loop.id, max_decisions
            )
        observations = monitoring_queries.count_observations(loop.store, loop.id, self._last_lesson)
        is_complete = loop.model.observation_count <= observations
        self._warmup = 0 if is_complete else WARMUP_LESSONS
        if is_complete:
            self._keep_estimate(0)

    @property
    def is_truncated(self) -> bool:
        """Whether the log may have decisions before the followed ones."""
        return len(self.decisions) >= self.max_decisions

    def refresh(self, budget: float = BUDGET_SECONDS) -> None:
        """Read new entries of the log, unless they were read within the last second."""
        if time.monotonic() - self.read_at > FRESH_SECONDS:
            self.advance(budget)

    def advance(self, budget: float = BUDGET_SECONDS) -> None:
        """Read new entries of the log, for at most about `budget` seconds."""
        deadline = time.monotonic() + budget
        with self.lock:
            self._drop_deleted_decisions()
            first_waiting = monitoring_queries.find_first_waiting(self.loop.store, self.loop.id)
            is_done = self._read_decisions(deadline) and self._read_lessons(deadline)
            if is_done:  # then the lessons of all decisions before `first_waiting` are read
                self.rate_changes.extend(self.clicks.advance(first_waiting))
            self.is_behind = not is_done
            self.read_at = time.monotonic()

    def _drop_deleted_decisions(self) -> None:
        if not self.decisions:
            return
        first = monitoring_queries.find_first_decision(self.loop.store, self.loop.id)
        self._drop_while(lambda decision: first is None or decision.id < first)

    def _drop_while(self, condition: Callable[[FollowedDecision], bool]) -> None:
        while self.decisions and condition(self.decisions[0]):
            del self._decisions_by_id[self.decisions.popleft().id]

    def _read_decisions(self, deadline: float) -> bool:
        """Read new decisions; returns False if the deadline passed before the last one."""
        while summaries := monitoring_queries.list_decision_summaries(
            self.loop.store, self.loop.id, self._last_decision, BATCH_ROWS
        ):
            for summary in summaries:
                self._last_decision = summary.id
                if summary.mode == IMPORTED:
                    self._imported.add(summary.id)
                if summary.degraded or summary.mode == IMPORTED:
                    continue
                try:
                    decision = self._weigh_decision(summary)
                except (ValueError, IndexError, ZeroDivisionError):
                    name = self.loop.name
                    logger.warning("loop %s: decision %d is damaged, left out", name, summary.id)
                    continue
                self.decisions.append(decision)
                self._decisions_by_id[summary.id] = decision
            self._drop_while(lambda _: len(self.decisions) > self.max_decisions)
            if len(summaries) < BATCH_ROWS:
                break
            if time.monotonic() > deadline:
                return False
        return True

    def _weigh_decision(self, summary: Any) -> FollowedDecision:
        """Compute the weights of a decision under the two policies it is compared with."""
        if summary.slots is not None:
            return self._weigh_page(summary)
        probabilities = np.frombuffer(summary.probabilities)
        names = decode_action_ids(summary.actions)
        chosen = summary.chosen
        probability = float(probabilities[chosen])
        allowed = np.arange(len(probabilities))
        first = 0
        if summary.mode == "Apprentice":  # it always chooses the first allowed action
            first = chosen
        elif not probabilities.all():
            excluded = self._find_excluded_actions(summary.id)
            allowed = np.array([k for k, name in enumerate(names) if name not in excluded])
            first = int(allowed[0])
        return FollowedDecision(
            id=summary.id,
            at=summary.at,
            baseline=(first == chosen) / probability if probabilities[first] > 0 else NAN,
            uniform=1.0 / (len(allowed) * probability) if probabilities[allowed].all() else NAN,
            action=intern(names[chosen]),
            explored=probability < float(probabilities.max()),
        )

    def _weigh_page(self, summary: Any) -> FollowedDecision:
        """The same for a page: the weights of its slots multiply, its name is the first action."""
        baseline = uniform = 1.0
        explored = False
        taken: list[int] = []
        request = monitoring_queries.find_request(self.loop.store, summary.id) or "{}"
        names = decode_action_ids(summary.actions)
        sent = decode_request_parts(request).slots
        for slot, parts in zip(decode_page(summary.slots).slots, sent, strict=True):
            probabilities = np.frombuffer(slot.probabilities)
            probability = float(probabilities[slot.chosen])
            excluded = {*parts.excluded_actions, *(names[place] for place in taken)}
            allowed = [place for place, name in enumerate(names) if name not in excluded]
            can_tell = summary.mode == "Apprentice" or probabilities[allowed].all()
            baseline *= (slot.baseline == slot.chosen) / probability if can_tell else NAN
            uniform *= 1.0 / (len(allowed) * probability) if probabilities[allowed].all() else NAN
            explored |= probability < float(probabilities.max())
            taken.append(slot.chosen)
        action = intern(names[summary.chosen])
        return FollowedDecision(summary.id, summary.at, baseline, uniform, action, explored)

    def _find_excluded_actions(self, decision: int) -> set[str]:
        request = monitoring_queries.find_request(self.loop.store, decision)
        return set() if request is None else set(decode_request_parts(request).excluded_actions)

    def _read_lessons(self, deadline: float) -> bool:
        """Learn new lessons; returns False if the deadline passed before the last one."""
        self._follow_settings()
        batches = self.loop.store.iterate_lessons(self.loop.id, self._last_lesson, BATCH_ROWS)
        for batch in batches:
            for lesson in batch:
                if lesson.decision > self._last_decision:  # made after the decisions were read
                    return True
                self.learn(lesson)
            if len(batch) < BATCH_ROWS:
                return True
            if time.monotonic() > deadline:
                return False
            time.sleep(PAUSE_SECONDS)
        return True

    def _follow_settings(self) -> None:
        """Give the shadow the loop's settings if they were changed."""
        model = self.loop.model
        if model is self._followed_model:
            return
        if model.observation_count == 0:
            self.shadow = LearnerModel(model.settings)
        else:
            self.shadow = self.shadow.carry(model.settings, self._newest)
        self.shadow.limit_memory()
        self._followed_model = model
        self.alarm = DriftAlarm()
        self.clicks = ClickMonitor()

    def learn(self, lesson: Lesson) -> None:
        """Let the shadow predict the reward of a lesson, then learn it."""
        self._last_lesson = lesson.id
        moment = Moment(lesson.round, lesson.ranked_at)
        self._newest = max(self._newest, moment)
        if lesson.decision in self._imported:  # learned, and no outcome of this loop
            self._imported.discard(lesson.decision)
            self.shadow.apply(lesson)
            return
        reward = lesson.value  # so far
        is_explored = False
        if (decision := self._decisions_by_id.get(lesson.decision)) is not None:
            reward += 0.0 if isnan(decision.reward) else decision.reward
            decision.reward = reward
            is_explored = decision.explored
        if lesson.kind == "amend":
            self.shadow.apply(lesson)
            outcomes = Outcomes(0, lesson.value, 0.0)
            self.clicks.count(lesson.decision, lesson.ranked_at, reward, outcomes, is_explored)
            return
        is_warm = self.observation_count >= self._warmup
        slots = [lesson.features]
        if lesson.slot == WHOLE_PAGE:
            slots = decode_page_features(lesson.features)
        prediction = slow = NAN
        if is_warm:
            prediction = sum(self.shadow.predict(each, moment) for each in slots)
            slow = sum(self.shadow.predict_slowly(each, moment) for each in slots)
        self.errors.append((lesson.at, lesson.value - prediction))
        if self.alarm.update(lesson.value - slow):
            self.alarm_times.append(lesson.at)
        if is_warm:
            outcomes = Outcomes(1, lesson.value, prediction)
            self.clicks.count(
                lesson.decision, lesson.ranked_at, lesson.value, outcomes, is_explored
            )
        self._drop_old_alarms(self.errors[0][0])
        self.shadow.apply(lesson)
        self.observation_times.append(self.shadow.clock_of(moment))
        self.observation_count += 1
        is_kept = self.observation_count % self.observations_per_estimate == 0
        if is_kept and self.observation_count >= self._warmup:
            self._keep_estimate(lesson.at)

    def _drop_old_alarms(self, before: int) -> None:
        """Drop the alarms before a time, that of the first lesson that is kept."""
        while self.alarm_times and self.alarm_times[0] < before:
            self.alarm_times.popleft()
        while self.rate_changes and self.rate_changes[0].at < before:
            self.rate_changes.popleft()

    def _keep_estimate(self, at: int) -> None:
        """Append the estimate to the path; its times increase even if the clock was set back."""
        last = self.path[-1][0] if self.path else 0
        self.path.append((max(at, last), self.shadow.summarize()))

    def collect_decisions(self) -> tuple[DecisionArrays, list[str]]:
        """Collect the decisions as columns, and the names of the actions by number."""
        rows = self.decisions
        numbers: dict[str, int] = {}
        actions = [numbers.setdefault(row.action, len(numbers)) for row in rows]
        columns = DecisionArrays(
            np.array([row.at for row in rows], np.int64),
            np.array([row.reward for row in rows], np.float64),
            np.array([row.baseline for row in rows], np.float64),
            np.array([row.uniform for row in rows], np.float64),
            np.array(actions, np.int64),
            np.array([row.explored for row in rows], np.bool_),
        )
        return columns, list(numbers)

    def label_decisions(self, feature: str, budget: float = BUDGET_SECONDS) -> list[str | None]:
        """The value of a context feature in each followed decision; None: it was not read yet."""
        deadline = time.monotonic() + budget
        labels = self._labels.pop(feature, {})
        self._labels[feature] = labels  # the last one
        if len(self._labels) > MAX_LABELLED_FEATURES:
            del self._labels[next(iter(self._labels))]
        first = self.decisions[0].id if self.decisions else 0
        for old in [id_ for id_ in labels if id_ < first]:
            del labels[old]
        last = next(reversed(labels), first - 1)
        while time.monotonic() < deadline and (
            rows := monitoring_queries.list_contexts(
                self.loop.store, self.loop.id, last, BATCH_ROWS
            )
        ):
            for last, request in rows:
                try:
                    value = find_feature(decode_options(request).context_features, feature)
                except ValueError:  # the row is damaged
                    value = None
                labels[last] = intern(format_label(value)[:MAX_LABEL_CHARACTERS])
            time.sleep(PAUSE_SECONDS)
        return [labels.get(row.id) for row in self.decisions]

    def collect_lessons(self) -> LessonArrays:
        """Collect the lessons as columns, with the alarms and the path of the estimate."""
        return LessonArrays(
            np.array([at for at, _ in self.errors], np.int64),
            np.array([error for _, error in self.errors], np.float64),
            np.array(self.alarm_times, np.int64),
            list(self.rate_changes),
            np.array([at for at, _ in self.path], np.int64),
            [theta for _, theta in self.path],
        )

    def measure_drift(self, lessons: int) -> DriftNumbers:
        """Measure drift over the last lessons; all NaN while the follower is behind the log."""
        if self.is_behind:
            return DriftNumbers(NAN, NAN, NAN, NAN)
        squares = [error**2 for _, error in islice(reversed(self.errors), lessons)]
        known = [square for square in squares if not isnan(square)]
        steps = min(lessons // self.observations_per_estimate + 1, len(self.path))
        return DriftNumbers(
            float(len(self.alarm_times)),
            float(len(self.rate_changes)),
            fmean(known) ** 0.5 if known else NAN,
            compute_distance(self.path[-steps][1], self.path[-1][1]) if steps > 1 else NAN,
        )

    def compute_effective_count(self) -> float:
        """Compute how many new observations count as much as all, Σ 2^(−age / half-life).

        Without a fixed half-life, all count.
        """
        times = np.array(self.observation_times)
        half_life = self.loop.model.half_life
        if half_life is None or not len(times):
            return float(len(times))
        return float(np.exp2((times - times.max()) / half_life).sum())


class LogFollowers:
    """The followers of all loops that someone has asked for."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._followers: dict[str, LogFollower] = {}

    def follow(
        self, loop: Loop, budget: float = BUDGET_SECONDS, decision_count: int | None = None
    ) -> LogFollower:
        """Return the follower of a loop after it has read the log; blocks, so use a thread.

        `decision_count` is that of `LogFollower`.
        """
        with self._lock:
            follower = self._followers.get(loop.name)
            if follower is None or follower.loop is not loop:
                follower = LogFollower(loop, decision_count=decision_count)
                self._followers[loop.name] = follower
        follower.refresh(budget)
        return follower
