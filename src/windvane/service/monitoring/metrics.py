"""Metrics of the service, for Prometheus.

The process counts requests and their times. Everything about decisions and rewards is read from the
log when it has changed, and therefore survives a restart.

The counts of all loops are one query. A loop whose counts, lessons and settings are those of the
last scrape costs nothing more. The others are computed within a budget of time, those first that
have waited longest; the rest keep their values until the next scrape.
"""

import logging
import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, islice
from typing import Literal, NamedTuple

import numpy as np
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from windvane.errors import StoreError
from windvane.service.clock import MICROSECONDS_PER_SECOND
from windvane.service.evaluations.evaluations import Evaluations
from windvane.service.json_logging import dropped_messages
from windvane.service.loops.loop import Loop
from windvane.service.loops.service import Service
from windvane.service.monitoring.log_follower import LogFollower, LogFollowers
from windvane.service.sharing.servers import LAG_SECONDS_BUCKETS
from windvane.service.store.monitoring_queries import (
    find_last_lesson_times,
    list_recent_decisions,
    read_funnels,
)
from windvane.service.store.rows import Funnel

SCRAPE_BUDGET_SECONDS = 0.1  # for the loops that have changed, in one scrape
RECENT_DECISIONS = 1000  # over which the gauges of a loop are computed
REWARD_OUTCOMES = (
    *("learned", "summed", "extra", "held"),
    *("late", "orphan", "duplicate", "unlearned"),
)
Kind = Literal["counter", "gauge", "histogram"]
logger = logging.getLogger("windvane.service")
REQUEST_SECONDS_BUCKETS = (
    *(0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05),
    *(0.1, 0.2, 0.5, 1.0, 2.0, 5.0),
)


class MetricInfo(NamedTuple):
    """One metric as /metrics and the documentation have it."""

    name: str
    kind: Kind
    labels: tuple[str, ...]
    meaning: str

    def build_family(self, samples: Iterable[tuple[Sequence[str], float]]) -> Metric:
        """Build the family of a counter or gauge from the values of its labels and its samples."""
        family = Metric(self.family_name, self.meaning, self.kind)
        for labels, value in samples:
            family.add_sample(self.name, dict(zip(self.labels, labels, strict=True)), value)
        return family

    @property
    def family_name(self) -> str:
        """The name without the suffix that the client library appends to counters."""
        return self.name.removesuffix("_total")


def _table(*rows: tuple[str, Kind, tuple[str, ...], str]) -> dict[str, MetricInfo]:
    return {
        name: MetricInfo(f"windvane_{name}", kind, labels, meaning)
        for name, kind, labels, meaning in rows
    }


OF_SERVICE = _table(
    ("request_seconds", "histogram", ("operation", "loop"),
     "Seconds to answer a rank, reward or activate request."),
    ("requests_total", "counter", ("operation", "loop", "status"), "Requests answered."),
    ("limited_requests_total", "counter", ("key", "limit"),
     'Requests refused with 429, by id of the key ("" without keys) and limit: rate (requests a '
     "second), costly (costly requests at once) or work (rewards of one event, work of one loop)."),
    ("dropped_messages_total", "counter", ("cause",),
     "Messages not written to stderr: repeated, or stderr not read fast enough (blocked)."),
    ("degraded", "gauge", (), "1 while writes fail or ranks are degraded, else 0."),
    ("writes_waiting", "gauge", (), "Operations that are not on disk yet."),
    ("commits_total", "counter", (), "Groups of operations committed."),
    ("clock_offset_seconds", "gauge", (),
     "Wall clock minus service time; beyond 2 and -2 seconds the wall clock is not believed."),
    ("write_failures_total", "counter", ("operation",),
     "Operations that the log did not take, by kind."),
    ("servers", "gauge", (), "Processes that decide and share the log, with this one."),
    ("leader", "gauge", (),
     "1 if this process closes decisions, stores snapshots and evaluates for all, else 0."),
    ("clock_skew_seconds", "gauge", (),
     "Clock of this machine minus that of the database; only on PostgreSQL."),
    ("lesson_lag_seconds", "histogram", (),
     "Seconds from a reward at another server until this process has learned from it."),
    ("evaluations_running", "gauge", (), "Evaluations that run now: 0 or 1."),
    ("evaluations_ended_total", "counter", ("status",),
     "Evaluations that ended since the start, by status: Succeeded, Failed, Timeout, Canceled "
     "(deleted while it ran), OptimalPolicyApplied or OnlinePolicyRetained."),
)  # fmt: skip
OF_LOOPS = _table(
    ("decisions_total", "counter", ("loop",), "Decisions written to the log."),
    ("rewards", "gauge", ("loop", "outcome"),
     "Rewards by outcome; held and orphan rewards can still find their decision."),
    ("join_ratio", "gauge", ("loop",),
     "Share of decisions that got their reward in time, of all whose wait is over."),
    ("model_age_seconds", "gauge", ("loop",), "Seconds since the last lesson."),
    ("exploration_share", "gauge", ("loop",),
     "Share of recent decisions in which another action was more likely."),
    ("apprentice_agreement", "gauge", ("loop",),
     "In the mode Apprentice: share of decisions in which the loop, too, would have chosen the "
     "first action."),
    ("prediction_error", "gauge", ("loop",),
     "Root mean square of reward minus prediction, over recent lessons."),
    ("parameter_norm", "gauge", ("loop",), "Euclidean norm of the estimated parameter."),
    ("parameter_movement", "gauge", ("loop",),
     "Distance that the estimated parameter moved over recent lessons."),
    ("half_life_seconds", "gauge", ("loop",),
     "Fixed half-life; +Inf for never, and no sample if none is fixed or if it counts in rounds."),
    ("noise", "gauge", ("loop",),
     "Estimated standard deviation of rewards around their predictions."),
    ("drift_alarms", "gauge", ("loop",),
     "Drift alarms in the followed part of the log: predictions became worse than usual."),
    ("click_alarms", "gauge", ("loop",),
     "Click alarms in the followed part of the log: the share of clicks of all or of explored "
     "decisions changed, and the predictions did not foresee it."),
)  # fmt: skip


def list_metrics() -> list[MetricInfo]:
    """List all metrics of the service, in the order of /metrics."""
    return [*OF_SERVICE.values(), *OF_LOOPS.values()]


@dataclass
class _LoopEntry:
    """What the last scrape knew about a loop."""

    loop: Loop
    version: object = None  # changes with every change of the loop or of its log
    is_complete: bool = False  # whether all gauges are of this version
    visited_at: float = 0.0  # seconds of the monotonic clock
    learned_at: int | None = None  # microseconds since 1970
    followed: dict[str, float] = field(default_factory=dict)  # gauges that need the follower
    values: dict[str, float] = field(default_factory=dict)  # by name of the metric
    rewards: dict[str, int] = field(default_factory=dict)  # by outcome


class LoopCollector(Collector):
    """Reads the metrics of all loops at a scrape."""

    def __init__(self, service: Service, followers: LogFollowers) -> None:
        self.service = service
        self.followers = followers
        self._entries: dict[str, _LoopEntry] = {}

    def collect(self) -> Iterator[Metric]:
        """Yield all families; none if the log cannot be read."""
        started = time.monotonic()
        loops = list(self.service.loops.values())
        try:
            funnels = read_funnels(self.service.store)
            changed = self._find_changed(loops, funnels)
            times = find_last_lesson_times(
                self.service.store, [entry.loop.id for entry, _ in changed if not entry.values]
            )
        except StoreError:
            return
        for entry, funnel in changed:
            if not entry.values:
                entry.learned_at = times.get(entry.loop.id)
            self._update(entry, funnel, started)
        entries = [self._entries[loop.name] for loop in loops]
        now = self.service.clock.now_us()
        for entry in entries:
            if entry.learned_at is not None:
                age_us = now - entry.learned_at
                entry.values["model_age_seconds"] = age_us / MICROSECONDS_PER_SECOND
        for name, info in OF_LOOPS.items():
            yield info.build_family(_list_samples(name, entries))

    def _find_changed(
        self, loops: Sequence[Loop], funnels: dict[int, Funnel]
    ) -> list[tuple[_LoopEntry, Funnel]]:
        """The loops that are not those of the last scrape; those that waited longest come first."""
        changed = []
        for loop in loops:
            entry = self._entries.get(loop.name)
            if entry is None or entry.loop is not loop:
                entry = self._entries[loop.name] = _LoopEntry(loop)
            funnel = funnels.get(loop.id, Funnel())
            version = (funnel, loop.last_lesson, loop.last_change, loop.agreement)
            if entry.version != version:
                entry.version, entry.is_complete, entry.values = version, False, {}
            if not entry.is_complete:
                changed.append((entry, funnel))
        changed.sort(key=lambda pair: pair[0].visited_at)
        return changed

    def _update(self, entry: _LoopEntry, funnel: Funnel, started: float) -> None:
        """Compute the gauges of a loop; those of the follower only within the budget."""
        budget = started + SCRAPE_BUDGET_SECONDS - time.monotonic()
        entry.is_complete = funnel.ranked == 0
        is_visited = budget > 0.0 and not entry.is_complete
        if is_visited:
            entry.visited_at = time.monotonic()
            try:
                follower = self.followers.follow(entry.loop, budget, funnel.ranked)
                entry.followed = _measure_follower(entry.loop, follower)
                entry.is_complete = follower.read_at >= started and not follower.is_behind
            except Exception:
                logger.exception("the log of loop %s cannot be followed", entry.loop.name)
                entry.followed, entry.is_complete = {}, True
        if is_visited or not entry.values:
            entry.values = _measure(entry, funnel)
            entry.rewards = {outcome: getattr(funnel, outcome) for outcome in REWARD_OUTCOMES}


def _list_samples(
    name: str, entries: Sequence[_LoopEntry]
) -> Iterator[tuple[tuple[str, ...], float]]:
    """The samples of one metric of all loops; a gauge without a value has none."""
    for entry in entries:
        loop = entry.loop.name
        if name == "rewards":
            yield from (((loop, outcome), count) for outcome, count in entry.rewards.items())
        elif not math.isnan(value := entry.values.get(name, math.nan)):
            yield (loop,), value


def _measure(entry: _LoopEntry, funnel: Funnel) -> dict[str, float]:
    """The values of a loop by the name of the metric; NaN if there is none."""
    loop = entry.loop
    completed = funnel.learned + funnel.default
    half_life = None if loop.model.learner.ages_in_rounds else loop.model.half_life
    return entry.followed | {
        "decisions_total": funnel.ranked,
        "join_ratio": funnel.learned / completed if completed else math.nan,
        "apprentice_agreement": loop.agreement,
        "parameter_norm": loop.model.compute_norm(),
        "half_life_seconds": math.nan if half_life is None else half_life,
        "noise": loop.model.noise,
    }


def _measure_follower(loop: Loop, follower: LogFollower) -> dict[str, float]:
    """The gauges that follow from the decisions and lessons in the log; NaN if there is none."""
    with follower.lock:
        drift = follower.measure_drift(RECENT_DECISIONS)
        explored = [row.explored for row in islice(reversed(follower.decisions), RECENT_DECISIONS)]
        is_behind = follower.is_behind
    if is_behind:
        recent = list_recent_decisions(loop.store, loop.id, RECENT_DECISIONS)
        explored = [
            bool(probabilities[decision.chosen] < probabilities.max())
            for decision in recent
            if not decision.degraded
            for probabilities in (np.frombuffer(decision.probabilities),)
        ]
    return {
        "exploration_share": float(np.mean(explored)) if explored else math.nan,
        "prediction_error": drift.error,
        "parameter_movement": drift.movement,
        "drift_alarms": drift.alarms,
        "click_alarms": drift.click_alarms,
    }


class Metrics(Collector):
    """The metrics of one service."""

    def __init__(self, service: Service, evaluations: Evaluations) -> None:
        self.service = service
        self.evaluations = evaluations
        self.followers = LogFollowers()
        self.registry = CollectorRegistry()
        name, _, labels, meaning = OF_SERVICE["request_seconds"]
        self._request_seconds = Histogram(
            name, meaning, labels, buckets=REQUEST_SECONDS_BUCKETS, registry=self.registry
        )
        self._requests = self._create_counter("requests_total")
        self._limited_requests = self._create_counter("limited_requests_total")
        self.registry.register(self)
        self.registry.register(LoopCollector(service, self.followers))

    def _create_counter(self, name: str) -> Counter:
        info = OF_SERVICE[name]
        return Counter(info.family_name, info.meaning, info.labels, registry=self.registry)

    def count(self, operation: str, loop: str | None, status: int, seconds: float) -> None:
        """Count one request and, if it names a loop, its time.

        Unknown loops share the label "", so that clients cannot add labels without end.
        """
        label = loop if loop in self.service.loops else ""
        self._requests.labels(operation, label, status).inc()
        if loop is not None:
            self._request_seconds.labels(operation, label).observe(seconds)

    def count_limited(self, key_id: int | None, limit: str) -> None:
        """Count a request that was refused because of a limit."""
        self._limited_requests.labels("" if key_id is None else str(key_id), limit).inc()

    def render(self) -> bytes:
        """Render all metrics in the text format; reads the log, so use a thread."""
        return generate_latest(self.registry)

    def collect(self) -> Iterator[Metric]:
        """Yield the families of the service and its writer; none of them reads the log."""
        service, sharing = self.service, self.service.sharing
        yield _build("dropped_messages_total", dropped_messages)
        yield _build("degraded", bool(service.degraded_reason))
        yield _build("writes_waiting", service.writer.waiting_count)
        yield _build("commits_total", service.writer.commit_count)
        yield _build("clock_offset_seconds", service.clock.offset_seconds)
        yield _build("write_failures_total", service.writer.failures.counts)
        yield _build("servers", 1 if sharing is None else sharing.server_count)
        yield _build("leader", service.is_leader)
        if sharing is not None:
            yield _build("clock_skew_seconds", sharing.clock.skew_seconds)
            bounds = [*map(str, LAG_SECONDS_BUCKETS), "+Inf"]
            buckets = [*zip(bounds, accumulate(sharing.lags.counts), strict=True)]
            name, _, _, meaning = OF_SERVICE["lesson_lag_seconds"]
            yield HistogramMetricFamily(name, meaning, buckets, sharing.lags.seconds)
        yield _build("evaluations_running", self.evaluations.running_count)
        yield _build("evaluations_ended_total", self.evaluations.ended_counts)


def _build(name: str, value: float | Mapping[str, int]) -> Metric:
    """The family of a metric of the service: one number, or one for each value of its label."""
    if isinstance(value, Mapping):
        samples = [((label,), float(count)) for label, count in sorted(value.items())]
        return OF_SERVICE[name].build_family(samples)
    return OF_SERVICE[name].build_family([((), float(value))])
