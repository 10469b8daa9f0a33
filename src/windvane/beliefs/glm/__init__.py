"""Generalized linear beliefs: estimates refitted to all observations, under a link."""
