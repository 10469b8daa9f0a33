"""Streams of decisions on which learners are compared, each a frozen record of its parameters.

A stream gives rounds: the time, a context, the offered actions, the expected reward and the drawn
reward of each action, and how long the reward takes to arrive. The drawn rewards do not depend on
who plays. Two sets have the same kinds with other parameters and other seeds: `tuning` was used to
choose defaults, `reported` is in the documentation.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from windvane.types import Floats

DAY_SECONDS = 86_400.0
START_SECONDS = 1_760_000_000.0  # the time of the first decision
Features = dict[str, Any]


class Round(NamedTuple):
    """One decision to make."""

    at: float  # seconds
    context: Features
    actions: list[Features]  # each has an "id"
    means: Floats  # (K,), the expected reward of each action
    rewards: Floats  # (K,), the reward that each action would get
    wait: float  # seconds until the reward arrives


class Stream(Protocol):
    """What every stream has."""

    @property
    def rounds(self) -> int:
        """The number of decisions."""

    def list_action_ids(self) -> list[str]:
        """Return the ids of all actions that can be offered."""

    def play(self, seed: int) -> Iterator[Round]:
        """Give the rounds of one seed, the same ones every time."""


def draw_times(random: np.random.Generator, rounds: int, days: float) -> Floats:
    """Draw arrival times with exponential gaps, (rounds,), in seconds."""
    gaps = random.exponential(days * DAY_SECONDS / rounds, rounds)
    return START_SECONDS + np.cumsum(gaps)


def find_era(changes: tuple[float, ...], n: int, rounds: int) -> int:
    """Count the changes that came before round n; a change is a share of all rounds."""
    return sum(n >= change * rounds for change in changes)


def squash(scores: Floats) -> Floats:
    """Return the logistic function of scores."""
    squashed: Floats = 1.0 / (1.0 + np.exp(-scores))
    return squashed


def draw_clicks(random: np.random.Generator, means: Floats) -> Floats:
    """Draw a reward of 0 or 1 for each action."""
    return (random.random(len(means)) < means).astype(np.float64)


@dataclass(frozen=True)
class News:
    """The news tutorial of Vowpal Wabbit: each person likes one article at each time of day."""

    rounds: int
    days: float
    changes: tuple[float, ...]
    people: int
    articles: int

    def list_action_ids(self) -> list[str]:
        return [f"article{k}" for k in range(self.articles)]

    def play(self, seed: int) -> Iterator[Round]:
        random = np.random.default_rng([1, seed])
        likes = random.integers(self.articles, size=(len(self.changes) + 1, self.people, 2))
        actions: list[Features] = [{"id": name, "article": name} for name in self.list_action_ids()]
        times = draw_times(random, self.rounds, self.days).tolist()
        for n, at in enumerate(times):
            person, time = int(random.integers(self.people)), int(random.integers(2))
            means = np.zeros(self.articles)
            means[likes[find_era(self.changes, n, self.rounds), person, time]] = 1.0
            context = {"user": f"person{person}", "time_of_day": ("morning", "afternoon")[time]}
            yield Round(at, context, actions, means, means, 0.0)


@dataclass(frozen=True)
class Clicks:
    """Rare clicks: each segment of users has one offer that it prefers; clicks arrive late."""

    rounds: int
    days: float
    changes: tuple[float, ...]
    offers: int
    segments: int
    rates: tuple[float, float]  # of an offer that the segment does not prefer
    best_rates: tuple[float, float]
    mean_wait_hours: float

    def list_action_ids(self) -> list[str]:
        return [f"offer{k}" for k in range(self.offers)]

    def play(self, seed: int) -> Iterator[Round]:
        random = np.random.default_rng([2, seed])
        tastes = [self._draw_taste(random) for _ in range(len(self.changes) + 1)]
        actions: list[Features] = [{"id": name} for name in self.list_action_ids()]
        waits = random.exponential(3600.0 * self.mean_wait_hours, self.rounds).tolist()
        for n, at in enumerate(draw_times(random, self.rounds, self.days).tolist()):
            segment = int(random.integers(self.segments))
            means = tastes[find_era(self.changes, n, self.rounds)][segment]
            clicks = draw_clicks(random, means)
            yield Round(at, {"segment": f"segment{segment}"}, actions, means, clicks, waits[n])

    def _draw_taste(self, random: np.random.Generator) -> Floats:
        """Draw the click rate of each segment and offer."""
        taste = random.uniform(*self.rates, self.offers)[None].repeat(self.segments, 0)
        best = random.integers(self.offers, size=self.segments)
        taste[np.arange(self.segments), best] = random.uniform(*self.best_rates, self.segments)
        return taste


@dataclass(frozen=True)
class Rich:
    """Many features: a user has one feature of many values; few crossings with articles matter."""

    rounds: int
    days: float
    changes: tuple[float, ...]
    user_features: int
    article_features: int
    largest: int  # the number of values of the user's first feature
    articles: int
    offered: int
    crossings: int  # that matter
    rates: tuple[float, float]  # the lowest and the highest click rate
    offset: float  # of the scores: lower makes clicks rarer

    def list_action_ids(self) -> list[str]:
        return [f"article{k}" for k in range(self.articles)]

    def play(self, seed: int) -> Iterator[Round]:
        random = np.random.default_rng([3, seed])
        sizes = [self.largest, *random.integers(2, 30, self.user_features - 1).tolist()]
        widths = random.integers(2, 30, self.article_features).tolist()
        catalogue = random.integers(widths, size=(self.articles, self.article_features))
        tastes = [self._draw_taste(random, sizes, widths) for _ in range(len(self.changes) + 1)]
        actions: list[Features] = [
            {"id": name, **{f"f{j}": f"v{value}" for j, value in enumerate(row)}}
            for name, row in zip(self.list_action_ids(), catalogue.tolist(), strict=True)
        ]
        lowest, highest = self.rates
        for n, at in enumerate(draw_times(random, self.rounds, self.days).tolist()):
            user = random.integers(sizes)
            offered = random.choice(self.articles, self.offered, replace=False)
            crossed, alone = tastes[find_era(self.changes, n, self.rounds)]
            scores = np.full(self.offered, self.offset)
            for i, j, weights in crossed:
                scores += 0.45 * weights[user[i], catalogue[offered, j]]
            for j, weights in enumerate(alone):
                scores += weights[catalogue[offered, j]]
            means = lowest + (highest - lowest) * squash(1.2 * scores)
            context = {f"u{i}": f"v{value}" for i, value in enumerate(user.tolist())}
            picked = [actions[k] for k in offered.tolist()]
            yield Round(at, context, picked, means, draw_clicks(random, means), 0.0)

    def _draw_taste(
        self, random: np.random.Generator, sizes: list[int], widths: list[int]
    ) -> tuple[list[tuple[int, int, Floats]], list[Floats]]:
        """Draw the weights of the crossings that matter, and of each article feature alone."""
        users = random.integers(1, self.user_features, self.crossings).tolist()
        articles = random.integers(self.article_features, size=self.crossings).tolist()
        crossed = [
            (i, j, random.normal(0.0, 1.0, (sizes[i], widths[j])))
            for i, j in zip(users, articles, strict=True)
        ]
        return crossed, [random.normal(0.0, 0.35, width) for width in widths]


@dataclass(frozen=True)
class Numbers:
    """Numbers of any size: an age, an income, a share, a count; each product attracts its own."""

    rounds: int
    days: float
    changes: tuple[float, ...]
    products: int
    ages: tuple[float, float]
    log_income: tuple[float, float]  # mean and standard deviation
    visits: float  # mean
    prices: tuple[float, float]
    weight: float  # standard deviation of the weights

    def list_action_ids(self) -> list[str]:
        return [f"product{k}" for k in range(self.products)]

    def play(self, seed: int) -> Iterator[Round]:
        random = np.random.default_rng([4, seed])
        weights = random.normal(0.0, self.weight, (len(self.changes) + 1, self.products, 4))
        prices = random.uniform(*self.prices, self.products).round(2).tolist()
        actions: list[Features] = [
            {"id": name, "price": price}
            for name, price in zip(self.list_action_ids(), prices, strict=True)
        ]
        youngest, oldest = self.ages
        middle, spread = self.log_income
        for n, at in enumerate(draw_times(random, self.rounds, self.days).tolist()):
            age, share = random.uniform(youngest, oldest), random.random()
            log_income, visits = random.normal(middle, spread), int(random.poisson(self.visits))
            standardised = np.array(
                [
                    (age - (youngest + oldest) / 2) / (oldest - youngest) * 12**0.5,
                    (log_income - middle) / spread,
                    (share - 0.5) * 12**0.5,
                    (visits - self.visits) / self.visits**0.5,
                ]
            )
            means = squash(weights[find_era(self.changes, n, self.rounds)] @ standardised)
            income = float(np.exp(log_income))
            context = {"age": age, "income": income, "share": share, "visits": visits}
            yield Round(at, context, actions, means, draw_clicks(random, means), 0.0)


@dataclass(frozen=True)
class Routing:
    """Requests routed to models by an embedding; reward is success minus cost; one degrades."""

    rounds: int
    days: float
    degrades_at: float  # as a share of all rounds
    degrades_to: float  # the share of its quality that the best model keeps
    models: int
    tasks: int
    dim: int  # of the embedding
    spread: float  # of the embeddings of one task
    qualities: tuple[float, float]
    largest_cost: float

    def list_action_ids(self) -> list[str]:
        return [f"model{k}" for k in range(self.models)]

    def play(self, seed: int) -> Iterator[Round]:
        random = np.random.default_rng([5, seed])
        centres = random.normal(0.0, 1.0, (self.tasks, self.dim))
        quality = random.uniform(*self.qualities, (self.models, self.tasks))
        cost = random.uniform(0.0, self.largest_cost, self.models)
        degraded = quality.copy()
        degraded[(quality.mean(1) - cost).argmax()] *= self.degrades_to
        actions: list[Features] = [{"id": name} for name in self.list_action_ids()]
        for n, at in enumerate(draw_times(random, self.rounds, self.days).tolist()):
            task = int(random.integers(self.tasks))
            embedding = centres[task] + random.normal(0.0, self.spread, self.dim)
            embedding /= np.linalg.norm(embedding)
            tokens = float(round(random.lognormal(6.0, 1.0)))
            success = (degraded if n >= self.degrades_at * self.rounds else quality)[:, task]
            context = {"embedding": embedding.tolist(), "tokens": tokens}
            rewards = draw_clicks(random, success) - cost
            yield Round(at, context, actions, success - cost, rewards, 0.0)


@dataclass(frozen=True)
class Digits:
    """The digits of scikit-learn: the right action gets 1; which one is right is permuted."""

    rounds: int
    days: float
    permuted_every: int  # rounds

    def list_action_ids(self) -> list[str]:
        return [f"digit{k}" for k in range(10)]

    def play(self, seed: int) -> Iterator[Round]:
        from sklearn.datasets import load_digits  # type: ignore[import-not-found,unused-ignore]

        images, labels = load_digits(return_X_y=True)
        random = np.random.default_rng([6, seed])
        actions: list[Features] = [{"id": name} for name in self.list_action_ids()]
        meanings = np.arange(10)
        for n, at in enumerate(draw_times(random, self.rounds, self.days).tolist()):
            if n and n % self.permuted_every == 0:
                meanings = random.permutation(10)
            image = int(random.integers(len(labels)))
            means = np.zeros(10)
            means[meanings[labels[image]]] = 1.0
            context = {"pixels": (images[image] / 16).tolist()}
            yield Round(at, context, actions, means, means, 0.0)


@dataclass(frozen=True)
class Many:
    """Very many actions of which few are offered, each with a topic and a quality of its own."""

    rounds: int
    days: float
    changes: tuple[float, ...]
    items: int
    offered: int
    topics: int
    segments: int
    quality: float  # standard deviation of what an item adds to its topic
    offset: float  # of the scores: lower makes clicks rarer

    def list_action_ids(self) -> list[str]:
        return [f"item{k}" for k in range(self.items)]

    def play(self, seed: int) -> Iterator[Round]:
        random = np.random.default_rng([7, seed])
        topic = random.integers(self.topics, size=self.items)
        quality = random.normal(0.0, self.quality, self.items)
        tastes = random.normal(0.0, 1.0, (len(self.changes) + 1, self.segments, self.topics))
        actions: list[Features] = [
            {"id": name, "topic": f"topic{topic[k]}"}
            for k, name in enumerate(self.list_action_ids())
        ]
        for n, at in enumerate(draw_times(random, self.rounds, self.days).tolist()):
            segment = int(random.integers(self.segments))
            offered = random.choice(self.items, self.offered, replace=False)
            taste = tastes[find_era(self.changes, n, self.rounds), segment]
            means = squash(taste[topic[offered]] + quality[offered] + self.offset)
            context = {"segment": f"segment{segment}"}
            picked = [actions[k] for k in offered.tolist()]
            yield Round(at, context, picked, means, draw_clicks(random, means), 0.0)
