"""Errors of msgspec as sentences, for every form of error that the bodies of requests can have."""

import msgspec
import pytest

from windvane.service.api.evaluations import EvaluationRequest
from windvane.service.errors import describe_invalid_value, find_invalid_place
from windvane.service.schemas import RankRequest, RewardRequest


class Strict(msgspec.Struct, forbid_unknown_fields=True):
    """A body without further fields."""

    name: str = ""


@pytest.mark.parametrize(
    ("kind", "body", "sentence"),
    [
        (RewardRequest, '{"value": 2}', "value must be at most 1.0"),
        (RewardRequest, '{"value": -2}', "value must be at least -1.0"),
        (RewardRequest, '{"value": "1"}', "value must be a number, got a string"),
        (RewardRequest, "{}", "value is missing"),
        (
            RankRequest,
            '{"eventId": "' + "x" * 257 + '"}',
            "eventId must have at most 256 characters",
        ),
        (RewardRequest, "[]", "the body must be an object, got an array"),
        (RankRequest, '{"actions": []}', "actions must have at least 1 entry"),
        (RankRequest, '{"eventId": "", "actions": []}', "eventId must have at least 1 character"),
        (
            RankRequest,
            '{"eventId": 3, "actions": []}',
            "eventId must be a string or null, got an integer",
        ),
        (RankRequest, '{"actions": [{"id": "a"}]}', "actions[0].features is missing"),
        (
            RankRequest,
            '{"actions": [{"id": "a", "features": [1]}]}',
            "actions[0].features[0] must be an object, got an integer",
        ),
        (
            RankRequest,
            '{"actions": [{"id": "a", "features": [{"x": 1e400}]}]}',
            "actions[0].features[0][...]: Number out of range",
        ),
        (
            EvaluationRequest,
            '{"name": "a", "enableOfflineExperimentation": 1}',
            "enableOfflineExperimentation must be true or false, got an integer",
        ),
        (Strict, '{"nome": "a"}', "nome is not a known name"),
    ],
)
def test_an_invalid_body_is_described_in_a_sentence(kind: type, body: str, sentence: str) -> None:
    with pytest.raises(msgspec.ValidationError) as caught:
        msgspec.json.decode(body, type=kind)
    assert describe_invalid_value(caught.value) == sentence


def test_the_place_of_an_invalid_value_is_found() -> None:
    error = msgspec.ValidationError("Expected `str`, got `int` - at `$.actions[0].id`")
    assert find_invalid_place(error) == "actions[0].id"
    assert find_invalid_place(msgspec.ValidationError("Expected `object`, got `array`")) == ""


def test_an_unknown_form_of_error_keeps_the_words_of_msgspec() -> None:
    error = msgspec.ValidationError("Something new - at `$.name`")
    assert describe_invalid_value(error) == "name: Something new"
    whole = describe_invalid_value(msgspec.ValidationError("Something new"), "the entry")
    assert whole == "the entry: Something new"
