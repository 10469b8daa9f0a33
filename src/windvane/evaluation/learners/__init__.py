"""Learners: the policies that are compared, and how those that learn follow a log."""
