"""The OpenFeature provider, behind the real SDK, against a real service."""

import asyncio
import logging
from collections.abc import Iterator
from itertools import count

import pytest

pytest.importorskip("openfeature", reason="pip install 'windvane[openfeature]'")

from openfeature import api
from openfeature.client import OpenFeatureClient
from openfeature.evaluation_context import EvaluationContext
from openfeature.exception import ErrorCode
from openfeature.flag_evaluation import FlagEvaluationDetails, Reason
from openfeature.track import TrackingEventDetails

from server_process import Nursery, Server
from windvane.client import Client, LoggedDecision
from windvane.errors import RewardError, SettingError
from windvane.integrations.openfeature import WindvaneProvider

ACTIONS: list[str | dict[str, object]] = ["news", {"id": "match", "topic": "sports"}]
NUMBERS = count()
PHONE = EvaluationContext("ada", {"device": "phone"})


@pytest.fixture(scope="module")
def server(nursery: Nursery, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(nursery, tmp_path_factory.mktemp("openfeature") / "data") as server:
        yield server


@pytest.fixture
def flags(server: Server) -> Iterator[OpenFeatureClient]:
    """A client of the SDK; the name of its flag, and loop, is its domain."""
    name = f"banner-{next(NUMBERS)}"
    with Client(server.url) as client:
        client.request("POST", "/loops", {"name": name})
    provider = WindvaneProvider(
        Client(server.url, rank_timeout=30.0),
        {name: ACTIONS, "no-such-loop": ACTIONS},
        {"click": name},
    )
    api.set_provider_and_wait(provider, domain=name)
    yield api.get_client(domain=name)
    api.shutdown()


def evaluate(
    flags: OpenFeatureClient, context: EvaluationContext = PHONE
) -> FlagEvaluationDetails[str]:
    return flags.get_string_details(str(flags.domain), "news", context)


def read_log(server: Server, flags: OpenFeatureClient) -> list[LoggedDecision]:
    with Client(server.url) as client:
        return list(client.decisions(loop=flags.domain))


def test_a_flag_is_a_logged_choice_with_its_probability(
    server: Server, flags: OpenFeatureClient
) -> None:
    details = evaluate(flags)
    [decision] = read_log(server, flags)
    assert details.value == details.variant == decision.action
    assert details.reason == Reason.SPLIT
    assert details.error_code is None
    assert details.flag_metadata == {
        "event_id": decision.event_id,
        "probability": dict(zip(decision.actions, decision.probabilities, strict=True))[
            decision.action
        ],
        "degraded": False,
    }


def test_a_tracked_event_rewards_the_last_choice_of_its_subject(
    server: Server, flags: OpenFeatureClient
) -> None:
    evaluate(flags)
    evaluate(flags, EvaluationContext("bob", {"device": "desktop"}))
    evaluate(flags)
    flags.track("click", PHONE, TrackingEventDetails(0.25))
    flags.track("page seen", PHONE)  # rewards no flag
    assert [each.reward for each in read_log(server, flags)] == [None, None, 0.25]
    flags.track(str(flags.domain), EvaluationContext("bob"))  # the name of the flag; no value: 1
    assert [each.reward for each in read_log(server, flags)] == [None, 1.0, 0.25]


def test_an_event_id_rewards_a_choice_of_another_process(
    server: Server, flags: OpenFeatureClient, caplog: pytest.LogCaptureFixture
) -> None:
    event = str(
        evaluate(flags, EvaluationContext(None, {"device": "phone"})).flag_metadata["event_id"]
    )
    with caplog.at_level(logging.WARNING):
        flags.track("click", EvaluationContext("nobody"), TrackingEventDetails(1.0))
    assert "no decision of the flag" in caplog.text
    flags.track("click", None, TrackingEventDetails(-0.5, {"event_id": event}))
    assert [each.reward for each in read_log(server, flags)] == [-0.5]
    with pytest.raises(RewardError, match="in \\[-1, 1\\], got 7"):
        flags.track("click", None, TrackingEventDetails(7.0, {"event_id": event}))


def test_the_features_of_a_context_are_learned(server: Server, flags: OpenFeatureClient) -> None:
    for visitor in range(120):
        device = "phone" if visitor % 2 else "desktop"
        context = EvaluationContext(f"visitor {visitor}", {"device": device})
        is_liked = (evaluate(flags, context).value == "match") == (device == "phone")
        flags.track("click", context, TrackingEventDetails(1.0 if is_liked else 0.0))
    newest = [each.reward or 0.0 for each in read_log(server, flags)[-40:]]
    assert sum(newest) >= 32  # a choice that ignores the device earns 20


def test_an_event_loop_goes_on_during_a_choice(flags: OpenFeatureClient) -> None:
    async def evaluate_two() -> list[str]:
        many = (flags.get_string_value_async(str(flags.domain), "-", PHONE) for _ in range(2))
        return list(await asyncio.gather(*many))

    assert {*asyncio.run(evaluate_two())} <= {"news", "match"}


def test_mistakes_give_the_default_and_an_error_code(flags: OpenFeatureClient) -> None:
    name = str(flags.domain)
    unknown = flags.get_string_details("footer", "plain", PHONE)
    missing = flags.get_string_details("no-such-loop", "plain", PHONE)
    number = flags.get_integer_details(name, 3, PHONE)
    context = flags.get_string_details(
        name,
        "plain",
        EvaluationContext("ada", {"price": float("nan"), "x": object()}),  # type: ignore[dict-item]
    )
    assert [each.error_code for each in (unknown, missing, number, context)] == [
        ErrorCode.FLAG_NOT_FOUND,
        ErrorCode.FLAG_NOT_FOUND,
        ErrorCode.TYPE_MISMATCH,
        ErrorCode.INVALID_CONTEXT,
    ]
    assert [unknown.value, missing.value, number.value, context.value] == [
        "plain",
        "plain",
        3,
        "plain",
    ]


def test_without_a_server_the_default_stands_in_and_nothing_is_rewarded(
    caplog: pytest.LogCaptureFixture,
) -> None:
    client = Client("http://127.0.0.1:9", rank_timeout=0.2, timeout=0.2)  # nobody is there
    api.set_provider_and_wait(WindvaneProvider(client, {"banner": ACTIONS}))
    try:
        flags = api.get_client()
        details = flags.get_string_details("banner", "plain", PHONE)
        assert (details.value, details.error_code) == ("plain", ErrorCode.GENERAL)
        assert details.error_message == "no server answered in 0.2 s"
        with caplog.at_level(logging.WARNING):
            flags.track("banner", PHONE)
            flags.track("banner", PHONE, TrackingEventDetails(1.0, {"event_id": "visit-1"}))
        assert [record.message.split(" (")[0] for record in caplog.records] == [
            "banner: no decision of the flag banner is known",
            "rewards: no server took the request in 0.2 s",
        ]
    finally:
        api.shutdown()


def test_a_reward_of_an_unknown_flag_is_refused() -> None:
    with pytest.raises(SettingError, match="there is no flag 'footer' to reward"):
        WindvaneProvider(Client(), {"banner": ACTIONS}, {"click": "footer"})
