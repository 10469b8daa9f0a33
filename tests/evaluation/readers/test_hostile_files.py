"""Files that no system should write: each gives a sentence or named bad rows, never a traceback."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from dsjson_lines import LATTE
from windvane import cli
from windvane.errors import FileError
from windvane.evaluation import evaluate
from windvane.evaluation.readers import open_log
from windvane.evaluation.readers.rows import IGNORED_FILES
from windvane.evaluation.readers.windvane_parquet import REQUIRED

HEADER = b"action,reward,probability,city\n"
ROWS = b"a,1,0.5,Rome\nb,0,0.5,Oslo\n"
TABLE = {"action": ["a", "b"], "reward": [1.0, 0.0], "probability": [0.5, 0.5]}
FILES: dict[str, bytes] = {
    "header.csv": HEADER,
    "unfinished-header.csv": HEADER.strip(),
    "mixed-ends.csv": HEADER + ROWS.replace(b"\n", b"\r", 1),
    "long-header.csv": b'"' + b"x" * 200_000 + b'",reward\n1,1\n',
    "texts-as-rewards.csv": HEADER + ROWS.replace(b"1,", b"one,").replace(b"0,", b"zero,"),
    "nul.csv": HEADER + b"a\0,1,0.5,\0\n\0\0\n",
    "utf16.csv": (HEADER + ROWS).decode().encode("utf-16"),
    "latin1.csv": HEADER + ROWS.replace(b"Rome", b"Rom\xe9"),
    "too-large.csv": HEADER + b"a,1e999,0.5,Rome\n",
    "no-parquet.parquet": b"PAR1" + bytes(range(200)) + b"PAR1",
    "no-gzip.csv.gz": b"\x1f\x8b" + bytes(range(50)),
    "too-large.json": LATTE.replace('"engineering"', "1e999").encode(),
    "too-deep.json": b'{"c":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
}
TABLES: dict[str, dict[str, object]] = {
    "lists-as-rewards": TABLE | {"reward": [[1.0], [0.0]]},
    "texts-as-rewards": TABLE | {"reward": ["one", "two"]},
    "objects-as-rewards": TABLE | {"reward": [{"v": 1.0}, {"v": 0.0}]},
    "lists-as-actions": TABLE | {"action": [["a"], ["b"]]},
    "bytes-as-actions": TABLE | {"action": [b"a", b"\xff"]},
    "nested-probabilities": TABLE | {"probabilities": [[[0.5, 0.5]], [[0.5, 0.5]]]},
    "numbers-as-offers": TABLE | {"actions": [1, 2]},
    "lists-as-times": TABLE | {"time": [[1], [2]]},
    "nothing": {"action": [None, None], "reward": [None, None]},
    "no-export": {name: [1] for name in (*REQUIRED, "actions", "round", "mode")},
}


@pytest.mark.parametrize("command", ["check", "evaluate", "import"])
@pytest.mark.parametrize("name", [*FILES, *(f"{name}.parquet" for name in TABLES)])
def test_a_hostile_file_ends_in_a_sentence(
    name: str,
    command: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / name
    if name in FILES:
        path.write_bytes(FILES[name])
    else:
        pl.DataFrame(TABLES[name.removesuffix(".parquet")]).write_parquet(path)
    words = ["windvane", command, str(path)]
    if command == "import":
        words += ["--loop", "x", "--data", str(tmp_path / "data")]
    monkeypatch.setattr(sys, "argv", words)
    with pytest.raises(SystemExit) as left:
        cli.main()
    assert left.value.code in (0, 1, 2)  # a traceback is another exception
    printed = capsys.readouterr()
    assert printed.err.strip() or printed.out.strip()


def test_a_pipe_is_refused_and_never_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "log.csv")
    with pytest.raises(FileError, match="must be a file or a directory, got a pipe"):
        open_log([tmp_path / "log.csv"])


def test_lines_may_end_with_carriage_returns(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_bytes((HEADER + ROWS * 12_000).replace(b"\n", b"\r"))
    batches = list(open_log([tmp_path / "log.csv"]).iterate_batches())
    assert sum(batch.size for batch in batches) == 24_000
    assert batches[-1].lines[-1] == 24_001


def test_a_directory_may_hold_what_is_no_log(tmp_path: Path) -> None:
    (tmp_path / "part-0.csv").write_bytes(HEADER + ROWS)
    for name in ("_SUCCESS", "README", "README.md", ".part-0.csv.crc"):
        (tmp_path / name).write_text("hello\n")
    log = open_log([tmp_path])
    assert sum(batch.size for batch in log.iterate_batches()) == 2
    assert log.notes == {IGNORED_FILES: 4}


def test_rewards_can_be_true_or_false(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("action,reward,probability\na,true,.5\nb,False,.5\na,1,.5\n")
    (batch,) = open_log([tmp_path / "log.csv"]).iterate_batches()
    assert batch.rewards.tolist() == [1.0, 0.0, 1.0]


def test_with_semicolons_a_number_may_have_a_decimal_comma(tmp_path: Path) -> None:
    text = "action;reward;probability;age;size\na;0,5;0,25;1,5;1,5 m\nb;-,5;0,75;2;2 m\nb;1;1;3;3\n"
    (tmp_path / "log.csv").write_text(text)
    (batch,) = open_log([tmp_path / "log.csv"], columns={"context": "age;size"}).iterate_batches()
    assert batch.rewards.tolist() == [0.5, -0.5, 1.0]
    assert batch.chosen_probabilities.tolist() == [0.25, 0.75, 1.0]
    assert batch.read_features is not None
    assert batch.read_features(0).context == [{"age": 1.5, "size": "1,5 m"}]


def test_an_action_is_a_policy_on_a_log_without_context(tmp_path: Path) -> None:
    """By the definition of IPS: Σ 1[a]·r/p / n over the rows."""
    (tmp_path / "log.csv").write_text(
        "action,reward,probability\na,1,.5\nb,1,.5\na,0,.25\na,1,.5\n"
    )
    result = evaluate(open_log([tmp_path / "log.csv"]), ["action=a"], reward_model=False)
    assert result.policies[0].estimates["ips"].value == pytest.approx((1 / 0.5 + 1 / 0.5) / 4)


MEASURE = """
import re, sys
from pathlib import Path
from windvane.evaluation.readers import open_log

def read(path):
    return [batch.size for batch in open_log([path]).iterate_batches()]

def find_peak_mb():
    return int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) // 1024

read(sys.argv[1])
before = find_peak_mb()
sizes = read(sys.argv[2])
print(sum(sizes), max(sizes), find_peak_mb() - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux's /proc")
@pytest.mark.parametrize(("rows", "actions"), [(2_000_000, 2), (400, 50_000)])
def test_a_small_file_with_many_rows_or_long_lists_needs_little_memory(
    rows: int, actions: int, tmp_path: Path
) -> None:
    """Files of at most 100 kB whose tables take 100 MB and 320 MB as a whole."""
    paths = [tmp_path / "short.parquet", tmp_path / "long.parquet"]
    for path, count in zip(paths, (10, rows), strict=True):
        offered = pl.Series([["0", "1"] * (actions // 2)])
        table = pl.select(action=pl.repeat("1", count), reward=pl.repeat(1.0, count))
        table = table.with_columns(actions=offered.gather(np.zeros(count, np.uint32)))
        table = table.with_columns(probability=pl.lit(0.5))
        table.write_parquet(path, compression="zstd", row_group_size=rows)
    assert paths[1].stat().st_size < 400_000
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, *map(str, paths)],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": ":".join(sys.path), "PATH": "/usr/bin:/bin"},
    )
    count, largest, grown_mb = map(int, done.stdout.split())
    assert (count, largest <= 20_000) == (rows, True)
    assert grown_mb < 400
