"""What a metric is: its name, kind, labels and meaning, and the lines of the text format."""

import math
from typing import Literal, NamedTuple

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily


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

    def render_head(self) -> str:
        """The lines of the text format before the samples of this metric."""
        return f"# HELP {self.name} {self.meaning}\n# TYPE {self.name} {self.kind}\n"


def format_value(value: float) -> str:
    """A number as the text format has it."""
    return "+Inf" if value == math.inf else repr(float(value))
