"""Checks: what can be wrong with a log, one file a subject."""
