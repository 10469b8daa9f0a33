"""Counts and times of requests, by operation, loop and status.

The text of a sample is kept until the next request with the same labels: a scrape takes little time
even if thousands of loops have samples.
"""

import time
from bisect import bisect_left

from windvane.service.monitoring.metric_info import MetricInfo, format_value

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
_BUCKET_LABELS = [*map(format_value, REQUEST_SECONDS_BUCKETS), "+Inf"]


class _Sample:
    """What all samples have: labels, the time of their creation, and a text that is kept."""

    __slots__ = ("created", "labels", "text")

    def __init__(self, **labels: str) -> None:
        self.labels = ",".join(f'{name}="{value}"' for name, value in sorted(labels.items()))
        self.created = format_value(time.time())  # seconds since 1970
        self.text: str | None = None

    def render(self) -> str:
        """The lines of this sample in the text format."""
        if self.text is None:
            self.text = self.compose()
        return self.text

    def compose(self) -> str:
        raise NotImplementedError

    def render_creation(self, name: str) -> str:
        """The line that says since when this sample is counted."""
        return f"{name}_created{{{self.labels}}} {self.created}\n"


class _RequestCount(_Sample):
    """How many requests had the same operation, loop and status."""

    __slots__ = ("count",)

    def __init__(self, **labels: str) -> None:
        super().__init__(**labels)
        self.count = 0

    def increase(self, count: int = 1) -> None:
        self.count += count
        self.text = None

    def compose(self) -> str:
        return f"{REQUESTS.name}{{{self.labels}}} {format_value(self.count)}\n"


class _RequestTimes(_Sample):
    """The times of requests of one operation and loop, as a histogram."""

    __slots__ = ("counts", "seconds")

    def __init__(self, **labels: str) -> None:
        super().__init__(**labels)
        self.counts = [0] * len(_BUCKET_LABELS)  # of each bucket alone
        self.seconds = 0.0

    def observe(self, seconds: float) -> None:
        self.counts[bisect_left(REQUEST_SECONDS_BUCKETS, seconds)] += 1
        self.seconds += seconds
        self.text = None

    def compose(self) -> str:
        name, total, lines = REQUEST_SECONDS.name, 0, []
        for bound, count in zip(_BUCKET_LABELS, self.counts, strict=True):
            total += count
            value = format_value(total)
            lines.append(f'{name}_bucket{{le="{bound}",{self.labels}}} {value}\n')
        lines.append(f"{name}_count{{{self.labels}}} {format_value(total)}\n")
        lines.append(f"{name}_sum{{{self.labels}}} {format_value(self.seconds)}\n")
        return "".join(lines)


class RequestMetrics:
    """The counts and times of all requests since the service started."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str, int], _RequestCount] = {}
        self._times: dict[tuple[str, str], _RequestTimes] = {}

    def count(self, operation: str, loop: str, status: int, seconds: float | None) -> None:
        """Count one request and, unless `seconds` is None, its time."""
        self._find_count(operation, loop, status).increase()
        if seconds is not None:
            self._find_times(operation, loop).observe(seconds)

    def _find_count(self, operation: str, loop: str, status: int) -> _RequestCount:
        count = self._counts.get((operation, loop, status))
        if count is None:
            count = _RequestCount(operation=operation, loop=loop, status=str(status))
            self._counts[operation, loop, status] = count
        return count

    def _find_times(self, operation: str, loop: str) -> _RequestTimes:
        times = self._times.get((operation, loop))
        if times is None:
            times = self._times[operation, loop] = _RequestTimes(operation=operation, loop=loop)
        return times

    def render(self) -> str:
        """All samples in the text format."""
        return "".join(
            [
                *_render_family(REQUEST_SECONDS, REQUEST_SECONDS.name, list(self._times.values())),
                *_render_family(REQUESTS, REQUESTS.family_name, list(self._counts.values())),
            ]
        )


def _render_family(
    info: MetricInfo, name: str, samples: list[_RequestCount] | list[_RequestTimes]
) -> list[str]:
    parts = [info.render_head(), *(sample.render() for sample in samples)]
    if samples:
        created = MetricInfo(f"{name}_created", "gauge", info.labels, info.meaning)
        parts.append(created.render_head())
        parts += (sample.render_creation(name) for sample in samples)
    return parts
