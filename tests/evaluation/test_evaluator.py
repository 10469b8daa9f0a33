"""`evaluate`: many candidates in one pass, rows left out, and tuning."""

import numpy as np
import pytest

import windvane as wv
from simulated_log import SECONDS_PER_ROW, MemoryLog, simulate_log
from windvane import evaluation
from windvane.errors import SettingError
from windvane.evaluation import Evaluation, evaluate, read_candidate
from windvane.evaluation.log_batch import LogBatch
from windvane.evaluation.tuning import tune


def test_public_names_are_sorted_and_there() -> None:
    assert evaluation.__all__ == sorted(evaluation.__all__)
    assert all(hasattr(evaluation, name) for name in evaluation.__all__)


EXACT = "full(half_life(86400) * randomized(half_normal(0.3)), dim=12)"


def test_fixed_policies_have_the_values_of_the_formulas() -> None:
    log = simulate_log(2000, seed=1)
    _, chosen, probabilities, rewards = log._columns
    own = probabilities[np.arange(2000), chosen]
    evaluation = evaluate(log, ["logged", "first", "random", "action=a2"], reward_model=False)
    expected = {
        "logged": rewards.mean(),
        "first": ((chosen == 0) / own * rewards).mean(),
        "random": (rewards / 3 / own).mean(),
        "action=a2": ((chosen == 2) / own * rewards).mean(),
    }
    for name, value in expected.items():
        assert evaluation[name].estimates["ips"].value == pytest.approx(value, abs=1e-12)
    assert [policy.source for policy in evaluation.policies] == [
        *("Online", "Baseline", "Random", "Custom")
    ]


class EditedLog(MemoryLog):
    """A log whose batches are changed."""

    def _make_batch(self, rows: np.ndarray[tuple[int], np.dtype[np.int64]]) -> LogBatch:
        batch = super()._make_batch(rows)
        rewards, probabilities = batch.rewards.copy(), batch.probabilities.copy()
        rewards[0] = np.nan
        probabilities[batch.starts[1] + batch.chosen[1]] = 0.0
        is_eligible = batch.is_eligible.copy()
        is_eligible[::3] = False  # the first action of every row
        is_degraded = np.arange(batch.size) == 2
        return batch._replace(
            rewards=rewards,
            probabilities=probabilities,
            is_eligible=is_eligible,
            is_degraded=is_degraded,
            is_defaulted=np.arange(batch.size) == 3,
        )


def test_rows_without_reward_or_decision_are_left_out_and_counted() -> None:
    log = EditedLog(*simulate_log(1000, seed=2)._columns)
    evaluation = evaluate(log, ["first", "random", EXACT])
    assert evaluation.rows == 1000 - 2 * 3
    assert evaluation.unrewarded_rows == 2
    assert evaluation["first"].diagnostics.defaulted == pytest.approx(2 / 994)
    sentences = " ".join(evaluation.warnings)
    assert "2 rows were left out, because the service had answered without deciding" in sentences
    assert "2 rows were left out, because the chosen action has the probability 0" in sentences
    # an excluded action is never chosen: without its probability, no weight is above 1/2 · 1/p
    assert evaluation["random"].diagnostics.largest_weight <= 0.5 / (0.1 / 1.2) + 1e-9


def test_a_candidate_does_not_depend_on_the_others_and_progress_is_reported() -> None:
    log, seen = simulate_log(800, seed=3), []
    texts = ["first", EXACT, "learner", "full(keep() * thompson(0.3), dim=8)"]
    together = evaluate(log, texts, progress=lambda progress: seen.append(progress.rows))
    assert seen == [500, 800]
    for text in texts:
        alone = evaluate(log, [text]).policies[0]
        assert alone.to_json() == together[alone.name].to_json()
    assert Evaluation.from_json(together.to_json()).to_json() == together.to_json()


def test_objects_are_evaluated_and_do_not_change() -> None:
    learner, policy = wv.Learner(seed=1), wv.Policy(8, wv.keep(), wv.greedy(), seed=1)
    log = simulate_log(300, seed=4)
    evaluation = evaluate(log, [learner, policy, policy], seed=1)
    assert learner.bank.lessons == 0
    assert policy.round == 0
    names = [each.name for each in evaluation.policies]
    assert names == [repr(learner), repr(policy), f"{policy!r} #2", "default learner"]
    assert evaluation.compare(repr(policy)) == evaluation.compare(f"{policy!r} #2")
    with pytest.raises(SettingError, match="a candidate must be a text, a policy or a learner"):
        evaluate(log, [3])


def test_only_the_period_is_evaluated() -> None:
    log = simulate_log(600, seed=6)
    middle = evaluate(log, ["logged"], since=100 * SECONDS_PER_ROW, until=250 * SECONDS_PER_ROW)
    assert middle.rows == 150
    assert evaluate(log, ["logged"], until="1970-01-01T00:10").rows == 10
    with pytest.raises(SettingError, match="has no row that can be evaluated"):
        evaluate(log, ["logged"], since="2030-01-01")
    with pytest.raises(SettingError, match="since must be a time such as"):
        evaluate(log, ["logged"], since="tomorrow")


def test_tuning_finds_the_half_life_of_a_world_that_changes() -> None:
    """Tastes move on every 400 rows: a half-life of 2 hours is 120 rows, never is too long."""
    rng = np.random.default_rng(7)
    rows = 3200
    contexts, chosen = rng.integers(3, size=rows), rng.integers(3, size=rows)
    best = (contexts + np.arange(rows) // 400) % 3
    rewards = (rng.random(rows) < np.where(chosen == best, 0.9, 0.1)).astype(np.float64)
    log = MemoryLog(contexts, chosen, np.full((rows, 3), 1 / 3), rewards)
    tuning = tune(log, ["half-life"], reference="halfLife=never", half_lives=("2 hours", "never"))
    assert tuning.best == "halfLife=2 hours crossings=context*action"
    assert tuning.is_better
    assert tuning.flags == '--half-life "2 hours" --crossings "context*action"'
    assert tuning.split == pytest.approx(0.7 * 3199 * SECONDS_PER_ROW)
    assert tuning.held_out["logged"].rows == pytest.approx(0.3 * rows, abs=1)
    assert read_candidate(tuning.best).text == tuning.best
    assert tuning.sentence.startswith(f"recommended: {tuning.best}, which would have earned 0.")
    assert "more than halfLife=never (between 0." in tuning.sentence
    same = tune(log, ["half-life"], reference="halfLife=2 hours", half_lives=("7200 seconds",))
    assert not same.is_better
    assert same.to_json()["recommended"] is None
    assert same.sentence.startswith("keep what you have: the best found, halfLife=7200 seconds")


@pytest.mark.parametrize("what", ["exploration", "epsilon", "width"])
def test_exploration_is_not_tuned_from_a_log(what: str) -> None:
    with pytest.raises(SettingError, match=r"what a learner's own exploration.*split live traffic"):
        tune(simulate_log(300, seed=1), [what])


def test_the_grid_follows_the_length_of_the_log_and_keeps_the_rest_of_the_reference() -> None:
    log = simulate_log(640, seed=9)  # 640 minutes
    tuning = tune(log, reference=wv.Learner(exploration=0.1, crossings="none"))
    names = [policy.name for policy in tuning.grid.policies[2:]]
    half_lives = ["9 minutes", "39 minutes", "2 hours", "10 hours", "never", "auto"]
    assert names == [
        f"halfLife={half_life} crossings={crossings} explorationPercentage=0.1"
        for half_life in half_lives
        for crossings in ("none", "context*action")
        if (half_life, crossings) != ("auto", "none")
    ]
    with pytest.raises(SettingError, match="at least 200 rows with rewards, got 100"):
        tune(simulate_log(100, seed=1))


def test_confidence_sequences_use_the_reward_model() -> None:
    log = simulate_log(1500, seed=3)
    texts = ["logged", "first", "random", "learner", "full(keep() * optimism(0.5), dim=12)"]
    with_model = evaluate(log, texts).policies
    assert [policy.sequence_kind for policy in with_model] == ["ips", "dr", "dr", "dr", "dr"]
    without_model = evaluate(log, texts[:3], reward_model=False).policies
    assert {policy.sequence_kind for policy in without_model} == {"ips"}
    ratios = (0.9, 1.0)  # weights of the random policy are near 1, so that a model saves little
    for narrow, wide, ratio in zip(with_model[1:3], without_model[1:], ratios, strict=True):
        for mine, other in (
            (narrow.sequence, wide.sequence),
            (narrow.gain.interval, wide.gain.interval),
        ):
            assert mine.high - mine.low < ratio * (other.high - other.low)
            assert other.low < mine.high
            assert mine.low < other.high
