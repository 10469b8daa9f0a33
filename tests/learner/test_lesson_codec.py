"""Lessons as bytes: they come back to the bit, and damaged ones are refused with ValueError."""

from typing import Any

import numpy as np
import pytest

from learner_helpers import Offer, check_same_sides
from windvane.beliefs.bank.feature_parts import PackedSides
from windvane.beliefs.bank.sides import (
    decode_lesson,
    encode_lesson,
    encode_packed_lesson,
    join_request,
    pack_context,
)
from windvane.features.crossings import parse_crossings
from windvane.features.packed_features import pack_actions

REQUESTS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "nothing": ({}, {}),
    "a category": ({"device": "phone"}, {"topic": "news"}),
    "a number": ({"price": 12.99}, {}),
    "numbers": ({"zero": 0.0, "less": -0.0, "least": 5e-324}, {"most": 1.7e308, "int": 2**60}),
    "an empty array": ({"v": [], "device": "phone"}, {"price": 2.5}),
    "arrays": ({"v": [0.1, -2.0, 3e-300]}, {"w": [0.0] * 300, "one": [4.5]}),
    "all kinds": (
        {"device": "phone", "v": [1.0, 2.0], "price": 3, "tags": ["a", "b"], "sunny": True},
        {"topic": "news", "user": {"age": 30, "w": [1.5, -1.5, 0.5]}},
    ),
}

REFUSED = "no features of a lesson|damaged|buffer"  # NumPy says that a buffer is too small


def make_lesson(name: str, crossings: str = "context*action") -> PackedSides:
    context, features = REQUESTS[name]
    packed = pack_actions([Offer("match", [features])])
    return join_request([context], packed, parse_crossings(crossings))


@pytest.mark.parametrize("crossings", ["context*action", "none", "context*user, context*action"])
@pytest.mark.parametrize("name", REQUESTS)
def test_a_lesson_comes_back_to_the_bit(name: str, crossings: str) -> None:
    lesson = make_lesson(name, crossings)
    encoded = encode_lesson(lesson)
    check_same_sides(decode_lesson(encoded), lesson)
    assert encode_lesson(decode_lesson(encoded)) == encoded


@pytest.mark.parametrize("name", REQUESTS)
def test_packed_features_give_the_bytes_of_joined_ones(name: str) -> None:
    context, features = REQUESTS[name]
    packed = pack_actions([Offer("other", []), Offer("match", [features])])
    encoded = encode_packed_lesson(pack_context([context]), packed.single[1])
    assert encoded == encode_lesson(make_lesson(name))


def test_lessons_of_every_length_are_read_back() -> None:
    lengths = set()
    for categories in range(9):
        for numbers in range(9):
            context: dict[str, Any] = {f"c{i}": "x" for i in range(categories)}
            context |= {f"n{i}": float(i) for i in range(numbers)}
            actions = pack_actions([Offer("a", [{"v": [1.0] * (2 + numbers)}])])
            for crossings in ("context*action", "none"):
                sides = join_request([context], actions, parse_crossings(crossings))
                encoded = encode_lesson(sides)
                check_same_sides(decode_lesson(encoded), sides)
                lengths.add(len(encoded) % 8)
    assert lengths == set(range(8))


@pytest.mark.parametrize("name", REQUESTS)
def test_every_shorter_or_longer_text_is_refused(name: str) -> None:
    encoded = encode_lesson(make_lesson(name))
    for end in range(len(encoded)):
        with pytest.raises(ValueError, match=REFUSED):
            decode_lesson(encoded[:end])
    for more in (b"\0", b"\0" * 8, b"\1" * 9):
        with pytest.raises(ValueError, match=REFUSED):
            decode_lesson(encoded + more)


def test_a_number_that_is_not_finite_is_refused() -> None:
    encoded = encode_lesson(make_lesson("a number"))
    price = np.float64(12.99).tobytes()
    assert price in encoded
    for number in (np.nan, np.inf, -np.inf):
        with pytest.raises(ValueError, match="damaged"):
            decode_lesson(encoded.replace(price, np.float64(number).tobytes()))


def test_damaged_bytes_raise_only_value_errors() -> None:
    """2000 lessons with one to four bytes changed are refused, or are lessons that fit together."""
    random = np.random.default_rng(11)
    lessons = [encode_lesson(make_lesson(name)) for name in REQUESTS]
    refused = 0
    for _ in range(2000):
        damaged = bytearray(lessons[random.integers(len(lessons))])
        for _ in range(random.integers(1, 5)):
            damaged[random.integers(len(damaged))] = random.integers(256)
        try:
            sides = decode_lesson(bytes(damaged))
        except ValueError:
            refused += 1
            continue
        assert len(sides.hashes) == len(sides.sizes) == len(sides.masks)
        assert len(sides.hashes) == sides.feature_counts.sum()
        assert len(sides.numbers) == sides.sizes.sum()
        assert not np.isnan(sides.numbers).any()
    assert 200 < refused < 2000
