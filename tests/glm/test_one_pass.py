"""One-pass estimates under a link: as the formula says, and as ridge regression."""

import numpy as np
import pytest

import naive
import windvane as wv
from grid import check_estimate, unit_rows
from windvane.errors import RewardError, SettingError

CASES = [
    ("identity", 1.0, 4.0),
    ("logistic", 1.0, 2.0),
    ("logistic", 0.9, 1.0),
    ("poisson", 0.97, 1.5),
]


def draw_rewards(random: np.random.Generator, link: str, scores: naive.Floats) -> naive.Floats:
    """Rewards with the means μ(xᵀθ)."""
    means = naive.mean_of(link, scores)
    if link == "identity":
        return means + 0.3 * random.standard_normal(means.size)
    drawn = random.poisson(means) if link == "poisson" else random.random(means.size) < means
    return drawn.astype(np.float64)


@pytest.mark.parametrize(("link", "gamma", "norm"), CASES)
@pytest.mark.parametrize("exploration", ["optimism(1.0)", "thompson(posterior(0.7))"])
def test_every_link_agrees_with_the_formula(
    link: str, gamma: float, norm: float, exploration: str
) -> None:
    """θ̂, W, V⁻¹ and the noise, also after the ball of radius S has cut θ̂ back."""
    memory, random = wv.one_pass(link, gamma, norm), np.random.default_rng(5)
    xs = unit_rows(random, 300, 4)
    ys = draw_rewards(random, link, xs @ np.array([1.2, -0.8, 0.5, 0.9]))
    policy = wv.Policy(4, memory, exploration, ridge=0.5, seed=1)
    for n in range(1, 301):
        policy.learn(xs[n - 1], ys[n - 1])
        if n in (1, 2, 10, 63, 64, 65, 150, 300):
            history = naive.observed(xs[:n], ys[:n])
            check_estimate(policy, naive.estimate(memory, 0.5, history), xs[:5])
    if "posterior" in exploration:
        noise = naive.noise(memory, 0.5, history)
        assert policy.estimated_noise == pytest.approx(noise, rel=1e-8)
        assert 0.25 < noise < 1.35  # σ of the identity, 1 of clicks and counts
    else:
        many = wv.Policy(4, memory, exploration, ridge=0.5, seed=1)
        many.learn_many(xs, ys)
        assert many == policy


def test_the_identity_link_without_forgetting_is_ridge_regression() -> None:
    """As long as θ̂ stays inside the ball, the step of mirror descent is Bayes' rule."""
    xs = unit_rows(np.random.default_rng(6), 200, 3)
    ys = xs @ [0.3, 0.2, -0.4] + 0.1 * np.random.default_rng(7).standard_normal(200)
    one, all_ = (
        wv.Policy(3, memory, wv.thompson(0.5), seed=1)
        for memory in (wv.one_pass("identity", theta_norm=9.0), wv.keep())
    )
    one.learn_many(xs, ys)
    all_.learn_many(xs, ys)
    np.testing.assert_allclose(one.theta, all_.theta, rtol=0, atol=1e-12)
    np.testing.assert_allclose(one.belief.precision, all_.belief.precision, rtol=1e-12)


def test_one_pass_over_clicks_comes_near_the_estimate_of_all_clicks() -> None:
    """After 4000 clicks, θ̂ differs from the refitted estimate by less than one width in x."""
    theta, random = np.array([1.0, -1.0, 0.5]), np.random.default_rng(8)
    xs = unit_rows(random, 4000, 3)
    ys = draw_rewards(random, "logistic", xs @ theta)
    policy = wv.Policy(3, wv.one_pass("logistic", theta_norm=2.0), wv.optimism(1.0), seed=1)
    policy.learn_many(xs, ys)
    refitted = naive.generalized("logistic", wv.keep(), 1.0, naive.observed(xs, ys))
    assert (np.abs(np.eye(3) @ (policy.theta - refitted)) < policy.widths(np.eye(3))).all()
    assert np.linalg.norm(refitted - theta) < 0.3


def test_rewards_that_do_not_fit_the_link_are_refused_and_change_nothing() -> None:
    policy = wv.Policy(2, wv.one_pass("logistic"), wv.greedy(), seed=1)
    with pytest.raises(RewardError, match="learn: a reward under the logistic link must lie in"):
        policy.learn([1.0, 0.0], 1.5)
    with pytest.raises(RewardError, match="learn_many: a reward under the logistic link"):
        policy.learn_many([[1.0, 0.0], [0.0, 1.0]], [0.5, -1.0])
    assert policy.belief.seen == 0
    with pytest.raises(SettingError, match="one_pass: link must be one of"):
        wv.one_pass("probit")
    with pytest.raises(SettingError, match="one_pass: gamma must lie in"):
        wv.one_pass("logistic", 1.2)
