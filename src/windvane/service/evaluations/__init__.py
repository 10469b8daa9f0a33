"""Evaluations of a loop's log beside the traffic, and auto-optimisation."""
