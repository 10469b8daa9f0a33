"""Policies of your own: any object that chooses and learns, played in Python on the same draws.

A policy has `choose(arms, round)` and `learn`, which takes `reward` and any of `index`, `features`
and `round` by name; or it is one of Windvane, or a regressor as those of scikit-learn. It
is given as a class or a factory, which may take any of `dim`, `arms`, `horizon` and `seed` by
name, or as an instance, of which every replication plays a copy.
"""

import copy
import hashlib
import importlib.util
import inspect
import operator
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from windvane.beliefs.chooser import Chooser
from windvane.errors import FileError, SettingError, shorten
from windvane.lab.engines.game import OwnPolicy, Player, accumulate_regret, make_offer, open_round
from windvane.lab.worlds.draw import Draw, Marks, realize_reward
from windvane.learner import Learner
from windvane.policy import Policy
from windvane.types import Floats, Places
from windvane.validation import suggest

SECONDS_PER_ROUND = 60.0  # on the clock of a learner
REGRESSOR_EXPLORATION = 0.05  # the probability with which a regressor plays any arm
METHODS = ("choose", "learn", "partial_fit", "predict")


def is_own(spec: object) -> bool:
    """Whether an object can be a policy of your own, so far as one can see without making it."""
    return callable(spec) or hasattr(spec, "choose") or hasattr(spec, "partial_fit")


def read_own(spec: object) -> tuple[str, OwnPolicy]:
    """Return the name of a policy and what makes it; a text "FILE.py:NAME" is loaded."""
    source: Any = load_object(spec) if isinstance(spec, str) else spec
    identity = f"{type(source).__name__} #{uuid.uuid4().hex}"  # equal to no other
    name = getattr(source, "__name__", type(source).__name__)
    file = getattr(sys.modules.get(getattr(source, "__module__", "")), "__file__", None)
    if file and "<" not in getattr(source, "__qualname__", "<"):  # its code is all in the file
        identity = f"{name} #{hashlib.sha256(Path(file).read_bytes()).hexdigest()[:16]}"
    return name, OwnPolicy(source, identity)


def load_object(text: str) -> object:
    """Load the class, function or object "FILE.py:NAME"."""
    place, _, name = text.rpartition(":")
    path = Path(place).resolve()
    sys.path.insert(0, str(path.parent))  # it may import its neighbours
    try:
        spec = importlib.util.spec_from_file_location(f"windvane_own_{path.stem}", path)
        module = importlib.util.module_from_spec(spec)  # type: ignore[arg-type]
        sys.modules[module.__name__] = module
        spec.loader.exec_module(module)  # type: ignore[union-attr]
    except Exception as reason:
        raise FileError(f"policy: {place} cannot be loaded: {_describe(reason)}") from reason
    finally:
        sys.path.pop(0)
    if not hasattr(module, name):
        hint = suggest(name, [each for each in vars(module) if not each.startswith("_")])
        raise SettingError(f"policy: {place} has no {name!r}{hint}")
    return getattr(module, name)


def _describe(reason: Exception) -> str:
    return f"{type(reason).__name__}: {reason}"


class Seat:
    """An object with `choose` and `learn` in one replication, as the engine calls it."""

    def __init__(self, name: str, policy: Any, draw: Draw, key: int) -> None:
        self.policy, self.draw, self.key = policy, draw, key
        if type(self) is Seat:
            self._choose = _bind(name, policy.choose, "arms", ("arms", "round"))
            self._learn = _bind(name, policy.learn, "reward", ("index", "reward"))

    def choose(self, arms: Floats, t: int) -> Any:
        """Return the index of one of the arms (K, d) in round t."""
        return self._choose({"arms": arms, "round": t})

    def learn(self, arms: Floats, index: int, reward: float, t: int) -> None:
        """Learn the reward of the arm that was chosen in round t."""
        features = arms[index].copy()
        self._learn({"index": index, "features": features, "reward": reward, "round": t})

    def skip(self) -> None:
        """Learn nothing from the last choice."""


class ChooserSeat(Seat):
    """A policy of Windvane."""

    def choose(self, arms: Floats, t: int) -> Any:
        self._choice = self.policy.choose(arms)
        return self._choice.index

    def learn(self, arms: Floats, index: int, reward: float, t: int) -> None:
        self.policy.learn(self._choice, reward)

    def skip(self) -> None:
        self.policy.dismiss(self._choice)


class LearnerSeat(ChooserSeat):
    """A learner; the numbers of an arm, or of the context if the arms share one, are an array."""

    def choose(self, arms: Floats, t: int) -> Any:
        context, own = {}, [{"x": row} for row in arms.tolist()]
        if self.draw.has_context:
            context, own = {"x": self.draw.arms[self.draw.picks[t, 0]].tolist()}, [{}] * len(arms)
        actions = [{"id": str(k), **features} for k, features in enumerate(own)]
        self._choice = self.policy.rank(context, actions, at=SECONDS_PER_ROUND * t)
        return self._choice.index

    def learn(self, arms: Floats, index: int, reward: float, t: int) -> None:
        self.policy.reward(self._choice, reward)


class RegressorSeat(Seat):
    """A regressor: the arm with the largest prediction; at first and sometimes, any arm."""

    is_fitted = False

    def choose(self, arms: Floats, t: int) -> Any:
        random = np.random.default_rng([self.key, t])
        if not self.is_fitted or random.random() < REGRESSOR_EXPLORATION:
            return random.integers(len(arms))
        return np.argmax(self.policy.predict(arms))

    def learn(self, arms: Floats, index: int, reward: float, t: int) -> None:
        self.policy.partial_fit(arms[index : index + 1], np.array([reward]))
        self.is_fitted = True


def _bind(
    name: str, method: Any, needed: str, usual: tuple[str, ...]
) -> Callable[[Mapping[str, object]], object]:
    """Return a function that calls a method with the values that it names, or else by place."""
    listed = inspect.signature(method).parameters.values()
    known = {"arms", "round"} if needed == "arms" else {"index", "features", "reward", "round"}
    named = [each.name for each in listed if each.name in known]
    foreign = [each for each in listed if each.name not in known and each.default is each.empty]
    if needed in named and not foreign:
        return lambda values: method(**{each: values[each] for each in named})
    try:
        inspect.signature(method).bind(*usual)
    except TypeError:
        call = f"{method.__name__}{inspect.signature(method)}"
        must = f"must take {' and '.join(usual)}, by name any of {', '.join(sorted(known))}"
        raise SettingError(f"{name}: {method.__name__} {must}, got {call}") from None
    return lambda values: method(*(values[each] for each in usual))


def take_seat(player: Player, draw: Draw, horizon: int, key: int) -> Seat:
    """Make the user's policy of a player for one replication, or say what it lacks."""
    name, seed = player.name, key % 2**32
    settings = {"dim": draw.dim, "arms": draw.picks.shape[1], "horizon": horizon, "seed": seed}
    source = player.own.source if player.own else None
    try:
        if isinstance(source, type) or (callable(source) and not hasattr(source, "choose")):
            takes = inspect.signature(source).parameters
            given = {each: value for each, value in settings.items() if each in takes}
            policy = source(**given, **({"random_state": seed} if "random_state" in takes else {}))
        else:
            policy = copy.deepcopy(source)
    except Exception as reason:
        must = "it must be made of any of dim, arms, horizon and seed"
        raise SettingError(f"{name}: {must}, got {_describe(reason)}") from reason
    if isinstance(policy, Chooser | Learner):
        if getattr(policy, "dim", draw.dim) != draw.dim:
            raise SettingError(f"{name}: dim must be {draw.dim} in this world, got {policy!r}")
        policy.key = key
        kind: type[Seat] = ChooserSeat if isinstance(policy, Chooser) else LearnerSeat
        return kind(name, policy, draw, key)
    found = [each for each in METHODS if callable(getattr(policy, each, None))]
    if not {"choose", "learn"} <= {*found} and not {"partial_fit", "predict"} <= {*found}:
        raise SettingError(
            f"{name}: a policy must have choose(arms, round) and learn(index, reward), or "
            f"partial_fit and predict, got {' and '.join(found) or 'none of them'}"
        )
    return (Seat if "learn" in found else RegressorSeat)(name, policy, draw, key)


def iterate_rounds(draw: Draw) -> Iterator[tuple[int, Floats, Floats, float]]:
    """Give t, the arms, their mean rewards and the largest one, of one round after the other."""
    offer, best = make_offer(draw), 0.0
    for t in range(draw.rounds):
        if t == 0 or len(draw.picks) > 1 or draw.era[t] != draw.era[t - 1]:
            best = open_round(draw, offer, t)
        yield t, offer.arms.copy(), offer.means, best


def choose_index(seat: Seat, arms: Floats, t: int) -> int:
    """Return the index that a seat chooses, or raise IndexError."""
    chosen = seat.choose(arms, t)
    index = operator.index(chosen) if hasattr(chosen, "__index__") else -1
    if not 0 <= index < len(arms):
        must = f"choose must return an index from 0 to {len(arms) - 1}"
        raise IndexError(f"{must}, got {shorten(chosen)}")
    return index


def _blame(player: Player, t: int, replication: int, reason: Exception) -> SettingError:
    where = f"in round {t} of replication {replication}"
    return SettingError(f"{player.name}: {where}: {_describe(reason)}")


def replay_in_python(
    player: Player, seat: Seat, horizon: int, replication: int, draw: Draw, marks: Marks
) -> Floats:
    """Play one replication and return the cumulative regret at the marks, (M,).

    In a log, a round counts and is learned only if the choice is what was logged.
    """
    regret = np.empty(horizon)
    played = t = 0
    try:
        for t, arms, means, best in iterate_rounds(draw):
            index = choose_index(seat, arms, t)
            if draw.logged.size and index != draw.logged[t]:
                seat.skip()
                continue
            reward = realize_reward(draw, float(means[index]), float(draw.noise[t]))
            seat.learn(arms, index, reward, t)
            regret[played] = best - means[index]
            played += 1
            if played == horizon:
                return accumulate_regret(regret, marks)
    except Exception as reason:
        raise _blame(player, t, replication, reason) from reason
    raise SettingError(
        f"{player.name}: the log ended after {played} of {horizon} accepted rounds in replication "
        f"{replication}; are its propensities those of the logged actions?"
    )


def log_in_python(
    player: Player, draw: Draw, key: int, replication: int
) -> tuple[Places, Floats, Floats, Floats, Floats]:
    """Play one replication with rewards of 0 or 1; return the columns of a decision log.

    Given what the policy picks, an arm has the probability floor/K, and its pick 1 − floor more. If
    another arm is played, the policy learns nothing. The rewards are predicted by the default
    `wv.Policy`, which learns all of them beside the policy.
    """
    seat, floor = take_seat(player, draw, draw.rounds, key), player.floor
    count = draw.picks.shape[1]
    model, random, t = Policy(draw.dim, seed=0), np.random.default_rng(key), 0
    chosen, rewards = np.empty(draw.rounds, np.int64), np.empty(draw.rounds)
    probabilities, predictions, truth = np.empty((3, draw.rounds, count))
    try:
        for t, arms, means, _ in iterate_rounds(draw):
            index = played = choose_index(seat, arms, t)
            if random.random() < floor:
                played = int(random.integers(count))
            probabilities[t] = floor / count + (1.0 - floor) * (np.arange(count) == index)
            predictions[t] = np.clip(0.5 + 0.5 * model.predict(arms), 0.0, 1.0)
            reward = realize_reward(draw, float(means[played]), float(draw.noise[t]))
            chosen[t], rewards[t], truth[t] = played, reward, means
            model.learn(arms[played], 2.0 * reward - 1.0)
            if played == index:
                seat.learn(arms, index, reward, t)
            else:
                seat.skip()
    except Exception as reason:
        raise _blame(player, t, replication, reason) from reason
    return chosen, rewards, probabilities, predictions, truth
