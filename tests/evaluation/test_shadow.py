"""Shadows: compiled against row by row, and both against a loop over the public interface."""

from typing import NamedTuple

import numpy as np
import pytest

import windvane as wv
from simulated_log import SECONDS_PER_ROW, MemoryLog, compute_means, simulate_log
from windvane.evaluation import evaluate
from windvane.evaluation.learners.candidates import PolicyCandidate, read_candidate
from windvane.evaluation.learners.feature_blocks import split_blocks
from windvane.evaluation.learners.shadow import (
    CompiledShadow,
    Shadow,
    Views,
    make_row_shadow,
)
from windvane.evaluation.log_batch import LogFacts
from windvane.features.packed_features import Encoder
from windvane.features.request_reader import OfferedAction
from windvane.types import Floats

SEED = 5
TEXTS = (
    "full(half_life(9000) * randomized(half_normal(0.3)), dim=12)",
    "full(discount(0.98) * randomized(half_normal(posterior(0.5))), dim=12, floor=0.1)",
    "full(window(40) * optimism(0.5), dim=12)",
    "full(restart(30) * epsilon(0.1), dim=12)",
    "full(keep() * inverse_gap(20.0), dim=12)",
    "full(detect(0.4) * randomized(grid(1.0, 8, 0.1)), dim=12)",
)


def view_log(shadow: Shadow, log: MemoryLog) -> Views:
    """All views of a shadow."""
    parts, rows_before = [], 0
    for batch in log.iterate_batches():
        for block in split_blocks(batch, np.arange(batch.size)):
            parts.append(shadow.view_block(block, rows_before))
            rows_before += block.rows.size
    return Views(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def build_policy(text: str) -> wv.Policy:
    candidate = read_candidate(text)
    assert isinstance(candidate, PolicyCandidate)
    policy = candidate.make(LogFacts(1000, 3, 0.5), SEED)
    assert isinstance(policy, wv.Policy)
    return policy


@pytest.mark.parametrize("text", TEXTS)
def test_a_compiled_shadow_equals_one_row_by_row(text: str) -> None:
    log = simulate_log(900, seed=1, change=450)
    compiled, by_row = CompiledShadow(build_policy(text)), build_policy(text)
    expected = view_log(make_row_shadow(by_row), log)
    for mine, other in zip(view_log(compiled, log), expected, strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-9, atol=1e-9)
    assert by_row.round == 900


class NaiveScores(NamedTuple):
    ips: Floats
    dr: Floats


def follow_naively(log: MemoryLog, candidate: wv.Policy | wv.Learner) -> NaiveScores:
    """Ask a policy about a row, score the row, teach it the row; with public functions only."""
    ips, dr, at = [], [], 0.0
    for batch in log.iterate_batches():
        assert batch.read_features is not None
        for row in range(batch.size):
            context, actions = batch.read_features(row)
            chosen, reward = int(batch.chosen[row]), float(batch.rewards[row])
            if isinstance(candidate, wv.Policy):
                arms = Encoder(candidate.dim).encode(context, actions)
                chances, predictions = candidate.propensities(arms), candidate.predict(arms)
                candidate.learn(arms[chosen], reward, at=at)
            else:
                offer = [{"id": each.id, **each.features[0]} for each in actions]
                decision = candidate.rank(context, offer, at=at)
                candidate.dismiss(decision)
                chances = decision.probabilities
                predictions = np.array(
                    [
                        sum(
                            part.amount
                            for part in candidate.explain_action(
                                context, OfferedAction(each.id, each.features), at, row
                            )
                        )
                        for each in actions
                    ]
                )
                only = candidate.rank(context, offer[chosen : chosen + 1], at=at)
                candidate.reward(only, reward)
            weight = chances[chosen] / batch.probabilities[batch.starts[row] + chosen]
            ips.append(weight * reward)
            dr.append(chances @ predictions + weight * (reward - predictions[chosen]))
            at += SECONDS_PER_ROW
    return NaiveScores(np.array(ips), np.array(dr))


@pytest.mark.parametrize("text", [TEXTS[0], "learner", "halfLife=3 hours crossings=none"])
def test_the_value_of_a_shadow_is_the_mean_of_the_scores_as_written(text: str) -> None:
    log = simulate_log(700, seed=2, change=350)
    candidate = read_candidate(text)
    if isinstance(candidate, PolicyCandidate):
        naive = follow_naively(log, build_policy(text))
    else:
        naive = follow_naively(log, candidate.build(SEED))  # type: ignore[union-attr]
    result = evaluate(log, [text], seed=SEED).policies[0]
    assert result.learns
    assert result.estimates["ips"].value == pytest.approx(naive.ips.mean(), rel=1e-9)
    assert result.estimates["dr"].value == pytest.approx(naive.dr.mean(), rel=1e-9)


def test_a_row_changes_no_view_of_itself_or_of_rows_before_it() -> None:
    log = simulate_log(200, seed=3)
    contexts, chosen, probabilities, rewards = log._columns
    changed = rewards.copy()
    changed[120] = 1 - changed[120]
    for text in (TEXTS[0], TEXTS[3]):
        before = view_log(CompiledShadow(build_policy(text)), log)
        other = MemoryLog(contexts, chosen, probabilities, changed)
        after = view_log(CompiledShadow(build_policy(text)), other)
        assert (before.probabilities[: 3 * 121] == after.probabilities[: 3 * 121]).all()
        assert (before.predictions[3 * 121 :] != after.predictions[3 * 121 :]).any()


def test_the_interval_contains_the_mean_of_what_the_shadow_would_have_earned() -> None:
    """The truth needs no second play: π_t of every row, and the means of all its actions."""
    rows = 1500
    log = simulate_log(rows, seed=4, change=700)
    text = TEXTS[0]
    chances = view_log(CompiledShadow(build_policy(text)), log).probabilities.reshape(rows, 3)
    contexts = log._columns[0]
    means = np.stack(
        [compute_means(contexts, np.full(rows, k), np.arange(rows), 700) for k in range(3)], axis=1
    )
    truth = float((chances * means).sum(axis=1).mean())
    result = evaluate(log, [text], seed=SEED)[text]
    assert result.sequence.low < truth < result.sequence.high
    assert result.value.value == pytest.approx(truth, abs=4 * (result.value.error or 0.0))
    live = "which had learned from everything in this log up to each moment, would have earned"
    assert live in result.sentence
