"""Sets of streams: `tuning` and `real-tuning` chose the defaults; `reported` and `real` did not."""

from typing import NamedTuple

from benchmarks import real_streams
from benchmarks.streams import Clicks, Digits, Many, News, Numbers, Rich, Routing, Stream


class StreamSet(NamedTuple):
    """Streams by name, and the seed from which the seeds of a run count."""

    first_seed: int
    streams: dict[str, Stream]


def _make_clicks(rounds: int, days: float, changes: tuple[float, ...], is_tuning: bool) -> Clicks:
    if is_tuning:
        return Clicks(rounds, days, changes, 20, 50, (0.01, 0.03), (0.03, 0.06), 0.5)
    return Clicks(rounds, days, changes, 16, 40, (0.008, 0.025), (0.03, 0.055), 2.0)


def _make_rich(rounds: int, days: float, changes: tuple[float, ...], is_tuning: bool) -> Rich:
    if is_tuning:
        return Rich(rounds, days, changes, 20, 11, 4000, 200, 20, 12, (0.05, 0.70), -1.9)
    return Rich(rounds, days, changes, 16, 9, 3000, 250, 15, 10, (0.04, 0.60), -1.6)


def _make_many(rounds: int, days: float, changes: tuple[float, ...], is_tuning: bool) -> Many:
    if is_tuning:
        return Many(rounds, days, changes, 5000, 10, 30, 8, 0.5, -1.0)
    return Many(rounds, days, changes, 4000, 12, 24, 6, 0.4, -1.2)


SETS = {
    "tuning": StreamSet(
        0,
        {
            "news": News(10_000, 10, (0.5,), 2, 7),
            "news still": News(10_000, 10, (), 2, 7),
            "clicks": _make_clicks(80_000, 20, (0.25, 0.5, 0.75), True),
            "clicks still": _make_clicks(80_000, 20, (), True),
            "rich": _make_rich(30_000, 30, (1 / 3, 2 / 3), True),
            "rich still": _make_rich(20_000, 20, (), True),
            "numbers still": Numbers(10_000, 10, (), 5, (18, 80), (10, 0.6), 20, (10, 2000), 1.0),
            "routing": Routing(8_000, 8, 0.5, 0.5, 5, 4, 16, 0.6, (0.35, 0.95), 0.15),
            "digits": Digits(12_000, 12, 3000),
            "many": _make_many(20_000, 20, (1 / 3, 2 / 3), True),
            "many still": _make_many(20_000, 20, (), True),
        },
    ),
    "reported": StreamSet(
        1001,
        {
            "news": News(12_000, 8, (0.4, 0.7), 3, 8),
            "news still": News(9_000, 6, (), 3, 8),
            "clicks": _make_clicks(70_000, 28, (0.3, 0.55, 0.8), False),
            "clicks still": _make_clicks(60_000, 24, (), False),
            "rich": _make_rich(32_000, 40, (0.35, 0.7), False),
            "rich still": _make_rich(24_000, 16, (), False),
            "numbers": Numbers(12_000, 15, (0.55,), 6, (20, 70), (8.5, 0.9), 9, (2, 900), 1.2),
            "numbers still": Numbers(9_000, 7, (), 6, (20, 70), (8.5, 0.9), 9, (2, 900), 1.2),
            "routing": Routing(10_000, 12, 0.6, 0.6, 6, 5, 24, 0.7, (0.30, 0.95), 0.2),
            "digits": Digits(12_500, 10, 2500),
            "many": _make_many(24_000, 18, (0.4, 0.75), False),
            "many still": _make_many(18_000, 14, (), False),
        },
    ),
    "real-tuning": StreamSet(0, {**real_streams.TUNING}),
    "real": StreamSet(1001, {**real_streams.REPORTED}),
    "files": StreamSet(1001, {}),  # of a user, each named FILE.csv:LABEL
}


def find_stream(set_name: str, name: str) -> Stream | None:
    """Find a stream by its name; one of the set `files` is read from its file."""
    if set_name == "files":
        return real_streams.open_file(name)
    return SETS[set_name].streams.get(name)
