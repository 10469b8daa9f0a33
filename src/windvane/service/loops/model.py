"""The interface of a loop's model: what the loop has learned, and how it chooses by it.

A loop and its monitoring use a model only through `Model`. The features of a decision are bytes
that the model makes and that only the model reads; the log keeps them. A model changes by lessons
and by changes of settings alone, so that the log gives the same bits again.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from windvane.features.json_reader import Contribution, JsonObjects
from windvane.features.packed_features import Action, PackedActions
from windvane.service.loops.settings import Settings
from windvane.types import Floats

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


class LearningState(NamedTuple):
    """What a model has found about half-life and noise."""

    half_lives: tuple[float, ...]  # that are compared; infinity stands for never
    losses: tuple[float, ...]  # of each: nats by which it predicted worse than the best, lately
    leader: int  # the place of the half-life in force
    in_rounds: bool  # whether half-lives count in rounds; otherwise in seconds
    lead_lesson: int  # how many rewards had been learned when it took the lead
    lead_at: float  # the newest decision then, on the clock of the half-life
    noise: float  # the standard deviation of rewards around their predictions
    share: float  # of the noise (full belief: of the confidence radius): the scale of exploration


class Model(Protocol):
    """What a loop has learned."""

    round: int  # of the next decision
    key: int  # of the random numbers

    @property
    def settings(self) -> Settings:
        """The settings that the model follows."""

    @property
    def observation_count(self) -> int:
        """How many rewards were learned."""

    @property
    def half_life(self) -> float:
        """The half-life in force, in rounds or seconds; infinity stands for never."""

    @property
    def size_bytes(self) -> int:
        """About how many bytes a snapshot has."""

    @property
    def summary_size(self) -> int:
        """How many numbers `summarize` returns."""

    def clock_of(self, moment: Moment) -> float:
        """The time of a decision on the clock of the half-life: rounds or seconds."""

    def rank(
        self, context: JsonObjects, actions: PackedActions, places: Sequence[int], at_us: int
    ) -> Choice:
        """Choose among the actions at `places`; the next decision has another round."""

    def encode_action(self, context: JsonObjects, actions: PackedActions, place: int) -> bytes:
        """The features of one action, for the log."""

    def can_learn(self, features: bytes) -> bool:
        """Whether these features are such that this model can have made them."""

    def learn(self, features: bytes, reward: float, moment: Moment) -> bool:
        """Learn the reward of a decision; returns whether another half-life leads now."""

    def amend(self, features: bytes, more: float, moment: Moment) -> None:
        """Add to a reward that was learned before."""

    def predict(self, features: bytes, moment: Moment) -> float:
        """The reward that is expected of a decision."""

    def estimate_actions(self, context: JsonObjects, actions: Sequence[Action]) -> list[float]:
        """The reward that is expected of each action now."""

    def explain(
        self, context: JsonObjects, actions: Sequence[Action], index: int
    ) -> list[Contribution]:
        """List what the features of an action add to its estimate, the largest first."""

    def measure_importance(
        self, requests: Iterable[tuple[JsonObjects, Sequence[Action]]], max_crossings: int
    ) -> list[Contribution]:
        """List the features by how much they distinguish the actions of the given requests."""

    def limit_memory(self) -> None:
        """Take a fraction of the memory of a loop's model; what was learned least is dropped."""

    def summarize(self) -> Summary:
        """Numbers whose Euclidean distance says how far the estimate has moved."""

    def compute_norm(self) -> float:
        """The Euclidean norm of the estimated parameter."""

    def describe_learning(self) -> LearningState:
        """The half-lives that are compared, which of them leads, and the noise."""

    def save(self) -> bytes:
        """The model as a snapshot keeps it."""

    def carry(self, settings: Settings, newest: Moment) -> "Model":
        """A model of other settings that has learned the same.

        `newest` is the newest decision that was learned.
        """

    def renew(self, settings: Settings) -> "Model":
        """A model of these settings that has learned nothing, with this round and key."""

    def is_long_rank(self, action_count: int) -> bool:
        """Whether a rank with so many actions takes more than some milliseconds."""

    def is_long_lesson(self, features: Sequence[bytes]) -> bool:
        """Whether lessons of these features take more than some milliseconds."""

    def check_offer(self, action_count: int) -> None:
        """Raise FeatureError if a request has more actions than the model can rank."""
