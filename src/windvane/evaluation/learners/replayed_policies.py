"""Replayed policies: how a policy that learns decides on a row of a log, and learns from it."""

from typing import NamedTuple, Protocol

import numpy as np

from windvane.beliefs.adaptive.policies import Adaptive
from windvane.beliefs.bank.feature_parts import pick_action
from windvane.beliefs.diagonal.sparse_rows import SparseRow, SparseRows, read_arms
from windvane.beliefs.glm.policy import GeneralizedPolicy
from windvane.chooser import Choice, Chooser
from windvane.evaluation.learners.feature_blocks import FeatureBlock
from windvane.learner import Learner
from windvane.policy import Policy
from windvane.types import Floats

SAMPLES = 200  # draws that are counted, if a policy has no exact propensities


class RowView(NamedTuple):
    """What a policy knows of a row: the probability and the predicted reward of each action."""

    probabilities: Floats  # (K,)
    predictions: Floats  # (K,)


class ReplayedPolicy(Protocol):
    """A policy that decides on rows of a block and learns from some of them."""

    @property
    def is_sampled(self) -> bool:
        """Whether the probabilities are counted in draws."""

    def open_block(self, block: FeatureBlock) -> None:
        """Prepare for the rows of a block."""

    def view_row(self, row: int, at: float) -> RowView:
        """Decide on a row of the block, and learn nothing."""

    def learn_row(self, row: int, chosen: int, reward: float, at: float) -> None:
        """Learn the reward of an action of a row."""


class ReplayedLearner:
    """A learner."""

    is_sampled = False

    def __init__(self, learner: Learner) -> None:
        self._learner = learner

    def open_block(self, block: FeatureBlock) -> None:
        """Pack the features of the block."""
        self._sides = block.get_sides(self._learner)

    def view_row(self, row: int, at: float) -> RowView:
        """Rank the actions."""
        sides, learner = self._sides[row], self._learner
        places = np.arange(sides.feature_counts.size - 1)
        ranking = learner.bank.rank(sides, places, at, learner.key, learner.bank.lessons)
        return RowView(ranking.probabilities, ranking.means)

    def learn_row(self, row: int, chosen: int, reward: float, at: float) -> None:
        """Learn the reward of an action of a row."""
        self._learner.bank.learn(pick_action(self._sides[row], chosen), reward, at)


class ReplayedChooser:
    """A policy over vectors; a round passes with each row that it learns."""

    def __init__(self, policy: Chooser) -> None:
        self._policy = policy
        self.is_sampled = is_counted(policy)

    def open_block(self, block: FeatureBlock) -> None:
        """Encode the actions of the block."""
        self._arms, self._starts = block.get_dense(self._policy.dim), block.starts.tolist()

    def view_row(self, row: int, at: float) -> RowView:
        """Compute the propensities and predictions."""
        arms = self._offer(row)
        policy = self._policy
        if isinstance(policy, GeneralizedPolicy):
            predictions = policy.mean(arms)
        elif isinstance(policy, Policy):  # it knows of a restart that is due
            predictions = policy.predict(arms)
        else:
            predictions = arms @ policy.theta
        return RowView(policy.propensities(arms, SAMPLES), predictions)

    def learn_row(self, row: int, chosen: int, reward: float, at: float) -> None:
        """Play the round with the logged action, and learn its reward."""
        arms = self._offer(row)
        round_ = self._policy.choose(arms).round
        choice = Choice(chosen, arms[chosen].copy(), round_, self._policy.key)
        self._policy.learn(choice, reward, at)

    def _offer(self, row: int) -> Floats:
        return self._arms[self._starts[row] : self._starts[row + 1]]


class ReplayedDiagonal:
    """A policy with a diagonal belief over sparse rows."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self.is_sampled = is_counted(policy)

    def open_block(self, block: FeatureBlock) -> None:
        """Hash the actions of the block."""
        self._rows = block.get_sparse(self._policy.dim)

    def view_row(self, row: int, at: float) -> RowView:
        """Compute the propensities and predictions."""
        policy = self._policy
        rows = read_arms("evaluate", SparseRows(*self._rows[row]), policy.dim)
        return RowView(policy.propensities(rows, SAMPLES), policy.predict(rows))

    def learn_row(self, row: int, chosen: int, reward: float, at: float) -> None:
        """Play the round with the logged action, and learn its reward."""
        indices, values, ends = self._rows[row]
        self._policy.dismiss(self._policy.choose(SparseRows(*self._rows[row])))
        part = slice(ends[chosen - 1] if chosen else 0, ends[chosen])
        self._policy.learn(SparseRow(indices[part], values[part]), reward, at)


def is_counted(policy: Chooser) -> bool:
    """Whether the propensities of a policy are counted in draws."""
    if isinstance(policy, GeneralizedPolicy):
        return policy.scale > 0
    if isinstance(policy, Adaptive | Policy):
        return policy.exploration.kind.needs in ("sample", "history")
    return True


def make_replayed_chooser(policy: Chooser) -> ReplayedPolicy:
    """Make what replays a policy row by row."""
    if isinstance(policy, Policy) and policy.belief_kind == "diagonal":
        return ReplayedDiagonal(policy)
    return ReplayedChooser(policy)
