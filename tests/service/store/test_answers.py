"""Answers are rebuilt, and requests are joined, to the text that was sent."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from windvane.errors import StoreError
from windvane.service.loops.rank_requests import cut_offer
from windvane.service.store.rows import join_request, rebuild_answer


def test_an_answer_is_made_of_the_columns_of_a_decision() -> None:
    random = np.random.default_rng(5)
    probabilities = random.dirichlet(np.ones(40))
    ids = [f'"é{k}\\' for k in range(40)]
    ranking = [
        {"id": id_, "probability": share} for id_, share in zip(ids, probabilities, strict=True)
    ]
    for degraded in (False, True):
        answer = rebuild_answer("event ☃", json.dumps(ids), probabilities.tobytes(), 7, degraded)
        expected = {"ranking": ranking, "eventId": "event ☃", "rewardActionId": ids[7]}
        assert json.loads(answer) == expected | {"degraded": degraded}
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
