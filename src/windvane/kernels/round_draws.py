"""The random stream of a round: which place serves which purpose, and pseudo-rewards from it."""

import numpy as np

from windvane import _random
from windvane._numba.compilation import compiled
from windvane.types import Floats, Records

MIX_PLACE = 0  # decides whether any arm is chosen uniformly at random
ANY_ARM_PLACE = 1  # decides which arm is then chosen
TIE_PLACE = 2  # decides among arms with equal scores
FIRST_FREE_PLACE = 3  # from here on: the draws of an exploration


@compiled
def draw_pseudo_rewards(rules: Records, start: np.uint64, observations: int, z: Floats) -> None:
    """Fill `z` with draws for perturbed_history, those of the past observations first.

    Coins give the number of heads of each observation and 0 for the rest, else all are N(0, 1).
    """
    coins = rules[0].coins
    if coins > 0:
        for i in range(observations):
            z[i] = count_heads(_random.draw_word(start, FIRST_FREE_PLACE + i), coins)
        for i in range(observations, z.size):
            z[i] = 0.0
    else:
        _random.fill_normals(start, FIRST_FREE_PLACE, z)


@compiled
def count_heads(bits: np.uint64, coins: int) -> float:
    """Count the ones among the first `coins` bits."""
    count = 0.0
    for k in range(coins):
        count += np.float64((bits >> np.uint64(k)) & np.uint64(1))
    return count
