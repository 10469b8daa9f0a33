"""The model with a full belief: a policy over hashed features, as release 0.1.0 has it."""

import io
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np

from windvane.errors import FeatureError
from windvane.features.encoder import Encoder
from windvane.features.json_reader import Contribution, JsonObjects
from windvane.features.packed_features import Action, PackedActions
from windvane.policy import Policy
from windvane.service.clock import MICROSECONDS_PER_SECOND
from windvane.service.loops.model import Choice, LearningState, Model, Moment, Summary
from windvane.service.loops.settings import Settings
from windvane.types import Floats

BYTES_PER_NUMBER = 8
MAX_ROW_NUMBERS = 1 << 24  # of all actions of a rank request: 128 MiB
# Beyond one of these, work takes more than some milliseconds.
MAX_SHORT_NUMBERS = 1 << 15  # of all actions of a rank request
MAX_SHORT_DIM = 128
MAX_SHORT_LESSON_STEPS = 1 << 20


class FullModel(Model):
    """A policy over hashed features, whose belief has all correlations between them."""

    def __init__(self, settings: Settings, policy: Policy | None = None) -> None:
        self._settings = settings
        self.policy = policy or settings.build_policy()

    @classmethod
    def load(cls, settings: Settings, saved: bytes, newest: Moment) -> "FullModel":
        """Load a saved model; `newest` is the newest decision that it has learned.

        Release 0.1.0 read a half-life such as "500 ROUNDS" as 500 seconds. Observations of later
        rounds would have no weight beside a clock in seconds, so such a clock counts in rounds now.
        """
        model = cls(settings, Policy.load(io.BytesIO(saved)))
        belief = model.policy.belief
        if settings.ages_in_rounds and belief.clock > newest.round:
            model.policy.belief = replace(belief, clock=model.clock_of(newest))
        return model

    @property
    def settings(self) -> Settings:
        return self._settings

    @property
    def round(self) -> int:
        return self.policy.round

    @round.setter
    def round(self, value: int) -> None:
        self.policy.round = value

    @property
    def key(self) -> int:
        return self.policy.key

    @key.setter
    def key(self, value: int) -> None:
        self.policy.key = value

    @property
    def observation_count(self) -> int:
        return self.policy.belief.seen

    @property
    def half_life(self) -> float:
        memory = self.policy.memory
        return memory.span if memory.kind.is_timed else np.inf

    @property
    def size_bytes(self) -> int:
        return 2 * BYTES_PER_NUMBER * self.policy.dim**2

    @property
    def summary_size(self) -> int:
        return self.policy.dim

    @cached_property
    def encoder(self) -> Encoder:
        """Encodes requests as rows."""
        return Encoder(self.policy.dim)

    @cached_property
    def _ages_in_rounds(self) -> bool:
        return self._settings.ages_in_rounds

    def __repr__(self) -> str:
        return repr(self.policy)

    def clock_of(self, moment: Moment) -> float:
        round_, at_us = moment
        return float(round_) if self._ages_in_rounds else at_us / MICROSECONDS_PER_SECOND

    def rank(
        self, context: JsonObjects, actions: PackedActions, places: Sequence[int], at_us: int
    ) -> Choice:
        rows = self.encoder.encode(context, actions)
        if len(places) < len(rows):
            rows = rows[list(places)]
        choice, probabilities = self.policy.choose_with_propensities(rows)
        self.policy.dismiss(choice)
        return Choice(choice.index, probabilities, rows[choice.index].tobytes())

    def encode_action(self, context: JsonObjects, actions: PackedActions, place: int) -> bytes:
        row: Floats = self.encoder.encode(context, actions)[place]
        return row.tobytes()

    def can_learn(self, features: bytes) -> bool:
        return len(features) == BYTES_PER_NUMBER * self.policy.dim

    def learn(self, features: bytes, reward: float, moment: Moment) -> bool:
        self.policy.learn(np.frombuffer(features), reward, self.clock_of(moment))
        return False

    def amend(self, features: bytes, more: float, moment: Moment) -> None:
        self.policy.amend(np.frombuffer(features), more, self.clock_of(moment))

    def predict(self, features: bytes, moment: Moment) -> float:
        return float(np.frombuffer(features) @ self.policy.theta)

    def estimate_actions(self, context: JsonObjects, actions: Sequence[Action]) -> list[float]:
        rows = self.encoder.encode(context, actions)
        return [float(value) for value in rows @ self.policy.theta]

    def explain(
        self, context: JsonObjects, actions: Sequence[Action], index: int
    ) -> list[Contribution]:
        return self.encoder.explain(self.policy.theta, context, actions, index)

    def measure_importance(
        self, requests: Iterable[tuple[JsonObjects, Sequence[Action]]], max_crossings: int
    ) -> list[Contribution]:
        return self.encoder.measure_importance(self.policy.theta, requests, max_crossings)

    def limit_memory(self) -> None:
        """A full belief has the memory of its dimension, which is small."""

    def summarize(self) -> Summary:
        return self.policy.theta.astype(np.float32)

    def compute_norm(self) -> float:
        return float(np.linalg.norm(self.policy.theta))

    def describe_learning(self) -> LearningState:
        return LearningState(
            half_lives=(self.half_life,),
            losses=(0.0,),
            leader=0,
            in_rounds=self._ages_in_rounds,
            lead_lesson=0,
            lead_at=0.0,
            noise=self._settings.noise,
            share=self._settings.width,
        )

    def save(self) -> bytes:
        file = io.BytesIO()
        self.policy.save(file)
        return file.getvalue()

    def carry(self, settings: Settings, newest: Moment) -> Model:
        old = self.policy
        policy = settings.build_policy()
        has_same_clock = self._ages_in_rounds == settings.ages_in_rounds
        if has_same_clock and repr(policy) == repr(old):
            self._settings = settings
            return self
        policy.key = old.key
        policy.round = old.round
        model = FullModel(settings, policy)
        belief = replace(old.belief, memory=policy.memory, clock=model.clock_of(newest))
        if belief.seen:
            policy.belief = belief
        return model

    def renew(self, settings: Settings) -> Model:
        model = FullModel(settings)
        model.key = self.key
        model.round = self.round
        return model

    def is_long_rank(self, action_count: int) -> bool:
        return action_count * self.policy.dim > MAX_SHORT_NUMBERS

    def is_long_lesson(self, features: Sequence[bytes]) -> bool:
        """Whether lessons take long: each takes d² steps, and every d lessons one takes d³."""
        dim = self.policy.dim
        return dim > MAX_SHORT_DIM or len(features) * dim * dim > MAX_SHORT_LESSON_STEPS

    def check_offer(self, action_count: int) -> None:
        dim = self.policy.dim
        if action_count * dim > MAX_ROW_NUMBERS:
            most = MAX_ROW_NUMBERS // dim
            message = f"actions: a loop of dim {dim} takes at most {most} of them"
            raise FeatureError(f"{message}, got {action_count}")
