"""Which engine plays a player, and the engine for action sets, which plays in Python."""

from collections.abc import Callable
from functools import partial

import numpy as np

from windvane.beliefs.adaptive import Adaptive
from windvane.beliefs.glm.policy import GeneralizedPolicy
from windvane.errors import SettingError
from windvane.lab.engines.adaptive import replay_adaptive
from windvane.lab.engines.game import Player, accumulate_regret
from windvane.lab.engines.linear import replay
from windvane.lab.engines.perturbed import can_play_perturbed, replay_generalized, replay_perturbed
from windvane.lab.worlds.definition import World
from windvane.lab.worlds.draw import Draw, Marks, compute_mean, realize_reward
from windvane.policy import Policy
from windvane.sets import ActionSet
from windvane.types import Floats


def select_engine(player: Player, world: World) -> Callable[[Draw, int, Marks], Floats]:
    """Return the function that plays one replication and returns the regret at the marks."""
    if actions := world.action_set:
        return partial(replay_on, actions, player)
    if player.adaptation:
        return partial(replay_adaptive, player, player.adaptation)
    if player.link:
        return partial(replay_generalized, player)
    if can_play_perturbed(player):
        return partial(replay_perturbed, player)
    return partial(replay, player)


def replay_on(actions: ActionSet, player: Player, draw: Draw, key: int, marks: Marks) -> Floats:
    """Play one replication with one choice a round, and return the regret at the marks, (M,).

    Σ_t max_x μ_t(x) − μ_t(x_t)
    """
    if player.any_first:
        raise SettingError(f"{player.name}: no action can be drawn at random from {actions!r}")
    policy = make_policy(player, draw.dim, key)
    regret = np.empty(draw.rounds)
    era = -1
    largest = 0.0
    for t in range(draw.rounds):
        theta = draw.theta[draw.era[t]]
        if era != draw.era[t]:
            era = int(draw.era[t])
            largest = compute_mean(draw, float(actions.best(theta).features @ theta))
        choice = policy.choose(actions)
        expected = compute_mean(draw, float(choice.features @ theta))
        policy.learn(choice, realize_reward(draw, expected, float(draw.noise[t])))
        regret[t] = largest - expected
    return accumulate_regret(regret, marks)


def make_policy(player: Player, dim: int, key: int) -> Policy | Adaptive | GeneralizedPolicy:
    """Make the policy that a player describes."""
    exploration = player.exploration
    rest = (player.ridge, 0, player.floor)  # 0: a seed, which the key replaces
    policy: Policy | Adaptive | GeneralizedPolicy
    if player.adaptation:
        policy = Adaptive.from_adaptation(dim, player.adaptation, exploration, *rest)
    elif player.link:
        policy = GeneralizedPolicy(dim, player.link, player.memory, exploration.factor, *rest)
    else:
        policy = Policy(dim, player.memory, exploration, *rest)
    policy.key = key
    return policy
