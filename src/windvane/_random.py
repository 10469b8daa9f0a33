"""A random generator without state: draw i of round t under a key is a hash of the three.

The key and the round number of a policy are all that its generator needs. Rounds can be replayed
or run in any order and on any number of threads, with the same draws. The hash is SplitMix64.
"""

import math

import numpy as np

from windvane._numba.compilation import compiled
from windvane.types import Floats

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
FIRST_FACTOR = np.uint64(0xBF58476D1CE4E5B9)
SECOND_FACTOR = np.uint64(0x94D049BB133111EB)
# The places of the stream of a round
MIX_PLACE = 0  # decides whether any arm is chosen uniformly at random
ANY_ARM_PLACE = 1  # decides which arm is then chosen
TIE_PLACE = 2  # decides among arms with equal scores
FIRST_FREE_PLACE = 3  # from here on: the draws of an exploration


@compiled
def scramble(bits: np.uint64) -> np.uint64:
    """Map each 64-bit number to another one; every input bit changes about half the output bits."""
    bits = (bits ^ (bits >> np.uint64(30))) * FIRST_FACTOR
    bits = (bits ^ (bits >> np.uint64(27))) * SECOND_FACTOR
    return bits ^ (bits >> np.uint64(31))


@compiled
def start_round(key: np.uint64, round_: int) -> np.uint64:
    """Return the start of the stream of a round."""
    return scramble(key ^ scramble(np.uint64(round_) * GOLDEN + np.uint64(1)))


@compiled
def draw_word(start: np.uint64, place: int) -> np.uint64:
    """Return 64 random bits."""
    return scramble(start + np.uint64(place) * GOLDEN)


@compiled
def uniform(start: np.uint64, place: int) -> float:
    """Draw from the uniform law on the open interval (0, 1)."""
    return (np.float64(draw_word(start, place) >> np.uint64(11)) + 0.5) * 2.0**-53


def compute_layers(count: int, edge: float) -> Floats:
    """Right ends of equal-area layers under exp(−x²/2); the lowest layer has the tail from `edge`.

    The area of the lowest layer is that of every other one: edge·f(edge) + ∫_edge^∞ f.
    """
    area = edge * math.exp(-0.5 * edge * edge)
    area += math.sqrt(0.5 * math.pi) * math.erfc(edge * math.sqrt(0.5))
    ends = [area / math.exp(-0.5 * edge * edge), edge]
    for _ in range(count - 2):
        height = area / ends[-1] + math.exp(-0.5 * ends[-1] * ends[-1])
        ends.append(math.sqrt(-2.0 * math.log(height)))
    return np.array([*ends, 0.0])


EDGE = 3.6541528853610088  # the value for which 256 layers end exactly at the peak
LAYERS = compute_layers(256, EDGE)
# Places 0 to 255 of these tables serve negative draws, the other half positive ones.
SIGNED_UNITS = np.concatenate([-LAYERS[:256], LAYERS[:256]]) * 2.0**-53
INNER_ENDS = np.concatenate([LAYERS[1:], LAYERS[1:]])


@compiled
def sample_outside_layer(layer: int, x: float, bits: np.uint64) -> float:
    """Draw a half-normal from more words, in the rare case that x may lie above the curve."""
    while True:
        bits = draw_word(bits, 1)
        if layer == 0:
            step = -math.log(uniform(bits, 1)) / EDGE
            if -2.0 * math.log(uniform(bits, 2)) > step * step:
                return EDGE + step
        else:
            low = math.exp(-0.5 * LAYERS[layer] ** 2)
            high = math.exp(-0.5 * LAYERS[layer + 1] ** 2)
            if low + uniform(bits, 1) * (high - low) < math.exp(-0.5 * x * x):
                return x
            bits = draw_word(bits, 2)
            layer = int(bits & np.uint64(255))
            x = uniform(bits, 0) * LAYERS[layer]
            if x < LAYERS[layer + 1]:
                return x


@compiled
def fill_normals(start: np.uint64, place: int, out: Floats) -> None:
    """Fill `out` with standard normals, by the ziggurat method, from `place` on.

    The sign comes from a table: no processor can predict a branch on a random bit.
    """
    for i in range(out.size):
        bits = draw_word(start, place + i)
        signed_layer = int(bits & np.uint64(511))
        x = np.float64(bits >> np.uint64(11)) * SIGNED_UNITS[signed_layer]
        if abs(x) >= INNER_ENDS[signed_layer]:
            layer = int(bits & np.uint64(255))
            x = math.copysign(sample_outside_layer(layer, abs(x), bits), x)
        out[i] = x
