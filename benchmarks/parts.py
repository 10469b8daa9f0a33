"""The study of the memory `parts`: end regret in the paper's panels and in many other worlds.

All policies play the same draws. Each cell is the mean end regret; the policy with the least is
bold, together with all that a paired t-test (5 %, Bonferroni over the policies of the table) cannot
tell from it. The last table changes one thing of `parts` at a time.

`python benchmarks/parts.py --replications 100` prints the tables of docs/explanation/parts.md
(about an hour on two cores; 10 replications take six minutes).
"""

import argparse
import math
from collections.abc import Mapping

import numpy as np

from windvane import memory
from windvane.exploration import randomized
from windvane.lab import worlds
from windvane.lab.engines.game import Player
from windvane.lab.experiments import Experiment, ExperimentResult, open_report, run_all
from windvane.lab.studies import criteo, leaderboard, plan, reproduction
from windvane.lab.studies.result import compute_p_value, standard_error
from windvane.lab.worlds.definition import World
from windvane.laws import half_normal, posterior
from windvane.policy import DEFAULT_EXPLORATION, DEFAULT_RIDGE, make_default_memory

NAMED = ("D-LinUCB", "D-RandLinUCB", "D-LinTS", "LinTS-OR", "Predictive D-LinTS")
PANELS = ((10, 10), (50, 10), (20, 100), (50, 100))
SIGNIFICANCE = 0.05
LEVEL = randomized(half_normal(posterior(1.0)))
ABLATIONS = {
    "`parts()`": (memory.parts(), LEVEL),
    "one part, 300": (memory.parts(300), LEVEL),
    "three parts, 30, 300, 3000": (memory.parts(30, 300, 3000), LEVEL),
    "with a part that never fades": (memory.parts(50, 1000, "never"), LEVEL),
    "half-lives of 100, 3000": (memory.parts(100, 3000), LEVEL),
    "variances given, never still": (memory.parts(50, 1000, shares=[1, 2]), LEVEL),
    "level 0.5": (memory.parts(), randomized(half_normal(posterior(0.5)))),
    "level 2": (memory.parts(), randomized(half_normal(posterior(2.0)))),
    "`keep()`": (memory.keep(), LEVEL),
}


def make_worlds() -> dict[str, World]:
    """Make the worlds beside the panels, by name."""
    noise = worlds.gaussian(0.16)
    drifts = {
        "still": worlds.stationary(),
        "one change": worlds.abrupt([3000], flip=0.6),
        "eight changes": worlds.abrupt([6000 * k // 9 for k in range(1, 9)], flip=0.6),
        "slow rotation": worlds.rotation(2.0 * math.pi),
        "fast rotation": worlds.rotation(12.0 * math.pi),
        "random walk": worlds.walk(60.0),
        "periodic": worlds.periodic(3000),
    }
    places = {
        f"{name}{suffix}": worlds.world(10, 20, 6000, drift, actions, noise)
        for suffix, actions in ((", fresh arms", worlds.fresh()), (", fixed", worlds.fixed()))
        for name, drift in drifts.items()
    }
    change = worlds.abrupt([3000], flip=0.6)
    for dim, arms in ((2, 2), (5, 1000), (100, 20)):
        places[f"one change, d = {dim}, K = {arms}"] = worlds.world(
            dim, arms, 6000, change, worlds.fixed(), noise
        )
    places["one change, clicks"] = worlds.world(
        10, 20, 6000, change, worlds.fresh(), worlds.bernoulli()
    )
    places["one change, little noise"] = worlds.world(
        10, 20, 6000, change, worlds.fresh(), worlds.gaussian(0.01)
    )
    places["one change, much noise"] = worlds.world(
        10, 20, 6000, change, worlds.fresh(), worlds.gaussian(2.0)
    )
    return places


def make_players(world: World) -> tuple[Player, ...]:
    """Make the policies of the tables: tuned by theory, by the known change, or by nothing."""
    default = make_default_memory(world.dim)
    return (
        *(plan.make_player({"name": name}, world) for name in NAMED),
        Player("`Policy` default", default, DEFAULT_EXPLORATION, DEFAULT_RIDGE),
        Player("`parts()`", memory.parts(), LEVEL),
    )


def write_table(title: str, results: Mapping[str, ExperimentResult]) -> None:
    """Print the mean end regrets as Markdown, and the sum of each column."""
    names = next(iter(results.values())).names
    print(f"\n### {title}\n\n| world | {' | '.join(names)} |\n|{'---|' * (len(names) + 1)}")
    ends = {world: result.regret[:, :, -1] for world, result in results.items()}
    for world, end in ends.items():
        print(f"| {world} | {' | '.join(mark_best(end))} |")
    sums = np.sum([end.mean(axis=1) for end in ends.values()], axis=0)
    print(f"| sum | {' | '.join(f'{value:,.0f}' for value in sums)} |", flush=True)


def mark_best(end: np.ndarray) -> list[str]:
    """Format end regrets (policies, replications) as mean ± standard error, the best ones bold."""
    best = end[end.mean(axis=1).argmin()]
    cells = []
    for own in end:
        gap = own - best
        is_best = not gap.any() or compute_p_value(gap) > SIGNIFICANCE / len(end)
        cell = f"{own.mean():,.0f} ± {standard_error(own):,.0f}"
        cells.append(f"**{cell}**" if is_best else cell)
    return cells


def main() -> None:
    """Play the study and print its tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replications", type=int, default=10)
    count = parser.parse_args().replications
    with open_report(progress=True) as report:
        for protocol in reproduction.PROTOCOLS:
            pools = criteo.load_pools(None, [10, 20, 50], protocol, 1, progress=report)
            panels = {
                f"{protocol} {size}": reproduction.make_experiment(
                    size, protocol, pools[size[0]], count, 1
                )
                for size in PANELS
            }
            experiments = {
                name: Experiment(
                    (*each.players[:3], each.players[4], *make_players(each.world)[4:]),
                    *(each.world, count, 1),
                    points=1,
                )
                for name, each in panels.items()
            }
            write_table(f"Panels of the paper, protocol {protocol}", run_all(experiments, report))
        ads = criteo.load_pools(None, [10], "released", 1, progress=report)[10]
        suite = leaderboard.make_suite(ads)
        tables = {"Other worlds": make_worlds(), "The worlds of the leaderboard": suite}
        for title, places in tables.items():
            experiments = {
                name: Experiment(make_players(world), world, count, 1, points=1)
                for name, world in places.items()
            }
            write_table(title, run_all(experiments, report))
        variants = tuple(Player(name, *pair) for name, pair in ABLATIONS.items())
        experiments = {
            name: Experiment(variants, world, count, 1, points=1) for name, world in suite.items()
        }
        write_table("One thing changed at a time", run_all(experiments, report))


if __name__ == "__main__":
    main()
