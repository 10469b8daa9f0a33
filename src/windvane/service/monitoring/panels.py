"""The questions of the board, answered in a sentence and in numbers."""

from math import isnan
from typing import NamedTuple

import msgspec
import numpy as np

from windvane.errors import FeatureError
from windvane.service.clock import now_us
from windvane.service.loops.loop import Loop
from windvane.service.loops.settings import Settings
from windvane.service.monitoring import estimates
from windvane.service.monitoring.estimates import (
    BAND_STANDARD_ERRORS,
    ActionShare,
    Bins,
    DecisionColumns,
    Estimate,
    Gain,
    LessonColumns,
    RewardRange,
    Series,
)
from windvane.service.monitoring.log_follower import Watch
from windvane.service.schemas import decode_rank_request
from windvane.service.store.monitoring_queries import list_recent_requests

REQUESTS = 50  # the last ones, in which features are weighed
LONGEST = 1 << 16  # characters of a request that is weighed
ACTIONS = 16  # of a request that are weighed
FEATURES = 12
EVENTS = 4  # that are named
FEW = 30  # rewards with which nothing can be said
MODES = {
    "Apprentice": "As an apprentice it takes the first action, and learns from that.",
    "LoggingOnly": "Not now: it only logs.",
}


class PageStruct(msgspec.Struct, frozen=True, rename="camel"):
    """A part of the JSON that the dashboard page reads."""


class Learning(PageStruct, frozen=True):
    """Is it learning?"""

    answer: str
    state: str  # good, bad or unsure
    mean: Estimate
    baseline: Estimate
    uniform: Estimate
    over_baseline: Gain
    over_uniform: Gain
    reward: Series
    reward_baseline: Series
    reward_uniform: Series
    ends: RewardRange  # of the rewards
    waiting: list[float]  # the share of each bin whose reward is not known yet


class Drift(PageStruct, frozen=True):
    """Is the world drifting?"""

    answer: str
    state: str
    error: Series
    movement: list[float]
    alarms: list[int]  # bins


class Chosen(PageStruct, frozen=True):
    """What is being chosen?"""

    answer: str
    shares: list[ActionShare]
    explored: float


class Forgetting(PageStruct, frozen=True):
    """How fast does it forget?"""

    answer: str
    half_life: str
    effective: float
    learned: int


class Arrived(PageStruct, frozen=True):
    """Did rewards arrive?"""

    answer: str
    waiting: int
    funnel: dict[str, int]


class Weight(PageStruct, frozen=True):
    """A feature and how much it tells actions apart."""

    name: str
    amount: float


class Answers(PageStruct, frozen=True):
    """The whole board of one loop; times are microseconds since 1970."""

    loop: str
    mode: str
    created: int
    decisions: int
    truncated: bool
    behind: bool  # the log is still being read
    since: int
    until: int
    width: int
    starts: list[int]
    learning: Learning
    drift: Drift
    chosen: Chosen
    forgetting: Forgetting
    arrived: Arrived
    features: list[Weight]
    recent: list[str]  # events, the last one first


class Recent(NamedTuple):
    """What the last requests say."""

    features: list[Weight]
    events: list[str]


def answers(watch: Watch, last: Recent, since: int | None = None) -> Answers:
    """All that the board says, on decisions made since a time."""
    with watch.lock:
        (decided, names), learned, effective = watch.decided(), watch.learned(), watch.effective()
        count, knows = len(watch.ages), watch.alarm.is_calibrated
    loop = watch.loop
    if since is not None:
        decided, learned = decided.select_since(since), learned.select_since(since)
    times = np.concatenate((decided.at, learned.at))
    ends = (int(times.min()), int(times.max())) if len(times) else (now_us(), now_us())
    in_bins = estimates.choose_bins(*ends, len(decided.at))
    return Answers(
        loop=loop.name,
        mode=loop.settings.learning_mode,
        created=loop.created,
        decisions=len(decided.at),
        truncated=watch.truncated,
        behind=watch.behind,
        since=ends[0],
        until=ends[1],
        width=in_bins.width,
        starts=in_bins.list_starts(),
        learning=learning(in_bins, decided, loop.settings),
        drift=drift(in_bins, learned, knows),
        chosen=chosen(in_bins, decided, names),
        forgetting=forgetting(loop, effective, count, watch.truncated),
        arrived=arrived(watch),
        features=last.features,
        recent=last.events,
    )


def learning(in_bins: Bins, decided: DecisionColumns, told: Settings) -> Learning:
    """The reward against that of the first action and of any action."""
    ones, first, any_ = np.ones(len(decided.at)), decided.baseline, decided.uniform
    mean, of_first, of_any = (
        estimates.estimate_value(*estimates.select_known(decided.reward, each))
        for each in (ones, first, any_)
    )
    over_first = estimates.estimate_gain(*estimates.select_known(decided.reward, first))
    over_any = estimates.estimate_gain(*estimates.select_known(decided.reward, any_))
    answer, state = verdict(mean, of_first, of_any, over_first, over_any)
    if told.learning_mode != "Online":
        answer, state = f"{MODES[told.learning_mode]} {answer}", "unsure"
    return Learning(
        answer=answer,
        state=state,
        mean=mean,
        baseline=of_first,
        uniform=of_any,
        over_baseline=over_first,
        over_uniform=over_any,
        reward=estimates.estimate_per_bin(in_bins, decided, ones),
        reward_baseline=estimates.estimate_per_bin(
            in_bins, decided, first, estimates.SMOOTHING_BINS
        ),
        reward_uniform=estimates.estimate_per_bin(in_bins, decided, any_, estimates.SMOOTHING_BINS),
        ends=estimates.find_range(decided.reward),
        waiting=estimates.compute_waiting_shares(in_bins, decided, now_us() - told.reward_wait_us),
    )


def verdict(
    mean: Estimate, baseline: Estimate, uniform: Estimate, first: Gain, any_: Gain
) -> tuple[str, str]:
    """A sentence on whether it learns, and how good that is."""
    if mean.count < FEW:
        return f"Too early to say, with {plural(mean.count, 'reward')}.", "unsure"
    said = f"A decision earns {mean.value:.3f} on average."
    told = [
        f"{who} would have earned {other.value:.3f} ± {BAND_STANDARD_ERRORS * other.error:.3f}"
        for who, other in (("The first action", baseline), ("any action, by lot,", uniform))
        if not isnan(other.value) and not isnan(other.error)
    ]
    said += f" {', '.join(told)}." if told else ""
    judged = [each for each in (first, any_) if not isnan(each.value)]
    if not judged:
        return said + " The log holds no other choices to compare with.", "unsure"
    if all(each.value > BAND_STANDARD_ERRORS * each.error for each in judged):
        return f"Yes. {said}", "good"
    if any(each.value < -BAND_STANDARD_ERRORS * each.error for each in judged):
        return f"No: another rule does better. {said}", "bad"
    return f"Not to be told apart yet. {said}", "unsure"


def drift(in_bins: Bins, learned: LessonColumns, knows: bool) -> Drift:
    """How wrong predictions are, how far the estimate moves, and when that was unusual."""
    if count := len(learned.alarms):
        often = "once" if count == 1 else f"{count:,} times"
        answer = f"It has: predictions became worse than usual {often}; see the marks."
        state = "bad"
    elif not len(learned.at):
        answer, state = "Nothing was learned in this time.", "unsure"
    elif not knows:
        answer, state = "Too early to say: what is usual is not known yet.", "unsure"
    else:
        answer, state = "No sign of it: predictions are as good as they usually are.", "good"
    raised = estimates.find_alarm_bins(in_bins, learned)
    error, movement = (
        estimates.compute_prediction_errors(in_bins, learned),
        estimates.compute_movement(in_bins, learned),
    )
    return Drift(answer, state, error, movement, raised)


def chosen(in_bins: Bins, decided: DecisionColumns, names: list[str]) -> Chosen:
    """The share of each action."""
    found = estimates.count_shares(in_bins, decided, names)
    if not found:
        return Chosen("Nothing in this time.", found, 0.0)
    explored = float(decided.explored.mean())
    answer = (
        f"{plural(len(np.unique(decided.action)), 'action')}. {explored:.0%} of the choices were "
        "exploration: not the likeliest action."
    )
    return Chosen(answer, found, explored)


def forgetting(loop: Loop, effective: float, count: int, truncated: bool) -> Forgetting:
    """The half-life, and how many observations count."""
    half_life = loop.settings.half_life
    if not loop.policy.memory.kind.is_timed:
        answer = "Never: every observation counts for ever."
    else:
        answer = f"An observation counts half after {half_life}."
    if count:
        least = "at least " if truncated else ""
        worth = plural(round(effective), "fresh one")
        answer += f" The {plural(count, 'observation')} of the log are worth {least}{worth}."
    return Forgetting(answer, half_life, effective, count)


def arrived(watch: Watch) -> Arrived:
    """The counters of the store, since the loop was made."""
    funnel = watch.loop.store.read_funnel(watch.loop.id)
    over = funnel.learned + funnel.default
    if not funnel.ranked:
        answer = "Nothing was ranked yet."
    elif not over:
        answer = "No decision has its reward yet."
    else:
        answer = f"{funnel.learned / over:.0%} of the settled decisions had a reward in time."
    return Arrived(answer, watch.waiting(), funnel._asdict())


def recent(loop: Loop) -> Recent:
    """What tells the actions of the last requests apart, as believed now; and the last events."""
    rows = list_recent_requests(loop.store, loop.id, REQUESTS)
    requests = [decode_rank_request(row.request) for row in rows if len(row.request) <= LONGEST]
    pairs = [(each.context_features, each.actions[:ACTIONS]) for each in requests]
    try:
        reasons = loop.encoder.measure_importance(loop.policy.theta, pairs)
    except FeatureError:  # answered when the log could not be written
        reasons = []
    weights = [Weight(name, amount) for name, amount in reasons[:FEATURES] if amount > 0.0]
    return Recent(weights, [row.event_id for row in rows[:EVENTS]])


def plural(count: int, noun: str) -> str:
    """A number of things."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
