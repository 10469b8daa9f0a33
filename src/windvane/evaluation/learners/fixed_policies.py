"""Fixed policies: the probabilities of a rule that never learns."""

import numpy as np

from windvane.errors import SettingError
from windvane.evaluation.learners.candidates import FixedCandidate
from windvane.evaluation.log_batch import LogBatch
from windvane.types import Booleans, Floats, Places


def compute_probabilities(candidate: FixedCandidate, batch: LogBatch) -> Floats:
    """The probability of every action of every row under a fixed policy, (all actions,).

    If no action of a row can be chosen by the rule, the probabilities of the row are 0.
    """
    if candidate.rule == "logged":
        return batch.probabilities
    if candidate.own is not None:
        return candidate.own.compute(batch)
    if candidate.rule == "random":
        counts = np.add.reduceat(batch.is_eligible, batch.starts[:-1]).astype(np.float64)
        shares = np.divide(1.0, counts, out=np.zeros_like(counts), where=counts > 0)
        return np.repeat(shares, batch.action_counts) * batch.is_eligible
    probabilities = np.zeros(batch.is_eligible.size)
    if candidate.rule == "first":
        probabilities[_find_first_eligible(batch)] = 1.0
    else:
        probabilities[_find_action(batch, candidate.action)] = 1.0
    return probabilities


def compute_weights(candidate: FixedCandidate, batch: LogBatch, rows: Places) -> Floats:
    """π(a)/p of the logged action of some rows, (n,); `logged` needs no probabilities."""
    if candidate.rule == "logged":
        return np.ones(rows.size)
    places = batch.starts[:-1][rows] + batch.chosen[rows]
    if candidate.rule == "first":
        first = np.zeros(batch.is_eligible.size, np.bool_)
        first[_find_first_eligible(batch)] = True
        own = first[places].astype(np.float64)
    else:
        own = compute_probabilities(candidate, batch)[places]
    weights: Floats = own / batch.probabilities[places]
    return weights


def find_unsupported(
    candidate: FixedCandidate, batch: LogBatch, rows: Places, impossible: Booleans
) -> Floats:
    """The probability of actions that were logged with probability 0, for some rows, (n,)."""
    if candidate.rule == "logged":
        return np.zeros(rows.size)
    probabilities = np.nan_to_num(compute_probabilities(candidate, batch))
    sums = np.add.reduceat(probabilities * impossible, batch.starts[:-1])
    return sums[rows]


def _find_first_eligible(batch: LogBatch) -> Places:
    """The places of the baseline of each row, or of its first action that was not excluded."""
    baselines = batch.starts[:-1]
    if batch.baselines is not None:
        baselines = baselines + batch.baselines
    if batch.is_eligible[baselines].all():
        return baselines
    eligible = np.flatnonzero(batch.is_eligible)
    following = np.searchsorted(eligible, batch.starts[:-1])
    is_free = batch.is_eligible[baselines]
    candidates = eligible[np.minimum(following, eligible.size - 1)] if eligible.size else eligible
    inside = (following < eligible.size) & (candidates < batch.starts[1:])
    return np.where(is_free, baselines, candidates)[inside]


def _find_action(batch: LogBatch, action: str) -> Places:
    """The places of the action with an id, in the rows that offered it."""
    if batch.read_features is None:
        raise SettingError(
            f"action={action}: {batch.source} has no ids of actions; use first, random or logged"
        )
    places = []
    for row, start in enumerate(batch.starts[:-1].tolist()):
        for place, offered in enumerate(batch.read_features(row).actions, start):
            if offered.id == action and batch.is_eligible[place]:
                places.append(place)
                break
    return np.array(places, np.int64)
