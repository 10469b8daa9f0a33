"""Simulated decisions, and writers of them in every format that is read."""

import csv
import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl

from windvane.service.store.files.parquet_export import EXPORT_SCHEMA_VERSION, SCHEMA
from windvane.types import Floats, Places

IDS = ("red", "green", "blue")
START = 1_700_000_000  # seconds since 1970


class Decisions(NamedTuple):
    """Decisions among the actions `IDS`."""

    times: Floats  # (n,) whole seconds
    devices: list[str]  # the context
    ages: Floats  # the context
    probabilities: Floats  # (n, 3)
    chosen: Places  # (n,)
    rewards: Floats  # (n,)

    @property
    def actions(self) -> list[str]:
        """The ids of the chosen actions."""
        return [IDS[place] for place in self.chosen]

    @property
    def chosen_probabilities(self) -> Floats:
        """The probabilities of the chosen actions."""
        probabilities: Floats = self.probabilities[np.arange(len(self.chosen)), self.chosen]
        return probabilities

    @property
    def event_ids(self) -> list[str]:
        """The ids of the decisions."""
        return [f"event-{i}" for i in range(len(self.chosen))]


def simulate_decisions(count: int, seed: int = 5) -> Decisions:
    """Decisions by a random policy, with rewards of 0 or 1."""
    rng = np.random.default_rng(seed)
    weights = rng.integers(1, 9, (count, len(IDS)))
    probabilities = weights / weights.sum(axis=1, keepdims=True)
    levels = rng.random((count, 1))
    chosen = np.minimum((probabilities.cumsum(axis=1) < levels).sum(axis=1), len(IDS) - 1)
    return Decisions(
        times=np.arange(START, START + 60 * count, 60).astype(np.float64),
        devices=[("phone", "desktop")[i] for i in rng.integers(0, 2, count)],
        ages=rng.integers(18, 80, count).astype(np.float64),
        probabilities=probabilities,
        chosen=chosen,
        rewards=(rng.random(count) < 0.3).astype(np.float64),
    )


def format_time(seconds: float) -> str:
    """A time in ISO 8601."""
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")


def write_export(path: Path, log: Decisions) -> None:
    """Write a Parquet file as `windvane export` does."""
    count = len(log.times)
    contexts = [
        json.dumps([{"device": device, "age": age}])
        for device, age in zip(log.devices, log.ages, strict=True)
    ]
    actions = json.dumps([{"id": id_, "features": [{"colour": id_}]} for id_ in IDS])
    columns = {
        "event_id": log.event_ids,
        "time": pl.Series((log.times * 1e6).astype(np.int64)).cast(pl.Datetime("us", "UTC")),
        "round": range(count),
        "mode": ["Online"] * count,
        "action": log.actions,
        "chosen": log.chosen,
        "probability": log.chosen_probabilities,
        "actions": [list(IDS)] * count,
        "probabilities": log.probabilities.tolist(),
        "reward": log.rewards,
        "defaulted": [False] * count,
        "deferred": [False] * count,
        "activated": [True] * count,
        "degraded": [False] * count,
        "context_json": contexts,
        "actions_json": [actions] * count,
        "excluded": [[]] * count,
        "schema_version": [EXPORT_SCHEMA_VERSION] * count,
    }
    schema = {name: SCHEMA[name] for name in columns}  # without pages
    pl.DataFrame(columns, schema=schema).write_parquet(path)


def write_dsjson(path: Path, log: Decisions) -> None:
    """Write a dsjson file with 32-bit probabilities, as Personalizer does."""
    event_ids = log.event_ids
    with path.open("w", encoding="utf-8") as file:
        for i, chosen in enumerate(log.chosen.tolist()):
            ranking = [chosen, *(place for place in range(len(IDS)) if place != chosen)]
            probabilities = [float(np.float32(log.probabilities[i, place])) for place in ranking]
            event = {
                "_label_cost": -log.rewards[i],
                "_label_probability": probabilities[0],
                "_label_Action": chosen + 1,
                "_labelIndex": chosen,
                "o": [{"v": log.rewards[i], "EventId": event_ids[i]}],
                "Timestamp": format_time(log.times[i]),
                "Version": "1",
                "EventId": event_ids[i],
                "a": [place + 1 for place in ranking],
                "c": {
                    "FromUrl": [{"device": log.devices[i], "age": log.ages[i]}],
                    "_multi": [
                        {"_tag": id_, "i": {"constant": 1, "id": id_}, "j": [{"colour": id_}]}
                        for id_ in IDS
                    ],
                },
                "p": probabilities,
                "VWState": {"m": "N/A"},
            }
            file.write(json.dumps(event) + "\n")


def write_vw(path: Path, log: Decisions) -> None:
    """Write a cb_adf text file."""
    propensities = log.chosen_probabilities.tolist()
    with path.open("w", encoding="utf-8") as file:
        for i, chosen in enumerate(log.chosen.tolist()):
            file.write(f"shared | device={log.devices[i]} age:{log.ages[i]}\n")
            label = f"0:{-log.rewards[i]}:{propensities[i]!r} "
            for place, id_ in enumerate(IDS):
                file.write(f"{label if place == chosen else ''}'{id_} | colour={id_}\n")
            file.write("\n")


def write_cb(path: Path, log: Decisions) -> None:
    """Write a cb text file: one line a decision."""
    propensities = log.chosen_probabilities.tolist()
    with path.open("w", encoding="utf-8") as file:
        for i, chosen in enumerate(log.chosen.tolist()):
            label = f"{chosen + 1}:{-log.rewards[i]}:{propensities[i]!r}"
            file.write(f"{label} | device={log.devices[i]} age:{log.ages[i]}\n")


def make_table(log: Decisions) -> dict[str, object]:
    """The columns of a table that has nothing but plain values."""
    return {
        "id": log.event_ids,
        "ts": [format_time(time) for time in log.times],
        "arm": log.actions,
        "propensity": log.chosen_probabilities,
        "click": log.rewards,
        "device": log.devices,
        "age": log.ages,
    }


BASE = {"event_id": "id", "time": "ts", "action": "arm", "reward": "click", "context": "device;age"}
CHOSEN_ONLY = BASE | {"probability": "propensity", "actions": "red|green|blue"}
BY_COLUMN = BASE | {"probabilities": "p_*"}
BY_LIST = BASE | {"probabilities": "ps", "actions": "arms"}


def write_csv_by_column(path: Path, log: Decisions) -> None:
    """Write a CSV file with a column of probabilities for each action."""
    table = pl.DataFrame(make_table(log))
    for place, id_ in enumerate(IDS):
        table = table.with_columns(pl.Series(f"p_{id_}", log.probabilities[:, place]))
    table.write_csv(path)


def write_csv_with_lists(path: Path, log: Decisions) -> None:
    """Write a CSV file with lists as JSON in quotes."""
    table = make_table(log) | {
        "ps": [json.dumps(row) for row in log.probabilities.tolist()],
        "arms": [json.dumps(IDS)] * len(log.times),
    }
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(table)
        writer.writerows(zip(*table.values(), strict=True))


def write_parquet_with_lists(path: Path, log: Decisions) -> None:
    """Write a Parquet file with columns of lists, and times as numbers of milliseconds."""
    table = make_table(log) | {
        "ts": (log.times * 1000).astype(np.int64),
        "ps": log.probabilities.tolist(),
        "arms": [list(IDS)] * len(log.times),
    }
    pl.DataFrame(table).write_parquet(path)


def repeat_rows(path: Path, longer: Path, times: int) -> None:
    """Write a file with the rows of another one several times."""
    if path.suffix == ".parquet":
        pl.concat([pl.read_parquet(path)] * times).write_parquet(longer, row_group_size=30_000)
        return
    text = path.read_bytes()
    head = text[: text.index(b"\n") + 1] if path.suffix == ".csv" else b""
    longer.write_bytes(head + text.removeprefix(head) * times)


class Format(NamedTuple):
    """A way to write decisions, and how they are read back."""

    ending: str
    write: Callable[[Path, Decisions], None]
    columns: Mapping[str, str] | None = None
    has_times: bool = True
    has_all_probabilities: bool = True
    ids: tuple[str, ...] = IDS
    has_action_features: bool = True


FORMATS = {
    "export": Format("parquet", write_export),
    "dsjson": Format("json", write_dsjson),
    "cb_adf": Format("txt", write_vw, None, False, False),
    "cb": Format("txt", write_cb, None, False, False, ("1", "2", "3"), False),
    "csv": Format("csv", write_csv_by_column, CHOSEN_ONLY, True, False, IDS, False),
    "csv by column": Format("csv", write_csv_by_column, BY_COLUMN, has_action_features=False),
    "csv with lists": Format("csv", write_csv_with_lists, BY_LIST, has_action_features=False),
    "parquet": Format(
        "parquet", write_parquet_with_lists, BY_LIST | {"time": "ts:ms"}, has_action_features=False
    ),
}
