"""Run experiments: replications on threads or on Ray."""
