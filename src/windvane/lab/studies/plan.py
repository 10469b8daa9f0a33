"""Plans: which policies to simulate in which worlds; a plan may be a TOML file.

A table [[policies]] has a name of the literature, which is tuned for each world; or a memory and an
exploration, with a link for a generalised policy; or a `policy` of your own. A table [worlds.NAME]
has the keys of `windvane.lab.worlds`, or `data` with the settings of `read_world`.
"""

import math
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from windvane import names, validation
from windvane.beliefs.glm.policy import build_rules
from windvane.errors import FileError, SettingError
from windvane.exploration import Exploration, as_exploration, greedy
from windvane.lab import worlds
from windvane.lab.engines.game import OwnPolicy, Player
from windvane.lab.engines.master import Master
from windvane.lab.engines.own import is_own, read_own, take_seat
from windvane.lab.experiments import Experiment
from windvane.lab.worlds import RewardLaw, World
from windvane.lab.worlds.data import read_world
from windvane.memory import Memory, as_memory, keep
from windvane.names import Problem
from windvane.persistence import read_small_file

PAIR = re.compile(r"(\w+\([^()]*\))\s*\*\s*(.+)")  # memory * exploration
DATA_KEYS = ("data", "order", "permute_every", "horizon")
PLAN_KEYS = ("replications", "seed", "policies", "worlds")
MAX_PLAN_BYTES = 1 << 16  # of the file
REPLICATIONS = 20
SEED = 1

OWN_FILE = re.compile(r".+\.py:\w+")  # a policy of your own
WorldSpec = World | str | Mapping[str, object]
# a name, "MEMORY * EXPLORATION", "FILE.py:NAME", a pair, a table, or a policy of your own
PolicySpec = object
LAWS_OF_LINK = {"logistic": ("bernoulli",), "poisson": ("bernoulli", "poisson")}
POLICY_KEYS = ("name", "memory", "exploration", "ridge", "floor", "link", "policy")
OWN_KEYS = {"name", "policy", "floor"}
MAX_RESTARTS = 100  # a world with more changes than this moves all the time


class Plan(NamedTuple):
    """Worlds by name, and the policies that play in each of them."""

    worlds: dict[str, World]
    policies: list[Mapping[str, object]]  # tables with the keys of [[policies]]
    replications: int = REPLICATIONS
    seed: int = SEED

    def experiments(self) -> dict[str, Experiment]:
        """Return one experiment for each world, all with the same policies."""
        return {
            name: Experiment(
                check_names([make_player(policy, world) for policy in self.policies]),
                *(world, self.replications, self.seed),
            )
            for name, world in self.worlds.items()
        }


def check_names(players: Sequence[Player]) -> tuple[Player, ...]:
    """Return the players, or raise SettingError if two have the same name."""
    names = [player.name for player in players]
    if twice := [name for name in names if names.count(name) > 1]:
        raise SettingError(
            f"simulate: policies must have different names, got {twice[0]} twice; a table with "
            "name and policy, or with name, memory and exploration, gives a policy a name"
        )
    return tuple(players)


def make_plan(
    worlds: WorldSpec | Sequence[str] | Mapping[str, WorldSpec],
    policies: PolicySpec | Sequence[PolicySpec],
    replications: int = REPLICATIONS,
    seed: int = SEED,
) -> Plan:
    """Make a plan of Python objects, texts and tables; a single world gets the name "world".

    >>> from windvane import discount, thompson
    >>> from windvane.lab.worlds import world
    >>> make_plan(world(4, 6, 100), ["LinTS", (discount(0.9), thompson(0.5))]).policies
    [{'name': 'LinTS'}, {'memory': discount(0.9), 'exploration': thompson(0.5)}]
    """
    return Plan(
        read_worlds(worlds),
        read_policies(policies),
        validation.whole("simulate", "replications", replications),
        validation.whole("simulate", "seed", seed, least=0),
    )


def read_plan(path: Path) -> Plan:
    """Read the plan in a TOML file."""
    try:
        table = tomllib.loads(read_small_file(path, MAX_PLAN_BYTES).decode())
    except (OSError, ValueError, RecursionError) as reason:
        raise FileError(f"simulate: {path} cannot be read: {reason}") from None
    if unknown := sorted(set(table) - set(PLAN_KEYS)):
        keys = ", ".join(PLAN_KEYS)
        raise SettingError(f"simulate: unknown {', '.join(unknown)}; keys are {keys}")
    tables = table.get("worlds")
    policies = table.get("policies")
    if not isinstance(tables, dict) or not tables:
        raise SettingError("simulate: at least one table [worlds.NAME] must be given")
    if not isinstance(policies, list) or not policies:
        raise SettingError("simulate: at least one table [[policies]] must be given")
    if not all(isinstance(world, dict) for world in tables.values()):
        raise SettingError("simulate: every world must be a table [worlds.NAME]")
    places = {name: _read_world(world) for name, world in tables.items()}
    counts = (table.get("replications", REPLICATIONS), table.get("seed", SEED))
    return make_plan(places, policies, *counts)


def make_default_world(
    dim: int = 10,
    arms: int = 20,
    horizon: int = 5000,
    drift: str = "",
    actions: str = "fresh()",
    reward: str = "gaussian(0.15)",
) -> World:
    """Make the world of the commands; without a drift, 6 of 10 signs flip half-way."""
    drift = drift or f"abrupt([{max(1, horizon // 2)}], flip=0.6)"
    sizes = {"dim": dim, "arms": arms, "horizon": horizon}
    return worlds.from_table({**sizes, "drift": drift, "actions": actions, "reward": reward})


def read_worlds(spec: WorldSpec | Sequence[str] | Mapping[str, WorldSpec]) -> dict[str, World]:
    """Return worlds by name; a text for `read_world` is its own name."""
    if isinstance(spec, World) or (isinstance(spec, Mapping) and {"dim", "data"} & spec.keys()):
        return {"world": _read_world(spec)}
    if isinstance(spec, str):
        spec = [spec]
    if isinstance(spec, Sequence) and all(isinstance(each, str) for each in spec):
        spec = {text: text for text in spec}
    if not isinstance(spec, Mapping) or not spec:
        raise SettingError(f"simulate: worlds must be a world or worlds by name, got {spec!r}")
    return {name: _read_world(world) for name, world in spec.items()}


def _read_world(spec: object) -> World:
    if isinstance(spec, World):
        return spec
    table = {"data": spec} if isinstance(spec, str) else spec
    if not isinstance(table, Mapping):
        raise SettingError(f"simulate: a world must be a world, a table or a text, got {spec!r}")
    if "data" not in table:
        return worlds.from_table(table)
    if unknown := sorted(set(table) - {*DATA_KEYS}):
        keys = ", ".join(DATA_KEYS)
        raise SettingError(f"world: unknown {', '.join(unknown)}; the keys with data are {keys}")
    rest: Any = {key: value for key, value in table.items() if key != "data"}
    return read_world(str(table["data"]), **rest)


def _is_pair(spec: object) -> bool:
    """Whether `spec` is (memory, exploration), each an object or a text such as "keep()"."""
    return (
        isinstance(spec, tuple)
        and len(spec) == 2
        and (isinstance(spec[0], Memory) or isinstance(spec[1], Exploration))
    )


def read_policies(policies: PolicySpec | Sequence[PolicySpec]) -> list[Mapping[str, object]]:
    """Return a table for each policy, with the keys of [[policies]]."""
    is_single = isinstance(policies, str | Mapping) or _is_pair(policies) or is_own(policies)
    listed = [policies] if is_single or not isinstance(policies, Iterable) else list(policies)
    if not listed:
        raise SettingError("simulate: at least one policy must be given")
    return [_read_policy(policy) for policy in listed]


def _read_policy(spec: PolicySpec) -> Mapping[str, object]:
    if isinstance(spec, Mapping):
        table = dict(spec)
        if "policy" in table:
            name, own = read_own(table["policy"])
            table = {"name": name, **table, "policy": own}
        return table
    if is_own(spec) or (isinstance(spec, str) and OWN_FILE.fullmatch(spec)):
        return _read_policy({"policy": spec})
    if isinstance(spec, str):
        parts = PAIR.fullmatch(spec.strip())
        if parts:
            return {"name": spec, "memory": parts[1], "exploration": parts[2]}
        if "(" in spec or "*" in spec:  # no name has these
            raise SettingError(
                "simulate: a policy must be a name that `windvane policies` lists, a memory and an "
                "exploration such as 'discount(0.99) * thompson(0.5)', or my_policy.py:MyPolicy, "
                f"got {spec!r}"
            )
        return {"name": spec}
    if not isinstance(spec, tuple) or len(spec) != 2:
        raise SettingError(
            "simulate: a policy must be a name, a table, (memory, exploration), or an object with "
            f"choose and learn, got {spec!r}"
        )
    return {"memory": spec[0], "exploration": spec[1]}


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
    if isinstance(own := policy.get("policy"), OwnPolicy):
        if extra := sorted(set(policy) - OWN_KEYS):
            raise SettingError(f"simulate: {name} is your own and has no {', '.join(extra)}")
        return _make_own_player(name, own, floor, world)
    if "memory" in policy or "exploration" in policy:
        if not {"memory", "exploration"} <= set(policy):
            raise SettingError(f"simulate: {name} must have both a memory and an exploration")
        exploration = as_exploration("simulate", policy["exploration"])
        pair = (as_memory("simulate", policy["memory"]), exploration)
        link = str(policy.get("link", ""))
    else:
        row = names.find_name(name)
        link = str(policy.get("link", world.reward.link if row.has_link else ""))
        problem = (problem or describe_problem(world))._replace(link=link)
        if row.search and "link" in policy:
            raise SettingError(f"simulate: {name} has no link, got {policy['link']!r}")
        exploration = names.EXPLORATION_TUNINGS[row.exploration](row, problem)
        if row.search:
            adaptation = names.tune_adaptation(row, problem)
            memory = adaptation.memories[-1]
            return Player(name, memory, exploration, ridge, floor, adaptation=adaptation)
        if row.only_in_lab:
            return _make_own_player(name, describe_master(problem, ridge), floor, world)
        pair = names.MEMORY_TUNINGS[row.memory](row, problem), exploration
        floor = floor or names.tune_floor(row, problem)
    if fitted := pair[0].link:  # the memory has the link, and a linear policy plays
        link = ""
    if link:
        _check_link(name, link, *pair)
    if world.reward.law not in LAWS_OF_LINK.get(fitted or link, (world.reward.law,)):
        raise SettingError(
            f"simulate: {name} explains rewards by a {fitted or link} link, which the rewards "
            f"{world.reward!r} do not fit"
        )
    return Player(name, *pair, ridge, floor, link=link)


def _make_own_player(name: str, own: OwnPolicy, floor: float, world: World) -> Player:
    if world.action_set:
        raise SettingError(f"simulate: {name} needs a list of arms, got {world.actions!r}")
    player = Player(name, keep(), greedy(), floor=floor, own=own)
    take_seat(player, world.draw(0), world.horizon, 0)  # raises before anything is played
    return player


def describe_master(problem: Problem, ridge: float) -> OwnPolicy:
    """Return MASTER, tuned for a problem."""
    settings: dict[str, Any] = {
        "noise": problem.noise_or_one,
        "delta": problem.delta,
        "theta_norm": problem.theta_norm,
        "arm_norm": problem.arm_norm,
        "ridge": ridge,
    }
    return OwnPolicy(partial(Master, **settings), f"MASTER {settings}")


def _check_link(name: str, link: str, memory: Memory, exploration: Exploration) -> None:
    """Raise SettingError if the link does not go with the memory or with the exploration."""
    build_rules(link, memory, exploration.factor, 1.0, 0.0)
    if not exploration.kind.works_with_link or exploration.pseudo == "coins":
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


def noise_scale(reward: RewardLaw) -> float:
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
