"""Shadows: a policy that learns, beside the policy that made the log.

Before row t a shadow has learned every row before it, as it was logged: action, reward and time. So
it has probabilities π_t and predictions q̂_t of the offered actions that are known before the action
of row t is chosen. The row is scored by

    Σ_a π_t(a) q̂_t(a) + π_t(a_t)/p_t · (r_t − q̂_t(a_t))

and then learned. Its mean, given all rows before, is the value V_t(π_t) of what the shadow would
have done, so that all estimates and confidence sequences hold for the running mean of V_t(π_t),
also if the rewards drift and the logging policy learns.
"""

import copy
import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from windvane._numba.compilation import compiled
from windvane.beliefs.adaptive import Adaptive
from windvane.beliefs.bank.feature_parts import pick_action
from windvane.beliefs.chooser import Choice, Chooser
from windvane.beliefs.full.block import view_belief
from windvane.beliefs.full.choosing import score_linearly
from windvane.beliefs.full.layout import WIDTH, PolicyArrays
from windvane.beliefs.full.learning import learn
from windvane.beliefs.full.propensities import compute_exact_propensities
from windvane.beliefs.full.widths import compute_widths
from windvane.beliefs.glm.policy import GeneralizedPolicy
from windvane.errors import WindvaneError
from windvane.evaluation.learners.candidates import (
    LearnerCandidate,
    ObjectCandidate,
    PolicyCandidate,
)
from windvane.evaluation.learners.feature_blocks import FeatureBlock
from windvane.evaluation.learners.own_policies import (
    ask,
    can_learn,
    count_choices,
    read_distribution,
)
from windvane.evaluation.log_batch import LogFacts
from windvane.learner import Learner
from windvane.policy import Policy
from windvane.types import Floats, Places

SAMPLES = 200  # draws that are counted, if a policy has no exact propensities


class Views(NamedTuple):
    """What a policy knew of the actions of a row or a block, each row before it was learned."""

    probabilities: Floats  # (actions,) π
    predictions: Floats  # (actions,) q̂


class Shadow(ABC):
    """A policy that learns beside the log, block by block."""

    is_sampled = False  # whether the probabilities are counted in draws
    slot_count = 1  # of the page that is viewed

    @abstractmethod
    def view_block(self, block: FeatureBlock, first_row: int) -> Views:
        """View and learn the rows of a block; `first_row` is the number of rows before it."""


class RowShadow(Shadow):
    """Asks and teaches a policy row by row."""

    @abstractmethod
    def open_block(self, block: FeatureBlock) -> None:
        """Prepare for the rows of a block."""

    @abstractmethod
    def view_row(self, row: int, at: float) -> Views:
        """Decide on a row of the block, and learn nothing."""

    @abstractmethod
    def learn_row(self, row: int, chosen: int, reward: float, at: float) -> None:
        """Learn the reward of an action of a row."""

    def view_block(self, block: FeatureBlock, first_row: int) -> Views:
        """View and learn the rows of a block; all slots of a page before any of them is learned."""
        views = Views(np.empty(block.logged.size), np.empty(block.logged.size))
        self.open_block(block)
        starts, times = block.starts.tolist(), block.times.tolist()
        rewards, chosen = block.rewards.tolist(), block.chosen.tolist()
        for first, end in pairwise(block.page_starts):
            self.slot_count = end - first
            for row in range(first, end):
                part = slice(starts[row], starts[row + 1])
                views.probabilities[part], views.predictions[part] = self.view_row(row, times[row])
            for row in range(first, end):
                if chosen[row] >= 0:
                    self.learn_row(row, chosen[row], rewards[row], times[row])
        return views


class LearnerRows(RowShadow):
    def __init__(self, learner: Learner) -> None:
        self._learner = learner

    def open_block(self, block: FeatureBlock) -> None:
        self._sides = block.get_sides(self._learner)

    def view_row(self, row: int, at: float) -> Views:
        sides, learner = self._sides[row], self._learner
        at = learner.clock_of(learner.bank.lessons, at)
        places = np.arange(sides.feature_counts.size - 1)
        ranking = learner.bank.rank(
            sides, places, at, learner.key, learner.bank.lessons, self.slot_count
        )
        return Views(ranking.probabilities, ranking.means)

    def learn_row(self, row: int, chosen: int, reward: float, at: float) -> None:
        lesson = pick_action(self._sides[row], chosen)
        self._learner.learn(lesson, reward, at, self._learner.bank.lessons)


class ObjectRows(RowShadow):
    """A learner of a program; a `Learner` beside it predicts the rewards."""

    def __init__(self, candidate: ObjectCandidate, seed: int) -> None:
        self._name = candidate.name
        self._learner = copy.deepcopy(candidate.learner)
        self._model = LearnerRows(Learner(seed=seed))
        self.is_sampled = not can_learn(self._learner, ("rank", "reward"))

    def open_block(self, block: FeatureBlock) -> None:
        self._model.open_block(block)
        self._offers = block.get_offers()

    def view_row(self, row: int, at: float) -> Views:
        offer, learner, name = self._offers[row], self._learner, self._name
        asked = offer.context, offer.actions
        if self.is_sampled:
            draws = [ask(offer, name, learner.choose, *asked) for _ in range(SAMPLES)]  # type: ignore[attr-defined]
            probabilities = count_choices(draws, offer, name)
        else:
            given = ask(offer, name, learner.rank, *asked)  # type: ignore[attr-defined]
            probabilities = read_distribution(name, given, offer)
        return Views(probabilities, self._model.view_row(row, at).predictions)

    def learn_row(self, row: int, chosen: int, reward: float, at: float) -> None:
        self._model.learn_row(row, chosen, reward, at)
        offer = self._offers[row]
        teach = getattr(self._learner, "learn" if self.is_sampled else "reward")
        ask(offer, self._name, teach, offer.context, offer.actions[chosen], reward)


class ChooserRows(RowShadow):
    """A policy over vectors; a round passes with each row that it learns."""

    def __init__(self, policy: Chooser) -> None:
        self._policy = policy
        self.is_sampled = is_counted(policy)

    def open_block(self, block: FeatureBlock) -> None:
        self._arms, self._starts = block.get_dense(self._policy.dim), block.starts.tolist()

    def view_row(self, row: int, at: float) -> Views:
        arms, policy = self._offer(row), self._policy
        if isinstance(policy, GeneralizedPolicy):
            predictions = policy.mean(arms)
        elif isinstance(policy, Policy):  # it knows of a restart that is due
            predictions = policy.predict(arms)
        else:
            predictions = arms @ policy.theta
        return Views(policy.propensities(arms, SAMPLES), predictions)

    def learn_row(self, row: int, chosen: int, reward: float, at: float) -> None:
        arms = self._offer(row)
        round_ = self._policy.choose(arms).round
        choice = Choice(chosen, arms[chosen].copy(), round_, self._policy.key)
        # Half-lives that a policy finds by itself count rounds.
        self._policy.learn(choice, reward, None if isinstance(self._policy, Adaptive) else at)

    def _offer(self, row: int) -> Floats:
        return self._arms[self._starts[row] : self._starts[row + 1]]


class DiagonalRows(RowShadow):
    """A policy with a diagonal belief over sparse rows."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self.is_sampled = is_counted(policy)

    def open_block(self, block: FeatureBlock) -> None:
        self._rows = block.get_sparse(self._policy.dim)

    def view_row(self, row: int, at: float) -> Views:
        policy, rows = self._policy, self._rows[row]
        return Views(policy.propensities(rows, SAMPLES), policy.predict(rows))

    def learn_row(self, row: int, chosen: int, reward: float, at: float) -> None:
        policy, rows = self._policy, self._rows[row]
        policy.dismiss(policy.choose(rows))
        policy.learn(rows.copy_row(chosen, policy.dim), reward, at)


def is_counted(policy: Chooser) -> bool:
    """Whether the propensities of a policy are counted in draws."""
    if isinstance(policy, GeneralizedPolicy):
        return policy.scale > 0
    if isinstance(policy, Adaptive | Policy):
        return policy.exploration.kind.needs in ("sample", "history")
    return True


def make_row_shadow(policy: Chooser) -> RowShadow:
    """Make the shadow of a policy that is asked and taught row by row."""
    if isinstance(policy, Policy) and policy.belief_kind == "diagonal":
        return DiagonalRows(policy)
    return ChooserRows(policy)


class LoggedRows(NamedTuple):
    """The rows of a block, as compiled code reads them."""

    arms: Floats  # (actions, d)
    starts: Places  # (n + 1,)
    chosen: Places  # (n,)
    rewards: Floats  # (n,)
    times: Floats  # (n,)


class CompiledShadow(Shadow):
    """Asks and teaches a policy with exact propensities in compiled code."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self.dim = policy.dim

    def view_block(self, block: FeatureBlock, first_row: int) -> Views:
        """View and learn the rows of a block; a policy may restart on the way."""
        rows = LoggedRows(
            block.get_dense(self.dim), *(block.starts, block.chosen, block.rewards, block.times)
        )
        views = Views(np.empty(block.logged.size), np.empty(block.logged.size))
        done = 0
        while done < block.rows.size:
            arrays, restart = self._policy.prepare_rounds(block.rows.size)
            done, round_, refused = view_rows(
                arrays, rows, views, done, self._policy.round, restart
            )
            self._policy.round = int(round_)
            if refused:
                raise WindvaneError(
                    f"evaluate: row {first_row + done + 1} has features too large to be learned"
                )
        return views


@compiled
def view_rows(
    arrays: PolicyArrays, rows: LoggedRows, views: Views, first: int, round_: int, restart: int
) -> tuple[int, int, int]:
    """View and learn rows from `first` on, until the round of a restart.

    Return the place of the next row, the round, and 0 or the code of a refusal.
    """
    state, no_widths = view_belief(arrays), np.empty(0)
    for i in range(first, rows.chosen.size):
        if 0 <= restart <= round_:
            return i, round_, 0
        start, chosen = rows.starts[i], rows.chosen[i]
        arms = rows.arms[start : rows.starts[i + 1]]
        means = score_linearly(arms, state.theta)
        widths = no_widths
        if arrays.rules[0].style == WIDTH:
            widths = compute_widths(arrays, state, arms)
        propensities = compute_exact_propensities(arrays, means, widths)
        for k in range(means.size):
            views.probabilities[start + k] = propensities[k]
            views.predictions[start + k] = means[k]
        if chosen >= 0:
            refused = learn(arrays, arms[chosen], rows.rewards[i], rows.times[i])
            if refused != 0:
                return i, round_, refused
            round_ += 1
    return rows.chosen.size, round_, 0


LearningCandidate = LearnerCandidate | PolicyCandidate | ObjectCandidate


def open_candidate(candidate: LearningCandidate, facts: LogFacts, seed: int) -> RowShadow:
    """Make the shadow of a candidate that is asked and taught row by row."""
    if isinstance(candidate, LearnerCandidate):
        return LearnerRows(candidate.build(seed))
    if isinstance(candidate, ObjectCandidate):
        return ObjectRows(candidate, seed)
    return make_row_shadow(candidate.make(facts, seed))


def make_shadow(candidate: LearningCandidate, facts: LogFacts, seed: int) -> Shadow:
    """Make the shadow of a candidate that learns; with exact propensities it is compiled."""
    if isinstance(candidate, PolicyCandidate):
        policy = candidate.make(facts, seed)
        if (
            type(policy) is Policy
            and policy.belief_kind == "full"
            and not (policy.is_large or is_counted(policy))
        ):
            return CompiledShadow(policy)
    return open_candidate(candidate, facts, seed)


def view_block(
    shadows: Sequence[Shadow | None], block: FeatureBlock, rows_before: int
) -> list[Views | None]:
    """View a block by every shadow; compiled ones work on threads at the same time."""
    compiled = [each for each in shadows if isinstance(each, CompiledShadow)]
    for shadow in compiled:
        block.get_dense(shadow.dim)  # before several of them read it at once
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        running = {each: pool.submit(each.view_block, block, rows_before) for each in compiled}
        return [
            None
            if each is None
            else running[each].result()
            if each in running
            else each.view_block(block, rows_before)
            for each in shadows
        ]
