"""Evaluation: what another policy would have earned, estimated from a log with propensities."""
