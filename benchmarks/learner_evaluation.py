"""What evaluations say about learners, against what the learners earn live.

In each world a logger decides and its log is evaluated: a shadow of every learner follows the log.
The truth is what the same learner earns if it decides itself in the same world, the mean over
several runs with other contexts and other rewards. It has seen the rewards of its own choices, not
those of the log, and that is an error which no interval of an evaluation contains. What an interval
promises is the shadow's own value, which is known exactly in a world whose means are known.

The worlds offer four actions to four kinds of visitors, who have one favourite each. In the world
`still` nothing changes, in `abrupt` all tastes are dealt out again half-way, and in `slow` they
move from the first to the last decision. In `fashion` all visitors have the same favourite, which
is dealt out again every 100 decisions: there a half-life of 15 minutes is better than the default.

The table has one row for each world and logger and one for all: the mean distances of the value
from what the shadow earns exactly and from what the learner earns live, rank correlation (of values
and what is earned live, a mean over logs), verdicts (how often a learner was called better or worse
than the default one), false verdicts (the share of them with the wrong sign), recommended (how
often another learner than the default one was), reward of following (how much more than the
default learner the recommended one earns live, a mean over logs) and its standard error.

    python -m benchmarks.learner_evaluation --logs 1 --runs 3 --seed 2101
"""

import argparse
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import polars as pl

from windvane._terminal.tables import format_table
from windvane.errors import SettingError
from windvane.evaluation import log_batch
from windvane.evaluation.evaluator import evaluate
from windvane.evaluation.learners.candidates import (
    LearnerCandidate,
    PolicyCandidate,
    read_candidate,
)
from windvane.evaluation.learners.feature_blocks import split_blocks
from windvane.evaluation.learners.shadow import make_shadow, open_candidate
from windvane.evaluation.log_batch import BadRow, DecisionFeatures, LogBatch
from windvane.lab.studies.result import standard_error
from windvane.types import Floats, Places

WORLDS = ("still", "abrupt", "slow", "fashion")
LOGGERS = {"uniform": 1.0, "20 % exploration": 0.2, "2 % exploration": 0.02}  # how much it explores
REFERENCE = "learner"
LEARNERS = (  # a log of 3000 decisions, one a minute, has 50 hours
    REFERENCE,
    "halfLife=never",
    "halfLife=12 hours",
    "halfLife=4 hours",
    "halfLife=1 hour",
    "halfLife=15 minutes",
    "crossings=none",
    "halfLife=4 hours crossings=none",
    "full(keep() * epsilon(0.02), dim=32)",
    "full(half_life(14400) * epsilon(0.02), dim=32)",
    "full(half_life(3600) * epsilon(0.02), dim=32)",
)
ACTIONS = 4
KINDS = 4  # of visitors
TIMES_OF_DAY = 2  # a feature that means nothing
SECONDS_PER_ROW = 60.0
LEAST_MEAN, LARGEST_MEAN = 0.05, 0.3  # of actions that are no favourites
FAVOURITE = 0.4  # what a favourite earns more
FASHION_ROWS = 100  # for which a fashion lasts
ALPHA = 0.05  # over all learners of one log


def compare_with_live(
    logs: int, horizon: int, runs: int, learners: Sequence[str] = LEARNERS, seed: int = 1
) -> pl.DataFrame:
    """Compare what evaluations say about learners with what the learners earn live.

    There are `logs` logs of each world and logger, with `horizon` decisions each. A learner plays
    `runs` times live in each world. All learners are compared with the first one.
    """
    rows: list[dict[str, object]] = []
    for place, world in enumerate(WORLDS):
        means = draw_means(world, horizon, np.random.default_rng([seed, place]))
        truth = {}
        for text in learners:
            live = [play_live(text, means, [seed, place, 1, run]).value for run in range(runs)]
            truth[text] = float(np.mean(live))
        for number, (logger, share) in enumerate(LOGGERS.items()):
            for k in range(logs):
                start = [seed, place, 2 + number, k]
                log = play_live(f"explorationPercentage={share}", means, start)
                cell = {"world": world, "logger": logger, "log": len(rows) // len(learners)}
                rows += judge_log(log, learners, truth, cell)
    return pl.DataFrame(rows, infer_schema_length=None)


def draw_means(world: str, horizon: int, rng: np.random.Generator) -> Floats:
    """The mean reward of every action for every kind of visitor at every time, (T, kinds, K)."""

    def deal() -> Floats:
        means = rng.uniform(LEAST_MEAN, LARGEST_MEAN, (KINDS, ACTIONS))
        means[np.arange(KINDS), rng.integers(ACTIONS, size=KINDS)] += FAVOURITE
        return means

    if world == "fashion":
        fashions = [[deal()[0]] * KINDS for _ in range(0, horizon, FASHION_ROWS)]
        return np.repeat(fashions, FASHION_ROWS, axis=0)[:horizon]
    first, last = deal(), deal()
    share = np.zeros(horizon)
    if world == "abrupt":
        share[horizon // 2 :] = 1.0
    elif world == "slow":
        share = np.linspace(0.0, 1.0, horizon)
    means: Floats = (1 - share)[:, None, None] * first + share[:, None, None] * last
    return means


class WorldLog:
    """What a policy did in a world: its log, in memory, and what is true of it.

    `means` are the mean rewards of all actions, (T, K), and `value` is the mean of Σ_a π(a) μ(a).
    """

    description = "a simulated log"
    has_fitted_probabilities = False
    has_times = True
    notes: Mapping[str, int] = {}
    bad_rows: Sequence[BadRow] = ()
    bad_row_count = 0

    def __init__(self, batch: LogBatch, means: Floats, value: float) -> None:
        self._batch, self.means, self.value = batch, means, value

    def iterate_batches(self) -> Iterator[LogBatch]:
        """All decisions at once."""
        yield self._batch


def read_learner(text: str) -> LearnerCandidate | PolicyCandidate:
    """Read a candidate that learns."""
    candidate = read_candidate(text)
    if not isinstance(candidate, LearnerCandidate | PolicyCandidate):
        raise SettingError(f"{text} does not learn")
    return candidate


def play_live(text: str, means: Floats, seed: Sequence[int]) -> WorldLog:
    """Let a policy decide and learn in a world, from nothing."""
    candidate = read_learner(text)
    rng = np.random.default_rng(seed)
    horizon = len(means)
    kinds, draws = rng.integers(KINDS, size=horizon), rng.random((horizon, 2))
    batch = make_batch(kinds)
    policy = open_candidate(
        candidate, log_batch.LogFacts(horizon, ACTIONS, 0.5), int(rng.integers(2**31))
    )
    chosen, rewards = batch.chosen.tolist(), batch.rewards.tolist()
    probabilities, value = batch.probabilities.reshape(horizon, ACTIONS), 0.0
    for block in split_blocks(batch, np.arange(horizon)):
        policy.open_block(block)
        for place, row in enumerate(block.rows.tolist()):
            at = SECONDS_PER_ROW * row
            own = policy.view_row(place, at).probabilities
            expected = means[row, kinds[row]]
            value += float(own @ expected)
            action = int(np.searchsorted(np.cumsum(own), draws[row, 0] * own.sum(), "right"))
            chosen[row] = action = min(action, ACTIONS - 1)
            probabilities[row] = own
            rewards[row] = float(draws[row, 1] < expected[action])
            policy.learn_row(place, action, rewards[row], at)
    logged = batch._replace(chosen=np.array(chosen), rewards=np.array(rewards))
    return WorldLog(logged, means[np.arange(horizon), kinds], value / horizon)


def value_shadows(learners: Sequence[str], log: WorldLog) -> list[float]:
    """What the shadows of an evaluation earn on a log, exactly: the mean of Σ_a π(a) μ(a)."""
    facts = log_batch.survey_log(log, log_batch.Period()).facts
    shadows = [make_shadow(read_learner(text), facts, seed=0) for text in learners]
    values = np.zeros(len(learners))
    for batch in log.iterate_batches():
        for block in split_blocks(batch, np.arange(batch.size)):
            means = log.means[block.rows].ravel()
            for place, shadow in enumerate(shadows):
                views = shadow.view_block(block, int(block.rows[0]))
                values[place] += views.probabilities @ means / batch.size
    return values.tolist()


def make_batch(kinds: Places) -> LogBatch:
    """Decisions that still have to be made, for visitors of some kinds."""
    size = len(kinds)
    actions = [log_batch.LoggedAction(f"a{k}", []) for k in range(ACTIONS)]

    def read_features(row: int) -> DecisionFeatures:
        return DecisionFeatures(
            [{"kind": f"k{kinds[row]}", "daytime": f"t{row % TIMES_OF_DAY}"}], actions
        )

    return LogBatch(
        event_ids=[str(row) for row in range(size)],
        times=SECONDS_PER_ROW * np.arange(size, dtype=np.float64),
        rewards=np.zeros(size),
        chosen=np.zeros(size, np.int64),
        starts=np.arange(0, ACTIONS * size + 1, ACTIONS),
        probabilities=np.zeros(ACTIONS * size),
        is_eligible=np.ones(ACTIONS * size, np.bool_),
        multiplicities=np.ones(size),
        is_defaulted=np.zeros(size, np.bool_),
        is_degraded=np.zeros(size, np.bool_),
        lines=np.arange(1, size + 1),
        source="a simulated world",
        read_features=read_features,
    )


def judge_log(
    log: WorldLog, learners: Sequence[str], truth: Mapping[str, float], cell: Mapping[str, object]
) -> list[dict[str, object]]:
    """Evaluate all learners on a log, and compare with the truth; the first is the reference."""
    level = ALPHA / (len(learners) - 1)
    result = evaluate(log, learners, reference=learners[0], level=level)
    rows: list[dict[str, object]] = []
    for text, shadow in zip(learners, value_shadows(learners, log), strict=True):
        gain = None if text == learners[0] else result.compare(text)
        policy = result[text]
        rows.append(
            {
                **cell,
                "learner": text,
                "truth": truth[text],
                "shadow": shadow,
                "value": policy.value.value,
                "low": policy.sequence.low,
                "high": policy.sequence.high,
                "verdict": "reference" if gain is None else gain.verdict,
                "gain": 0.0 if gain is None else gain.value,
                "true gain": truth[text] - truth[learners[0]],
            }
        )
    return rows


def summarize(estimates: pl.DataFrame) -> pl.DataFrame:
    """One row for each world and logger, and one for all."""
    rows = []
    for (world, logger), part in estimates.group_by("world", "logger", maintain_order=True):
        rows.append({"world": world, "logger": logger, **_summarize(part)})
    rows.append({"world": "all", "logger": "all", **_summarize(estimates)})
    return pl.DataFrame(rows, infer_schema_length=None)


def _summarize(part: pl.DataFrame) -> dict[str, float | int | None]:
    from scipy.stats import spearmanr

    judged = part.filter(pl.col("verdict").is_in(["better", "worse"]))
    sign = pl.when(pl.col("verdict") == "better").then(1.0).otherwise(-1.0)
    wrong = judged.filter(pl.col("true gain") * sign < 0)
    orders, followed, changes = [], [], 0
    for _, log in part.group_by("log", maintain_order=True):
        orders.append(float(spearmanr(log["value"], log["truth"]).statistic))
        better = log.filter(pl.col("verdict") == "better").sort("gain")
        changes += len(better) > 0
        followed.append(float(better["true gain"][-1]) if len(better) else 0.0)
    shadow, live = (float(np.abs(part["value"] - part[by]).mean()) for by in ("shadow", "truth"))
    return {
        "error to shadow": shadow,
        "error to live": live,
        "rank correlation": float(np.mean(orders)),
        "verdicts": len(judged),
        "false verdicts": len(wrong) / len(judged) if len(judged) else 0.0,
        "recommended": changes,
        "reward of following": float(np.mean(followed)),
        "standard error": standard_error(np.array(followed)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--logs", type=int, default=5, help="of each world and logger")
    parser.add_argument("--horizon", type=int, default=3000, help="decisions in a log")
    parser.add_argument("--runs", type=int, default=5, help="live, of each world and learner")
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    estimates = compare_with_live(chosen.logs, chosen.horizon, chosen.runs, seed=chosen.seed)
    print(format_table(summarize(estimates).to_dicts()))


if __name__ == "__main__":
    main()
