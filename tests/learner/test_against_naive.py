"""The compiled learner against the formulas as written, over a stream of every kind of feature."""

import math
from typing import Any

import pytest

import windvane as wv
from learner_helpers import HOUR, Offer, Stream
from naive_learner import NaiveLearner, compute_probabilities
from windvane.beliefs.bank.bank import EXPLORATION_SHARE, FIRST_PRIORS, HALF_LIVES
from windvane.features.packed_features import pack_actions

TOLERANCE = 1e-9
SETTINGS: list[tuple[dict[str, Any], list[float], list[tuple[str, str]]]] = [
    ({}, list(HALF_LIVES), [("context", "action")]),
    ({"half_life": "2 hours"}, [2 * HOUR], [("context", "action")]),
    ({"half_life": "20 rounds"}, [20.0], [("context", "action")]),
    ({"half_life": "never", "crossings": "none"}, [math.inf], []),
    (
        {"half_life": "1 day", "crossings": "user*action, context*shop"},
        [24 * HOUR],
        [("user", "action"), ("context", "shop")],
    ),
]


@pytest.mark.parametrize(
    ("settings", "half_lives", "crossings"), SETTINGS, ids=[str(each[0]) for each in SETTINGS]
)
def test_every_ranking_is_that_of_the_formulas(
    settings: dict[str, Any], half_lives: list[float], crossings: list[tuple[str, str]]
) -> None:
    learner = wv.Learner(seed=7, exploration=0.1, **settings)
    naive = NaiveLearner(half_lives, FIRST_PRIORS, crossings)
    stream, waiting, leaders = Stream(13), [], set()
    for round_ in range(90):
        context, actions = stream.draw_context(), stream.draw_actions()
        for action in actions:
            action["shop"] = {"city": str(action["id"]) + "ville", "size": action.pop("price")}
        at = stream.advance(20 * HOUR if round_ % 30 == 29 else HOUR)
        decision = learner.rank(context, actions, at=at)
        clock = float(round_) if learner.ages_in_rounds else at

        offers = [Offer(each["id"], [strip_id(each)]) for each in actions]
        ranking, _ = learner.rank_packed(
            decision.context, pack_actions(offers), range(len(offers)), at, round_
        )
        rows = [naive.build_row(context, each["id"], strip_id(each)) for each in actions]
        row = rows[0][1:]
        wanted = [naive.predict(row, clock) for row in rows]
        means, deviations = [mean for mean, _ in wanted], [own for _, own in wanted]
        assert ranking.means == pytest.approx(means, rel=TOLERANCE, abs=TOLERANCE)
        assert ranking.deviations == pytest.approx(deviations, rel=TOLERANCE)
        chances = compute_probabilities(means, deviations, EXPLORATION_SHARE, 0.1)
        assert decision.probabilities == pytest.approx(chances, abs=1e-6)

        waiting.append((decision, clock, stream.draw_reward(decision)))
        while waiting and stream.random.random() < 0.6:  # late, and in any order
            late, then, reward = waiting.pop(int(stream.random.integers(len(waiting))))
            request = (late.context[0], late.action, late.features)
            learner.reward(late, reward)
            naive.learn(*request, reward, then)
            assert learner.bank.lead.column == naive.leader
            assert learner.bank.noise**2 == pytest.approx(
                naive.beliefs[naive.leader].variance, rel=TOLERANCE
            )
            if stream.random.random() < 0.2:
                learner.amend(late.lesson, 0.5, late.at, late.round)
                naive.amend(*request, 0.5, then)
            leaders.add(naive.leader)
    losses = [belief.loss for belief in naive.beliefs]
    assert learner.bank.bank.judgements[:, 2] == pytest.approx(losses, abs=1e-7)
    assert learner.bank.lessons > 60
    assert len(leaders) > 1 or len(half_lives) == 1
    priors = [belief.prior(entry) / belief.first_prior for belief in naive.beliefs for entry in row]
    assert max(priors) > 1.2  # some groups have learned that their weights are small


def strip_id(action: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in action.items() if name != "id"}
