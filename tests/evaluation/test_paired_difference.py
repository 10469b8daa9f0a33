"""Pairs of policies: the formula as written, coverage at every look, and agreement."""

import numpy as np
import pytest

from logged_worlds import ACTIONS, LoggedRuns, draw_runs
from naive_estimators import joint_lower_bound
from simulated_log import MemoryLog, simulate_log
from windvane.errors import SettingError
from windvane.evaluation import Interval, evaluate
from windvane.evaluation.estimates.confidence_sequence import (
    ABOVE,
    BELOW,
    ActionModel,
    compute_log_wealth,
)
from windvane.evaluation.estimates.estimators import UNIT_RANGE
from windvane.evaluation.estimates.paired_difference import BOUNDS, PairRecord, PairTerms
from windvane.evaluation.estimates.result import Gain
from windvane.types import Floats

RUNS, ROWS, LOOK_EVERY_ROWS = 400, 600, 20


def draw_pair(n: int, seed: int, absent: int = 0) -> tuple[Floats, ActionModel, ActionModel]:
    """Rewards, and two policies with large and small weights.

    In the first `absent` decisions the action of the first policy was not offered.
    """
    rng = np.random.default_rng(seed)
    logged = 0.02 / ACTIONS + 0.98 * rng.dirichlet(np.full(ACTIONS, 0.3), n)
    starts = ACTIONS * np.arange(n + 1)
    chosen = (logged.cumsum(axis=1)[:, :-1] < rng.random((n, 1))).sum(axis=1)
    models = []
    for _ in range(2):
        policy = rng.dirichlet(np.full(ACTIONS, 0.3), n).ravel()
        predictions = rng.uniform(-0.3, 1.3, ACTIONS * n)
        models.append(ActionModel(predictions, policy, logged.ravel(), starts, chosen))
    models[0].policy_probabilities[: ACTIONS * absent] = 0.0
    return rng.random(n), models[0], models[1]


def compute_naively(
    reward: float, first: ActionModel, second: ActionModel, i: int, chosen: int, k: float
) -> float:
    """X as it is written, for rewards in [0, 1]."""
    part = slice(ACTIONS * i, ACTIONS * (i + 1))
    logged, total, q = first.logged_probabilities[part], 0.0, []
    for a in range(ACTIONS):
        place = part.start + a
        d = first.policy_probabilities[place] - second.policy_probabilities[place]
        guess = min(1.0, max(0.0, (first.predictions[place] + second.predictions[place]) / 2))
        if d > 0:
            q.append(min(guess, k * logged[a] / d))
        else:
            q.append(max(guess, 1 - k * logged[a] / abs(d)) if d < 0 else guess)
        total += d * q[-1]
    place = part.start + chosen
    w_first = first.policy_probabilities[place] / logged[chosen]
    w_second = second.policy_probabilities[place] / logged[chosen]
    return float((w_first - w_second) * (reward - q[chosen]) + total)


@pytest.mark.parametrize("k", BOUNDS)
def test_the_terms_are_those_of_the_formula_with_its_mean_and_floor(k: float) -> None:
    rewards, first, second = draw_pair(200, seed=1, absent=20)
    above = PairTerms(rewards, first, second, UNIT_RANGE, 2).compute(k, True)
    below = PairTerms(rewards, first, second, UNIT_RANGE, 2).compute(k, False)
    means = np.random.default_rng(2).random(ACTIONS)
    for i, chosen in enumerate(first.chosen.tolist()):
        assert above[i] == pytest.approx(compute_naively(rewards[i], first, second, i, chosen, k))
        assert below[i] == pytest.approx(compute_naively(rewards[i], second, first, i, chosen, k))
        part = slice(ACTIONS * i, ACTIONS * (i + 1))
        mean = 0.0
        for a, p in enumerate(first.logged_probabilities[part]):
            for reward, chance in ((0.0, 1 - means[a]), (1.0, means[a])):
                x = compute_naively(reward, first, second, i, a, k)
                assert x >= -(k + 1) - 1e-9
                mean += p * chance * x
        difference = first.policy_probabilities[part] - second.policy_probabilities[part]
        assert mean == pytest.approx(difference @ means)


@pytest.mark.parametrize("n", [1, 40, 300])
def test_the_interval_is_that_of_the_average_wealth_as_written(n: int) -> None:
    rewards, first, second = draw_pair(n, seed=n)
    record = PairRecord((0.0, 1.0))
    for part in np.array_split(np.arange(n), 2):
        inside = np.isin(np.arange(n), part)
        record.add(rewards[part], first.select(inside), second.select(inside))
    ends = []
    chosen = first.chosen.tolist()
    for one, other in ((first, second), (second, first)):
        sides = []
        for k in BOUNDS:
            terms = [compute_naively(rewards[i], one, other, i, chosen[i], k) for i in range(n)]
            sides.append((terms, k + 1))
        ends.append(joint_lower_bound(sides, 0.0, 0.025))
    expected = np.clip([ends[0], -ends[1]], -1, 1)
    gain = record.summarize(0.05)
    assert gain.interval == pytest.approx(tuple(expected), rel=1e-7, abs=1e-7)
    scores = [
        compute_naively(rewards[i], first, second, i, int(first.chosen[i]), np.inf)
        for i in range(n)
    ]
    assert gain.value == pytest.approx(np.mean(scores))


def make_policies(runs: LoggedRuns, part: slice) -> list[Floats]:
    """Two policies that follow what the runs have learned so far, (runs, n, actions) each."""
    predictions = runs.predictions[:, part]
    best = np.eye(ACTIONS)[predictions.argmax(axis=-1)]
    sharp = np.exp(8 * predictions)
    return [0.1 / ACTIONS + 0.9 * best, sharp / sharp.sum(axis=-1, keepdims=True)]


@pytest.mark.parametrize("is_drifting", [False, True])
def test_pairs_are_covered_at_every_look_under_drift_and_adaptive_logging(
    is_drifting: bool,
) -> None:
    runs = draw_runs(RUNS, ROWS, seed=11, is_drifting=is_drifting)
    times = np.arange(ROWS) / ROWS
    means = np.array([[0.3], [0.5], [0.6]]) + np.zeros((ACTIONS, ROWS))
    if is_drifting:
        means = 0.4 + 0.35 * np.sin(6 * times + np.array([[0.0], [2.0], [4.0]]))
        means[0, ROWS // 2 :] = 0.8 - means[0, ROWS // 2 :]
    first, second = make_policies(runs, slice(None))
    gaps = ((first - second) * means.T).sum(axis=-1)
    truth = np.cumsum(gaps, axis=1) / np.arange(1, ROWS + 1)
    sequences = PairRecord((0.0, 1.0))._sequences
    missed, missed_normal = np.zeros(RUNS, bool), np.zeros(RUNS, bool)
    scores = np.zeros((RUNS, ROWS))
    size = RUNS * LOOK_EVERY_ROWS
    unused, ones = np.zeros((RUNS, LOOK_EVERY_ROWS)), np.ones((RUNS, LOOK_EVERY_ROWS))
    for start in range(0, ROWS, LOOK_EVERY_ROWS):
        part, last = slice(start, start + LOOK_EVERY_ROWS), start + LOOK_EVERY_ROWS - 1
        shared = (
            runs.probabilities[:, part].ravel(),
            ACTIONS * np.arange(size + 1),
            runs.chosen[:, part].ravel().astype(np.int64),
        )
        guesses = runs.predictions[:, part].ravel()
        mine, other = (ActionModel(guesses, p[:, part].ravel(), *shared) for p in (first, second))
        terms = PairTerms(runs.rewards[:, part].ravel(), mine, other, UNIT_RANGE, 2)
        scores[:, part] = terms.compute(np.inf, True).reshape(RUNS, -1)
        for sequence, bound in zip(sequences, BOUNDS, strict=True):
            above, below = (terms.compute(bound, each).reshape(RUNS, -1) for each in (True, False))
            sequence.update_terms((unused, unused, above, below), ones)
        for side, mean in ((ABOVE, truth[:, last]), (BELOW, -truth[:, last])):
            missed |= compute_log_wealth(sequences, side, mean) >= np.log(2 / 0.05)
        if last >= 100:  # even if the normal interval is spared the first looks
            seen = scores[:, : last + 1]
            width = 1.96 * seen.std(axis=1) / np.sqrt(last)
            missed_normal |= np.abs(seen.mean(axis=1) - truth[:, last]) > width
    assert missed.mean() <= 0.05
    assert missed_normal.mean() > 0.1  # a normal interval of the same scores does not hold


def test_policies_that_agree_differ_by_exactly_nothing() -> None:
    log = simulate_log(600, seed=3)
    result = evaluate(
        log,
        ["learner", "halfLife=1 hour", "halfLife=60 minutes"],
        pairs=[("halfLife=1 hour", "halfLife=60 minutes")],
    )
    gain = result.compare("halfLife=1 hour", "halfLife=60 minutes")
    assert gain.value == 0.0
    assert gain.verdict == "not yet"
    assert gain.rows_needed is None
    apart = result.compare("halfLife=1 hour")
    back = result.compare("learner", "halfLife=1 hour")
    assert back.value == -apart.value
    assert back.interval == Interval(-apart.interval.high, -apart.interval.low)
    with pytest.raises(SettingError, match=r"the pair was not asked for: evaluate\(..., pairs="):
        evaluate(log, ["learner", "first", "random"]).compare("first", "random")
    with pytest.raises(SettingError, match="there is no candidate 'nobody'; there are learner"):
        evaluate(log, ["learner"], pairs=[("learner", "nobody")])


def test_a_log_that_knows_the_chosen_probability_only_gives_a_wider_interval() -> None:
    rewards, first, second = draw_pair(400, seed=5)
    known, unknown = PairRecord(), PairRecord()
    known.add(rewards, first, second)
    logged = np.full(ACTIONS * 400, np.nan)
    places = first.starts[:-1] + first.chosen
    logged[places] = first.logged_probabilities[places]
    unknown.add(
        rewards,
        first._replace(logged_probabilities=logged),
        second._replace(logged_probabilities=logged),
    )
    narrow, wide = known.summarize(0.05), unknown.summarize(0.05)
    assert wide.value == pytest.approx(narrow.value)
    assert wide.interval.low < narrow.interval.low < narrow.interval.high < wide.interval.high


def test_a_wider_range_of_rewards_scales_what_was_added_before() -> None:
    rewards, first, second = draw_pair(300, seed=6)
    scaled = 4 * rewards - 1  # in [−1, 3]
    scaled[:100] = rewards[:100]  # the range is found late
    found, given = PairRecord(), PairRecord((-1.0, 3.0))
    for part in (np.arange(300) < 100, np.arange(300) >= 100):
        for record in (found, given):
            record.add(scaled[part], first.select(part), second.select(part))
    mine, expected = found.summarize(0.05), given.summarize(0.05)
    assert found._sequences[0].range == (-1.0, float(scaled.max()))
    assert mine.value == pytest.approx(expected.value, abs=0.01)
    assert mine.interval == pytest.approx(expected.interval, abs=0.3)


def test_a_row_counts_as_often_as_its_multiplicity_says() -> None:
    rewards, first, second = draw_pair(200, seed=7)
    record, counts = PairRecord(), np.tile([1.0, 2.0, 3.0, 1.0], 50)
    record.add(rewards, first, second, counts)
    scores = PairTerms(rewards, first, second, UNIT_RANGE, 2).compute(np.inf, True)
    assert record.summarize(0.05).value == pytest.approx((counts * scores).sum() / counts.sum())


def test_a_random_policy_on_a_uniform_log_earns_exactly_what_was_logged() -> None:
    contexts, chosen, _, rewards = simulate_log(800, seed=8)._columns
    log = MemoryLog(contexts, chosen, np.full((800, 3), 1 / 3), rewards)
    result = evaluate(log, ["logged", "random", "first"])
    logged, random = result["logged"], result["random"]
    assert random.value.value == logged.value.value == pytest.approx(rewards.mean())
    assert random.estimates["dr"].value == pytest.approx(rewards.mean(), abs=1e-12)
    assert random.sequence == logged.sequence
    assert random.gain.value == pytest.approx(0.0, abs=1e-12)
    assert result["first"].sequence_kind == "dr"


@pytest.mark.parametrize(
    ("gain", "expected"),
    [
        (
            Gain(-0.101, Interval(-0.106, 0.018), "not yet", None),
            "0.101 less than X (between 0.106 less and 0.018 more), 25 % of its 0.400",
        ),
        (
            Gain(0.03, Interval(0.01, 0.05), "better", 0),
            "0.030 more than X (between 0.010 and 0.050 more), 7.5 % of its 0.400",
        ),
        (
            Gain(-0.03, Interval(-0.05, -0.01), "worse", 0),
            "0.030 less than X (between 0.050 and 0.010 less), 7.5 % of its 0.400",
        ),
    ],
)
def test_a_sentence_never_changes_sign(gain: Gain, expected: str) -> None:
    assert gain.describe("X", 0.4) == expected
    flipped = gain.flip().describe("Y")
    swap = {"less": "more", "more": "less"}
    start = " ".join(swap.get(word, word) for word in expected.split()[:2])
    assert flipped.startswith(start)
