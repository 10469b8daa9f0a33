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
from itertools import islice
from typing import Literal, NamedTuple

import numpy as np
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
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
MODEL_AGE = "windvane_model_age_seconds"
_GAUGE_MEANINGS = {
    "windvane_join_ratio": (
        "Share of decisions that got their reward in time, of all whose wait is over."
    ),
    MODEL_AGE: "Seconds since the last lesson.",
    "windvane_exploration_share": (
        "Share of recent decisions in which another action was more likely."
    ),
    "windvane_apprentice_agreement": (
        "In the mode Apprentice: share of decisions in which the loop, too, would have chosen the "
        "first action."
    ),
    "windvane_prediction_error": (
        "Root mean square of reward minus prediction, over recent lessons."
    ),
    "windvane_parameter_norm": "Euclidean norm of the estimated parameter.",
    "windvane_parameter_movement": (
        "Distance that the estimated parameter moved over recent lessons."
    ),
    "windvane_half_life_seconds": (
        "Half-life that leads; +Inf for never, and no sample if it counts in rounds."
    ),
    "windvane_noise": "Estimated standard deviation of rewards around their predictions.",
    "windvane_drift_alarms": (
        "Drift alarms in the followed part of the log: predictions became worse than usual."
    ),
    "windvane_click_alarms": (
        "Click alarms in the followed part of the log: the share of clicks of all or of explored "
        "decisions changed, and the predictions did not foresee it."
    ),
}
logger = logging.getLogger("windvane.service")
REQUEST_SECONDS_BUCKETS = (
    *(0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05),
    *(0.1, 0.2, 0.5, 1.0, 2.0, 5.0),
)


class MetricInfo(NamedTuple):
    """One metric as /metrics and the documentation have it."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    labels: tuple[str, ...]
    meaning: str

    def build_family(self, samples: Iterable[tuple[Sequence[str], float]]) -> Metric:
        """Build the family of a counter or gauge from the values of its labels and its samples."""
        family: CounterMetricFamily | GaugeMetricFamily
        if self.kind == "counter":
            family = CounterMetricFamily(self.family_name, self.meaning, labels=self.labels)
        else:
            family = GaugeMetricFamily(self.name, self.meaning, labels=self.labels)
        for labels, value in samples:
            family.add_metric(labels, value)
        return family

    @property
    def family_name(self) -> str:
        """The name without the suffix that the client library appends to counters."""
        return self.name.removesuffix("_total")


DECISIONS = MetricInfo(
    "windvane_decisions_total", "counter", ("loop",), "Decisions written to the log."
)
REWARDS = MetricInfo(
    "windvane_rewards",
    "gauge",
    ("loop", "outcome"),
    "Rewards by outcome; held and orphan rewards can still find their decision.",
)
LOOP_GAUGES = tuple(
    MetricInfo(name, "gauge", ("loop",), meaning) for name, meaning in _GAUGE_MEANINGS.items()
)
LOOP_METRICS = (DECISIONS, REWARDS, *LOOP_GAUGES)


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

    def describe(self) -> list[Metric]:
        """Describe nothing, so that registering does not read the log."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield all families; none if the log cannot be read."""
        started = time.monotonic()
        loops = list(self.service.loops.values())
        try:
            funnels = read_funnels(self.service.store)
            changed = self._find_changed(loops, funnels)
            self._read_lesson_times([entry for entry, _ in changed if not entry.values])
        except StoreError:
            return
        for entry, funnel in changed:
            self._update(entry, funnel, started)
        entries = [self._entries[loop.name] for loop in loops]
        now = self.service.clock.now_us()
        for entry in entries:
            if entry.learned_at is not None:
                entry.values[MODEL_AGE] = (now - entry.learned_at) / MICROSECONDS_PER_SECOND
        for info in LOOP_METRICS:
            yield _collect_family(info, entries)

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

    def _read_lesson_times(self, entries: Sequence[_LoopEntry]) -> None:
        if entries:
            times = find_last_lesson_times(self.service.store, [entry.loop.id for entry in entries])
            for entry in entries:
                entry.learned_at = times.get(entry.loop.id)

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


def _collect_family(info: MetricInfo, entries: Sequence[_LoopEntry]) -> Metric:
    """One metric of all loops; a gauge without a value has no sample."""
    if info is REWARDS:
        return info.build_family(
            ((entry.loop.name, outcome), count)
            for entry in entries
            for outcome, count in entry.rewards.items()
        )
    values = [(entry.loop.name, entry.values.get(info.name, math.nan)) for entry in entries]
    return info.build_family([((name,), value) for name, value in values if not math.isnan(value)])


def _measure(entry: _LoopEntry, funnel: Funnel) -> dict[str, float]:
    """The values of a loop by the name of the metric; NaN if there is none."""
    loop = entry.loop
    completed = funnel.learned + funnel.default
    learning = loop.model.describe_learning()
    return entry.followed | {
        DECISIONS.name: funnel.ranked,
        "windvane_join_ratio": funnel.learned / completed if completed else math.nan,
        "windvane_apprentice_agreement": loop.agreement,
        "windvane_parameter_norm": loop.model.compute_norm(),
        "windvane_half_life_seconds": math.nan if learning.in_rounds else loop.model.half_life,
        "windvane_noise": learning.noise,
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
        "windvane_exploration_share": float(np.mean(explored)) if explored else math.nan,
        "windvane_prediction_error": drift.error,
        "windvane_parameter_movement": drift.movement,
        "windvane_drift_alarms": drift.alarms,
        "windvane_click_alarms": drift.click_alarms,
    }


REQUEST_SECONDS = MetricInfo(
    "windvane_request_seconds",
    "histogram",
    ("operation", "loop"),
    "Seconds to answer a rank, reward or activate request.",
)
REQUESTS = MetricInfo(
    "windvane_requests_total", "counter", ("operation", "loop", "status"), "Requests answered."
)
LIMITED_REQUESTS = MetricInfo(
    "windvane_limited_requests_total",
    "counter",
    ("key", "limit"),
    'Requests refused with 429, by id of the key ("" without keys) and limit: rate (requests a '
    "second), costly (costly requests at once) or work (rewards of one event, work of one loop).",
)
DROPPED_MESSAGES = MetricInfo(
    "windvane_dropped_messages_total",
    "counter",
    ("cause",),
    "Messages not written to stderr: repeated, or stderr not read fast enough (blocked).",
)
DEGRADED = MetricInfo(
    "windvane_degraded", "gauge", (), "1 while writes fail or ranks are degraded, else 0."
)
WRITE_FAILURES = MetricInfo(
    "windvane_write_failures_total",
    "counter",
    ("operation",),
    "Operations that the log did not take, by kind.",
)
WRITES_WAITING = MetricInfo(
    "windvane_writes_waiting", "gauge", (), "Operations that are not on disk yet."
)
CLOCK_OFFSET = MetricInfo(
    "windvane_clock_offset_seconds",
    "gauge",
    (),
    "Wall clock minus service time; beyond 2 and -2 seconds the wall clock is not believed.",
)
EVALUATIONS_RUNNING = MetricInfo(
    "windvane_evaluations_running", "gauge", (), "Evaluations that run now: 0 or 1."
)
EVALUATIONS_ENDED = MetricInfo(
    "windvane_evaluations_ended_total",
    "counter",
    ("status",),
    "Evaluations that ended since the start, by status: Succeeded, Failed, Timeout, Canceled "
    "(deleted while it ran), OptimalPolicyApplied or OnlinePolicyRetained.",
)
SERVERS = MetricInfo(
    "windvane_servers", "gauge", (), "Processes that decide and share the log, with this one."
)
LEADER = MetricInfo(
    "windvane_leader",
    "gauge",
    (),
    "1 if this process closes decisions, stores snapshots and evaluates for all, else 0.",
)
LESSON_LAG = MetricInfo(
    "windvane_lesson_lag_seconds",
    "histogram",
    (),
    "Seconds from a reward at another server until this process has learned from it.",
)
COMMITS = MetricInfo("windvane_commits_total", "counter", (), "Groups of operations committed.")


def list_metrics() -> list[MetricInfo]:
    """List all metrics of the service, in the order of /metrics."""
    of_requests = [REQUEST_SECONDS, REQUESTS, LIMITED_REQUESTS, DROPPED_MESSAGES]
    of_process = [*of_requests, DEGRADED, WRITES_WAITING, COMMITS, CLOCK_OFFSET, WRITE_FAILURES]
    of_sharing = [SERVERS, LEADER, LESSON_LAG]
    return [*of_process, *of_sharing, EVALUATIONS_RUNNING, EVALUATIONS_ENDED, *LOOP_METRICS]


class Metrics:
    """The metrics of one service."""

    def __init__(self, service: Service, evaluations: Evaluations | None = None) -> None:
        self.service = service
        self.followers = LogFollowers()
        self.registry = CollectorRegistry()
        self._request_seconds = Histogram(
            REQUEST_SECONDS.name,
            REQUEST_SECONDS.meaning,
            REQUEST_SECONDS.labels,
            buckets=REQUEST_SECONDS_BUCKETS,
            registry=self.registry,
        )
        self._requests = self._create_counter(REQUESTS)
        self._limited_requests = self._create_counter(LIMITED_REQUESTS)
        self.registry.register(ServiceCollector(service, evaluations))
        self.registry.register(LoopCollector(service, self.followers))

    def _create_counter(self, info: MetricInfo) -> Counter:
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


class ServiceCollector(Collector):
    """Reads the metrics of the service and of its writer at a scrape."""

    def __init__(self, service: Service, evaluations: Evaluations | None = None) -> None:
        self.service = service
        self.evaluations = evaluations

    def describe(self) -> list[Metric]:
        """Describe nothing, so that registering does not read the log."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield all families; none of them reads the log."""
        service = self.service
        yield _build_counts(DROPPED_MESSAGES, dropped_messages)
        yield DEGRADED.build_family([((), float(bool(service.degraded_reason)))])
        yield WRITES_WAITING.build_family([((), service.writer.waiting_count)])
        yield COMMITS.build_family([((), service.writer.commit_count)])
        yield CLOCK_OFFSET.build_family([((), service.clock.offset_seconds)])
        yield _build_counts(WRITE_FAILURES, service.writer.failures.counts)
        yield from _collect_sharing(service)
        if self.evaluations is not None:
            yield EVALUATIONS_RUNNING.build_family([((), self.evaluations.running_count)])
            yield _build_counts(EVALUATIONS_ENDED, self.evaluations.ended_counts)


def _build_counts(info: MetricInfo, counts: Mapping[str, int]) -> Metric:
    """The family of a metric with one label, in alphabetical order."""
    return info.build_family([((label,), count) for label, count in sorted(counts.items())])


def _collect_sharing(service: Service) -> Iterator[Metric]:
    """Yield what this process knows about those that share its log."""
    sharing = service.sharing
    yield SERVERS.build_family([((), 1 if sharing is None else sharing.server_count)])
    yield LEADER.build_family([((), float(service.is_leader))])
    if sharing is None:
        return
    total = 0
    buckets = []
    for bound, number in zip((*LAG_SECONDS_BUCKETS, "+Inf"), sharing.lags.counts, strict=True):
        total += number
        buckets.append((str(bound), total))
    lag = HistogramMetricFamily(LESSON_LAG.name, LESSON_LAG.meaning)
    lag.add_metric((), buckets, sharing.lags.seconds)
    yield lag
