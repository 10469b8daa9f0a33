"""The Open Bandit Dataset: CSV files with item_id, position, click and propensity_score.

A row is a decision for one position. The position and the user features are its context. The
features of an item come from the file `item_context.csv` beside the log, if there is one, and from
the affinity of the user to the item.
"""

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from windvane.errors import SettingError
from windvane.evaluation.log_batch import DecisionFeatures, LoggedAction
from windvane.evaluation.readers.column_mapping import ColumnMapping, map_columns
from windvane.evaluation.readers.table import Offers, ReadFeatures, TableFeatures, TableReader

if TYPE_CHECKING:
    import polars as pl

ITEM_FILE = "item_context.csv"
COLUMNS = {
    "action": "item_id",
    "reward": "click",
    "probability": "propensity_score",
    "time": "timestamp",
    "context": "position:text;user_feature_*:text",
}
AFFINITY = "user-item_affinity_"  # followed by the id of the item
ITEM_FEATURE = "item_feature_"


def is_open_bandit(names: Sequence[str]) -> bool:
    """Whether a table with these columns is of the Open Bandit Dataset."""
    return {"timestamp", "item_id", "position", "click", "propensity_score"} <= set(names)


class OpenBanditReader(TableReader):
    """Reads files of the Open Bandit Dataset."""

    def __init__(self, paths: Sequence[Path]) -> None:
        super().__init__(paths, None)
        self.items = read_items(self.paths[0].with_name(ITEM_FILE))
        self.affinities = {
            name.removeprefix(AFFINITY): name for name in self.kinds if name.startswith(AFFINITY)
        }
        self.ids = list(self.items) or list(self.affinities)

    def map(self, columns: Mapping[str, str] | None) -> ColumnMapping:
        """Map the columns of the data set."""
        names = list(self.kinds)
        if not is_open_bandit(names):
            raise SettingError("open_log: a file of format obd must have the columns of the data")
        context = COLUMNS["context"]
        if any(name.startswith(AFFINITY) for name in names):
            context += f";{AFFINITY}*"
        return map_columns(COLUMNS | {"context": context}, names)

    def make_feature_reader(self, frame: "pl.DataFrame", offers: Offers) -> ReadFeatures:
        """Make what reads the features of a row."""
        table = TableFeatures(frame, self.mapping, offers)

        def read(row: int) -> DecisionFeatures:
            (context,) = table.read_context(row)
            affinities = {id_: context.pop(name, None) for id_, name in self.affinities.items()}
            actions = [
                LoggedAction(id_, [self.items.get(id_, {}), {"affinity": affinities.get(id_)}])
                for id_ in self.ids
            ]
            return DecisionFeatures([context], actions)

        return read


def read_items(path: Path) -> dict[str, dict[str, object]]:
    """Read the features of the items; item_feature_0 is a number, the others are texts."""
    if not path.exists():
        return {}
    with path.open(encoding="utf-8", newline="") as file:
        return {
            row["item_id"]: {
                name: float(text) if name == f"{ITEM_FEATURE}0" else text
                for name, text in row.items()
                if name.startswith(ITEM_FEATURE)
            }
            for row in csv.DictReader(file)
        }
