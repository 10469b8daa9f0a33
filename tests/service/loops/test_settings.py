"""One field a setting: wire name, check, flag, documentation and learner follow from it."""

import json

import pytest

from windvane import Learner
from windvane.errors import SettingError
from windvane.service.errors import ServiceError
from windvane.service.loops.settings import (
    SETTINGS,
    LoopSettings,
    check_loop_name,
    document_settings,
)


def test_settings_survive_json() -> None:
    settings = LoopSettings(reward_wait_time="00:20:00", default_reward=-0.5, seed=2**53)
    assert LoopSettings.from_json(settings.to_json()) == settings
    assert list(json.loads(settings.to_json())) == [setting.name for setting in SETTINGS]
    with pytest.raises(SettingError, match="settings: halfLives is not a known name"):
        LoopSettings.from_json('{"halfLives": "1 day"}')


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("explorationPercentage", 20, "explorationPercentage must be a number in [0, 1], got 20"),
        (
            "learningMode",
            "online",
            "learningMode must be Online or Apprentice or LoggingOnly, got 'online'",
        ),
        (
            "logRetentionDays",
            0.5,
            "logRetentionDays must be an integer in [-1, 2147483647], got 0.5",
        ),
        ("isAutoOptimizationEnabled", "x" * 99, "must be true or false, got '" + "x" * 79),
        ("rewardWaitTime", "10", "rewardWaitTime: '10' must be a duration such as"),
        ("autoOptimizationFrequency", "10", "autoOptimizationFrequency: '10' must be a duration"),
        ("autoOptimizationStartDate", "soon", "date: 'soon' must be a date"),
        ("halfLife", "2 dayz", "halfLife: '2 dayz' must be a duration such as"),
        ("halfLife", "0 rounds", "halfLife: '0 rounds' must be above 0"),
        ("halfLife", 3, "halfLife must be auto, duration, rounds or never, got 3"),
    ],
)
def test_an_invalid_value_is_refused_with_its_name_and_the_values_that_are_taken(
    name: str, value: object, sentence: str
) -> None:
    with pytest.raises(SettingError) as refused_new:
        LoopSettings.from_names({name: value})
    with pytest.raises(ServiceError) as refused_change:
        LoopSettings().merge({name: value})
    assert str(refused_new.value) == str(refused_change.value)
    assert str(refused_new.value).startswith("settings: ")
    assert sentence in str(refused_new.value)
    assert len(str(refused_new.value)) < 200


def test_a_change_keeps_all_other_settings_and_ignores_null_and_unknown_names() -> None:
    settings = LoopSettings(default_reward=0.3)
    changed = settings.merge({"halfLife": "1 day", "defaultReward": None, "logMirrorEnabled": 1})
    assert changed == LoopSettings(default_reward=0.3, half_life="1 day")


def test_every_setting_is_documented() -> None:
    rows = {row["name"]: row for row in document_settings()}
    assert len(rows) == len(LoopSettings.__struct_fields__) == 17
    assert all(row["type"] and row["meaning"] and row["default"] for row in rows.values())
    assert len({row["flag"] for row in rows.values()}) == 17
    assert rows["defaultReward"]["type"] == "number in [-1, 1]"
    assert rows["learningMode"]["type"] == "Online or Apprentice or LoggingOnly"
    assert rows["seed"]["meaning"].endswith("Fixed at creation.")
    assert "no effect" in rows["modelExportFrequency"]["meaning"]


@pytest.mark.parametrize("name", ["", "a/b", ".a", "-a", "a" * 65, "é"])
def test_a_name_that_cannot_be_part_of_a_url_is_refused(name: str) -> None:
    with pytest.raises(ServiceError, match="a loop's name"):
        check_loop_name(name)


@pytest.mark.parametrize("changes", [{"seed": 3}, {"crossings": "none"}, {"arraySize": 8}])
def test_what_the_belief_depends_on_cannot_change(changes: dict[str, object]) -> None:
    with pytest.raises(ServiceError, match="is fixed when a loop is created") as caught:
        LoopSettings().merge(changes)
    assert [caught.value.target] == list(changes)
    same = LoopSettings.from_names(changes)
    assert same.merge(changes) == same


def test_a_new_loop_finds_its_half_life() -> None:
    assert LoopSettings.from_names({}) == LoopSettings()
    assert (LoopSettings().half_life, LoopSettings().exploration_percentage) == ("auto", 0.01)
    assert LoopSettings(half_life="1 day").merge({"halfLife": "auto"}) == LoopSettings()


def test_the_learner_of_settings_is_the_one_that_they_describe() -> None:
    settings = LoopSettings(
        half_life="2 days", exploration_percentage=0.2, crossings="user*action", array_size=8
    )
    learner = settings.build_learner()
    assert repr(learner) == repr(
        Learner(half_life="2 days", exploration=0.2, crossings="user*action", array_size=8)
    )
    assert learner.key == Learner(seed=0).key
