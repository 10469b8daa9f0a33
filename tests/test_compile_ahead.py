"""Another process compiles a part of what a first use needs, and nothing is compiled twice."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

import windvane as wv
from compilation_runs import run_with_empty_cache
from windvane.beliefs.full import entry_points

PAIR_RUN = """
import sys, numpy as np, windvane as wv
policy = wv.Policy(3, "keep()", "greedy()", seed=7)
policy.learn(policy.choose(np.eye(3)), 1.0)
full = "windvane.beliefs.full."
kernels = sys.modules[full + "learning"], sys.modules[full + "choosing"]
learn, choose = kernels[0].learn_into_sums, kernels[1].choose_by_estimate
print(*(sum(each.stats.cache_misses.values()) for each in (choose, learn)), policy.theta)
"""


def test_another_process_compiles_the_kernel_that_chooses_while_this_one_compiles_the_other(
    tmp_path: Path,
) -> None:
    choose, learn, theta = run_with_empty_cache(PAIR_RUN, tmp_path).split(maxsplit=2)
    assert (choose, learn) == ("0", "1")
    policy = wv.Policy(3, "keep()", "greedy()", seed=7)
    policy.learn(policy.choose(np.eye(3)), 1.0)
    assert theta == f"{policy.theta}\n"


@pytest.mark.parametrize(
    ("exploration", "task"),
    [("greedy()", "choose"), ("thompson(1)", "choose"), ("optimism(1)", "learn")],
)
def test_the_other_process_gets_the_kernel_that_compiles_faster(
    exploration: str, task: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The arguments of the other process name that kernel."""
    given = []

    @contextmanager
    def run_here(kernel: Callable[..., object], code: str, *arguments: str) -> Iterator[None]:
        given.append((arguments[0], arguments[2] == kernel.__name__))
        monkeypatch.setattr(sys, "argv", ["-c", *arguments])
        exec(code, {})
        yield

    monkeypatch.setattr(entry_points, "compiling_ahead", run_here)
    policy = wv.Policy(3, "keep()", exploration, seed=7)
    policy.learn(policy.choose(np.eye(3)), 1.0)
    assert given == [(task, True)]


LEARNER_RUN = """
import sys, windvane as wv
learner = wv.Learner(seed=1)
for i in range(3):
    decision = learner.rank({"device": "phone", "size": i}, ["news", "match"], at=float(i))
    learner.reward(decision, 1.0)
kernels = [sys.modules[f"windvane.beliefs.bank.{name}"] for name in ("ranking", "learning")]
rank, learn = kernels[0].rank_actions, kernels[1].learn_lesson
print(*(sum(each.stats.cache_misses.values()) for each in (rank, learn)), decision.probabilities)
"""


def test_another_process_compiles_what_a_learner_learns_with_and_nothing_twice(
    tmp_path: Path,
) -> None:
    rank, learn, shares = run_with_empty_cache(LEARNER_RUN, tmp_path).split(maxsplit=2)
    assert (rank, learn) == ("1", "0")
    learner = wv.Learner(seed=1)
    for i in range(3):
        decision = learner.rank({"device": "phone", "size": i}, ["news", "match"], at=float(i))
        learner.reward(decision, 1.0)
    assert shares == f"{decision.probabilities}\n"
