"""The compiled learner against the formulas as written, over streams of every kind of feature."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

import windvane as wv
from learner_helpers import HOUR, Features, Offer, Stream
from naive_learner import AUTO, NEVER, Components, NaiveLearner, compute_probabilities
from windvane.features.packed_features import pack_actions

TOLERANCE = 1e-9
FLOOR = 0.1
LOSS = 2  # of a row of judgements
ALL = [("context", "action")]


def fix(half_life: float) -> list[Components]:
    return [[(half_life, prior)] for prior in (0.3, 3.0)]


def strip_id(action: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in action.items() if name != "id"}


class Comparison:
    """A learner and its naive form, which get the same requests and rewards."""

    def __init__(
        self, settings: dict[str, Any], beliefs: list[Components], crossings: Any = ALL
    ) -> None:
        self.learner = wv.Learner(seed=7, exploration=FLOOR, **settings)
        self.naive = NaiveLearner(beliefs, crossings)
        self.leaders: list[int] = []  # after each lesson
        self.rankers: set[int] = set()

    def tell_time(self, at: float, round_: int) -> float:
        if not self.learner.is_fixed:
            return float(len(self.leaders))  # lessons
        return float(round_) if self.learner.ages_in_rounds else at

    def rank(
        self, context: Features, actions: Sequence[Features], at: float
    ) -> tuple[wv.Decision, float]:
        """Rank with both and compare; return the decision and its time."""
        learner, naive = self.learner, self.naive
        decision = learner.rank(context, actions, at=at)
        clock = self.tell_time(at, decision.round)
        offers = [Offer(each["id"], [strip_id(each)]) for each in actions]
        ranking, _ = learner.rank_packed(
            decision.context, pack_actions(offers), range(len(offers)), at, decision.round
        )
        requests = [naive.read(context, each["id"], strip_id(each)) for each in actions]
        means, deviations = naive.rank(requests, clock)
        self.rankers.add(naive.leader)
        predicted = [naive.level + mean for mean in means]
        assert ranking.means == pytest.approx(predicted, rel=TOLERANCE, abs=TOLERANCE)
        assert ranking.deviations == pytest.approx(deviations, rel=TOLERANCE)
        floor = max(FLOOR, 1.0 / (learner.bank.lessons + 1))
        chances = compute_probabilities(means, deviations, floor)
        assert decision.probabilities == pytest.approx(chances, abs=1e-6)
        return decision, clock

    def learn(self, decision: wv.Decision, then: float, reward: float) -> None:
        """Learn in both; `then` is the time of the decision, which lessons do not need."""
        learner, naive = self.learner, self.naive
        clock = then if learner.is_fixed else float(len(self.leaders))
        learner.reward(decision, reward)
        naive.learn(*self.get_request(decision), reward, clock)
        self.leaders.append(naive.leader)
        assert learner.bank.leader == naive.leader
        assert learner.bank.noise**2 == pytest.approx(naive.variance, rel=TOLERANCE)
        assert learner.bank.bank.level[0] == pytest.approx(naive.level, abs=TOLERANCE)
        losses = [own.loss for own in naive.judgements]
        known = learner.bank.bank.judgements[: len(losses), LOSS]
        assert known == pytest.approx(losses, rel=1e-7, abs=1e-7)

    def amend(self, decision: wv.Decision, then: float, more: float) -> None:
        clock = then if self.learner.is_fixed else float(len(self.leaders))
        self.learner.amend(decision.lesson, more, decision.at, decision.round)
        self.naive.amend(*self.get_request(decision), more, clock)

    @staticmethod
    def get_request(decision: wv.Decision) -> tuple[Features, str, Features]:
        return dict(decision.context[0]), decision.action, dict(decision.features)

    @property
    def dense_is_on(self) -> bool:
        assert bool(len(self.learner.bank.dense.newest)) == bool(self.naive.filters)
        return bool(self.naive.filters)


def draw_request(stream: Stream, round_: int) -> tuple[Features, list[Features]]:
    """Draw categories, numbers, arrays, times, missing values, and features of actions."""
    context, actions = stream.draw_context(), stream.draw_actions()
    if stream.random.random() < 0.2:
        context["user"]["age"] = None if round_ % 2 else float("nan")
    context["at"] = f"2026-11-{1 + round_ % 28:02}T{stream.random.integers(24):02}:05"
    for action in actions:
        action["shop"] = {"city": f"{action['id']}ville", "size": action.pop("price")}
    return context, actions


SETTINGS: list[tuple[dict[str, Any], list[Components], Any, int]] = [
    ({}, AUTO, ALL, 250),
    ({"crossings": "user*action"}, AUTO, [("user", "action")], 130),
    ({"half_life": "2 hours"}, fix(2 * HOUR), ALL, 130),
    ({"half_life": "20 rounds"}, fix(20.0), ALL, 130),
    ({"half_life": "never", "crossings": "none"}, fix(NEVER), [], 130),
    (
        {"half_life": "1 day", "crossings": "user*action, context*shop"},
        fix(24 * HOUR),
        [("user", "action"), ("context", "shop")],
        130,
    ),
]


@pytest.mark.parametrize(
    ("settings", "beliefs", "crossings", "rounds"),
    SETTINGS,
    ids=[str(each[0]) for each in SETTINGS],
)
def test_every_ranking_is_that_of_the_formulas(
    settings: dict[str, Any], beliefs: list[Components], crossings: Any, rounds: int
) -> None:
    """Rewards come late and in any order, some are amended, and every belief leads at times."""
    both, stream = Comparison(settings, beliefs, crossings), Stream(13)
    waiting: list[tuple[wv.Decision, float, float]] = []
    for round_ in range(rounds):
        if round_ % 9 == 0:
            leader = round_ // 9 % len(both.naive.judgements)
            both.learner.bank.leader = both.naive.leader = leader
        context, actions = draw_request(stream, round_)
        at = stream.advance(20 * HOUR if round_ % 30 == 29 else HOUR)
        decision, clock = both.rank(context, actions, at)
        waiting.append((decision, clock, stream.draw_reward(decision)))
        while waiting and stream.random.random() < 0.6:
            late, then, reward = waiting.pop(int(stream.random.integers(len(waiting))))
            both.learn(late, then, reward)
            if stream.random.random() < 0.2:
                both.amend(late, then, 0.5)
    naive = both.naive
    assert len(both.leaders) > 0.8 * rounds
    assert len(both.rankers) == len(naive.judgements)
    assert both.dense_is_on != both.learner.is_fixed
    row = naive.read(context, actions[0]["id"], strip_id(actions[0])).row[1:]
    priors = [
        float((belief.prior(entry) / belief.first_priors).max())
        for belief in naive.beliefs
        for entry in row
    ]
    assert max(priors) > 1.2  # some groups have learned that their weights are small
    ages = naive.scales[next(part for part in naive.scales if part.name == "user.age")]
    assert len(ages.cuts) == 4


def play_plainly(
    both: Comparison, rounds: int, draw: Callable[[int], Features], like: Callable[[Any], float]
) -> None:
    """Let three actions without features compete; rewards come at once."""
    for round_ in range(rounds):
        context = draw(round_)
        actions = [{"id": each} for each in "abc"]
        decision, clock = both.rank(context, actions, float(round_))
        both.learn(decision, clock, like(context) * (1.0 if decision.action == "a" else -0.5))
        if round_ % 9 == 0:
            both.amend(decision, clock, 0.25)


def test_a_dense_belief_leads_where_numbers_are_correlated() -> None:
    """Two numbers are nearly equal, and their difference decides."""
    both, random = Comparison({}, AUTO), Stream(3).random

    def draw(_: int) -> Features:
        x, difference = random.normal(size=2)
        return {"x": x, "y": x + 0.3 * difference, "z": float(random.normal())}

    play_plainly(both, 250, draw, lambda context: 10.0 * (context["y"] - context["x"]))
    assert both.dense_is_on
    is_dense = [leader >= len(AUTO) for leader in both.leaders]
    assert sum(is_dense) > 50
    assert len(set(both.leaders)) > 2


def test_dense_beliefs_end_when_there_are_too_many_parts() -> None:
    """One of them may lead until the 160th part comes; another one leads from then on."""
    both, random = Comparison({}, AUTO), Stream(5).random

    def draw(round_: int) -> Features:
        x, difference = random.normal(size=2)
        context = {"x": x, "y": x + 0.3 * difference}
        return context if round_ < 120 else {**context, "page": f"p{round_}"}

    play_plainly(both, 120, draw, lambda context: 10.0 * (context["y"] - context["x"]))
    assert both.dense_is_on
    assert both.naive.leader >= len(AUTO)
    count = len(both.naive.dense_parts)
    for round_ in range(120, 120 + 161 - count):
        assert both.dense_is_on
        decision, clock = both.rank(draw(round_), [{"id": "a"}, {"id": "b"}], float(round_))
        both.learn(decision, clock, float(decision.action == "a"))
    assert not both.dense_is_on
    assert both.naive.leader < len(AUTO)
    play_plainly(both, 20, draw, lambda context: 10.0 * (context["y"] - context["x"]))


def test_dense_beliefs_end_when_there_are_too_many_actions() -> None:
    both = Comparison({}, AUTO)
    for round_ in range(70):
        assert both.dense_is_on == (round_ <= 64)
        decision, clock = both.rank({"d": "x"}, [{"id": f"a{round_}"}], float(round_))
        both.learn(decision, clock, float(round_ % 3))


def test_bins_of_many_numbers_are_left_out_of_dense_beliefs() -> None:
    both, random = Comparison({}, AUTO), Stream(5).random
    numbers = [f"n{i}" for i in range(21)]

    def draw(round_: int) -> Features:
        return {name: float(random.normal()) for name in numbers[: 21 if round_ < 15 else 20]}

    play_plainly(both, 15, draw, lambda context: float(context["n0"] > 0.0))
    assert len(both.naive.dense_parts) == 1 + 21
    play_plainly(both, 15, lambda _: draw(15), lambda context: float(context["n0"] > 0.0))
    assert len(both.naive.dense_parts) > 1 + 21 + 20
    assert both.learner.bank.dense.counts[0] == len(both.naive.dense_parts)
