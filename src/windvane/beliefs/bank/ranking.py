"""Rank the actions of a request: predict each one, explore, and compute the probabilities."""

import math
from typing import NamedTuple

import numpy as np

from windvane import _random
from windvane._numba.compilation import compiled
from windvane._random import ANY_ARM_PLACE, FIRST_FREE_PLACE, MIX_PLACE, TIE_PLACE
from windvane.beliefs.bank.feature_parts import PackedSides, Scales, make_parts
from windvane.beliefs.bank.layout import Bank, BankRules, compute_noise
from windvane.beliefs.bank.prediction import predict_actions
from windvane.beliefs.full.choosing import choose_best
from windvane.beliefs.full.layout import HALF_NORMAL
from windvane.beliefs.full.propensities import compute_envelope_shares, mix_evenly, score_at_level
from windvane.types import Floats, Places


class Ranking(NamedTuple):
    """The chosen one of some actions, and what is known of each of them."""

    chosen: int  # its place among these actions
    probabilities: Floats  # (K,) with which each is chosen
    means: Floats  # (K,) the predicted rewards
    deviations: Floats  # (K,) the standard deviations of the predictions


@compiled
def rank_actions(
    rules: BankRules,
    bank: Bank,
    leader_sums: Floats,
    scales: Scales,
    sides: PackedSides,
    places: Places,
    leader: int,
    at: float,
    key: int,
    round_: int,
) -> Ranking:
    """Choose among the actions at `places`, by the belief that leads; `leader_sums` is its column.

    The score of an action is its mean plus Z times its deviation, with one level Z for all actions:
    the absolute value of a normal draw, times `share`. With the probability `floor` an action is
    chosen uniformly at random.
    """
    parts = make_parts(sides, scales)
    all_means, all_variances = predict_actions(rules, bank, leader_sums, leader, at, parts)
    noise = compute_noise(bank, leader)
    means, deviations = np.empty(places.size), np.empty(places.size)
    for k in range(places.size):
        means[k] = all_means[places[k]]
        deviations[k] = noise * math.sqrt(all_variances[places[k]])
    shares = compute_envelope_shares(means, deviations, rules.share, HALF_NORMAL)
    probabilities = mix_evenly(shares, rules.floor)
    start = _random.start_round(np.uint64(key), round_)
    draw = np.empty(1)
    _random.fill_normals(start, FIRST_FREE_PLACE, draw)
    scores = score_at_level(means, rules.share * abs(draw[0]), deviations)
    chosen = choose_best(scores, _random.uniform(start, TIE_PLACE))
    if _random.uniform(start, MIX_PLACE) < rules.floor:
        chosen = int(_random.uniform(start, ANY_ARM_PLACE) * scores.size)
    return Ranking(chosen, probabilities, means, deviations)
