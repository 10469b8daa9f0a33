"""Frames in memory are logs, with the columns of files."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from windvane.errors import SettingError
from windvane.evaluation import check, evaluate
from windvane.evaluation.readers import open_log

COLUMNS = {"action": "arm", "reward": "click", "probability": "p", "time": "ts", "context": "city"}
TABLE = pl.DataFrame(
    {
        "arm": ["red", "blue", "red", "blue"],
        "click": [True, False, False, None],
        "p": [0.5, 0.25, 0.5, 0.5],
        "ts": [1.7e9, 1.7e9 + 60, 1.7e9 + 120, 1.7e9 + 180],
        "city": ["Rome", "Oslo", None, "Bonn"],
    }
)


class ArrowTable:
    """A table of another library that speaks the Arrow interface."""

    def __init__(self, frame: pl.DataFrame) -> None:
        self._frame = frame

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        stream: Any = self._frame
        return stream.__arrow_c_stream__(requested_schema)


def make_pandas(frame: pl.DataFrame) -> object:
    pytest.importorskip("pyarrow")
    return pytest.importorskip("pandas").DataFrame(frame.to_dict(as_series=False))


def make_pyarrow(frame: pl.DataFrame) -> object:
    return pytest.importorskip("pyarrow").table(frame.to_dict(as_series=False))


@pytest.mark.parametrize(
    "convert",
    [lambda frame: frame, pl.DataFrame.lazy, ArrowTable, make_pandas, make_pyarrow],
    ids=["polars", "lazy", "arrow", "pandas", "pyarrow"],
)
def test_a_frame_is_read_as_the_file_that_holds_it(
    convert: Callable[[pl.DataFrame], object], tmp_path: Path
) -> None:
    TABLE.write_parquet(tmp_path / "log.parquet")
    (expected,) = open_log([tmp_path / "log.parquet"], columns=COLUMNS).iterate_batches()
    log = open_log(convert(TABLE), columns=COLUMNS)
    (batch,) = log.iterate_batches()
    for name in ("times", "rewards", "chosen", "probabilities", "starts", "lines"):
        assert getattr(batch, name).tobytes() == getattr(expected, name).tobytes(), name
    assert batch.read_features is not None
    assert expected.read_features is not None
    for row in range(batch.size):
        assert batch.read_features(row) == expected.read_features(row)
    assert check(log).decisions == 4
    value = evaluate(convert(TABLE), ["logged"], columns=COLUMNS).policies[0].value.value
    assert value == pytest.approx(1 / 3)  # one reward of three


def test_what_is_neither_a_frame_nor_a_path_is_refused() -> None:
    for source in (3, [3], {"a": 1}, None):
        with pytest.raises(SettingError, match="must be paths, or a frame"):
            open_log(source)
