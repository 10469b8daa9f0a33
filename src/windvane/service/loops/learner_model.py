"""The model of a loop: a learner, which finds its half-life and its scale itself.

A loop and its monitoring use the learner only through `LearnerModel`. The features of a decision
are bytes that the model makes and that only the model reads; the log keeps them. A model changes by
lessons and by changes of settings alone. Its arithmetic is compiled in the order in which it is
written (`compiled_in_order`), so the log gives the same bits again in every process.
"""

import io
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from windvane.beliefs.bank.bank import compute_fades, transfer_beliefs
from windvane.beliefs.bank.dense import count_dense_numbers
from windvane.beliefs.bank.feature_parts import PackedSides, pick_action
from windvane.beliefs.bank.sides import (
    decode_lesson,
    encode_lesson,
    encode_packed_lesson,
    is_plain,
    join_packed,
    pack_context,
)
from windvane.beliefs.diagonal.kernels import MOMENT, PRECISION
from windvane.features.json_reader import Contribution, JsonObjects
from windvane.features.packed_features import (
    Action,
    PackedActions,
    PackedFeatures,
    pack_actions,
)
from windvane.features.slots import Slot, describe_contexts
from windvane.learner import Learner
from windvane.service.clock import MICROSECONDS_PER_SECOND
from windvane.service.loops.settings import LoopSettings
from windvane.service.schemas import Action as OfferedAction
from windvane.service.store.rows import WHOLE_PAGE, Lesson, decode_page_features
from windvane.types import Floats, UnsignedIntegers

BYTES_PER_NUMBER = 8  # also of the hash of a feature
MAX_SHORT_LESSON_ENTRIES = 1 << 13  # of all rows that are learned; beyond, it takes milliseconds
LIMITED_PLACES = 1 << 14  # of a table of weights with limited memory: an eighth of all
SUMMARY_SIZE = 128  # numbers of a summary
SUMMARY_PRIOR = 1.0  # precision by which a summary shrinks a weight without much data
_SIGN_SHIFT = np.uint64(63)
_PLACE_SHIFT = np.uint64(53)  # leaves the highest 11 bits: the sign and the place in a summary


Summary = npt.NDArray[np.float32]  # of what a model has learned, for comparisons


class Moment(NamedTuple):
    """The round and the time of a decision."""

    round: int
    at_us: int


class Choice(NamedTuple):
    """The choice among some actions."""

    chosen: int  # its place among these actions
    probabilities: Floats  # (K,) with which each of these actions is chosen
    features: bytes  # of the chosen one, for the log


class Filling(NamedTuple):
    """The choice for a slot of a page."""

    place: int  # of the chosen action among all that were offered
    probabilities: Floats  # (K,) given the slots before; 0 where an action is no candidate
    features: bytes  # of context, slot and action, for the log


class FeatureSpeeds(NamedTuple):
    """How fast what a feature adds moves, by the components of a weight."""

    name: str
    amount: float  # the mean of what it adds, in absolute value
    shares: tuple[float, ...]  # of each component, from the fastest on; they sum to 1


class LearnerModel:
    """What a loop has learned: a learner without a log of its own."""

    def __init__(self, settings: LoopSettings, learner: Learner | None = None) -> None:
        self.settings = settings  # those of the model
        self.learner = learner or settings.build_learner()
        self._has_plain_sides = is_plain(self.learner.parsed_crossings, self.learner.array_size)

    @classmethod
    def load(cls, settings: LoopSettings, saved: bytes) -> "LearnerModel":
        return cls(settings, Learner.load(io.BytesIO(saved)))

    @property
    def observation_count(self) -> int:
        """How many rewards were learned."""
        return self.learner.bank.lessons

    @property
    def half_life(self) -> float | None:
        """The fixed half-life in rounds or seconds, infinity for never; None if there is none."""
        return float(self.speeds[0]) if self.learner.is_fixed else None

    @property
    def speeds(self) -> Floats:
        """The half-lives of the components of a weight, in rewards unless one is fixed."""
        bank = self.learner.bank
        first, end = bank.rules.starts[bank.parts_belief :][:2]
        return bank.rules.half_lives[first:end]

    @property
    def noise(self) -> float:
        """The standard deviation of rewards around their predictions."""
        return self.learner.bank.noise

    @property
    def size_bytes(self) -> int:
        """About how many bytes a snapshot has."""
        bank = self.learner.bank
        numbers = (1 + 2 * len(bank.rules.half_lives)) * bank.weight_count
        return BYTES_PER_NUMBER * (numbers + count_dense_numbers(bank.dense))

    def clock_of(self, moment: Moment) -> float:
        """The time of a decision on the clock of the half-life: rounds or seconds."""
        return self.learner.clock_of(moment.round, moment.at_us / MICROSECONDS_PER_SECOND)

    def rank(
        self, context: JsonObjects, actions: PackedActions, places: Sequence[int], at_us: int
    ) -> Choice:
        """Choose among the actions at `places`; the next decision has another round."""
        learner = self.learner
        packed = pack_context(context, learner.parsed_crossings)
        sides = join_packed(packed, actions, learner.parsed_crossings, learner.array_size)
        ranking = learner.rank_sides(sides, places, at_us / MICROSECONDS_PER_SECOND, learner.round)
        learner.round += 1
        place = places[ranking.chosen]
        if self._has_plain_sides:
            lesson = encode_packed_lesson(packed, actions.single[place])
        else:
            lesson = encode_lesson(pick_action(sides, place))
        return Choice(ranking.chosen, ranking.probabilities, lesson)

    def rank_slots(
        self, context: JsonObjects, actions: PackedActions, slots: Sequence[Slot], at_us: int
    ) -> list[Filling]:
        """Choose an action for each slot of a page; the next decision has another round."""
        learner = self.learner
        seconds = at_us / MICROSECONDS_PER_SECOND
        rankings = learner.rank_slots_packed(context, actions, slots, seconds, learner.round)
        learner.round += 1
        return [
            Filling(each.place, each.probabilities, _encode_packed(each.packed))
            for each in rankings
        ]

    def encode_slots(
        self,
        context: JsonObjects,
        actions: PackedActions,
        slots: Sequence[Slot],
        places: Sequence[int],
    ) -> list[bytes]:
        """The features of the actions that the slots of a page show, for the log."""
        contexts = describe_contexts(context, slots)
        pairs = zip(contexts, places, strict=True)
        return [self.encode_action(each, actions, place) for each, place in pairs]

    def encode_action(self, context: JsonObjects, actions: PackedActions, place: int) -> bytes:
        """The features of one action, for the log."""
        sides = self.learner.join(context, actions)
        return encode_lesson(pick_action(sides, place))

    def apply(self, lesson: Lesson) -> None:
        """Learn a lesson of the log."""
        moment = Moment(lesson.round, lesson.ranked_at)
        is_amended = lesson.kind == "amend"
        if lesson.slot != WHOLE_PAGE:
            change = self.amend if is_amended else self.learn
            change(lesson.features, lesson.value, moment)
            return
        learner, seconds = self.learner, moment.at_us / MICROSECONDS_PER_SECOND
        change_page = learner.amend_page if is_amended else learner.learn_page
        change_page(_decode_slots(lesson.features), lesson.value, seconds, moment.round)

    def learn(self, features: bytes, reward: float, moment: Moment) -> None:
        """Learn the reward of a decision."""
        seconds = moment.at_us / MICROSECONDS_PER_SECOND
        self.learner.learn(decode_lesson(features), reward, seconds, moment.round)

    def amend(self, features: bytes, more: float, moment: Moment) -> None:
        """Add to a reward that was learned before."""
        seconds = moment.at_us / MICROSECONDS_PER_SECOND
        self.learner.amend(decode_lesson(features), more, seconds, moment.round)

    def predict(self, features: bytes, moment: Moment) -> float:
        """The reward that is expected of a decision."""
        bank = self.learner.bank
        sides = decode_lesson(features)
        bank.prepare()
        return float(bank.predict(sides, self.clock_of(moment))[0])

    def predict_slowly(self, features: bytes, moment: Moment) -> float:
        """The reward that the belief of the longest memory expects of a decision."""
        return self.learner.bank.predict_slowly(decode_lesson(features), self.clock_of(moment))

    def estimate_actions(self, context: JsonObjects, actions: Sequence[Action]) -> list[float]:
        """The reward that is expected of each action now."""
        bank = self.learner.bank
        sides = self.learner.join(context, pack_actions(actions))
        estimates: list[float] = bank.predict(sides, self.learner.now).tolist()
        return estimates

    def explain(
        self, context: JsonObjects, actions: Sequence[Action], index: int
    ) -> list[Contribution]:
        """List what the features of an action add to its estimate, the largest first."""
        return self._explain_action(context, actions[index], with_category=True)

    def measure_importance(
        self, requests: Iterable[tuple[JsonObjects, Sequence[Action]]], max_crossings: int
    ) -> list[Contribution]:
        """List the features by the mean absolute deviation of what they add to an action.

        All categories of a feature count under its name. A request whose crossings would exceed
        `max_crossings`, together with those of the requests before it, is left out.
        """
        total: defaultdict[str, float] = defaultdict(float)
        action_count, room = 0, max_crossings
        for context, actions in requests:
            crossings = self._count_crossings(context, actions)
            if crossings > room:
                continue
            room -= crossings
            action_count += len(actions)
            amounts: dict[str, list[float]] = {}
            for k, action in enumerate(actions):
                for name, amount in self._explain_action(context, action, with_category=False):
                    amounts.setdefault(name, [0.0] * len(actions))[k] += amount
            for name, numbers in amounts.items():
                mean = sum(numbers) / len(numbers)
                total[name] += sum(abs(number - mean) for number in numbers)
        importances = [Contribution(name, amount / action_count) for name, amount in total.items()]
        return sorted(importances, key=lambda contribution: -contribution.amount)

    def limit_memory(self) -> None:
        """Take a fraction of the memory of a loop's model; what was learned least is dropped."""
        self.learner.bank.max_places = LIMITED_PLACES

    def summarize(self) -> Summary:
        """A signed sum of the leader's weights in each of `SUMMARY_SIZE` places of their hashes.

        The distance of two summaries is that of the weights, up to about a tenth.
        """
        keys, weights = self._list_weights()
        codes = keys >> _PLACE_SHIFT
        signs = np.where(keys >> _SIGN_SHIFT, 1.0, -1.0)
        places = (codes % np.uint64(SUMMARY_SIZE)).astype(np.int64)
        return np.bincount(places, signs * weights, SUMMARY_SIZE).astype(np.float32)

    def compute_norm(self) -> float:
        """The Euclidean norm of the estimated parameter."""
        return float(np.linalg.norm(self._list_weights()[1]))

    def measure_speeds(
        self, requests: Iterable[tuple[JsonObjects, Sequence[Action]]], max_crossings: int
    ) -> list[FeatureSpeeds]:
        """List the features and crossings of the first actions by how much of them fades."""
        totals: dict[str, Floats] = {}
        count, room, now = 0, max_crossings, self.learner.now
        for context, actions in requests:
            room -= self._count_crossings(context, actions[:1])
            if room < 0:
                break
            count += 1
            split = self.learner.split_speeds(context, actions[0], now, int(now))
            for name, amounts in split.items():
                totals[name] = totals.get(name, 0.0) + np.abs(amounts)
        listed = [
            FeatureSpeeds(name, float(each.sum() / count), tuple((each / each.sum()).tolist()))
            for name, each in totals.items()
            if name != "constant" and each.sum() > 0.0
        ]
        return sorted(listed, key=lambda each: -each.amount * (1.0 - each.shares[-1]))

    def save(self) -> bytes:
        """The model as a snapshot keeps it."""
        file = io.BytesIO()
        self.learner.save(file)
        return file.getvalue()

    def carry(self, settings: LoopSettings, newest: Moment) -> "LearnerModel":
        """A model of other settings that has learned the same.

        `newest` is the newest decision that was learned.
        """
        model = self.renew(settings)
        learner = model.learner
        if repr(learner) == repr(self.learner):
            self.settings = settings
            return self
        if self.observation_count:
            clocks = [(each.is_fixed, each.ages_in_rounds) for each in (learner, self.learner)]
            now = model.clock_of(newest) if learner.is_fixed else float(self.observation_count)
            transfer_beliefs(self.learner.bank, learner.bank, now, clocks[0] == clocks[1])
        return model

    def renew(self, settings: LoopSettings) -> "LearnerModel":
        """A model of these settings that has learned nothing, with this round and key."""
        model = LearnerModel(settings)
        model.learner.key = self.learner.key
        model.learner.round = self.learner.round
        return model

    def is_long_lesson(self, features: Sequence[bytes]) -> bool:
        """Whether lessons take long, by how many entries their rows have at most."""
        parts = [len(each) // BYTES_PER_NUMBER for each in features]
        return sum((1 + count / 2) ** 2 for count in parts) > MAX_SHORT_LESSON_ENTRIES

    def _explain_action(
        self, context: JsonObjects, action: Action, with_category: bool
    ) -> list[Contribution]:
        now = self.learner.now
        return self.learner.explain_action(context, action, now, int(now), with_category)

    def _count_crossings(self, context: JsonObjects, actions: Sequence[Action]) -> int:
        sides = self.learner.join(context, pack_actions(actions))
        context_numbers = int(sides.sizes[: sides.feature_counts[0]].sum())
        return (1 + context_numbers) * (len(actions) + len(sides.numbers) - context_numbers)

    def _list_weights(self) -> tuple[UnsignedIntegers, Floats]:
        """The keys of all weights, and what the belief of most components has learned of each."""
        bank = self.learner.bank
        is_taken = bank.bank.keys != 0
        columns = slice(*bank.rules.starts[bank.parts_belief :][:2])
        sums, fades = bank.bank.sums[is_taken, :, columns], compute_fades(bank)[columns]
        weights = fades * sums[:, MOMENT] / (fades * sums[:, PRECISION] + SUMMARY_PRIOR)
        return bank.bank.keys[is_taken], weights.sum(axis=1)


def _encode_packed(packed: PackedSides | tuple[PackedFeatures, PackedFeatures]) -> bytes:
    return encode_packed_lesson(*packed) if len(packed) == 2 else encode_lesson(packed)


def _decode_slots(features: bytes) -> list[PackedSides]:
    return [decode_lesson(each) for each in decode_page_features(features)]


def compile_kernels() -> None:
    """Compile, or load, what ranks and lessons need, so that no request waits for a compiler."""
    context: JsonObjects = [{"size": 1.0, "place": [1.0, 2.0]}]
    actions = [OfferedAction("nothing", [])]
    packed = pack_actions(actions)
    model = LearnerModel(LoopSettings())
    features = model.rank(context, packed, [0], 0).features
    model.encode_action(context, packed, 0)
    model.estimate_actions(context, actions)
    model.learn(features, 0.0, Moment(0, 0))
    model.amend(features, 0.0, Moment(0, 0))
    model.explain(context, actions, 0)
    model.load(model.settings, model.save())
