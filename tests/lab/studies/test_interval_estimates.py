"""Estimates at every look: those that PolicyRecord computes from the decisions up to the look."""

import numpy as np
import pytest

import windvane as wv
from windvane.evaluation import ActionModel, PolicyRecord
from windvane.lab import worlds
from windvane.lab.engines.decision_log import log_decisions
from windvane.lab.engines.game import Player
from windvane.lab.studies.coverage_runs import (
    ESTIMATORS,
    GAIN_SEQUENCE,
    HALF_LIVES,
    MODEL_SEQUENCE,
    RECENT,
    SEQUENCE,
    TRUTH,
    VALUE,
    JudgedLog,
    estimate_at_looks,
    judge_policies,
    space_looks,
)
from windvane.types import Floats

ROUNDS = 300
FLOOR = 0.25
LOOKS = space_looks(100, ROUNDS, 3)
RECORD_NAMES = {
    "IPS": "ips",
    "SNIPS": "snips",
    "DM": "dm",
    "DR": "dr",
    "SNDR": "sndr",
    "Cressie-Read": "cressie_read",
}


@pytest.fixture(scope="module")
def judged() -> list[JudgedLog]:
    place = worlds.world(4, 5, ROUNDS, worlds.rotation(3.0), reward=worlds.bernoulli())
    player = Player("player", wv.discount(0.98), wv.randomized(wv.half_normal(2.0)), floor=FLOOR)
    draws = [place.draw(seed) for seed in (1, 2)]
    return [JudgedLog(log_decisions(player, draw, 7), judge_policies(draw)) for draw in draws]


@pytest.fixture(scope="module")
def numbers(judged: list[JudgedLog]) -> Floats:
    return estimate_at_looks(judged, LOOKS, 5 / FLOOR, 0.05)


@pytest.mark.parametrize("with_model", [True, False])
def test_estimates_are_those_of_a_record(
    judged: list[JudgedLog], numbers: Floats, with_model: bool
) -> None:
    for r, (log, policies) in enumerate(judged):
        for p, policy in enumerate(policies):
            for place, look in enumerate(LOOKS):
                part = slice(0, int(look))
                rows = np.arange(look), log.chosen[part]
                record = PolicyRecord(
                    "policy",
                    reward_range=(0, 1),
                    weight_range=(0, 5 / FLOOR),
                    half_life=ROUNDS / HALF_LIVES,
                )
                actions = ActionModel(
                    log.predictions[part].ravel(),
                    policy[part].ravel(),
                    log.probabilities[part].ravel(),
                    5 * np.arange(look + 1),
                    log.chosen[part],
                )
                record.add(
                    np.arange(float(look)),
                    log.rewards[part],
                    policy[rows] / log.probabilities[rows],
                    (policy * log.predictions)[part].sum(axis=1),
                    log.predictions[rows],
                    action_model=actions if with_model else None,
                )
                result = record.summarize()
                found = dict(zip(ESTIMATORS, numbers[:, r, p, place, VALUE:], strict=True))
                for title, name in RECORD_NAMES.items():
                    estimate = result.estimates[name]
                    assert estimate.interval is not None
                    expected = estimate.value, *estimate.interval
                    assert found[title] == pytest.approx(expected, rel=1e-9), title
                assert result.recent is not None
                expected = result.recent.value, *result.recent.interval
                assert found[RECENT] == pytest.approx(expected, rel=1e-9)
                sequence = MODEL_SEQUENCE if with_model else SEQUENCE
                assert found[sequence][1:] == pytest.approx(result.sequence, rel=1e-9)
                if with_model:
                    ends = result.gain.interval
                    assert found[GAIN_SEQUENCE][1:] == pytest.approx(ends, rel=1e-9)


def test_the_truth_is_the_mean_of_the_true_values_so_far(
    judged: list[JudgedLog], numbers: Floats
) -> None:
    log, policies = judged[1]
    look = int(LOOKS[1])
    for p, policy in enumerate(policies):
        values = [policy[t] @ log.means[t] for t in range(look)]
        logged = [log.probabilities[t] @ log.means[t] for t in range(look)]
        fading = [2.0 ** (-(look - t) / (ROUNDS / HALF_LIVES)) for t in range(look)]
        truth = dict(zip(ESTIMATORS, numbers[:, 1, p, 1, TRUTH], strict=True))
        assert truth["IPS"] == truth[SEQUENCE] == pytest.approx(np.mean(values))
        assert truth[GAIN_SEQUENCE] == pytest.approx(np.mean(values) - np.mean(logged))
        assert truth[RECENT] == pytest.approx(np.average(values, weights=fading))


def test_the_judged_policies_are_distributions(judged: list[JudgedLog]) -> None:
    for log, (first, at_random, best) in judged:
        assert (first[:, 0] == 1).all()
        assert (at_random == 0.2).all()
        assert (best.sum(axis=1) == 1).all()
        assert best[0].argmax() == log.means[0].argmax()
