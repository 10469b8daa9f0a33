"""Requests and rewards for the tests of the learner."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import windvane as wv
from windvane.beliefs.bank.feature_parts import PackedSides

Features = dict[str, Any]
HOUR = 3600.0


@dataclass(frozen=True)
class Offer:
    """An action as the packing of features takes it."""

    id: str
    features: Sequence[Mapping[str, object]] = field(default_factory=lambda: [{}])


class Stream:
    """Visitors with categories, numbers and arrays, and what they like, drawn from a seed."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.now = 1e9

    def draw_context(self) -> Features:
        random = self.random
        context: Features = {
            "device": str(random.choice(["phone", "desktop", "tablet"])),
            "user": {"age": float(random.normal(40, 12)), "member": bool(random.random() < 0.5)},
        }
        if random.random() < 0.7:
            context["vector"] = random.normal(1.0, 1.0, 3).tolist()
        return context

    def draw_actions(self) -> list[Features]:
        random = self.random
        topics = ["news", "sports", "film"]
        return [
            {"id": f"a{i}", "topic": topics[i % 3], "price": float(random.lognormal(3.0, 1.0))}
            for i in random.permutation(6)[:4].tolist()
        ]

    def draw_reward(self, decision: wv.Decision) -> float:
        device = next(each["device"] for each in decision.context if "device" in each)
        likes = (device == "phone") == (decision.features["topic"] == "sports")
        return float(self.random.random() < (0.7 if likes else 0.2))

    def advance(self, most_seconds: float = HOUR) -> float:
        self.now += float(self.random.uniform(0.0, most_seconds))
        return self.now


def play(
    learner: wv.Learner, rounds: int, seed: int = 1, *, late: float = 0.0
) -> list[wv.Decision]:
    """Let a learner decide and learn; a share `late` of the rewards comes at the end, shuffled."""
    stream = Stream(seed)
    decisions, waiting = [], []
    for _ in range(rounds):
        decision = learner.rank(stream.draw_context(), stream.draw_actions(), at=stream.advance())
        decisions.append(decision)
        reward = stream.draw_reward(decision)
        if stream.random.random() < late:
            waiting.append((decision, reward))
        else:
            learner.reward(decision, reward)
    for i in stream.random.permutation(len(waiting)):
        learner.reward(*waiting[i])
    return decisions


def describe(decisions: Sequence[wv.Decision]) -> list[tuple[str, bytes]]:
    """What two runs must agree on, to the bit."""
    return [(decision.action, decision.probabilities.tobytes()) for decision in decisions]


def check_same_sides(left: PackedSides, right: PackedSides) -> None:
    """Two lessons or requests agree to the bit."""
    for name, mine, theirs in zip(PackedSides._fields, left, right, strict=True):
        assert mine.dtype == theirs.dtype, name
        assert mine.tobytes() == theirs.tobytes(), name
