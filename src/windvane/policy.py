"""Policy: a memory times an exploration, with choose and learn."""

from collections.abc import Sequence
from numbers import Real
from os import PathLike
from typing import NoReturn, cast

import numpy as np
import numpy.typing as npt

from windvane import checks, rules, spec, storage
from windvane.arrays import Floats, Records
from windvane.belief import Belief
from windvane.errors import (
    ArmsError,
    BeliefError,
    ChoiceError,
    FileError,
    RewardError,
    SettingError,
)
from windvane.exploration import Exploration
from windvane.memory import Memory
from windvane.rules import LARGEST

FLOAT64 = np.dtype(np.float64)


class Choice:
    """One choice: which arm, its features, and the round and policy that made it."""

    __slots__ = ("_features", "index", "key", "round")

    def __init__(self, index: int, features: Floats, round_: int, key: int) -> None:
        self.index = index
        self._features = features  # (d,)
        self.round = round_
        self.key = key

    @property
    def features(self) -> Floats:
        """The features of the arm, (d,)."""
        return self._features

    def __repr__(self) -> str:
        return f"Choice(index={self.index}, round={self.round})"


class Policy:
    """Chooses among arms and learns from rewards.

    With probability `floor` any arm at all is played, so that no propensity is below floor/K.

    >>> import numpy as np, windvane as wv
    >>> policy = wv.Policy(dim=2, memory=wv.discount(0.99), exploration=wv.thompson(0.5), seed=7)
    >>> arms = np.array([[1.0, 0.0], [0.0, 1.0]])
    >>> for _ in range(200):
    ...     choice = policy.choose(arms)
    ...     policy.learn(choice, reward=1.0 if choice.index == 1 else 0.0)
    >>> policy.choose(arms).index
    1
    """

    def __init__(
        self,
        dim: int,
        memory: Memory,
        exploration: Exploration,
        ridge: float = 1.0,
        seed: int | np.random.SeedSequence | None = None,
        floor: float = 0.0,
    ) -> None:
        from windvane import kernels  # here, because compiled code takes a while to load
        from windvane.compiling import direct

        self.dim = checks.whole("Policy", "dim", dim)
        self.memory = checks.of_kind("Policy", "memory", memory, Memory)
        self.exploration = checks.of_kind("Policy", "exploration", exploration, Exploration)
        self.ridge = checks.positive("Policy", "ridge", ridge)
        if not 1.0 / LARGEST <= self.ridge <= LARGEST:
            raise SettingError(f"Policy: ridge must lie in [1e-100, 1e100], got {ridge!r}")
        self.floor = checks.share("Policy", "floor", floor)
        self.key = _key(seed)
        self.round = 0
        self._kernels = kernels
        self._rules = rules.rules_of(self.dim, memory, exploration, self.ridge, self.floor)
        self._tally, self._block = self._blank()
        self._limit = rules.history_limit(memory, exploration)
        self._past = np.zeros((0 if self._limit == 0 else 1, self.dim + 1))
        self._open: set[int] = set()  # rounds chosen and not yet learned
        self._born = 0  # the round before which everything was dropped
        state, row = (self._rules, self._tally, self._block, self._past), np.zeros(self.dim)
        self._choose = direct(kernels.choose, *state, row[None], self.key, 0)
        self._learn = direct(kernels.learn, *state, row, 0.0)
        self._next_restart = memory.next_restart(-1 if memory.at else 0)

    def __repr__(self) -> str:
        floor = f", floor={self.floor!r}" if self.floor else ""
        return (
            f"Policy(dim={self.dim}, memory={self.memory!r}, exploration={self.exploration!r}, "
            f"ridge={self.ridge!r}{floor})"
        )

    def choose(self, arms: npt.ArrayLike) -> Choice:
        """Pick one of the arms, given as rows of features (K, d)."""
        rows = self._arms(arms)
        round_ = self.round
        if round_ == self._next_restart:
            self._restart(rows)
        index = self._choose(
            self._rules, self._tally, self._block, self._past, rows, self.key, round_
        )
        if index < 0:
            _refuse_arms(rows)
        self._open.add(round_)
        self.round = round_ + 1
        return Choice(index, rows[index].copy(), round_, self.key)

    def choose_many(self, sets: Sequence[npt.ArrayLike] | Floats) -> list[Choice]:
        """One choice from each arm set, a round each, with nothing learned in between."""
        checked = [_finite(self._arms(arms)) for arms in sets]
        return [self.choose(rows) for rows in checked]

    def learn(self, choice: Choice | npt.ArrayLike, reward: float) -> None:
        """Take in the reward of a choice, now or later and in any order, or of any features."""
        if type(reward) is not float or not -LARGEST <= reward <= LARGEST:
            reward = _reward(reward)
        if not isinstance(choice, Choice):
            self._fold(self._features(choice), reward)
            return
        round_ = choice.round
        if round_ not in self._open or choice.key != self.key or choice._features.size != self.dim:
            self._refuse_choice(choice)
        if round_ >= self._born:
            self._fold(choice._features, reward)
        self._open.remove(round_)

    def learn_many(
        self, choices: Sequence[Choice] | Floats, rewards: Sequence[float] | Floats
    ) -> None:
        """Take in many rewards in turn: all of them or, where one is refused, none."""
        given = list(rewards)
        if len(given) != len(choices):
            raise RewardError(
                f"learn_many: rewards must be {len(choices)}, one a choice, got {len(given)}"
            )
        values = np.array([_reward(reward, "learn_many") for reward in given])
        made = [choice for choice in choices if isinstance(choice, Choice)]
        for choice in made:
            if choice.round not in self._open or choice.key != self.key:
                self._refuse_choice(choice)
        if len({choice.round for choice in made}) < len(made):
            raise ChoiceError("learn_many: a choice can be learned once, got one of them twice")
        features = [self._features(c.features if isinstance(c, Choice) else c) for c in choices]
        held = [not isinstance(c, Choice) or c.round >= self._born for c in choices]
        rows = np.array(features, dtype=np.float64).reshape(-1, self.dim)[held]
        self._check_acceptable(rows)
        self._make_room(len(rows))
        self._kernels.learn_all(
            self._rules, self._tally, self._block, self._past, rows, values[held]
        )
        self._open.difference_update(choice.round for choice in made)

    @property
    def theta(self) -> Floats:
        """The current estimate θ̂, (d,)."""
        return self._block[self.dim : 2 * self.dim].copy()

    @property
    def belief(self) -> Belief:
        """What is believed now: precision W, noise W̃, moment b. Can be merged and given back."""
        return self._belief(self._tally, self._block)

    @belief.setter
    def belief(self, belief: Belief) -> None:
        values, vectors = self._check_fits(belief)
        state = self._kernels.parts(self._rules, self._block)
        state.gram[:] = belief.gram
        state.noise[:] = belief.noise_gram
        state.moment[:] = belief.moment
        state.theta[:] = belief.theta
        if self.exploration.name == "thompson":
            half = np.sqrt(np.maximum(values, 0.0))[:, None] * vectors.T
            state.root[:] = np.linalg.qr(half, mode="r")
        self._tally["seen"] = belief.seen
        self._tally["energy"] = np.trace(belief.gram)
        self._kernels.refresh(self._rules, self._tally, state)

    def widths(self, arms: npt.ArrayLike) -> Floats:
        """How much is in doubt about each arm: ‖x‖_{V⁻¹}, (K,)."""
        return self.belief.widths(_finite(self._arms(arms)))

    def propensities(
        self, arms: npt.ArrayLike, samples: int = 200, chosen: int | None = None
    ) -> Floats:
        """The probability with which `choose` would play each arm now, (K,).

        Exact, but for thompson and perturbed_history, which count `samples` draws. There, the
        index that was `chosen` counts as one draw more, so that its share is never 0.
        """
        from windvane import propensity

        rows = _finite(self._arms(arms))
        checks.whole("propensities", "samples", samples)
        if chosen is not None and checks.whole("propensities", "chosen", chosen, 0) >= len(rows):
            raise ArmsError(f"propensities: chosen must be below {len(rows)}, got {chosen}")
        due = self.round == self._next_restart
        tally, block = self._blank() if due else (self._tally, self._block)
        now = propensity.Moment(self._rules, tally, block, self._past, self._belief(tally, block))
        shares = propensity.shares(now, rows, samples, self.key, self.round)
        if chosen is not None and propensity.counted(self._rules):
            shares = (samples * shares + (np.arange(len(rows)) == chosen)) / (samples + 1.0)
        mix = float(self._rules["mix"][0])
        return (1.0 - mix) * shares + mix / len(rows)

    def save(self, path: str | PathLike[str]) -> None:
        """Write everything to one file of arrays and JSON."""
        header = {
            "dim": self.dim,
            "memory": repr(self.memory),
            "exploration": repr(self.exploration),
            "ridge": self.ridge,
            "floor": self.floor,
            "key": self.key,
            "round": self.round,
            "born": self._born,
            "next_restart": self._next_restart,
            "tally": {name: self._tally[name].item() for name in rules.TALLY.names or ()},
        }
        arrays = {
            "block": self._block,
            "past": self._past,
            "open": np.array(sorted(self._open), dtype=np.int64),
        }
        storage.write(path, header, arrays)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> "Policy":
        """Go on from a saved file, bit for bit as if never stopped."""
        header, arrays = storage.read(path)
        try:
            dim = checks.whole("load", "dim", header["dim"])
            if arrays["block"].size < 2 * dim * dim:
                raise ValueError(f"its belief is too small for dimension {dim}")
            policy = cls(
                dim,
                spec.read_memory(header["memory"]),
                spec.read_exploration(header["exploration"]),
                header["ridge"],
                floor=header["floor"],
            )
            policy._resume(header, arrays)
        except (KeyError, TypeError, ValueError, MemoryError, OverflowError) as reason:
            raise FileError(f"load: {path} holds no policy that fits together: {reason}") from None
        return policy

    def _resume(self, header: storage.Header, arrays: storage.Arrays) -> None:
        """Take over a saved state, once it is seen to fit these settings."""
        block, past, rounds = arrays["block"], arrays["past"], arrays["open"]
        least = 0 if self._limit == 0 else 1
        most = len(past) if self._limit is None else self._limit
        if block.dtype != self._block.dtype or block.shape != self._block.shape:
            raise ValueError(f"its belief has shape {block.shape}, not {self._block.shape}")
        if past.dtype != block.dtype or past.shape[1:] != (self.dim + 1,):
            raise ValueError(f"its history has shape {past.shape}")
        if not least <= len(past) <= most or rounds.dtype != np.int64 or rounds.ndim != 1:
            raise ValueError("its history or open rounds are out of bounds")
        if not (np.isfinite(block).all() and np.isfinite(past).all()):
            raise ValueError("it holds a number that is not finite")
        self.key = checks.whole("load", "key", header["key"], least=0)
        self.round = checks.whole("load", "round", header["round"], least=0)
        self._born = checks.whole("load", "born", header["born"], least=0)
        for name in rules.TALLY.names or ():
            self._tally[name] = header["tally"][name]
        counters = self._tally[0].item()
        if not (np.isfinite(counters).all() and min(counters) >= 0 and self._tally["ridge"] > 0):
            raise ValueError("its counters are out of bounds")
        self._block, self._past = (np.array(part, order="C") for part in (block, past))
        self._open = set(rounds.tolist())
        self._next_restart = checks.whole("load", "next_restart", header["next_restart"], -1)

    def _blank(self) -> tuple[Records, Floats]:
        tally, block = np.zeros(1, rules.TALLY), np.zeros(rules.block_size(self._rules))
        self._kernels.blank(self._rules, tally, block)
        return tally, block

    def _belief(self, tally: Records, block: Floats) -> Belief:
        state = self._kernels.parts(self._rules, block)
        sums = state.gram.copy(), state.noise.copy(), state.moment.copy()
        return Belief(self.memory, self.ridge, tally["seen"].item(), *sums)

    def _restart(self, rows: Floats) -> None:
        """Drop everything before this round, once its arms are known to be good."""
        _finite(rows)
        self._kernels.blank(self._rules, self._tally, self._block)
        self._born = self.round
        self._next_restart = self.memory.next_restart(self.round)

    def _fold(self, features: Floats, reward: float) -> None:
        if self._limit != 0:
            self._check_acceptable(features[None])
            self._make_room(1)
        refused = self._learn(self._rules, self._tally, self._block, self._past, features, reward)
        if refused:
            self._refuse_features(refused)

    def _check_acceptable(self, rows: Floats) -> None:
        refused = self._kernels.acceptable(self._rules, self._tally, self._past, rows)
        if refused:
            self._refuse_features(refused)

    def _make_room(self, more: int) -> None:
        """Let the kept observations grow, up to as many as the memory can reach."""
        seen, room = int(self._tally["seen"][0]), len(self._past)
        if seen + more <= room or room == self._limit:
            return
        size = max(2 * room, seen + more, 64)
        grown = np.zeros((size if self._limit is None else min(size, self._limit), self.dim + 1))
        grown[:room] = self._past
        self._past = grown

    def _arms(self, arms: npt.ArrayLike) -> Floats:
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
        try:
            rows = np.array(arms, dtype=np.float64, order="C")
        except (TypeError, ValueError) as reason:
            raise ArmsError(f"choose: arms must be rows of numbers: {reason}") from None
        if rows.ndim != 2 or rows.shape[1] != self.dim:
            raise ArmsError(f"choose: arms must have shape (K, {self.dim}), got {rows.shape}")
        if len(rows) == 0:
            raise ArmsError("choose: there must be at least one arm, got none")
        return rows

    def _features(self, features: npt.ArrayLike) -> Floats:
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

    def _check_fits(self, belief: Belief) -> tuple[Floats, Floats]:
        """The eigenvalues and -vectors of the noise of a belief that this policy can hold."""
        mine = (self.memory, self.ridge, self.dim)
        given = (belief.memory, belief.ridge, belief.dim)
        if mine != given:
            raise BeliefError(f"belief: this policy holds {mine!r}, got {given!r}")
        if self.memory.name not in ("keep", "discount") or self._limit != 0:
            raise BeliefError(
                f"belief: {self.memory!r} with {self.exploration!r} needs the observations "
                "themselves; only keep and discount can be given a belief"
            )
        sums = (belief.gram, belief.noise_gram, belief.moment)
        if belief.seen < 0 or not all(np.isfinite(part).all() for part in sums):
            raise BeliefError("belief: sums must be finite and the count at least 0")
        least = np.linalg.eigvalsh(belief.gram)[0]
        values, vectors = np.linalg.eigh(belief.noise_gram)
        if min(least, values[0]) < -0.5 * self.ridge:
            raise BeliefError(f"belief: Gram matrices must not be negative, got {least:g}")
        return values, vectors

    def _refuse_features(self, refused: int) -> NoReturn:
        if refused == self._kernels.NOT_FINITE:
            raise ArmsError(f"learn: features must be finite, with norm up to {LARGEST**0.5:g}")
        most = self._kernels.CONDITION
        raise ArmsError(
            f"learn: the squared features learned so far must sum to at most {most:g} times the "
            f"ridge ({self.ridge:g}), or too few digits are left; scale them to norm 1"
        )


def _key(seed: int | np.random.SeedSequence | None) -> int:
    """63 bits that start every stream of a policy."""
    if seed is not None and not isinstance(seed, np.random.SeedSequence):
        seed = checks.whole("Policy", "seed", seed, least=0)
    sequence = seed if isinstance(seed, np.random.SeedSequence) else np.random.SeedSequence(seed)
    return int(sequence.generate_state(1, np.uint64)[0]) >> 1


def _reward(reward: object, who: str = "learn") -> float:
    number = isinstance(reward, Real) or (isinstance(reward, np.ndarray) and reward.ndim == 0)
    value = float(cast(float, reward)) if number else float("nan")
    if not -LARGEST <= value <= LARGEST:
        raise RewardError(f"{who}: the reward must be a finite number, got {reward!r}")
    return value


def _finite(rows: Floats) -> Floats:
    if not (np.einsum("kd,kd->k", rows, rows) <= LARGEST).all():
        _refuse_arms(rows)
    return rows


def _refuse_arms(rows: Floats) -> NoReturn:
    sizes = np.einsum("kd,kd->k", rows, rows)
    arm = int(np.argmin(sizes <= LARGEST))
    raise ArmsError(
        f"choose: arms must be finite, with norm up to {LARGEST**0.5:g}; "
        f"arm {arm} is {np.array2string(rows[arm], threshold=8)}"
    )
