"""Readers: logs of Windvane and of other systems, as batches of decisions."""

from windvane.evaluation.readers.formats import open_log

__all__ = ["open_log"]
