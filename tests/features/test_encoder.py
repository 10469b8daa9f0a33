"""Encoding JSON features as vectors: a naive implementation, laws, and error messages."""

import hashlib
import math
import os
import subprocess
import sys
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from windvane.errors import FeatureError, SettingError
from windvane.features import packed_features
from windvane.features.hashing import MAX_NAME_CHARACTERS, squash
from windvane.features.json_reader import MAX_NUMBERS, name_categories
from windvane.features.packed_features import Encoder
from windvane.types import Floats

Json = dict[str, Any]
MASK = 2**64 - 1
GOLDEN = 0x9E3779B97F4A7C15


@dataclass
class FakeAction:
    id: str
    features: list[Json] = field(default_factory=list)


# The documented encoding, in plain Python.


def scramble(bits: int) -> int:
    bits = (bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    bits = (bits ^ (bits >> 27)) * 0x94D049BB133111EB & MASK
    return bits ^ (bits >> 31)


def naive_squash(number: float) -> float:
    size, doublings = 1.0 + abs(float(number)), 0
    while size >= 2.0:
        size, doublings = size / 2.0, doublings + 1
    log = doublings + size - 1.0
    return math.copysign(log / (1.0 + log), number)


def naive_merge(objects: list[Json]) -> Json:
    whole: Json = {}
    for features in objects:
        for name, value in features.items():
            if isinstance(value, dict) and isinstance(whole.get(name), dict):
                whole[name] = whole[name] | value
            else:
                whole[name] = value
    return whole


def naive_read(features: Json, space: str = "") -> list[tuple[str, list[float]]]:
    """List the name and the weights of every feature."""
    found: list[tuple[str, list[float]]] = []
    for name, value in features.items():
        full = space + name
        if name.startswith("_") or value == []:
            continue
        if value is None or value != value:
            found.append((full + "=missing", [1.0]))
        elif isinstance(value, dict):
            found += naive_read(value, full + ".")
        elif isinstance(value, bool):
            found.append((full + ("=true" if value else "=false"), [1.0]))
        elif isinstance(value, str):
            found.append((f"{full}={value}", [1.0]))
        elif isinstance(value, list) and isinstance(value[0], str):
            found += [(f"{full}={category}", [1.0]) for category in sorted(set(value))]
        else:
            parts = [naive_squash(v) for v in (value if isinstance(value, list) else [value])]
            length = max(1.0, math.sqrt(sum(v * v for v in parts)))
            found.append((full, [v / length for v in parts]))
    return found


def naive_side(features: list[tuple[str, list[float]]]) -> list[tuple[int, float]]:
    """Compute (1, features / √n), each part with its hash."""
    parts = [(0, 1.0)]
    for name, values in features:
        text = name.encode("utf-8", "surrogatepass")
        start = int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")
        for i, value in enumerate(values):
            bits = scramble((start + GOLDEN * i) & MASK)
            parts.append((bits, value / math.sqrt(len(features))))
    return parts


def naive_encode(context: list[Json], actions: list[FakeAction], dim: int) -> Floats:
    rows = np.zeros((len(actions), dim))
    outer = naive_side(naive_read(naive_merge(context)))
    for row, action in zip(rows, actions, strict=True):
        inner = naive_side([*naive_read(naive_merge(action.features)), (f"_id={action.id}", [1.0])])
        for a, (a_bits, a_value) in enumerate(inner):
            for c, (c_bits, c_value) in enumerate(outer):
                bits = scramble((GOLDEN * a_bits + c_bits) & MASK)
                place = 1 + ((bits >> 32) * (dim - 1) >> 32)
                sign = 1 if bits & 1 else -1
                if a == c == 0:
                    place, sign = 0, 1
                row[place] += sign * a_value * c_value / 2
        row /= max(1.0, math.sqrt(sum(x * x for x in row)))
    return rows


CONTEXT: list[Json] = [{"time": "morning", "weather": {"temp": 23, "sunny": True}}, {"_seen": 1}]
ACTIONS = [
    FakeAction("a", [{"colour": "red", "price": 9.5}, {"tags": ["new", "hot"]}]),
    FakeAction("ä/漢", [{"vector": [0.25, -3.0, 1e300], "colour": "red"}]),
    FakeAction("bare"),
]


def test_an_encoding_never_changes() -> None:
    """The bits of hashes, weights and places are those of the formulas."""
    rows = Encoder(8).encode(
        [{"hour": 3, "day": "mon"}], [FakeAction("a", [{"hot": True}]), FakeAction("b")]
    )
    third, half = 0.23570226039551584, 0.35355339059327373  # (2/3)/√8 and 1/√8
    assert rows[1].tolist() == [0.5, -third, 0.0, third, 0.0, 0.5, -half, -half]
    assert rows[0].tolist() == [
        *(0.41314350190045657, -0.40132946548154164, 0.0, -0.7908448945441685),
        *(-0.13771450063348553, 0.0, 0.0, -0.15442207116348458),
    ]
    assert rows.flags.c_contiguous
    assert rows.dtype == np.float64


def test_every_process_computes_the_same_encoding() -> None:
    code = (
        "from test_encoder import *; import sys;"
        "sys.stdout.write(Encoder(64).encode(CONTEXT, ACTIONS).tobytes().hex())"
    )
    here = os.path.dirname(__file__)
    path = os.pathsep.join([here, *sys.path])
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": path}
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, env=environment, check=True
        )
        assert done.stdout.decode() == Encoder(64).encode(CONTEXT, ACTIONS).tobytes().hex()


def test_an_example_matches_the_naive_encoding() -> None:
    for dim in (2, 3, 128, 1000):
        rows = Encoder(dim).encode(CONTEXT, ACTIONS)
        np.testing.assert_allclose(rows, naive_encode(CONTEXT, ACTIONS, dim), atol=1e-14)


text = st.text(st.characters(), max_size=6) | st.text(st.characters(categories=["Cs"]), max_size=2)
numbers = st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(10**300), 10**300)
missing = st.none() | st.just(math.nan)
plain = missing | st.booleans() | text | numbers | st.lists(numbers, max_size=4)
values = plain | st.lists(text, max_size=4)
spaced = values | st.dictionaries(text, values, max_size=3)
objects = st.lists(st.dictionaries(text, spaced, max_size=4), max_size=3)
several = st.lists(st.builds(FakeAction, text, objects), max_size=3)


@settings(max_examples=300)
@given(objects, several, st.integers(2, 200))
def test_any_features_match_the_naive_encoding(
    context: list[Json], actions: list[FakeAction], dim: int
) -> None:
    rows = Encoder(dim).encode(context, actions)
    assert rows.shape == (len(actions), dim)
    np.testing.assert_allclose(rows, naive_encode(context, actions, dim), atol=1e-12)
    assert np.all(np.linalg.norm(rows, axis=1) <= 1 + 1e-12)
    assert np.all(rows[:, 0] > 0)


@given(st.dictionaries(text, spaced, max_size=6), st.randoms(use_true_random=False))
def test_the_order_of_names_does_not_matter(features: Json, generator: Any) -> None:
    names = list(features)
    generator.shuffle(names)
    other = {name: features[name] for name in names}
    encoder = Encoder(32)
    once = encoder.encode([features], [FakeAction("a", [features])])
    again = encoder.encode([other], [FakeAction("a", [other])])
    np.testing.assert_allclose(once, again, atol=1e-12)


def test_a_weight_is_monotone_odd_and_below_one() -> None:
    sizes = [0.0, 1e-9, 0.3, 1.0, 1.5, 23.0, 24.0, 1e3, 1e6, 1.1e6, 1e18, sys.float_info.max]
    weights = [squash(v) for v in sizes]
    assert weights == sorted(set(weights))
    assert weights == [-squash(-v) for v in sizes]
    assert squash(1.0) == 0.5
    assert squash(1e-9) == pytest.approx(1e-9, rel=1e-6)
    assert weights[-1] < squash(math.inf) == 1.0


def test_a_huge_number_does_not_hide_categories() -> None:
    """If a number grows from 1 to 1e300, the share of a category in the vector hardly changes."""
    encoder = Encoder(4096)
    shares = []
    for size in (1.0, 1e300):
        with_it, without = (
            encoder.encode([], [FakeAction("a", [{"size": size, **tag}])])[0]
            for tag in ({"tag": "x"}, {})
        )
        shares.append(np.abs(with_it - without).max())
    assert shares[1] == pytest.approx(shares[0], rel=0.05)
    assert shares[1] > 0.2


def test_an_array_weighs_as_one_feature() -> None:
    long = Encoder(4096).encode([], [FakeAction("a", [{"vector": [5.0] * 500, "tag": "x"}])])[0]
    short = Encoder(4096).encode([], [FakeAction("a", [{"tag": "x", "other": "y"}])])[0]
    assert np.abs(long[1:]).max() == pytest.approx(np.abs(short[1:]).max(), rel=0.05)


def test_inner_products_survive_hashing_on_average() -> None:
    """E⟨x, y⟩ = ¼ (1 + ⟨a, a'⟩)(1 + ⟨c, c'⟩), with new names in every trial."""
    encoder, products = Encoder(32), []
    for trial in range(3000):
        mine = {f"{trial}a{i}": "x" for i in range(4)}
        yours = {**mine, f"{trial}a0": "y", f"{trial}a1": "z"}
        context = {f"{trial}c{i}": "x" for i in range(3)}
        moved = {**context, f"{trial}c0": "y"}
        first = encoder.encode([context], [FakeAction(f"{trial}", [mine])])[0]
        second = encoder.encode([moved], [FakeAction(f"{trial}", [yours])])[0]
        unscaled = (0.5 / first[0]) * (0.5 / second[0])  # undoes the scaling to length 1
        products.append(first @ second * unscaled)
    kept = 0.25 * (1 + 3 / 5) * (1 + 2 / 3)  # shared: the id and two of four features; two of three
    error = np.std(products) / math.sqrt(len(products))
    assert error < 0.005
    assert np.mean(products) == pytest.approx(kept, abs=4 * error)


def test_places_and_signs_are_evenly_spread() -> None:
    rows = Encoder(17).encode([], [FakeAction(f"action {k}") for k in range(16_000)])[:, 1:]
    counts = (rows != 0).sum(axis=0)
    assert counts.sum() == 16_000
    assert np.all(np.abs(counts - 1000) < 5 * math.sqrt(1000))
    assert abs((rows > 0).sum() - 8000) < 5 * math.sqrt(4000)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"x": True}, {"x": 1}),
        ({"x": True}, {"x": False}),
        ({"x": False}, {}),
        ({"x": None}, {}),
        ({"x": None}, {"x": 0}),
        ({"x": "2026-11-18T14:05"}, {"x": "2026-11-18T15:05"}),
        ({"x": "2026-11-18T14:05"}, {"x": "2026-11-19T14:05"}),
        ({"x": "2026-11-18"}, {"x": "2026-11-25"}),
        ({"x": "1"}, {"x": 1}),
        ({"x": [0.5, 0.1]}, {"x": 0.5}),
        ({"x": [1, 2]}, {"x": [2, 1]}),
        ({"x": {"y": 1}}, {"y": 1}),
    ],
)
def test_different_features_get_different_vectors(one: Json, other: Json) -> None:
    encoder = Encoder(512)
    rows = [encoder.encode([], [FakeAction("a", [features])]) for features in (one, other)]
    assert np.abs(rows[0] - rows[1]).max() > 0.01
    sides = [encoder.encode([features], [FakeAction("a")]) for features in (one, other)]
    assert np.abs(sides[0] - sides[1]).max() > 0.01


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ([{"x": 1}], [{"x": 1.0}]),
        ([{"_y": 3, "z": []}], []),
        ([{"x": None}], [{"x": "missing"}]),
        ([{"x": math.nan, "w": {"y": None}}], [{"x": "missing", "w": {"y": "missing"}}]),
        ([{"x": "2026-11-18T14:05"}], [{"x:hour": "14", "x:weekday": "wednesday"}]),
        ([{"x": "2026-11-18 14:59:59.5+02:00"}], [{"x": "2026-11-25T14:00"}]),
        ([{"w": {"x": "2026-11-22T00:05Z"}}], [{"w": {"x:hour": "0", "x:weekday": "sunday"}}]),
        ([{"_space": {"x": 3}, "w": {"_x": 1}}], [{}]),
        ([{"x": 1}, {"x": "a"}], [{"x": "a"}]),
        ([{"w": {"x": 1, "y": 2}}, {"w": {"x": 3}}], [{"w": {"y": 2, "x": 3}}]),
        ([{"x": ["b", "a", "b"]}], [{"x": ["b", "a"]}]),
        ([{"x": True}], [{"x": "true"}]),
    ],
)
def test_equivalent_features_get_the_same_vector(one: list[Json], other: list[Json]) -> None:
    encoder = Encoder(64)
    a, b = (encoder.encode(features, [FakeAction("a", features)]) for features in (one, other))
    np.testing.assert_allclose(a, b, atol=1e-15)


@pytest.mark.parametrize(
    "text", ["2026-11-18", "2026-13-18T14:05", "2026-11-18T14h05", "2026-11-18x14:05", "1999-" * 5]
)
def test_a_text_that_is_no_time_is_a_category(text: str) -> None:
    assert name_categories("x", text) == (f"x={text}",)


def test_features_changed_in_place_are_read_again() -> None:
    action = FakeAction("a", [{"x": 1}])
    before = Encoder(64).encode([], [action])
    action.features[0]["x"] = 2
    after = Encoder(64).encode([], [action])
    np.testing.assert_allclose(after, naive_encode([], [action], 64), atol=1e-15)
    assert np.any(after != before)


def nested(depth: int) -> Json:
    return {"deep": nested(depth - 1)} if depth else {}


@pytest.mark.parametrize(
    ("features", "sentence"),
    [
        ([{"w": {"x": {}}}], "w.x must not be an object, because it is inside a namespace"),
        ([{"": {"": {"": 1}}}], r"\. must not be an object"),
        ([nested(900)], "deep.deep must not be an object"),
        ([{"x": math.inf}], "x must be a finite number, got inf"),
        ([{"x": -math.inf}], "x must be a finite number, got -inf"),
        ([{"x": 10**400}], "x must be a finite number, got one beyond 1e308"),
        ([{"x": 10**5000}], "x must be a finite number"),
        ([{"w": {"x": [1, math.nan]}}], r"w.x\[1\] must be a finite number, got nan"),
        ([{"x": [1, "a"]}], "x must hold only numbers or only strings"),
        ([{"x": [1, True]}], "x must hold only numbers"),
        ([{"x": [None]}], "x must hold only numbers"),
        ([{"x": [[1]]}], "x must hold only numbers"),
        ([{"x": 1j}], "x must be a string, number, boolean, list, object or null"),
        (["x"], "must be a list of objects, got str"),
        ([10**5000], "must be a list of objects, got int"),
        ([{}, 3], "must be a list of objects, got int"),
        ([{"x" * MAX_NAME_CHARACTERS: "y"}], "xxx... must have at most 1024 characters"),
        ([{"x": list(range(MAX_NUMBERS + 1))}], "must be at most 4096 numbers, got 4097"),
        ([{str(i): i for i in range(MAX_NUMBERS + 1)}], "must be at most 4096 numbers"),
    ],
)
def test_an_error_names_the_feature_that_cannot_be_encoded(features: Any, sentence: str) -> None:
    for context, actions in ((features, [FakeAction("a")]), ([], [FakeAction("a", features)])):
        with pytest.raises(FeatureError, match=sentence) as caught:
            Encoder().encode(context, actions)
        assert len(str(caught.value)) < 250


def test_an_error_names_the_context_or_the_action() -> None:
    bad = [{"price": math.inf}]
    with pytest.raises(FeatureError, match=r"^features of the context: price must be a finite"):
        Encoder().encode(bad, [FakeAction("a")])
    with pytest.raises(FeatureError, match=r"^features of action b: price must be a finite"):
        Encoder().encode([], [FakeAction("a"), FakeAction("b", bad)])


def test_too_many_crossings_are_refused() -> None:
    wide: list[Json] = [{"x": [0.5] * 1025}]
    with pytest.raises(FeatureError, match="at most 1048576 crossings, got 1051650"):
        Encoder().encode(wide, [FakeAction("a", wide)])


@pytest.mark.parametrize("bad", [{"dim": 1}, {"dim": 2.5}, {"dim": 10**6}])
def test_an_encoder_refuses_invalid_settings(bad: Json) -> None:
    with pytest.raises(SettingError, match=f"Encoder: {next(iter(bad))} must be"):
        Encoder(**bad)


def test_the_cache_of_actions_is_bounded() -> None:
    cached = packed_features.packed_actions_by_key
    numbers = [1] * 4000  # of one byte each in the key, and of eight in several arrays
    for k in range(200):
        Encoder(4).encode([], [FakeAction(f"one of many {k}", [{"x": numbers}])])
    entries = sum(len(key) + sum(map(len, packed[:-1])) for key, packed in cached.items())
    assert 0 < entries <= cached.size_bytes <= 2**24
    count = len(cached)
    Encoder(4).encode([], [FakeAction("long", [{"x": [0.1] * 1000}])])
    assert len(cached) == count


def test_packing_ends_with_the_first_action_that_has_too_many_crossings() -> None:
    actions = [FakeAction("a", [{"x": [0.5] * 1023}]), *[FakeAction("b", [{"x": math.inf}])]]
    with pytest.raises(FeatureError, match="at most 1048576 crossings, got 1049600"):
        packed_features.pack_actions(actions, context_numbers=1025)
    with pytest.raises(FeatureError, match="action b"):
        packed_features.pack_actions(actions, context_numbers=1024)
