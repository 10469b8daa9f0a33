"""Vowpal Wabbit's text: labels, tags, namespaces, and what is refused."""

from pathlib import Path

import pytest

from windvane.errors import FileError
from windvane.evaluation.readers import open_log
from windvane.evaluation.readers.vw_text import parse_namespaces

EVENT = """shared |User user=Anna time=morning
|Action article=politics
0:-1:0.8 |Action article=sports
|Action article=music
"""


def test_an_event_of_the_documentation(tmp_path: Path) -> None:
    (tmp_path / "log.txt").write_text(f"{EVENT}\n{EVENT}")
    (batch,) = open_log([tmp_path / "log.txt"]).iterate_batches()
    assert batch.size == 2
    assert (batch.rewards[0], batch.chosen[0], batch.chosen_probabilities[0]) == (1.0, 1, 0.8)
    assert batch.lines.tolist() == [1, 6]
    assert batch.read_features is not None
    context, actions = batch.read_features(0)
    assert context == [{"User": {"user": "Anna", "time": "morning"}}]
    assert actions[1] == ("Action article=sports", [{"Action": {"article": "sports"}}])


def test_features_of_every_form() -> None:
    text = "User:2 age:25 new tag=a tag=b | bias:-1e-3 word |User last=x:0.5"
    assert parse_namespaces(text) == [
        {"bias": -0.001, "word": 1.0},
        {"User": {"age": 50.0, "new": 2.0, "tag": ["a", "b"], "last=x": 0.5}},
    ]


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        ("shared |s a\n| b\n| c\n", "one action of an event must have a label"),
        ("shared |s a\n0:1:0.5 | b\n0:1:0.5 | c\n", "must have a label ACTION:COST:PROBABILITY"),
        ("shared | a\nshared | a\n0:1:0.5 | b\n", "must have one shared line, got 2"),
        ("shared | a\n0:1 | b\n", "a label must be ACTION:COST:PROBABILITY, got '0:1'"),
        ("shared | a\n0:1:0.5 | b:x\n", "a feature must be NAME"),
        ("shared | a\n0:1:0 | b\n", "must be > 0"),
        ("shared | a\n0:1:0.5 b\n", "must have a bar"),
        ("shared | a\n2 0:1:0.5 | b\n", "must have one label"),
    ],
)
def test_a_bad_event_is_named_by_its_first_line(tmp_path: Path, event: str, reason: str) -> None:
    (tmp_path / "log.txt").write_text(f"{EVENT}\n{event}\n{EVENT}")
    log = open_log([tmp_path / "log.txt"])
    assert sum(batch.size for batch in log.iterate_batches()) == 2
    (bad,) = log.bad_rows
    assert bad.line == 6
    assert reason in bad.reason


@pytest.mark.parametrize("first", ["ccb shared |User b", "slates shared 0.8 | s_0"])
def test_other_problems_are_refused(tmp_path: Path, first: str) -> None:
    (tmp_path / "log.txt").write_text(f"{first}\n\n")
    with pytest.raises(FileError, match="is not supported, only of cb and cb_adf"):
        list(open_log([tmp_path / "log.txt"]).iterate_batches())
