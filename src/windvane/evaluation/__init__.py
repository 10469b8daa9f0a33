"""Evaluation: what another policy would have earned, estimated from a log with propensities."""

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
