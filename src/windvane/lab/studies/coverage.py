"""Coverage: how often the intervals of off-policy estimators contain the truth, under every drift.

A policy that learns logs decisions with exact probabilities. From its log, every estimator judges
three policies that never change, again and again while the log grows:

- the first action: always the first arm,
- at random: all arms with equal probability,
- best at the start: the arm that was the best in the first round.

The truth at a look is the mean, over the decisions so far, of the true value of the policy.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import numpy as np
import polars as pl

from windvane import validation
from windvane._terminal.tables import Cell
from windvane.beliefs.chooser import make_key
from windvane.errors import SettingError
from windvane.evaluation.estimates import confidence_sequence, estimators
from windvane.evaluation.estimates.confidence_sequence import MODEL_BOUNDS, BoundedModel, SideModel
from windvane.evaluation.estimates.estimators import UNIT_RANGE, ValueSums
from windvane.lab.engines.game import Player
from windvane.lab.engines.replay import DecisionLog, log_decisions
from windvane.lab.experiments import Report, make_counter, open_report, run_on_threads
from windvane.lab.studies.plan import PolicySpec, make_plan, make_player
from windvane.lab.studies.result import StudyResult, count_noun, standard_error
from windvane.lab.worlds import World
from windvane.lab.worlds.draw import Draw
from windvane.types import Floats, Places

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LOGGING_POLICY = "discount(0.99) * randomized(half_normal(posterior(0.5)))"
FIRST_LOOK = 100  # decisions
JUDGED_POLICIES = ("first action", "at random", "best at the start")
REPLICATIONS_PER_CHUNK = 10
NORMAL_NAMES = {getattr(estimators, name): name for name in ("IPS", "SNIPS", "DM", "DR", "SNDR")}
CRESSIE_READ = "Cressie-Read"
SEQUENCE = "sequence"
MODEL_SEQUENCE = "sequence with model"
GAIN_SEQUENCE = "sequence of gain"
ESTIMATORS = (
    *NORMAL_NAMES.values(),
    *(CRESSIE_READ, SEQUENCE, MODEL_SEQUENCE, GAIN_SEQUENCE),
)
TRUTH, VALUE, LOW, HIGH = range(4)  # the numbers of one look


@dataclass(frozen=True, eq=False, repr=False)
class Coverage(StudyResult):
    """The result of `coverage`.

    `summary` has one row for each estimator under each drift, over all replications and judged
    policies: world (by its drift), estimator, every look (the share of runs in which the interval
    contained the truth at every look), standard error (of this share), last look (the share at the
    last look), width (mean, at the last look), bias and rms error (of the value, at the last look;
    null for a confidence sequence, which has no value).
    `intervals` has one row for each look: world, policy, estimator, replication, look (decisions so
    far), truth, value, low, high.
    """

    worlds: dict[str, str]  # the text of each world
    policy: str  # the policy that logged the decisions
    floor: float
    alpha: float
    replications: int
    seed: int
    intervals: pl.DataFrame
    summary: pl.DataFrame

    file = "coverage.json"
    picture = "coverage"
    keys: ClassVar = {"summary": "results"}
    long_frames = ("intervals",)

    def describe(self) -> str:
        drifts = count_noun(len(self.worlds), "drift")
        names = count_noun(self.summary["estimator"].n_unique(), "estimator")
        replications = count_noun(self.replications, "replication")
        return f"{drifts}, {names}, {replications}, seed {self.seed}"

    def figure(self) -> "Figure":
        """Draw coverage and width of every estimator, one column of panels a drift."""
        from windvane.lab.studies.figures import draw_coverage

        return draw_coverage(self.summary, self.alpha)


def coverage(
    replications: int = 200,
    horizon: int = 5000,
    dim: int = 5,
    arms: int = 5,
    drifts: str | Sequence[str] | None = None,
    *,
    actions: str = "fixed()",
    policy: PolicySpec = LOGGING_POLICY,
    floor: float = 0.2,
    looks: int = 12,
    alpha: float = 0.05,
    seed: int = 1,
    progress: bool | Report = False,
) -> Coverage:
    """Log decisions under drift, and count how often the intervals of estimators hold the truth.

    `drifts` are texts such as "walk(100.0)"; the default is one of every kind. `actions` is
    "fixed()" or "fresh()". `policy` logs the decisions: a name of the literature or a text
    "MEMORY * EXPLORATION" with the exploration randomized(normal(...)) or
    randomized(half_normal(...)), or a policy of your own, as in `simulate`; with probability
    `floor` any arm is chosen instead. An estimator is
    looked at `looks` times, from 100 decisions to the horizon, evenly spaced on a log scale.
    Intervals may miss with probability `alpha`. Rewards are 0 or 1. `progress` is that of
    `simulate`.

    >>> from windvane import lab
    >>> result = lab.coverage(replications=4, horizon=400, drifts="stationary()", looks=3)
    >>> result
    <Coverage: 1 drift, 9 estimators, 4 replications, seed 1>
    >>> result.intervals["look"].unique().to_list()
    [100, 200, 400]
    """
    replications = validation.whole("coverage", "replications", replications)
    looks = validation.whole("coverage", "looks", looks)
    horizon = validation.whole("coverage", "horizon", horizon, least=FIRST_LOOK)
    alpha = validation.inside("coverage", "alpha", alpha)
    seed = validation.whole("coverage", "seed", seed, least=0)
    if not validation.share("coverage", "floor", floor) > 0:
        raise SettingError(f"coverage: floor must be above 0, got {floor!r}")
    sizes = {"dim": dim, "arms": arms, "horizon": horizon}
    table = {**sizes, "actions": actions, "reward": "bernoulli()"}
    named = _name_drifts(drifts, horizon).items()
    plan = make_plan({name: {**table, "drift": drift} for name, drift in named}, policy)
    if any(world.action_set for world in plan.worlds.values()):
        raise SettingError(f"coverage: actions must be fixed() or fresh(), got {actions!r}")
    places = space_looks(FIRST_LOOK, horizon, looks)
    logger = {**plan.policies[0], "floor": floor}
    runs = {
        name: LoggedRuns(world, make_player(logger, world), places, alpha, seed)
        for name, world in plan.worlds.items()
    }
    with open_report(progress) as report:
        numbers = play_all(runs, replications, report)
    return Coverage(
        worlds={name: repr(world) for name, world in plan.worlds.items()},
        policy=next(iter(runs.values())).player.name,
        floor=float(floor),
        alpha=alpha,
        replications=replications,
        seed=seed,
        intervals=pl.concat([_to_frame(name, places, each) for name, each in numbers.items()]),
        summary=pl.DataFrame(
            [row for name, each in numbers.items() for row in summarize(name, each)],
            infer_schema_length=None,
        ),
    )


def summarize(world: str, numbers: Floats) -> list[dict[str, Cell]]:
    """Return one row for each estimator, from (estimators, R, P, looks, 4) numbers.

    An interval that could not be computed counts as one that misses.
    """
    truth, value, low, high = (numbers[..., i] for i in (TRUTH, VALUE, LOW, HIGH))
    is_covered = (low <= truth) & (truth <= high)  # (estimators, R, P, looks)
    rows: list[dict[str, Cell]] = []
    for e, name in enumerate(ESTIMATORS):
        every_look = is_covered[e].all(axis=-1).mean(axis=-1)  # (R,): mean over policies
        errors = (value - truth)[e, ..., -1]
        has_value = bool(np.isfinite(errors).all())
        rows.append(
            {
                "world": world,
                "estimator": name,
                "every look": float(every_look.mean()),
                "standard error": standard_error(every_look),
                "last look": float(is_covered[e, ..., -1].mean()),
                "width": float((high - low)[e, ..., -1].mean()),
                "bias": float(errors.mean()) if has_value else None,
                "rms error": math.sqrt(np.mean(errors**2)) if has_value else None,
            }
        )
    return rows


def _name_drifts(drifts: str | Sequence[str] | None, horizon: int) -> dict[str, str]:
    """The text of each drift by its name."""
    if drifts is None:
        half = max(2, horizon // 2)
        return {
            "stationary": "stationary()",
            "abrupt": f"abrupt([{half}], flip=0.6)",
            "rotation": f"rotation({2.0 * math.pi!r})",
            "walk": f"walk({2.0 * math.sqrt(horizon)!r})",  # ends about 2 radians away
            "periodic": f"periodic({half})",
        }
    texts = [drifts] if isinstance(drifts, str) else list(drifts)
    if not texts:
        raise SettingError("coverage: at least one drift must be given")
    return {text: text for text in texts}


def _to_frame(world: str, looks: Places, numbers: Floats) -> pl.DataFrame:
    """Return every interval in long form."""
    places = np.indices(numbers.shape[:-1], dtype=np.int32)
    estimator, replication, policy, look = (axis.ravel() for axis in places)
    truth, value, low, high = numbers.reshape(-1, 4).T
    columns = {
        "policy": np.array(JUDGED_POLICIES)[policy],
        "estimator": np.array(ESTIMATORS)[estimator],
        "replication": replication,
        "look": looks[look],
        "truth": truth,
        **{"value": value, "low": low, "high": high},
    }
    frame = pl.DataFrame(columns).with_columns(pl.col("value", "low", "high").fill_nan(None))
    return frame.select(pl.lit(world).alias("world"), pl.all())


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
            draw = self.world.draw(seed)
            log = log_decisions(self.player, draw, make_key("coverage", seed), r)
            judged.append(JudgedLog(log, judge_policies(draw)))
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
    count = make_counter(dict.fromkeys(runs, replications), report)
    chunks = [
        (name, range(first, min(first + REPLICATIONS_PER_CHUNK, replications)))
        for name in runs
        for first in range(0, replications, REPLICATIONS_PER_CHUNK)
    ]
    parts: dict[tuple[str, range], Floats] = {}
    for chunk, numbers in run_on_threads(lambda chunk: runs[chunk[0]].play(chunk[1]), chunks):
        parts[chunk] = numbers
        count(chunk[0], len(chunk[1]))
    return {
        name: np.concatenate([parts[chunk] for chunk in chunks if chunk[0] == name], axis=1)
        for name in runs
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

    The truth is the mean of the true values of all decisions up to the look, minus the values of
    the policy that logged for the gain. Confidence sequences are intervals without a value.
    """
    rows = _make_rows(judged)
    models = [_bound_models(judged, bound) for bound in MODEL_BOUNDS]
    numbers = np.full((len(ESTIMATORS), *rows.weights.shape[:2], len(looks), 4), np.nan)
    numbers[..., TRUTH] = _find_truth(judged, looks)
    sums = ValueSums.make_empty(rows.weights.shape[:2])
    sequence = confidence_sequence.ConfidenceSequence()
    model_sequences = [confidence_sequence.make_sequence(UNIT_RANGE, each) for each in MODEL_BOUNDS]
    sequences = [sequence, *model_sequences]
    quantile = estimators.normal_quantile(alpha)
    start = 0
    for place, look in enumerate(looks.tolist()):
        part = _Rows(*(column[..., start:look] for column in rows))
        sums = sums.merge(ValueSums.from_rows(*part))
        sequence.update(part.rewards, part.weights)
        for each, model in zip(model_sequences, models, strict=True):
            terms = model.select(slice(start, look))
            confidence_sequence.update_with_model(each, part.rewards, part.weights, terms)
        start = look

        estimates: dict[str, tuple[Floats | float, Floats, Floats]] = {}
        for name, title in NORMAL_NAMES.items():
            value, error = estimators.estimate_values(name, sums)
            estimates[title] = (value, value - quantile * error, value + quantile * error)
        estimates[CRESSIE_READ] = _estimate_cressie_read(sums, largest_weight, alpha)
        estimates[SEQUENCE] = (np.nan, *sequence.bound_value(alpha))
        estimates[MODEL_SEQUENCE] = (np.nan, *confidence_sequence.bound_value(sequences, alpha))
        estimates[GAIN_SEQUENCE] = (np.nan, *confidence_sequence.bound_gain(sequences, alpha))
        for title, values in estimates.items():
            for number, found in zip((VALUE, LOW, HIGH), values, strict=True):
                numbers[ESTIMATORS.index(title), :, :, place, number] = found
    return numbers


def _find_truth(judged: Sequence[JudgedLog], looks: Places) -> Floats:
    """The true value that each estimator is to cover, (estimators, R, P, looks)."""
    values = np.stack([np.einsum("ptk,tk->pt", policies, log.means) for log, policies in judged])
    logged = np.stack([np.einsum("tk,tk->t", log.probabilities, log.means) for log, _ in judged])
    gains = values - logged[:, None]  # (R, P, T)
    truth = dict.fromkeys(ESTIMATORS, np.cumsum(values, axis=-1)[..., looks - 1] / looks)
    truth[GAIN_SEQUENCE] = np.cumsum(gains, axis=-1)[..., looks - 1] / looks
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
    weights = estimators.WeightRange(0.0, largest_weight)
    estimates = np.empty((3, *sums.rows.shape))
    for r, p in np.ndindex(sums.rows.shape):
        one_log = estimators.CressieReadSums.from_value_sums(sums.select(r).select(p))
        ends = estimators.bound_cressie_read(one_log, UNIT_RANGE, weights, alpha)
        estimates[:, r, p] = estimators.estimate_cressie_read(one_log, weights), *ends
    return estimates[0], estimates[1], estimates[2]


def _bound_models(judged: Sequence[JudgedLog], bound: float) -> BoundedModel:
    """The model terms of all policies for one bound, (R, P, T) each."""
    terms = []
    for log, policies in judged:
        decisions, arms = log.probabilities.shape
        rest = (log.probabilities.ravel(), arms * np.arange(decisions + 1), log.chosen)
        make_model = partial(confidence_sequence.ActionModel, log.predictions.ravel())
        models = [make_model(policy.ravel(), *rest) for policy in policies]
        bounded = [confidence_sequence.bound_model(each, UNIT_RANGE, bound) for each in models]
        terms.append(np.array(bounded))  # (P, 2, 3, T)
    rewards, complements = np.moveaxis(np.stack(terms), (2, 3), (0, 1))  # (3, R, P, T) each
    return BoundedModel(SideModel(*rewards), SideModel(*complements))
