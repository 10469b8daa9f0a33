"""How a policy plays a replication on an action set."""

import numpy as np

from windvane.action_sets import ActionSet
from windvane.adaptive.policies import Adaptive
from windvane.errors import SettingError
from windvane.glm.links import mean
from windvane.glm.policy import GeneralizedPolicy
from windvane.lab.engines.linear import Player
from windvane.lab.worlds.draw import Draw, Marks, paid
from windvane.policy import Policy
from windvane.types import Floats


def replay_on(actions: ActionSet, player: Player, draw: Draw, key: int, marks: Marks) -> Floats:
    """The cumulative regret of one player against the best action of each round, at the marks.

    Σ_t max_x μ_t(x) − μ_t(x_t)
    """
    if player.any_first:
        raise SettingError(f"{player.name}: no action can be drawn at random from {actions!r}")
    policy = chooser(player, draw.dim, key)
    regret, era, most = np.empty(draw.rounds), -1, 0.0
    for t in range(draw.rounds):
        theta = draw.theta[draw.era[t]]
        if era != draw.era[t]:
            era, most = int(draw.era[t]), mean_of(draw, actions.best(theta).features, theta)
        choice = policy.choose(actions)
        expected = mean_of(draw, choice.features, theta)
        policy.learn(choice, paid(draw, expected, float(draw.noise[t])))
        regret[t] = most - expected
    curve: Floats = np.cumsum(regret)[marks - 1]
    return curve


def chooser(player: Player, dim: int, key: int) -> Policy | Adaptive | GeneralizedPolicy:
    """A player as the library has it."""
    explores, rest = player.exploration, (player.ridge, 0, player.floor)
    made: Policy | Adaptive | GeneralizedPolicy
    if player.adaptation:
        made = Adaptive.from_adaptation(dim, player.adaptation, explores, *rest)
    elif player.link:
        made = GeneralizedPolicy(dim, player.link, player.memory, explores.scale, *rest)
    else:
        made = Policy(dim, player.memory, explores, *rest)
    made.key = key
    return made


def mean_of(draw: Draw, features: Floats, theta: Floats) -> float:
    """The mean reward of an action, μ(centre + slope·⟨x, θ⟩), cut to [0, 1] for binary ones."""
    expected = mean(draw.link, draw.centre + draw.slope * float(features @ theta))
    return min(max(expected, 0.0), 1.0) if draw.binary else expected
