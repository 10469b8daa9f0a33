"""dsjson, the log format of Vowpal Wabbit, Azure AI Personalizer and its learning loop.

One JSON object a line, with cost = −reward. A line with slots is an event with a row for each slot.
The row's event id is `EVENT/SLOT`, and its eligible actions are those that the slot lists: actions
that an earlier slot has taken are not among them. In a line of slates every action belongs to one
slot, and each row has the reward of the whole slate. A slot that no action was left for has no row.

Personalizer in Apprentice mode shows the baseline action to the user, and logs the action that it
would have chosen. Such lines are known by their costs: `_label_cost` rewards the imitation, with −1
if the logged action is the baseline and 0 if not, and `_original_label_cost` is the true cost. If
the costs differ, the line is of Apprentice mode. If they are equal and are not what the imitation
would have earned, the line is not. A line that fits both is of the same mode as the line before.
In Apprentice mode the reward belongs to the baseline, which had probability 1.

The features are read in the form in which the learner and the encoder read them:

| dsjson | becomes |
|---|---|
| `"FromUrl": [{…}, {…}]`, and `"j": [{…}]` of an action | the objects, as the client sent them |
| another object, or list of objects, under a key | a namespace with the name of the key |
| a number, text, boolean or list under a key | a feature |
| objects in a namespace | features with a dot in their names: `a.b` |
| action `"i"`, and keys that start with `_` | nothing: they hold the id, labels and tags |
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import msgspec

from windvane.errors import FeatureError, FileError
from windvane.evaluation.log_batch import DecisionFeatures, LoggedAction
from windvane.evaluation.readers.file_log import FilePart, FileReader, Line, LineStream
from windvane.evaluation.readers.rows import (
    APPRENTICE,
    NEVER_ACTIVATED,
    ORPHAN_REWARDS,
    BatchBuilder,
    LogRow,
    RowReport,
    parse_time,
)

COST_TOLERANCE = 1e-6  # costs are 32-bit floats
PROBABILITY_TOLERANCE = 1e-3
NAN = float("nan")
_decode_object = msgspec.json.Decoder(dict[str, object]).decode
SENT_CONTEXT = "FromUrl"  # holds the context features of a rank request
SENT_FEATURES = "j"  # holds the features of an action of a rank request
ACTION_ID = "i"
SLOT_FEATURES = "sj"
SLOT = "slot"  # the namespace of a slot's id and features
JsonObject = dict[str, object]


class ActionHead(msgspec.Struct):
    """The parts of an action that give its id."""

    tag: str | None = msgspec.field(default=None, name="_tag")
    i: object = None
    slot_id: int | None = msgspec.field(default=None, name="_slot_id")


class SlotHead(msgspec.Struct):
    """The parts of a slot that concern its decision."""

    id: str = msgspec.field(default="", name="_id")
    included: list[int] | None = msgspec.field(default=None, name="_inc")  # None: all actions


class Request(msgspec.Struct):
    """`c`: what the rank request sent."""

    multi: list[ActionHead] = msgspec.field(name="_multi")
    slots: list[SlotHead] = msgspec.field(default_factory=list, name="_slots")


class Observation(msgspec.Struct):
    """A reward or an activation that was joined to a line."""

    v: object = None


class Outcome(msgspec.Struct):
    """What a slot got; places count from 0, the chosen one comes first."""

    places: list[int] | int = msgspec.field(name="_a")
    probabilities: list[float] | float = msgspec.field(name="_p")
    cost: float | None = msgspec.field(default=None, name="_label_cost")
    true_cost: float | None = msgspec.field(default=None, name="_original_label_cost")
    observations: list[Observation] | None = msgspec.field(default=None, name="_o")


class DsjsonEvent(msgspec.Struct):
    """A line."""

    c: msgspec.Raw = msgspec.Raw(b"")
    id: str = msgspec.field(default="", name="EventId")
    timestamp: str = msgspec.field(default="", name="Timestamp")
    cost: float | None = msgspec.field(default=None, name="_label_cost")
    true_cost: float | None = msgspec.field(default=None, name="_original_label_cost")
    probability: float | None = msgspec.field(default=None, name="_label_probability")
    action: int | None = msgspec.field(default=None, name="_label_Action")
    ranking: list[int] | None = msgspec.field(default=None, name="a")
    probabilities: list[float] | None = msgspec.field(default=None, name="p")
    observations: list[Observation] | None = msgspec.field(default=None, name="o")
    outcomes: list[Outcome] | None = msgspec.field(default=None, name="_outcomes")
    baselines: list[int] | None = msgspec.field(default=None, name="_ba")
    continuous: object = msgspec.field(default=None, name="_label_ca")
    skip_learn: bool = msgspec.field(default=False, name="_skipLearn")
    drop_share: float = msgspec.field(default=0.0, name="pdrop")
    orphan_reward: object = msgspec.field(default=None, name="RewardValue")


_decode_event = msgspec.json.Decoder(DsjsonEvent).decode
_decode_request = msgspec.json.Decoder(Request).decode


class BadLineError(ValueError):
    """A line cannot be used; the message is the reason."""


class DsjsonSlot(msgspec.Struct):
    """One decision of a line: a whole line without slots, or one slot."""

    number: int  # of the slot, from 0
    ranking: Sequence[int]  # places from 0, the chosen one first
    probabilities: Sequence[float]  # in the order of the ranking
    cost: float | None
    true_cost: float | None
    observations: list[Observation] | None
    baseline: int
    others: Sequence[int] = ()  # could be chosen too, with probabilities that are not logged


class DsjsonReader(FileReader):
    def read_parts(self, path: Path, report: RowReport, batch_rows: int) -> Iterator[FilePart]:
        lines = LineStream(path, report)
        builder = BatchBuilder(str(path), batch_rows)
        parser = LineParser(builder, report)
        for line in lines:
            if not line.text.strip():
                continue
            try:
                parser.parse(line)
            except RecursionError:
                report.refuse(str(path), line.number, "the JSON is nested too deeply")
            except (msgspec.MsgspecError, UnicodeDecodeError, BadLineError) as error:
                report.refuse(str(path), line.number, _shorten(error))
            if builder.is_full:
                yield FilePart(builder.build(), lines.share)
        yield FilePart(builder.build(), 1.0)


class LineParser:
    """Adds the decisions of lines to a batch; remembers whether Apprentice mode is on."""

    def __init__(self, builder: BatchBuilder, report: RowReport) -> None:
        self.builder = builder
        self.report = report
        self._is_apprentice = False

    def parse(self, line: Line) -> None:
        """Add the decisions of a line; raises if any part of the line is bad."""
        event = _decode_event(line.text)
        if not event.c:
            if event.orphan_reward is None:
                raise BadLineError("the line must have c, what the rank request sent")
            self.report.note(ORPHAN_REWARDS)
            return
        position = f"{self.builder.source}:{line.number}"
        if event.continuous is not None:
            raise FileError(
                f"{position}: dsjson with continuous actions (_label_ca) is not supported"
            )
        request = _decode_request(event.c)
        if event.skip_learn:
            self.report.note(NEVER_ACTIVATED)
            return
        time = _parse_time(event.timestamp)
        if not 0.0 <= event.drop_share < 1.0:
            raise BadLineError(f"pdrop must lie in [0, 1), got {event.drop_share:g}")
        ids = [_read_action_id(action, place) for place, action in enumerate(request.multi)]
        slots = _read_single(event) if event.outcomes is None else _read_slots(event, request)
        for slot in slots:
            _check_ranking(slot, len(ids))
        taken: set[int] = set()
        for row, slot in enumerate(slots):
            taken.add(self._add(line, event, time, ids, request, slot, row, taken))

    def _add(
        self,
        line: Line,
        event: DsjsonEvent,
        time: float,
        ids: list[str],
        request: Request,
        slot: DsjsonSlot,
        row: int,
        taken: set[int],
    ) -> int:
        """Add the decision of a slot; returns the place of the action that the user saw."""
        probabilities = [0.0] * len(ids)
        is_eligible = [False] * len(ids)
        for place, probability in zip(slot.ranking, slot.probabilities, strict=True):
            probabilities[place] = probability
            is_eligible[place] = place not in taken
        for place in slot.others:
            if place not in taken:
                probabilities[place], is_eligible[place] = NAN, True
        chosen = slot.ranking[0]
        is_slate = _is_slate(request)
        self._notice_mode(slot)
        if self._is_apprentice and not is_slate:
            chosen = slot.baseline
            probabilities = [float(place == chosen) for place in range(len(ids))]
            is_eligible[chosen] = True
            self.report.note(APPRENTICE)
        cost = slot.cost if slot.true_cost is None else slot.true_cost
        has_slots = event.outcomes is not None
        name = f"/{request.slots[slot.number].id or slot.number}" if has_slots else ""
        seen = slot.observations  # if the line lists them and none has a value, no reward came
        self.builder.add(
            LogRow(
                event_id=f"{event.id}{name}",
                time=time,
                reward=NAN if cost is None else 0.0 - cost,  # without −0.0
                chosen=chosen,
                probabilities=probabilities,
                is_eligible=is_eligible,
                multiplicity=1.0 / (1.0 - event.drop_share),
                is_defaulted=seen is not None and all(each.v is None for each in seen),
                line=line.number,
                read_features=partial(
                    read_decision_features, event.c, ids, slot.number if has_slots else None
                ),
                text_bytes=len(line.text),
                slot=row,
                is_slate=is_slate,
            )
        )
        return chosen

    def _notice_mode(self, slot: DsjsonSlot) -> None:
        if slot.cost is None or slot.true_cost is None:
            return
        imitation = -1.0 if slot.ranking[0] == slot.baseline else 0.0
        if abs(slot.cost - slot.true_cost) > COST_TOLERANCE:
            self._is_apprentice = True
        elif abs(slot.cost - imitation) > COST_TOLERANCE:
            self._is_apprentice = False


def _read_single(event: DsjsonEvent) -> list[DsjsonSlot]:
    """The decision of a line without slots; its places count from 1."""
    ranking, probabilities = event.ranking, event.probabilities
    if ranking is None or probabilities is None:
        raise BadLineError("the line must have a and p: the ranking and its probabilities")
    if not ranking or len(ranking) != len(probabilities):
        message = f"a and p must have the same length, got {len(ranking)} and {len(probabilities)}"
        raise BadLineError(message)
    if event.action is not None and event.action != ranking[0]:
        message = f"_label_Action must be the first of a, got {event.action} and {ranking[0]}"
        raise BadLineError(message)
    if event.probability is not None:
        expected = {probabilities[0], probabilities[0] * (1.0 - event.drop_share)}
        if min(abs(event.probability - each) for each in expected) > PROBABILITY_TOLERANCE:
            raise BadLineError(
                "_label_probability must be the first of p, "
                f"got {event.probability:g} and {probabilities[0]:g}"
            )
    places = [action - 1 for action in ranking]
    costs = (event.cost, event.true_cost)
    return [DsjsonSlot(0, places, probabilities, *costs, event.observations, 0)]


def _read_slots(event: DsjsonEvent, request: Request) -> list[DsjsonSlot]:
    """The decisions of a line with slots; their places count from 0."""
    outcomes = event.outcomes or []
    if len(outcomes) != len(request.slots):
        raise BadLineError(
            "_outcomes must have one entry for each of _slots, "
            f"got {len(outcomes)} and {len(request.slots)}"
        )
    slots, baselines = [], event.baselines or []
    for number, outcome in enumerate(outcomes):
        places = outcome.places if isinstance(outcome.places, list) else [outcome.places]
        given = outcome.probabilities
        probabilities = given if isinstance(given, list) else [given]
        if len(places) != len(probabilities):
            raise BadLineError(
                "_a and _p of a slot must have the same length, "
                f"got {len(places)} and {len(probabilities)}"
            )
        if not places:  # no action was left
            continue
        baseline = baselines[number] if number < len(baselines) else number
        costs, seen = (outcome.cost, outcome.true_cost), outcome.observations
        slot = DsjsonSlot(number, places, probabilities, *costs, seen, baseline)
        included = request.slots[number].included
        own = [k for k in range(len(request.multi)) if included is None or k in included]
        if _is_slate(request):
            own = [k for k, action in enumerate(request.multi) if action.slot_id == number]
            slot = _make_slate_slot(event, slot, own)
        if len(places) == 1 and probabilities[0] <= 1.0 - PROBABILITY_TOLERANCE:
            slot.others = [place for place in own if place not in slot.ranking]
        slots.append(slot)
    if not slots:
        raise BadLineError("a slot of the line must have an action, got none")
    return slots


def _make_slate_slot(event: DsjsonEvent, slot: DsjsonSlot, own: list[int]) -> DsjsonSlot:
    """The slot of a slate: its places count among its own actions, its cost is the slate's."""
    if not all(0 <= place < len(own) for place in slot.ranking):
        message = f"_a of slot {slot.number} must count its {len(own)} actions from 0"
        raise BadLineError(f"{message}, got {slot.ranking}")
    ranking = [own[place] for place in slot.ranking]
    return DsjsonSlot(
        slot.number,
        ranking,
        slot.probabilities,
        cost=event.cost if event.true_cost is None else event.true_cost,
        true_cost=None,  # a slate has no baseline by which Apprentice mode would be known
        observations=event.observations,
        baseline=ranking[0],
    )


def _is_slate(request: Request) -> bool:
    """Whether every action belongs to a slot."""
    return any(action.slot_id is not None for action in request.multi)


def _check_ranking(slot: DsjsonSlot, count: int) -> None:
    for place in (*slot.ranking, slot.baseline):
        if not 0 <= place < count:
            message = f"every ranked action must be one of the {count} offered ones"
            raise BadLineError(f"{message}, got the one at place {place} from 0")
    if len(set(slot.ranking)) < len(slot.ranking):
        raise BadLineError("an action must not be ranked twice")


def _read_action_id(action: ActionHead, place: int) -> str:
    """The tag of an action, else the id that Personalizer gives it, else its number from 1."""
    if action.tag:
        return action.tag
    id_ = action.i.get("id") if isinstance(action.i, dict) else None
    return str(place + 1) if id_ is None else str(id_)


def _parse_time(text: str) -> float:
    """Seconds since 1970 of a timestamp; one without a zone is in UTC."""
    try:
        return parse_time(text)
    except ValueError:
        message = f"Timestamp must be a time such as 2021-04-07T16:40:25Z, got {text[:40]!r}"
        raise BadLineError(message) from None


def _shorten(error: Exception) -> str:
    return str(error).split("\n", 1)[0][:200]


def read_decision_features(
    text: msgspec.Raw, ids: Sequence[str], slot_number: int | None
) -> DecisionFeatures:
    """The features of a line's `c`, with those of one slot if the line has slots."""
    try:
        context = _decode_object(text)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise FeatureError(f"features must be read as JSON: {_shorten(error)}") from None
    objects = read_objects(context, SENT_CONTEXT)
    slots = context.get("_slots")
    if slot_number is not None and isinstance(slots, list):
        slot = slots[slot_number]
        features = {SLOT_FEATURES: slot.get(SLOT_FEATURES)}
        merged: JsonObject = {"id": str(slot.get("_id") or slot_number)}
        own = read_objects(features, SLOT_FEATURES)
        for each in own:
            merged.update(_flatten(each))
        if own or len(slots) > 1:  # one slot without features is a single decision
            objects.append({SLOT: {**merged, "index": str(slot_number)}})
    actions = context.get("_multi")
    assert isinstance(actions, list)  # the reader has counted them
    return DecisionFeatures(
        objects,
        [
            LoggedAction(id_, read_objects(action, SENT_FEATURES))
            for id_, action in zip(ids, actions, strict=True)
        ],
    )


def read_objects(features: Mapping[str, object], sent: str) -> list[JsonObject]:
    """Objects with at most one level of namespaces; `sent` is the key of what a client sent."""
    objects: list[JsonObject] = []
    for key, value in features.items():
        if key.startswith("_") or key == ACTION_ID:
            continue
        parts = value if isinstance(value, list) and _has_objects(value) else [value]
        if key == sent:
            objects += [_limit_depth(part) for part in parts if isinstance(part, dict)]
            parts = [part for part in parts if not isinstance(part, dict)]
        for part in parts:
            if isinstance(part, dict):
                objects.append({key: _flatten(part)})
            elif part is not None:
                objects.append({key: part})
    return objects


def _has_objects(values: list[object]) -> bool:
    return any(isinstance(value, dict) for value in values)


def _limit_depth(features: JsonObject) -> JsonObject:
    """An object whose namespaces hold no further objects."""
    return {
        name: _flatten(value) if isinstance(value, dict) else value
        for name, value in features.items()
    }


def _flatten(features: JsonObject, prefix: str = "") -> JsonObject:
    """The features of an object and of all objects in it, under names joined by dots."""
    flat: JsonObject = {}
    for name, value in features.items():
        if name.startswith("_"):
            continue
        parts = value if isinstance(value, list) and _has_objects(value) else [value]
        for part in parts:
            if isinstance(part, dict):
                flat |= _flatten(part, f"{prefix}{name}.")
            else:
                flat[f"{prefix}{name}"] = part
    return flat
