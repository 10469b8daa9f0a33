"""Replays: compiled against row by row, and both against the algorithm written out."""

import numpy as np
import pytest

import windvane as wv
from simulated_log import SECONDS_PER_ROW, MemoryLog, simulate_log
from windvane import _random
from windvane.evaluation.evaluator import evaluate
from windvane.evaluation.learners.candidates import Clock, PolicyCandidate, read_candidate
from windvane.evaluation.learners.feature_blocks import split_blocks
from windvane.evaluation.learners.replay import (
    ACCEPTANCE_KEY,
    MOST_REPETITIONS,
    CompiledReplayer,
    Replayer,
    RowReplayer,
    ScoredRows,
    make_replayed_chooser,
    make_replayer,
)
from windvane.evaluation.log_batch import LogFacts
from windvane.features.packed_features import Encoder

SEED = 5
TEXTS = (
    "full(half_life(9000) * randomized(half_normal(0.3)), dim=12)",
    "full(discount(0.98) * randomized(half_normal(posterior(0.5))), dim=12, floor=0.1)",
    "full(window(40) * optimism(0.5), dim=12)",
    "full(restart(30) * epsilon(0.1), dim=12)",
    "full(keep() * inverse_gap(20.0), dim=12)",
    "full(detect(0.4) * randomized(grid(1.0, 8, 0.1)), dim=12)",
)


def score_log(replayer: Replayer, log: MemoryLog) -> ScoredRows:
    """All scores of a replay."""
    parts, rows_before = [], 0
    for batch in log.iterate_batches():
        for block in split_blocks(batch, np.arange(batch.size)):
            parts.append(replayer.score_block(block, rows_before))
            rows_before += block.rows.size
    return ScoredRows(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def build_policy(text: str) -> tuple[wv.Policy, Clock]:
    candidate = read_candidate(text)
    assert isinstance(candidate, PolicyCandidate)
    policy = candidate.build(LogFacts(1000, 3, 0.5), SEED)
    assert isinstance(policy, wv.Policy)
    return policy, candidate.clock


@pytest.mark.parametrize("text", TEXTS)
def test_compiled_replay_equals_replay_row_by_row(text: str) -> None:
    log = simulate_log(900, seed=1, change=450)
    policy, clock = build_policy(text)
    compiled = CompiledReplayer(policy, clock, SEED)
    by_row = RowReplayer(make_replayed_chooser(build_policy(text)[0]), clock, SEED)
    for mine, expected in zip(score_log(compiled, log), score_log(by_row, log), strict=True):
        np.testing.assert_allclose(mine, expected, rtol=1e-9, atol=1e-9)
    assert compiled.count() == by_row.count()
    assert compiled.count().accepted > 100


def replay_naively(log: MemoryLog, policy: wv.Policy) -> tuple[float, int, int]:
    """DR-ns as written, with the whole list of ratios; returns the value, updates, violations."""
    ratios: list[float] = []
    total = weight = multiplier = 0.0
    updates = violations = k = 0
    encoder = Encoder(policy.dim)
    for batch in log.iterate_batches():
        assert batch.read_features is not None
        for row in range(batch.size):
            features = batch.read_features(row)
            arms = encoder.encode(features.context, features.actions)
            logged = batch.probabilities[batch.starts[row] : batch.starts[row + 1]]
            a, reward = int(batch.chosen[row]), float(batch.rewards[row])
            multiplier = multiplier or float(logged.min())
            chances, predictions = policy.propensities(arms), arms @ policy.theta
            ratio = chances[a] / logged[a]
            total += multiplier * (chances @ predictions + ratio * (reward - predictions[a]))
            weight += multiplier
            ratios.append(1.0 / ratio if ratio > 0 else np.inf)
            chance = multiplier * ratio
            violations += chance > 1
            start = np.uint64(_random.start_round(np.uint64(SEED) ^ ACCEPTANCE_KEY, k))
            times = int(chance) + (_random.uniform(start, 0) <= chance - int(chance))
            assert times <= MOST_REPETITIONS
            for _ in range(times):
                policy.learn(arms[a], reward, at=SECONDS_PER_ROW * k)
            if times:
                updates += 1
                multiplier = min(1.0, float(np.quantile(ratios, 0.005, method="lower")))
            k += 1
    return total / weight, updates, violations


def test_replay_is_the_algorithm_as_written_up_to_the_bins_of_the_quantile() -> None:
    log = simulate_log(1500, seed=2)
    text = TEXTS[0]
    value, updates, violations = replay_naively(log, build_policy(text)[0])
    [result] = evaluate(log, [text], seed=SEED).policies
    assert result.replay is not None
    assert result.value.value == pytest.approx(value, abs=0.01)
    assert result.replay.accepted == pytest.approx(updates, rel=0.03)
    assert result.replay.violations == pytest.approx(violations, abs=3)


def test_expected_number_of_accepted_rows_is_the_sum_of_multipliers() -> None:
    """Given the past, a row is accepted with probability Σ_a p·c·π/p = c, if none exceeds 1."""
    log = simulate_log(6000, seed=3)
    replayer = make_replayer(read_candidate("learner"), LogFacts(0, 0, 0.0), SEED)  # type: ignore[arg-type]
    coefficients = score_log(replayer, log).coefficients
    expected, deviation = coefficients.sum(), np.sqrt(coefficients.sum())
    assert abs(replayer.count().accepted - expected) < 4 * deviation
