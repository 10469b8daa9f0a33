"""Decisions are stored small, and read back to the bit."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from windvane.errors import StoreError
from windvane.features.encoder import Encoder
from windvane.service.loops.rank_requests import cut_offer, parse_offer
from windvane.service.store.decision_codec import (
    pack_features,
    rebuild_answer,
    render_answer,
    unpack_features,
)
from windvane.service.store.rows import join_request

NUMBERS = st.sampled_from([0.0, 0.0, 0.0, 0.0, -0.0, 0.5, -0.5, 1 / 3, 5e-324, np.nan, np.inf])


@given(arrays.arrays(np.float64, st.integers(0, 600), elements=NUMBERS))
def test_packed_features_have_the_same_bits(features: np.ndarray) -> None:
    dense = features.tobytes()
    packed = pack_features(dense)
    assert unpack_features(packed) == dense
    assert len(packed) <= len(dense)


@pytest.mark.parametrize("dim", [128, 2048, 2**16 - 1, 2**16])
@pytest.mark.parametrize("count", [0, 1, 35, 300])
def test_features_of_any_size_have_the_same_bits(dim: int, count: int) -> None:
    random = np.random.default_rng(dim + count)
    features = np.zeros(dim)
    features[random.choice(dim, min(count, dim), replace=False)] = random.standard_normal(
        min(count, dim)
    )
    packed = pack_features(features.tobytes())
    assert unpack_features(packed) == features.tobytes()
    if dim < 2**16 and count <= 35:
        assert len(packed) <= 8 + 8 * count + count + min(2 * count, dim // 8 + 1)


def test_features_of_a_request_take_a_quarter() -> None:
    actions = [{"id": "a", "features": [{"colour": "red", "size": "small", "price": 9.5}]}]
    offer = parse_offer(json.dumps(actions).encode())
    context = [{"time": "morning", "device": "phone", "age": 31}]
    (row,) = Encoder(128).encode(context, offer.packed_actions)
    assert len(pack_features(row.tobytes())) < 128 * 8 / 4


def test_damaged_features_are_refused_with_a_sentence() -> None:
    features = np.zeros(128)
    features[3:9] = np.arange(6)
    packed = pack_features(features.tobytes())
    for damaged in (packed[:9], packed[:4] + b"\xff" + packed[5:], packed[:-17] + b"\0" * 4):
        with pytest.raises(StoreError, match="damaged"):
            unpack_features(damaged)


def test_an_answer_is_rebuilt_byte_for_byte() -> None:
    random = np.random.default_rng(5)
    probabilities = random.dirichlet(np.ones(40))
    ids = [f'"é{k}\\' for k in range(40)]
    for degraded in (False, True):
        answer = render_answer("event ☃", ids, probabilities.tolist(), 7, degraded)
        columns = (json.dumps(ids), probabilities.tobytes(), 7, degraded)
        assert rebuild_answer("event ☃", *columns) == answer
    with pytest.raises(StoreError, match="damaged decision of the event 'x'"):
        rebuild_answer("x", "[]", probabilities.tobytes(), 7, False)


@given(st.text(), st.text(min_size=1), st.text())
def test_a_request_is_joined_to_the_text_that_came(before: str, offer: str, after: str) -> None:
    whole = before + offer + after
    rest, offer_at = cut_offer(whole, offer)
    assert rest is not None
    assert len(rest) == len(whole) - len(offer)
    assert join_request(rest, offer, offer_at) == whole


def test_a_request_without_the_text_of_its_actions_stays_whole() -> None:
    assert cut_offer("{}", "[1]") == ("{}", None)
    assert cut_offer(None, "[1]") == (None, None)
    assert join_request("{}", None, None) == "{}"
