"""The model with a diagonal belief: a learner, which finds its half-life and its scale itself."""

import io
from collections import defaultdict
from collections.abc import Iterable, Sequence

import numpy as np

from windvane.beliefs.bank.bank import compute_fades, transfer_beliefs
from windvane.beliefs.bank.feature_parts import pick_action
from windvane.beliefs.bank.layout import LOSS
from windvane.beliefs.bank.lesson_codec import decode_lesson, encode_lesson, encode_packed_lesson
from windvane.beliefs.bank.lesson_format import is_lesson
from windvane.beliefs.bank.sides import is_plain, join_packed, pack_context
from windvane.beliefs.diagonal.formulas import MOMENT, PRECISION
from windvane.features.json_reader import Contribution, JsonObjects
from windvane.features.packed_features import Action, PackedActions, pack_actions
from windvane.learner import Learner
from windvane.service.clock import MICROSECONDS_PER_SECOND
from windvane.service.loops.model import Choice, LearningState, Model, Moment, Summary
from windvane.service.loops.settings import Settings
from windvane.types import Floats, UnsignedIntegers

BYTES_PER_NUMBER = 8  # also of the hash of a feature
MAX_SHORT_LESSON_ENTRIES = 1 << 13  # of all rows that are learned; beyond, it takes milliseconds
LIMITED_PLACES = 1 << 14  # of a table of weights with limited memory: an eighth of all
SUMMARY_SIZE = 128  # as many numbers as a full belief of the default dimension has
SUMMARY_PRIOR = 1.0  # precision by which a summary shrinks a weight without much data
_SIGN_SHIFT = np.uint64(63)
_PLACE_SHIFT = np.uint64(53)  # leaves the highest 11 bits: the sign and the place in a summary


class LearnerModel(Model):
    """A learner without a log of its own."""

    def __init__(self, settings: Settings, learner: Learner | None = None) -> None:
        self._settings = settings
        self.learner = learner or settings.build_learner()
        self._has_plain_sides = is_plain(self.learner.parsed_crossings, self.learner.array_size)

    @classmethod
    def load(cls, settings: Settings, saved: bytes) -> "LearnerModel":
        """Load a saved model."""
        return cls(settings, Learner.load(io.BytesIO(saved)))

    @property
    def settings(self) -> Settings:
        return self._settings

    @property
    def round(self) -> int:
        return self.learner.round

    @round.setter
    def round(self, value: int) -> None:
        self.learner.round = value

    @property
    def key(self) -> int:
        return self.learner.key

    @key.setter
    def key(self, value: int) -> None:
        self.learner.key = value

    @property
    def observation_count(self) -> int:
        return self.learner.bank.lessons

    @property
    def half_life(self) -> float:
        return self.learner.bank.leader_half_life

    @property
    def size_bytes(self) -> int:
        bank = self.learner.bank
        return BYTES_PER_NUMBER * (1 + 2 * len(bank.rules.half_lives)) * bank.weight_count

    @property
    def summary_size(self) -> int:
        return SUMMARY_SIZE

    def __repr__(self) -> str:
        return repr(self.learner)

    def clock_of(self, moment: Moment) -> float:
        return self.learner.clock_of(moment.round, moment.at_us / MICROSECONDS_PER_SECOND)

    def rank(
        self, context: JsonObjects, actions: PackedActions, places: Sequence[int], at_us: int
    ) -> Choice:
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

    def encode_action(self, context: JsonObjects, actions: PackedActions, place: int) -> bytes:
        sides = self.learner.join(context, actions)
        return encode_lesson(pick_action(sides, place))

    def can_learn(self, features: bytes) -> bool:
        return is_lesson(features)

    def learn(self, features: bytes, reward: float, moment: Moment) -> bool:
        seconds = moment.at_us / MICROSECONDS_PER_SECOND
        return self.learner.learn(decode_lesson(features), reward, seconds, moment.round)

    def amend(self, features: bytes, more: float, moment: Moment) -> None:
        seconds = moment.at_us / MICROSECONDS_PER_SECOND
        self.learner.amend(decode_lesson(features), more, seconds, moment.round)

    def predict(self, features: bytes, moment: Moment) -> float:
        bank = self.learner.bank
        sides = decode_lesson(features)
        bank.prepare()
        return float(bank.predict(sides, self.clock_of(moment))[0])

    def estimate_actions(self, context: JsonObjects, actions: Sequence[Action]) -> list[float]:
        bank = self.learner.bank
        sides = self.learner.join(context, pack_actions(actions))
        estimates: list[float] = bank.predict(sides, bank.now).tolist()
        return estimates

    def explain(
        self, context: JsonObjects, actions: Sequence[Action], index: int
    ) -> list[Contribution]:
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
        return float(np.linalg.norm(self._list_weights()[1]))

    def describe_learning(self) -> LearningState:
        bank = self.learner.bank
        half_lives = sorted(set(bank.rules.half_lives.tolist()))
        losses = bank.bank.judgements[:, LOSS]
        return LearningState(
            half_lives=tuple(half_lives),
            losses=tuple(float(losses[bank.rules.half_lives == each].min()) for each in half_lives),
            leader=half_lives.index(bank.leader_half_life),
            in_rounds=self.learner.ages_in_rounds,
            lead_lesson=bank.lead.lesson,
            lead_at=bank.lead.at,
            noise=bank.noise,
            share=bank.rules.share,
        )

    def save(self) -> bytes:
        file = io.BytesIO()
        self.learner.save(file)
        return file.getvalue()

    def carry(self, settings: Settings, newest: Moment) -> Model:
        learner = settings.build_learner()
        if repr(learner) == repr(self.learner):
            self._settings = settings
            return self
        model = LearnerModel(settings, learner)
        model.key = self.key
        model.round = self.round
        if self.observation_count:
            same_clock = learner.ages_in_rounds == self.learner.ages_in_rounds
            transfer_beliefs(self.learner.bank, learner.bank, model.clock_of(newest), same_clock)
        return model

    def renew(self, settings: Settings) -> Model:
        model = LearnerModel(settings)
        model.key = self.key
        model.round = self.round
        return model

    def is_long_rank(self, action_count: int) -> bool:
        return False  # the loop judges by the crossings

    def is_long_lesson(self, features: Sequence[bytes]) -> bool:
        """Whether lessons take long, by how many entries their rows have at most."""
        parts = [len(each) // BYTES_PER_NUMBER for each in features]
        return sum((1 + count / 2) ** 2 for count in parts) > MAX_SHORT_LESSON_ENTRIES

    def check_offer(self, action_count: int) -> None:
        """Any number of actions can be ranked: the crossings are limited, not the actions."""

    def _explain_action(
        self, context: JsonObjects, action: Action, with_category: bool
    ) -> list[Contribution]:
        now = self.learner.bank.now
        return self.learner.explain_action(context, action, now, int(now), with_category)

    def _count_crossings(self, context: JsonObjects, actions: Sequence[Action]) -> int:
        sides = self.learner.join(context, pack_actions(actions))
        context_numbers = int(sides.sizes[: sides.feature_counts[0]].sum())
        return (1 + context_numbers) * (len(actions) + len(sides.numbers) - context_numbers)

    def _list_weights(self) -> tuple[UnsignedIntegers, Floats]:
        """The keys of all weights, and what the leading belief has learned of each."""
        bank = self.learner.bank
        is_taken = bank.bank.keys != 0
        sums = bank.bank.sums[is_taken, :, bank.lead.column]
        fade = compute_fades(bank)[bank.lead.column]
        weights = fade * sums[:, MOMENT] / (fade * sums[:, PRECISION] + SUMMARY_PRIOR)
        return bank.bank.keys[is_taken], weights
