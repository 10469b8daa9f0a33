"""Which columns of a table hold the action, the reward, the probabilities and the rest.

The page "Read logs of any system" says what each key means, and in which forms it can be given.
A key that is not mapped has the column of its own name, if there is one. A list in a CSV file is
JSON.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

import msgspec

from windvane.errors import SettingError

KEYS = (
    *("action", "reward", "probability", "probabilities", "actions", "count", "excluded", "time"),
    *("event_id", "context", "context_json", "multiplicity", "defaulted"),
)
PLAIN_KEYS = (  # name a column and nothing else
    *("action", "reward", "probability", "excluded", "event_id", "context_json"),
    *("multiplicity", "defaulted"),
)
SECONDS_PER_UNIT = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
AS_TEXT = ":text"


def parse_columns(text: str) -> dict[str, str]:
    """Parse what follows `--columns`; JSON if a name has a comma.

    >>> parse_columns("action=arm,reward=click,context=age;zip:text")
    {'action': 'arm', 'reward': 'click', 'context': 'age;zip:text'}
    >>> parse_columns('{"action": "arm, shown", "reward": "click"}')
    {'action': 'arm, shown', 'reward': 'click'}
    """
    if text.lstrip().startswith("{"):
        try:
            return msgspec.json.decode(text, type=dict[str, str])
        except (msgspec.MsgspecError, UnicodeError) as error:
            raise SettingError(f"columns: must be KEY=COLUMN or JSON, got {error}") from None
    columns = {}
    for part in filter(None, text.split(",")):
        key, equals, value = part.partition("=")
        if not equals or not value.strip():
            raise SettingError(f"columns: every part must be KEY=COLUMN, got {part!r}")
        columns[key.strip()] = value.strip()
    return columns


def join_columns(texts: Sequence[str] | None) -> dict[str, str] | None:
    """Parse what follows each `--columns`; None if nothing does."""
    return {key: name for text in texts or () for key, name in parse_columns(text).items()} or None


@dataclass(frozen=True)
class ColumnMapping:
    """The columns of a table, as far as it has them."""

    action: str
    reward: str
    probability: str | None = None
    probabilities: str | None = None  # a column of lists
    probability_columns: tuple[str, ...] = ()  # a column for each action
    actions: str | None = None  # a column of lists
    action_ids: tuple[str, ...] = ()  # the same actions in every row
    count: str | None = None
    fixed_count: int = 0
    excluded: str | None = None
    time: str | None = None
    seconds_per_unit: float = 1.0
    event_id: str | None = None
    context: tuple[str, ...] = ()
    texts: frozenset[str] = frozenset()  # context columns that are read as texts
    context_json: str | None = None
    multiplicity: str | None = None
    defaulted: str | None = None
    others: tuple[str, ...] = ()  # columns that are kept as they are

    @property
    def names(self) -> list[str]:
        """The columns that are read."""
        single = (getattr(self, key) for key in KEYS if key != "context")
        names = [name for name in single if name is not None]
        return list(dict.fromkeys([*names, *self.probability_columns, *self.context, *self.others]))

    @property
    def has_probabilities(self) -> bool:
        return bool(self.probability or self.probabilities or self.probability_columns)


def map_columns(columns: Mapping[str, str] | None, names: Sequence[str]) -> ColumnMapping:
    """Map the keys to the columns of a table that has these names."""
    requested = dict(columns or {})
    if unknown := [key for key in requested if key not in KEYS]:
        raise SettingError(f"columns: a key must be one of {', '.join(KEYS)}, got {unknown[0]!r}")
    sources = {key: key for key in KEYS if key in names and key != "context"} | requested
    for key in ("action", "reward"):
        if key not in sources:
            example = _shorten(names[:1])
            raise SettingError(
                f"columns: the column of the {key} must be given, such as {key}={example}; "
                f"the columns of the table are {_shorten(names)}"
            )
    mapped: dict[str, object] = {key: _find(key, sources.get(key), names) for key in PLAIN_KEYS}
    mapped |= _map_probabilities(sources.get("probabilities"), names)
    mapped |= _map_actions(sources.get("actions"), names)
    mapped |= _map_count(sources.get("count"), names)
    mapped |= _map_time(sources.get("time"), names)
    taken = {*sources.values(), *(value for value in mapped.values() if isinstance(value, str))}
    taken.update(*(value for value in mapped.values() if isinstance(value, tuple)))
    mapped |= _map_context(sources.get("context"), names, taken)
    if prefix := sources.get("probabilities", "").removesuffix("*"):
        by_column = mapped["probability_columns"]
        if by_column and not mapped["action_ids"]:
            assert isinstance(by_column, tuple)
            mapped["action_ids"] = tuple(name.removeprefix(prefix) for name in by_column)
    return ColumnMapping(**mapped)  # type: ignore[arg-type]


def _find(key: str, name: str | None, names: Sequence[str]) -> str | None:
    if name is not None and name not in names:
        have = _shorten(names)
        raise SettingError(f"columns: {key} must name a column, got {name!r}; there are {have}")
    return name


def _shorten(names: Sequence[str]) -> str:
    """The first names, for a message."""
    return ", ".join(name[:40] for name in names[:20]) or "none"


def _map_probabilities(value: str | None, names: Sequence[str]) -> dict[str, object]:
    if value is None or not value.endswith("*"):
        name = _find("probabilities", value, names)
        return {"probabilities": name, "probability_columns": ()}
    matches = tuple(name for name in names if name.startswith(value[:-1]))
    if not matches:
        raise SettingError(f"columns: a column must start with {value[:-1]!r}, got none")
    return {"probabilities": None, "probability_columns": matches}


def _map_actions(value: str | None, names: Sequence[str]) -> dict[str, object]:
    if value is None or "|" not in value or value in names:
        return {"actions": _find("actions", value, names), "action_ids": ()}
    ids = tuple(value.split("|"))
    if len(set(ids)) < len(ids):
        raise SettingError(f"columns: the ids of actions must differ, got {value!r}")
    return {"actions": None, "action_ids": ids}


def _map_count(value: str | None, names: Sequence[str]) -> dict[str, object]:
    if value is not None and value.isdecimal() and value not in names:
        if int(value) < 1:
            raise SettingError(f"columns: count must be at least 1, got {value}")
        return {"count": None, "fixed_count": int(value)}
    return {"count": _find("count", value, names), "fixed_count": 0}


def _map_time(value: str | None, names: Sequence[str]) -> dict[str, object]:
    if value is None or value in names:
        return {"time": value}
    name, _, unit = value.rpartition(":")
    if unit not in SECONDS_PER_UNIT:
        return {"time": _find("time", value, names)}
    return {"time": _find("time", name, names), "seconds_per_unit": SECONDS_PER_UNIT[unit]}


def _map_context(value: str | None, names: Sequence[str], mapped: set[str]) -> dict[str, object]:
    context: dict[str, None] = {}
    texts = set()
    for pattern in (value or "").split(";"):
        if not pattern:
            continue
        is_text = pattern.endswith(AS_TEXT) and pattern not in names
        pattern = pattern.removesuffix(AS_TEXT) if is_text else pattern
        if pattern in names:
            matches = [pattern]
        else:  # "*" alone means all columns that nothing else is mapped to
            matches = [n for n in names if fnmatchcase(n, pattern) and n not in mapped]
        if not matches:
            raise SettingError(f"columns: context must name columns, got {pattern!r}")
        context |= dict.fromkeys(matches)
        texts |= set(matches) if is_text else set()
    return {"context": tuple(context), "texts": frozenset(texts)}
