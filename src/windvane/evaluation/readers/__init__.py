"""Readers: logs of Windvane and of other systems, as batches of decisions."""

from windvane.evaluation.readers.file_log import open_log

__all__ = ["open_log"]
