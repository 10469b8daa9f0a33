from .estimates.confidence_sequence import ActionModel as ActionModel
from .estimates.confidence_sequence import ConfidenceSequence as ConfidenceSequence
from .estimates.estimators import RewardRange as RewardRange
from .estimates.estimators import ValueSums as ValueSums
from .estimates.estimators import WeightRange as WeightRange
from .estimates.policy_record import PolicyRecord as PolicyRecord
from .estimates.result import Diagnostics as Diagnostics
from .estimates.result import Estimate as Estimate
from .estimates.result import Evaluation as Evaluation
from .estimates.result import Gain as Gain
from .estimates.result import Interval as Interval
from .estimates.result import Pair as Pair
from .estimates.result import PolicyResult as PolicyResult
from .estimates.value_series import SeriesPoint as SeriesPoint
from .estimates.value_series import ValueSeries as ValueSeries
from .evaluator import EvaluationProgress as EvaluationProgress
from .evaluator import evaluate as evaluate
from .learners.candidates import read_candidate as read_candidate
from .log_check import CheckReport as CheckReport
from .log_check import check as check
from .readers import open_log as open_log
from .tuning import LearnerTuning as LearnerTuning
from .tuning import tune as tune

__all__: list[str]
