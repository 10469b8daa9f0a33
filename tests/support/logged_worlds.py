"""Many independent logs at once, with rewards that drift and a logging policy that adapts."""

from typing import NamedTuple

import numpy as np

from windvane.types import Floats

ACTIONS = 3
CHANCE = 0.3  # that the logging policy chooses at random


class LoggedRuns(NamedTuple):
    """Decisions of every run, (runs, n) each; the policy to be judged is "always action 0"."""

    rewards: Floats
    weights: Floats  # of the policy
    values: Floats  # true conditional mean of the reward of the policy
    logged_values: Floats  # true conditional mean of the reward of the logging policy
    predictions: Floats  # (runs, n, actions) a reward model that has not seen the decision
    probabilities: Floats  # (runs, n, actions) of the logging policy
    chosen: Floats  # (runs, n) action


def draw_runs(runs: int, n: int, seed: int, is_drifting: bool) -> LoggedRuns:
    """Play an ε-greedy logging policy on its own fading means of rewards."""
    rng = np.random.default_rng(seed)
    times = np.arange(n) / n
    means = np.array([[0.3], [0.5], [0.6]]) + np.zeros((ACTIONS, n))
    if is_drifting:
        phases = np.array([[0.0], [2.0], [4.0]])
        means = 0.4 + 0.35 * np.sin(6 * times + phases)  # each action is best for a time
        means[0, n // 2 :] = 0.8 - means[0, n // 2 :]  # and action 0 changes at once
    totals = np.full((runs, ACTIONS), 0.5)
    counts = np.ones((runs, ACTIONS))
    everyone = np.arange(runs)
    columns: list[tuple[Floats, ...]] = []
    for t in range(n):
        predicted = totals / counts
        probabilities = np.full((runs, ACTIONS), CHANCE / ACTIONS)
        probabilities[everyone, predicted.argmax(axis=1)] += 1 - CHANCE
        chosen = (rng.random((runs, 1)) > probabilities.cumsum(axis=1)[:, :-1]).sum(axis=1)
        rewards = (rng.random(runs) < means[chosen, t]).astype(np.float64)
        weights = (chosen == 0) / probabilities[:, 0]
        value = np.full(runs, means[0, t])
        columns.append(
            (rewards, weights, value, probabilities @ means[:, t], predicted, probabilities, chosen)
        )
        totals *= 0.99
        counts *= 0.99
        totals[everyone, chosen] += rewards
        counts[everyone, chosen] += 1
    return LoggedRuns(*(np.stack(column, axis=1) for column in zip(*columns, strict=True)))
