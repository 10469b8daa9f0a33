"""Evaluations of a loop's log beside the traffic, feature importances, and auto-optimisation."""
