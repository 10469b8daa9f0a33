"""What compiled code must know of a policy, as one flat record, and the counters it keeps."""

import math
from typing import NamedTuple

import numpy as np

from windvane.exploration import Confidence, Exploration, Law
from windvane.memory import Memory
from windvane.types import Floats, Records

MEAN, WIDTH, SAMPLE, HISTORY, GAP = range(5)  # what an exploration asks of the belief
STYLES = {
    "greedy": MEAN,
    "epsilon": MEAN,
    "optimism": WIDTH,
    "randomized": WIDTH,
    "thompson": SAMPLE,
    "perturbed_history": HISTORY,
    "inverse_gap": GAP,
}
POINT, NORMAL, HALF_NORMAL, GRID = range(4)  # where a confidence level comes from
LAWS = {"point": POINT, "normal": NORMAL, "half_normal": HALF_NORMAL, "grid": GRID}

RULES = np.dtype(
    [
        ("dim", "i8"),
        ("space", "i8"),  # the dimension that the radius counts
        ("ridge", "f8"),  # λ
        ("gamma", "f8"),  # 1 where nothing fades
        ("span", "f8"),  # after which an observation counts half; 0 where it is γ that counts
        ("fades", "i8"),  # 1 where either of them is there
        ("twin", "i8"),  # 1 where W̃ is not W
        ("window", "i8"),  # 0 where nothing is dropped
        ("rho", "f8"),  # 0 where no filter follows a wandering θ
        ("variance", "f8"),  # σ² as the memory believes it, 1 where it does not ask
        ("bias", "f8"),  # λS², as detection believes it
        ("slack", "f8"),
        ("alarm", "f8"),  # 0 where nothing is detected
        ("refresh", "i8"),  # observations between two fresh inversions of W
        ("lead", "f8"),  # by what factor the ridge is too large just after one
        ("least", "f8"),  # the share of it from which on W is inverted anew in any case
        ("style", "i8"),
        ("mix", "f8"),  # the chance that any arm at all is played
        ("law", "i8"),
        ("scale", "f8"),  # of the law, of thompson, of the pseudo-rewards; or η
        ("grows", "i8"),  # 1 where the scale is a multiple of the radius
        ("delta", "f8"),
        ("anytime", "i8"),
        ("noise", "f8"),  # σ
        ("theta_norm", "f8"),  # S
        ("arm_norm", "f8"),  # L
        ("points", "i8"),
        ("sigma", "f8"),
        ("top", "f8"),
        ("coins", "i8"),
    ]
)

TALLY = np.dtype(
    [
        ("seen", "i8"),  # observations since the belief was blank
        ("stale", "i8"),  # observations since W was last inverted
        ("ridge", "f8"),  # the ridge in the matrix that `inverse` inverts
        ("noise_ridge", "f8"),  # the same for the noise matrix
        ("energy", "f8"),  # trace of the Gram matrix
        ("clock", "f8"),  # when the newest observation was chosen
        ("held", "f8"),  # Σ of the squared weights by that clock
        ("surprise", "f8"),  # C, how far rewards have been off for a while
        ("alarms", "i8"),  # how often everything was dropped for it
        ("peak", "f8"),  # the largest it has been since a window was last summed anew
    ]
)


class PolicyArrays(NamedTuple):
    """The four arrays that hold a policy; compiled code takes them as one argument."""

    rules: Records  # (1,) RULES: the settings, which never change
    tally: Records  # (1,) TALLY: the counters
    block: Floats  # (block_size(rules),) the belief, whose parts are views of this array
    past: Floats  # (n, history_width(...)) past observations, one a row; n is 0 if none are kept


LARGEST = 1e100  # a reward, or a squared norm, beyond this counts as not finite
LAG = 0.025  # how far, in log, the ridge in `inverse` may fade before it is made afresh
SMALL = 64  # up to this dimension an inversion costs less than the doubt that LAG leaves
FADED = 1e-17  # a weight below this no longer moves a sum in double precision


def rules_of(
    dim: int,
    memory: Memory,
    exploration: Exploration,
    ridge: float,
    floor: float,
    space: int | None = None,
) -> Records:
    """The record of a policy; `space` is the whole dimension where only a part of it is played."""
    law = exploration.law or Law("point", 0.0)
    width = law.scale
    radius = width if isinstance(width, Confidence) else Confidence(0.5, 0, 0, 1, "round", 1)
    scale = radius.times if isinstance(width, Confidence) else width
    fades = memory.gamma < 1.0 or memory.span > 0.0
    refresh, lead, least = _refresh(dim, memory, STYLES[exploration.name])
    record = np.zeros(1, RULES)
    values = {
        "dim": dim,
        "space": space or dim,
        "ridge": ridge,
        "gamma": memory.gamma,
        "span": memory.span,
        "fades": fades,
        "twin": fades and not memory.single,
        "window": memory.rounds,
        "rho": memory.rho,
        "variance": memory.noise**2 or 1.0,
        "bias": ridge * memory.theta_norm**2,
        "slack": memory.slack,
        "alarm": memory.alarm,
        "refresh": refresh,
        "lead": lead,
        "least": least,
        "style": STYLES[exploration.name],
        "mix": 1.0 - (1.0 - exploration.chance) * (1.0 - floor),
        "law": LAWS[law.name],
        "scale": scale if exploration.law else exploration.scale,
        "grows": isinstance(width, Confidence),
        "delta": radius.delta / radius.horizon,
        "anytime": radius.when == "anytime",
        "noise": radius.noise,
        "theta_norm": radius.theta_norm,
        "arm_norm": radius.arm_norm,
        "points": law.points,
        "sigma": law.sigma,
        "top": law.top,
        "coins": exploration.scale if exploration.pseudo == "coins" else 0,
    }
    for name, value in values.items():
        record[name] = value
    return record


def _refresh(dim: int, memory: Memory, style: int) -> tuple[int, float, float]:
    """How many observations apart to invert anew, which costs d³; where the ridge begins and ends.

    Rounding allows many. A fading ridge makes solutions slower to polish and, where widths are
    compared, leaves more arms to be scored again: the two costs balance at about LAG. It leads by
    half of what it will have lost by the next time; with a half-life nobody knows how much.
    """
    often = max(SMALL, dim)
    lag = LAG * often / 128 if style == WIDTH else LAG
    if memory.span > 0.0:
        return often, 1.0, math.exp(-lag)
    if memory.gamma == 1.0:
        return often, 1.0, 0.0
    apart = min(often, int(lag / -math.log(memory.gamma)))
    return apart, memory.gamma ** (-0.5 * apart), 0.0


def block_size(record: Records) -> int:
    """How many numbers a belief takes: b, θ̂, S, W⁻¹ and, where needed, S̃, V⁻¹ and a root."""
    rule, dim = record[0], int(record["dim"][0])
    if rule["rho"] > 0.0:
        return 2 * dim + dim * dim
    widths = rule["twin"] and rule["style"] == WIDTH
    samples = rule["style"] == SAMPLE and rule["window"] == 0
    return 2 * dim + (2 + int(rule["twin"]) + int(widths) + int(samples)) * dim * dim


def history_limit(memory: Memory, exploration: Exploration) -> int | None:
    """How many past observations must be at hand: None where there is no end to them."""
    if memory.rounds:
        return memory.rounds
    return reach(memory, FADED) if exploration.name == "perturbed_history" else 0


def is_by_line(rules: Records) -> bool:
    """Whether a level is drawn from a density, so that each arm is a line in it."""
    rule = rules[0]
    return bool(rule["style"] == WIDTH and rule["law"] in (NORMAL, HALF_NORMAL))


def reach(memory: Memory, least: float) -> int | None:
    """After how many more an observation counts less than `least`; None where it may never."""
    fade = memory.rho or memory.gamma
    if fade == 1.0 or memory.span > 0.0:
        return None
    return math.ceil(math.log(least) / math.log(fade))


def history_width(dim: int, memory: Memory) -> int:
    """How many numbers of a past observation are kept: x, y and, where ages count, its time."""
    return dim + (2 if memory.span > 0.0 else 1)
