"""Evaluation: what another policy would have earned, estimated from a log with propensities."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from windvane.evaluation.bounded_model import ActionModel
    from windvane.evaluation.candidate_text import read_candidate
    from windvane.evaluation.confidence_sequence import ConfidenceSequence, RewardRange
    from windvane.evaluation.cressie_read import WeightRange
    from windvane.evaluation.evaluator import EvaluationProgress, evaluate
    from windvane.evaluation.log_check import CheckReport, check
    from windvane.evaluation.policy_record import PolicyRecord
    from windvane.evaluation.readers import open_log
    from windvane.evaluation.recent_value import RecentSums
    from windvane.evaluation.result import (
        Diagnostics,
        Estimate,
        Evaluation,
        Gain,
        Interval,
        PolicyResult,
        RecentValue,
        Replay,
    )
    from windvane.evaluation.value_series import SeriesPoint, ValueSeries
    from windvane.evaluation.value_sums import ValueSums

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
    "ActionModel": "bounded_model",
    "CheckReport": "log_check",
    "ConfidenceSequence": "confidence_sequence",
    "Diagnostics": "result",
    "Estimate": "result",
    "Evaluation": "result",
    "EvaluationProgress": "evaluator",
    "Gain": "result",
    "Interval": "result",
    "PolicyRecord": "policy_record",
    "PolicyResult": "result",
    "RecentSums": "recent_value",
    "RecentValue": "result",
    "Replay": "result",
    "RewardRange": "confidence_sequence",
    "SeriesPoint": "value_series",
    "ValueSeries": "value_series",
    "ValueSums": "value_sums",
    "WeightRange": "cressie_read",
    "check": "log_check",
    "evaluate": "evaluator",
    "open_log": "readers",
    "read_candidate": "candidate_text",
}


if not TYPE_CHECKING:  # a type checker reads the imports above instead

    def __getattr__(name: str) -> object:
        if name not in MODULES:
            raise AttributeError(f"module 'windvane.evaluation' has no attribute {name!r}")
        return getattr(import_module(f"windvane.evaluation.{MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
