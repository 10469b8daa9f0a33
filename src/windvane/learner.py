"""`Learner`: chooses among actions with named features, and learns from rewards, without settings.

The service is this object with a durable log.
"""

import copy
import json
import re
import struct
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from hashlib import blake2b
from typing import Any, NamedTuple, Self

import msgspec
import numpy as np

from windvane import persistence, validation
from windvane.beliefs.bank.bank import AUTO_BELIEFS, NEVER, BeliefBank, fix_half_life
from windvane.beliefs.bank.choosing import Ranking
from windvane.beliefs.bank.feature_parts import PackedSides, pick_action
from windvane.beliefs.bank.sides import (
    decode_lesson,
    encode_lesson,
    encode_packed_lesson,
    is_plain,
    join_packed,
    join_page,
    join_request,
    pack_context,
)
from windvane.beliefs.bank.slot_chain import pick_slot
from windvane.beliefs.diagonal.weight_table import ABSENT
from windvane.errors import (
    ArmsError,
    ChoiceError,
    FeatureError,
    SettingError,
    WindvaneError,
    shorten,
)
from windvane.features import ALL_CROSSINGS
from windvane.features.crossings import parse_crossings
from windvane.features.json_reader import Contribution, FeatureList, label_parts, name_crossing
from windvane.features.packed_features import (
    Action,
    PackedActions,
    PackedFeatures,
    PackedOffer,
    list_places,
    pack_actions,
    read_action,
    read_offer,
)
from windvane.features.request_reader import (
    Features,
    OfferedAction,
    check_list,
    find_places,
    is_table,
    iterate_rows,
    read_context,
    read_offered_action,
)
from windvane.features.slots import (
    Slot,
    append_features,
    describe_slot,
    list_allowed,
    pack_slots,
    read_slots,
)
from windvane.persistence import Persistent, locked
from windvane.settings import (
    AUTO,
    EXPLORATION,
    MAX_ARRAY_SIZE,
    HalfLife,
    parse_half_life,
)
from windvane.types import Floats


@dataclass(frozen=True)
class Decision:
    """One decision of a learner: the chosen action, and the probability of every action.

    >>> import windvane as wv
    >>> learner = wv.Learner(seed=1)
    >>> decision = learner.rank({}, ["news", "match"], at=0.0)
    >>> decision.probabilities
    array([0.5, 0.5])
    >>> wv.Decision.from_json(decision.to_json()) == decision
    True
    >>> learner.reward(decision.id, 1.0)
    """

    id: str  # unlike that of any other decision, of this learner or of another
    action: str  # the id of the chosen action
    index: int  # its place among the actions that were given
    probability: float
    probabilities: Floats = field(repr=False, compare=False)  # (K,); 0 for an excluded action
    round: int
    at: float  # seconds
    context: Sequence[Features] = field(repr=False, compare=False)
    features: Features = field(repr=False, compare=False)  # of the chosen action
    encoded: bytes = field(repr=False, compare=False, default=b"")  # the lesson
    slot: str | None = None  # the id of the slot, if the decision is a part of a page
    slot_index: int = 0  # its place on the page

    @property
    def lesson(self) -> "PackedSides":
        """The features of the context and of the chosen action, as they are learned."""
        return decode_lesson(self.encoded)

    def to_json(self) -> str:
        """Write the decision as JSON, for a log or a database; a NaN is written as null."""
        fields = {name: value for name, value in vars(self).items() if name != "encoded"}
        fields["probabilities"] = self.probabilities.tolist()
        fields["context"] = [_write_missing(each) for each in self.context]
        return json.dumps(fields | {"features": _write_missing(self.features)}, allow_nan=False)

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Read a decision that `to_json` wrote."""
        try:
            return msgspec.convert(json.loads(text), cls, dec_hook=_read_field)
        except (msgspec.ValidationError, ValueError, TypeError, RecursionError) as reason:
            raise ChoiceError(f"from_json: this is no decision in JSON: {reason}") from None


def _write_missing(features: Features) -> dict[str, object]:
    """Return features with None in place of each NaN; arrays have none."""
    written = dict(features)
    for name, value in features.items():
        if isinstance(value, dict):
            written[name] = _write_missing(value)
        elif value != value:
            written[name] = None
    return written


def _read_field(kind: object, value: Any) -> object:
    """Read a field of a decision that `msgspec` does not know: features and probabilities."""
    if kind is object:
        return value
    return validation.check_numbers("from_json", "probabilities", value, axes=1)


_Packed = PackedSides | tuple[PackedFeatures, PackedFeatures]  # what a lesson is made of
_Place = tuple[int, int]  # of a decision: its round, and its place on the page of this round


class _OpenDecision(NamedTuple):
    """What is learned when the reward of a decision comes."""

    at: float
    encoded: bytes


def _make_id(key: int, place: _Place, decision: _OpenDecision) -> str:
    """Name a decision: its learner, its place, and a hash by which copies of a learner differ."""
    secret = key.to_bytes(8, "little")
    learner = blake2b(secret, digest_size=4).hexdigest()
    content = struct.pack("<qqd", *place, decision.at) + decision.encoded
    digest = blake2b(content, digest_size=8, key=secret).hexdigest()
    return f"{learner}-{place[0]}.{place[1]}-{digest}"


_ID = re.compile(r"([0-9a-f]{8})-(\d{1,18})\.(\d{1,9})-[0-9a-f]{16}", re.ASCII)


def _make_decision(**fields: object) -> Decision:
    """Make a decision in a third of the time of its class, which sets each field alone."""
    decision = object.__new__(Decision)
    decision.__dict__.update(fields)
    return decision


class SlotRanking(NamedTuple):
    """The choice for one slot of a page."""

    place: int  # of the chosen action among all that were offered
    probabilities: Floats  # (K,) given the slots before; 0 where an action is no candidate
    packed: "_Packed"  # of context, slot and action
    means: Floats  # (K,) the predicted rewards
    deviations: Floats  # (K,) the standard deviations of the predictions


REWARD_MODELS = ("slot", "sum", "cascade")


def count_examined(rewards: Sequence[float]) -> int:
    """How many slots of a cascade were looked at: those up to the first reward that is not 0.

    >>> count_examined([0.0, 1.0, 0.0]), count_examined([0.0, 0.0, 0.0])
    (2, 3)
    """
    return next((i + 1 for i, reward in enumerate(rewards) if reward != 0.0), len(rewards))


class Learner(Persistent):
    """Chooses among actions that have names and features, and learns from their rewards.

    How fast each feature moves, the noise of the rewards and the scale of each number are found
    from the data. `half_life` may be fixed, such as "7 days", "500 rounds" or "never". With the
    probability `exploration` an action is chosen uniformly at random. `crossings`
    lists which namespaces of the context are crossed with which of the action. Arrays of more than
    `array_size` numbers, such as long embeddings, are projected to this size; 0 keeps them.

    >>> import windvane as wv
    >>> learner = wv.Learner(seed=1)
    >>> for visitor in range(200):
    ...     context = {"device": "phone" if visitor % 2 else "desktop"}
    ...     decision = learner.rank(context, ["news", "match"], at=float(visitor))
    ...     is_liked = (decision.action == "match") == (context["device"] == "phone")
    ...     learner.reward(decision, 1.0 if is_liked else 0.0)
    >>> learner.rank({"device": "phone"}, ["news", "match"], at=200.0).action
    'match'
    """

    FILE_KIND = "Learner"

    def __init__(
        self,
        *,
        half_life: str = AUTO,
        exploration: float = EXPLORATION,
        crossings: str = ALL_CROSSINGS,
        array_size: int = 0,
        seed: int | np.random.SeedSequence | None = None,
    ) -> None:
        from windvane.beliefs.chooser import make_key

        super().__init__()
        who = "Learner"
        if not isinstance(half_life, str):
            raise SettingError(
                f"{who}: half_life must be a text such as '7 days', got {shorten(half_life)}"
            )
        self.half_life = half_life
        self.exploration = validation.share(who, "exploration", exploration)
        self.crossings = validation.of_kind(who, "crossings", crossings, str)
        self.parsed_crossings = parse_crossings(self.crossings)
        self.array_size = validation.whole(who, "array_size", array_size, least=0)
        if self.array_size > MAX_ARRAY_SIZE:
            raise SettingError(
                f"{who}: array_size must be at most {MAX_ARRAY_SIZE}, got {array_size}"
            )
        self.key = make_key(who, seed)
        self.round = 0
        self._open: dict[_Place, _OpenDecision] = {}  # those without a reward yet
        self.bank = self._build_bank()

    def _build_bank(self) -> "BeliefBank":
        self.ages_in_rounds = False
        self.is_fixed = self.half_life.strip().lower() != AUTO
        if not self.is_fixed:
            return BeliefBank(AUTO_BELIEFS, self.exploration)
        parsed = _parse_half_life(self.half_life)
        self.ages_in_rounds = parsed is not None and parsed.in_rounds
        return BeliefBank(fix_half_life(parsed.length if parsed else NEVER), self.exploration)

    def __repr__(self) -> str:
        return (
            f"Learner(half_life={self.half_life!r}, "
            f"exploration={self.exploration!r}, "
            f"crossings={self.crossings!r}, array_size={self.array_size})"
        )

    @locked
    def rank(
        self,
        context: Features | Sequence[Features],
        actions: Sequence[str | int | Features],
        *,
        exclude: Sequence[str | int] = (),
        at: float | datetime | None = None,
    ) -> Decision:
        """Choose one of the actions, which are ids or objects with an id and features.

        The context is a dict, a list of dicts or a row of a table. `at` is the time, in seconds or
        as a datetime, by default the present; a datetime without a zone is in UTC.
        """
        contexts = read_context(context)
        offer = read_offer(check_list("actions", actions))
        return self._decide(contexts, offer, find_places(offer.ids, exclude), at)

    @locked
    def predict(
        self,
        context: Features | Sequence[Features],
        actions: Sequence[str | int | Features],
        *,
        at: float | datetime | None = None,
    ) -> Floats:
        """Predict the reward of each action, (K,); no decision is made."""
        offer = read_offer(check_list("actions", actions))
        find_places(offer.ids, ())
        when = time.time() if at is None else _read_time("predict", at)
        sides = self.join(read_context(context), offer.actions)
        return self.bank.predict(sides, self.clock_of(self.round, when))

    @locked
    def rank_many(
        self,
        contexts: Iterable[Features | Sequence[Features]],
        actions: Sequence[str | int | Features],
        *,
        exclude: Sequence[str | int] = (),
        at: float | datetime | None = None,
    ) -> list[Decision]:
        """Choose one of the actions for each context: a list, or the rows of a table.

        The decisions are those of `rank`, one after the other. If one is refused, none is made.
        """
        offer = read_offer(check_list("actions", actions))
        places = find_places(offer.ids, exclude)
        each_context = [read_context(context) for context in check_list("contexts", contexts)]
        first, decisions = self.round, []
        try:
            decisions += [self._decide(context, offer, places, at) for context in each_context]
        finally:
            if len(decisions) < len(each_context):
                for round_ in range(first, self.round):
                    del self._open[round_, 0]
                self.round = first
        return decisions

    def _decide(
        self,
        context: list[dict[str, object]],
        offer: PackedOffer,
        places: Sequence[int],
        at: float | datetime | None,
    ) -> Decision:
        """Choose among the actions at `places` of an offer."""
        when = time.time() if at is None else _read_time("rank", at)
        round_, ids = self.round, offer.ids
        ranking, packed = self.rank_packed(context, offer.actions, places, when, round_)
        index = places[ranking.chosen]
        probabilities = ranking.probabilities
        if len(places) < len(ids):
            probabilities = np.zeros(len(ids))
            probabilities[places] = ranking.probabilities
        self.round += 1
        return _make_decision(
            **self._keep((round_, 0), when, packed),
            action=ids[index],
            index=index,
            probability=float(probabilities[index]),
            probabilities=probabilities,
            context=context,
            features={**offer.features[index]},
        )

    def _keep(self, place: _Place, at: float, packed: "_Packed") -> dict[str, object]:
        """Keep what a decision needs until its reward comes; return its id, time and lesson."""
        encoded = (
            encode_lesson(packed)
            if isinstance(packed, PackedSides)
            else encode_packed_lesson(*packed)
        )
        waiting = self._open[place] = _OpenDecision(at, encoded)
        id_ = _make_id(self.key, place, waiting)
        return {"id": id_, "round": place[0], "at": at, "encoded": encoded}

    def rank_packed(
        self,
        context: Sequence[Mapping[str, Any]],
        actions: "PackedActions",
        places: Sequence[int],
        at: float,
        round_: int,
    ) -> "tuple[Ranking, _Packed]":
        """Choose among packed actions at `places`; return also what the chosen one is made of."""
        packed = pack_context(context, self.parsed_crossings)
        sides = join_packed(packed, actions, self.parsed_crossings, self.array_size)
        ranking = self.rank_sides(sides, places, at, round_)
        place = places[ranking.chosen]
        if is_plain(self.parsed_crossings, self.array_size):
            return ranking, (packed, actions.single[place])
        return ranking, pick_action(sides, place)

    @locked
    def rank_slots(
        self,
        context: Features | Sequence[Features],
        actions: Sequence[str | int | Features],
        slots: Sequence[str | Features],
        *,
        at: float | datetime | None = None,
    ) -> list[Decision]:
        """Choose a different action for each slot of a page, in the order of the slots.

        A slot is an id, or an object with an id, `exclude` (ids of actions) and features. The
        probabilities of a decision are exact given the slots before, so that those of a page
        are their products. `exploration` is divided by the number of slots.

        >>> import windvane as wv
        >>> slots = ["top", {"id": "side", "exclude": ["video"]}]
        >>> page = wv.Learner(seed=1).rank_slots({}, ["news", "match", "video"], slots, at=0.0)
        >>> [decision.slot for decision in page]
        ['top', 'side']
        >>> page[0].action != page[1].action != "video"
        True
        """
        contexts = read_context(context)
        ids, offered, features = read_offer(check_list("actions", actions))
        page = read_slots(slots, ids)
        when = time.time() if at is None else _read_time("rank_slots", at)
        rankings = self.rank_slots_packed(contexts, offered, page, when, self.round)
        round_ = self.round
        self.round += 1
        is_single = len(page) == 1 and not page[0].features
        return [
            _make_decision(
                **self._keep((round_, index), when, ranking.packed),
                action=ids[ranking.place],
                index=ranking.place,
                probability=float(ranking.probabilities[ranking.place]),
                probabilities=ranking.probabilities,
                context=contexts if is_single else [*contexts, describe_slot(slot, index)],
                features={**features[ranking.place]},
                slot=slot.id,
                slot_index=index,
            )
            for index, (slot, ranking) in enumerate(zip(page, rankings, strict=True))
        ]

    def top(
        self,
        context: Features | Sequence[Features],
        actions: Sequence[str | int | Features],
        k: int,
        *,
        exclude: Sequence[str | int] = (),
        at: float | datetime | None = None,
    ) -> list[Decision]:
        """Rank k of the actions: those of the slots "1" to "k" of a page, the best place first.

        >>> import windvane as wv
        >>> ranked = wv.Learner(seed=1).top({}, ["news", "match", "video"], 2, at=0.0)
        >>> len({decision.action for decision in ranked})
        2
        """
        count = validation.whole("top", "k", k)
        slots = [{"id": f"{place + 1}", "exclude": exclude} for place in range(count)]
        return self.rank_slots(context, actions, slots, at=at)

    def rank_slots_packed(
        self,
        context: Sequence[Mapping[str, Any]],
        actions: "PackedActions",
        slots: Sequence[Slot],
        at: float,
        round_: int,
    ) -> list[SlotRanking]:
        """Fill slots with packed actions, one after the other; raise ArmsError if that cannot be.

        One slot without features is ranked as a single decision, with the same bits.
        """
        count = len(actions.single)
        if len(slots) == 1 and not slots[0].features:
            places = slots[0].places
            ranking, lesson = self.rank_packed(context, actions, places, at, round_)
            spread = np.zeros((3, count))
            spread[:, list_places(places)] = ranking[1:]
            return [SlotRanking(places[ranking.chosen], spread[0], lesson, *spread[1:])]
        packed = pack_context(context, self.parsed_crossings)
        packed_slots, all_slots, ends = pack_slots(slots)
        whole = append_features(packed, all_slots)
        sides = join_packed(whole, actions, self.parsed_crossings, self.array_size)
        starts = packed.feature_count + ends
        clock = self.clock_of(round_, at)
        allowed = list_allowed(slots, count)
        page = self.bank.rank_page(sides, starts, allowed, clock, self.key, round_)
        if not len(page.chosen):
            raise ArmsError("rank_slots: the slots exclude so much that they cannot all be filled")
        has_plain_sides = is_plain(self.parsed_crossings, self.array_size)
        return [
            SlotRanking(
                place,
                page.probabilities[index],
                (append_features(packed, packed_slots[index]), actions.single[place])
                if has_plain_sides
                else pick_action(pick_slot(sides, starts, index), place),
                page.means[index],
                page.deviations[index],
            )
            for index, place in enumerate(page.chosen.tolist())
        ]

    def rank_sides(
        self, sides: "PackedSides", places: Sequence[int], at: float, round_: int
    ) -> "Ranking":
        """Choose among the actions at `places` of joined features."""
        clock = self.clock_of(round_, at)
        return self.bank.rank(sides, list_places(places), clock, self.key, round_)

    def join(self, context: Sequence[Mapping[str, Any]], actions: "PackedActions") -> "PackedSides":
        """Join the features of a context with those of packed actions."""
        return join_request(context, actions, self.parsed_crossings, self.array_size)

    @locked
    def reward(self, decision: Decision | str, reward: float) -> None:
        """Learn the reward of a decision or of its id, at any time and in any order, once."""
        value = validation.check_reward(reward, "reward")
        place = self._find_open("reward", decision)
        waiting = self._open[place]
        self.learn(decode_lesson(waiting.encoded), value, waiting.at, place[0])
        del self._open[place]

    @locked
    def reward_page(
        self,
        decisions: Sequence[Decision | str],
        rewards: float | Sequence[float],
        *,
        model: str = "sum",
    ) -> None:
        """Learn the rewards of slots of a page, which are decisions of one `rank_slots`, or ids.

        | model     | rewards                              | what is learned                       |
        |-----------|--------------------------------------|---------------------------------------|
        | `slot`    | one for each slot                    | a lesson for each slot                |
        | `sum`     | one number for the page, or a list   | one lesson: what all slots add        |
        | `cascade` | one for each slot                    | no lesson below the first that is not |
        |           |                                      | 0: nobody looked there                |
        """
        who = "reward_page"
        if model not in REWARD_MODELS:
            names = ", ".join(REWARD_MODELS)
            raise SettingError(f"{who}: model must be one of {names}, got {shorten(model)}")
        page = [self._find_open(who, each) for each in check_list("decisions", decisions)]
        if len(set(page)) != len(page) or len({round_ for round_, _ in page}) != 1:
            raise ChoiceError(f"{who}: the decisions must be different slots of one page")
        is_number = model == "sum" and np.ndim(rewards) == 0
        listed = [rewards] if is_number else check_list("rewards", rewards)  # type: ignore[arg-type]
        values = [validation.check_reward(each, who) for each in listed]
        if not is_number and len(values) != len(page):
            raise ChoiceError(
                f"{who}: there must be a reward for each decision, "
                f"got {len(values)} for {len(page)}"
            )
        lessons = [decode_lesson(self._open[place].encoded) for place in page]
        at, round_ = self._open[page[0]].at, page[0][0]
        if model == "sum":
            self.learn_page(lessons, sum(values), at, round_)
        else:
            examined = count_examined(values) if model == "cascade" else len(page)
            for lesson, value in zip(lessons[:examined], values, strict=False):
                self.learn(lesson, value, at, round_)
        for place in page:
            del self._open[place]

    @locked
    def dismiss(self, decision: Decision | str) -> None:
        """Stop waiting for the reward of a decision or of its id."""
        del self._open[self._find_open("dismiss", decision)]

    def _find_open(self, who: str, decision: object) -> _Place:
        """Find the place of a decision that waits for its reward."""
        id_ = decision.id if isinstance(decision, Decision) else decision
        parts = _ID.fullmatch(id_) if isinstance(id_, str) else None
        if parts is None:
            raise ChoiceError(f"{who}: a decision or its id must be given, got {shorten(decision)}")
        place = int(parts[2]), int(parts[3])
        waiting = self._open.get(place)
        own = _make_id(self.key, place, waiting or _OpenDecision(0.0, b""))
        if (
            place[0] >= self.round
            or not own.startswith(parts[1])
            or (waiting is not None and own != id_)
        ):
            raise ChoiceError(f"{who}: this decision was made by another learner")
        if waiting is None:
            name = decision.slot if isinstance(decision, Decision) else place[1] or None
            slot = "" if name is None else f" for slot {shorten(name)}"
            raise ChoiceError(
                f"{who}: the decision of round {place[0]}{slot} has its reward or was dismissed"
            )
        return place

    @locked
    def learn_from(
        self,
        history: Any,
        *,
        context: str | Sequence[str] | None = None,
        action: str = "action",
        reward: str = "reward",
        time: str | None = None,
        actions: Sequence[str | int | Features] = (),
    ) -> None:
        """Learn from a table of past decisions: of pandas, polars or pyarrow, or a list of dicts.

        `context` lists the columns that are features of the context, by default all others, or
        names one column of dicts. The column of the action has ids, whose features are looked up in
        `actions`, or dicts. The column of the time is needed if a half-life in time is fixed.

        The rows are learned in their order, with the same result as a rank of each row with its
        action alone and the reward of this decision. If one is refused, nothing is learned.
        """
        known = {read_offered_action(each).id: each for each in check_list("actions", actions)}
        columns = [action, reward] if time is None else [action, reward, time]
        learner = copy.deepcopy(self)
        rows = iterate_rows(history) if is_table(history) else check_list("history", history)
        for place, row in enumerate(rows):
            who = f"learn_from: row {place}"
            past = _read_past(who, row, context, columns)
            value = validation.check_reward(past.reward, who)
            at = 0.0 if time is None else _read_time(who, past.time)
            try:
                chosen = past.action
                if known and (id_ := read_offered_action(chosen).id) not in known:
                    raise FeatureError(f"the action {shorten(id_)} is not among the actions")
                offer = read_offer([known[id_] if known else chosen])
                lesson = learner.join(read_context(past.context), offer.actions)
            except WindvaneError as refused:
                reason = str(refused).removeprefix("rank: ")
                raise type(refused)(f"{who}: {reason}") from None
            learner.learn(lesson, value, at, learner.round)
            learner.round += 1
        self.__dict__.update({**vars(learner), "_lock": self._lock})

    @locked
    def learn(self, lesson: "PackedSides", reward: float, at: float, round_: int) -> None:
        """Learn a reward of a context and an action."""
        self.bank.learn(lesson, reward, self.clock_of(round_, at))

    @locked
    def learn_page(
        self, lessons: Sequence["PackedSides"], reward: float, at: float, round_: int
    ) -> None:
        """Learn one reward to which all slots of a page add."""
        self.bank.learn(join_page(lessons), reward, self.clock_of(round_, at))

    @locked
    def amend_page(
        self, lessons: Sequence["PackedSides"], more: float, at: float, round_: int
    ) -> None:
        """Add to the reward of a page that was learned before."""
        self.bank.amend(join_page(lessons), more, self.clock_of(round_, at))

    @locked
    def amend(self, lesson: "PackedSides", more: float, at: float, round_: int) -> None:
        """Add to a reward that was learned before."""
        self.bank.amend(lesson, more, self.clock_of(round_, at))

    def clock_of(self, round_: int, at: float) -> float:
        """The time on the clock of the beliefs: lessons, or rounds or seconds of a half-life."""
        if not self.is_fixed:
            return float(self.bank.lessons)
        return float(round_) if self.ages_in_rounds else at

    @property
    def now(self) -> float:
        """The present on the clock of the beliefs, or the time of the newest lesson."""
        return self.bank.now if self.is_fixed else float(self.bank.lessons)

    def explain(self, decision: Decision) -> list[Contribution]:
        """List what each feature and crossing adds to the predicted reward of the chosen action.

        The largest come first. The sum of all is the prediction of the present belief.
        """
        _check_decision("explain", decision)
        action = OfferedAction(decision.action, [decision.features])
        return self.explain_action(decision.context, action, decision.at, decision.round)

    @locked
    def explain_action(
        self,
        context: Sequence[Mapping[str, Any]],
        action: Action,
        at: float,
        round_: int,
        with_category: bool = True,
    ) -> list[Contribution]:
        """List what each feature and crossing adds to the prediction of an action, largest first.

        Without categories, all categories of a feature count under its name.
        """
        amounts = self._explain(context, action, at, round_, self.bank.leader, with_category)
        totals = [Contribution(name, float(each.sum())) for name, each in amounts.items()]
        return sorted(totals, key=lambda contribution: -abs(contribution.amount))

    @locked
    def split_speeds(
        self, context: Sequence[Mapping[str, Any]], action: Action, at: float, round_: int
    ) -> dict[str, Floats]:
        """Split what each feature and crossing adds by how fast it fades: `bank.speeds`."""
        return self._explain(context, action, at, round_, self.bank.parts_belief, False)

    def _explain(
        self,
        context: Sequence[Mapping[str, Any]],
        action: Action,
        at: float,
        round_: int,
        belief: int,
        with_category: bool,
    ) -> dict[str, Floats]:
        """Return what each feature and crossing adds to the prediction by a belief, by name."""
        sides = self.join(context, pack_actions([action]))
        pairs, amounts = self.bank.explain(sides, self.clock_of(round_, at), belief)
        context_features = FeatureList("the context", context)
        action_features = read_action(action.id, action.features)
        labels = ["constant"]  # of ABSENT, which is -1
        for side, features in (("action", action_features), ("context", context_features)):
            labels = label_parts(side, features, with_category, self.array_size) + labels
        totals: dict[str, Floats] = {}
        for pair, own in zip(pairs.tolist(), amounts, strict=True):
            known = [labels[place] for place in pair if place != ABSENT]
            name = name_crossing(*known) if len(known) == 2 else (known or labels[-1:])[0]
            totals[name] = totals.get(name, 0.0) + own
        return totals

    def export_settings(self) -> persistence.Header:
        return {
            "half_life": self.half_life,
            "exploration": self.exploration,
            "crossings": self.crossings,
            "array_size": self.array_size,
        }

    def export_state(self) -> tuple[persistence.Header, persistence.Arrays]:
        header, arrays = self.bank.export_state()
        waiting = sorted(self._open.items())
        encoded = [decision.encoded for _, decision in waiting]
        return {"key": self.key, "round": self.round, **header}, {
            "open_places": np.array([place for place, _ in waiting], np.int64).reshape(-1, 2),
            "open_times": np.array([decision.at for _, decision in waiting], np.float64),
            "open_sizes": np.array([*map(len, encoded)], np.int64),
            "open_lessons": np.frombuffer(b"".join(encoded), np.uint8),
            **arrays,
        }

    @classmethod
    def from_settings(cls, header: persistence.Header, arrays: persistence.Arrays) -> Self:
        return cls(
            half_life=header["half_life"],
            exploration=header["exploration"],
            crossings=header["crossings"],
            array_size=header.get("array_size", 0),
            seed=0,
        )

    def restore_state(self, header: persistence.Header, arrays: persistence.Arrays) -> None:
        if header["newest"] is not None:
            validation.real("load", "newest", header["newest"])
        self.bank.restore_state(header, arrays)
        self.key = validation.whole("load", "key", header["key"], least=0)
        self.round = validation.whole("load", "round", header["round"], least=0)
        self._open = _read_open_decisions(arrays, self.round)

    def _comparable_state(self) -> tuple[persistence.Header, persistence.Arrays]:
        """Return the state with the weights in the order of their keys."""
        header, arrays = self.export_state()
        tables = {"weight_keys": "weight_sums", "group_keys": "evidence", "scale_keys": "scales"}
        for keys, rows in tables.items():
            order = arrays[keys].argsort()
            arrays |= {keys: arrays[keys][order], rows: arrays[rows][order]}
        return header, arrays


def _parse_half_life(text: str) -> HalfLife | None:
    try:
        parsed = parse_half_life(text)
    except SettingError:
        parsed = HalfLife(0.0, in_rounds=False)
    if parsed is not None and parsed.length <= 0.0:
        raise SettingError(
            f"Learner: half_life must be auto, never, or a duration above 0 such as 7 days or "
            f"500 rounds, got {shorten(text)}"
        )
    return parsed


def _read_open_decisions(arrays: persistence.Arrays, rounds: int) -> dict[_Place, _OpenDecision]:
    """Read the saved decisions that wait for a reward; raise ValueError if they do not fit."""
    names = ("open_places", "open_times", "open_sizes", "open_lessons")
    places, times, sizes, content = columns = [arrays[name] for name in names]
    count = len(sizes)
    if (
        [column.dtype for column in columns] != [np.int64, np.float64, np.int64, np.uint8]
        or [column.shape for column in columns[:3]] != [(count, 2), (count,), (count,)]
        or content.shape != (sum(sizes.tolist()),)
        or len(np.unique(places, axis=0)) < count
        or (places < 0).any()
        or (places[:, 0] >= rounds).any()
        or (sizes < 0).any()
        or not np.isfinite(times).all()
    ):
        raise ValueError("its open decisions are out of bounds")
    lessons = [each.tobytes() for each in np.split(content, np.cumsum(sizes)[:-1])] if count else []
    for lesson in lessons:
        decode_lesson(lesson)  # raises ValueError if it is damaged
    waiting = map(_OpenDecision, times.tolist(), lessons)
    return {
        (round_, slot): each for (round_, slot), each in zip(places.tolist(), waiting, strict=True)
    }


class _Past(NamedTuple):
    """A row of a history."""

    context: Any
    action: Any
    reward: object
    time: object


def _read_past(
    who: str, row: Any, context: str | Sequence[str] | None, columns: list[str]
) -> _Past:
    """Read a row of a history whose `columns` are the action, the reward and perhaps the time."""
    if not isinstance(row, Mapping):
        raise FeatureError(f"{who} must be a dict, got {shorten(row)}")
    try:
        if isinstance(context, str):
            features = row[context]
        elif context is not None:
            features = {name: row[name] for name in context}
        else:
            features = {name: value for name, value in row.items() if name not in columns}
        action, reward, *time = [row[name] for name in columns]
    except KeyError as missing:
        names = ", ".join(map(str, row))
        raise FeatureError(f"{who} has no column {missing}, got {names}") from None
    return _Past(features, action, reward, time[0] if time else None)


def _read_time(who: str, value: object) -> float:
    """Return a time in seconds; a date or a datetime without a zone is in UTC."""
    if isinstance(value, np.datetime64):
        value = value.astype("M8[us]").tolist()
    if isinstance(value, str):
        with suppress(ValueError):
            value = datetime.fromisoformat(value)
    if isinstance(value, date) and not isinstance(value, datetime):
        value = datetime(value.year, value.month, value.day)
    if isinstance(value, datetime) and value == value:  # NaT of pandas is not itself
        value = (value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp()
    return validation.real(who, "at", value)


def _check_decision(who: str, decision: object) -> None:
    if not isinstance(decision, Decision):
        raise ChoiceError(f"{who}: a decision must be given, got {shorten(decision)}")
