"""Which policy an evaluation calls optimal, and when nothing can be trusted."""

import numpy as np
import pytest

from windvane.evaluation.estimates.policy_record import PolicyRecord
from windvane.evaluation.estimates.result import PolicyResult
from windvane.service.evaluations.worker import find_doubt, find_optimal, list_problems

ROWS = 4000


def evaluate_second_action(probability: float, logged: float) -> PolicyResult:
    """Always the second of two actions, whose rewards are 0.4 and 0.6.

    The second action was chosen with `probability`, and the log says `logged`.
    """
    draws = np.random.default_rng(1)
    is_second = draws.random(ROWS) < probability
    rewards = (draws.random(ROWS) < np.where(is_second, 0.6, 0.4)).astype(float)
    record = PolicyRecord("second")
    record.add(
        60.0 * np.arange(ROWS, dtype=np.float64), rewards, np.where(is_second, 1 / logged, 0.0)
    )
    return record.summarize()


@pytest.mark.parametrize(
    ("probability", "logged", "optimal", "is_doubtful"),
    [
        (0.5, 0.5, "second", False),
        (0.5, 0.3, "online", True),  # a mean weight of 1.67, and rewards that are as wrong
        (0.0005, 0.0008, "online", False),  # few decisions, which are no reason to doubt the log
    ],
)
def test_a_policy_is_optimal_only_if_the_log_can_be_trusted(
    probability: float, logged: float, optimal: str, is_doubtful: bool
) -> None:
    result = evaluate_second_action(probability, logged)
    assert result.gain.verdict == ("better" if probability == 0.5 else "not yet")
    assert find_optimal([result]) == optimal
    assert bool(list_problems(result)) == is_doubtful
    assert ("the logged probabilities are wrong" in find_doubt([result])) == is_doubtful
