"""Windvane: linear contextual bandits whose memory fades."""

from windvane.belief import Belief
from windvane.choices import Choice
from windvane.errors import (
    ArmsError,
    BeliefError,
    ChoiceError,
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
    normal,
    optimism,
    perturbed_history,
    randomized,
    thompson,
)
from windvane.glm import GeneralizedPolicy
from windvane.memory import Memory, discount, keep, restart, restart_at, window
from windvane.names import named, named_glm
from windvane.policy import Policy

__all__ = [
    "ArmsError",
    "Belief",
    "BeliefError",
    "Choice",
    "ChoiceError",
    "Confidence",
    "Exploration",
    "FileError",
    "FitError",
    "GeneralizedPolicy",
    "Law",
    "Memory",
    "Policy",
    "RewardError",
    "SettingError",
    "WindvaneError",
    "confidence",
    "discount",
    "epsilon",
    "greedy",
    "grid",
    "half_normal",
    "keep",
    "named",
    "named_glm",
    "normal",
    "optimism",
    "perturbed_history",
    "randomized",
    "restart",
    "restart_at",
    "thompson",
    "window",
]
