"""The reward model of a confidence sequence: its terms, its bounds, and several bounds at once."""

import numpy as np
import pytest

from naive_estimators import joint_lower_bound
from windvane.errors import SettingError
from windvane.evaluation.estimates.confidence_sequence import (
    ActionModel,
    ConfidenceSequence,
    bound_gain,
    bound_model,
    bound_value,
    make_sequence,
    update_with_model,
)
from windvane.evaluation.estimates.estimators import UNIT_RANGE, RewardRange

ACTIONS = 4
BOUNDS = (0.3, 1.0, 2.0, 25.0)


def draw_actions(n: int, seed: int) -> ActionModel:
    """Policies close to a corner, so that weights are large and small; predictions of 0 and 1."""
    rng = np.random.default_rng(seed)
    policy = rng.dirichlet(np.full(ACTIONS, 0.2), n)
    logged = 0.02 / ACTIONS + 0.98 * rng.dirichlet(np.full(ACTIONS, 0.2), n)
    predictions = np.clip(rng.uniform(-0.5, 1.5, (n, ACTIONS)), 0.0, 1.0)
    return ActionModel(
        predictions.ravel(),
        policy.ravel(),
        logged.ravel(),
        ACTIONS * np.arange(n + 1),
        rng.integers(ACTIONS, size=n),
    )


def compute_terms(
    actions: ActionModel, decision: int, chosen: int, reward: float, k: float
) -> tuple[float, float]:
    """X and Y as they are written, for rewards in [0, 1]."""
    part = slice(ACTIONS * decision, ACTIONS * (decision + 1))
    policy, logged = actions.policy_probabilities[part], actions.logged_probabilities[part]
    q = [
        min(guess, k * p / pi) if pi > 0 else guess
        for guess, pi, p in zip(actions.predictions[part], policy, logged, strict=True)
    ]
    w = policy[chosen] / logged[chosen]
    x = w * (reward - q[chosen]) + sum(policy * q)
    return x, (w - 1) * (reward - q[chosen]) + sum((policy - logged) * q)


@pytest.mark.parametrize("k", BOUNDS)
def test_the_terms_have_the_means_of_the_value_and_the_gain_and_stay_above_their_floors(
    k: float,
) -> None:
    actions = draw_actions(300, seed=1)
    floors = make_sequence(UNIT_RANGE, k).floors
    means = np.random.default_rng(2).random(ACTIONS)
    for decision in range(300):
        part = slice(ACTIONS * decision, ACTIONS * (decision + 1))
        policy, logged = actions.policy_probabilities[part], actions.logged_probabilities[part]
        value = gain = 0.0
        for chosen in range(ACTIONS):
            for reward in (0.0, 1.0):
                x, y = compute_terms(actions, decision, chosen, reward, k)
                chance = logged[chosen] * (means[chosen] if reward else 1 - means[chosen])
                value += chance * x
                gain += chance * y
                assert x >= -floors[0] - 1e-9
                assert y >= -floors[2] - 1e-9
        assert value == pytest.approx(policy @ means, abs=1e-9)
        assert gain == pytest.approx((policy - logged) @ means, abs=1e-9)


@pytest.mark.parametrize("k", BOUNDS)
def test_the_sums_are_those_of_the_terms_as_written(k: float) -> None:
    n, rewards_range = 200, RewardRange(-1.0, 1.0)
    actions = draw_actions(n, seed=3)
    rewards = np.random.default_rng(4).random(n)
    places = actions.starts[:-1] + actions.chosen
    weights = actions.policy_probabilities[places] / actions.logged_probabilities[places]
    sequence = make_sequence(rewards_range, k)
    in_units = actions._replace(predictions=2 * actions.predictions - 1)
    model = bound_model(in_units, rewards_range, k)
    for part in (slice(0, 70), slice(70, n)):
        update_with_model(sequence, 2 * rewards[part] - 1, weights[part], model.select(part))
    flipped = actions._replace(predictions=1 - actions.predictions)
    sums = np.zeros(4)
    for i, chosen in enumerate(actions.chosen.tolist()):
        x, y = compute_terms(actions, i, chosen, rewards[i], k)
        below_x, below_y = compute_terms(flipped, i, chosen, 1 - rewards[i], k)
        sums += x, below_x, y, below_y
    assert sequence.sums == pytest.approx(sums, rel=1e-9)


def test_a_decision_with_an_unknown_probability_or_choice_gets_no_model() -> None:
    actions = draw_actions(3, seed=5)
    actions.logged_probabilities[ACTIONS + 2] = np.nan  # of decision 1
    actions.chosen[2] = -1  # excluded, so that the weight is 0
    rewards, complements = bound_model(actions, UNIT_RANGE, 2.0)
    for side in (rewards, complements):
        assert side.chosen[1] == side.value[1] == side.logged_value[1] == 0.0
        assert side.chosen[2] == 0.0
        assert side.value[2] > 0.0
        assert side.value[0] > 0.0


def test_selected_decisions_have_the_same_terms() -> None:
    actions = draw_actions(50, seed=6)
    is_selected = np.random.default_rng(7).random(50) < 0.4
    whole = bound_model(actions, UNIT_RANGE, 2.0)
    few = bound_model(actions.select(is_selected), UNIT_RANGE, 2.0)
    for mine, expected in zip(
        (*few.rewards, *few.complements), (*whole.rewards, *whole.complements), strict=True
    ):
        assert (mine == expected[is_selected]).all()
    assert (actions.select(is_selected).average_predictions() > 0).all()
    picked = actions.select(is_selected).pick_predictions()
    places = actions.starts[:-1] + actions.chosen
    assert (picked == actions.predictions[places][is_selected]).all()


def test_an_action_model_of_other_decisions_is_refused() -> None:
    actions = draw_actions(5, seed=8)
    with pytest.raises(SettingError, match="must have 4 decisions, got 5"):
        actions.check("add", 4)
    with pytest.raises(SettingError, match="different lengths"):
        actions._replace(predictions=np.zeros(7)).check("add", 5)
    with pytest.raises(SettingError, match="must be finite"):
        actions._replace(predictions=np.full(5 * ACTIONS, np.nan)).check("add", 5)


@pytest.mark.parametrize("n", [1, 40, 400])
def test_joint_bounds_match_the_average_wealth_as_written(n: int) -> None:
    actions = draw_actions(n, seed=n)
    rewards = np.random.default_rng(n).random(n)
    places = actions.starts[:-1] + actions.chosen
    weights = actions.policy_probabilities[places] / actions.logged_probabilities[places]
    plain = ConfidenceSequence()
    plain.update(rewards, weights)
    sequences = [plain]
    sides: list[list[tuple[list[float], float]]] = [
        [((weights * rewards).tolist(), 0.0)],
        [((weights * (1 - rewards)).tolist(), 0.0)],
        [(((weights - 1) * rewards).tolist(), 1.0)],
        [(((weights - 1) * (1 - rewards)).tolist(), 1.0)],
    ]
    flipped = actions._replace(predictions=1 - actions.predictions)
    for k in (2.0, 25.0):
        sequence = make_sequence(UNIT_RANGE, k)
        update_with_model(sequence, rewards, weights, bound_model(actions, UNIT_RANGE, k))
        sequences.append(sequence)
        rows = range(n)
        chosen = actions.chosen.tolist()
        up = [compute_terms(actions, i, chosen[i], rewards[i], k) for i in rows]
        down = [compute_terms(flipped, i, chosen[i], 1 - rewards[i], k) for i in rows]
        sides[0].append(([x for x, _ in up], k))
        sides[1].append(([x for x, _ in down], k))
        sides[2].append(([y for _, y in up], k + 1))
        sides[3].append(([y for _, y in down], k + 1))
    priors = (0.5, 0.5, 0.0, 0.0)
    low, high, above, below = (
        joint_lower_bound(side, prior, 0.025) for side, prior in zip(sides, priors, strict=True)
    )
    expected = np.clip([low, 1 - high], 0, 1)
    assert bound_value(sequences, 0.05) == pytest.approx(expected, rel=1e-7, abs=1e-7)
    expected = np.clip([above, -below], -1, 1)
    assert bound_gain(sequences, 0.05) == pytest.approx(expected, rel=1e-7, abs=1e-7)
    assert bound_value([plain], 0.05) == plain.bound_value(0.05)
    assert bound_gain([plain], 0.05) == plain.bound_gain(0.05)
