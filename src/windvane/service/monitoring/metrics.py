"""Metrics of the service, for Prometheus.

The process counts requests and their times. Everything about decisions and rewards is read from the
log when it has changed, and therefore survives a restart.
"""

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from windvane.service.evaluations.evaluations import Evaluations
from windvane.service.json_logging import dropped_messages
from windvane.service.loops.service import Service
from windvane.service.monitoring.log_follower import LogFollowers
from windvane.service.monitoring.loop_metrics import LOOP_METRICS, LoopCollector, MetricInfo
from windvane.service.sharing.servers import LAG_SECONDS_BUCKETS

REQUEST_SECONDS_BUCKETS = (
    *(0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05),
    *(0.1, 0.2, 0.5, 1.0, 2.0, 5.0),
)
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
        dropped = DROPPED_MESSAGES.create_family()
        for cause, count in dropped_messages.items():
            dropped.add_metric((cause,), count)
        yield dropped
        for info, value in (
            (DEGRADED, float(bool(service.degraded_reason))),
            (WRITES_WAITING, service.writer.waiting_count),
            (COMMITS, service.writer.commit_count),
            (CLOCK_OFFSET, service.clock.offset_seconds),
        ):
            family = info.create_family()
            family.add_metric((), value)
            yield family
        failures = WRITE_FAILURES.create_family()
        for operation, count in sorted(service.writer.failures.counts.items()):
            failures.add_metric((operation,), count)
        yield failures
        yield from _collect_sharing(service)
        if self.evaluations is not None:
            running = EVALUATIONS_RUNNING.create_family()
            running.add_metric((), self.evaluations.running_count)
            yield running
            ended = EVALUATIONS_ENDED.create_family()
            for status, count in sorted(self.evaluations.ended_counts.items()):
                ended.add_metric((status,), count)
            yield ended


def _collect_sharing(service: Service) -> Iterator[Metric]:
    """Yield what this process knows about those that share its log."""
    sharing = service.sharing
    count = 1 if sharing is None else sharing.server_count
    for info, value in ((SERVERS, count), (LEADER, float(service.is_leader))):
        family = info.create_family()
        family.add_metric((), value)
        yield family
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
