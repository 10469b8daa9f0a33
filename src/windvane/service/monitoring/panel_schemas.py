"""The JSON of the dashboard: one struct for each panel, named after its question."""

from typing import Literal

import msgspec

from windvane.evaluation.estimates.estimators import RewardRange
from windvane.service.monitoring.estimates import (
    ActionShare,
    MeanReward,
    RewardGain,
    Series,
)

State = Literal["good", "bad", "unsure"]


class PageStruct(msgspec.Struct, frozen=True, rename="camel"):
    """A part of the JSON that the dashboard page reads."""


class LearningPanel(PageStruct, frozen=True):
    """Is it learning?"""

    answer: str
    state: State
    mean: MeanReward
    baseline: MeanReward
    uniform: MeanReward
    over_baseline: RewardGain
    over_uniform: RewardGain
    reward: Series
    reward_baseline: Series
    reward_uniform: Series
    ends: RewardRange
    waiting: list[float]  # share of each bin that still waits for its reward


class DriftPanel(PageStruct, frozen=True):
    """Is the world drifting?"""

    answer: str
    state: State
    error: Series
    movement: list[float]
    alarms: list[int]  # bins in which predictions became worse than usual
    click_alarms: list[int]  # bins in which the share of clicks changed


class ChoicesPanel(PageStruct, frozen=True):
    """What is being chosen?"""

    answer: str
    shares: list[ActionShare]
    explored: float


class HalfLifeEvidence(PageStruct, frozen=True):
    """A half-life that is compared, and how credible its recent predictions make it."""

    name: str
    credibility: float  # e^{−loss}, as a share of the sum over all half-lives
    leads: bool


class LeadChange(PageStruct, frozen=True):
    """Another half-life took the lead."""

    at: int
    half_life: str


class ForgettingPanel(PageStruct, frozen=True):
    """How fast does it forget?"""

    answer: str
    half_life: str
    effective: float
    learned: int
    noise: float  # standard deviation of rewards around their predictions
    share: float  # of the noise: the scale of exploration
    evidence: list[HalfLifeEvidence]  # empty if the half-life is fixed
    changes: list[LeadChange]  # newest first


class RewardsPanel(PageStruct, frozen=True):
    """Did rewards arrive?"""

    answer: str
    waiting: int
    funnel: dict[str, int]


class FeatureWeight(PageStruct, frozen=True):
    """A feature and its part in an estimate, or in the difference between actions."""

    name: str
    amount: float


class ClockNote(PageStruct, frozen=True):
    """The wall clock is not believed."""

    answer: str
    offset: int  # wall clock minus service time, in seconds


class Dashboard(PageStruct, frozen=True):
    """The whole dashboard of one loop; times are microseconds since 1970."""

    loop: str
    mode: str
    created: int
    decisions: int
    truncated: bool
    behind: bool  # the log has entries that were not read yet
    since: int
    until: int
    width: int
    starts: list[int]
    learning: LearningPanel
    drift: DriftPanel
    chosen: ChoicesPanel
    forgetting: ForgettingPanel
    arrived: RewardsPanel
    features: list[FeatureWeight]
    recent: list[str]  # event ids, newest first
    clock: ClockNote | None = None  # None: the wall clock is believed
