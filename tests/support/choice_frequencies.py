"""Whether choices follow the probabilities with which they were answered."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from scipy.stats import chi2


def compare_choices(answers: Iterable[Mapping[str, Any]]) -> float:
    """Return the p-value of Pearson's test of the choices in the answers to rank requests.

    The differences d between the counts of the actions and the sums of their probabilities p have
    the covariance C = Σ diag(p) − ppᵀ, whatever was learned in between, because each choice is
    drawn with the probabilities of its own answer. For many answers dᵀC⁺d has a chi-square
    distribution with as many degrees of freedom as C has rank.
    """
    places: dict[str, int] = {}
    rows: list[list[tuple[int, float]]] = []
    chosen: list[int] = []
    for answer in answers:
        pairs = [(each["id"], each["probability"]) for each in answer["ranking"]]
        rows.append([(places.setdefault(name, len(places)), share) for name, share in pairs])
        chosen.append(places[answer["rewardActionId"]])
    difference = np.bincount(chosen, minlength=len(places)).astype(np.float64)
    covariance = np.zeros((len(places), len(places)))
    for row in rows:
        of_row, shares = np.array([place for place, _ in row]), np.array([p for _, p in row])
        difference[of_row] -= shares
        covariance[np.ix_(of_row, of_row)] += np.diag(shares) - np.outer(shares, shares)
    rank = int(np.linalg.matrix_rank(covariance, hermitian=True))
    statistic = difference @ np.linalg.pinv(covariance, hermitian=True) @ difference
    return float(chi2.sf(statistic, rank))
