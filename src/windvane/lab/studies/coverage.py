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
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import polars as pl

from windvane import validation
from windvane._terminal.tables import Cell
from windvane.errors import SettingError
from windvane.lab.output.panels import read_json, write_json
from windvane.lab.output.tables import standard_error
from windvane.lab.progress import Report, open_report
from windvane.lab.studies.coverage_runs import (
    ESTIMATORS,
    HIGH,
    JUDGED_POLICIES,
    LOW,
    TRUTH,
    VALUE,
    LoggedRuns,
    play_all,
    space_looks,
)
from windvane.lab.studies.plan import Plan, make_plan, make_player
from windvane.lab.studies.result import StudyResult, count_noun
from windvane.persistence import replace_file
from windvane.types import Floats, Places

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LOGGING_POLICY = "discount(0.99) * randomized(half_normal(posterior(0.5)))"
FIRST_LOOK = 100  # decisions
COVERAGE_FILE = "coverage.json"
INTERVALS_FILE = "intervals.parquet"


@dataclass(frozen=True, eq=False, repr=False)
class Coverage(StudyResult):
    """The result of `coverage`.

    `summary` has one row for each estimator under each drift, over all replications and judged
    policies: drift, estimator, every look (the share of runs in which the interval contained the
    truth at every look), standard error (of this share), last look (the share at the last look),
    width (mean, at the last look), bias and rms error (of the value, at the last look; null for a
    confidence sequence, which has no value).
    `intervals` has one row for each look: drift, policy, estimator, replication, look (decisions so
    far), truth, value, low, high.
    """

    settings: dict[str, Any]  # worlds, policy, floor, alpha, replications, seed
    intervals: pl.DataFrame
    summary: pl.DataFrame

    picture = "coverage"

    @property
    def tables(self) -> dict[str, pl.DataFrame]:
        """The summary."""
        return {"summary": self.summary}

    def describe(self) -> str:
        """Return one line that says what was played."""
        counts = (
            count_noun(len(self.settings["worlds"]), "drift"),
            count_noun(self.summary["estimator"].n_unique(), "estimator"),
            count_noun(self.settings["replications"], "replication"),
        )
        return f"{', '.join(counts)}, seed {self.settings['seed']}"

    def to_dict(self) -> dict[str, Any]:
        """Return the settings and results (the rows of `summary`)."""
        return {**self.settings, "results": self.summary.to_dicts()}

    def figure(self) -> "Figure":
        """Draw coverage and width of every estimator, one column of panels a drift."""
        from windvane.lab.output.figures import draw_coverage

        return draw_coverage(self.summary, self.settings["alpha"])

    def write(self, folder: Path) -> None:
        """Write intervals.parquet and coverage.json."""
        write_json(folder / COVERAGE_FILE, self.to_dict())
        with replace_file(folder / INTERVALS_FILE) as draft:
            self.intervals.write_parquet(draft)

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read the files that `save` or `windvane coverage` wrote."""
        document = read_json(folder / COVERAGE_FILE)
        summary = pl.DataFrame(document.pop("results"), infer_schema_length=None)
        return cls(document, pl.read_parquet(folder / INTERVALS_FILE), summary)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Coverage) or not super().__eq__(other):
            return NotImplemented if type(other) is not type(self) else False
        return self.intervals.equals(other.intervals)

    __hash__ = None


def coverage(
    replications: int = 200,
    horizon: int = 5000,
    dim: int = 5,
    arms: int = 5,
    drifts: str | Sequence[str] | None = None,
    *,
    actions: str = "fixed()",
    policy: str = LOGGING_POLICY,
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
    randomized(half_normal(...)); with probability `floor` it chooses any arm. An estimator is
    looked at `looks` times, from 100 decisions to the horizon, evenly spaced on a log scale.
    Intervals may miss with probability `alpha`. Rewards are 0 or 1. `progress` is that of
    `simulate`.

    >>> from windvane import lab
    >>> result = lab.coverage(replications=4, horizon=400, drifts="stationary()", looks=3)
    >>> result
    <Coverage: 1 drift, 10 estimators, 4 replications, seed 1>
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
    plan = _plan_logs(sizes, _name_drifts(drifts, horizon), actions, policy)
    settings = {
        "worlds": {name: repr(world) for name, world in plan.worlds.items()},
        "policy": policy,
        "floor": float(floor),
        "alpha": alpha,
        "replications": replications,
        "seed": seed,
    }
    places = space_looks(FIRST_LOOK, horizon, looks)
    table = {**plan.policies[0], "floor": floor}
    runs = {
        name: LoggedRuns(world, make_player(table, world), places, alpha, seed)
        for name, world in plan.worlds.items()
    }
    with open_report(progress) as report:
        numbers = play_all(runs, replications, report)
    return Coverage(
        settings,
        pl.concat([_to_frame(name, places, values) for name, values in numbers.items()]),
        pl.DataFrame(
            [row for name, values in numbers.items() for row in summarize(name, values)],
            infer_schema_length=None,
        ),
    )


def summarize(drift: str, numbers: Floats) -> list[dict[str, Cell]]:
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
                "drift": drift,
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


def _plan_logs(
    sizes: Mapping[str, int], drifts: Mapping[str, str], actions: str, policy: str
) -> Plan:
    """Plan one world with clicks for each drift, and the policy that logs in all of them."""
    settings = {**sizes, "actions": actions, "reward": "bernoulli()"}
    plan = make_plan({name: {**settings, "drift": drift} for name, drift in drifts.items()}, policy)
    if any(world.action_set for world in plan.worlds.values()):
        raise SettingError(f"coverage: actions must be fixed() or fresh(), got {actions!r}")
    return plan


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


def _to_frame(drift: str, looks: Places, numbers: Floats) -> pl.DataFrame:
    """Return every interval in long form."""
    shape = numbers.shape[:-1]
    estimator, replication, policy, look = (
        axis.ravel() for axis in np.indices(shape, dtype=np.int32)
    )
    frame = pl.DataFrame(
        {
            "policy": np.array(JUDGED_POLICIES)[policy],
            "estimator": np.array(ESTIMATORS)[estimator],
            "replication": replication,
            "look": looks[look],
            "truth": numbers[..., TRUTH].ravel(),
            "value": numbers[..., VALUE].ravel(),
            "low": numbers[..., LOW].ravel(),
            "high": numbers[..., HIGH].ravel(),
        }
    )
    return frame.select(pl.lit(drift).alias("drift"), pl.all()).with_columns(
        pl.col("value", "low", "high").fill_nan(None)
    )
