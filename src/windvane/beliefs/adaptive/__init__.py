"""Policies that find their memory while they play."""
