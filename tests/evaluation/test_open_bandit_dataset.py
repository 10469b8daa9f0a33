"""The Open Bandit Dataset: the log of a random policy tells the click rate of another policy.

The small sample has 10 000 decisions of a random policy and 10 000 of Bernoulli Thompson sampling
(bts) for each campaign, made in the same week. The random log estimates what bts earns, and the
log of bts has the true click rate.

The probabilities of bts depend on the position and the time. Here π(item | position) is the share
of the rows of bts at this position that show the item. This is its mean probability over time. The
mean of its logged propensity scores would be too large: a row logs the score of an item only if
the item was shown, so high scores are logged more often. These means add up to 1.7 to 3.7.
"""

import csv
from collections import Counter
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from windvane.evaluation import PolicyRecord, open_log
from windvane.evaluation.estimates.result import PolicyResult
from windvane.types import Floats


class Columns(NamedTuple):
    """Some columns of a log, in order."""

    times: Floats
    clicks: Floats
    items: list[str]
    positions: list[str]
    scores: Floats  # logged probabilities of the items


@pytest.fixture
def folder() -> Path:
    spec = find_spec("obp")
    if spec is None or spec.origin is None:
        pytest.skip("the data is in the package obp: pip install --no-deps obp==0.4.1")
    return Path(spec.origin).parent / "dataset" / "obd"


def read_log(folder: Path, campaign: str) -> Columns:
    """Read a log, and compare it with the file that the csv module reads."""
    (batch,) = open_log([folder / campaign]).iterate_batches()
    assert batch.read_features is not None
    ids = [action.id for action in batch.read_features(0).actions]
    with (folder / campaign / f"{campaign}.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    items = [ids[place] for place in batch.chosen]
    assert items == [row["item_id"] for row in rows]
    assert batch.rewards.tolist() == [float(row["click"]) for row in rows]
    assert batch.chosen_probabilities.tolist() == [float(row["propensity_score"]) for row in rows]
    assert batch.read_features(7).context[0]["position"] == rows[7]["position"]
    return Columns(
        batch.times,
        batch.rewards,
        items,
        [row["position"] for row in rows],
        batch.chosen_probabilities,
    )


def estimate(log: Columns, weights: Floats) -> PolicyResult:
    largest = 1 / log.scores.min()
    record = PolicyRecord("policy", reward_range=(0, 1), weight_range=(0, largest))
    record.add(log.times, log.clicks, weights)
    return record.summarize()


@pytest.mark.parametrize("campaign", ["all", "men", "women"])
def test_a_random_log_estimates_the_click_rate_of_another_policy(
    folder: Path, campaign: str
) -> None:
    log = read_log(folder / "random", campaign)
    other = read_log(folder / "bts", campaign)
    shown = Counter(zip(other.items, other.positions, strict=True))
    rows = Counter(other.positions)
    pairs = zip(log.items, log.positions, strict=True)
    policy = np.array([shown[item, position] / rows[position] for item, position in pairs])
    result = estimate(log, policy / log.scores)
    truth = other.clicks.mean()
    for name in ("snips", "cressie_read"):
        interval = result.estimates[name].interval
        assert interval is not None
        assert interval.low < truth < interval.high
    assert result.sequence.low < truth < result.sequence.high
    snips = result.estimates["snips"]
    assert snips.error is not None
    assert snips.error < 0.0015  # the click rates are 0.004 to 0.007
    assert result.diagnostics.mean_weight_z is not None
    assert abs(result.diagnostics.mean_weight_z) < 3
    if campaign == "men":  # here the random policy itself earns clearly less
        logged = estimate(log, np.ones(len(log.clicks))).estimates["ips"].interval
        assert logged is not None
        assert logged.high < truth


def test_weights_that_are_too_large_are_reported(folder: Path) -> None:
    """The log of bts shows some items with a probability of 10⁻⁶: it tells little of others."""
    log = read_log(folder / "bts", "women")
    result = estimate(log, 1 / 46 / log.scores)
    assert any("effective sample size" in warning for warning in result.warnings)
    assert result.sequence == (0, 1)
