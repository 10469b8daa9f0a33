"""Players: policies as the engines play them, tuned for a world."""

import math
from collections.abc import Mapping

import numpy as np

from windvane import names, text_form, validation
from windvane.beliefs.glm.policy import build_rules
from windvane.errors import SettingError
from windvane.exploration import Exploration
from windvane.lab.engines.game import Player
from windvane.lab.worlds import Reward, World
from windvane.memory import Memory
from windvane.names import Problem

LAWS_OF_LINK = {"logistic": ("bernoulli",), "poisson": ("bernoulli", "poisson")}
POLICY_KEYS = ("name", "memory", "exploration", "ridge", "floor", "link")
MAX_RESTARTS = 100  # a world with more changes than this moves all the time


def make_player(
    policy: Mapping[str, object], world: World, problem: Problem | None = None
) -> Player:
    """Make a player for one world; a policy that has only a name is tuned from theory.

    `problem` is what `describe_problem` returns for the world, if the caller has it already.
    """
    if unknown := sorted(set(policy) - set(POLICY_KEYS)):
        keys = ", ".join(POLICY_KEYS)
        raise SettingError(f"simulate: unknown {', '.join(unknown)}; keys of a policy are {keys}")
    name = str(policy.get("name", "")) or f"{policy.get('memory')} * {policy.get('exploration')}"
    ridge = validation.positive(name, "ridge", policy.get("ridge", 1.0))
    floor = validation.share(name, "floor", policy.get("floor", 0.0))
    if "memory" in policy or "exploration" in policy:
        if not {"memory", "exploration"} <= set(policy):
            raise SettingError(f"simulate: {name} must have both a memory and an exploration")
        pair = (
            text_form.as_memory("simulate", policy["memory"]),
            text_form.as_exploration("simulate", policy["exploration"]),
        )
        link = str(policy.get("link", ""))
    else:
        row = names.find_name(name)
        problem = problem or describe_problem(world)
        if row.search and "link" in policy:
            raise SettingError(f"simulate: {name} has no link, got {policy['link']!r}")
        if row.search:
            exploration = names.tune_exploration(row, problem)
            adaptation = names.tune_adaptation(row, problem)
            memory = adaptation.memories[-1]
            return Player(name, memory, exploration, ridge, floor, adaptation=adaptation)
        pair = names.tune_memory(row, problem), names.tune_exploration(row, problem)
        link = str(policy.get("link", world.reward.link if row.has_link else ""))
    if link:
        _check_link(name, link, *pair)
        if world.reward.law not in LAWS_OF_LINK.get(link, (world.reward.law,)):
            raise SettingError(
                f"simulate: {name} explains rewards by a {link} link, which the rewards "
                f"{world.reward!r} do not fit"
            )
    return Player(name, *pair, ridge, floor, link=link)


def _check_link(name: str, link: str, memory: Memory, exploration: Exploration) -> None:
    """Raise SettingError if the link does not go with the memory or with the exploration."""
    build_rules(link, memory, exploration.factor, 1.0, 0.0)
    if not exploration.kind.works_with_link or exploration.pseudo != "normal":
        raise SettingError(
            f"simulate: {name} has a link, so its exploration must be perturbed_history(scale), "
            f"got {exploration!r}"
        )


def describe_problem(world: World) -> Problem:
    """Return what theory may know of a world, from one draw of it.

    A world that never moves is tuned as if it moved by 1 in total. A world that moves all the time
    has no rounds at which a policy could restart.
    """
    draw = world.draw(0)
    changes = tuple((np.flatnonzero(np.diff(draw.era)) + 1).tolist())
    return Problem(
        dim=world.dim,
        horizon=world.horizon,
        drift=draw.variation * draw.slope or 1.0,
        arms=world.arms,
        noise=noise_scale(world.reward) or None,
        delta=0.01,
        theta_norm=draw.theta_norm * draw.slope,
        arm_norm=draw.arm_norm,
        changes=changes if len(changes) < MAX_RESTARTS else (),
        tuning="corrected",
    )


def noise_scale(reward: Reward) -> float:
    """Return σ such that the noise is σ-subgaussian.

    Counts have no such σ; they get the standard deviation of a count of mean 1.
    """
    if reward.law == "poisson":
        return 1.0
    if isinstance(reward.parameter, str):
        return 0.5
    return math.sqrt(reward.parameter) if reward.law == "gaussian" else reward.parameter


def change_rounds(world: World) -> tuple[int, ...]:
    """Return the rounds at which a world jumps, or none if it moves all the time."""
    return describe_problem(world).changes or ()
