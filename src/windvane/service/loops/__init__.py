"""Loops: they decide and learn."""
