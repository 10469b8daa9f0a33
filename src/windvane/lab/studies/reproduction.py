"""The paper's experiment: its panels, its two protocols, its figure, its numbers and its claims.

The paper's text and its published code differ. The protocol `released` is the published code, which
made the figure: arms drawn once a replication, the change at round 4001, the older discount. The
protocol `paper` is the text: new arms in every round, the change at 4000, the corrected discount.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from typing import ClassVar, Literal, NamedTuple

import numpy as np
import polars as pl

from windvane import validation
from windvane._terminal.tables import Cell
from windvane.errors import SettingError
from windvane.exploration import optimism, randomized, thompson
from windvane.lab import worlds
from windvane.lab.engines.game import Player
from windvane.lab.experiments import Experiment, ExperimentResult, Report, open_report, run_all
from windvane.lab.studies import criteo, plan
from windvane.lab.studies.criteo import NOT_PUBLISHED, STAND_IN, Pools
from windvane.lab.studies.result import (
    SIGNIFICANCE,
    Panel,
    PanelResult,
    compute_p_value,
    count_noun,
    standard_error,
)
from windvane.laws import confidence, half_normal
from windvane.memory import discount, keep, restart_at
from windvane.theory import discount_for
from windvane.types import Floats

Verdict = Literal["holds", "does not hold", "undecided"]
PanelSize = tuple[int, int]  # (d, K)

HORIZON = 10_000
VARIANCE = 0.15  # of the noise
DELTA = 0.01
RIDGE = 1.0
PANELS: tuple[PanelSize, ...] = ((10, 10), (20, 10), (50, 10), (10, 100), (20, 100), (50, 100))
POLICIES = ("D-LinUCB", "D-RandLinUCB", "D-LinTS", "LinTS", "LinTS-OR")
SHORT_NAMES = {"parts": "Parts-RandLinUCB"}
EARLY_ROUND = 5500  # a round soon after the change
LATE_ROUND = 7000  # a round long after the change
COLLAPSE_RATIO = 1.5  # a regret this many times the worst of the discounted policies is a collapse
NOT_WORSE = "D-RandLinUCB is not worse than D-LinTS"  # the claim that holds in a tie, too
PUBLISHED: dict[PanelSize, tuple[int, ...]] = {  # end regrets, read from the figure to ±50
    (10, 10): (2000, 1870, 1850, 9950, 290),
    (20, 10): (2570, 2450, 2450, 9500, 310),
    (50, 10): (3280, 3320, 3400, 8700, 250),
    (10, 100): (2540, 2230, 2450, 10600, 590),
    (20, 100): (3400, 2990, 3230, 10600, 850),
    (50, 100): (4480, 4070, 4250, 9550, 1030),
}


@dataclass(frozen=True, eq=False, repr=False)
class Reproduction(PanelResult):
    """The result of `reproduce`.

    `summary` has one row for each policy in each panel: world (as "10x100", d × K), policy,
    end regret, standard error (of the end regret), at the change, at 5500, at 7000 (regret after
    so many rounds) and, under the protocol "released", published (the paper's end regret).
    `claims` has one row for each claim of the paper in each panel: claim, world, verdict
    ("holds", "does not hold" or "undecided"), difference (negative if it favours the claim), p.
    `curves` has one row for each recorded round of each replication: world, policy,
    replication, rounds, regret (cumulative).
    """

    protocol: str
    data: str  # the name of the data file, or STAND_IN
    replications: int
    seed: int
    summary: pl.DataFrame
    claims: pl.DataFrame

    picture = "figure"
    keys: ClassVar = {"summary": "results", "claims": "claims"}

    @property
    def note(self) -> str:
        """Says that the data is not Criteo's published file, if that is so."""
        return self.data if self.data == STAND_IN or self.data.endswith(NOT_PUBLISHED) else ""

    def describe(self) -> str:
        panels = count_noun(len(self.panels), "panel")
        replications = count_noun(self.replications, "replication")
        return f"protocol {self.protocol}, {panels}, {replications}, seed {self.seed}, {self.data}"

    def __str__(self) -> str:
        played = f"Protocol: {self.protocol}. Data: {self.data}. {self.replications} replications."
        return f"{played}\n\n{super().__str__()}"


def reproduce(
    protocol: str = "released",
    replications: int = 100,
    panels: str | Sequence[PanelSize] = "all",
    data: str | PathLike[str] | None = None,
    seed: int = 1,
    also: Sequence[str] = (),
    *,
    checkpoint: str | PathLike[str] | None = None,
    progress: bool | Report = False,
) -> Reproduction:
    """Play the paper's experiment and judge its claims.

    `protocol` is "released" (the published code) or "paper" (the text). `panels` is "all", a text
    such as "10x10,50x100", or pairs (d, K). `data` is the path of the Criteo file; without it,
    stand-in data is generated. `also` names further policies, tuned for each panel, such as
    "Parts-RandLinUCB", or "parts" for short. `checkpoint` and `progress` are those of `simulate`.
    """
    settings = find_protocol(protocol)
    replications = validation.whole("reproduce", "replications", replications)
    sizes = parse_panels(panels)
    dims = sorted({dim for dim, _ in sizes})
    with open_report(progress) as report:
        pools = criteo.load_pools(data, dims, protocol, seed, progress=report)
        experiments = {
            name_world(size): make_experiment(
                size, protocol, pools[size[0]], replications, seed, also
            )
            for size in sizes
        }
        results = run_all(experiments, report, checkpoint)
    rows, claims = [], []
    for size, result in zip(sizes, results.values(), strict=True):
        rows += summarize(size, result, settings)
        claims += [claim._asdict() for claim in judge_claims(size, result, settings.change)]
    return Reproduction(
        panels=tuple(
            Panel(name, results[name], (settings.change,), f"(d, K) = {size}")
            for name, size in zip(results, sizes, strict=True)
        ),
        protocol=protocol,
        data=pools[dims[0]].source,
        replications=replications,
        seed=seed,
        summary=pl.DataFrame(rows),
        claims=pl.DataFrame(claims),
    )


class Protocol(NamedTuple):
    """One version of the experiment."""

    change: int  # the first round, from 0, with the new parameter
    tuning: Literal["corrected", "uncorrected"]
    new_arms_each_round: bool
    wide_radius: bool  # the radius of D-LinUCB has d·log(1/δ) instead of 2·log(1/δ)
    random_start: bool  # D-LinTS plays its first d rounds at random


PROTOCOLS: dict[str, Protocol] = {
    "released": Protocol(
        4001, "uncorrected", new_arms_each_round=False, wide_radius=True, random_start=True
    ),
    "paper": Protocol(
        4000, "corrected", new_arms_each_round=True, wide_radius=False, random_start=False
    ),
}


def find_protocol(name: str) -> Protocol:
    """Return the protocol of that name."""
    if name not in PROTOCOLS:
        raise SettingError(f"protocol: must be one of {', '.join(PROTOCOLS)}, got {name!r}")
    return PROTOCOLS[name]


def parse_panels(panels: str | Sequence[PanelSize]) -> list[PanelSize]:
    """Return the sizes in "all", in "10x10,50x100" or in a list of pairs, in the paper's order."""
    if panels == "all":
        return list(PANELS)
    words = panels.split(",") if isinstance(panels, str) else [f"{d}x{k}" for d, k in panels]
    sizes = {_parse_panel(word) for word in words}
    if not sizes:
        raise SettingError("panels: at least one panel is needed, got none")
    return [size for size in PANELS if size in sizes]


def _parse_panel(word: str) -> PanelSize:
    match word.strip().lower().split("x"):
        case [d, k] if d.isdecimal() and k.isdecimal() and (int(d), int(k)) in PANELS:
            return int(d), int(k)
    known = ",".join(f"{d}x{k}" for d, k in PANELS)
    raise SettingError(f"panels: {word!r} is none of {known}")


def name_world(size: PanelSize) -> str:
    """Return the name of the world of a panel, "10x100"."""
    return f"{size[0]}x{size[1]}"


def flip_signs(theta: Floats, protocol: str) -> Floats:
    """Return the parameter after the change: θ* with about 60 % of its signs flipped.

    released: each sign with probability 0.6, with the generator and seed of the published code
    paper:    exactly ⌊0.6·d⌋ signs
    """
    d = theta.size
    if protocol == "released":
        signs = 2.0 * np.random.RandomState(1).binomial(1, 0.4, d) - 1.0
    else:
        signs = np.where(np.random.default_rng(1).permutation(d) < math.floor(0.6 * d), -1.0, 1.0)
    return theta * signs


def make_experiment(
    size: PanelSize,
    protocol: str,
    pools: Pools,
    replications: int,
    seed: int,
    also: Sequence[str] = (),
) -> Experiment:
    """Make the experiment of one panel."""
    dim, arms = size
    settings = find_protocol(protocol)
    theta_after = flip_signs(pools.theta, protocol)
    actions = worlds.pools(
        pools.clicked, pools.other, new_each_round=settings.new_arms_each_round, label=pools.source
    )
    drift = worlds.abrupt([settings.change], to=theta_after[None])
    world = worlds.world(
        dim, arms, HORIZON, drift, actions, worlds.gaussian(VARIANCE), start=pools.theta
    )
    variation = float(np.linalg.norm(theta_after - pools.theta))
    arm_norm = float(np.linalg.norm(np.vstack([pools.clicked, pools.other]), axis=1).max())
    norms = (float(np.linalg.norm(pools.theta)), arm_norm)
    players = make_players(size, settings, variation, norms)
    for name in also:
        players = (*players, plan.make_player({"name": SHORT_NAMES.get(name, name)}, world))
    extra = (settings.change, EARLY_ROUND, LATE_ROUND)
    return Experiment(players, world, replications, seed, extra=extra)


def make_players(
    size: PanelSize, protocol: Protocol, variation: float, norms: tuple[float, float]
) -> tuple[Player, ...]:
    """Make the five policies of the figure; `norms` are S and L, with ‖θ‖ ≤ S and ‖x‖ ≤ L."""
    dim, arms = size
    noise = math.sqrt(VARIANCE)
    tuning = protocol.tuning
    memory = discount(discount_for(dim, HORIZON, variation, tuning=tuning))
    thompson_memory = discount(discount_for(dim, HORIZON, variation, arms, tuning))
    delta = DELTA ** (dim / 2.0) if protocol.wide_radius else DELTA
    radius = 0.4 * confidence(DELTA, noise, *norms)
    random_rounds = dim if protocol.random_start else 0
    return (
        Player("D-LinUCB", memory, optimism(confidence(delta, noise, *norms)), RIDGE),
        Player("D-RandLinUCB", memory, randomized(half_normal(radius)), RIDGE),
        Player("D-LinTS", thompson_memory, thompson(1.0), RIDGE, any_first=random_rounds),
        Player("LinTS", keep(), thompson(1.0), RIDGE),
        Player("LinTS-OR", restart_at([protocol.change]), thompson(1.0), RIDGE),
    )


class Claim(NamedTuple):
    """A statement of the paper about its figure, judged on one panel."""

    claim: str
    world: str
    verdict: Verdict
    difference: float  # mean over replications, negative if it favours the claim
    p: float  # of a paired t-test


def judge_claims(size: PanelSize, result: ExperimentResult, change: int) -> list[Claim]:
    """Judge every claim that is about this panel."""
    end = dict(zip(result.names, result.regret[:, :, -1], strict=True))
    ucb, rand, ts, lints, oracle = (end[name] for name in POLICIES)
    claims: dict[str, tuple[Floats, Floats]] = {}  # the smaller and the larger regret
    if size[1] == 100:
        claims["D-RandLinUCB beats D-LinUCB"] = rand, ucb
        claims["D-LinTS beats D-LinUCB"] = ts, ucb
    claims[NOT_WORSE] = rand, ts
    if size == (50, 100):
        gained = result.at(EARLY_ROUND) - result.at(change)
        recovery = dict(zip(result.names, gained, strict=True))
        rivals = np.minimum(recovery["D-RandLinUCB"], recovery["D-LinTS"])
        claims["D-LinUCB recovers first after the change"] = recovery["D-LinUCB"], rivals
    worst = np.max([ucb, rand, ts], axis=0)
    claims["the stationary LinTS collapses"] = COLLAPSE_RATIO * worst, lints
    claims["the oracle LinTS-OR is the floor"] = oracle, np.min([ucb, rand, ts, lints], axis=0)
    return [_judge(claim, size, *pair) for claim, pair in claims.items()]


def _judge(claim: str, size: PanelSize, lower: Floats, upper: Floats) -> Claim:
    """Judge whether `lower` is below `upper`, in pairs of the same replication."""
    gap = lower - upper
    mean, p = float(gap.mean()), compute_p_value(gap)
    significant = p < SIGNIFICANCE
    verdict: Verdict = "undecided"
    if (significant and mean < 0.0) or (claim == NOT_WORSE and not (significant and mean > 0.0)):
        verdict = "holds"
    elif significant:
        verdict = "does not hold"
    return Claim(claim, name_world(size), verdict, mean, p)


def summarize(
    size: PanelSize, result: ExperimentResult, protocol: Protocol
) -> list[dict[str, Cell]]:
    """Return one row a policy: its regret at the end, at the change, and at two rounds after it.

    The protocol `released` also has the published end regret.
    """
    rows: list[dict[str, Cell]] = []
    for p, name in enumerate(result.names):
        end = result.regret[p, :, -1]
        rows.append(
            {
                "world": name_world(size),
                "policy": name,
                "end regret": float(end.mean()),
                "standard error": standard_error(end),
                "at the change": float(result.at(protocol.change)[p].mean()),
                f"at {EARLY_ROUND}": float(result.at(EARLY_ROUND)[p].mean()),
                f"at {LATE_ROUND}": float(result.at(LATE_ROUND)[p].mean()),
            }
        )
        if protocol == PROTOCOLS["released"]:
            rows[-1]["published"] = dict(zip(POLICIES, PUBLISHED[size], strict=True)).get(name)
    return rows
