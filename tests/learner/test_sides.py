"""Joining the features of a context and of actions, and picking one action of them."""

from typing import Any

import numpy as np
import pytest

from learner_helpers import Offer, check_same_sides
from windvane.beliefs.bank.feature_parts import pick_action
from windvane.beliefs.bank.sides import (
    MAX_ROW_ENTRIES,
    decode_lesson,
    encode_packed_lesson,
    join_request,
    pack_context,
)
from windvane.errors import FeatureError
from windvane.features.crossings import parse_crossings
from windvane.features.hashing import hash_name
from windvane.features.json_reader import FeatureList
from windvane.features.packed_features import pack_actions, pack_field_features

CONTEXT: list[dict[str, Any]] = [{"device": "phone", "user": {"age": 30, "v": [1.0, 2.0, 3.0]}}]
OFFERS = [
    Offer("news", [{"topic": "politics"}]),
    Offer("match", [{"price": 2.5, "user": {"w": [4.0, 5.0]}, "tags": ["a", "b"]}]),
    Offer("film"),
]
CROSSINGS = ("context*action", "none", "user*action, context*user")


def read_hash(name: str) -> int:
    """The hash of a feature: the high half is that of its field, the low half that of its name."""
    field, whole = (hash_name(text) for text in (name.partition("=")[0], name))
    high, low = (int(np.frombuffer(half, np.uint64)[0]) for half in (field, whole))
    return (high >> 32 << 32) | (low & 0xFFFFFFFF)


def test_a_request_has_the_context_first_and_then_each_action() -> None:
    sides = join_request(CONTEXT, pack_actions(OFFERS))
    names = ["device=phone", "user.age", "user.v", "topic=politics", "_id=news"]
    names += ["price", "user.w", "tags=a", "tags=b", "_id=match", "_id=film"]
    assert sides.hashes.tolist() == [read_hash(name) for name in names]
    assert sides.sizes.tolist() == [1, 1, 3, 1, 1, 1, 2, 1, 1, 1, 1]
    assert sides.feature_counts.tolist() == [3, 2, 5, 1]
    category = np.inf
    numbers = [category, 30.0, 1.0, 2.0, 3.0, category, category, 2.5, 4.0, 5.0, *[category] * 4]
    assert sides.numbers.tolist() == numbers
    assert sides.masks.tolist() == [1] * 11


def test_masks_follow_the_namespaces() -> None:
    sides = join_request(CONTEXT, pack_actions(OFFERS), parse_crossings(CROSSINGS[2]))
    assert sides.masks.tolist() == [2, 3, 3, 1, 1, 1, 3, 1, 1, 1, 1]
    assert not join_request(CONTEXT, pack_actions(OFFERS), ()).masks.any()


@pytest.mark.parametrize("crossings", CROSSINGS)
@pytest.mark.parametrize("index", range(len(OFFERS)))
def test_picking_an_action_is_joining_it_alone(index: int, crossings: str) -> None:
    packed, parsed = pack_actions(OFFERS), parse_crossings(crossings)
    picked = pick_action(join_request(CONTEXT, packed, parsed), index)
    same = [join_request(CONTEXT, pack_actions([OFFERS[index]]), parsed)]
    if crossings == "context*action":
        encoded = encode_packed_lesson(pack_context(CONTEXT), packed.single[index])
        same.append(decode_lesson(encoded))
    for alone in same:
        check_same_sides(picked, alone)
        for mine, theirs in zip(picked, alone, strict=True):
            assert mine.flags.writeable == theirs.flags.writeable  # or code is compiled twice


def test_an_action_with_too_many_crossings_is_refused_and_not_the_sum_of_actions() -> None:
    context = [{f"c{i}": "x" for i in range(255)}]
    small = [Offer(f"a{i}", [{f"f{j}": "x" for j in range(254)}]) for i in range(3)]
    assert join_request(context, pack_actions(small)).feature_counts.tolist() == [255] * 4
    assert MAX_ROW_ENTRIES == 65_536  # 256 · 256, with the constants of both sides
    large = Offer("large", [{f"f{j}": "x" for j in range(255)}])
    with pytest.raises(FeatureError, match="at most 65536 crossings, got 65792"):
        join_request(context, pack_actions([*small, large]))


@pytest.mark.parametrize(
    "context",
    [
        {"device": "phone", "time": "noon"},
        {"device": "phone", "_hidden": "x", "": "", "été": "新闻", "a=b": "c=d"},
        {"_hidden": "x"},
        {"device": "phone", "age": 30},
        {"device": "phone", "sunny": True, "nothing": None},
        {},
    ],
    ids=repr,
)
def test_a_context_of_texts_is_packed_as_any_other(context: dict[str, Any]) -> None:
    expected = pack_field_features(FeatureList("the context", [context]))
    assert pack_context([context]) == expected
    assert pack_context([context]) == expected  # from the cache


def test_a_context_of_very_many_or_very_long_texts_is_refused() -> None:
    with pytest.raises(FeatureError, match="at most 4096 numbers, got 4097"):
        pack_context([{f"f{i}": "x" for i in range(4097)}])
    for _ in range(2):
        with pytest.raises(FeatureError, match="at most 1024 characters"):
            pack_context([{"f": "x" * 1024}])
