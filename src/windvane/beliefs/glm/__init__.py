"""Generalised linear policies: clicks, counts and other rewards under a link."""
