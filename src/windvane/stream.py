"""Randomness that needs no state: draw i of round t under a key is a hash of the three.

A policy's whole generator is its key and its round number. Rounds can be replayed, run in any
order or on any number of threads, and give the same draws. The hash is SplitMix64's.
"""

import math

import numpy as np

from windvane.arrays import Floats
from windvane.compiling import compiled

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
FIRST_FACTOR = np.uint64(0xBF58476D1CE4E5B9)
SECOND_FACTOR = np.uint64(0x94D049BB133111EB)


@compiled
def scramble(bits: np.uint64) -> np.uint64:
    """Send each 64-bit number to another, every input bit moving every output bit."""
    bits = (bits ^ (bits >> np.uint64(30))) * FIRST_FACTOR
    bits = (bits ^ (bits >> np.uint64(27))) * SECOND_FACTOR
    return bits ^ (bits >> np.uint64(31))


@compiled
def opening(key: np.uint64, round_: int) -> np.uint64:
    """Where the stream of a round starts."""
    return scramble(key ^ scramble(np.uint64(round_) * GOLDEN + np.uint64(1)))


@compiled
def word(start: np.uint64, place: int) -> np.uint64:
    """64 random bits."""
    return scramble(start + np.uint64(place) * GOLDEN)


@compiled
def uniform(start: np.uint64, place: int) -> float:
    """Uniform on (0, 1), neither end ever reached."""
    return (np.float64(word(start, place) >> np.uint64(11)) + 0.5) * 2.0**-53


@compiled
def normals(start: np.uint64, place: int, out: Floats) -> None:
    """Fill `out` with standard normals from `place` on, two from every two uniforms."""
    for i in range(0, out.size, 2):
        length = math.sqrt(-2.0 * math.log(uniform(start, place + i)))
        angle = 2.0 * math.pi * uniform(start, place + i + 1)
        out[i] = length * math.cos(angle)
        if i + 1 < out.size:
            out[i + 1] = length * math.sin(angle)
