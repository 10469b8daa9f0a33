"""Plans: which policies to simulate in which worlds. A plan may be a TOML file:

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

import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from windvane import validation
from windvane.errors import FileError, SettingError
from windvane.exploration import Exploration
from windvane.lab import worlds
from windvane.lab.running.experiment import Experiment
from windvane.lab.studies.players import make_player
from windvane.lab.worlds import World
from windvane.memory import Memory

PAIR = re.compile(r"(\w+\([^()]*\))\s*\*\s*(.+)")  # memory * exploration
PLAN_KEYS = ("replications", "seed", "policies", "worlds")
REPLICATIONS = 20
SEED = 1

WorldSpec = World | Mapping[str, object]
PolicySpec = str | tuple[Memory | str, Exploration | str] | Mapping[str, object]


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
                tuple(make_player(policy, world) for policy in self.policies),
                world,
                self.replications,
                self.seed,
            )
            for name, world in self.worlds.items()
        }


def make_plan(
    worlds: WorldSpec | Mapping[str, WorldSpec],
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
    single = isinstance(policies, str | Mapping) or _is_pair(policies)
    listed = [policies] if single else list(policies)
    if not listed:
        raise SettingError("simulate: at least one policy must be given")
    return Plan(
        _read_worlds(worlds),
        [_read_policy(policy) for policy in listed],  # type: ignore[arg-type]
        validation.whole("simulate", "replications", replications),
        validation.whole("simulate", "seed", seed, least=0),
    )


def read_plan(path: Path) -> Plan:
    """Read the plan in a TOML file."""
    try:
        table = tomllib.loads(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as reason:
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
    return Plan(
        {name: worlds.from_table(world) for name, world in tables.items()},
        policies,
        validation.whole("simulate", "replications", table.get("replications", REPLICATIONS)),
        validation.whole("simulate", "seed", table.get("seed", SEED), least=0),
    )


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


def _read_worlds(spec: WorldSpec | Mapping[str, WorldSpec]) -> dict[str, World]:
    if isinstance(spec, World):
        return {"world": spec}
    if not isinstance(spec, Mapping) or not spec:
        raise SettingError(f"simulate: worlds must be a world or worlds by name, got {spec!r}")
    if "dim" in spec:
        return {"world": worlds.from_table(spec)}
    return {
        name: world if isinstance(world, World) else worlds.from_table(world)  # type: ignore[arg-type]
        for name, world in spec.items()
    }


def _is_pair(spec: object) -> bool:
    """Whether `spec` is (memory, exploration), each an object or a text such as "keep()"."""
    return (
        isinstance(spec, tuple)
        and len(spec) == 2
        and (isinstance(spec[0], Memory) or isinstance(spec[1], Exploration))
    )


def _read_policy(spec: PolicySpec) -> Mapping[str, object]:
    if isinstance(spec, Mapping):
        return dict(spec)
    if isinstance(spec, str):
        parts = PAIR.fullmatch(spec.strip())
        if parts:
            return {"name": spec, "memory": parts[1], "exploration": parts[2]}
        if "(" in spec or "*" in spec:  # no name has these
            raise SettingError(
                "simulate: a policy must be a name that `windvane policies` lists, or a memory and "
                f"an exploration such as 'discount(0.99) * thompson(0.5)', got {spec!r}"
            )
        return {"name": spec}
    if not isinstance(spec, tuple) or len(spec) != 2:
        raise SettingError(
            f"simulate: a policy must be a name, a table or (memory, exploration), got {spec!r}"
        )
    return {"memory": spec[0], "exploration": spec[1]}
