"""A replication played by Policy or by the formulas, for comparison with the compiled engines."""

import math

import numpy as np

import windvane as wv
from windvane.lab.engines.game import Player
from windvane.lab.worlds.draw import Draw, compute_means, realize_reward
from windvane.laws import Confidence
from windvane.types import Floats


def list_arms(draw: Draw, t: int) -> Floats:
    """The arms of round t, (K, d)."""
    arms: Floats = draw.arms[draw.picks[t if len(draw.picks) > 1 else 0]]
    return arms


def compute_reward(draw: Draw, t: int, arm: int) -> float:
    """The reward of an arm in round t."""
    return realize_reward(draw, float(compute_means(draw, t)[arm]), float(draw.noise[t]))


def play_round_by_round(policy: wv.Chooser, key: int, draw: Draw) -> list[float]:
    """Play a replication with this key; return the cumulative regret after each round."""
    policy.key = key
    total = 0.0
    curve = []
    for t in range(draw.rounds):
        choice = policy.choose(list_arms(draw, t))
        policy.learn(choice, compute_reward(draw, t, choice.index))
        mean = compute_means(draw, t)
        total += mean.max() - mean[choice.index]
        curve.append(total)
    return curve


def play_by_formulas(player: Player, draw: Draw, seed: int) -> float:
    """The end regret of a player that samples or chooses by widths, by the formulas."""
    rng = np.random.default_rng(seed)
    d, gamma, law = draw.dim, player.memory.gamma, player.exploration.law
    W, W_tilde, b, seen, total = np.eye(d), np.eye(d), np.zeros(d), 0, 0.0
    for t in range(draw.rounds):
        if t in player.memory.at:
            W, W_tilde, b, seen = np.eye(d), np.eye(d), np.zeros(d), 0
        arms, mean = list_arms(draw, t), compute_means(draw, t)
        inverse = np.linalg.inv(W)
        V_inverse = inverse @ W_tilde @ inverse
        if law is None:
            theta = rng.multivariate_normal(inverse @ b, player.exploration.factor**2 * V_inverse)
            scores = arms @ theta
        else:
            assert isinstance(law.scale, Confidence)
            effective_rounds = (1 - gamma ** (2 * seen)) / (1 - gamma**2)
            spread = d * math.log(1 + law.scale.arm_norm**2 * effective_rounds / d)
            root = math.sqrt(2 * math.log(1 / law.scale.delta) + spread)
            beta = law.scale.times * (law.scale.theta_norm + law.scale.noise * root)
            level = beta * (abs(rng.standard_normal()) if law.name == "half_normal" else 1.0)
            widths = np.sqrt(np.einsum("kd,de,ke->k", arms, V_inverse, arms))
            scores = arms @ inverse @ b + level * widths
        chosen = int(rng.integers(len(arms)) if t < player.any_first else np.argmax(scores))
        x, y = arms[chosen], compute_reward(draw, t, chosen)
        W = gamma * W + np.outer(x, x) + (1 - gamma) * np.eye(d)
        W_tilde = gamma**2 * W_tilde + np.outer(x, x) + (1 - gamma**2) * np.eye(d)
        b, seen = gamma * b + x * y, seen + 1
        total += mean.max() - mean[chosen]
    return total
