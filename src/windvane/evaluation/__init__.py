"""Evaluation: what another policy would have earned, estimated from a log with propensities."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from windvane.evaluation.estimates.bounded_model import ActionModel
    from windvane.evaluation.estimates.confidence_sequence import ConfidenceSequence
    from windvane.evaluation.estimates.cressie_read import WeightRange
    from windvane.evaluation.estimates.estimators import RewardRange, ValueSums
    from windvane.evaluation.estimates.policy_record import PolicyRecord
    from windvane.evaluation.estimates.recent_value import RecentSums
    from windvane.evaluation.estimates.result import (
        Diagnostics,
        Estimate,
        Evaluation,
        Gain,
        Interval,
        PolicyResult,
        RecentValue,
        Replay,
    )
    from windvane.evaluation.estimates.value_series import SeriesPoint, ValueSeries
    from windvane.evaluation.evaluator import EvaluationProgress, evaluate
    from windvane.evaluation.learners.policy_text import read_candidate
    from windvane.evaluation.readers import open_log
    from windvane.evaluation.readers.log_check import CheckReport, check

__all__ = [
    "ActionModel",
    "CheckReport",
    "ConfidenceSequence",
    "Diagnostics",
    "Estimate",
    "Evaluation",
    "EvaluationProgress",
    "Gain",
    "Interval",
    "PolicyRecord",
    "PolicyResult",
    "RecentSums",
    "RecentValue",
    "Replay",
    "RewardRange",
    "SeriesPoint",
    "ValueSeries",
    "ValueSums",
    "WeightRange",
    "check",
    "evaluate",
    "open_log",
    "read_candidate",
]

MODULES = {  # imported at first use: scipy takes longer than the rest
    "ActionModel": "estimates.bounded_model",
    "CheckReport": "readers.log_check",
    "ConfidenceSequence": "estimates.confidence_sequence",
    "Diagnostics": "estimates.result",
    "Estimate": "estimates.result",
    "Evaluation": "estimates.result",
    "EvaluationProgress": "evaluator",
    "Gain": "estimates.result",
    "Interval": "estimates.result",
    "PolicyRecord": "estimates.policy_record",
    "PolicyResult": "estimates.result",
    "RecentSums": "estimates.recent_value",
    "RecentValue": "estimates.result",
    "Replay": "estimates.result",
    "RewardRange": "estimates.estimators",
    "SeriesPoint": "estimates.value_series",
    "ValueSeries": "estimates.value_series",
    "ValueSums": "estimates.estimators",
    "WeightRange": "estimates.cressie_read",
    "check": "readers.log_check",
    "evaluate": "evaluator",
    "open_log": "readers",
    "read_candidate": "learners.policy_text",
}


if not TYPE_CHECKING:  # a type checker reads the imports above instead

    def __getattr__(name: str) -> object:
        if name not in MODULES:
            raise AttributeError(f"module 'windvane.evaluation' has no attribute {name!r}")
        return getattr(import_module(f"windvane.evaluation.{MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
