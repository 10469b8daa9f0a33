"""Own policies: probabilities from a column, from another log, or from a function of a program.

The probabilities of a row are those of all offered actions, or of the logged action alone. Then the
others are NaN, and there is no model of the rewards. A row for which nothing is known has NaN only.
"""

import importlib.util
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, cast

import msgspec
import numpy as np

from windvane.errors import SettingError, WindvaneError
from windvane.evaluation.log_batch import DecisionFeatures, Log, LogBatch, LoggedAction, read_values
from windvane.types import Floats

if TYPE_CHECKING:
    from windvane.features.json_reader import JsonObjects

FUNCTION_TOLERANCE = 1e-6  # of the sum of probabilities
LOGGED_TOLERANCE = 1e-3  # the same, of those in a file
LEAST_MATCHED = 0.5  # share of the rows for which another log must have probabilities
FROM_FILE = re.compile(r"(.+\.py):([A-Za-z_]\w*)")
LEARNERS = ("rank", "reward"), ("choose", "learn")  # methods: asked, and taught
Features = dict[str, object]
_encode_key = msgspec.json.Encoder(order="deterministic").encode


class Offer(NamedTuple):
    """What a decision was about, in the form in which `Learner.rank` takes it."""

    context: Features
    actions: list[Features]  # those that were not excluded, each with its id
    where: str  # for messages


def read_row(batch: LogBatch, row: int) -> DecisionFeatures:
    """The features of a row; without features, the place of an action is its id."""
    if batch.read_features is not None:
        return batch.read_features(row)
    count = int(batch.starts[row + 1] - batch.starts[row])
    return DecisionFeatures([], [LoggedAction(str(place), []) for place in range(count)])


def make_offer(batch: LogBatch, row: int) -> Offer:
    """What a row was about, without excluded actions."""
    features = read_row(batch, row)
    eligible = batch.is_eligible[batch.starts[row] : batch.starts[row + 1]].tolist()
    actions = [
        {"id": action.id, **_merge(action.features)}
        for action, is_eligible in zip(features.actions, eligible, strict=True)
        if is_eligible
    ]
    return Offer(_merge(features.context), actions, _locate(batch, row))


def ask(offer: Offer, name: str, function: Callable[..., object], *given: object) -> object:
    """Call what a program gave; its error becomes one that names the row."""
    try:
        return function(*given)
    except WindvaneError:
        raise
    except Exception as error:
        raise SettingError(f"{name}: {offer.where}: {type(error).__name__}: {error}") from error


def read_distribution(name: str, given: object, offer: Offer) -> Floats:
    """Check what a program gave as probabilities of the actions, or as a decision that has them."""
    try:
        shares = np.asarray(getattr(given, "probabilities", given), np.float64)
    except (TypeError, ValueError):
        shares = np.full(1, np.nan)
    size = len(offer.actions)
    if shares.shape != (size,) or not (
        (shares >= 0).all() and abs(shares.sum() - 1) <= FUNCTION_TOLERANCE
    ):
        message = f"must give {size} probabilities >= 0 that sum to 1"
        raise SettingError(f"{name}: {offer.where}: {message}, got {str(given)[:80]}")
    return shares


class OwnPolicy:
    """A policy that never learns, whose probabilities come from outside."""

    name = ""
    column = ""  # of the table, if it needs one
    is_partial = False  # whether only the probability of the logged action is known
    _last: tuple[LogBatch, Floats] | None = None

    def open(self, log: Log) -> None:
        """Prepare for the rows of a log."""
        self._last = None

    def compute(self, batch: LogBatch) -> Floats:
        """The probability of every action of every row, (all actions,)."""
        if self._last is None or self._last[0] is not batch:
            self._last = batch, self.read(batch)
        return self._last[1]

    def read(self, batch: LogBatch) -> Floats:
        """Compute the probabilities of a batch that was not the last one."""
        raise NotImplementedError

    def describe_match(self) -> str:
        """How many rows had probabilities; raises if there were too few."""
        return ""


class FunctionPolicy(OwnPolicy):
    """A function of context and actions that gives probabilities."""

    def __init__(self, name: str, function: Callable[..., object]) -> None:
        self.name, self._function = name, function

    def read(self, batch: LogBatch) -> Floats:
        flat = np.zeros(batch.is_eligible.size)
        for row in range(batch.size):
            offer = make_offer(batch, row)
            given = ask(offer, self.name, self._function, offer.context, offer.actions)
            part = slice(batch.starts[row], batch.starts[row + 1])
            flat[part][batch.is_eligible[part]] = read_distribution(self.name, given, offer)
        return flat


class ColumnPolicy(OwnPolicy):
    """A column with the probability of the logged action, or with lists of all probabilities."""

    def __init__(self, column: str) -> None:
        self.name, self.column = f"column={column}", column

    def read(self, batch: LogBatch) -> Floats:
        values = read_values(batch, self.column)
        flat = np.full(batch.is_eligible.size, np.nan)
        if isinstance(values, np.ndarray):
            self.is_partial = True
            flat[batch.starts[:-1] + batch.chosen] = values
            is_bad = (values < 0) | (values > 1 + LOGGED_TOLERANCE)
            if is_bad.any():
                row = int(np.argmax(is_bad))
                self._refuse(batch, row, "must be a probability", values[row])
            return flat
        for row, value in enumerate(values):
            if value is not None:
                part = slice(batch.starts[row], batch.starts[row + 1])
                flat[part] = self._read_list(batch, row, value)
        return flat

    def _read_list(self, batch: LogBatch, row: int, value: object) -> Floats:
        try:
            listed = msgspec.json.decode(value) if isinstance(value, str) else value
            shares = np.array(listed, np.float64)
        except (msgspec.MsgspecError, TypeError, ValueError):
            shares = np.zeros(0)
        count = int(batch.action_counts[row])
        eligible = batch.is_eligible[batch.starts[row] : batch.starts[row + 1]]
        if shares.shape != (count,) or not (
            (shares >= 0).all() and abs(shares[eligible].sum() - 1) <= LOGGED_TOLERANCE
        ):
            message = f"must have {count} probabilities that sum to 1, without excluded actions"
            self._refuse(batch, row, message, value)
        return shares

    def _refuse(self, batch: LogBatch, row: int, message: str, value: object) -> None:
        raise SettingError(f"{self.name}: {_locate(batch, row)}: {message}, got {str(value)[:60]}")


class LogPolicy(OwnPolicy):
    """The probabilities of another log: by event id, or means over rows with the same request.

    A request is the context and the set of offered ids. If the other log knows the chosen action
    only, an action that it never chose after a request has the probability 0 there.
    """

    def __init__(self, source: Log | str) -> None:
        self._source = source
        self.name = f"log={source if isinstance(source, str) else source.description}"

    def open(self, log: Log) -> None:
        """Read the other log, with the columns of the first one if it is a table."""
        super().open(log)
        self.is_partial, self._rows, self._matched = False, 0, 0
        self._events: dict[str, dict[str, float]] = {}
        self._sums: dict[bytes, dict[str, tuple[float, int]]] = {}
        other = self._source
        if isinstance(other, str):
            from windvane.evaluation.readers.file_log import open_log

            columns = getattr(getattr(log, "reader", None), "requested_columns", None)
            other = open_log([other], columns=columns)
        has_ids = all(getattr(each, "has_event_ids", True) for each in (log, other))
        for batch in other.iterate_batches():
            for row, event in enumerate(batch.event_ids):
                features = read_row(batch, row)
                shares = batch.probabilities[batch.starts[row] : batch.starts[row + 1]].tolist()
                pairs = zip(features.actions, shares, strict=True)
                known = {action.id: share for action, share in pairs if share == share}
                self.is_partial |= len(known) < len(shares)
                if has_ids and event:
                    self._events[event] = known
                sums = self._sums.setdefault(_make_key(features), {})
                for id_, share in known.items():
                    total, count = sums.get(id_, (0.0, 0))
                    sums[id_] = total + share, count + 1

    def read(self, batch: LogBatch) -> Floats:
        flat = np.full(batch.is_eligible.size, np.nan)
        for row, event in enumerate(batch.event_ids):
            features = read_row(batch, row)
            known = self._events.get(event)
            if known is None:
                sums = self._sums.get(_make_key(features), {})
                known = {id_: total / count for id_, (total, count) in sums.items()}
            shares = np.array([known.get(action.id, 0.0) for action in features.actions])
            first, chosen = int(batch.starts[row]), int(batch.chosen[row])
            if self.is_partial and known:
                flat[first + chosen] = shares[chosen]
            elif abs(shares.sum() - 1) <= LOGGED_TOLERANCE:
                flat[first : first + shares.size] = shares
        self._rows += batch.size
        self._matched += int(np.isfinite(flat[batch.starts[:-1] + batch.chosen]).sum())
        return flat

    def describe_match(self) -> str:
        matched = f"{self._matched:,} of {self._rows:,} rows have their event id or request there"
        if self._matched < LEAST_MATCHED * self._rows:
            least = f"at least {100 * LEAST_MATCHED:.0f} %"
            raise SettingError(f"{self.name}: {matched}, {least} must have")
        return matched


def read_own(text: str) -> object | None:
    """The policy of "column=NAME" or "log=PATH", or the object of "FILE.py:NAME"; or None.

    A text of a request to the service never comes here: it could read files and run code.
    """
    key, _, rest = text.strip().partition("=")
    if key in ("column", "log") and rest:
        return ColumnPolicy(rest) if key == "column" else LogPolicy(rest)
    match = FROM_FILE.fullmatch(text.strip())
    if match is None:
        return None
    path, name = Path(match[1]), match[2]
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise SettingError(f"policy: there must be a Python file at {path}, got none")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise SettingError(f"{path}: {type(error).__name__}: {error}") from error
    if not hasattr(module, name):
        raise SettingError(f"policy: {path} must define {name}, got no such name")
    found = getattr(module, name)
    return cast(object, found() if isinstance(found, type) else found)


def _make_key(features: DecisionFeatures) -> bytes:
    return _encode_key([_merge(features.context), sorted(each.id for each in features.actions)])


def _merge(objects: "JsonObjects") -> Features:
    """One object with the features of all."""
    return {name: value for each in objects for name, value in each.items()}


def _locate(batch: LogBatch, row: int) -> str:
    return f"{batch.source}, line {int(batch.lines[row])}"


def can_learn(policy: object, *ways: tuple[str, str]) -> bool:
    """Whether an object is a learner: it has rank and reward, or choose and learn."""
    return any(
        all(callable(getattr(policy, name, None)) for name in names) for names in ways or LEARNERS
    )


def count_choices(given: Sequence[object], offer: Offer, name: str) -> Floats:
    """The shares of the actions among choices, each an id, a place, or an object with an index."""
    places: Mapping[object, int] = {action["id"]: k for k, action in enumerate(offer.actions)}
    counts = np.zeros(len(offer.actions))
    for each in given:
        place = places.get(each) if isinstance(each, str) else getattr(each, "index", each)
        if not isinstance(place, int | np.integer) or not 0 <= place < counts.size:
            message = f"must choose an id or a place of {counts.size} actions"
            raise SettingError(f"{name}: {offer.where}: {message}, got {str(each)[:60]}")
        counts[place] += 1
    return counts / len(given)
