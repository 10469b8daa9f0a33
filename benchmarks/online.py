"""Microseconds per choose and learn: Windvane beside two ways of writing it in NumPy.

Three D-LinUCB-like players see the same worlds in one run, in alternating slices of rounds, so
that a busy machine slows all of them alike:

- straightforward: a pseudo-inverse per update and a Python loop over arms, as in published code
- vectorised: one solve for all arms, one einsum
- Windvane: discount × randomized, discount × optimism, discount × thompson and parts × randomized
  through `Policy.choose` and `learn`

A second table has dense and sparse features of 256 to 1024 numbers and fifteen arms. Beside the
choice and the lesson stand, from the same turns, one symmetric matrix-vector product (dsymv) and
one product of the arms with a matrix (dgemm), both by BLAS with one thread, in another process.

`python benchmarks/online.py` prints the tables; `--json` prints them for machines; `--large` prints
only the second one.
"""

import json
import math
import os
import subprocess
import sys
from collections.abc import Callable
from time import perf_counter

import numpy as np
from scipy.linalg import blas

import windvane as wv
from windvane._terminal.tables import format_table
from windvane.types import Floats

GAMMA, NOISE, RIDGE, DELTA = 0.999, math.sqrt(0.15), 1.0, 0.01
LARGE_DIMS, LARGE_ARMS, NON_ZEROS = (256, 512, 1024), 15, 20
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


def windvane(dim: int, exploration: wv.Exploration, memory: str = f"discount({GAMMA})") -> Play:
    """The library, through its front door."""
    policy = wv.Policy(dim, memory, exploration, ridge=RIDGE, seed=1)

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
        "optimism": windvane(dim, wv.optimism(wv.confidence(DELTA, NOISE))),
        "thompson": windvane(dim, wv.thompson(NOISE)),
        "parts": windvane(dim, wv.randomized(wv.half_normal(wv.posterior(1.0))), "parts()"),
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


def measure_large(dim: int, policy: wv.Policy, is_sparse: bool) -> dict[str, float]:
    """Mean microseconds of a choice and of a lesson, and medians of the products, in turns."""
    rng = np.random.default_rng(dim)
    sets = rng.standard_normal((SETS, LARGE_ARMS, dim))
    if is_sparse:
        sets *= rng.random(sets.shape) < NON_ZEROS / dim
    sets /= np.maximum(np.linalg.norm(sets, axis=2, keepdims=True), 1e-9)
    rewards = rng.standard_normal((SETS, LARGE_ARMS))
    matrix = np.asfortranarray(
        sets.reshape(-1, dim)[: 2 * dim].T @ sets.reshape(-1, dim)[: 2 * dim]
    )
    products, vector = np.empty((LARGE_ARMS, dim)), sets[0, 0]
    times: dict[str, list[float]] = {name: [] for name in ("choose", "learn", "dsymv", "dgemm")}

    def time(name: str, started: float) -> None:
        times[name].append((perf_counter() - started) * 1e6)

    for t in range(2 * dim):  # fill the memory
        arms = sets[t % SETS]
        policy.learn(arms[t % LARGE_ARMS], float(rewards[t % SETS, t % LARGE_ARMS]))
    refresh = int(policy._belief.arrays.rules["refresh"][0])
    for t in range(max(2 * refresh, 200)):  # whole cycles of inversions
        arms = sets[t % SETS]
        started = perf_counter()
        choice = policy.choose(arms)
        time("choose", started)
        started = perf_counter()
        policy.learn(choice, float(rewards[t % SETS, choice.index]))
        time("learn", started)
        if t % 8 == 0:
            started = perf_counter()
            blas.dsymv(1.0, matrix, vector)
            time("dsymv", started)
            started = perf_counter()
            np.dot(arms, matrix.T, out=products)
            time("dgemm", started)
    return {
        "choose": float(np.mean(times["choose"])),
        "lesson": float(np.mean(times["learn"])),
        "median lesson": float(np.median(times["learn"])),
        "dsymv": float(np.median(times["dsymv"])),
        "dgemm": float(np.median(times["dgemm"])),
    }


def measure_large_dims() -> list[dict[str, float | str]]:
    """Measure the default policy and one that never forgets, in large dimensions."""
    rows: list[dict[str, float | str]] = []
    for dim in LARGE_DIMS:
        for name, policy, is_sparse in [
            ("default", wv.Policy(dim, seed=1), False),
            ("default, sparse", wv.Policy(dim, seed=1), True),
            ("keep × optimism", wv.Policy(dim, wv.keep(), wv.optimism(1.0), seed=1), False),
            ("keep × optimism, sparse", wv.Policy(dim, wv.keep(), wv.optimism(1.0), seed=1), True),
        ]:
            took = measure_large(dim, policy, is_sparse)
            rows.append(
                {
                    "d": str(dim),
                    "policy": name,
                    **{f"{part} µs": round(value, 1) for part, value in took.items()},
                    "choice ÷ dgemm": round(took["choose"] / took["dgemm"], 2),
                    "lesson ÷ dsymv": round(took["lesson"] / took["dsymv"], 2),
                }
            )
    return rows


def main() -> None:
    """Measure every size and print times and ratios."""
    if "--large" in sys.argv and os.environ.get("OPENBLAS_NUM_THREADS") == "1":
        tables = [measure_large_dims()]
    else:
        tables = [] if "--large" in sys.argv else [measure_sizes()]
        done = subprocess.run(
            [sys.executable, __file__, "--large", "--json"],
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
            capture_output=True,
            check=True,
        )
        tables.append(json.loads(done.stdout))
    if "--json" in sys.argv:
        print(json.dumps([row for table in tables for row in table], indent=2))
    else:
        print("\n\n".join(map(format_table, tables)))


def measure_sizes() -> list[dict[str, float | str]]:
    """Measure every size beside NumPy."""
    rows: list[dict[str, float | str]] = []
    for dim, arms in SIZES:
        took = measure(dim, arms)
        rows.append(
            {
                "(d, K)": f"({dim}, {arms})",
                **{f"{name} µs": round(value, 1) for name, value in took.items()},
                "randomized ×": round(took["vectorised"] / took["randomized"], 1),
                "optimism ×": round(took["vectorised"] / took["optimism"], 1),
                "thompson ×": round(took["vectorised"] / took["thompson"], 1),
                "parts ×": round(took["vectorised"] / took["parts"], 1),
                "randomized × straightforward": round(
                    took["straightforward"] / took["randomized"], 1
                ),
            }
        )
    return rows


if __name__ == "__main__":
    main()
