"""What to simulate, from a TOML file or from flags.

replications = 20
seed = 1

[[policies]]
name = "D-LinTS"                  # a name of the literature, tuned for each world

[[policies]]
name = "mine"                     # or any memory and exploration
memory = "discount(0.99)"
exploration = "thompson(0.4)"

[[policies]]
name = "clicks"                   # with a link, a generalised policy (FPL-GLM)
memory = "discount(0.99)"
exploration = "perturbed_history(0.5)"
link = "logistic"

[worlds.abrupt]                   # the keys of `windvane.lab.worlds`
dim = 10
arms = 20
horizon = 5000
drift = "abrupt([2500], flip=0.6)"
"""

import math
import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from windvane import names, text_form, validation
from windvane.errors import FileError, SettingError
from windvane.exploration import Exploration
from windvane.glm.policy import model_of
from windvane.lab import worlds
from windvane.lab.engines.linear import Player
from windvane.lab.running.experiment import Experiment
from windvane.memory import Memory
from windvane.names import Problem

FITTING = {"logistic": ("bernoulli",), "poisson": ("bernoulli", "poisson")}  # laws of rewards
PAIR = re.compile(r"(\w+\([^()]*\))\s*\*\s*(.+)")  # memory * exploration
POLICY_KEYS = ("name", "memory", "exploration", "ridge", "floor", "link")


class Plan(NamedTuple):
    """Worlds by name, and what plays in each of them."""

    worlds: dict[str, worlds.World]
    policies: list[Mapping[str, object]]
    replications: int
    seed: int

    def experiments(self) -> dict[str, Experiment]:
        """One experiment a world, all with the same policies."""
        return {
            name: Experiment(
                tuple(player(policy, world) for policy in self.policies),
                world,
                self.replications,
                self.seed,
            )
            for name, world in self.worlds.items()
        }


def read_plan(path: Path) -> Plan:
    """The plan in a TOML file."""
    try:
        table = tomllib.loads(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as reason:
        raise FileError(f"simulate: {path} cannot be read: {reason}") from None
    known = ("replications", "seed", "policies", "worlds")
    if strange := sorted(set(table) - set(known)):
        raise SettingError(f"simulate: unknown {', '.join(strange)}; keys are {', '.join(known)}")
    places, policies = table.get("worlds"), table.get("policies")
    if not isinstance(places, dict) or not places:
        raise SettingError("simulate: at least one table [worlds.NAME] must be given")
    if not isinstance(policies, list) or not policies:
        raise SettingError("simulate: at least one table [[policies]] must be given")
    return Plan(
        {name: worlds.from_table(place) for name, place in places.items()},
        policies,
        validation.whole("simulate", "replications", table.get("replications", 20)),
        validation.whole("simulate", "seed", table.get("seed", 1), least=0),
    )


def policies_from(words: Sequence[str]) -> list[Mapping[str, object]]:
    """Policies from flags: a name of the literature, or "memory * exploration"."""
    found: list[Mapping[str, object]] = []
    for word in words:
        parts = PAIR.fullmatch(word.strip())
        pair = {"memory": parts[1], "exploration": parts[2]} if parts else {}
        found.append({"name": word, **pair})
    return found


def player(policy: Mapping[str, object], world: worlds.World) -> Player:
    """A player for one world: tuned from theory if it has only a name."""
    if strange := sorted(set(policy) - set(POLICY_KEYS)):
        keys = ", ".join(POLICY_KEYS)
        raise SettingError(f"simulate: unknown {', '.join(strange)}; keys of a policy are {keys}")
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
        row, facts = names.find_name(name), problem(world)
        if row.search and "link" in policy:
            raise SettingError(f"simulate: {name} has no link, got {policy['link']!r}")
        if row.search:
            exploration = names.tune_exploration(row, facts)
            adaptation = names.tune_adaptation(row, facts)
            memory = adaptation.memories[-1]
            return Player(name, memory, exploration, ridge, floor, adaptation=adaptation)
        pair = names.tune_memory(row, facts), names.tune_exploration(row, facts)
        link = str(policy.get("link", world.reward.link if row.has_link else ""))
    if link:
        check_link(name, link, *pair)
        if world.reward.law not in FITTING.get(link, (world.reward.law,)):
            raise SettingError(
                f"simulate: {name} explains rewards by a {link} link, which those of "
                f"{world.reward!r} do not fit"
            )
    return Player(name, *pair, ridge, floor, link=link)


def check_link(name: str, link: str, memory: Memory, exploration: Exploration) -> None:
    """Refuse a link beside a memory or an exploration that it does not go with."""
    model_of(link, memory, exploration.scale, 1.0, 0.0)
    if not exploration.kind.works_with_link or exploration.pseudo != "normal":
        raise SettingError(
            f"simulate: {name} has a link, so its exploration must be perturbed_history(scale), "
            f"got {exploration!r}"
        )


def problem(world: worlds.World) -> Problem:
    """What theory may know of a world, from one draw of it.

    A world that never moves is tuned as if it moved by 1 in all; one that moves all the time has
    no rounds at which to restart.
    """
    draw = world.draw(0)
    changes = tuple((np.flatnonzero(np.diff(draw.era)) + 1).tolist())
    return Problem(
        dim=world.dim,
        horizon=world.horizon,
        drift=draw.variation * draw.slope or 1.0,
        arms=world.arms,
        noise=noise_of(world.reward) or None,
        delta=0.01,
        theta_norm=draw.theta_norm * draw.slope,
        arm_norm=draw.arm_norm,
        changes=changes if len(changes) < 100 else (),
        tuning="corrected",
    )


def noise_of(reward: worlds.Reward) -> float:
    """σ for which the noise is σ-subgaussian; counts have none, and get that of mean 1."""
    if reward.law == "poisson":
        return 1.0
    if isinstance(reward.given, str):
        return 0.5
    return math.sqrt(reward.given) if reward.law == "gaussian" else reward.given


def changes_of(world: worlds.World) -> tuple[int, ...]:
    """The rounds at which a world jumps, for the picture; none where it moves all the time."""
    return problem(world).changes or ()
