"""Estimates: sums over logged decisions, and what they say about the value of a policy."""
