"""`Learner`: chooses among actions with named features, and learns from rewards, without settings.

The service is this object with a durable log.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np

from windvane import persistence, validation
from windvane.beliefs.bank.bank import AUTO_BELIEFS, NEVER, BeliefBank, fix_half_life
from windvane.beliefs.bank.choosing import Ranking
from windvane.beliefs.bank.feature_parts import PackedSides, pick_action
from windvane.beliefs.bank.sides import (
    is_plain,
    join_lesson,
    join_packed,
    join_request,
    pack_context,
)
from windvane.beliefs.diagonal.weight_table import ABSENT
from windvane.errors import ChoiceError, SettingError, shorten
from windvane.features import ALL_CROSSINGS
from windvane.features.crossings import parse_crossings
from windvane.features.json_reader import Contribution, FeatureList, label_parts, name_crossing
from windvane.features.packed_features import (
    Action,
    PackedActions,
    PackedFeatures,
    pack_actions,
    read_action,
    read_offer,
)
from windvane.features.request_reader import (
    Features,
    OfferedAction,
    check_list,
    find_places,
    list_places,
    read_context,
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
    >>> decision = wv.Learner(seed=1).rank({}, ["news", "match"], at=0.0)
    >>> decision.probabilities
    array([0.5, 0.5])
    """

    action: str  # the id of the chosen action
    index: int  # its place among the actions that were given
    probability: float
    probabilities: Floats = field(repr=False, compare=False)  # (K,); 0 for an excluded action
    round: int
    at: float  # seconds
    key: int = field(repr=False)
    context: Sequence[Features] = field(repr=False, compare=False)
    features: Features = field(repr=False, compare=False)  # of the chosen action
    packed: "PackedSides | tuple[PackedFeatures, PackedFeatures]" = field(repr=False, compare=False)

    @property
    def lesson(self) -> "PackedSides":
        """The features of the context and of the chosen action, as they are learned."""
        return join_lesson(*self.packed) if len(self.packed) == 2 else self.packed


def _make_decision(**fields: object) -> Decision:
    """Make a decision in a third of the time of its class, which sets each field alone."""
    decision = object.__new__(Decision)
    decision.__dict__.update(fields)
    return decision


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
        self._open: set[int] = set()  # rounds that were ranked and not yet rewarded
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
        actions: Sequence[str | Features],
        *,
        exclude: Sequence[str] = (),
        at: float | None = None,
    ) -> Decision:
        """Choose one of the actions, which are ids or objects with an id and features.

        `at` is the time in seconds, by default the present.
        """
        contexts = read_context(context)
        ids, offered, features = read_offer(check_list("actions", actions))
        places = find_places(ids, exclude)
        when = time.time() if at is None else validation.real("rank", "at", at)
        ranking, packed = self.rank_packed(contexts, offered, places, when, self.round)
        index = places[ranking.chosen]
        probabilities = ranking.probabilities
        if len(places) < len(ids):
            probabilities = np.zeros(len(ids))
            probabilities[places] = ranking.probabilities
        round_ = self.round
        self._open.add(round_)
        self.round += 1
        return _make_decision(
            action=ids[index],
            index=index,
            probability=float(probabilities[index]),
            probabilities=probabilities,
            round=round_,
            at=when,
            key=self.key,
            context=contexts,
            features={**features[index]},
            packed=packed,
        )

    def rank_packed(
        self,
        context: Sequence[Mapping[str, Any]],
        actions: "PackedActions",
        places: Sequence[int],
        at: float,
        round_: int,
    ) -> "tuple[Ranking, PackedSides | tuple[PackedFeatures, PackedFeatures]]":
        """Choose among packed actions at `places`; return also what the chosen one is made of."""
        packed = pack_context(context, self.parsed_crossings)
        sides = join_packed(packed, actions, self.parsed_crossings, self.array_size)
        ranking = self.rank_sides(sides, places, at, round_)
        place = places[ranking.chosen]
        if is_plain(self.parsed_crossings, self.array_size):
            return ranking, (packed, actions.single[place])
        return ranking, pick_action(sides, place)

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
    def reward(self, decision: Decision, reward: float) -> None:
        """Learn the reward of a decision, at any time and in any order."""
        value = validation.check_reward(reward, "reward")
        self._check_open("reward", decision)
        self.learn(decision.lesson, value, decision.at, decision.round)
        self._open.remove(decision.round)

    @locked
    def dismiss(self, decision: Decision) -> None:
        """Stop waiting for the reward of a decision."""
        self._check_open("dismiss", decision)
        self._open.remove(decision.round)

    def _check_open(self, who: str, decision: Decision) -> None:
        _check_decision(who, decision)
        if decision.key != self.key or decision.round >= self.round:
            raise ChoiceError(f"{who}: this decision was made by another learner")
        if decision.round not in self._open:
            raise ChoiceError(
                f"{who}: the decision of round {decision.round} has its reward or was dismissed"
            )

    @locked
    def learn(self, lesson: "PackedSides", reward: float, at: float, round_: int) -> None:
        """Learn a reward of a context and an action."""
        self.bank.learn(lesson, reward, self.clock_of(round_, at))

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
        open_rounds = np.array(sorted(self._open), dtype=np.int64)
        return (
            {"key": self.key, "round": self.round, **header},
            {"open_rounds": open_rounds, **arrays},
        )

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
        open_rounds = arrays["open_rounds"]
        if (
            open_rounds.dtype != np.int64
            or not ((open_rounds >= 0) & (open_rounds < self.round)).all()
        ):
            raise ValueError("its open rounds are out of bounds")
        self._open = set(open_rounds.tolist())

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


def _check_decision(who: str, decision: object) -> None:
    if not isinstance(decision, Decision):
        raise ChoiceError(f"{who}: a decision must be given, got {shorten(decision)}")
