"""Engines: compiled loops that play one replication."""
