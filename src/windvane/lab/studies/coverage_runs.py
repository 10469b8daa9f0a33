"""Play the policy that logs in a study of coverage, and judge policies while its log grows."""

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import NamedTuple

import numpy as np

from windvane.evaluation.estimates.confidence_sequence import (
    MODEL_BOUNDS,
    ActionModel,
    BoundedModel,
    ConfidenceSequence,
    SideModel,
    bound_gain,
    bound_model,
    bound_value,
    make_sequence,
    update_with_model,
)
from windvane.evaluation.estimates.estimators import (
    DM,
    DR,
    IPS,
    SNDR,
    SNIPS,
    UNIT_RANGE,
    CressieReadSums,
    ValueSums,
    WeightRange,
    bound_cressie_read,
    estimate_cressie_read,
    estimate_values,
    normal_quantile,
)
from windvane.evaluation.estimates.recent_value import RecentSums
from windvane.lab.engines.decision_log import DecisionLog, log_decisions
from windvane.lab.engines.game import Player
from windvane.lab.progress import Report, TaskProgress
from windvane.lab.worlds import World
from windvane.lab.worlds.draw import Draw
from windvane.types import Floats, Places

JUDGED_POLICIES = ("first action", "at random", "best at the start")
REPLICATIONS_PER_CHUNK = 10
NORMAL_NAMES = {IPS: "IPS", SNIPS: "SNIPS", DM: "DM", DR: "DR", SNDR: "SNDR"}
CRESSIE_READ = "Cressie-Read"
SEQUENCE = "sequence"
MODEL_SEQUENCE = "sequence with model"
GAIN_SEQUENCE = "sequence of gain"
RECENT = "recent value"
ESTIMATORS = (
    *NORMAL_NAMES.values(),
    *(CRESSIE_READ, RECENT, SEQUENCE, MODEL_SEQUENCE, GAIN_SEQUENCE),
)
HALF_LIVES = 5  # of the recent value, from the first decision to the last
TRUTH, VALUE, LOW, HIGH = range(4)  # the numbers of one look


class LoggedRuns(NamedTuple):
    """A world, the policy that logs in it, and the looks at its log."""

    world: World
    player: Player
    looks: Places
    alpha: float
    seed: int

    def play(self, replications: range) -> Floats:
        """Log and judge consecutive replications, (estimators, R, P, looks, 4)."""
        judged = []
        for r in replications:
            seed = np.random.SeedSequence(self.seed, spawn_key=(r,))
            key = int(seed.generate_state(1, np.uint64)[0]) >> 1
            draw = self.world.draw(seed)
            judged.append(JudgedLog(log_decisions(self.player, draw, key), judge_policies(draw)))
        largest_weight = self.world.arms / self.player.floor
        return estimate_at_looks(judged, self.looks, largest_weight, self.alpha)


def judge_policies(draw: Draw) -> Floats:
    """The probabilities of the arms under each of JUDGED_POLICIES, (3, T, K)."""
    arms = draw.picks.shape[1]
    first = np.zeros(draw.rounds, dtype=np.int64)
    scores = draw.arms[draw.picks] @ draw.theta[draw.era[0]]  # (T or 1, K)
    best = np.broadcast_to(scores.argmax(axis=1), draw.rounds)
    identity = np.eye(arms)
    at_random = np.full((draw.rounds, arms), 1.0 / arms)
    return np.stack([identity[first], at_random, identity[best]])


def play_all(
    runs: Mapping[str, LoggedRuns], replications: int, report: Report
) -> dict[str, Floats]:
    """Play all replications on threads; the numbers do not depend on the number of threads."""
    for name in runs:
        report(TaskProgress(name, 0, replications, "replications"))
    chunks = [
        (name, range(first, min(first + REPLICATIONS_PER_CHUNK, replications)))
        for name in runs
        for first in range(0, replications, REPLICATIONS_PER_CHUNK)
    ]
    parts: dict[str, dict[int, Floats]] = {name: {} for name in runs}
    done = dict.fromkeys(runs, 0)
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        waiting = {pool.submit(runs[name].play, chunk): (name, chunk) for name, chunk in chunks}
        try:
            for future in as_completed(waiting):
                name, chunk = waiting[future]
                parts[name][chunk.start] = future.result()
                done[name] += len(chunk)
                report(TaskProgress(name, done[name], replications, "replications"))
        finally:
            for future in waiting:
                future.cancel()
    return {
        name: np.concatenate([part for _, part in sorted(chunks_of_run.items())], axis=1)
        for name, chunks_of_run in parts.items()
    }


class JudgedLog(NamedTuple):
    """Logged decisions, and the probabilities of the policies to be judged."""

    log: DecisionLog
    policies: Floats  # (P, T, K)


class _Rows(NamedTuple):
    """The decisions of R logs as the sums of P policies take them."""

    rewards: Floats  # (R, 1, T)
    weights: Floats  # (R, P, T) π(a)/p(a) of the chosen arm
    model_values: Floats  # (R, P, T) Σ_a π(a) q̂(a)
    model_chosen: Floats  # (R, 1, T) q̂ of the chosen arm

    def cut(self, start: int, end: int) -> "_Rows":
        """The decisions from one look to the next."""
        return _Rows(*(column[..., start:end] for column in self))


def space_looks(first: int, horizon: int, count: int) -> Places:
    """Numbers of decisions at which somebody looks, evenly spaced on a log scale, (≤ count,).

    >>> space_looks(100, 5000, 6).tolist()
    [100, 219, 478, 1046, 2287, 5000]
    """
    return np.unique(np.rint(np.geomspace(min(first, horizon), horizon, count)).astype(np.int64))


def estimate_at_looks(
    judged: Sequence[JudgedLog], looks: Places, largest_weight: float, alpha: float
) -> Floats:
    """Compute truth, value, low and high of each estimator, (estimators, R, P, looks, 4).

    The truth is the mean of the true values of all decisions up to the look, weighted by their age
    for the recent value, and minus the values of the policy that logged for the gain. Confidence
    sequences are intervals without a value.
    """
    half_life = float(looks[-1]) / HALF_LIVES
    rows = _make_rows(judged)
    models = [_bound_models(judged, bound) for bound in MODEL_BOUNDS]
    numbers = np.full((len(ESTIMATORS), *rows.weights.shape[:2], len(looks), 4), np.nan)
    numbers[..., TRUTH] = _find_truth(judged, looks, half_life)
    sums = ValueSums.make_empty(rows.weights.shape[:2])
    recent = RecentSums(half_life)
    sequence = ConfidenceSequence()
    model_sequences = [make_sequence(UNIT_RANGE, bound) for bound in MODEL_BOUNDS]
    sequences = [sequence, *model_sequences]
    quantile = normal_quantile(alpha)
    start = 0
    for place, look in enumerate(looks.tolist()):
        part = rows.cut(start, look)
        sums = sums.merge(ValueSums.from_rows(*part))
        recent.update(np.arange(start, look, dtype=np.float64), part.rewards, part.weights)
        sequence.update(part.rewards, part.weights)
        for each, model in zip(model_sequences, models, strict=True):
            terms = model.select(slice(start, look))
            update_with_model(each, part.rewards, part.weights, terms)
        start = look

        normal = {title: estimate_values(name, sums) for name, title in NORMAL_NAMES.items()}
        estimates: dict[str, tuple[Floats | float, Floats, Floats]] = {
            title: (value, value - quantile * error, value + quantile * error)
            for title, (value, error) in normal.items()
        }
        estimates[CRESSIE_READ] = _estimate_cressie_read(sums, largest_weight, alpha)
        estimates[RECENT] = (recent.estimate_value(), *recent.bound_value(alpha))
        estimates[SEQUENCE] = (np.nan, *sequence.bound_value(alpha))
        estimates[MODEL_SEQUENCE] = (np.nan, *bound_value(sequences, alpha))
        estimates[GAIN_SEQUENCE] = (np.nan, *bound_gain(sequences, alpha))
        for title, values in estimates.items():
            for number, value in zip((VALUE, LOW, HIGH), values, strict=True):
                numbers[ESTIMATORS.index(title), :, :, place, number] = value
    return numbers


def _find_truth(judged: Sequence[JudgedLog], looks: Places, half_life: float) -> Floats:
    """The true value that each estimator is to cover, (estimators, R, P, looks)."""
    values = np.stack(
        [np.einsum("ptk,tk->pt", policies, log.means) for log, policies in judged]
    )  # (R, P, T)
    logged = np.stack([np.einsum("tk,tk->t", log.probabilities, log.means) for log, _ in judged])
    truth = {
        title: np.cumsum(values, axis=-1)[..., looks - 1] / looks
        for title in ESTIMATORS
        if title not in (RECENT, GAIN_SEQUENCE)
    }
    gains = values - logged[:, None]
    truth[GAIN_SEQUENCE] = np.cumsum(gains, axis=-1)[..., looks - 1] / looks
    growing = np.exp2(np.arange(values.shape[-1]) / half_life)
    recent = np.cumsum(growing * values, axis=-1) / np.cumsum(growing)
    truth[RECENT] = recent[..., looks - 1]
    return np.stack([truth[title] for title in ESTIMATORS])


def _make_rows(judged: Sequence[JudgedLog]) -> _Rows:
    columns = []
    for log, policies in judged:
        places = np.arange(len(log.chosen)), log.chosen
        columns.append(
            _Rows(
                log.rewards[None],
                policies[:, *places] / log.probabilities[places],
                np.einsum("ptk,tk->pt", policies, log.predictions),
                log.predictions[places][None],
            )
        )
    return _Rows(*(np.stack(column) for column in zip(*columns, strict=True)))


def _estimate_cressie_read(
    sums: ValueSums, largest_weight: float, alpha: float
) -> tuple[Floats, Floats, Floats]:
    """The value, low and high of each log and policy, (R, P) each."""
    weights = WeightRange(0.0, largest_weight)
    estimates = np.empty((3, *sums.rows.shape))
    for r, p in np.ndindex(sums.rows.shape):
        one_log = CressieReadSums.from_value_sums(sums.select(r).select(p))
        ends = bound_cressie_read(one_log, UNIT_RANGE, weights, alpha)
        estimates[:, r, p] = estimate_cressie_read(one_log, weights), *ends
    return estimates[0], estimates[1], estimates[2]


def _bound_models(judged: Sequence[JudgedLog], bound: float) -> BoundedModel:
    """The model terms of all policies for one bound, (R, P, T) each."""
    terms = []
    for run in judged:
        decisions, arms = run.log.probabilities.shape
        starts = arms * np.arange(decisions + 1)
        models = [
            bound_model(
                ActionModel(
                    *(run.log.predictions.ravel(), policy.ravel(), run.log.probabilities.ravel()),
                    *(starts, run.log.chosen),
                ),
                UNIT_RANGE,
                bound,
            )
            for policy in run.policies
        ]
        terms.append(np.array(models))  # (P, 2, 3, T)
    rewards, complements = np.moveaxis(np.stack(terms), (2, 3), (0, 1))  # (3, R, P, T) each
    return BoundedModel(SideModel(*rewards), SideModel(*complements))
