"""Drift that comes back every week: does it pay to tell a policy the day and the hour?

Eight weeks with a decision every ten minutes among five articles. The probability of a click is
logistic in a level of each article and, in two of the three worlds, in its own pattern over the 28
parts of the week (seven days of four parts). All policies have their default settings. Each cell is
the gain over a choice at random as a share of the gain of the best choice, over ten seeds.

`python benchmarks/recurring.py` prints the table of docs/how-to/recurring-drift.md.
"""

import argparse
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

import windvane as wv
from windvane.types import Floats

WEEKS, PARTS, ARMS = 8, 28, 5
DECISIONS_PER_PART = 36  # a decision every ten minutes, in parts of six hours
ROUNDS = WEEKS * PARTS * DECISIONS_PER_PART
SECONDS_PER_PART = 6 * 3600.0

Click = Callable[[int, int], float]  # a round and an arm give a reward


class World(NamedTuple):
    """How articles are liked."""

    pattern: float  # standard deviation of the weekly pattern, as a score
    change: float  # of the level of an article from one week to the next


WORLDS = {
    "a weekly pattern": World(1.0, 0.0),
    "a weekly pattern, and levels that move": World(1.0, 0.5),
    "levels that move, no pattern": World(0.0, 0.5),
}


def draw_probabilities(world: World, random: np.random.Generator) -> Floats:
    """The probability of a click in each round, (T, arms)."""
    days, hours = random.standard_normal((ARMS, 7)), random.standard_normal((ARMS, 4))
    both = random.standard_normal((ARMS, 7, 4))
    pattern = world.pattern * (days[:, :, None] + hours[:, None] + both) / np.sqrt(3)
    steps = world.change * random.standard_normal((WEEKS, ARMS))
    steps[0] = random.standard_normal(ARMS)
    scores = -1.5 + np.cumsum(steps, axis=0)[:, None] + pattern.reshape(ARMS, PARTS).T
    return np.repeat(1 / (1 + np.exp(-scores.reshape(-1, ARMS))), DECISIONS_PER_PART, axis=0)


def describe_part(part: int, features: str) -> Floats:
    """The features that a policy has of a part of the week: a constant and, perhaps, categories."""
    day, hours = np.eye(7)[part // 4], np.eye(4)[part % 4]
    whole = np.eye(PARTS)[part]
    known = {"nothing": [], "day and hours": [day, hours], "part of the week": [whole]}[features]
    return np.concatenate([[1.0], *known])


def play_policy(features: str, memory: str | None, seed: int, click: Click) -> None:
    """Play all rounds with a policy whose arms are articles crossed with these features."""
    arms = [np.kron(np.eye(ARMS), describe_part(part, features)) for part in range(PARTS)]
    policy = wv.Policy(arms[0].shape[1], memory, seed=seed)
    for t in range(ROUNDS):
        choice = policy.choose(arms[t // DECISIONS_PER_PART % PARTS])
        policy.learn(choice, click(t, choice.index))


def play_learner(features: str, seed: int, click: Click) -> None:
    """Play all rounds with a learner; articles are texts, and the context has the categories."""
    learner, articles = wv.Learner(seed=seed), [f"article {k}" for k in range(ARMS)]
    for t in range(ROUNDS):
        part = t // DECISIONS_PER_PART % PARTS
        context = {
            "nothing": {},
            "day and hours": {"day": f"day {part // 4}", "hours": f"hours {part % 4}"},
            "part of the week": {"part": f"part {part}"},
        }[features]
        decision = learner.rank(context, articles, at=t * SECONDS_PER_PART / DECISIONS_PER_PART)
        learner.reward(decision, click(t, articles.index(str(decision.action))))


CONTESTANTS: dict[str, Callable[[int, Click], None]] = {
    "Policy, no features of time": lambda seed, click: play_policy("nothing", None, seed, click),
    "Policy, no features of time, `parts()`": lambda seed, click: play_policy(
        "nothing", "parts()", seed, click
    ),
    "Policy, day and hours": lambda seed, click: play_policy("day and hours", None, seed, click),
    "Learner, no features of time": lambda seed, click: play_learner("nothing", seed, click),
    "Learner, day and hours": lambda seed, click: play_learner("day and hours", seed, click),
    "Learner, part of the week": lambda seed, click: play_learner("part of the week", seed, click),
}


def measure(world: World, play: Callable[[int, Click], None], seed: int) -> float:
    """The gain over a choice at random, as a share of that of the best choice of each round."""
    random = np.random.default_rng(seed)
    chances = draw_probabilities(world, random)
    uniforms = random.random(ROUNDS)
    earned = np.empty(ROUNDS)

    def click(t: int, arm: int) -> float:
        earned[t] = chances[t, arm]
        return float(uniforms[t] < chances[t, arm])

    play(seed, click)
    base = chances.mean()
    return float((earned.mean() - base) / (chances.max(axis=1).mean() - base))


def main() -> None:
    """Print the table: mean and worst over the seeds."""
    parser = argparse.ArgumentParser(description="Measure features for drift that comes back.")
    parser.add_argument("--seeds", type=int, default=10)
    seeds = range(1, parser.parse_args().seeds + 1)
    print("| | " + " | ".join(WORLDS) + " |")
    print("|---|" + "---|" * len(WORLDS))
    for name, play in CONTESTANTS.items():
        cells = []
        for world in WORLDS.values():
            gains = np.array([measure(world, play, seed) for seed in seeds])
            error = gains.std(ddof=1) / np.sqrt(len(gains))
            cells.append(f"{gains.mean():.2f} ± {error:.2f}, worst {gains.min():.2f}")
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
