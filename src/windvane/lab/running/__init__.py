"""Replications on threads or on Ray."""
