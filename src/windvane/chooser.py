"""What every chooser has at its edge: choices, and checks of arms, features and rewards."""

from collections.abc import Iterable, Mapping, Sequence
from numbers import Real
from os import PathLike
from typing import Any, NoReturn, TypeVar, cast

import numpy as np
import numpy.typing as npt

from windvane import validation
from windvane._layout import LARGEST
from windvane.action_sets.continuous import ActionSet
from windvane.errors import ArmsError, ChoiceError, RewardError, SettingError
from windvane.memory import Memory
from windvane.types import Floats

FLOAT64 = np.dtype(np.float64)
Item = TypeVar("Item")


class Choice:
    """One choice: which arm, its features, and the round and chooser that made it.

    From an action set: index −1, and `action`, what was chosen in the set's own terms (items,
    edges, columns). It is None for a point of a continuous set, and for an arm.
    """

    __slots__ = ("_features", "action", "index", "key", "round")

    def __init__(
        self,
        index: int,
        features: Floats,
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
        """The features of the arm, (d,)."""
        return self._features

    def __repr__(self) -> str:
        what = f"index={self.index}" if self.index >= 0 else f"action={self.action}"
        return f"Choice({what}, round={self.round})"


class Prepared:
    """Arms that stay the same, checked once."""

    rows: Floats  # (K, d)


class Chooser:
    """Whatever chooses and learns: a key for its draws, a round, and choices that wait."""

    def __init__(self, dim: int, seed: int | np.random.SeedSequence | None) -> None:
        who = type(self).__name__
        self.dim = validation.whole(who, "dim", dim)
        self.key = _key(who, seed)
        self.round = 0
        self._open: set[int] = set()  # rounds chosen and not yet learned

    @property
    def memory(self) -> Memory:
        """How its past fades; where it finds that out itself, what it believes in most."""
        raise NotImplementedError

    @property
    def theta(self) -> Floats:
        """The current estimate θ̂, (d,)."""
        raise NotImplementedError

    def choose(self, arms: npt.ArrayLike) -> Choice:
        """Pick one of the arms, given as rows of features (K, d)."""
        raise NotImplementedError

    def propensities(
        self, arms: npt.ArrayLike, samples: int = 200, chosen: int | None = None
    ) -> Floats:
        """The probability with which `choose` would play each arm now, (K,)."""
        raise NotImplementedError

    def save(self, path: str | PathLike[str]) -> None:
        """Write everything to one file of arrays and JSON."""
        raise NotImplementedError

    def choose_many(self, sets: Sequence[npt.ArrayLike] | Floats) -> list[Choice]:
        """One choice from each arm set, a round each, with nothing learned in between."""
        checked = [self._check_arms(arms) for arms in listed("choose_many", "arm sets", sets)]
        return [self.choose(arms) for arms in checked]

    def learn(self, choice: Choice | npt.ArrayLike, reward: float, at: float | None = None) -> None:
        """Take in the reward of a choice, now or later and in any order, or of any features.

        `at` is when it was chosen, where a half-life is one of time; else the round counts.
        """
        if type(reward) is not float or not -LARGEST <= reward <= LARGEST:
            reward = reward_of(reward)
        if at is not None:
            at = validation.real("learn", "at", at)
        if not isinstance(choice, Choice):
            row, now = self._read_features(choice), self.round
            self.learn_row(row, reward, now, float(now) if at is None else at)
            return
        round_ = choice.round
        if round_ not in self._open or choice.key != self.key or choice._features.size != self.dim:
            self._refuse_choice(choice)
        self.learn_row(choice._features, reward, round_, float(round_) if at is None else at)
        self._open.remove(round_)

    def dismiss(self, choice: Choice) -> None:
        """Stop waiting for the reward of a choice."""
        if not isinstance(choice, Choice):
            raise ChoiceError(f"dismiss: a choice must be given, got {choice!r}")
        if choice.round not in self._open or choice.key != self.key:
            self._refuse_choice(choice)
        self._open.remove(choice.round)

    def learn_many(
        self,
        choices: Sequence[Choice] | Floats,
        rewards: Sequence[float] | Floats,
        at: Sequence[float] | Floats | None = None,
    ) -> None:
        """Take in many rewards in turn: all of them or, where one is refused, none."""
        choices = listed("learn_many", "choices", choices)
        given = listed("learn_many", "rewards", rewards)
        if len(given) != len(choices):
            raise RewardError(
                f"learn_many: rewards must be {len(choices)}, one a choice, got {len(given)}"
            )
        values = np.array([reward_of(reward, "learn_many") for reward in given])
        made = [choice for choice in choices if isinstance(choice, Choice)]
        for choice in made:
            if choice.round not in self._open or choice.key != self.key:
                self._refuse_choice(choice)
        if len({choice.round for choice in made}) < len(made):
            raise ChoiceError("learn_many: a choice can be learned once, got one of them twice")
        features = [
            self._read_features(c.features if isinstance(c, Choice) else c) for c in choices
        ]
        rows = np.array(features, dtype=np.float64).reshape(-1, self.dim)
        rounds = [c.round if isinstance(c, Choice) else self.round for c in choices]
        times: Sequence[float] = rounds
        if at is not None:
            given_times = listed("learn_many", "times", at)
            times = [validation.real("learn_many", "at", time) for time in given_times]
        if len(times) != len(rows):
            raise SettingError(f"learn_many: at must be {len(rows)} times, got {len(times)}")
        self.learn_rows(rows, values, rounds, np.array(times, dtype=np.float64))
        self._open.difference_update(choice.round for choice in made)

    def learn_row(self, features: Floats, reward: float, round_: int, at: float) -> None:
        """Learn what was chosen in a round, or refuse it and change nothing."""
        raise NotImplementedError

    def learn_rows(self, rows: Floats, rewards: Floats, rounds: list[int], at: Floats) -> None:
        """Learn all in turn, or refuse them and change nothing."""
        raise NotImplementedError

    def _check_propensity_arguments(
        self, arms: npt.ArrayLike, samples: int, chosen: int | None
    ) -> Floats:
        """The arms whose propensities are asked for, once all that was given is seen to be good."""
        rows = finite(self._read_arms(arms))
        validation.whole("propensities", "samples", samples)
        if chosen is not None and validation.whole("propensities", "chosen", chosen, 0) >= len(
            rows
        ):
            raise ArmsError(f"propensities: chosen must be below {len(rows)}, got {chosen}")
        return rows

    def _open_rounds(self) -> npt.NDArray[np.int64]:
        """The rounds that wait for a reward, as they are saved."""
        return np.array(sorted(self._open), dtype=np.int64)

    def _restore_rounds(self, header: Mapping[str, Any], rounds: npt.NDArray[Any]) -> None:
        """Take over a saved key and round, and the rounds that wait."""
        if rounds.dtype != np.int64 or rounds.ndim != 1:
            raise ValueError("its open rounds are out of bounds")
        self.key = validation.whole("load", "key", header["key"], least=0)
        self.round = validation.whole("load", "round", header["round"], least=0)
        self._open = set(rounds.tolist())

    def _check_dim(self, actions: ActionSet) -> None:
        if actions.dim != self.dim:
            raise ArmsError(f"choose: actions must have dim {self.dim}, got {actions.dim}")

    def _record_choice(
        self, index: int, features: Floats, action: tuple[int, ...] | None = None
    ) -> Choice:
        """The choice of this round, which ends with it."""
        round_ = self.round
        self._open.add(round_)
        self.round = round_ + 1
        return Choice(index, features, round_, self.key, action)

    def _read_arms(self, arms: npt.ArrayLike) -> Floats:
        """The arms as rows that compiled code can read in place."""
        if (
            type(arms) is np.ndarray
            and arms.dtype is FLOAT64
            and arms.ndim == 2
            and arms.shape[1] == self.dim
            and arms.shape[0] > 0
            and arms.flags.carray
        ):
            return arms
        if isinstance(arms, ActionSet):
            raise ArmsError(f"only choose takes an action set; here arms are listed, got {arms!r}")
        try:
            rows = np.asarray(arms, dtype=np.float64)
        except (TypeError, ValueError) as reason:
            raise ArmsError(f"choose: arms must be rows of numbers: {reason}") from None
        if not rows.flags.carray:
            rows = np.array(rows, order="C")
        if rows.ndim != 2 or rows.shape[1] != self.dim:
            raise ArmsError(f"choose: arms must have shape (K, {self.dim}), got {rows.shape}")
        if len(rows) == 0:
            raise ArmsError("choose: there must be at least one arm, got none")
        return rows

    def _check_arms(self, arms: npt.ArrayLike) -> npt.ArrayLike:
        """The arms, seen to be good before anything is chosen."""
        rows = self._read_arms(arms)
        return arms if isinstance(arms, Prepared) else finite(rows)

    def _read_features(self, features: npt.ArrayLike) -> Floats:
        try:
            row = np.array(features, dtype=np.float64, order="C")
        except (TypeError, ValueError) as reason:
            raise ArmsError(f"learn: features must be numbers: {reason}") from None
        if row.shape != (self.dim,):
            raise ArmsError(f"learn: features must have shape ({self.dim},), got {row.shape}")
        return row

    def _refuse_choice(self, choice: Choice) -> NoReturn:
        strange = choice.key != self.key or choice.features.shape != (self.dim,)
        if strange or choice.round >= self.round:
            raise ChoiceError(
                "learn: this choice was made by another policy; "
                "to learn from it all the same, give its features: learn(choice.features, reward)"
            )
        raise ChoiceError(f"learn: the choice of round {choice.round} was learned already")


def listed(who: str, name: str, values: Iterable[Item]) -> list[Item]:
    """The values as a list."""
    try:
        return list(values)
    except TypeError:
        raise SettingError(f"{who}: {name} must be a sequence, got {values!r}") from None


def reward_of(reward: object, who: str = "learn") -> float:
    """A reward as a finite float."""
    number = isinstance(reward, Real) or (isinstance(reward, np.ndarray) and reward.ndim == 0)
    value = float(cast(float, reward)) if number else float("nan")
    if not -LARGEST <= value <= LARGEST:
        raise RewardError(f"{who}: the reward must be a finite number, got {reward!r}")
    return value


def finite(rows: Floats) -> Floats:
    """The same rows, seen to be finite."""
    if not (np.einsum("kd,kd->k", rows, rows) <= LARGEST).all():
        refuse_arms(rows)
    return rows


def refuse_arms(rows: Floats, who: str = "choose") -> NoReturn:
    """Say which arm cannot be scored."""
    sizes = np.einsum("kd,kd->k", rows, rows)
    arm = int(np.argmin(sizes <= LARGEST))
    raise ArmsError(
        f"{who}: arms must be finite, with norm up to {LARGEST**0.5:g}; "
        f"arm {arm} is {np.array2string(rows[arm], threshold=8)}"
    )


def _key(who: str, seed: int | np.random.SeedSequence | None) -> int:
    """63 bits that start every stream of a chooser."""
    if seed is not None and not isinstance(seed, np.random.SeedSequence):
        seed = validation.whole(who, "seed", seed, least=0)
    sequence = seed if isinstance(seed, np.random.SeedSequence) else np.random.SeedSequence(seed)
    return int(sequence.generate_state(1, np.uint64)[0]) >> 1
