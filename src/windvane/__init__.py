"""Windvane: linear contextual bandits whose memory fades."""

from windvane import exploration, laws, memory
from windvane.action_sets import (
    ActionSet,
    assignments,
    ball,
    box,
    ellipsoid,
    oracle,
    paths,
    polytope,
    simplex,
    subsets,
)
from windvane.adaptive.policies import Adaptive, BanditsOverBandits, PredictiveMemory
from windvane.adaptive.selection import Adaptation
from windvane.belief import Belief
from windvane.chooser import Choice, Chooser
from windvane.diagonal.belief import DiagonalBelief
from windvane.diagonal.policy import DiagonalPolicy
from windvane.diagonal.sparse_rows import SparseRow, SparseRows
from windvane.errors import (
    ArmsError,
    BeliefError,
    ChoiceError,
    FeatureError,
    FileError,
    FitError,
    RewardError,
    SettingError,
    WindvaneError,
)
from windvane.exploration import *  # noqa: F403
from windvane.glm.policy import GeneralizedPolicy
from windvane.laws import *  # noqa: F403
from windvane.learner.learner import Decision, Learner
from windvane.memory import *  # noqa: F403
from windvane.names import named
from windvane.policy import Policy
from windvane.prepared_arms import Finite, finite

__all__ = [
    "ActionSet",
    "Adaptation",
    "Adaptive",
    "ArmsError",
    "BanditsOverBandits",
    "Belief",
    "BeliefError",
    "Choice",
    "ChoiceError",
    "Chooser",
    "Decision",
    "DiagonalBelief",
    "DiagonalPolicy",
    "FeatureError",
    "FileError",
    "Finite",
    "FitError",
    "GeneralizedPolicy",
    "Learner",
    "Policy",
    "PredictiveMemory",
    "RewardError",
    "SettingError",
    "SparseRow",
    "SparseRows",
    "WindvaneError",
    "assignments",
    "ball",
    "box",
    "ellipsoid",
    "finite",
    "named",
    "oracle",
    "paths",
    "polytope",
    "simplex",
    "subsets",
]
__all__ += exploration.__all__
__all__ += laws.__all__
__all__ += memory.__all__
__all__.sort()
