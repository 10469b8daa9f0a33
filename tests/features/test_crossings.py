"""Crossings: the text that lists pairs of namespaces, and the masks that follow from it."""

import numpy as np
import pytest

from windvane.errors import SettingError
from windvane.features.crossings import (
    MAX_PAIRS,
    Crossing,
    build_masks,
    hash_namespace,
    name_namespace,
    parse_crossings,
)


def test_the_whole_context_with_the_whole_action() -> None:
    assert parse_crossings("context*action") == (Crossing(None, None),)


def test_pairs_of_namespaces_and_of_whole_sides() -> None:
    user, article = hash_namespace("user"), hash_namespace("article")
    assert user != article
    assert parse_crossings(" user * article,context*article , user*action") == (
        Crossing(user, article),
        Crossing(None, article),
        Crossing(user, None),
    )


@pytest.mark.parametrize("text", ["none", " none "])
def test_no_crossings(text: str) -> None:
    assert parse_crossings(text) == ()


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("", "''"),
        ("user", "'user'"),
        ("user*", "'user*'"),
        ("*article", "'*article'"),
        ("a*b*c", "'a*b*c'"),
        ("a*b,", "''"),
        ("a*b, none", "'none'"),
        ("a:b", "'a:b'"),
    ],
)
def test_a_pair_that_is_no_pair_is_named(text: str, named: str) -> None:
    with pytest.raises(SettingError, match="a pair must be a namespace of the context") as error:
        parse_crossings(text)
    assert str(error.value).endswith(f"got {named}")


def test_at_most_eight_pairs() -> None:
    pairs = [f"a{i}*b{i}" for i in range(MAX_PAIRS + 1)]
    assert len(parse_crossings(",".join(pairs[:-1]))) == MAX_PAIRS == 8
    with pytest.raises(SettingError, match="crossings: at most 8 pairs, got 9"):
        parse_crossings(",".join(pairs))


@pytest.mark.parametrize(
    ("feature", "namespace"),
    [
        ("user.age", "user"),
        ("user.age=30", "user"),
        ("age", ""),
        ("site=example.org", ""),
        ("user.site=example.org=x", "user"),
        ("wetter.größe", "wetter"),
        ("a.b.c", "a"),
    ],
)
def test_the_namespace_of_a_feature(feature: str, namespace: str) -> None:
    assert name_namespace(feature) == namespace


def test_masks_have_a_bit_for_each_crossing_of_the_own_side() -> None:
    names = ("user", "", "device", "article", "user", "")  # three of the context, three of actions
    namespaces = np.array([hash_namespace(name) for name in names], np.uint64)
    crossings = parse_crossings("user*article, device*action, context*user")
    masks = build_masks(crossings, namespaces, 3)
    assert masks.tolist() == [0b101, 0b100, 0b110, 0b011, 0b110, 0b010]
    assert build_masks((), namespaces, 3).tolist() == [0] * 6
