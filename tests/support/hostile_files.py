"""A hundred files that no command expects: empty, damaged, huge, nested, of another kind."""

import gzip
import io
import json
import os
import struct
from collections.abc import Callable, Mapping
from pathlib import Path

import polars as pl

CSV_HEADER = "time,action,probability,reward,context\n"
CSV_ROW = "2026-01-01T00:00:00,a,0.5,1,x\n"
DSJSON: dict[str, object] = {
    "EventId": "e",
    "Timestamp": "2026-01-01T00:00:00Z",
    "_label_cost": -1,
    "_label_probability": 0.5,
    "_labelIndex": 0,
    "_label_Action": 1,
    "a": [1, 2],
    "p": [0.5, 0.5],
    "c": {"x": 1, "_multi": [{"id": "a"}, {"id": "b"}]},
}
VW = "shared | x\n0:0.5:0.5 | a\n| b\n\n"
PLAN = '[worlds.one]\n[[policies]]\nname = "a"\n'
DEPTH = 100_000
DIGITS = 5_000
LONG_LINE_BYTES = 3_000_000
MANY_ROWS = 100_000
UNDECODABLE = ("csv", "json", "parquet", "gzip-csv")  # that also have a name that is not UTF-8


def _dump(**changes: object) -> str:
    return json.dumps(DSJSON | changes) + "\n"


TEXTS: dict[str, str | bytes] = {
    "empty": "",
    "line-feed": "\n",
    "line-feeds": "\n" * 5000,
    "carriage-return": "\r",
    "spaces": " " * 5000,
    "nul": b"\0",
    "nuls": bytes(100_000),
    "one-byte": "x",
    "bytes": bytes(range(256)) * 20,
    "high-bytes": b"\xff" * 4096,
    "invalid-utf8": b'{"a": "\xc3\x28"}\n',
    "surrogate": b'{"a": "\xed\xa0\x80"}\n',
    "bom": b"\xef\xbb\xbf",
    "bom-csv": "\ufeff" + CSV_HEADER + CSV_ROW,
    "bom-json": "\ufeff" + _dump(),
    "utf16": (CSV_HEADER + CSV_ROW).encode("utf-16"),
    "utf16-json": _dump().encode("utf-16"),
    "utf16-cut": (CSV_HEADER + CSV_ROW).encode("utf-16")[:-1],
    "utf32": (CSV_HEADER + CSV_ROW).encode("utf-32"),
    "header": CSV_HEADER,
    "header-without-end": CSV_HEADER.strip(),
    "header-twice": CSV_HEADER * 2,
    "header-of-commas": ",,,,\n1,2,3,4,5\n",
    "header-of-equal-names": "action,action,reward,reward\na,b,1,2\n",
    "header-in-quotes": '"action","reward","probability"\n',
    "bare-returns": (CSV_HEADER + CSV_ROW * 3).replace("\n", "\r"),
    "mixed-ends": CSV_HEADER.replace("\n", "\r\n") + CSV_ROW + CSV_ROW.replace("\n", "\r"),
    "csv": CSV_HEADER + CSV_ROW * 3,
    "csv-cut": CSV_HEADER + CSV_ROW + CSV_ROW[:20],
    "csv-ragged": CSV_HEADER + "a,b\n1,2,3,4,5,6,7\n\n" + CSV_ROW,
    "csv-open-quote": CSV_HEADER + '2026-01-01,"a,0.5,1,x\n' + CSV_ROW * 50,
    "csv-quotes": CSV_HEADER + '""""""""""""""""\n' * 9,
    "csv-nul": CSV_HEADER + CSV_ROW.replace("a", "\0"),
    "csv-nul-name": CSV_HEADER.replace("action", "act\0ion") + CSV_ROW,
    "csv-booleans": CSV_HEADER + CSV_ROW.replace(",1,", ",true,") * 3,
    "csv-texts": CSV_HEADER + CSV_ROW.replace(",1,", ",good,") * 3,
    "csv-infinite": CSV_HEADER + CSV_ROW.replace(",1,", ",1e999,") * 3,
    "csv-nan": CSV_HEADER + CSV_ROW.replace("0.5", "nan") * 3,
    "csv-digits": CSV_HEADER + CSV_ROW.replace(",1,", f",{'9' * DIGITS},") * 3,
    "csv-probability-0": CSV_HEADER + CSV_ROW.replace("0.5", "0") * 3,
    "csv-probability-7": CSV_HEADER + CSV_ROW.replace("0.5", "7") * 3,
    "csv-dates": CSV_HEADER + CSV_ROW.replace("2026-01-01", "9999999-99-99") * 3,
    "csv-empty-values": CSV_HEADER + ",,,,\n" * 9,
    "csv-many-columns": ",".join(f"c{n}" for n in range(2_000)) + "\n" + "1," * 1_999 + "1\n",
    "csv-long-line": CSV_HEADER + "a" * LONG_LINE_BYTES + "\n" + CSV_ROW,
    "csv-long-value": CSV_HEADER + CSV_ROW.replace("x", "x" * LONG_LINE_BYTES),
    "tab-separated": (CSV_HEADER + CSV_ROW).replace(",", "\t"),
    "semicolons": (CSV_HEADER + CSV_ROW).replace(",", ";"),
    "no-line-end": "a" * LONG_LINE_BYTES,
    "json": _dump() * 3,
    "json-cut": (_dump() * 3)[:-40],
    "json-array": "[1, 2, 3]\n" * 3,
    "json-number": "1\n2\n3\n",
    "json-null": "null\n" * 3,
    "json-text": '"text"\n' * 3,
    "json-true": "true\n",
    "json-object": "{}\n" * 3,
    "json-arrays": "[" * DEPTH + "]" * DEPTH + "\n",
    "json-objects": '{"a":' * DEPTH + "1" + "}" * DEPTH + "\n",
    "json-open-arrays": "[" * DEPTH,
    "json-deep-context": _dump().replace('"x": 1', '"x": ' + "[" * DEPTH + "]" * DEPTH),
    "json-equal-keys": '{"a": 1, "a": 2}\n',
    "json-lone-surrogate": '{"EventId": "\\ud800"}\n',
    "json-nul": _dump(EventId="a\0b"),
    "json-digits": _dump().replace("-1", "-" + "9" * DIGITS),
    "json-10-to-400": _dump(_label_cost=10**400),
    "json-1e999": _dump().replace('"_label_cost": -1', '"_label_cost": 1e999'),
    "json-nan": _dump(_label_cost=float("nan")),
    "json-infinity": _dump(_label_cost=float("-inf")),
    "json-boolean-reward": _dump(_label_cost=True),
    "json-text-reward": _dump(_label_cost="much"),
    "json-array-reward": _dump(_label_cost=[1]),
    "json-no-actions": _dump(a=[], p=[]),
    "json-action-0": _dump(a=[0, 0]),
    "json-huge-action": _dump(a=[2**70, 1]),
    "json-texts-as-actions": _dump(a=["1", "2"]),
    "json-probabilities-7": _dump(p=[7.0, -6.0]),
    "json-probabilities-none": _dump(p=[None, None]),
    "json-context-array": _dump(c=[]),
    "json-context-text": _dump(c="x"),
    "json-multi-text": _dump(c={"_multi": "x"}),
    "json-time-text": _dump(Timestamp="yesterday"),
    "json-time-year-0": _dump(Timestamp="0000-00-00T00:00:00Z"),
    "json-long-line": _dump(c={"x": "y" * LONG_LINE_BYTES, "_multi": [{}, {}]}),
    "json-many-features": _dump(
        c={"_multi": [{}, {}], **{f"f{n}": n for n in range(2_000)}},
    ),
    "vw": VW * 3,
    "vw-cut": (VW * 3)[:-8],
    "vw-no-actions": "shared | x\n\n" * 3,
    "vw-two-labels": "shared | x\n0:0.5:0.5 | a\n1:0.5:0.5 | b\n\n",
    "vw-infinite": VW.replace("0:0.5", "0:1e999"),
    "vw-digits": VW.replace("0:0.5", f"0:{'9' * DIGITS}"),
    "vw-bars": "|" * 100_000 + "\n",
    "toml": PLAN,
    "toml-cut": PLAN[:-4],
    "toml-arrays": "a = " + "[" * DEPTH + "]" * DEPTH,
    "toml-tables": "a" + ".a" * DEPTH + " = 1",
    "toml-digits": f"replications = {'9' * DIGITS}\n" + PLAN,
    "toml-texts": 'worlds = "x"\npolicies = 7\n',
    "toml-dates": "replications = 2026-01-01\n" + PLAN,
    "toml-policy-numbers": "policies = [1, 2]\n[worlds.one]\n",
    "toml-world-numbers": "policies = [{name = 1}]\nworlds = {one = 7}\n",
    "toml-huge-world": '[worlds.one]\ndim = 1000000000\n[[policies]]\nname = "LinUCB"\n',
    "pem": "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
    "html": "<!doctype html><html></html>",
    "parquet-magic": b"PAR1",
    "parquet-two-magics": b"PAR1PAR1",
    "parquet-huge-footer": b"PAR1" + struct.pack("<I", 2**32 - 1) + b"PAR1",
    "sqlite-magic": b"SQLite format 3\0",
    "sqlite-zeros": b"SQLite format 3\0" + bytes(4096),
    "zip-magic": b"PK\x03\x04" + bytes(100),
    "gzip-magic": b"\x1f\x8b",
    "gzip-empty": gzip.compress(b""),
    "gzip-csv": gzip.compress((CSV_HEADER + CSV_ROW).encode()),
    "gzip-cut": gzip.compress((CSV_HEADER + CSV_ROW * 900).encode())[:-30],
    "gzip-damaged": gzip.compress(_dump().encode() * 99)[:60] + b"\xff" * 60,
    "gzip-twice": gzip.compress(gzip.compress(CSV_HEADER.encode())),
    "gzip-zeros": gzip.compress(bytes(20_000_000)),
    "gzip-lines": gzip.compress(b"\n" * 300_000),
}


def _write_parquet(frame: pl.DataFrame) -> bytes:
    buffer = io.BytesIO()
    frame.write_parquet(buffer)
    return buffer.getvalue()


def _list_tables() -> dict[str, bytes]:
    good = {"action": ["a", "b"], "reward": [1.0, 0.0], "probability": [0.5, 0.5]}
    changes: dict[str, dict[str, object]] = {
        "parquet": {},
        "parquet-texts": {"reward": ["good", "bad"]},
        "parquet-booleans": {"reward": [True, False]},
        "parquet-nulls": {"reward": [None, None], "action": [None, None]},
        "parquet-nan": {"reward": [float("nan"), float("inf")]},
        "parquet-lists": {"reward": [[1.0], [2.0]]},
        "parquet-nested-lists": {"probabilities": [[[0.5]], [[0.5]]], "actions": [[["a"]], [[]]]},
        "parquet-structs": {"action": [{"x": 1}, {"x": 2}]},
        "parquet-bytes": {"action": [b"\xff", b"\0"]},
        "parquet-list-of-nulls": {"probabilities": [[None], []], "actions": [[], [None]]},
        "parquet-dates": {"time": ["never", "ever"]},
    }
    tables = {name: _write_parquet(pl.DataFrame(good | each)) for name, each in changes.items()}
    export = {"schema_version": [1, 1], "event_id": ["a", "b"], "chosen": [9, -9]}
    return tables | {
        "parquet-no-columns": _write_parquet(pl.DataFrame()),
        "parquet-no-rows": _write_parquet(pl.DataFrame(good).head(0)),
        "parquet-cut": tables["parquet"][:-20],
        "parquet-damaged": tables["parquet"][:20] + b"\xff" * 30 + tables["parquet"][50:],
        "parquet-export": _write_parquet(pl.DataFrame(good | export)),
        "parquet-many-rows": _write_parquet(
            pl.DataFrame(good).head(1).select(pl.all().repeat_by(MANY_ROWS).explode())
        ),
    }


def _make_loop(path: Path) -> None:
    path.symlink_to(path.name)


def _make_unreadable(path: Path) -> None:
    path.write_text(CSV_HEADER + CSV_ROW)
    path.chmod(0)


def _make_folder_with_fifo(path: Path) -> None:
    path.mkdir()
    os.mkfifo(path / "log.csv")


SPECIAL: dict[str, Callable[[Path], None]] = {
    "directory": Path.mkdir,
    os.fsdecode(b"directory-\xff"): Path.mkdir,
    "directory-with-fifo": _make_folder_with_fifo,
    "fifo": os.mkfifo,
    "symlink-loop": _make_loop,
    "broken-symlink": lambda path: path.symlink_to("nowhere"),
    "unreadable": _make_unreadable,
    "missing": lambda path: None,
}


def read_contents() -> dict[str, bytes]:
    """The bytes of all regular files, by what they are."""
    texts = {
        name: text if isinstance(text, bytes) else text.encode() for name, text in TEXTS.items()
    }
    contents = texts | _list_tables()
    return contents | {
        os.fsdecode(kind.encode() + b"-\xff"): contents[kind] for kind in UNDECODABLE
    }


def write_hostile_files(folder: Path, contents: Mapping[str, bytes]) -> dict[str, Path]:
    """Write files, and all that are not regular; returns their paths by what they are."""
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    for name, make in SPECIAL.items():
        make(folder / name)
    return {name: folder / name for name in (*contents, *SPECIAL)}
