"""Normal draws: the bits of the ziggurat method, written out in Python integers."""

import math

import numpy as np

from windvane import _random

MASK = 2**64 - 1


def scramble(bits: int) -> int:
    bits = ((bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    bits = ((bits ^ (bits >> 27)) * 0x94D049BB133111EB) & MASK
    return bits ^ (bits >> 31)


def draw_word(start: int, place: int) -> int:
    return scramble((start + place * 0x9E3779B97F4A7C15) & MASK)


def draw_normal(start: int, place: int) -> tuple[float, bool]:
    """Return a draw, and whether its point was inside its layer at once."""
    bits = draw_word(start, place)
    layer = bits & 255
    x = (bits >> 11) * 2.0**-53 * float(_random.LAYERS[layer])
    is_inside = x < _random.LAYERS[layer + 1]
    if not is_inside:
        words = np.uint64(layer), x, np.uint64(bits)
        x = float(_random.sample_outside_layer(*words))  # type: ignore[arg-type]
    return (x if bits & 256 else -x), is_inside


def test_normal_draws_are_those_of_the_ziggurat_method() -> None:
    """Equal to the bit, also in the few draws that need more words, and of both signs there."""
    start, place, count = 0x1234567890ABCDEF, 3, 20_000
    out = np.empty(count)
    _random.fill_normals(np.uint64(start), place, out)
    draws = [draw_normal(start, place + i) for i in range(count)]
    assert out.tolist() == [x for x, _ in draws]
    outside = np.array([x for x, is_inside in draws if not is_inside])
    assert 100 < outside.size < 1000
    assert 0.4 < (outside > 0).mean() < 0.6
    assert abs(out.mean()) < 4.0 / math.sqrt(count)
    assert abs((out**2).mean() - 1.0) < 4.0 * math.sqrt(2.0 / count)
