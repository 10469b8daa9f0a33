"""The requests and rewards of a learner: what it accepts, and what it refuses in one sentence."""

import copy
import enum
import math
import pickle
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

import windvane as wv
from learner_helpers import check_same_sides, describe, play
from windvane.errors import ChoiceError, FeatureError, RewardError, SettingError

AT_TWO = {"at:hour": "14", "at:weekday": "wednesday"}
TIMES = (
    "2026-11-18T14:05",
    "2026-11-18 14:59:59+09:00",
    datetime(2026, 11, 18, 14, 5),
    datetime(2026, 11, 18, 14, 5, tzinfo=timezone(timedelta(hours=-7))),
    np.datetime64("2026-11-18T14:05"),
    np.datetime64("2026-11-18T14:05:01.123456789", "ns"),
)
DATES = (date(2026, 11, 18), np.datetime64("2026-11-18"))


class Colour(enum.StrEnum):
    RED = "red"


def teach(learner: wv.Learner) -> None:
    """Teach a learner a little about every feature that tests use."""
    for number in (1.0, 2.0, 4.0):
        decision = learner.rank(
            {"n": number, "v": [number, 1.0], "c": "red", "u": {"n": number}, "b": number > 1.0},
            [{"id": "x", "n": number, "c": "red"}, {"id": "y", "v": [1.0, number]}],
            at=0.0,
        )
        learner.reward(decision, number)


def rank(context: Any, actions: Any, **options: Any) -> wv.Decision:
    """Decide with a learner that has learned a little."""
    learner = wv.Learner(seed=1)
    teach(learner)
    return learner.rank(context, actions, at=1.0, **options)


# What it accepts


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"c": "red", "n": 2.0}, [{"c": "red"}, {"n": 2.0}]),
        ({"u": {"n": 3.0, "m": 1.0}}, [{"u": {"n": 3.0}}, {"u": {"m": 1.0}}]),
        ({"n": 3}, {"n": np.float64(3.0)}),
        ({"n": 3}, {"n": np.int32(3)}),
        ({"n": 0.5}, {"n": np.float32(0.5)}),
        ({"b": True}, {"b": np.bool_(True)}),
        ({"v": [3.0, 1.0]}, {"v": (3.0, 1.0)}),
        ({"v": [3.0, 1.0]}, {"v": np.array([3.0, 1.0])}),
        ({"v": [3.0, 1.0]}, {"v": np.array([3, 1])}),
        ({"v": [3.0, 1.0]}, {"v": [np.float64(3.0), np.float32(1.0)]}),
        ({"c": "red"}, {"c": np.str_("red")}),
        ({"c": "red"}, {"c": Colour.RED}),
        ({"c": ["red", "blue"]}, {"c": np.array(["red", "blue"])}),
        ({"c": "red"}, {"c": "red", "d": []}),
        ({"n": "missing"}, {"n": None}),
        ({"n": "missing"}, {"n": math.nan}),
        ({"n": "missing"}, {"n": np.float32("nan")}),
        ({"n": "missing"}, {"n": Decimal("nan")}),
        ({"n": "missing"}, {"n": np.datetime64("NaT")}),
        ({"n": "missing"}, {"n": np.datetime64("NaT", "ns")}),
        ({"u": {"n": "missing"}}, {"u": {"n": None}}),
        ({"n": 0.5}, {"n": Decimal("0.5")}),
        ({"v": [3.0, 1.0]}, {"v": [Decimal(3), Decimal("1.0")]}),
        *((AT_TWO, {"at": time}) for time in TIMES),
        ({"u": AT_TWO}, {"u": {"at": datetime(2026, 11, 18, 14, 5)}}),
        *(({"at": "wednesday"}, {"at": day}) for day in DATES),
        ({"u": {"n": 3.0}}, {"u": {"n": np.float64(3.0)}}),
        ({"2": "red"}, {2: "red"}),
        ({}, []),
    ],
    ids=repr,
)
def test_two_ways_to_write_a_context_are_the_same_features(one: Any, other: Any) -> None:
    actions = [{"id": "x", "n": 3.0, "c": "red"}, {"id": "y", "v": [3.0, 1.0]}, "z"]
    first, second = rank(one, actions), rank(other, actions)
    assert describe([first]) == describe([second])
    check_same_sides(first.lesson, second.lesson)


def test_every_kind_of_feature_of_the_context_changes_the_prediction() -> None:
    learner = wv.Learner(seed=1, half_life="never")
    teach(learner)
    predictions = set()
    for context in ({}, {"n": 3.0}, {"n": 1.0}, {"c": "red"}, {"b": True}, {"v": [3.0, 1.0]}):
        decision = learner.rank(context, ["x"], at=1.0)
        predictions.add(round(sum(amount for _, amount in learner.explain(decision)), 9))
    assert len(predictions) == 6


def test_times_of_pandas_are_read_as_those_of_python() -> None:
    pandas = pytest.importorskip("pandas")
    times = pandas.Series(pandas.to_datetime(["2026-11-18T14:05:01.123456789", None]))
    for time in (
        times[0],
        times.to_numpy()[0],
        pandas.Timestamp("2026-11-18 14:59", tz="Asia/Tokyo"),
    ):
        check_same_sides(rank({"at": time}, ["x"]).lesson, rank(AT_TWO, ["x"]).lesson)
    for missing in (times[1], times.to_numpy()[1]):
        wanted = rank({"at": "missing"}, ["x"]).lesson
        check_same_sides(rank({"at": missing}, ["x"]).lesson, wanted)


def test_times_and_missing_values_of_actions_are_read_as_those_of_a_context() -> None:
    action = {"id": "x", "at": datetime(2026, 11, 18, 14, 5), "n": None}
    wanted = {"id": "x", **AT_TWO, "n": "missing"}
    check_same_sides(rank({}, [action]).lesson, rank({}, [wanted]).lesson)
    texts = {"id": "x", "at": "2026-11-18T14:05"}  # actions of texts only are packed in one step
    check_same_sides(rank({}, [texts]).lesson, rank({}, [{"id": "x", **AT_TWO}]).lesson)


def test_what_is_missing_is_learned_as_a_category() -> None:
    learner, random = wv.Learner(seed=1), np.random.default_rng(2)
    for visitor in range(300):
        age = None if random.random() < 0.5 else float(random.normal(40, 10))
        decision = learner.rank({"age": age}, ["news", "match"], at=float(visitor))
        learner.reward(decision, float((decision.action == "match") == (age is None)))
    for age, wanted in ((None, "match"), (math.nan, "match"), (38.0, "news")):
        chances = learner.rank({"age": age}, ["news", "match"], at=300.0).probabilities
        assert chances[["news", "match"].index(wanted)] > 0.9


def test_an_action_is_an_id_or_a_dict_with_an_id() -> None:
    assert describe([rank({}, ["x", "y"])]) == describe([rank({}, [{"id": "x"}, {"id": "y"}])])
    decision = rank({}, (np.str_("x"),))
    assert type(decision.action) is str
    assert (decision.action, decision.index, decision.probability) == ("x", 0, 1.0)
    assert rank({}, ["été", "新闻", ""]).probabilities.sum() == pytest.approx(1.0, abs=1e-12)


class Name(str, enum.Enum):  # noqa: UP042  - its str() is not its text
    COLOUR = "c"


def test_a_known_action_of_texts_is_read_as_it_is_now() -> None:
    """Actions are found in a cache by their names and texts, in their order."""
    action = {"id": "x", "c": "red", "d": "old"}
    first = rank({}, [action, {"id": "y"}], exclude="y")
    action["d"] = "new"
    second = rank({}, [action, {"id": "y"}], exclude="y")
    assert first.lesson.hashes.tolist() != second.lesson.hashes.tolist()
    fresh = wv.Learner(seed=1)
    lessons = [
        fresh.rank({}, [each], at=0.0).lesson.hashes.tolist()
        for each in (
            {"id": "x", "c": "red", "d": "old"},
            {"id": "x", "d": "old", "c": "red"},
            {"id": "x", Name.COLOUR: Colour.RED, np.str_("d"): np.str_("old")},
            {"id": "x", "c": "red", "d": "old", "_e": "hidden"},
            {"id": "x", "c": ["red"], "d": "old"},
        )
    ]
    assert lessons[1] == [lessons[0][1], lessons[0][0], lessons[0][2]]
    assert lessons[2] == lessons[3] == lessons[4] == lessons[0]


def test_a_known_action_does_not_hide_one_that_is_refused() -> None:
    learner = wv.Learner(seed=1)
    for _ in range(2):
        learner.rank({}, [{"id": "x", "n": "1"}, {"id": "y", "n": "2"}], at=0.0)
        with pytest.raises(FeatureError, match="n must be a string"):
            learner.rank({}, [{"id": "x", "n": "1"}, {"id": "y", "n": b"2"}], at=0.0)
        with pytest.raises(FeatureError, match="a dict with one as its id"):
            learner.rank({}, [{"id": "x", "n": "1"}, {"n": "2"}], at=0.0)
        numbers = learner.rank({}, [{"id": "x", "n": "1"}, {"id": "y", "n": 2}], at=0.0)
        assert numbers.probabilities.shape == (2,)


def test_the_features_of_a_decision_are_its_own() -> None:
    learner, action = wv.Learner(seed=1), {"id": "x", "c": "red"}
    first = learner.rank({}, [action], at=0.0)
    first.features["c"] = "blue"  # type: ignore[index]
    second = learner.rank({}, [action], at=0.0)
    action["c"] = "green"
    assert second.features == {"c": "red"}


@pytest.mark.parametrize("exclude", ["y", ["y"], ("y",), {"y"}])
def test_an_excluded_action_is_never_chosen(exclude: Any) -> None:
    decisions = [rank({"n": n}, ["x", "y", "z"], exclude=exclude) for n in range(5)]
    for decision in decisions:
        assert decision.action != "y"
        assert decision.probabilities[1] == 0.0
        assert decision.probabilities.sum() == pytest.approx(1.0, abs=1e-12)
        assert decision.probability == decision.probabilities[decision.index]
        assert ["x", "y", "z"][decision.index] == decision.action
        without = rank(decision.context, ["x", "z"])
        assert without.probabilities.tolist() == decision.probabilities[[0, 2]].tolist()


def test_the_time_is_the_present_unless_it_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time", lambda: 123.0)
    learner = wv.Learner(seed=1)
    assert learner.rank({}, ["x"]).at == 123.0
    assert learner.rank({}, ["x"], at=np.float64(7)).at == 7.0


def test_ten_thousand_actions() -> None:
    actions = [{"id": f"a{i}", "price": i} for i in range(10_000)]
    learner = wv.Learner(seed=1)
    for reward in (1.0, 0.0):
        decision = learner.rank({"device": "phone"}, actions, at=0.0)
        learner.reward(decision, reward)
        assert decision.probabilities.sum() == pytest.approx(1.0, abs=1e-9)


def test_decisions_are_compared_and_hashed_by_what_they_are() -> None:
    one, other = wv.Learner(seed=1), wv.Learner(seed=1)
    first, same = one.rank({}, ["x", "y"], at=0.0), other.rank({}, ["x", "y"], at=0.0)
    second = one.rank({}, ["x", "y"], at=0.0)
    assert first == same
    assert first != second
    assert len({first, same, second}) == 2


# What it refuses, in one sentence

ENDLESS: dict[str, Any] = {}
ENDLESS["a"] = ENDLESS
CONTEXT = "features of the context: "
NO_ACTION = "rank: an action must be a text or a whole number, or a dict with one as its id, got "
IN_NAMESPACE = " must not be an object, because it is inside a namespace"
ONE_KIND = " must hold only numbers or only strings"
NO_FEATURE = " must be a string, number, boolean, list, object or null, got "
AT_MOST = " must have at most "
MANY = {f"a{i}": "x" for i in range(300)}
BAD_REQUESTS: list[tuple[Any, Any, dict[str, Any], str]] = [
    (None, ["x"], {}, "rank: the context must be a dict or a list of dicts, got None"),
    ("phone", ["x"], {}, "rank: the context must be a dict or a list of dicts, got 'phone'"),
    (["phone"], ["x"], {}, "rank: features must be a dict, got 'phone'"),
    ({}, None, {}, "rank: actions must be a list, got None"),
    ({}, "news", {}, "rank: actions must be a list, got 'news'"),
    ({}, {"id": "x"}, {}, "rank: actions must be a list, got {'id': 'x'}"),
    ({}, [], {}, "rank: there must be at least one action"),
    ({}, ["x", "x"], {}, "rank: the ids of actions must be distinct, got 'x' twice"),
    ({}, ["x", {"name": "y"}], {}, NO_ACTION + "{'name': 'y'}"),
    ({}, [{"id": 3.5}], {}, NO_ACTION + "{'id': 3.5}"),
    ({}, [True], {}, NO_ACTION + "True"),
    ({}, [10**5000], {}, NO_ACTION + "a value of type int"),
    ({}, ["x"], {"exclude": 5}, "rank: exclude must be a list, got 5"),
    ({}, ["x"], {"exclude": ["z"]}, "rank: 'z' is excluded, but it is not among the actions"),
    ({}, ["x"], {"exclude": [["x"]]}, "rank: ['x'] is excluded, but it is not among the actions"),
    ({}, ["x"], {"exclude": "x"}, "rank: all actions are excluded"),
    ({}, ["x"], {"at": "now"}, "rank: at must be a finite number, got 'now'"),
    ({}, ["x"], {"at": math.nan}, "rank: at must be a finite number, got nan"),
    ({"a": {"b": {"c": 1}}}, ["x"], {}, CONTEXT + "a.b" + IN_NAMESPACE),
    (ENDLESS, ["x"], {}, CONTEXT + "a.a" + IN_NAMESPACE),
    ({"a": [["x"]]}, ["x"], {}, CONTEXT + "a" + ONE_KIND),
    ({"a": math.inf}, ["x"], {}, CONTEXT + "a must be a finite number, got inf"),
    ({"a": Decimal("1e400")}, ["x"], {}, CONTEXT + "a must be a finite number, got inf"),
    ({"a": [1.0, None]}, ["x"], {}, CONTEXT + "a" + ONE_KIND),
    ({}, [{"id": "x", "v": [1, "2"]}], {}, "features of action x: v" + ONE_KIND),
    ({"a": b"x"}, ["x"], {}, CONTEXT + "a" + NO_FEATURE + "bytes"),
    ({"v": np.ones((2, 2))}, ["x"], {}, CONTEXT + "v" + ONE_KIND),
    (
        MANY,
        [{"id": "x"} | MANY],
        {},
        "features: the context and one action" + AT_MOST + "65536 crossings, got 90902",
    ),
    (
        MANY,
        [f"x{i}" for i in range(6000)],
        {},
        "features: context and actions" + AT_MOST + "1048576 crossings, got 1800000",
    ),
]


@pytest.mark.parametrize(
    ("context", "actions", "options", "message"),
    BAD_REQUESTS,
    ids=[r[3][:60] for r in BAD_REQUESTS],
)
def test_a_bad_request_is_refused_and_changes_nothing(
    context: Any, actions: Any, options: dict[str, Any], message: str
) -> None:
    learner = wv.Learner(seed=1)
    options = {"at": 0.0} | options
    with pytest.raises(wv.WindvaneError) as error:
        learner.rank(context, actions, **options)
    assert str(error.value) == message
    assert learner == wv.Learner(seed=1)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        *(
            (
                {"half_life": text},
                "Learner: half_life must be auto, never, or a duration above 0 such as 7 days or "
                f"500 rounds, got {text!r}",
            )
            for text in ("soon", "0 rounds")
        ),
        ({"half_life": 7}, "Learner: half_life must be a text such as '7 days', got 7"),
        ({"exploration": 2}, "Learner: exploration must lie in [0, 1], got 2"),
        ({"crossings": None}, "Learner: crossings must be a str, got None"),
        ({"seed": "a"}, "Learner: seed must be a whole number >= 0, got 'a'"),
    ],
)
def test_a_bad_setting_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingError) as error:
        wv.Learner(**settings)
    assert str(error.value) == message


@pytest.mark.parametrize("reward", [math.nan, math.inf, -math.inf, None, "1", 1e300])
def test_a_reward_that_is_no_finite_number_is_refused_and_changes_nothing(reward: Any) -> None:
    learner = wv.Learner(seed=1)
    play(learner, 5)
    decision = learner.rank({}, ["x", "y"], at=2e9)
    before = copy.deepcopy(learner)
    with pytest.raises(RewardError, match="reward: the reward must be a finite number"):
        learner.reward(decision, reward)
    assert learner == before
    learner.reward(decision, 1.0)
    assert learner != before


def test_a_decision_is_rewarded_once() -> None:
    learner = wv.Learner(seed=1)
    decision = learner.rank({}, ["x", "y"], at=0.0)
    learner.reward(decision, True)
    before = copy.deepcopy(learner)
    with pytest.raises(ChoiceError, match="the decision of round 0 has its reward"):
        learner.reward(decision, 0.0)
    assert learner == before


def test_a_dismissed_decision_waits_no_longer() -> None:
    learner = wv.Learner(seed=1)
    first, second = (learner.rank({}, ["x", "y"], at=0.0) for _ in range(2))
    learner.dismiss(first)
    for again in (learner.dismiss, lambda decision: learner.reward(decision, 1.0)):
        with pytest.raises(ChoiceError, match="round 0 has its reward or was dismissed"):
            again(first)
    learner.reward(pickle.loads(pickle.dumps(second)), 1.0)
    assert learner.bank.lessons == 1


def test_the_decision_of_another_learner_is_refused() -> None:
    learner = wv.Learner(seed=1)
    foreign = wv.Learner(seed=2).rank({}, ["x"], at=0.0)
    twin = wv.Learner(seed=1)
    later = [twin.rank({}, ["x"], at=0.0) for _ in range(2)][1]
    learner.rank({}, ["x"], at=0.0)
    for decision in (foreign, later):
        for use in (learner.dismiss, lambda decision: learner.reward(decision, 1.0)):
            with pytest.raises(ChoiceError, match="this decision was made by another learner"):
                use(decision)


@pytest.mark.parametrize("decision", [None, 3, "news"])
def test_what_is_no_decision_is_refused(decision: Any) -> None:
    learner = wv.Learner(seed=1)
    with pytest.raises(ChoiceError, match="reward: a decision or its id must be given, got"):
        learner.reward(decision, 1.0)
    with pytest.raises(ChoiceError, match="explain: a decision must be given, got"):
        learner.explain(decision)


# The cache of packed actions


def test_actions_that_are_equal_in_python_but_not_in_json_are_told_apart() -> None:
    """1 and 1.0 are one number, and true is a category; each is asked for twice."""
    learner = wv.Learner(seed=1)
    teach(learner)
    labels: dict[str, list[bytes]] = {}
    for _ in range(2):
        for value in (1, 1.0, True, "1", "true"):
            decision = learner.rank({}, [{"id": "x", "n": value}], at=1.0)
            labels.setdefault(repr(value), []).append(decision.lesson.hashes.tobytes())
    assert all(first == second for first, second in labels.values())
    assert labels["1"] == labels["1.0"]
    assert labels["True"] == labels["'true'"]
    assert len({each[0] for each in labels.values()}) == 3


@pytest.mark.parametrize("large", [2**70, "\ud800", "x" * 9000])
def test_an_action_that_the_cache_cannot_hold_is_packed_all_the_same(large: Any) -> None:
    learner = wv.Learner(seed=1)
    many = {f"f{i}": "x" * 90 for i in range(100)} if large == "x" * 9000 else {"n": large}
    decision = learner.rank({}, [{"id": "x", **many}, "y"], at=1.0)
    learner.reward(decision, 1.0)
    assert learner.bank.lessons == 1
