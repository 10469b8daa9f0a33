"""The test of choices against their probabilities is exact in law and sees a small difference."""

from typing import Any

import numpy as np
from scipy.stats import kstest

from choice_frequencies import compare_choices

NAMES = ("a", "b", "c", "d")


def draw_answers(count: int, seed: int, lie: float = 0.0) -> list[dict[str, Any]]:
    """Draw choices among two to four actions; `lie` is added to the answer for the first one."""
    random = np.random.default_rng(seed)
    answers = []
    for _ in range(count):
        names = random.permutation(NAMES)[: random.integers(2, 5)].tolist()
        shares = random.dirichlet(np.ones(len(names)))
        chosen = names[random.choice(len(names), p=shares)]
        answered = shares
        if "a" in names:
            answered = (1 - lie) * shares + lie * (np.array(names) == "a")
        ranking = [
            {"id": name, "probability": p} for name, p in zip(names, answered.tolist(), strict=True)
        ]
        answers.append({"ranking": ranking, "rewardActionId": chosen})
    return answers


def test_p_values_are_uniform_if_choices_follow_their_probabilities() -> None:
    p_values = [compare_choices(draw_answers(300, seed)) for seed in range(200)]
    assert kstest(p_values, "uniform").pvalue > 0.01


def test_a_probability_that_is_wrong_by_five_hundredths_is_seen() -> None:
    assert compare_choices(draw_answers(10_000, 1, lie=0.05)) < 1e-6
    assert compare_choices(draw_answers(10_000, 1)) > 0.01
