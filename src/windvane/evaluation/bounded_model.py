"""A reward model as control variate of a confidence sequence.

With rewards and predictions q̂ scaled to [0, 1], a constant k ≥ 0 and q = min(q̂, k/w), which depends
on the action by w(a) = π(a)/p(a),

    X = w (r − q(a)) + Σ_a π(a) q(a) ≥ −k,    Σ_a π(a) q(a) = Σ_a min(π(a) q̂(a), k p(a))

has the mean of w r, and less variance if the model is good. The side `high` has 1 − r and 1 − q̂ in
place of r and q̂. k = 0 gives w r. The gain over the logged policy has X − r ≥ −(k + 1).

A large k keeps more of the model, and a small k gives a tighter interval while decisions are few.

Waudby-Smith, Wu, Ramdas, Karampatziakis & Mineiro (2024), "Anytime-valid off-policy inference for
contextual bandits".
"""

from typing import NamedTuple

import numpy as np

from windvane.evaluation.confidence_sequence import ConfidenceSequence, RewardRange
from windvane.types import Floats, Places

DEFAULT_BOUND = 5.0  # k


class BoundedModel(NamedTuple):
    """The model terms of each decision, for the sides `low` and `high`; (..., n) each."""

    low_chosen: Floats  # q of the chosen action
    low_values: Floats  # Σ_a π(a) q(a)
    high_chosen: Floats
    high_values: Floats


def bound_model(
    predictions: Floats,  # (all actions of all decisions,) q̂, in the unit of the rewards
    policy_probabilities: Floats,  # (all actions,) π
    logged_probabilities: Floats,  # (all actions,) p
    starts: Places,  # (n + 1,) places of the first action of each decision
    chosen: Places,  # (n,) place of the chosen action among those offered
    rewards: RewardRange,
    bound: float = DEFAULT_BOUND,  # k
) -> BoundedModel:
    """Compute the model terms from the predictions of all actions."""
    scaled = np.clip((predictions - rewards.low) / rewards.width, 0.0, 1.0)
    places = starts[:-1] + chosen
    with np.errstate(divide="ignore"):
        limits = bound * logged_probabilities[places] / policy_probabilities[places]  # k/w
    terms = []
    for side in (scaled, 1 - scaled):
        kept = np.minimum(policy_probabilities * side, bound * logged_probabilities)
        terms += [np.minimum(side[places], limits), np.add.reduceat(kept, starts[:-1])]
    return BoundedModel(*terms)


def make_sequence(rewards: RewardRange, bound: float = DEFAULT_BOUND) -> ConfidenceSequence:
    """A confidence sequence for X with a model that is bounded by k."""
    return ConfidenceSequence(rewards, floors=np.array([bound, bound, bound + 1, bound + 1]))


def update_with_model(
    sequence: ConfidenceSequence,
    rewards: Floats,  # (..., n)
    weights: Floats,  # (..., n)
    model: BoundedModel,
    coefficients: Floats | None = None,
) -> None:
    """Add decisions, in the order of time, to a sequence of `make_sequence`."""
    scaled = (rewards - sequence.range.low) / sequence.range.width
    low = weights * (scaled - model.low_chosen) + model.low_values
    high = weights * (1 - scaled - model.high_chosen) + model.high_values
    sequence.update_terms((low, high, low - scaled, high - 1 + scaled), weights, coefficients)
