"""The flat record of settings and the counters of a policy, as compiled code reads them."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from windvane import validation
from windvane.beliefs.links import LINKS
from windvane.exploration import Exploration
from windvane.laws import Confidence, Law, Posterior, Width
from windvane.memory import MEMORIES, MOST_PARTS, Memory
from windvane.types import Floats, Records

MEMORY_CODES = {name: code for code, name in enumerate(MEMORIES)}
DISCOUNT = MEMORY_CODES["discount"]  # the memories that compiled code tells apart
HALF_LIFE = MEMORY_CODES["half_life"]
WINDOW = MEMORY_CODES["window"]
DETECT = MEMORY_CODES["detect"]
KALMAN = MEMORY_CODES["kalman"]
PARTS = MEMORY_CODES["parts"]
ONE_PASS = MEMORY_CODES["one_pass"]
DIRECTIONAL = MEMORY_CODES["directional"]
DETECT_SHIFT = MEMORY_CODES["detect_shift"]

MEAN, WIDTH, SAMPLE, HISTORY, GAP = range(5)  # what an exploration needs of the belief
STYLES = {"estimate": MEAN, "widths": WIDTH, "sample": SAMPLE, "history": HISTORY, "gaps": GAP}
POINT, NORMAL, HALF_NORMAL, GRID = range(4)  # laws of a confidence level
LAWS = {"point": POINT, "normal": NORMAL, "half_normal": HALF_NORMAL, "grid": GRID}
PLAIN, RADIUS, NOISE = range(3)  # what the scale multiplies: 1, the radius or the estimated noise


def _make_record_type(
    fields: list[tuple[str, str] | tuple[str, str, tuple[int]]],
) -> np.dtype[np.void]:
    """A type of records whose fields are attributes, also if the compiler is off."""
    return np.dtype((np.record, fields))


RULES = _make_record_type(
    [
        ("dim", "i8"),
        ("space", "i8"),  # the dimension that the radius counts
        ("ridge", "f8"),  # λ
        ("memory", "i8"),  # one of MEMORY_CODES
        ("gamma", "f8"),  # γ of discount, else 1
        ("least_prior", "f8"),  # the share of λ down to which λ fades, else 1
        ("span", "f8"),  # half-life, else 0
        ("fades", "i8"),  # 1 if weights fall below 1
        ("twin", "i8"),  # 1 if W̃ is kept beside W
        ("root", "i8"),  # 1 if a root of S̃ is kept, to draw samples
        ("along", "f8"),  # γ of directional, else 1
        ("least_square", "f8"),  # ‖x‖² below which directional forgets nothing
        ("window", "i8"),  # observations in a window, else 0
        ("filter", "i8"),  # 1 if the belief is the mean and covariance of a filter, not sums
        ("rho", "f8"),  # ρ of kalman, else 0
        ("hidden", "f8"),  # x/ρ²: noise in what the future reveals under `predictive`, else 0
        ("parts", "i8"),  # how many parts θ has under `parts`, else 0
        ("half_lives", "f8", (MOST_PARTS,)),  # of the parts, in observations or in time
        ("shares", "f8", (MOST_PARTS,)),  # of the parts in the first variance of θ
        ("in_time", "i8"),  # 1 if parts fade with time instead of observations
        ("finds", "i8"),  # 1 if variances of parts are found from the rewards
        ("variance", "f8"),  # σ² of the memory, 1 if the memory has no σ
        ("bias", "f8"),  # λS² of detect
        ("link", "i8"),  # of one_pass, one of LINKS
        ("ball", "f8"),  # S of one_pass
        ("slack", "f8"),
        ("alarm", "f8"),  # the level of C at which detect drops everything; log(3/δ); or 0
        ("refresh", "i8"),  # observations between two inversions of W
        ("lead", "f8"),  # the ridge just after an inversion, as a multiple of λ
        ("least", "f8"),  # the ridge, as a share of λ, below which W is inverted at once
        ("style", "i8"),  # one of STYLES
        ("mix", "f8"),  # the probability that an arm is chosen uniformly at random
        ("law", "i8"),  # one of LAWS
        ("scale", "f8"),  # of the law, of thompson, of the pseudo-rewards; or η
        ("unit", "i8"),  # of the scale: PLAIN, RADIUS or NOISE
        ("delta", "f8"),
        ("anytime", "i8"),
        ("noise", "f8"),  # σ
        ("theta_norm", "f8"),  # S
        ("arm_norm", "f8"),  # L
        ("points", "i8"),
        ("sigma", "f8"),
        ("top", "f8"),
        ("coins", "i8"),  # coins of perturbed_history, else 0
        ("room", "i8"),  # observations that can wait until large matrices follow them, else 0
    ]
)

TALLY = _make_record_type(
    [
        ("seen", "i8"),  # observations since the belief was blank
        ("stale", "i8"),  # observations since the last inversion of W
        ("ridge", "f8"),  # the ridge in the matrix that `inverse` inverts
        ("noise_ridge", "f8"),  # the ridge in the noise matrix
        ("energy", "f8"),  # trace of the Gram matrix
        ("clock", "f8"),  # time of the newest choice that was learned
        ("held", "f8"),  # Σ of the squared weights at that time
        ("surprise", "f8"),  # C of detect
        ("alarms", "i8"),  # how often C passed the alarm level
        ("peak", "f8"),  # the largest energy since the window was last summed up
        ("squared_errors", "f8"),  # Σ w·e²/S over errors of prediction, if the unit is NOISE
        ("error_weight", "f8"),  # Σ w over these errors
    ]
)
COUNTERS_OF_ERRORS = ("squared_errors", "error_weight")

MOST_LENGTHS = 48  # of blocks of errors in detect_shift: 1, 2, 4, …
LEAST_HISTORY_ROOM = 64  # observations for which room is made at the first growth


class PolicyArrays(NamedTuple):
    """The four arrays that hold a policy; compiled code takes them as one argument."""

    rules: Records  # (1,) RULES: the settings, which never change
    tally: Records  # (1,) TALLY: the counters
    block: Floats  # (block_size(rules),) the belief, whose parts are views of this array
    past: Floats  # (n, history_width(...)) past observations, one a row; n is 0 if none are kept


LARGEST = validation.LARGEST  # kernels take it from here
RIDGE_FADE = 0.025  # in log, by which the ridge in `inverse` may fade between two inversions
CHEAP_INVERSION_DIM = 64  # up to it, inverting costs less than the error that RIDGE_FADE leaves
LARGE = 128  # above this dimension, reading all matrices for every observation is slow
LARGE_RIDGE_FADE = 0.1  # up to this, the ridge of such a dimension may fade twice as much
LEAST_PENDING, MOST_PENDING = 8, 64  # observations of a large belief that can wait
PENDING_COUNTERS = 2  # numbers about the observations that wait, besides the observations
NEGLIGIBLE_WEIGHT = 1e-17  # a smaller weight no longer changes a sum in double precision


def build_rules(
    dim: int,
    memory: Memory,
    exploration: Exploration,
    ridge: float,
    floor: float,
    space: int | None = None,
) -> Records:
    """The record of a policy; `space` is the full dimension if `dim` is that of a subspace."""
    law = exploration.law or Law("point", 0.0)
    width = exploration.width
    radius = width if isinstance(width, Confidence) else Confidence(0.5, 0, 0, 1, "round", 1)
    fades = memory.kind.fades
    style = STYLES[exploration.kind.needs]
    refresh, lead, least = _plan_refresh(dim, memory, style)
    record = np.zeros(1, RULES)
    values = {
        "dim": dim,
        "space": space or dim,
        "ridge": ridge,
        "memory": MEMORY_CODES[memory.name],
        "gamma": memory.gamma,
        "least_prior": memory.least,
        "span": memory.span,
        "fades": fades,
        "twin": fades and not memory.single,
        "root": style == SAMPLE and memory.name not in ("window", "directional"),
        "along": memory.along,
        "least_square": memory.least_square,
        "window": memory.rounds,
        "filter": memory.kind.is_filter,
        "rho": memory.rho,
        "hidden": compute_hidden_noise(memory, ridge) if exploration.predictive else 0.0,
        "parts": len(memory.half_lives),
        "half_lives": pad(memory.half_lives),
        "shares": pad(memory.shares),
        "in_time": memory.in_time,
        "finds": memory.finds,
        "variance": memory.noise**2 or 1.0,
        "bias": ridge * memory.theta_norm**2,
        "link": LINKS[memory.link or "identity"],
        "ball": memory.theta_norm,
        "slack": memory.slack,
        "alarm": math.log(3.0 / memory.delta) if memory.delta else memory.alarm,
        "refresh": refresh,
        "lead": lead,
        "least": least,
        "style": style,
        "mix": 1.0 - (1.0 - exploration.chance) * (1.0 - floor),
        "law": LAWS[law.name],
        "scale": exploration.factor,
        "unit": _unit_of(width),
        "delta": radius.delta / radius.horizon,
        "anytime": radius.when == "anytime",
        "noise": radius.noise,
        "theta_norm": radius.theta_norm,
        "arm_norm": radius.arm_norm,
        "points": law.points,
        "sigma": law.sigma,
        "top": law.top,
        "coins": exploration.factor if exploration.pseudo == "coins" else 0,
    }
    for name, value in values.items():
        record[name] = value
    return record


def compute_hidden_noise(memory: Memory, ridge: float) -> float:
    """The variance x/ρ² with which all rewards after the next show the next θ, under `kalman`.

    The rewards from the one after next show ρθ with the variance x = δ² + v, where v is that of
    what they show of the θ after next: 1/v = 1/σ² + ρ²/x. So x² − (δ² + (1−ρ²)σ²)x = ρ²δ²σ².
    """
    fade, noise = memory.rho**2, memory.noise**2
    step = (1.0 - fade) / ridge  # δ²
    half = 0.5 * (step + (1.0 - fade) * noise)
    return (half + math.sqrt(half * half + fade * step * noise)) / fade


def pad(numbers: Sequence[float]) -> list[float]:
    """Numbers of the parts of θ, and zeros for those that it does not have."""
    return [*numbers, *[0.0] * (MOST_PARTS - len(numbers))]


def _unit_of(width: Width) -> int:
    if isinstance(width, Confidence):
        return RADIUS
    return NOISE if isinstance(width, Posterior) else PLAIN


def _plan_refresh(dim: int, memory: Memory, style: int) -> tuple[int, float, float]:
    """Observations between two inversions of W, the ridge after one, and the least ridge.

    An inversion costs d³, and rounding allows many observations between two. A faded ridge makes
    solutions slower to refine and, if widths are compared, leaves more arms to be scored again.
    The two costs balance at about RIDGE_FADE, and later above LARGE dimensions, where the bound of
    what the faded ridge does to widths is tighter. The ridge starts too large by half of what it
    will lose until the next inversion. With a half-life this loss is unknown, so a least ridge is
    set.
    """
    most = max(CHEAP_INVERSION_DIM, dim)
    lag = RIDGE_FADE * most / 128 if style == WIDTH else RIDGE_FADE
    if dim > LARGE and style == WIDTH:
        lag = max(lag, min(2.0 * lag, LARGE_RIDGE_FADE))
    if memory.kind.is_timed:
        return most, 1.0, math.exp(-lag)
    if not memory.kind.fades:
        return most, 1.0, 0.0
    apart = most if memory.gamma == 1.0 else min(most, int(lag / -math.log(memory.gamma)))
    return apart, memory.gamma ** (-0.5 * apart), 0.0


def block_size(record: Records) -> int:
    """The numbers in a belief: b, θ̂, S, W⁻¹ and, if needed, S̃, V⁻¹ and a root."""
    rule, dim = record[0], int(record["dim"][0])
    if rule["filter"]:
        parts = int(rule["parts"])  # 0 for kalman
        more = parts * dim + (parts * dim) ** 2 + dim + dim * dim + 3 * parts + 4
        return 2 * dim + dim * dim + (more if parts else 0)
    widths = rule["twin"] and rule["style"] == WIDTH
    blocks = 3 * MOST_LENGTHS if rule["memory"] == DETECT_SHIFT else 0
    return blocks + 2 * dim + (2 + int(rule["twin"]) + int(widths) + int(rule["root"])) * dim * dim


def compute_room_for_pending(record: Records, memory: Memory) -> int:
    """How many observations can wait until the matrices of a large belief follow them, else 0.

    The memory must support it, and the exploration must not need a root or past observations.
    """
    dim = int(record["dim"][0])
    if dim <= LARGE or not memory.kind.large or record["style"][0] not in (MEAN, WIDTH, GAP):
        return 0
    return min(max(dim // 16, LEAST_PENDING), MOST_PENDING)


def pending_size(record: Records) -> int:
    """The numbers that follow a large belief in its block: observations that wait, and more."""
    rule, dim, room = record[0], int(record["dim"][0]), int(record["room"][0])
    if room == 0:
        return 0
    images = 2 if rule["twin"] and rule["style"] == WIDTH else 1
    return PENDING_COUNTERS + dim + 3 * room + (1 + images) * room * dim


def history_limit(memory: Memory, exploration: Exploration) -> int | None:
    """How many past observations a policy must keep: None if all of them."""
    if memory.kind.keeps_history or exploration.kind.needs == "history":
        return memory.reach(NEGLIGIBLE_WEIGHT)
    return 0


def history_width(dim: int, memory: Memory) -> int:
    """The numbers kept of a past observation: x, y and, if weights follow from it, the time."""
    return dim + (2 if memory.kind.is_timed else 1)


def is_by_line(rules: Records) -> bool:
    """Whether the score of an arm is a line in a level that is drawn from a density."""
    rule = rules[0]
    return bool(rule["style"] == WIDTH and rule["law"] in (NORMAL, HALF_NORMAL))


def compute_history_room(seen: int, more: int, room: int, limit: int | None) -> int:
    """Return for how many past observations there must be room before `more` are learned.

    `room` is how many fit now, `limit` how many the memory can reach, None for all.
    """
    if seen + more <= room or room == limit:
        return room
    larger = max(2 * room, seen + more, LEAST_HISTORY_ROOM)
    return larger if limit is None else min(larger, limit)
