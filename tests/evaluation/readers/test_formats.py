"""All formats: the same decisions read the same, bad rows are counted, memory is bounded."""

import gzip
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from log_writers import FORMATS, Decisions, repeat_rows, simulate_decisions
from windvane.errors import FileError, SettingError
from windvane.evaluation.log_batch import LogBatch
from windvane.evaluation.readers import file_log, open_log
from windvane.evaluation.readers.file_log import FileLog

MUTATIONS = 300
ROWS = 20_000  # a full batch
MEMORY_LIMIT_MB = 40


def read_all(log: FileLog) -> list[LogBatch]:
    return list(log.iterate_batches())


def check_batches(name: str, batches: list[LogBatch], expected: Decisions) -> None:
    """Compare batches with the decisions that were written."""
    form = FORMATS[name]
    first = 0
    for batch in batches:
        rows = slice(first, first + batch.size)
        times = expected.times if form.has_times else np.arange(len(expected.times))
        np.testing.assert_array_equal(batch.times, times[rows])
        np.testing.assert_array_equal(batch.rewards, expected.rewards[rows])
        np.testing.assert_array_equal(batch.chosen, expected.chosen[rows])
        np.testing.assert_array_equal(batch.action_counts, 3)
        np.testing.assert_allclose(
            batch.chosen_probabilities, expected.chosen_probabilities[rows], rtol=1e-6
        )
        if form.has_all_probabilities:
            all_ = expected.probabilities[rows].reshape(-1)
            np.testing.assert_allclose(batch.probabilities, all_, rtol=1e-6)
        else:
            assert np.isnan(batch.probabilities).sum() == 2 * batch.size
        if form.has_times:
            assert batch.event_ids == expected.event_ids[rows]
        assert batch.is_eligible.all()
        assert (batch.multiplicities == 1.0).all()
        assert batch.read_features is not None
        for row in (0, batch.size - 1):
            context, actions = batch.read_features(row)
            merged = {key: value for part in context for key, value in part.items()}
            place = first + row
            assert merged == {"device": expected.devices[place], "age": expected.ages[place]}
            assert tuple(action.id for action in actions) == form.ids
            if form.has_action_features:
                assert [action.features for action in actions] == [
                    [{"colour": id_}] for id_ in form.ids
                ]
        first += batch.size
    assert first == len(expected.times)


@pytest.mark.parametrize("name", FORMATS)
def test_the_same_decisions_read_the_same_in_every_format(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One batch or many, plain or compressed, one file or three in any order of names."""
    form = FORMATS[name]
    decisions = simulate_decisions(300)
    path = tmp_path / f"log.{form.ending}"
    form.write(path, decisions)
    log = open_log([path], columns=form.columns)
    check_batches(name, read_all(log), decisions)
    assert (log.bad_row_count, log.has_fitted_probabilities) == (0, False)
    assert log.has_times == form.has_times
    monkeypatch.setattr(file_log, "BATCH_ROWS", 64)
    batches = read_all(log)
    assert len(batches) == 5
    check_batches(name, batches, decisions)
    if form.ending != "parquet":
        packed = tmp_path / f"log.{form.ending}.gz"
        packed.write_bytes(gzip.compress(path.read_bytes()))
        check_batches(name, read_all(open_log([packed], columns=form.columns)), decisions)


def test_progress_grows_to_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_log, "BATCH_ROWS", 50)
    for name in ("export", "dsjson", "csv"):
        form = FORMATS[name]
        folder = tmp_path / name
        folder.mkdir()
        for part in range(2):
            form.write(folder / f"{part}.{form.ending}", simulate_decisions(1500, part))
        log = open_log([folder], columns=form.columns)
        steps = [log.progress for _ in log.iterate_batches()]
        assert steps == sorted(steps)
        assert 0 < steps[len(steps) // 4] < 0.5 < steps[-10] < 1
        assert log.progress == 1.0


@pytest.mark.parametrize("name", ["dsjson", "cb_adf", "cb", "csv", "csv with lists"])
def test_a_changed_line_is_a_bad_row_or_still_a_good_one(name: str, tmp_path: Path) -> None:
    """Bytes are replaced, removed and repeated; nothing else than a counted bad row may happen."""
    form = FORMATS[name]
    path = tmp_path / f"log.{form.ending}"
    form.write(path, simulate_decisions(MUTATIONS))
    text = path.read_bytes()
    lines = text.split(b"\n")
    rng = np.random.default_rng(11)
    for place in range(1, len(lines)):
        line = bytearray(lines[place])
        for _ in range(rng.integers(1, 4)):
            if not line:
                break
            at = int(rng.integers(len(line)))
            kind = rng.integers(3)
            if kind == 0:
                line[at] = int(rng.choice(list(b'0-9"{}[]:,|. a\x00\xff\n\r\te')))
            elif kind == 1:
                del line[at : at + int(rng.integers(1, 20))]
            else:
                line[at:at] = line[at : at + 8]
        lines[place] = bytes(line)
    path.write_bytes(b"\n".join(lines))
    log = open_log([path], columns=form.columns)
    batches = read_all(log)
    for batch in batches:
        assert (batch.chosen_probabilities > 0).all()
        assert np.isfinite(batch.times).all()
        if batch.read_features is not None:
            for row in range(batch.size):
                batch.read_features(row)
    assert log.bad_row_count > MUTATIONS / 10
    bad = log.bad_rows[0]
    with pytest.raises(FileError, match=f":{bad.line}: "):
        read_all(open_log([path], columns=form.columns, strict=True))


def test_a_file_of_no_known_format_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("Dear diary\n")
    (tmp_path / "empty.json").write_text("")
    for name in ("notes.txt", "empty.json"):
        with pytest.raises(FileError, match="windvane, dsjson, vw, csv, parquet, obd") as raised:
            open_log([tmp_path / name])
        assert "\n" not in str(raised.value)
    with pytest.raises(FileError, match="there must be a file at"):
        open_log([tmp_path / "*.parquet"])
    with pytest.raises(SettingError, match="format must be auto, windvane"):
        open_log([tmp_path], format="xml")


READ = """
import re, sys
from pathlib import Path
from log_writers import FORMATS
from windvane.evaluation.readers import open_log

def read(path):
    count = 0
    for batch in open_log([path], columns=FORMATS[sys.argv[1]].columns).iterate_batches():
        count += batch.size
        batch.read_features(0)
    return count

def find_peak_kb():
    return int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])

read(sys.argv[2])
before = find_peak_kb()
print(read(sys.argv[3]), (find_peak_kb() - before) // 1024)
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux's /proc")
@pytest.mark.parametrize("name", ["export", "dsjson", "csv by column"])
def test_a_log_four_times_as_long_needs_no_more_memory(name: str, tmp_path: Path) -> None:
    form = FORMATS[name]
    paths = [tmp_path / f"{size}.{form.ending}" for size in ("short", "long")]
    form.write(paths[0], simulate_decisions(ROWS))
    repeat_rows(paths[0], paths[1], times=4)
    done = subprocess.run(
        [sys.executable, "-c", READ, name, *map(str, paths)],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": ":".join(sys.path), "PATH": "/usr/bin:/bin"},
    )
    count, grown_mb = map(int, done.stdout.split())
    assert count == 4 * ROWS
    assert grown_mb < MEMORY_LIMIT_MB
