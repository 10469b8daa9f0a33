"""The panels of the dashboard: each question answered by a sentence and by numbers.

The report of one event says what was chosen, with which probabilities, why, and its rewards.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from math import isfinite, isnan
from typing import NamedTuple

import msgspec
import numpy as np
from msgspec.structs import replace

from windvane.errors import FeatureError
from windvane.evaluation.estimates.estimators import RewardRange
from windvane.features.json_reader import JsonObjects
from windvane.features.slots import Slot, describe_contexts
from windvane.service.loops.learner_model import FeatureSpeeds
from windvane.service.loops.loop import Loop
from windvane.service.loops.settings import LoopSettings
from windvane.service.monitoring import estimates
from windvane.service.monitoring.estimates import (
    BAND_STANDARD_ERRORS,
    SMOOTHING_BINS,
    ActionShare,
    Bins,
    DecisionArrays,
    GroupSummary,
    LessonArrays,
    MeanReward,
    RewardGain,
    Series,
)
from windvane.service.monitoring.log_follower import LogFollower
from windvane.service.schemas import PageRequest, decode_rank_request
from windvane.service.store.monitoring_queries import count_waiting_decisions, list_recent_requests
from windvane.service.store.rows import DecisionRow, RewardRow, decode_action_ids, decode_page
from windvane.types import Floats

WEIGHED_REQUESTS = 50  # the last ones, from which the weights of features are computed
MAX_WEIGHED_CROSSINGS = 1 << 17  # of features, in all these requests; the newest come first
MAX_REQUEST_CHARACTERS = 1 << 16  # longer requests are left out
MAX_REQUEST_ACTIONS = 16  # the first ones of a request
SHOWN_FEATURES = 12
SHOWN_EVENTS = 4
SHOWN_SEGMENTS = 3  # in a sentence
SHOWN_CONTEXT_FEATURES = 50
MAX_FEATURE_CHARACTERS = 80
MIN_REWARDS = 30  # with fewer, nothing is said about learning
MODE_SENTENCES = {
    "Apprentice": "As an apprentice, the loop takes the first action and learns from it.",
    "LoggingOnly": "Not now: the loop only logs.",
}
OTHER_POLICIES = ("always the first action", "a random action")
SHOWN_REASONS = 12
DAMAGED = "This decision is damaged in the log: its actions or probabilities cannot be read."
DAMAGED_REQUEST = " Its request is damaged in the log, so that nothing can be estimated."
SHOWN_ACTIONS = 30
_decode_page_request = msgspec.json.Decoder(PageRequest).decode


class PageStruct(msgspec.Struct, frozen=True, rename="camel"):
    """A part of the JSON that the dashboard page reads."""


class LearningPanel(PageStruct, frozen=True):
    """Is it learning?"""

    answer: str
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
    error: Series
    movement: list[float]
    lessons: list[int]  # of each bin
    alarms: list[int]  # bins in which predictions became worse than usual
    click_alarms: list[int]  # bins in which the share of clicks changed


class ChoicesPanel(PageStruct, frozen=True):
    """What is being chosen?"""

    answer: str
    shares: list[ActionShare]
    explored: float
    actions: list[GroupSummary]  # those chosen most


class SegmentsPanel(PageStruct, frozen=True):
    """Who earns more?"""

    answer: str
    feature: str | None  # whose values are the segments
    features: list[str]  # of the context of recent requests
    segments: list[GroupSummary]  # those with most decisions


class MovingFeature(PageStruct, frozen=True):
    """A feature or crossing, and how much of what it adds fades."""

    name: str
    share: float
    text: str


class ForgettingPanel(PageStruct, frozen=True):
    """How fast does it forget?"""

    answer: str
    half_life: str
    effective: float
    learned: int
    noise: float  # standard deviation of rewards around their predictions
    moving: list[MovingFeature]  # empty if the half-life is fixed


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
    created: int
    decisions: int
    behind: bool  # the log has entries that were not read yet
    since: int
    until: int
    width: int
    starts: list[int]
    counts: list[int]  # of decisions, for each bin
    learning: LearningPanel
    drift: DriftPanel
    chosen: ChoicesPanel
    segments: SegmentsPanel
    forgetting: ForgettingPanel
    arrived: RewardsPanel
    features: list[FeatureWeight]
    weighed: int  # the recent requests from which the weights of features were computed
    recent: list[str]  # event ids, newest first
    clock: ClockNote | None = None  # None: the wall clock is believed


class RecentRequests(NamedTuple):
    """What the dashboard shows about the last rank requests."""

    features: list[FeatureWeight]
    speeds: list[FeatureSpeeds]
    events: list[str]
    weighed: int  # requests that could be read
    context: list[str]  # the names of their context features


class View(NamedTuple):
    """What a page wants to see: decisions of [since, until), and the feature of its segments."""

    since: int = 0
    until: int = 10**17
    feature: str | None = None


WHOLE_LOG = View()


def build_dashboard(follower: LogFollower, view: View = WHOLE_LOG) -> Dashboard:
    with follower.lock:
        decisions, names = follower.collect_decisions()
        labels = [] if view.feature is None else follower.label_decisions(view.feature)
        lessons = follower.collect_lessons()
        effective_count = follower.compute_effective_count()
        observations = len(follower.observation_times)
        is_calibrated = follower.alarm.is_calibrated
        watches_clicks = follower.clicks.alarm.is_calibrated
    is_shown = (decisions.at >= view.since) & (decisions.at < view.until)
    labels = [label for label, shown in zip(labels, is_shown, strict=False) if shown]
    decisions, lessons = decisions.select(is_shown), lessons.select_between(*view[:2])
    times = np.concatenate((decisions.at, lessons.at))
    loop = follower.loop
    recent = read_recent_requests(loop)
    now = loop.clock.now_us()
    first, last = (int(times.min()), int(times.max())) if len(times) else (now, now)
    bins = estimates.choose_bins(first, last, len(decisions.at))
    doubt = loop.clock.doubt
    return Dashboard(
        loop=loop.name,
        created=loop.created,
        decisions=len(decisions.at),
        behind=follower.is_behind or None in labels,
        since=first,
        until=last,
        width=bins.width,
        starts=bins.list_starts(),
        counts=bins.count_times(decisions.at),
        learning=_build_learning_panel(bins, decisions, loop.settings, now),
        drift=_build_drift_panel(bins, lessons, is_calibrated, watches_clicks),
        chosen=_build_choices_panel(bins, decisions, names),
        segments=_build_segments_panel(decisions, labels, view.feature, recent.context),
        forgetting=_build_forgetting_panel(
            loop, effective_count, observations, follower.is_truncated, recent.speeds
        ),
        arrived=_build_rewards_panel(loop),
        features=recent.features,
        weighed=recent.weighed,
        recent=recent.events,
        clock=doubt and ClockNote(doubt.sentence, round(doubt.offset_seconds)),
    )


def _build_learning_panel(
    bins: Bins, decisions: DecisionArrays, settings: LoopSettings, now: int
) -> LearningPanel:
    """Compare the rewards with those of always the first action and of a random action."""
    rewards, ones = decisions.reward, np.ones(len(decisions.reward))
    known = [
        estimates.select_known(rewards, weights)
        for weights in (ones, decisions.baseline, decisions.uniform)
    ]
    mean, baseline, uniform = (estimates.estimate_value(*each) for each in known)
    over_baseline, over_uniform = (estimates.estimate_gain(*each) for each in known[1:])
    answer = _judge_learning(mean, (baseline, uniform), (over_baseline, over_uniform))
    if settings.learning_mode != "Online":
        answer = f"{MODE_SENTENCES[settings.learning_mode]} {answer}"
    per_bin = estimates.estimate_per_bin
    return LearningPanel(
        answer=answer,
        mean=mean,
        baseline=baseline,
        uniform=uniform,
        over_baseline=over_baseline,
        over_uniform=over_uniform,
        reward=per_bin(bins, decisions, ones),
        reward_baseline=per_bin(bins, decisions, decisions.baseline, SMOOTHING_BINS),
        reward_uniform=per_bin(bins, decisions, decisions.uniform, SMOOTHING_BINS),
        ends=estimates.find_range(rewards),
        waiting=estimates.compute_waiting_shares(bins, decisions, now - settings.reward_wait_us),
    )


def _judge_learning(
    mean: MeanReward, others: Sequence[MeanReward], gains: Sequence[RewardGain]
) -> str:
    """Say in a sentence whether the loop earns more than the policies it is compared with."""
    if mean.count < MIN_REWARDS:
        return f"Too early to say, with {_format_count(mean.count, 'reward')} so far."
    clauses = [
        f"{policy} would have earned {other.value:.3f} ± {BAND_STANDARD_ERRORS * other.error:.3f}"
        for policy, other in zip(OTHER_POLICIES, others, strict=True)
        if not isnan(other.value) and not isnan(other.error)
    ]
    half_width = BAND_STANDARD_ERRORS * mean.error
    summary = f"A decision earns {mean.value:.3f} ± {half_width:.3f} on average."
    if clauses:
        summary += f" {capitalize(', '.join(clauses))}."
    gains = [gain for gain in gains if not isnan(gain.value)]
    if not gains:
        return f"{summary} The log has no other choices to compare with."
    if all(gain.value > BAND_STANDARD_ERRORS * gain.error for gain in gains):
        return f"Yes. {summary}"
    if any(gain.value < -BAND_STANDARD_ERRORS * gain.error for gain in gains):
        return f"No: another rule does better. {summary}"
    return f"The difference is not clear yet. {summary}"


def _build_drift_panel(
    bins: Bins, lessons: LessonArrays, is_calibrated: bool, watches_clicks: bool
) -> DriftPanel:
    """Show the prediction error, the movement of the estimate and the alarms."""
    return DriftPanel(
        _judge_drift(lessons, is_calibrated, watches_clicks),
        estimates.compute_prediction_errors(bins, lessons),
        estimates.compute_movement(bins, lessons),
        bins.count_times(lessons.at),
        bins.list_used(lessons.alarms),
        bins.list_used(np.array([change.at for change in lessons.rate_changes], np.int64)),
    )


def _judge_drift(lessons: LessonArrays, is_calibrated: bool, watches_clicks: bool) -> str:
    signs = []
    for whose, is_of_explored in (("", False), (" in explored choices", True)):
        changes = [each for each in lessons.rate_changes if each.is_of_explored == is_of_explored]
        if changes:
            sign = f"the share of clicks{whose} changed {_format_times(len(changes))}"
            last = changes[-1]
            before = f"{last.before:.2%} of {_format_count(last.count_before, 'decision')}"
            word = "last from" if len(changes) > 1 else "from"
            signs.append(f"{sign}, {word} {before} to {last.after:.2%} of {last.count_after:,}")
    if len(lessons.alarms):
        times = _format_times(len(lessons.alarms))
        signs.append(f"predictions became worse than usual {times}")
    if signs:
        return f"Yes: {', and '.join(signs)}; see the marks."
    if not len(lessons.at):
        return "Nothing was learned in this time."
    if not is_calibrated:
        return "Too early to say: the usual prediction error is not known yet."
    if watches_clicks:
        return "No sign of it: predictions and the share of clicks are as usual."
    return "No sign of it: predictions are as good as usual."


def _build_choices_panel(bins: Bins, decisions: DecisionArrays, names: list[str]) -> ChoicesPanel:
    """Show how often each action was chosen."""
    shares = estimates.count_shares(bins, decisions, names)
    if not shares:
        return ChoicesPanel("No action was chosen in this time.", shares, 0.0, [])
    explored = float(decisions.explored.mean())
    actions = _format_count(len(np.unique(decisions.action)), "action")
    choices = _format_count(len(decisions.at), "choice")
    exploration = f"{explored:.0%} of {choices} were exploration: another action was more likely."
    summaries = estimates.summarize_groups(decisions, decisions.action, names, has_gain=False)
    return ChoicesPanel(f"{actions}. {exploration}", shares, explored, summaries)


def _build_segments_panel(
    decisions: DecisionArrays, labels: list[str | None], feature: str | None, features: list[str]
) -> SegmentsPanel:
    """Compare the decisions by the value of a context feature."""
    numbers: dict[str, int] = {}
    is_read = np.array([label is not None for label in labels], np.bool_)
    groups = [numbers.setdefault(each, len(numbers)) for each in labels if each is not None]
    summaries = []
    if groups:
        summaries = estimates.summarize_groups(
            decisions.select(is_read), np.array(groups, np.int64), list(numbers), has_gain=True
        )
    if not features:
        answer = "Recent requests have no context features."
    elif feature is None:
        answer = "Choose a feature of the context to compare its values."
    elif not summaries:
        answer = "No decision was made in this time."
    else:
        values = _format_count(len(numbers), "value")
        answer = f"{values} of {feature} in {_format_count(len(groups), 'decision')}."
        answer += _compare_segments(summaries)
    return SegmentsPanel(answer, feature, features, summaries)


def _compare_segments(segments: Sequence[GroupSummary]) -> str:
    """Name the segments in which the loop earns clearly more, or less, than the first action."""
    sentence = ""
    for word, sign in (("more", 1.0), ("less", -1.0)):
        names = [
            each.name or "all others"
            for each in segments
            if min(sign * each.gain.low, sign * each.gain.high) > 0.0
        ]
        if names:
            shown = ", ".join(names[:SHOWN_SEGMENTS])
            rest = f" and {len(names) - SHOWN_SEGMENTS} more" if names[SHOWN_SEGMENTS:] else ""
            sentence += f" The loop earns {word} than the first action for {shown}{rest}."
    return sentence or " In none of them the loop clearly earns more or less than the first action."


def _build_forgetting_panel(
    loop: Loop,
    effective_count: float,
    observations: int,
    is_truncated: bool,
    speeds: list[FeatureSpeeds],
) -> ForgettingPanel:
    """Show the half-life and how many new observations the past counts as, or what moves."""
    half_life, noise = loop.settings.half_life, loop.model.noise
    if loop.model.half_life is None:
        *fading, _ = [f"{each:,.0f}" for each in loop.model.speeds.tolist()]
        answer = (
            f"Each weight is a sum of parts that fade after {', '.join(fading)} rewards, or never."
        )
        moving = [
            MovingFeature(each.name, 1.0 - each.shares[-1], _describe_speeds(fading, each.shares))
            for each in speeds[:SHOWN_FEATURES]
        ]
        return ForgettingPanel(answer, half_life, effective_count, observations, noise, moving)
    if isfinite(loop.model.half_life):
        answer = f"An observation counts half after {half_life}."
    else:
        answer = "Never: every observation keeps its full weight."
    if observations:
        log = f"The log has {_format_count(observations, 'observation')}, worth"
        least = "at least " if is_truncated else ""
        answer += f" {log} {least}{_format_count(round(effective_count), 'new one')}."
    return ForgettingPanel(answer, half_life, effective_count, observations, noise, [])


def _describe_speeds(fading: Sequence[str], shares: Sequence[float]) -> str:
    """Say how much of a feature fades, and how fast the largest part of it does."""
    fastest = int(np.argmax(shares[:-1]))
    return f"{1.0 - shares[-1]:.0%} after {fading[fastest]}"


def _build_rewards_panel(loop: Loop) -> RewardsPanel:
    """Show what became of all decisions and rewards since the loop was created."""
    funnel = loop.store.read_funnel(loop.id)
    completed = funnel.learned + funnel.default
    if not funnel.ranked:
        answer = "The loop has made no decision yet."
    elif not completed:
        answer = "No decision has its reward yet."
    else:
        share = funnel.learned / completed
        decided = _format_count(completed, "completed decision")
        answer = f"{share:.0%} of {decided} got a reward in time."
    return RewardsPanel(answer, count_waiting_decisions(loop.store, loop.id), funnel._asdict())


def read_recent_requests(loop: Loop) -> RecentRequests:
    """Weigh the features of the last requests by the current estimate, and list the last events."""
    rows = list_recent_requests(loop.store, loop.id, WEIGHED_REQUESTS)
    requests = []
    for _, request in rows:
        if len(request) <= MAX_REQUEST_CHARACTERS:
            with suppress(msgspec.DecodeError):  # a request that is damaged in the log
                requests.append(decode_rank_request(request))
    pairs = [(each.context_features, each.actions[:MAX_REQUEST_ACTIONS]) for each in requests]
    try:
        ranking = loop.model.measure_importance(pairs, MAX_WEIGHED_CROSSINGS)
        speeds = loop.model.measure_speeds(pairs, MAX_WEIGHED_CROSSINGS)
    except FeatureError:  # a request whose features cannot be read was answered without the log
        ranking, speeds = [], []
    weights = [
        FeatureWeight(name, amount) for name, amount in ranking[:SHOWN_FEATURES] if amount > 0.0
    ]
    events = [event_id for event_id, _ in rows[:SHOWN_EVENTS]]
    context = _list_context_features(each.context_features for each in requests)
    return RecentRequests(weights, speeds, events, len(requests), context)


def _list_context_features(contexts: Iterable[Sequence[Mapping[str, object]]]) -> list[str]:
    """List the names of single values, "a.b" in a namespace, the most frequent first."""
    counts: Counter[str] = Counter()
    for objects in contexts:
        spaces = [("", each) for each in objects]
        for key, value in [pair for each in objects for pair in each.items()]:
            if isinstance(value, Mapping):
                spaces.append((f"{key}.", value))
        counts.update(
            space + name
            for space, features in spaces
            for name, value in features.items()
            if isinstance(value, str | int | float) and not (space + name).startswith("_")
        )
    names = [name for name, _ in counts.most_common() if len(name) <= MAX_FEATURE_CHARACTERS]
    return sorted(names[:SHOWN_CONTEXT_FEATURES])


def capitalize(text: str) -> str:
    """Begin a sentence with a text."""
    return text[:1].upper() + text[1:]


def _format_count(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _format_times(count: int) -> str:
    return "once" if count == 1 else f"{count:,} times"


class Option(PageStruct, frozen=True):
    """An action of the request: its probability at the decision, its estimated reward now."""

    name: str
    chance: float
    estimate: float | None  # None if the features cannot be encoded
    chosen: bool


class RewardReport(PageStruct, frozen=True):
    """A reward and its outcome, which is a field of `Funnel`."""

    at: int
    value: float
    status: str


class EventReport(PageStruct, frozen=True):
    """A decision, the reason for it, and its rewards."""

    event: str
    at: int
    round: int
    activated: bool
    chosen: str
    chance: float
    explored: bool
    why: str
    options: list[Option]
    left_out: int
    reasons: list[FeatureWeight]  # the parts of the chosen action's current estimate
    rewards: list[RewardReport]
    slot: str = ""  # of a page
    slots: list["EventReport"] = []  # of a page, whose first slot the others describe


def report_event(loop: Loop, event: str) -> EventReport | None:
    """Report an event of a loop; None if the log has no decision of it that can be read."""
    decision = loop.store.find_decision(loop.id, event)
    if decision is None:
        return None
    rewards = loop.store.list_rewards(loop.id, event)
    try:
        if decision.slots is None:
            return _build_report(loop, decision, rewards)
        reports = []
        for place, (id_, chosen, probabilities, _) in enumerate(decode_page(decision.slots).slots):
            own = [reward for reward in rewards if reward.slot in ("", id_)]
            row = decision._replace(chosen=chosen, probabilities=probabilities)
            reports.append(replace(_build_report(loop, row, own, place), slot=id_))
        return replace(reports[0], slots=reports)
    except (ValueError, IndexError):  # the row is damaged
        return None


def _build_report(
    loop: Loop, decision: DecisionRow, rewards: list[RewardRow], slot: int | None = None
) -> EventReport:
    names, probabilities, chosen = _read_choice(decision)
    estimated = _estimate_actions(loop, decision, slot) if names else ([], [], DAMAGED)
    estimates, reasons, damage = estimated
    order = sorted(range(len(names)), key=lambda k: (k != chosen, -probabilities[k]))
    options = [
        Option(
            name=names[k],
            chance=float(probabilities[k]),
            estimate=estimates[k] if estimates else None,
            chosen=k == chosen,
        )
        for k in order[:SHOWN_ACTIONS]
    ]
    return EventReport(
        event=decision.event_id,
        at=decision.at,
        round=decision.round,
        activated=decision.activated_at is not None,
        chosen=names[chosen] if names else "",
        chance=float(probabilities[chosen]) if names else 0.0,
        explored=bool(names and probabilities[chosen] < probabilities.max()),
        why=(_explain_choice(decision, names, probabilities) if names else "") + damage,
        options=sorted(options, key=lambda option: -option.chance),
        left_out=len(names) - len(options),
        reasons=reasons,
        rewards=[RewardReport(reward.at, reward.value, reward.status) for reward in rewards],
    )


def _read_choice(decision: DecisionRow) -> tuple[list[str], Floats, int]:
    """The ids of the actions, their probabilities, the place of the choice; no ids if damaged."""
    try:
        names = decode_action_ids(decision.actions)
        probabilities = np.frombuffer(decision.probabilities)
        is_whole = 0 <= decision.chosen < len(names) == len(probabilities)
    except ValueError:
        is_whole = False
    return (names, probabilities, decision.chosen) if is_whole else ([], np.zeros(0), 0)


def _estimate_actions(
    loop: Loop, decision: DecisionRow, slot: int | None
) -> tuple[list[float], list[FeatureWeight], str]:
    """The current estimate of each action, the parts of the chosen one's, and what is damaged."""
    try:
        request = decode_rank_request(decision.whole_request)
        context: JsonObjects = request.context_features
        actions = request.actions
        if slot is not None:
            sent = _decode_page_request(decision.whole_request).slots
            slots = [Slot(each.id, each.features, ()) for each in sent]
            context = describe_contexts(context, slots)[slot]
        values = loop.model.estimate_actions(context, actions)
        parts = loop.model.explain(context, actions, decision.chosen)
    except FeatureError:  # such a request is answered, but the loop does not learn from it
        return [], [], ""
    except (ValueError, IndexError):
        return [], [], DAMAGED_REQUEST
    if len(values) != len(decode_action_ids(decision.actions)):
        return [], [], DAMAGED_REQUEST
    reasons = [FeatureWeight(*part) for part in parts[:SHOWN_REASONS] if part.amount]
    return values, reasons, ""


def _explain_choice(decision: DecisionRow, names: list[str], probabilities: Floats) -> str:
    """Say in a sentence or two why this action was chosen."""
    probability = float(probabilities[decision.chosen])
    likeliest = int(probabilities.argmax())
    possible = int(np.count_nonzero(probabilities))
    baseline = "the first action" if decision.slots is None else "the baseline of the slot"
    if decision.degraded:
        return (
            f"The log could not be written, so the service took {baseline}. "
            "The loop learns nothing from it."
        )
    if decision.mode == "Apprentice":
        return f"As an apprentice, the loop always takes {baseline} and learns from it."
    if possible == 1:
        return "No other action could be chosen."
    if probability < probabilities[likeliest]:
        return (
            f"This was exploration: the action had a probability of {probability:.1%}, and "
            f"“{names[likeliest]}” was the most likely one with {probabilities[likeliest]:.1%}. "
            "The loop tries other actions in order to notice changes."
        )
    return f"It was the most likely of {possible} actions, with a probability of {probability:.1%}."
