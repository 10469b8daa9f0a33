"""A reward model as control variate of a confidence sequence.

With rewards and predictions q̂ scaled to [0, 1], a constant k ≥ 0, the weight w(a) = π(a)/p(a) of
each action, and q(a) = min(q̂(a), k/w(a)),

    X = w (r − q(a)) + Σ_a π(a) q(a) ≥ −k,          Σ_a π(a) q(a) = Σ_a min(π(a) q̂(a), k p(a))
    Y = (w − 1)(r − q(a)) + Σ_a (π(a) − p(a)) q(a) ≥ −(1 + max(k, 1))

have the means of w r and (w − 1) r, and less variance if the model is good. The model must be known
before the action is chosen; it may be wrong. X is the side `low` of a confidence sequence and Y the
side `above`. The sides `high` and `below` have 1 − r and 1 − q̂ in place of r and q̂. k = 0 gives
w r and (w − 1) r.

A large k keeps more of the model, and a small k gives a tighter interval while decisions are few.
`joint_bounds` therefore takes several.

Waudby-Smith, Wu, Ramdas, Karampatziakis & Mineiro (2024), "Anytime-valid off-policy inference for
contextual bandits".
"""

from typing import NamedTuple, Self

import numpy as np

from windvane.errors import SettingError
from windvane.evaluation.estimates.confidence_sequence import ConfidenceSequence
from windvane.evaluation.estimates.estimators import RewardRange
from windvane.types import Booleans, Floats, Places

MODEL_BOUNDS = (1.0, 5.0, 50.0)  # each k beside 0: narrowest for few, more and many decisions


class ActionModel(NamedTuple):
    """What is known of all actions of n decisions before any of them is chosen.

    The actions of decision i are those from starts[i] to starts[i + 1].
    """

    predictions: Floats  # (actions,) q̂, in the unit of the rewards
    policy_probabilities: Floats  # (actions,) π
    logged_probabilities: Floats  # (actions,) p; NaN: not logged, the decision gets no model
    starts: Places  # (n + 1,)
    chosen: Places  # (n,) place of the chosen action among those offered; −1: not among them

    def select(self, is_selected: Booleans) -> Self:
        """The same of some decisions; `is_selected` has one truth value a decision."""
        if is_selected.all():
            return self
        counts = np.diff(self.starts)
        actions = np.repeat(is_selected, counts)
        starts = np.concatenate(([0], np.cumsum(counts[is_selected])))
        return type(self)(
            self.predictions[actions],
            self.policy_probabilities[actions],
            self.logged_probabilities[actions],
            starts.astype(np.int64),
            self.chosen[is_selected],
        )

    def average_predictions(self) -> Floats:
        """Σ_a π(a) q̂(a) of each decision, (n,)."""
        owners = np.repeat(np.arange(len(self.chosen)), np.diff(self.starts))
        products = self.policy_probabilities * self.predictions
        values: Floats = np.bincount(owners, products, len(self.chosen)).astype(np.float64)
        return values

    def pick_predictions(self) -> Floats:
        """q̂ of the chosen action of each decision, (n,); 0 if it is not among those offered."""
        has_chosen = self.chosen >= 0
        picked = np.zeros(len(self.chosen))
        picked[has_chosen] = self.predictions[(self.starts[:-1] + self.chosen)[has_chosen]]
        return picked

    def check(self, who: str, decisions: int) -> None:
        """Refuse columns of different lengths, and predictions that are not finite."""
        if len(self.chosen) != decisions or len(self.starts) != decisions + 1:
            raise SettingError(
                f"{who}: the action model must have {decisions} decisions, got {len(self.chosen)}"
            )
        sizes = {len(column) for column in self[:3]} | {int(self.starts[-1])}
        if len(sizes) > 1:
            raise SettingError(f"{who}: the columns of the action model have different lengths")
        if not np.isfinite(self.predictions).all():
            raise SettingError(f"{who}: the predictions of the action model must be finite")


class SideModel(NamedTuple):
    """The model terms of each decision for one direction, (..., n) each."""

    chosen: Floats  # q of the chosen action
    value: Floats  # Σ_a π(a) q(a)
    logged_value: Floats  # Σ_a p(a) q(a)


class BoundedModel(NamedTuple):
    """The model terms of rewards r and of their complements 1 − r."""

    rewards: SideModel
    complements: SideModel

    def select(self, part: slice) -> "BoundedModel":
        """The same of some decisions."""
        return BoundedModel(*(SideModel(*(term[..., part] for term in side)) for side in self))


def bound_model(actions: ActionModel, rewards: RewardRange, bound: float) -> BoundedModel:
    """Compute the model terms for one k."""
    scaled = np.clip((actions.predictions - rewards.low) / rewards.width, 0.0, 1.0)
    policy, logged, starts = (
        actions.policy_probabilities,
        actions.logged_probabilities,
        actions.starts,
    )
    size = len(actions.chosen)
    owners = np.repeat(np.arange(size), np.diff(starts))
    is_unknown = np.isnan(logged)
    if is_unknown.any():
        has_unknown = np.bincount(owners, is_unknown, size) > 0
        is_unknown = has_unknown[owners]
        policy, logged = np.where(is_unknown, 0.0, policy), np.where(is_unknown, 0.0, logged)
    has_chosen = actions.chosen >= 0
    places = starts[:-1] + np.where(has_chosen, actions.chosen, 0)
    sides = []
    for side in (scaled, 1 - scaled):
        kept = np.where(is_unknown, 0.0, side)  # q
        is_limited = policy * kept > bound * logged
        kept[is_limited] = bound * logged[is_limited] / policy[is_limited]
        chosen = np.zeros(size)
        chosen[has_chosen] = kept[places[has_chosen]]
        value = np.bincount(owners, policy * kept, size).astype(np.float64)
        logged_value = np.bincount(owners, logged * kept, size).astype(np.float64)
        sides.append(SideModel(chosen, value, logged_value))
    return BoundedModel(*sides)


def make_sequence(rewards: RewardRange, bound: float) -> ConfidenceSequence:
    """A confidence sequence for X and Y with a model that is bounded by k."""
    floors = [bound, bound, 1 + max(bound, 1.0), 1 + max(bound, 1.0)]
    return ConfidenceSequence(rewards, floors=np.array(floors))


def update_with_model(
    sequence: ConfidenceSequence,
    rewards: Floats,  # (..., n)
    weights: Floats,  # (..., n)
    model: BoundedModel,
    coefficients: Floats | None = None,
) -> None:
    """Add decisions, in the order of time, to a sequence of `make_sequence`."""
    scaled = (rewards - sequence.range.low) / sequence.range.width
    values, gains = [], []
    for reward, side in zip((scaled, 1 - scaled), model, strict=True):
        surprise = reward - side.chosen  # r − q
        value = weights * surprise + side.value
        values.append(value)
        gains.append(value - surprise - side.logged_value)
    sequence.update_terms((values[0], values[1], gains[0], gains[1]), weights, coefficients)
