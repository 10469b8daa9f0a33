"""Milliseconds for one choice among a million arms of dimension 50, prepared by `finite`.

In one run, in alternating turns, so that a busy machine slows all of them alike:

- product: one float32 matrix–vector product over all arms, the least that any choice must read
- NumPy: xᵀθ̂ + z‖x‖_{V⁻¹} of every arm in float64, X@θ + z·√(Σ(X@F)²) with FFᵀ = V⁻¹, at once and
  in blocks that fit the cache, whichever is faster
- rows: the same policy given the plain rows
- prepared: the same policy given `wv.sets.finite(rows)`

The beliefs come from random arms, or from the policy's own choices; each choice is learned from, so
that every round meets a new belief. `--json` prints the table for machines, `--arms K` takes fewer.
"""

import json
import sys
from collections.abc import Callable
from time import perf_counter

import numpy as np

import windvane as wv
from windvane._terminal.tables import format_table
from windvane.types import Floats

DIM, NOISE = 50, 0.4
TURNS, SLOW_TURNS = 7, 2
BETA = wv.confidence(0.01, noise=NOISE)
BELIEFS = [
    (wv.discount(0.999), 200, "random"),
    (wv.discount(0.999), 2000, "random"),
    (wv.discount(0.999), 20_000, "random"),
    (wv.discount(0.999), 2000, "own"),
    (wv.keep(), 200, "random"),
    (wv.keep(), 2000, "random"),
    (wv.keep(), 20_000, "random"),
    (wv.keep(), 2000, "own"),
]
EXPLORATIONS = {
    "thompson": wv.thompson(NOISE),
    "optimism, width 1": wv.optimism(1.0),
    "optimism, radius β": wv.optimism(BETA),
    "randomized, 0.4β|N|": wv.randomized(wv.half_normal(0.4 * BETA)),
}
BLOCK = 4096


def unit_rows(random: np.random.Generator, count: int) -> Floats:
    """Directions drawn evenly."""
    rows = random.standard_normal((count, DIM))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return rows


def learned(
    memory: wv.Memory, exploration: wv.Exploration, source: str, seen: int, theta: Floats
) -> wv.Policy:
    """A policy that has seen random arms, or its own choices among a thousand."""
    random = np.random.default_rng(seen)
    policy = wv.Policy(DIM, memory, exploration, seed=1)
    if source == "random":
        xs = unit_rows(random, seen)
        policy.learn_many(xs, xs @ theta + NOISE * random.standard_normal(seen))
        return policy
    arms = unit_rows(random, 1000)
    for _ in range(seen):
        choice = policy.choose(arms)
        policy.learn(choice, float(choice.features @ theta + NOISE * random.standard_normal()))
    return policy


def took(job: Callable[[], object]) -> float:
    """Milliseconds."""
    started = perf_counter()
    job()
    return (perf_counter() - started) * 1e3


def at_once(rows: Floats, theta: Floats, factor: Floats, z: float) -> int:
    """The best arm, all scored in float64."""
    images = rows @ factor
    return int(np.argmax(rows @ theta + z * np.sqrt(np.einsum("kd,kd->k", images, images))))


def in_blocks(rows: Floats, theta: Floats, factor: Floats, z: float) -> int:
    """The same, a block at a time."""
    both, scores = np.column_stack([factor, theta]), np.empty(len(rows))
    images = np.empty((BLOCK, DIM + 1))
    for begin in range(0, len(rows), BLOCK):
        part = rows[begin : begin + BLOCK]
        products = np.dot(part, both, out=images[: len(part)])
        squares = np.einsum("kd,kd->k", products[:, :DIM], products[:, :DIM])
        scores[begin : begin + BLOCK] = products[:, DIM] + z * np.sqrt(squares)
    return int(np.argmax(scores))


def measure(
    policy: wv.Policy, rows: Floats, arms: wv.sets.Finite, theta: Floats
) -> dict[str, float | str]:
    """Median milliseconds of every way to choose, and the ratios that matter."""
    random = np.random.default_rng(2)
    singles, direction = arms.table, np.ones(DIM, np.float32)
    width = policy.exploration.law is not None
    times: dict[str, list[float]] = {"product": [], "prepared": []}
    slow: dict[str, list[float]] = {"at once": [], "blocks": [], "rows": []}
    policy.choose(arms)
    for turn in range(TURNS):
        times["product"].append(took(lambda: np.dot(direction, singles)))
        started = perf_counter()
        choice = policy.choose(arms)
        times["prepared"].append((perf_counter() - started) * 1e3)
        policy.learn(choice, float(choice.features @ theta + NOISE * random.standard_normal()))
        if turn < SLOW_TURNS:
            slow["rows"].append(took(lambda: policy.choose(rows)))
        if width and turn < SLOW_TURNS:
            factor = np.linalg.cholesky(policy.belief.covariance)
            given = (rows, policy.theta, factor, 1.0)
            slow["at once"].append(took(lambda given=given: at_once(*given)))  # type: ignore[misc]
            slow["blocks"].append(took(lambda given=given: in_blocks(*given)))  # type: ignore[misc]
    found = {name: float(np.median(part)) for name, part in {**times, **slow}.items() if part}
    numpy = min(found.get("at once", np.nan), found.get("blocks", np.nan))
    return {
        "product ms": round(found["product"], 1),
        "NumPy ms": round(numpy, 1) if width else "",
        "rows ms": round(found["rows"], 1),
        "prepared ms": round(found["prepared"], 1),
        "÷ product": round(found["prepared"] / found["product"], 2),
        "× NumPy": round(numpy / found["prepared"], 1) if width else "",
        "× rows": round(found["rows"] / found["prepared"], 1),
    }


def main() -> None:
    """Measure every exploration on every belief."""
    count = int(sys.argv[sys.argv.index("--arms") + 1]) if "--arms" in sys.argv else 1_000_000
    random = np.random.default_rng(7)
    theta, rows = unit_rows(random, 1)[0], unit_rows(random, count)
    arms = wv.sets.finite(rows)
    found: list[dict[str, float | str]] = []
    for memory, seen, source in BELIEFS:
        for name, exploration in EXPLORATIONS.items():
            policy = learned(memory, exploration, source, seen, theta)
            found.append({"belief": f"{memory!r}, {seen} {source}", "exploration": name})
            found[-1].update(measure(policy, rows, arms, theta))
    print(json.dumps(found, indent=2) if "--json" in sys.argv else format_table(found))


if __name__ == "__main__":
    main()
