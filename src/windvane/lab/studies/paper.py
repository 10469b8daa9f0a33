"""The paper's figure: its panels, both readings of its protocol, its numbers and its claims.

`released` is what the published figure shows: arms drawn once a replication, the change at round
4001, the older discount. `paper` is what the text says: fresh arms every round, the change at
4000, the corrected discount.
"""

import math
from collections.abc import Iterable
from typing import Literal, NamedTuple

import numpy as np
from scipy import stats

from windvane import memory as fade
from windvane._text_table import Cell
from windvane.errors import SettingError
from windvane.exploration import confidence, half_normal, optimism, randomized, thompson
from windvane.lab import worlds
from windvane.lab.engines.linear import Player
from windvane.lab.running.experiment import Experiment, Result
from windvane.lab.studies.criteo import Pools
from windvane.theory import discount_for
from windvane.types import Floats

Verdict = Literal["holds", "does not hold", "undecided"]
PanelSize = tuple[int, int]  # (d, K)

HORIZON, VARIANCE, DELTA, RIDGE = 10_000, 0.15, 0.01, 1.0
PANELS: tuple[PanelSize, ...] = ((10, 10), (20, 10), (50, 10), (10, 100), (20, 100), (50, 100))
POLICIES = ("D-LinUCB", "D-RandLinUCB", "D-LinTS", "LinTS", "LinTS-OR")
EARLY, LATER = 5500, 7000  # rounds at which recovery is looked at
COLLAPSE = 1.5  # so many times the worst regret of the fading policies is a collapse
PUBLISHED: dict[PanelSize, tuple[int, ...]] = {  # end regrets, read off to about ±50
    (10, 10): (2000, 1870, 1850, 9950, 290),
    (20, 10): (2570, 2450, 2450, 9500, 310),
    (50, 10): (3280, 3320, 3400, 8700, 250),
    (10, 100): (2540, 2230, 2450, 10600, 590),
    (20, 100): (3400, 2990, 3230, 10600, 850),
    (50, 100): (4480, 4070, 4250, 9550, 1030),
}


class Reading(NamedTuple):
    """One reading of the protocol."""

    change: int  # the first round, from 0, that the new parameter holds
    tuning: Literal["corrected", "uncorrected"]
    anew: bool  # arms drawn every round
    wide_radius: bool  # D-LinUCB's radius has d·log(1/δ) for 2·log(1/δ)
    any_first: bool  # D-LinTS plays d rounds at random


READINGS: dict[str, Reading] = {
    "released": Reading(4001, "uncorrected", anew=False, wide_radius=True, any_first=True),
    "paper": Reading(4000, "corrected", anew=True, wide_radius=False, any_first=False),
}


def reading(name: str) -> Reading:
    """The reading of that name."""
    if name not in READINGS:
        raise SettingError(f"protocol: must be one of {', '.join(READINGS)}, got {name!r}")
    return READINGS[name]


def panel_sizes(text: str) -> list[PanelSize]:
    """The panels that "10x10,50x100" asks for, in the paper's order."""
    asked = set()
    for word in text.split(","):
        match word.strip().lower().split("x"):
            case [d, k] if d.isdecimal() and k.isdecimal() and (int(d), int(k)) in PANELS:
                asked.add((int(d), int(k)))
            case _:
                known = ",".join(f"{d}x{k}" for d, k in PANELS)
                raise SettingError(f"panels: {word!r} is none of {known}")
    return [size for size in PANELS if size in asked]


def flipped(theta: Floats, name: str) -> Floats:
    """The parameter after the change: about 60 % of the signs of θ* turned.

    released: each with chance 0.6, by the generator and seed of the published figure
    paper:    exactly ⌊0.6·d⌋ of them
    """
    d = theta.size
    if name == "released":
        signs = 2.0 * np.random.RandomState(1).binomial(1, 0.4, d) - 1.0
    else:
        signs = np.where(np.random.default_rng(1).permutation(d) < math.floor(0.6 * d), -1.0, 1.0)
    return theta * signs


def experiment(
    size: PanelSize, name: str, pools: Pools, replications: int, seed: int
) -> Experiment:
    """One panel of the figure under one reading."""
    dim, arms = size
    read, after = reading(name), flipped(pools.theta, name)
    actions = worlds.pools(pools.clicked, pools.other, anew=read.anew, label=pools.source)
    drift = worlds.abrupt([read.change], to=after[None])
    place = worlds.world(
        dim, arms, HORIZON, drift, actions, worlds.gaussian(VARIANCE), start=pools.theta
    )
    variation = float(np.linalg.norm(after - pools.theta))
    longest = float(np.linalg.norm(np.vstack([pools.clicked, pools.other]), axis=1).max())
    norms = (float(np.linalg.norm(pools.theta)), longest)
    extra = (read.change, EARLY, LATER)
    return Experiment(players(size, read, variation, norms), place, replications, seed, extra=extra)


def players(
    size: PanelSize, read: Reading, variation: float, norms: tuple[float, float]
) -> tuple[Player, ...]:
    """The five policies of the figure, for ‖θ‖ ≤ S and ‖x‖ ≤ L given as `norms`."""
    dim, arms = size
    noise = math.sqrt(VARIANCE)
    faded = fade.discount(discount_for(dim, HORIZON, variation, tuning=read.tuning))
    sampled = fade.discount(discount_for(dim, HORIZON, variation, arms, read.tuning))
    wide = DELTA ** (dim / 2.0) if read.wide_radius else DELTA
    return (
        Player("D-LinUCB", faded, optimism(confidence(wide, noise, *norms)), RIDGE),
        Player(
            "D-RandLinUCB",
            faded,
            randomized(half_normal(0.4 * confidence(DELTA, noise, *norms))),
            RIDGE,
        ),
        Player("D-LinTS", sampled, thompson(1.0), RIDGE, any_first=dim if read.any_first else 0),
        Player("LinTS", fade.keep(), thompson(1.0), RIDGE),
        Player("LinTS-OR", fade.restart_at([read.change]), thompson(1.0), RIDGE),
    )


class Claim(NamedTuple):
    """Something the paper says of its figure, judged on one panel."""

    claim: str
    panel: str
    verdict: Verdict
    difference: float  # mean over replications, below 0 in favour of the claim
    p: float  # of so large a difference by chance, in a paired t-test


def claims(size: PanelSize, result: Result, change: int) -> list[Claim]:
    """Every claim that speaks of this panel."""
    end = dict(zip(result.names, result.regret[:, :, -1], strict=True))
    at_change = dict(zip(result.names, result.at(change), strict=True))
    early = dict(zip(result.names, result.at(EARLY), strict=True))
    drifting = ("D-LinUCB", "D-RandLinUCB", "D-LinTS")
    found = []
    if size[1] == 100:
        for name in ("D-RandLinUCB", "D-LinTS"):
            found.append(_judge(f"{name} beats D-LinUCB", size, end[name], end["D-LinUCB"]))
    found.append(
        _judge(
            "D-RandLinUCB is not worse than D-LinTS",
            size,
            end["D-RandLinUCB"],
            end["D-LinTS"],
            ties_hold=True,
        )
    )
    if size == (50, 100):
        recovery = {name: early[name] - at_change[name] for name in drifting}
        rivals = np.minimum(recovery["D-RandLinUCB"], recovery["D-LinTS"])
        found.append(
            _judge("D-LinUCB recovers first after the change", size, recovery["D-LinUCB"], rivals)
        )
    worst = np.max([end[name] for name in drifting], axis=0)
    best = np.min([end[name] for name in result.names if name != "LinTS-OR"], axis=0)
    found.append(_judge("the stationary LinTS collapses", size, COLLAPSE * worst, end["LinTS"]))
    found.append(_judge("the oracle LinTS-OR is the floor", size, end["LinTS-OR"], best))
    return found


def _judge(
    claim: str, size: PanelSize, lower: Floats, upper: Floats, ties_hold: bool = False
) -> Claim:
    """Whether `lower` is below `upper`, replication by replication."""
    gap = lower - upper
    mean = float(gap.mean())
    if gap.size < 2 or gap.std() == 0.0:
        p = 0.0 if mean != 0.0 and gap.size > 1 else 1.0
    else:
        p = float(stats.ttest_1samp(gap, 0.0).pvalue)
    sure = p < 0.05
    verdict: Verdict = "undecided"
    if (sure and mean < 0.0) or (ties_hold and not (sure and mean > 0.0)):
        verdict = "holds"
    elif sure:
        verdict = "does not hold"
    return Claim(claim, f"{size[0]}x{size[1]}", verdict, mean, p)


def summary(size: PanelSize, result: Result, read: Reading) -> list[dict[str, Cell]]:
    """What the figure shows of one panel, a row a policy.

    The published end regret stands beside it under the reading that it was published for.
    """
    rows: list[dict[str, Cell]] = []
    for p, name in enumerate(result.names):
        end = result.regret[p, :, -1]
        rows.append(
            {
                "panel": f"{size[0]}x{size[1]}",
                "policy": name,
                "end regret": float(end.mean()),
                "standard error": standard_error(end),
                "at the change": float(result.at(read.change)[p].mean()),
                f"at {EARLY}": float(result.at(EARLY)[p].mean()),
                f"at {LATER}": float(result.at(LATER)[p].mean()),
            }
        )
        if read == READINGS["released"]:
            rows[-1]["published"] = PUBLISHED[size][POLICIES.index(name)]
    return rows


def standard_error(values: Floats) -> float:
    """The standard error of a mean, 0 for a single value."""
    return float(values.std(ddof=1) / math.sqrt(values.size)) if values.size > 1 else 0.0


def tally(found: Iterable[Claim]) -> list[dict[str, Cell]]:
    """The claims as rows of a table."""
    return [
        {
            "claim": claim.claim,
            "panel": claim.panel,
            "verdict": claim.verdict,
            "difference": claim.difference,
            "p": claim.p,
        }
        for claim in found
    ]
