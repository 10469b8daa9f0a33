"""Chooser: what every policy has in common, and Choice, what a policy returns."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NoReturn, Self, cast

import numpy as np
import numpy.typing as npt

from windvane import validation
from windvane.beliefs.diagonal.sparse_rows import Arms, CheckedRow, Features
from windvane.errors import ArmsError, ChoiceError, RewardError, SettingError, shorten
from windvane.exploration import Exploration
from windvane.memory import Memory
from windvane.persistence import Arrays, Header, Persistent, are_equal, locked
from windvane.sets.base import ActionSet
from windvane.sets.finite_arms import Finite
from windvane.types import Floats, Places
from windvane.validation import LARGEST

USUAL = ("floor=0.0", "belief='full'", "pseudo='normal'")  # settings that `repr` leaves out


class Choice:
    """One choice: the index of the arm, its features, and the round and policy that made it.

    A choice from an action set has index −1 and an `action` in the terms of the set: items, edges
    or columns. The `action` is None for an arm and for a point of a continuous set. Two choices are
    equal if all of this is equal.

    >>> import windvane as wv
    >>> policy = wv.Policy(2, wv.keep(), wv.greedy(), seed=7)
    >>> policy.learn([0.0, 1.0], reward=1.0)
    >>> choice = policy.choose([[1.0, 0.0], [0.0, 1.0]])
    >>> choice
    Choice(index=1, round=0)
    >>> choice.features
    array([0., 1.])
    """

    __slots__ = ("_features", "action", "index", "key", "round")

    def __init__(
        self,
        index: int,
        features: Floats | CheckedRow,
        round_: int,
        key: int,
        action: tuple[int, ...] | None = None,
    ) -> None:
        self.index = index
        self._features = features  # (d,)
        self.round = round_
        self.key = key
        self.action = action

    @property
    def features(self) -> Floats:
        """The features of the chosen arm or action, (d,); made at each call if they are sparse."""
        row = self._features
        return row if isinstance(row, np.ndarray) else row.to_dense()

    def __repr__(self) -> str:
        what = f"index={self.index}" if self.index >= 0 else f"action={self.action}"
        return f"Choice({what}, round={self.round})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Choice):
            return NotImplemented
        return are_equal(
            (self.key, self.round, self.index, self.action, self._features),
            (other.key, other.round, other.index, other.action, other._features),
        )

    def __hash__(self) -> int:
        return hash((self.key, self.round))


class Chooser(Persistent):
    """The base class of every policy: it chooses, learns, and can be saved, copied and compared.

    A policy has a key, from which all of its random numbers follow, a round, which `choose`
    increments, and a set of open rounds, whose rewards have not arrived yet.

    >>> import copy, windvane as wv
    >>> isinstance(wv.Policy(2, wv.keep(), wv.greedy()), wv.Chooser)
    True
    >>> policy = wv.Policy(2, wv.discount(0.9), wv.thompson(1.0), seed=7)
    >>> twin = copy.copy(policy)
    >>> twin == policy
    True
    >>> policy.learn([1.0, 0.0], reward=1.0)
    >>> twin == policy
    False
    """

    SETTINGS: ClassVar[tuple[str, ...]] = ()  # attributes that a saved file holds

    def __init__(self, dim: int, seed: int | np.random.SeedSequence | None) -> None:
        super().__init__()
        who = type(self).__name__
        self.dim = validation.whole(who, "dim", dim)
        self.key = make_key(who, seed)
        self.round = 0
        self._open: set[int] = set()  # rounds that were chosen and not yet learned

    def __hash__(self) -> int:
        return hash((type(self), self.dim, self.key))  # what `choose` and `learn` never change

    @property
    def _settings(self) -> dict[str, Any]:
        """The arguments that make a policy with these settings, which has learned nothing."""
        return {name.removesuffix("_kind"): getattr(self, name) for name in self.SETTINGS}

    def __repr__(self) -> str:
        given = [f"{name}={each!r}" for name, each in self._settings.items()]
        return f"{type(self).__name__}({', '.join(each for each in given if each not in USUAL)})"

    def export_settings(self) -> Header:
        return {
            name: repr(each) if isinstance(each, Memory | Exploration) else each
            for name, each in self._settings.items()
        }

    @classmethod
    def from_settings(cls, header: Header, arrays: Arrays) -> Self:
        settings = {name: header[name] for name in (n.removesuffix("_kind") for n in cls.SETTINGS)}
        if None in settings.values():  # as an argument, it would be a default
            raise ValueError("a setting is null")
        cls.check_size(validation.whole("load", "dim", header["dim"]), header, arrays)
        return cls(**settings)

    @classmethod
    def check_size(cls, dim: int, header: Header, arrays: Arrays) -> None:
        """Raise ValueError if saved arrays are much smaller than a policy of this dimension."""

    @property
    @abstractmethod
    def memory(self) -> Memory:
        """The memory, or the most credible one if the policy finds its memory itself."""

    @property
    @abstractmethod
    def theta(self) -> Floats:
        """The current estimate θ̂, (d,)."""

    @abstractmethod
    def choose(self, arms: npt.ArrayLike) -> Choice:
        """Choose one of the arms, given as rows of features (K, d)."""

    @abstractmethod
    def propensities(
        self, arms: npt.ArrayLike, samples: int = 200, chosen: int | None = None
    ) -> Floats:
        """Return the probability with which `choose` would choose each arm now, (K,)."""

    @abstractmethod
    def learn_row(self, features: Any, reward: float, round_: int, at: float) -> None:
        """Learn one checked observation of a round, or raise and change nothing."""

    @abstractmethod
    def learn_rows(self, rows: Any, rewards: Floats, rounds: list[int], at: Floats) -> None:
        """Learn checked observations in order, or raise and change nothing."""

    @locked
    def choose_many(self, sets: Sequence[Arms] | Floats) -> list[Choice]:
        """Choose from each arm set, one round each, and learn nothing in between."""
        arm_sets = validation.check_sequence("choose_many", "arm sets", sets)
        checked_sets = [self._check_arms(arms) for arms in arm_sets]
        return [self.choose(arms) for arms in checked_sets]

    def learn(self, choice: Choice | Features, reward: float, at: float | None = None) -> None:
        """Learn the reward of a choice, or of any features (d,), at any time and in any order.

        `at` is the time of the choice, for a half-life in time. By default the round counts.
        """
        if type(reward) is not float or not -LARGEST <= reward <= LARGEST:
            reward = validation.check_reward(reward)
        if at is not None:
            at = validation.real("learn", "at", at)
        if not isinstance(choice, Choice):
            features = self._read_features("learn", choice)
            with self._lock:
                round_ = self.round
                self.learn_row(features, reward, round_, float(round_) if at is None else at)
            return
        row, round_ = choice._features, choice.round
        with self._lock:
            if round_ not in self._open or choice.key != self.key or row.size != self.dim:
                self._refuse_choice("learn", choice)
            self.learn_row(row, reward, round_, float(round_) if at is None else at)
            self._open.remove(round_)

    @locked
    def dismiss(self, choice: Choice) -> None:
        """Stop waiting for the reward of a choice."""
        if not isinstance(choice, Choice):
            raise ChoiceError(f"dismiss: a choice must be given, got {shorten(choice)}")
        if choice.round not in self._open or choice.key != self.key:
            self._refuse_choice("dismiss", choice)
        self._open.remove(choice.round)

    @locked
    def learn_many(
        self,
        choices: Sequence[Choice | Features] | Floats,
        rewards: Sequence[float] | Floats,
        at: Sequence[float] | Floats | None = None,
    ) -> None:
        """Learn many rewards in order: all of them or, if one is refused, none."""
        who = "learn_many"
        items: list[Any] = validation.check_sequence(who, "choices", choices)
        reward_list = validation.check_sequence(who, "rewards", rewards)
        if len(reward_list) != len(items):
            raise RewardError(
                f"{who}: rewards must be {len(items)}, one for each choice, got {len(reward_list)}"
            )
        values = np.array([validation.check_reward(reward, who) for reward in reward_list])
        open_rounds = [item.round for item in items if isinstance(item, Choice)]
        for item in items:
            if isinstance(item, Choice) and (
                item.round not in self._open
                or item.key != self.key
                or item._features.size != self.dim
            ):
                self._refuse_choice(who, item)
        if len(set(open_rounds)) < len(open_rounds):
            raise ChoiceError(f"{who}: a choice can be learned once, got one of them twice")
        rounds = [item.round if isinstance(item, Choice) else self.round for item in items]
        times: Sequence[float] = rounds
        if at is not None:
            time_list = validation.check_sequence(who, "times", at)
            times = [validation.real(who, "at", time) for time in time_list]
        if len(times) != len(items):
            raise SettingError(f"{who}: at must be {len(items)} times, got {len(times)}")
        features = [
            self._read_features("learn", item._features if isinstance(item, Choice) else item)
            for item in items
        ]
        self.learn_rows(self._stack(features), values, rounds, np.array(times, dtype=np.float64))
        self._open.difference_update(open_rounds)

    def _list_open_rounds(self) -> Places:
        """Return the open rounds as a saved file holds them."""
        return np.array(sorted(self._open), dtype=np.int64)

    def _restore_rounds(self, header: Mapping[str, Any], rounds: npt.NDArray[Any]) -> None:
        """Take over a saved key, round and open rounds."""
        if rounds.dtype != np.int64 or rounds.ndim != 1:
            raise ValueError("its open rounds are out of bounds")
        self.key = validation.whole("load", "key", header["key"], least=0)
        self.round = validation.whole("load", "round", header["round"], least=0)
        self._open = set(rounds.tolist())
        if not all(0 <= round_ < self.round for round_ in self._open):
            raise ValueError("its open rounds are out of bounds")

    def _check_dim(self, actions: ActionSet) -> None:
        if actions.dim != self.dim:
            raise ArmsError(f"choose: actions must have dim {self.dim}, got {actions.dim}")

    def _record_choice(
        self, index: int, features: Floats | CheckedRow, action: tuple[int, ...] | None = None
    ) -> Choice:
        """Return the choice of this round and start the next round."""
        round_ = self.round
        self._open.add(round_)
        self.round = round_ + 1
        return Choice(index, features, round_, self.key, action)

    def _read_arms(self, arms: npt.ArrayLike) -> Floats:
        """Return the arms as rows that compiled code can read in place."""
        if type(arms) is not np.ndarray and isinstance(arms, ActionSet):
            raise ArmsError(
                f"only choose takes an action set; this method needs a list of arms, got {arms!r}"
            )
        return validation.read_rows(arms, self.dim)

    def _read_features(self, who: str, features: Features) -> Floats:
        """Return the features of one arm, (d,)."""
        return validation.check_features(who, cast(npt.ArrayLike, features), self.dim)

    def _stack(self, rows: list[Floats]) -> Floats:
        """Return rows in the form in which `learn_rows` takes them."""
        return np.array(rows, dtype=np.float64).reshape(-1, self.dim)

    def _check_arms(self, arms: npt.ArrayLike) -> npt.ArrayLike:
        """Return arms from which `choose` can choose without an error."""
        rows = self._read_arms(arms)
        return arms if isinstance(arms, Finite) else validation.check_finite_arms(rows)

    def _refuse_choice(self, who: str, choice: Choice) -> NoReturn:
        is_foreign = choice.key != self.key or choice._features.size != self.dim
        if is_foreign or choice.round >= self.round:
            hint = "; its features can be learned all the same: learn(choice.features, reward)"
            raise ChoiceError(
                f"{who}: this choice was made by another policy{hint if who != 'dismiss' else ''}"
            )
        raise ChoiceError(
            f"{who}: the choice of round {choice.round} was learned or dismissed already"
        )


def check_draws(count: int, samples: int, chosen: int | None) -> None:
    """Check the number of draws that `propensities` counts, and the index that it was given."""
    validation.whole("propensities", "samples", samples)
    if chosen is not None and validation.whole("propensities", "chosen", chosen, 0) >= count:
        raise ArmsError(f"propensities: chosen must be below {count}, got {chosen}")


def make_key(who: str, seed: int | np.random.SeedSequence | None) -> int:
    """Return 63 random bits from which all random numbers of a policy follow."""
    if seed is not None and not isinstance(seed, np.random.SeedSequence):
        seed = validation.whole(who, "seed", seed, least=0)
    sequence = seed if isinstance(seed, np.random.SeedSequence) else np.random.SeedSequence(seed)
    return int(sequence.generate_state(1, np.uint64)[0]) >> 1
