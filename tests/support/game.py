"""A replication that Policy plays round by round, for comparison with the compiled engines."""

import windvane as wv
from windvane.lab.worlds.draw import Draw, compute_means, compute_reward, list_arms


def play_round_by_round(policy: wv.Chooser, key: int, draw: Draw) -> list[float]:
    """Play a replication with this key; return the cumulative regret after each round."""
    policy.key = key
    total = 0.0
    curve = []
    for t in range(draw.rounds):
        choice = policy.choose(list_arms(draw, t))
        policy.learn(choice, compute_reward(draw, t, choice.index))
        mean = compute_means(draw, t)
        total += mean.max() - mean[choice.index]
        curve.append(total)
    return curve
