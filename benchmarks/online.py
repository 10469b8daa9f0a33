"""Microseconds per choose and learn: Windvane beside two ways of writing it in NumPy.

Three D-LinUCB-like players see the same worlds in one run, in alternating slices of rounds, so
that a busy machine slows all of them alike:

- straightforward: a pseudo-inverse per update and a Python loop over arms, as in published code
- vectorised: one solve for all arms, one einsum
- Windvane: discount × randomized and discount × thompson through `Policy.choose` and `learn`

`python benchmarks/online.py` prints the table; `--json` prints it for machines.
"""

import json
import math
import sys
from collections.abc import Callable
from time import perf_counter

import numpy as np

import windvane as wv
from windvane._text_table import format_table
from windvane.types import Floats

GAMMA, NOISE, RIDGE, DELTA = 0.999, math.sqrt(0.15), 1.0, 0.01
SIZES = [(10, 10), (50, 100), (200, 100), (50, 1000)]
SETS = 50
Play = Callable[[Floats, Callable[[int], float]], None]


def beta(seen: int, dim: int) -> float:
    """The radius of D-LinUCB after so many observations."""
    held = (1 - GAMMA ** (2 * seen)) / (1 - GAMMA**2)
    spread = dim * math.log(1 + held / (RIDGE * dim))
    return math.sqrt(RIDGE) + NOISE * math.sqrt(2 * math.log(1 / DELTA) + spread)


def straightforward(dim: int) -> Play:
    """D-LinUCB with a pseudo-inverse per update and a loop over the arms."""
    W, W_tilde, b = RIDGE * np.eye(dim), RIDGE * np.eye(dim), np.zeros(dim)
    inverse, seen = np.linalg.pinv(W), 0

    def play(arms: Floats, reward_of: Callable[[int], float]) -> None:
        nonlocal W, W_tilde, b, inverse, seen
        theta = inverse @ b
        scores = []
        for x in arms:
            doubt = math.sqrt(x @ inverse @ W_tilde @ inverse @ x)
            scores.append(x @ theta + beta(seen, dim) * doubt)
        chosen = int(np.argmax(scores))
        x, reward = arms[chosen], reward_of(chosen)
        W = GAMMA * W + np.outer(x, x) + (1 - GAMMA) * RIDGE * np.eye(dim)
        W_tilde = GAMMA**2 * W_tilde + np.outer(x, x) + (1 - GAMMA**2) * RIDGE * np.eye(dim)
        b = GAMMA * b + reward * x
        inverse = np.linalg.pinv(W)
        seen += 1

    return play


def vectorised(dim: int) -> Play:
    """D-LinUCB with one solve for the estimate and all arms, and one einsum for the widths."""
    W, W_tilde, b = RIDGE * np.eye(dim), RIDGE * np.eye(dim), np.zeros(dim)
    ridge, ridge_tilde = (1 - GAMMA) * RIDGE * np.eye(dim), (1 - GAMMA**2) * RIDGE * np.eye(dim)
    seen = 0

    def play(arms: Floats, reward_of: Callable[[int], float]) -> None:
        nonlocal W, W_tilde, b, seen
        solved = np.linalg.solve(W, np.column_stack([b, arms.T]))
        pulled = solved[:, 1:]
        doubts = np.sqrt(np.einsum("dk,dk->k", pulled, W_tilde @ pulled))
        chosen = int(np.argmax(arms @ solved[:, 0] + beta(seen, dim) * doubts))
        x, reward = arms[chosen], reward_of(chosen)
        square = np.outer(x, x)
        W = GAMMA * W + square + ridge
        W_tilde = GAMMA**2 * W_tilde + square + ridge_tilde
        b = GAMMA * b + reward * x
        seen += 1

    return play


def windvane(dim: int, exploration: wv.Exploration) -> Play:
    """The library, through its front door."""
    policy = wv.Policy(dim, wv.discount(GAMMA), exploration, ridge=RIDGE, seed=1)

    def play(arms: Floats, reward_of: Callable[[int], float]) -> None:
        choice = policy.choose(arms)
        policy.learn(choice, reward_of(choice.index))

    return play


def measure(dim: int, arms: int) -> dict[str, float]:
    """Median microseconds per round of each player, after a warm-up that fills the memory."""
    rng = np.random.default_rng(7)
    theta = rng.standard_normal(dim)
    theta /= np.linalg.norm(theta)
    sets = rng.standard_normal((SETS, arms, dim))
    sets /= np.linalg.norm(sets, axis=2, keepdims=True)
    rewards = (sets @ theta + NOISE * rng.standard_normal((SETS, arms))).tolist()
    randomized = wv.randomized(wv.half_normal(0.4 * wv.confidence(DELTA, NOISE)))
    players = {
        "straightforward": straightforward(dim),
        "vectorised": vectorised(dim),
        "randomized": windvane(dim, randomized),
        "thompson": windvane(dim, wv.thompson(NOISE)),
    }
    slow = dim * arms >= 10_000
    times: dict[str, list[float]] = {name: [] for name in players}
    for name, play in players.items():  # warm up; the slow one only as far as it needs
        for t in range(40 if name == "straightforward" else 2000):
            play(sets[t % SETS], rewards[t % SETS].__getitem__)
    for _ in range(15):
        for name, play in players.items():
            rounds = (4 if slow else 20) if name == "straightforward" else SETS * (2 if slow else 6)
            started = perf_counter()
            for t in range(rounds):
                play(sets[t % SETS], rewards[t % SETS].__getitem__)
            times[name].append((perf_counter() - started) / rounds * 1e6)
    return {name: float(np.median(slices)) for name, slices in times.items()}


def main() -> None:
    """Measure every size and print times and ratios."""
    rows: list[dict[str, float | str]] = []
    for dim, arms in SIZES:
        took = measure(dim, arms)
        rows.append(
            {
                "(d, K)": f"({dim}, {arms})",
                **{f"{name} µs": round(value, 1) for name, value in took.items()},
                "randomized ×": round(took["vectorised"] / took["randomized"], 1),
                "thompson ×": round(took["vectorised"] / took["thompson"], 1),
                "randomized × straightforward": round(
                    took["straightforward"] / took["randomized"], 1
                ),
            }
        )
    print(json.dumps(rows, indent=2) if "--json" in sys.argv else format_table(rows))


if __name__ == "__main__":
    main()
