"""Windvane: linear contextual bandits whose memory fades."""

from windvane.belief import Belief
from windvane.errors import (
    ArmsError,
    BeliefError,
    ChoiceError,
    FileError,
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
from windvane.memory import Memory, discount, keep, restart, restart_at, window
from windvane.policy import Choice, Policy
