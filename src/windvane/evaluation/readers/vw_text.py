"""Vowpal Wabbit's text formats of contextual bandits: cb_adf and cb. Cost = −reward.

In cb_adf an event is several lines, and an empty line ends it: the context after `shared`, then a
line for each action, of which the chosen one starts with `0:COST:PROBABILITY`. The id of an action
is its tag, or else the text of its features. In cb an event is one line, `ACTION:COST:PROBABILITY |
context`, with actions that count from 1 to the largest number in the files. Only the probability of
the chosen action is known in both.

Features:

| text | becomes |
|---|---|
| `\\| age:25` | the number `age` |
| `\\|User age:25` | the number `age` in the namespace `User` |
| `\\|User device=phone` | the category `device=phone` in the namespace |
| `\\|User new` | the number `new` = 1 |
| `\\|User tag=a tag=b` | the categories `tag=a` and `tag=b` |
| `\\|User:2 age:25` | numbers times 2 |
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple, cast

from windvane.errors import FileError
from windvane.evaluation.log_batch import DecisionFeatures, LoggedAction
from windvane.evaluation.readers.file_log import FilePart, FileReader, Line, LineStream, read_start
from windvane.evaluation.readers.rows import BatchBuilder, LogRow, RowReport

NAN = float("nan")
NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
LABEL = re.compile(rf"(?P<action>\d+):(?P<cost>{NUMBER}):(?P<probability>{NUMBER})")
SHARED = "shared"
OTHER_PROBLEMS = ("ccb", "slates")
MAX_ACTIONS = 100_000
JsonObject = dict[str, object]


class Example(NamedTuple):
    """A line: its label, its tag and its features as text."""

    label: str
    tag: str
    features: str


class Label(NamedTuple):
    """What is known of the chosen action."""

    action: int
    cost: float
    probability: float


class Event(NamedTuple):
    """A decision: its label, and the place of the chosen action among those offered."""

    label: Label
    chosen: int
    action_count: int
    read_features: "partial[DecisionFeatures]"


class BadEventError(ValueError):
    """An event cannot be used; the message is the reason."""


def looks_like_vw(start: bytes) -> bool:
    """Whether a file that starts with these bytes can be a text of Vowpal Wabbit."""
    first = start.lstrip().split(b"\n", 1)[0].decode("utf-8", "replace")
    label = first.partition("|")[0].split()
    if "|" not in first:
        return False
    return not label or label[0] in (SHARED, *OTHER_PROBLEMS) or bool(LABEL.match(label[0]))


class VwTextReader(FileReader):
    has_times = False
    has_event_ids = False

    def __init__(self, paths: Sequence[Path], columns: Mapping[str, str] | None = None) -> None:
        super().__init__(paths)
        lines = [line.strip() for line in read_start(self.paths[0]).strip().split(b"\n")]
        has_shared = any(line.startswith(SHARED.encode()) for line in lines)
        self.is_multiline = has_shared or b"" in lines  # an empty line ends an event
        self.action_count = 0  # of cb, all files together

    def prepare(self) -> None:
        """Find the largest number of an action, if every event is one line."""
        if self.is_multiline or self.action_count:
            return
        for path in self.paths:
            for line in LineStream(path, RowReport()):
                match = LABEL.match(line.text.decode("utf-8", "replace").lstrip())
                if match and len(match["action"]) <= len(str(MAX_ACTIONS)):
                    self.action_count = max(self.action_count, int(match["action"]))
        if self.action_count > MAX_ACTIONS:
            message = f"the number of an action must be at most {MAX_ACTIONS}"
            raise FileError(f"{self.paths[0]}: {message}, got {self.action_count}")

    def read_parts(self, path: Path, report: RowReport, batch_rows: int) -> Iterator[FilePart]:
        stream = LineStream(path, report)
        builder = BatchBuilder(str(path), batch_rows)
        for lines in _group_lines(stream, self.is_multiline):
            try:
                texts = [line.text.decode("utf-8") for line in lines]
                if (first := texts[0].split(maxsplit=1)[0]) in OTHER_PROBLEMS:
                    message = f"text of {first} is not supported, only of cb and cb_adf"
                    raise FileError(f"{path}:{lines[0].number}: {message}")
                event = _parse_multiline(texts) if self.is_multiline else self._parse_line(texts[0])
                builder.add(_make_row(path, lines[0].number, event, sum(map(len, texts))))
            except UnicodeDecodeError:
                report.refuse(str(path), lines[0].number, "the lines must be text in UTF-8")
            except BadEventError as error:
                report.refuse(str(path), lines[0].number, str(error))
            if builder.is_full:
                yield FilePart(builder.build(), stream.share)
        yield FilePart(builder.build(), 1.0)

    def _parse_line(self, text: str) -> Event:
        example = _parse_example(text)
        if not example.label or example.label == SHARED:
            raise BadEventError("a line must have a label ACTION:COST:PROBABILITY")
        label = _parse_label(example.label)
        _check_features([example.features])
        read = partial(_read_line, example.features, self.action_count)
        return Event(label, label.action - 1, self.action_count, read)


def _parse_multiline(texts: list[str]) -> Event:
    examples = [_parse_example(text) for text in texts]
    shared = [example for example in examples if example.label == SHARED]
    actions = [example for example in examples if example.label != SHARED]
    if len(shared) > 1:
        raise BadEventError(f"an event must have one shared line, got {len(shared)}")
    labelled = [place for place, example in enumerate(actions) if example.label]
    if len(labelled) != 1:
        message = "one action of an event must have a label ACTION:COST:PROBABILITY"
        raise BadEventError(f"{message}, got {len(labelled)}")
    label = _parse_label(actions[labelled[0]].label)
    context = shared[0].features if shared else ""
    features = [action.features for action in actions]
    _check_features([context, *features])
    ids = [action.tag or " ".join(action.features.split()) for action in actions]
    read = partial(_read_multiline, context, ids, features)
    return Event(label, labelled[0], len(actions), read)


def _make_row(path: Path, line: int, event: Event, text_bytes: int) -> LogRow:
    probabilities = [NAN] * event.action_count
    if 0 <= event.chosen < event.action_count:
        probabilities[event.chosen] = event.label.probability
    return LogRow(
        event_id=f"{path.name}:{line}",
        time=0.0,
        reward=0.0 - event.label.cost,
        chosen=event.chosen,
        probabilities=probabilities,
        is_eligible=[True] * event.action_count,
        line=line,
        read_features=event.read_features,
        text_bytes=text_bytes,
    )


def _read_multiline(shared: str, ids: list[str], actions: list[str]) -> DecisionFeatures:
    seen: dict[str, int] = {}
    logged = []
    for id_, features in zip(ids, actions, strict=True):
        seen[id_] = seen.get(id_, 0) + 1
        unique = id_ if seen[id_] == 1 else f"{id_}#{seen[id_]}"
        logged.append(LoggedAction(unique, parse_namespaces(features)))
    return DecisionFeatures(parse_namespaces(shared), logged)


def _read_line(features: str, count: int) -> DecisionFeatures:
    actions = [LoggedAction(str(action), []) for action in range(1, count + 1)]
    return DecisionFeatures(parse_namespaces(features), actions)


def _parse_example(text: str) -> Example:
    """Split a line into label, tag and features."""
    head, bar, features = text.partition("|")
    if not bar:
        raise BadEventError(f"a line must have a bar before its features, got {text[:60]!r}")
    tokens, tag = head.split(), ""
    is_label = bool(tokens) and (tokens[-1] == SHARED or LABEL.fullmatch(tokens[-1]) is not None)
    touches_bar = not head[-1:].isspace()
    if tokens and (tokens[-1].startswith("'") or (touches_bar and not is_label)):
        tag = tokens.pop().removeprefix("'")
    if len(tokens) > 1:
        raise BadEventError(f"a line must have one label, got {head.strip()[:60]!r}")
    return Example(tokens[0] if tokens else "", tag, features)


def _parse_label(text: str) -> Label:
    match = LABEL.fullmatch(text)
    if match is None or len(match["action"]) > len(str(MAX_ACTIONS)):
        raise BadEventError(f"a label must be ACTION:COST:PROBABILITY, got {text[:60]!r}")
    return Label(int(match["action"]), float(match["cost"]), float(match["probability"]))


def _check_features(texts: list[str]) -> None:
    for text in texts:
        try:
            parse_namespaces(text)
        except ValueError:
            message = f"a feature must be NAME, NAME:NUMBER or NAME=TEXT, got {text[:60]!r}"
            raise BadEventError(message) from None


def _group_lines(lines: LineStream, is_multiline: bool) -> Iterator[list[Line]]:
    """The lines of each event."""
    event: list[Line] = []
    for line in lines:
        if line.text.strip():
            event.append(line)
        if event and (not is_multiline or not line.text.strip()):
            yield event
            event = []
    if event:
        yield event


def parse_namespaces(text: str) -> list[JsonObject]:
    """Parse what stands after the first bar of a line; raises ValueError."""
    top: JsonObject = {}
    namespaces: dict[str, JsonObject] = {}
    for part in text.split("|"):
        head, *tokens = part.split() if part[:1].strip() else ["", *part.split()]
        name, scale = _split_number(head, 1.0)
        features = namespaces.setdefault(name, {}) if name else top
        for token in tokens:
            _add_feature(features, token, scale)
    objects: list[JsonObject] = [{name: each} for name, each in namespaces.items() if each]
    return [top, *objects] if top else objects


def _add_feature(features: JsonObject, token: str, scale: float) -> None:
    name, equals, value = token.partition("=")
    if equals and ":" not in value:
        earlier = features.get(name)
        if earlier is None:
            features[name] = value
        else:
            texts = earlier if isinstance(earlier, list) else [earlier]
            features[name] = [*map(str, cast(list[object], texts)), value]
        return
    name, number = _split_number(token, 1.0)
    features[name] = number * scale


def _split_number(token: str, default: float) -> tuple[str, float]:
    name, colon, number = token.rpartition(":")
    return (name, float(number)) if colon else (token, default)
