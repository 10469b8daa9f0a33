"""One field a setting: wire name, check, flag, documentation and policy follow from it."""

import json

import pytest

from policy_access import full_settings
from windvane import Learner, Policy
from windvane.errors import SettingError
from windvane.exploration import randomized
from windvane.laws import confidence, half_normal
from windvane.memory import half_life, keep
from windvane.service.errors import LoopNameError, LoopSettingsError
from windvane.service.loops.setting_table import SETTINGS, document_settings
from windvane.service.loops.settings import Settings, check_loop_name


def test_the_policy_of_settings_is_the_one_that_they_describe() -> None:
    settings = full_settings(
        dim=24, half_life="60 rounds", seed=5, exploration_percentage=0.2, width=0.7, noise=0.3
    )
    exploration = randomized(half_normal(0.7 * confidence(0.01, 0.3)))
    policy = Policy(24, half_life(60.0), exploration, 1.0, seed=5, floor=0.2)
    assert repr(settings.build_policy()) == repr(policy)
    assert settings.build_policy().key == policy.key


@pytest.mark.parametrize(
    ("text", "memory", "in_rounds"),
    [
        ("never", keep(), False),
        ("60 rounds", half_life(60.0), True),
        ("60 Rounds", half_life(60.0), True),
        ("1 minute", half_life(60.0), False),
    ],
)
def test_a_memory_ages_in_the_unit_of_its_half_life(
    text: str, memory: object, in_rounds: bool
) -> None:
    settings = Settings(half_life=text)
    assert settings.build_memory() == memory
    assert settings.ages_in_rounds == in_rounds


def test_settings_survive_json() -> None:
    settings = Settings(reward_wait_time="00:20:00", default_reward=-0.5, seed=2**53)
    assert Settings.from_json(settings.to_json()) == settings
    assert list(json.loads(settings.to_json())) == [setting.name for setting in SETTINGS]
    with pytest.raises(SettingError, match="settings: halfLives is not a known name"):
        Settings.from_json('{"halfLives": "1 day"}')


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
        ("halfLife", "0 rounds", "half_life: span must be above 0"),
        ("halfLife", 3, "halfLife must be auto, duration, rounds or never, got 3"),
    ],
)
def test_an_invalid_value_is_refused_with_its_name_and_the_values_that_are_taken(
    name: str, value: object, sentence: str
) -> None:
    with pytest.raises(SettingError) as refused_new:
        Settings.from_names({name: value})
    with pytest.raises(LoopSettingsError) as refused_change:
        Settings().merge({name: value})
    assert str(refused_new.value) == str(refused_change.value)
    assert str(refused_new.value).startswith("settings: ")
    assert sentence in str(refused_new.value)
    assert len(str(refused_new.value)) < 200


def test_a_change_keeps_all_other_settings_and_ignores_null_and_unknown_names() -> None:
    settings = Settings(noise=0.3)
    changed = settings.merge({"halfLife": "1 day", "noise": None, "logMirrorEnabled": 1})
    assert changed == Settings(noise=0.3, half_life="1 day")


@pytest.mark.parametrize("name", ["dim", "ridge", "seed"])
def test_what_the_belief_depends_on_cannot_change(name: str) -> None:
    with pytest.raises(LoopSettingsError, match=f"{name} is fixed") as caught:
        Settings().merge({name: 3})
    assert caught.value.target == name
    assert Settings(seed=3).merge({"seed": 3}) == Settings(seed=3)


def test_every_setting_is_documented() -> None:
    rows = {row["name"]: row for row in document_settings()}
    assert len(rows) == len(Settings.__struct_fields__) == 21
    assert all(row["type"] and row["meaning"] and row["default"] for row in rows.values())
    assert len({row["flag"] for row in rows.values()}) == 21
    assert rows["noise"]["type"] == "number in (0, 1000]"
    assert rows["learningMode"]["type"] == "Online or Apprentice or LoggingOnly"
    assert rows["dim"]["meaning"].endswith("Fixed at creation.")
    assert "no effect" in rows["modelExportFrequency"]["meaning"]


@pytest.mark.parametrize("name", ["", "a/b", ".a", "-a", "a" * 65, "é"])
def test_a_name_that_cannot_be_part_of_a_url_is_refused(name: str) -> None:
    with pytest.raises(LoopNameError, match="a loop's name"):
        check_loop_name(name)


OLD = {
    "rewardWaitTime": "PT10M", "defaultReward": 0.0, "rewardAggregation": "earliest",
    "explorationPercentage": 0.1, "learningMode": "Online", "logRetentionDays": 90,
    "modelExportFrequency": "PT5M", "halfLife": "7 days", "dim": 128, "ridge": 1.0,
    "noise": 0.5, "width": 0.4, "seed": 0,
}  # fmt: skip


def test_settings_of_release_0_1_0_have_a_full_belief() -> None:
    settings = Settings.from_json(json.dumps(OLD))
    assert settings.belief == "full"
    kept = json.loads(settings.to_json())
    assert {name: kept[name] for name in OLD} == OLD
    assert Settings.from_json('{"dim": 2}') == full_settings(dim=2)


def test_a_new_loop_is_diagonal_unless_a_setting_of_a_full_belief_is_given() -> None:
    assert Settings.from_names({}) == Settings()
    assert (Settings().belief, Settings().half_life) == ("diagonal", "auto")
    assert Settings().exploration_percentage == 0.02
    for name in ("dim", "ridge", "noise", "width"):
        given = Settings.from_names({name: 2})
        assert (given.belief, given.half_life, given.exploration_percentage) == (
            *("full", "7 days"),
            0.1,
        )
    assert Settings.from_names({"belief": "diagonal", "dim": 64}).half_life == "auto"
    assert Settings.from_names({"halfLife": "never"}).belief == "diagonal"


def test_a_full_belief_has_no_automatic_half_life() -> None:
    with pytest.raises(SettingError, match=r"^settings: halfLife must not be auto if .* full$"):
        Settings.from_names({"belief": "full", "halfLife": "auto"})
    with pytest.raises(LoopSettingsError, match="halfLife must not be auto"):
        full_settings().merge({"halfLife": "Auto"})
    assert Settings(half_life="1 day").merge({"halfLife": "auto"}) == Settings()


@pytest.mark.parametrize("changes", [{"belief": "full"}, {"crossings": "none"}, {"arraySize": 8}])
def test_belief_crossings_and_array_size_are_fixed(changes: dict[str, object]) -> None:
    with pytest.raises(LoopSettingsError, match="is fixed when a loop is created"):
        Settings().merge(changes)
    with pytest.raises(SettingError, match="a pair must be"):
        Settings.from_names({"crossings": "user"})


def test_the_learner_of_settings_is_the_one_that_they_describe() -> None:
    settings = Settings(
        half_life="2 days", exploration_percentage=0.2, crossings="user*action", array_size=8
    )
    learner = settings.build_learner()
    assert repr(learner) == repr(
        Learner(half_life="2 days", exploration=0.2, crossings="user*action", array_size=8)
    )
    assert learner.key == Learner(seed=0).key
