"""A draw of a world played round by round, as the engine does it in compiled code."""

import windvane as wv
from windvane.lab.worlds.draw import Draw, means, offered, payoff


def played(policy: wv.Chooser, key: int, draw: Draw) -> list[float]:
    """The cumulative regret of a policy that starts from this key."""
    policy.key = key
    total, curve = 0.0, []
    for t in range(draw.rounds):
        choice = policy.choose(offered(draw, t))
        policy.learn(choice, payoff(draw, t, choice.index))
        mean = means(draw, t)
        total += mean.max() - mean[choice.index]
        curve.append(total)
    return curve
