"""The study of learners: live plays, the logs of loggers, and what is counted as false."""

import numpy as np
import polars as pl
import pytest

from benchmarks.learner_evaluation import (
    ACTIONS,
    FASHION_ROWS,
    KINDS,
    WORLDS,
    compare_with_live,
    draw_means,
    play_live,
    summarize,
    value_shadows,
)
from windvane.errors import SettingError

LEARNERS = ("learner", "halfLife=1 hour", "halfLife=15 minutes crossings=none")


def test_every_learner_is_judged_on_every_log() -> None:
    estimates = compare_with_live(1, 300, 2, LEARNERS, seed=3)
    assert len(estimates) == 4 * 3 * len(LEARNERS)
    assert estimates["log"].n_unique() == 12
    summary = summarize(estimates)
    assert len(summary) == 12 + 1
    truths = estimates.group_by("world", "learner").agg(pl.col("truth").n_unique())
    assert set(truths["truth"]) == {1}  # the same for every logger
    for name, of in (("error to shadow", "shadow"), ("error to live", "truth")):
        errors = np.abs(estimates["value"] - estimates[of])
        assert summary[name][-1] == pytest.approx(errors.mean())
        assert errors.max() < 0.3
    assert estimates.select(pl.col("shadow").is_between("low", "high").all()).item()


def test_worlds_change_as_they_are_named() -> None:
    still, abrupt, slow, _ = (draw_means(name, 100, np.random.default_rng(1)) for name in WORLDS)
    assert still.shape == (100, KINDS, ACTIONS)
    assert (still == still[0]).all()
    assert (abrupt[:50] == still[0]).all()
    assert (abrupt[50:] == slow[-1]).all()
    steps = np.abs(np.diff(slow, axis=0))
    assert steps.min() > 0
    assert steps == pytest.approx(np.broadcast_to(steps[0], steps.shape))


def test_a_fashion_is_that_of_all_visitors_and_ends_and_a_short_half_life_earns_more() -> None:
    means = draw_means("fashion", 3050, np.random.default_rng(4))
    assert means.shape == (3050, KINDS, ACTIONS)
    assert (means == means[:, :1]).all()
    changes = 1 + np.flatnonzero(np.diff(means[:, 0, 0]))
    assert changes.tolist() == list(range(FASHION_ROWS, 3050, FASHION_ROWS))
    short, default = (
        play_live(text, means, [1]).value for text in ("halfLife=15 minutes", "learner")
    )
    assert short > default + 0.02


@pytest.mark.parametrize("text", ["learner", "full(half_life(3600) * epsilon(0.02), dim=32)"])
def test_the_shadow_of_the_learner_that_logged_earns_what_it_earned(text: str) -> None:
    play = play_live(text, draw_means("slow", 600, np.random.default_rng(5)), [1])
    own, other = value_shadows((text, "explorationPercentage=1.0"), play)
    assert own == pytest.approx(play.value)
    assert other == pytest.approx(play.means.mean())  # it chooses at random


def test_a_live_learner_earns_more_than_a_uniform_one_and_its_log_is_calibrated() -> None:
    means = draw_means("still", 1000, np.random.default_rng(2))
    uniform = play_live("explorationPercentage=1.0", means, [1])
    [batch] = uniform.iterate_batches()
    assert batch.probabilities == pytest.approx(1 / ACTIONS)
    assert play_live("learner", means, [1]).value > uniform.value + 0.05
    [batch] = play_live("explorationPercentage=0.2", means, [5]).iterate_batches()
    own = batch.chosen_probabilities
    assert own.min() >= 0.2 / ACTIONS - 1e-9
    weights = 1 / (ACTIONS * own)  # of a uniform policy: the mean is 1
    assert abs(weights.mean() - 1) < 4 * weights.std() / np.sqrt(1000)
    with pytest.raises(SettingError, match="first does not learn"):
        play_live("first", means, [1])


def test_a_verdict_with_the_wrong_sign_is_false_and_following_it_costs() -> None:
    def make_row(
        log: int, learner: str, truth: float, value: float, verdict: str
    ) -> dict[str, object]:
        return {
            **{"world": "still", "logger": "uniform", "log": log, "learner": learner},
            **{"truth": truth, "shadow": 0.5, "value": value, "verdict": verdict},
            **{"gain": value - 0.5, "true gain": truth - 0.5},
        }  # fmt: skip

    rows = [
        make_row(0, "a", 0.5, 0.5, "reference"),
        make_row(0, "b", 0.4, 0.6, "better"),  # false
        make_row(0, "c", 0.3, 0.3, "worse"),
        make_row(1, "a", 0.5, 0.5, "reference"),
        make_row(1, "b", 0.4, 0.4, "worse"),
        make_row(1, "c", 0.3, 0.6, "not yet"),
    ]
    total = summarize(pl.DataFrame(rows)).row(-1, named=True)
    assert (total["verdicts"], total["recommended"]) == (3, 1)
    assert total["false verdicts"] == pytest.approx(1 / 3)
    assert total["reward of following"] == pytest.approx(-0.1 / 2)
    assert total["standard error"] == pytest.approx(0.05)
    assert total["error to live"] == pytest.approx((0.2 + 0.3) / 6)
    assert total["error to shadow"] == pytest.approx((0.1 + 0.2 + 0.1 + 0.1) / 6)
