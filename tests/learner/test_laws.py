"""Laws that hold whatever a learner has learned."""

import math
from typing import Any

import numpy as np
import pytest

import windvane as wv
from learner_helpers import Features, Stream, describe, play
from windvane.persistence import are_equal

DAY = 86_400.0


def play_twice(rewrite_request: Any) -> tuple[list[wv.Decision], list[wv.Decision]]:
    """Play the same visitors twice, the second time with rewritten requests."""
    runs = []
    for rewrite in (lambda context, actions: (context, actions), rewrite_request):
        learner, stream = wv.Learner(seed=2), Stream(6)
        decisions = []
        for _ in range(150):
            context, actions = stream.draw_context(), stream.draw_actions()
            decision = learner.rank(*rewrite(context, actions), at=stream.advance())
            learner.reward(decision, stream.draw_reward(decision))
            decisions.append(decision)
        runs.append(decisions)
    return runs[0], runs[1]


def assert_close(one: list[wv.Decision], other: list[wv.Decision]) -> None:
    assert [decision.action for decision in one] == [decision.action for decision in other]
    for mine, theirs in zip(one, other, strict=True):
        assert mine.probabilities == pytest.approx(theirs.probabilities, abs=1e-6)


@pytest.mark.parametrize("percentage", [0.0, 0.02, 0.3, 1.0])
def test_probabilities_sum_to_one_and_none_is_below_the_floor(percentage: float) -> None:
    decisions = play(wv.Learner(seed=1, exploration=percentage), 150)
    for decision in decisions:
        chances = decision.probabilities
        assert chances.sum() == pytest.approx(1.0, abs=1e-9)
        assert chances.min() >= percentage / len(chances) - 1e-12
        assert chances.max() <= 1.0 - percentage + percentage / len(chances) + 1e-9
        assert decision.probability == chances[decision.index]
    if percentage < 1.0:
        assert max(decision.probabilities.max() for decision in decisions) > 0.9 - percentage


@pytest.mark.parametrize("lessons", [3, 40])
def test_probabilities_match_the_frequencies_of_choices(lessons: int) -> None:
    """3000 choices: each frequency is within five standard errors of its probability."""
    learner = wv.Learner(seed=5, exploration=0.1)
    now = play(learner, lessons, seed=3)[-1].at
    stream, chances = Stream(8), np.ones(1)
    while np.sort(chances)[-2:].min() < 0.2 or chances.max() > 0.8:  # two actions are near by
        context, actions = stream.draw_context(), stream.draw_actions()
        chances = learner.rank(context, actions, at=now).probabilities
    draws = 3000
    chosen = [learner.rank(context, actions, at=now).index for _ in range(draws)]
    counts = np.bincount(chosen, minlength=len(actions))
    errors = np.sqrt(chances * (1.0 - chances) / draws)
    assert (np.abs(counts / draws - chances) < 5 * errors).all()


NESTED = {"device": "phone", "user": {"plan": "free", "city": "Rome", "v": [1.0, 5.0]}}


@pytest.mark.parametrize(
    ("crossings", "context"),
    [
        ("context*action", {}),
        ("context*action", {"device": "phone"}),
        ("context*action", {"a": "x", "b": "y", "c": "z", "n": 3.0, "v": [1.0, 2.0, 3.0]}),
        ("none", NESTED),
        ("user*shop", NESTED),
        ("user*shop, context*topic, user*action", NESTED),
    ],
)
def test_a_blank_learner_prefers_no_action_whatever_its_features_and_crossings(
    crossings: str, context: Features
) -> None:
    actions: list[str | Features] = [
        "none",
        {"id": "one", "a": "x"},
        {"id": "two", "a": "x", "b": "y"},
    ]
    actions += [{"id": f"{n}"} | {f"f{i}": "x" for i in range(n)} for n in (2, 3, 7, 50)]
    actions += [{"id": f"shop{n}", "shop": {f"f{i}": "x" for i in range(n)}} for n in (1, 2, 9)]
    actions += [{"id": "array", "v": [0.1, 0.2, 0.3]}, {"id": "numbers", "n": 1e6, "m": -3.0}]
    actions += [{"id": "namespaces", "u": {"a": "x", "b": "y"}, "w": {"v": [1.0, 5.0]}}]
    actions += [{"id": "both", "a": "x", "shop": {"f": "x"}, "topic": {"v": [3.0, 1.0, 2.0]}}]
    chances = wv.Learner(seed=1, crossings=crossings).rank(context, actions, at=0.0).probabilities
    assert chances == pytest.approx(np.full(len(actions), 1.0 / len(actions)), abs=1e-12)


def test_a_price_in_cents_decides_as_a_price_in_euros() -> None:
    def in_cents(context: Features, actions: list[Features]) -> tuple[Features, list[Features]]:
        user = {**context["user"], "age": -1000.0 * context["user"]["age"] + 7.0}
        scaled = [{**action, "price": 1000.0 * action["price"]} for action in actions]
        return {**context, "user": user}, scaled

    def upright(context: Features, actions: list[Features]) -> tuple[Features, list[Features]]:
        return {**context, "vector": [1e3 * v for v in context.get("vector", [])]}, actions

    assert_close(*play_twice(in_cents))
    assert_close(*play_twice(upright))


def test_the_order_of_features_changes_nothing() -> None:
    def reverse(
        context: Features, actions: list[Features]
    ) -> tuple[list[Features], list[Features]]:
        contexts = [{name: context[name]} for name in reversed(context)]
        return contexts, [dict(reversed(action.items())) for action in actions]

    assert_close(*play_twice(reverse))


def test_learners_of_one_seed_decide_the_same() -> None:
    one, other = wv.Learner(seed=4), wv.Learner(seed=4)
    assert describe(play(one, 80, late=0.4)) == describe(play(other, 80, late=0.4))
    assert one == other
    assert describe(play(wv.Learner(seed=5), 80)) != describe(play(wv.Learner(seed=4), 80))


@pytest.mark.parametrize("half_life", ["auto", "2 days", "50 rounds"])
def test_a_replay_of_the_lessons_gives_the_same_bits(half_life: str) -> None:
    """The belief is a fold over the lessons: what is ranked in between does not change it."""
    learner, replayed = (wv.Learner(seed=4, half_life=half_life) for _ in range(2))
    stream, lessons = Stream(4), []
    for _ in range(100):
        decision = learner.rank(stream.draw_context(), stream.draw_actions(), at=stream.advance())
        reward = stream.draw_reward(decision)
        lessons.append((decision.lesson, reward, decision.at, decision.round))
        if len(lessons) % 20 == 0:
            for i in stream.random.permutation(20):
                learner.learn(*lessons[-1 - i])
                replayed.learn(*lessons[-1 - i])
            lesson, _, at, round_ = lessons[-7]
            learner.amend(lesson, 0.5, at, round_)
            replayed.amend(lesson, 0.5, at, round_)
    assert are_equal(replayed.bank.export_state(), learner.bank.export_state())
    assert learner.bank.lessons == 100


def test_late_rewards_in_any_order_teach_about_the_same() -> None:
    """A learner whose rewards come all at the end prefers what one that learned at once does."""
    for half_life in ("never", "300 days"):
        prompt, late = (wv.Learner(seed=4, half_life=half_life) for _ in range(2))
        play(prompt, 300)
        now = play(late, 300, late=1.0)[-1].at
        for learner in (prompt, late):
            context = {"device": "phone"}
            actions = [{"id": "new", "topic": "sports"}, {"id": "newer", "topic": "news"}]
            assert learner.rank(context, actions, at=now).probabilities[0] > 0.9


def test_a_learner_follows_tastes_that_turn_and_keeps_those_that_stay() -> None:
    """The share of right choices in the last 300 of 900 visits."""
    shares = {}
    for turns_every in (150, 10_000):
        learner, right = wv.Learner(seed=4), []
        for i in range(900):
            decision = learner.rank({}, ["x", "y"], at=float(i))
            right.append(decision.action == "xy"[i // turns_every % 2])
            learner.reward(decision, float(right[-1]))
        shares[turns_every] = np.mean(right[600:])
    assert shares[150] > 0.8
    assert shares[10_000] > 0.98


@pytest.mark.parametrize("days", [7, 34])
def test_silence_changes_nothing(days: int) -> None:
    """The clock of an automatic learner counts lessons, so nothing fades while nobody comes."""
    runs = []
    for silence in (0.0, days * DAY):
        learner, stream = wv.Learner(seed=2), Stream(6)
        decisions = []
        for visitor in range(200):
            stream.now += silence if visitor in (60, 150) else 0.0
            context, actions = stream.draw_context(), stream.draw_actions()
            decision = learner.rank(context, actions, at=stream.advance())
            learner.reward(decision, stream.draw_reward(decision))
            decisions.append(decision)
        runs.append(describe(decisions))
    assert runs[0] == runs[1]


@pytest.mark.parametrize("reward", [-1.0, 0.0, 1.0, 100.0])
@pytest.mark.parametrize("count", [2, 3, 10])
def test_one_reward_settles_nothing(count: int, reward: float) -> None:
    """It is the level: the untried actions are preferred, and none of them to another."""
    contexts: list[Features] = [{}, {"device": "phone", "age": 30.0, "v": [1.0, 2.0]}]
    for context in contexts:
        learner, actions = wv.Learner(seed=1), [f"a{i}" for i in range(count)]
        first = learner.rank(context, actions, at=0.0)
        learner.reward(first, reward)
        for each in contexts:
            chances = learner.rank(each, actions, at=1.0).probabilities
            assert chances[first.index] < 1.0 / count
            untried = np.delete(chances, first.index)
            assert untried == pytest.approx(np.full(count - 1, untried.mean()), abs=1e-9)
            assert chances.max() < 0.9


def test_rewards_of_any_level_are_learned_alike() -> None:
    """The level is the mean of the first rewards: a thousand more of each changes no decision."""
    runs = []
    for level in (0.0, 1000.0):
        learner, stream = wv.Learner(seed=2), Stream(6)
        decisions = []
        for _ in range(150):
            context, actions = stream.draw_context(), stream.draw_actions()
            decision = learner.rank(context, actions, at=stream.advance())
            learner.reward(decision, level + stream.draw_reward(decision))
            decisions.append(decision)
        runs.append(decisions)
        clock = float(learner.bank.lessons)
        predicted = learner.bank.predict(decision.lesson, clock)[0]
        assert level - 1.0 < predicted < level + 2.0
    assert_close(*runs)


def test_amending_right_after_a_lesson_is_learning_the_sum_in_dense_beliefs() -> None:
    """Exactly so once the level stands, and where no scale has changed: with categories."""
    whole, amended = wv.Learner(seed=3), wv.Learner(seed=3)
    for learner in (whole, amended):
        random = np.random.default_rng(5)
        for visitor in range(130):
            device = str(random.choice(["phone", "desktop", "tablet"]))
            context = {"device": device, "member": bool(random.random() < 0.5)}
            decision = learner.rank(
                context, ["x", "y"], at=float(visitor), exclude="xy"[visitor % 2]
            )
            reward = float(random.normal())
            if visitor < 120 or learner is whole:
                learner.reward(decision, reward)
            else:
                learner.reward(decision, reward - 3.0)
                learner.amend(decision.lesson, 3.0, decision.at, decision.round)
    for name in ("still", "moving"):
        mine, theirs = (getattr(learner.bank.dense, name) for learner in (whole, amended))
        np.testing.assert_allclose(theirs.means, mine.means, rtol=0.0, atol=1e-12)
        np.testing.assert_array_equal(theirs.covariances, mine.covariances)
        assert np.abs(mine.means).max() > 0.1


ROUTES = {"small": 0.1, "medium": 1.0, "large": 3.0}  # prices
QUALITIES = {"easy": (0.9, 0.92, 0.95), "hard": (0.2, 0.5, 0.95)}  # of the three models


@pytest.mark.parametrize(
    "seed", [*range(3), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(3, 20))]
)
def test_the_best_model_for_each_kind_of_prompt_is_found(seed: int) -> None:
    """Value = quality − 0.1·price with noise 0.1; easy prompts go to the small model."""
    learner, random = wv.Learner(seed=seed), np.random.default_rng(seed)
    names, prices = [*ROUTES], np.array([*ROUTES.values()])
    values = {kind: np.array(own) - 0.1 * prices for kind, own in QUALITIES.items()}
    late = []
    for i in range(2000):
        kind = str(random.choice(["easy", "hard"]))
        context = {"kind": kind, "length": float(random.lognormal(5.0, 1.0))}
        decision = learner.rank(context, names, at=float(i))
        learner.reward(decision, float(values[kind][decision.index] + random.normal(0.0, 0.1)))
        late.append(values[kind].max() - values[kind][decision.index])
    for kind, own in values.items():
        chances = learner.rank({"kind": kind, "length": 150.0}, names, at=2000.0).probabilities
        assert chances.argmax() == own.argmax()
    assert np.mean(late[1000:]) < 0.02


def test_noise_is_found_from_the_rewards() -> None:
    for deviation in (0.1, 2.0):
        learner, random = wv.Learner(seed=1, half_life="never"), np.random.default_rng(1)
        for i in range(800):
            decision = learner.rank({}, ["x"], at=float(i))
            learner.reward(decision, float(random.normal(0.5, deviation)))
        assert math.isclose(learner.bank.noise, deviation, rel_tol=0.1)
