"""Metrics of the service, for Prometheus.

The process counts requests and their times. Everything about decisions and rewards is read from the
log at each scrape, and therefore survives a restart.
"""

import math
import time
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from windvane.errors import StoreError
from windvane.service.clock import MICROSECONDS_PER_SECOND
from windvane.service.loops.loop import Loop
from windvane.service.loops.service import Service
from windvane.service.monitoring.log_follower import BUDGET_SECONDS, LogFollower, LogFollowers
from windvane.service.store.schema import Funnel, LoggedDecision

REQUEST_SECONDS_BUCKETS = (
    *(0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05),
    *(0.1, 0.2, 0.5, 1.0, 2.0, 5.0),
)
RECENT_DECISIONS = 1000  # over which the gauges of a loop are computed
REWARD_OUTCOMES = (
    *("learned", "summed", "extra", "held"),
    *("late", "orphan", "duplicate", "unlearned"),
)


class MetricInfo(NamedTuple):
    """One metric as /metrics and the documentation have it."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    labels: tuple[str, ...]
    meaning: str

    def create_family(self) -> CounterMetricFamily | GaugeMetricFamily:
        """Create an empty family for a collector."""
        if self.kind == "counter":
            return CounterMetricFamily(self.family_name, self.meaning, labels=self.labels)
        return GaugeMetricFamily(self.name, self.meaning, labels=self.labels)

    @property
    def family_name(self) -> str:
        """The name without the suffix that the client library appends to counters."""
        return self.name.removesuffix("_total")


REQUEST_SECONDS = MetricInfo(
    "windvane_request_seconds",
    "histogram",
    ("operation", "loop"),
    "Seconds to answer a rank, reward or activate request.",
)
REQUESTS = MetricInfo(
    "windvane_requests_total", "counter", ("operation", "loop", "status"), "Requests answered."
)
DEGRADED = MetricInfo(
    "windvane_degraded", "gauge", (), "1 while rank requests are answered without the log, else 0."
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
COMMITS = MetricInfo("windvane_commits_total", "counter", (), "Groups of operations committed.")
DECISIONS = MetricInfo(
    "windvane_decisions_total", "counter", ("loop",), "Decisions written to the log."
)
REWARDS = MetricInfo(
    "windvane_rewards",
    "gauge",
    ("loop", "outcome"),
    "Rewards by outcome; held and orphan rewards can still find their decision.",
)
_GAUGE_MEANINGS = {
    "windvane_join_ratio": (
        "Share of decisions that got their reward in time, of all whose wait is over."
    ),
    "windvane_model_age_seconds": "Seconds since the last lesson.",
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
    "windvane_drift_alarms": (
        "Drift alarms in the followed part of the log: predictions became worse than usual."
    ),
}
LOOP_GAUGES = tuple(
    MetricInfo(name, "gauge", ("loop",), meaning) for name, meaning in _GAUGE_MEANINGS.items()
)


def list_metrics() -> list[MetricInfo]:
    """List all metrics of the service, in the order of /metrics."""
    of_process = [REQUEST_SECONDS, REQUESTS, DEGRADED, WRITES_WAITING, COMMITS, CLOCK_OFFSET]
    return [*of_process, DECISIONS, REWARDS, *LOOP_GAUGES]


class Metrics:
    """The metrics of one service."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.followers = LogFollowers()
        self.registry = CollectorRegistry()
        self._seconds = Histogram(
            REQUEST_SECONDS.name,
            REQUEST_SECONDS.meaning,
            REQUEST_SECONDS.labels,
            buckets=REQUEST_SECONDS_BUCKETS,
            registry=self.registry,
        )
        self._requests = Counter(
            REQUESTS.family_name, REQUESTS.meaning, REQUESTS.labels, registry=self.registry
        )
        self.registry.register(LoopCollector(service, self.followers))
        self._find_counters = lru_cache(self._label_counters)

    def _label_counters(self, operation: str, loop: str, status: int) -> tuple[Counter, Histogram]:
        requests = self._requests.labels(operation, loop, str(status))
        return requests, self._seconds.labels(operation, loop)

    def count(self, operation: str, loop: str | None, status: int, seconds: float) -> None:
        """Count one request and, if it names a loop, its time.

        Unknown loops share the label "", so that clients cannot add labels without end.
        """
        if loop is None:
            self._requests.labels(operation, "", str(status)).inc()
            return
        label = loop if loop in self.service.loops else ""
        requests, times = self._find_counters(operation, label, status)
        requests.inc()
        times.observe(seconds)

    def render(self) -> bytes:
        """Render all metrics in the text format; reads the log, so use a thread."""
        return generate_latest(self.registry)


class LoopCollector(Collector):
    """Reads the metrics of the writer and of each loop at a scrape."""

    def __init__(self, service: Service, followers: LogFollowers) -> None:
        self.service = service
        self.followers = followers

    def describe(self) -> list[Metric]:
        """Describe nothing, so that registering does not read the log."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield all families; only those of the process if the log cannot be read."""
        service = self.service
        for info, value in (
            (DEGRADED, float(bool(service.degraded))),
            (WRITES_WAITING, service.writer.waiting_count),
            (COMMITS, service.writer.commit_count),
            (CLOCK_OFFSET, service.clock.offset_seconds),
        ):
            family = info.create_family()
            family.add_metric((), value)
            yield family
        try:
            rows = self._read_loops()
        except StoreError:
            return
        decisions, rewards = DECISIONS.create_family(), REWARDS.create_family()
        gauges = {info.name: info.create_family() for info in LOOP_GAUGES}
        for name, funnel, values in rows:
            decisions.add_metric((name,), funnel.ranked)
            for outcome in REWARD_OUTCOMES:
                rewards.add_metric((name, outcome), getattr(funnel, outcome))
            for gauge, value in values.items():
                if math.isfinite(value):
                    gauges[gauge].add_metric((name,), value)
        yield from (decisions, rewards, *gauges.values())

    def _read_loops(self) -> list[tuple[str, Funnel, dict[str, float]]]:
        """Read the name, the funnel and the gauges of each loop, all within one budget of time."""
        deadline = time.monotonic() + BUDGET_SECONDS
        rows = []
        for loop in list(self.service.loops.values()):
            budget = max(deadline - time.monotonic(), 0.0)
            follower = self.followers.follow(loop, budget)
            funnel = loop.store.read_funnel(loop.id)
            rows.append((loop.name, funnel, _compute_gauges(loop, funnel, follower)))
        return rows


def _compute_gauges(loop: Loop, funnel: Funnel, follower: LogFollower) -> dict[str, float]:
    """Compute the values of `LOOP_GAUGES`; NaN if there is none."""
    store = loop.store
    completed = funnel.learned + funnel.default
    learned_at = store.find_last_lesson_time(loop.id)
    age = (
        math.nan
        if learned_at is None
        else (loop.clock.now_us() - learned_at) / MICROSECONDS_PER_SECOND
    )
    recent = store.list_recent_decisions(loop.id, RECENT_DECISIONS)
    with follower.lock:
        drift = follower.measure_drift(RECENT_DECISIONS)
    return {
        "windvane_join_ratio": funnel.learned / completed if completed else math.nan,
        "windvane_model_age_seconds": age,
        "windvane_exploration_share": _compute_exploration_share(recent),
        "windvane_apprentice_agreement": loop.agreement,
        "windvane_prediction_error": drift.error,
        "windvane_parameter_norm": float(np.linalg.norm(loop.policy.theta)),
        "windvane_parameter_movement": drift.movement,
        "windvane_drift_alarms": drift.alarms,
    }


def _compute_exploration_share(recent: Sequence[LoggedDecision]) -> float:
    """Compute the share of decisions in which another action was more likely."""
    is_explored = [
        probabilities[logged.decision.chosen] < probabilities.max()
        for logged in recent
        if not logged.decision.degraded
        for probabilities in (np.frombuffer(logged.decision.probabilities),)
    ]
    return float(np.mean(is_explored)) if is_explored else math.nan
