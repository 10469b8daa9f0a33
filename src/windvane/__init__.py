"""Windvane: linear contextual bandits whose memory fades."""

from windvane.actions import ActionSet, ball, box, ellipsoid, oracle, polytope, simplex
from windvane.adaptive import BanditsOverBandits, PredictiveMemory
from windvane.belief import Belief
from windvane.choices import Choice, Chooser
from windvane.combinatorial import assignments, paths, subsets
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
from windvane.exploration import (
    Confidence,
    Exploration,
    Law,
    confidence,
    epsilon,
    greedy,
    grid,
    half_normal,
    inverse_gap,
    normal,
    optimism,
    perturbed_history,
    randomized,
    thompson,
)
from windvane.glm import GeneralizedPolicy
from windvane.many import Finite, finite
from windvane.memory import (
    Memory,
    detect,
    discount,
    half_life,
    kalman,
    keep,
    restart,
    restart_at,
    window,
)
from windvane.names import named
from windvane.policy import Policy

__all__ = [
    "ActionSet",
    "ArmsError",
    "BanditsOverBandits",
    "Belief",
    "BeliefError",
    "Choice",
    "ChoiceError",
    "Chooser",
    "Confidence",
    "Exploration",
    "FeatureError",
    "FileError",
    "Finite",
    "FitError",
    "GeneralizedPolicy",
    "Law",
    "Memory",
    "Policy",
    "PredictiveMemory",
    "RewardError",
    "SettingError",
    "WindvaneError",
    "assignments",
    "ball",
    "box",
    "confidence",
    "detect",
    "discount",
    "ellipsoid",
    "epsilon",
    "finite",
    "greedy",
    "grid",
    "half_life",
    "half_normal",
    "inverse_gap",
    "kalman",
    "keep",
    "named",
    "normal",
    "optimism",
    "oracle",
    "paths",
    "perturbed_history",
    "polytope",
    "randomized",
    "restart",
    "restart_at",
    "simplex",
    "subsets",
    "thompson",
    "window",
]
