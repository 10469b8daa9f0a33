"""The queries that read the log, beyond those of `LogReader`."""
