"""What the service measures, for Prometheus.

What became of decisions and rewards is read from the log when someone asks, and so survives a
restart. Requests and their times are counted here, by this process.
"""

import math
import time
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from windvane.errors import StoreError
from windvane.service.clock import MICROSECONDS_PER_SECOND, now_us
from windvane.service.monitoring.log_follower import BUDGET, Watch, Watches
from windvane.service.store.schema import Funnel, LoggedDecision

if TYPE_CHECKING:
    from windvane.service.loops.loop import Loop
    from windvane.service.loops.service import Service

BUCKETS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)  # seconds
RECENT = 1000  # decisions by which a loop is judged
OUTCOMES = ("learned", "summed", "extra", "held", "late", "orphan", "duplicate", "unlearned")


class Metrics:
    """The counters of one service."""

    def __init__(self, service: "Service") -> None:
        self.service = service
        self.registry = CollectorRegistry()
        self.times = Histogram(
            "windvane_request_seconds",
            "Time to answer, by what was asked.",
            ("operation", "loop"),
            buckets=BUCKETS,
            registry=self.registry,
        )
        self.requests = Counter(
            "windvane_requests",
            "Requests answered.",
            ("operation", "loop", "status"),
            registry=self.registry,
        )
        self.watches = Watches()
        self.registry.register(Loops(service, self.watches))
        self.counters = lru_cache(self._counters)

    def _counters(self, what: str, loop: str, status: int) -> tuple[Counter, Histogram]:
        return self.requests.labels(what, loop, str(status)), self.times.labels(what, loop)

    def count(self, operation: str, loop: str | None, status: int, seconds: float) -> None:
        """Count one request and, if it is one of a loop, its time.

        Unknown loops share the label "", so that clients cannot add labels without end.
        """
        if loop is None:
            self.requests.labels(operation, "", str(status)).inc()
            return
        label = loop if loop in self.service.loops else ""
        requests, times = self.counters(operation, label, status)
        requests.inc()
        times.observe(seconds)

    def text(self) -> bytes:
        """All of it as Prometheus reads it; waits for the log, so call it in a thread."""
        return generate_latest(self.registry)


class Loops(Collector):
    """What the log knows of each loop."""

    def __init__(self, service: "Service", watches: Watches) -> None:
        self.service, self.watches = service, watches

    def describe(self) -> list[Metric]:
        """Nothing before it is asked for."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Read it now; a log that cannot be read leaves the process's own numbers."""
        service = self.service
        degraded = "1 while ranks are answered without the log."
        yield GaugeMetricFamily("windvane_degraded", degraded, float(bool(service.degraded)))
        waiting = GaugeMetricFamily("windvane_writes_waiting", "Operations not yet on disk.")
        waiting.add_metric((), service.writer.waiting_count)
        yield waiting
        commits = CounterMetricFamily("windvane_commits", "Groups of operations written.")
        commits.add_metric((), service.writer.commit_count)
        yield commits
        until = time.monotonic() + BUDGET
        try:
            read = [
                (loop, *_read(loop, self.watches.of(loop, max(until - time.monotonic(), 0.0))))
                for loop in list(service.loops.values())
            ]
        except StoreError:
            return
        decisions = CounterMetricFamily("windvane_decisions", "Ranks kept.", labels=("loop",))
        told = "Rewards by what became of them; held and orphan ones can find their decision yet."
        rewards = GaugeMetricFamily("windvane_rewards", told, labels=("loop", "outcome"))
        gauges = {
            name: GaugeMetricFamily(f"windvane_{name}", told, labels=("loop",))
            for name, told in GAUGES.items()
        }
        for loop, funnel, values in read:
            decisions.add_metric((loop.name,), funnel.ranked)
            for outcome in OUTCOMES:
                rewards.add_metric((loop.name, outcome), getattr(funnel, outcome))
            for name, value in values.items():
                if math.isfinite(value):
                    gauges[name].add_metric((loop.name,), value)
        yield from (decisions, rewards, *gauges.values())


GAUGES = {
    "join_ratio": "Decisions that got their reward in time, of all whose wait is over.",
    "model_age_seconds": "Time since something was learned.",
    "exploration_share": "Recent decisions that took another action than the likeliest.",
    "apprentice_agreement": "As an apprentice, how often it would take the first action as well.",
    "prediction_error": "Root mean square of reward minus what was predicted, recent lessons.",
    "parameter_norm": "Length of the estimated parameter.",
    "parameter_movement": "How far the estimated parameter came over the recent lessons.",
    "drift_alarms": "How often predictions became worse than usual, in the log that is watched.",
}


def _read(loop: "Loop", watch: Watch) -> tuple[Funnel, dict[str, float]]:
    store, theta = loop.store, loop.policy.theta
    funnel = store.read_funnel(loop.id)
    closed = funnel.learned + funnel.default
    age = math.nan
    if (learned_at := store.find_last_lesson_time(loop.id)) is not None:
        age = (now_us() - learned_at) / MICROSECONDS_PER_SECOND
    with watch.lock:
        drift = watch.drift(RECENT)
    return funnel, {
        "join_ratio": funnel.learned / closed if closed else math.nan,
        "model_age_seconds": age,
        "exploration_share": exploration_share(store.list_recent_decisions(loop.id, RECENT)),
        "apprentice_agreement": loop.agreement,
        "prediction_error": drift.error,
        "parameter_norm": float(np.linalg.norm(theta)),
        "parameter_movement": drift.movement,
        "drift_alarms": drift.alarms,
    }


def exploration_share(recent: Sequence[LoggedDecision]) -> float:
    """How often something else than the likeliest action was taken."""
    others = [
        chances[logged.decision.chosen] < chances.max()
        for logged in recent
        if not logged.decision.degraded
        for chances in (np.frombuffer(logged.decision.probabilities),)
    ]
    return float(np.mean(others)) if others else math.nan
