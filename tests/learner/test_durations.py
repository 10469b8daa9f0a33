"""Durations and half-lives as clients write them."""

import pytest

from windvane.errors import SettingError
from windvane.settings import (
    HalfLife,
    format_half_life,
    parse_half_life,
    parse_seconds,
)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("PT10M", 600.0),
        ("P7D", 604_800.0),
        ("P1DT1H1M1.5S", 90_061.5),
        ("00:10:00", 600.0),
        ("2.00:00:30", 172_830.0),
        ("7 days", 604_800.0),
        ("1 week", 604_800.0),
        (" 90 Seconds ", 90.0),
        ("0.5 hours", 1800.0),
        ("7 DAYS", 604_800.0),
        ("pt10m", 600.0),
        ("p1Dt1h", 90_000.0),
    ],
)
def test_a_duration_is_read_as_seconds(text: str, seconds: float) -> None:
    assert parse_seconds(text) == seconds


@pytest.mark.parametrize("text", ["", "P", "PT", "soon", "7", "7 rounds", "00:1:00", "-1 day"])
def test_a_text_that_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(SettingError, match="must be a duration such as"):
        parse_seconds(text)


@pytest.mark.parametrize("text", ["PT0S", "0 days", "P3661D", "9" * 400 + " days"])
def test_a_duration_has_bounds(text: str) -> None:
    with pytest.raises(SettingError, match=r"within \(0, 10 years\]"):
        parse_seconds(text)


@pytest.mark.parametrize(
    ("text", "half_life"),
    [
        ("never", None),
        ("500 rounds", HalfLife(500.0, in_rounds=True)),
        ("500 Rounds", HalfLife(500.0, in_rounds=True)),
        ("500 ROUNDS", HalfLife(500.0, in_rounds=True)),
        ("NEVER", None),
        ("pt1h", HalfLife(3600.0, in_rounds=False)),
        ("7 days", HalfLife(604_800.0, in_rounds=False)),
        ("PT1H", HalfLife(3600.0, in_rounds=False)),
    ],
)
def test_a_half_life_counts_rounds_or_seconds(text: str, half_life: HalfLife | None) -> None:
    assert parse_half_life(text) == half_life


@pytest.mark.parametrize("text", ["1 hour", "6 hours", "1 day", "90 days", "5 minutes", "never"])
def test_a_half_life_is_written_as_it_is_read(text: str) -> None:
    half_life = parse_half_life(text)
    assert format_half_life(float("inf") if half_life is None else half_life.length) == text
