"""The contestants of decisions.py: Windvane's learner, its policies, and four other libraries.

Each is started as its own documentation starts it. Libraries that take vectors get a column for
each value and standardised numbers, which is more than their documentation promises them. A
library that has a model for each action scores all actions, and the best offered one is taken.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from itertools import islice
from typing import Any, NamedTuple, Protocol

import numpy as np

import windvane as wv
from benchmarks.streams import Features, Round, Stream
from benchmarks.vector_encoder import CrossingEncoder, SparseEncoder, VectorEncoder
from windvane.types import Floats

SAMPLE_ROUNDS = 2000  # from which vector encoders take their columns

RANDOM_LESSONS = 50  # with which the notebook of contextualbandits starts


@dataclass(frozen=True)
class Chosen:
    """The place of the chosen action, and what the contestant needs when its reward arrives."""

    index: int
    ticket: Any


class Contestant(Protocol):
    """What plays a stream."""

    def choose(self, round_: Round) -> Chosen:
        """Choose one of the offered actions."""

    def learn(self, ticket: Any, reward: float) -> None:
        """Learn the reward of an earlier choice."""


class Learner:
    """Windvane's learner from its defaults."""

    def __init__(self, stream: Stream, seed: int) -> None:
        self.learner = wv.Learner(seed=seed)

    def choose(self, round_: Round) -> Chosen:
        decision = self.learner.rank(round_.context, round_.actions, at=round_.at)
        return Chosen(decision.index, decision)

    def learn(self, ticket: Any, reward: float) -> None:
        self.learner.reward(ticket, reward)


class Library:
    """A policy of the library on dense crossings of the context with the action."""

    def __init__(
        self, stream: Stream, seed: int, make_policy: Callable[[int, int], wv.Chooser]
    ) -> None:
        rounds = list(islice(stream.play(seed), SAMPLE_ROUNDS))
        has_features = len(rounds[0].actions[0]) > 1
        offered = [action for round_ in rounds for action in round_.actions]
        actions = VectorEncoder(offered, skip=("id", "price") if has_features else ())
        if actions.width == 1:  # no feature but the id tells actions apart
            actions = VectorEncoder(offered, skip=("price",))
        contexts = VectorEncoder(round_.context for round_ in rounds)
        self.encoder = CrossingEncoder(contexts, actions)
        self.policy = make_policy(self.encoder.dim, seed)

    def choose(self, round_: Round) -> Chosen:
        choice = self.policy.choose(self.encoder.encode(round_.context, round_.actions))
        return Chosen(choice.index, choice)

    def learn(self, ticket: Any, reward: float) -> None:
        self.policy.learn(ticket, reward)


class SparseLibrary:
    """A policy of the library with a diagonal belief, on hashed crossings."""

    def __init__(self, stream: Stream, seed: int, memory: wv.Memory) -> None:
        self.encoder = SparseEncoder()
        exploration = wv.randomized(wv.half_normal(0.15))
        self.policy = wv.Policy(
            self.encoder.dim, memory, exploration, seed=seed, floor=0.02, belief="diagonal"
        )

    def choose(self, round_: Round) -> Chosen:
        choice = self.policy.choose(self.encoder.encode(round_.context, round_.actions))
        return Chosen(choice.index, choice)

    def learn(self, ticket: Any, reward: float) -> None:
        self.policy.learn(ticket, reward)


class Uniform:
    """Every offered action is equally likely."""

    def __init__(self, stream: Stream, seed: int) -> None:
        self.random = np.random.default_rng(seed)

    def choose(self, round_: Round) -> Chosen:
        return Chosen(int(self.random.integers(len(round_.actions))), None)

    def learn(self, ticket: Any, reward: float) -> None:
        """Ignore it."""


class Oracle:
    """The action with the largest expected reward."""

    def __init__(self, stream: Stream, seed: int) -> None:
        """Nothing to prepare."""

    def choose(self, round_: Round) -> Chosen:
        return Chosen(int(round_.means.argmax()), None)

    def learn(self, ticket: Any, reward: float) -> None:
        """Ignore it."""


def escape(word: str) -> str:
    """Replace the characters that have a meaning in the text format of Vowpal Wabbit."""
    return re.sub(r"[:|\s]", "_", word)


class VowpalWabbit:
    """Vowpal Wabbit with action-dependent features, crossing the context with the action."""

    def __init__(self, stream: Stream, seed: int, exploration: str) -> None:
        words = f"--cb_explore_adf -q UA {exploration} --quiet --random_seed {seed}"
        self.workspace = import_module("vowpalwabbit").Workspace(words)
        self.random = np.random.default_rng(seed)

    def choose(self, round_: Round) -> Chosen:
        lines = [f"shared |U {self._format(round_.context)}"]
        lines += [f"|A {self._format(action)}" for action in round_.actions]
        chances = np.array(self.workspace.predict(lines))
        chances /= chances.sum()
        index = int(self.random.choice(len(chances), p=chances))
        return Chosen(index, (lines, index, float(chances[index])))

    def learn(self, ticket: Any, reward: float) -> None:
        lines, index, chance = ticket
        lines[index + 1] = f"0:{-reward:.6g}:{chance:.6g} {lines[index + 1]}"
        self.workspace.learn(lines)

    @staticmethod
    def _format(features: Features) -> str:
        """Write features in the text format of Vowpal Wabbit."""
        words: list[str] = []
        for name, value in features.items():
            if isinstance(value, str):
                words.append(f"{name}={escape(value)}")
            elif isinstance(value, list) and isinstance(value[0], str):
                words += [f"{name}={escape(word)}" for word in value]
            elif isinstance(value, list):
                words += [f"{name}_{k}:{number:.6g}" for k, number in enumerate(value)]
            else:
                words.append(f"{name}:{value:.6g}")
        return " ".join(words)


class PerAction:
    """What the libraries with one model for each action share: ids, vectors, ties at random."""

    def __init__(self, stream: Stream, seed: int) -> None:
        self.ids = stream.list_action_ids()
        self.places = {name: k for k, name in enumerate(self.ids)}
        sample = islice(stream.play(seed), SAMPLE_ROUNDS)
        self.encoder = VectorEncoder(round_.context for round_ in sample)
        self.random = np.random.default_rng(seed)

    def pick_best(self, scores: Floats) -> int:
        """Return the place of the highest score; ties are broken at random."""
        return int(self.random.choice(np.flatnonzero(scores == scores.max())))


class Mabwiser(PerAction):
    """MABWiser: a ridge regression for each arm, LinUCB with the α of its first example."""

    def __init__(self, stream: Stream, seed: int) -> None:
        super().__init__(stream, seed)
        mab = import_module("mabwiser.mab")
        policy = mab.LearningPolicy.LinUCB(alpha=1.25)
        self.bandit = mab.MAB(arms=self.ids, learning_policy=policy, seed=seed)
        self.is_fitted = False

    def choose(self, round_: Round) -> Chosen:
        vector = self.encoder.encode(round_.context)[None]
        if self.is_fitted:
            scores = self.bandit.predict_expectations(vector)
            index = self.pick_best(np.array([scores[each["id"]] for each in round_.actions]))
        else:
            index = int(self.random.integers(len(round_.actions)))
        return Chosen(index, (round_.actions[index]["id"], vector))

    def learn(self, ticket: Any, reward: float) -> None:
        name, vector = ticket
        learn = self.bandit.partial_fit if self.is_fitted else self.bandit.fit
        learn([name], [reward], vector)
        self.is_fitted = True


class River(PerAction):
    """River: LinUCB with a regression for each arm, from its defaults."""

    def __init__(self, stream: Stream, seed: int) -> None:
        super().__init__(stream, seed)
        self.bandit = import_module("river.bandit").LinUCBDisjoint(alpha=1.0, seed=seed)
        self.columns = [f"x{k}" for k in range(self.encoder.width)]

    def choose(self, round_: Round) -> Chosen:
        context = dict(zip(self.columns, self.encoder.encode(round_.context), strict=True))
        names = [action["id"] for action in round_.actions]
        name = self.bandit.pull(names, context=context)
        return Chosen(names.index(name), (name, context))

    def learn(self, ticket: Any, reward: float) -> None:
        name, context = ticket
        self.bandit.update(name, context, reward)


class ContextualBandits(PerAction):
    """contextualbandits: LinUCB as in its notebook for streams, after 50 random choices."""

    def __init__(self, stream: Stream, seed: int) -> None:
        super().__init__(stream, seed)
        settings = {"beta_prior": None, "alpha": 0.1, "ucb_from_empty": False}
        online = import_module("contextualbandits.online")
        self.bandit = online.LinUCB(nchoices=len(self.ids), random_state=seed + 1, **settings)
        self.lessons = 0

    def choose(self, round_: Round) -> Chosen:
        vector = self.encoder.encode(round_.context)[None, 1:]  # it adds the constant itself
        places = [self.places[action["id"]] for action in round_.actions]
        if self.lessons >= RANDOM_LESSONS:
            index = self.pick_best(self.bandit.decision_function(vector)[0][places])
        else:
            index = int(self.random.integers(len(places)))
        return Chosen(index, (places[index], vector))

    def learn(self, ticket: Any, reward: float) -> None:
        place, vector = ticket
        self.bandit.partial_fit(vector, np.array([place]), np.array([reward]))
        self.lessons += 1


class BayesianBandits(PerAction):
    """bayesianbandits: the agent of its first example, over the arms that are offered."""

    def __init__(self, stream: Stream, seed: int) -> None:
        super().__init__(stream, seed)
        self.module = import_module("bayesianbandits")
        make_learner = self.module.NormalInverseGammaRegressor
        self.arms = {name: self.module.Arm(name, learner=make_learner()) for name in self.ids}
        self.policy = self.module.UpperConfidenceBound(alpha=0.84)
        self.agents: dict[tuple[str, ...], Any] = {}

    def choose(self, round_: Round) -> Chosen:
        names = [action["id"] for action in round_.actions]
        vector = self.encoder.encode(round_.context)[None]
        agent = self._find_agent(names)
        (name,) = agent.pull(vector)
        return Chosen(names.index(name), (agent, name, vector))

    def learn(self, ticket: Any, reward: float) -> None:
        agent, name, vector = ticket
        agent.select_for_update(name).update(vector, np.array([reward]))

    def _find_agent(self, names: list[str]) -> Any:
        """Return an agent over the offered arms; it is kept if all arms are offered."""
        if len(names) < len(self.ids):
            arms = [self.arms[name] for name in names]
            return self.module.ContextualAgent(arms, self.policy, random_seed=self.random)
        key = tuple(names)
        if key not in self.agents:
            arms = [self.arms[name] for name in names]
            self.agents[key] = self.module.ContextualAgent(arms, self.policy, self.random)
        return self.agents[key]


def _make_predictive(dim: int, seed: int) -> wv.Chooser:
    return wv.PredictiveMemory(dim, wv.thompson(0.3), seed=seed)


def _make_narrow_predictive(dim: int, seed: int) -> wv.Chooser:
    return wv.PredictiveMemory(dim, wv.thompson(0.05), seed=seed)


def _make_discount(dim: int, seed: int) -> wv.Chooser:
    exploration = wv.randomized(wv.half_normal(0.1))
    return wv.Policy(dim, wv.discount(0.999), exploration, seed=seed, floor=0.02)


def _make_default(dim: int, seed: int) -> wv.Chooser:
    return wv.Policy(dim, seed=seed)


def _make_keep(dim: int, seed: int) -> wv.Chooser:
    exploration = wv.randomized(wv.half_normal(0.1))
    return wv.Policy(dim, wv.keep(), exploration, seed=seed, floor=0.02)


class Entry(NamedTuple):
    """A contestant in the list: its title, how it is made, and the package that it needs."""

    title: str
    make: Callable[[Stream, int], Contestant]
    package: str = ""
    is_own: bool = False  # a policy of the library


def _own(title: str, make_policy: Callable[[int, int], wv.Chooser]) -> Entry:
    return Entry(title, lambda stream, seed: Library(stream, seed, make_policy), is_own=True)


def _diagonal(title: str, memory: wv.Memory) -> Entry:
    return Entry(title, lambda stream, seed: SparseLibrary(stream, seed, memory), is_own=True)


def _vowpal(title: str, exploration: str) -> Entry:
    return Entry(
        title, lambda stream, seed: VowpalWabbit(stream, seed, exploration), "vowpalwabbit"
    )


CONTESTANTS = {
    "oracle": Entry("oracle", Oracle),
    "uniform": Entry("uniform", Uniform),
    "windvane": Entry("Windvane, defaults", Learner),
    "vw-epsilon": _vowpal("Vowpal Wabbit, ε = 0.05", "--epsilon 0.05"),
    "vw-squarecb": _vowpal("Vowpal Wabbit, --squarecb", "--squarecb"),
    "vw-cover": _vowpal("Vowpal Wabbit, --cover 3", "--cover 3"),
    "bayesianbandits": Entry("bayesianbandits, UCB", BayesianBandits, "bayesianbandits"),
    "mabwiser": Entry("MABWiser, LinUCB", Mabwiser, "mabwiser"),
    "contextualbandits": Entry("contextualbandits, LinUCB", ContextualBandits, "contextualbandits"),
    "river": Entry("River, LinUCBDisjoint", River, "river"),
    "policy": _own("Policy, defaults", _make_default),
    "predictive": _own("PredictiveMemory × thompson(0.3)", _make_predictive),
    "predictive-narrow": _own("PredictiveMemory × thompson(0.05)", _make_narrow_predictive),
    "discount": _own("discount(0.999) × half_normal(0.1)", _make_discount),
    "keep": _own("keep × half_normal(0.1)", _make_keep),
    "diagonal": _diagonal("diagonal Policy, keep", wv.keep()),
    "diagonal-fading": _diagonal("diagonal Policy, discount(0.9998)", wv.discount(0.9998)),
}


def list_missing(names: list[str]) -> list[str]:
    """Return the packages that contestants need and that are not installed."""
    packages = {CONTESTANTS[name].package for name in names} - {""}
    return sorted(package for package in packages if find_spec(package) is None)
