"""`Policy`: a memory and an exploration that choose among arms and learn from rewards."""

from collections.abc import Callable
from functools import cached_property, partial
from typing import ClassVar, NoReturn, Self

import numpy as np
import numpy.typing as npt

from windvane import persistence, text_form, validation
from windvane.beliefs.full import layout
from windvane.beliefs.full.belief import Belief
from windvane.beliefs.full.belief_arrays import (
    check_belief,
    export_counters,
    has_noise_estimate,
    read_belief,
    restore_counters,
    settle,
    write_belief,
    write_blank_belief,
)
from windvane.beliefs.full.layout import LARGEST, PolicyArrays
from windvane.chooser import Choice, Chooser, compute_room
from windvane.errors import ArmsError, BeliefError, SettingError
from windvane.exploration import EXPLORATIONS, Exploration, randomized
from windvane.laws import half_normal, posterior
from windvane.memory import Memory, discount, names_of
from windvane.sets.base import ActionSet, Best
from windvane.sets.finite_arms import Finite, screen
from windvane.types import Floats, Records

DEFAULT_EXPLORATION = randomized(half_normal(posterior(0.5)))
DEFAULT_RIDGE = 0.01  # an arm of norm 1 about which nothing is known has a width of 10
LEAST_DEFAULT_LENGTH = 100  # observations
DEFAULT_LENGTH_PER_FEATURE = 10  # observations


def make_default_memory(dim: int) -> Memory:
    """The default memory holds about ten observations for each feature, and 100 at least.

    discount(1 − 1/n) with n = max(100, 10·d)

    >>> make_default_memory(3), make_default_memory(50)
    (discount(0.99), discount(0.998))
    """
    length = max(LEAST_DEFAULT_LENGTH, DEFAULT_LENGTH_PER_FEATURE * dim)
    return discount(1.0 - 1.0 / length)


class Policy(Chooser):
    """Chooses among arms by an exploration, and learns from rewards under a memory.

    Without a memory it is discount(1 − 1/n) with n = max(100, 10·dim). Without an exploration it is
    randomized(half_normal(posterior(0.5))), and the ridge is 0.01 by default. With an exploration,
    the ridge is 1 by default. With probability `floor` an arm is chosen uniformly at random, so
    that no propensity is below floor/K. A memory or an exploration can also be a text, such as
    "discount(0.99)".

    >>> import numpy as np, windvane as wv
    >>> policy = wv.Policy(dim=2, seed=7)
    >>> policy
    Policy(dim=2, memory=discount(0.99), exploration=randomized(half_normal(posterior(0.5))), \
ridge=0.01)
    >>> arms = np.array([[1.0, 0.0], [0.0, 1.0]])
    >>> for _ in range(200):
    ...     choice = policy.choose(arms)
    ...     policy.learn(choice, reward=1.0 if choice.index == 1 else 0.0)
    >>> policy.choose(arms).index
    1
    """

    FILE_KIND = "Policy"
    COMPILED: ClassVar[tuple[str, ...]] = (
        "_choose",
        "_learn",
        "_choose_with_propensities",
    )

    def __init__(
        self,
        dim: int,
        memory: Memory | str | None = None,
        exploration: Exploration | str | None = None,
        ridge: float | None = None,
        seed: int | np.random.SeedSequence | None = None,
        floor: float = 0.0,
    ) -> None:
        super().__init__(dim, seed)
        memory = make_default_memory(self.dim) if memory is None else memory
        if ridge is None:
            ridge = DEFAULT_RIDGE if exploration is None else 1.0
        exploration = DEFAULT_EXPLORATION if exploration is None else exploration
        self._memory = memory = text_form.as_memory("Policy", memory)
        self.exploration = exploration = text_form.as_exploration("Policy", exploration)
        self.ridge = validation.positive("Policy", "ridge", ridge)
        if not 1.0 / LARGEST <= self.ridge <= LARGEST:
            raise SettingError(f"Policy: ridge must lie in [1e-100, 1e100], got {ridge!r}")
        self.floor = validation.share("Policy", "floor", floor)
        self._limit = layout.history_limit(memory, exploration)
        rules = layout.build_rules(self.dim, memory, exploration, self.ridge, self.floor)
        rules["room"] = layout.compute_room_for_pending(rules, memory)
        self.is_large = bool(rules["room"][0] > 0)  # its matrices wait for several observations
        past = np.zeros((0 if self._limit == 0 else 1, layout.history_width(self.dim, memory)))
        self._arrays = self._make_blank(rules, past)
        self._raises_alarms = memory.kind.raises_alarms
        self._oldest_round = 0  # rewards for choices of earlier rounds are dropped
        self._is_by_line = layout.is_by_line(rules) and not self.is_large
        self._next_restart = memory.first_restart
        self._bind_kernels()

    def _bind_kernels(self) -> None:
        from windvane._numba.compilation import compile_for  # imported late: it loads numba
        from windvane.beliefs.full.choosing import select_choose
        from windvane.beliefs.full.learning import select_learn

        choose, learn = select_choose(self._arrays.rules), select_learn(self._arrays.rules)
        self._choose = compile_for(choose, self._arrays, np.zeros((1, 1)), 0, 0)
        self._learn = compile_for(learn, self._arrays, np.zeros(1), 0.0, 0.0)

    def __repr__(self) -> str:
        floor = f", floor={self.floor!r}" if self.floor else ""
        return (
            f"Policy(dim={self.dim}, memory={self.memory!r}, exploration={self.exploration!r}, "
            f"ridge={self.ridge!r}{floor})"
        )

    @property
    def memory(self) -> Memory:
        """The rule by which past observations fade."""
        return self._memory

    def choose(self, arms: npt.ArrayLike | ActionSet) -> Choice:
        """Choose one of the arms: rows of features (K, d), `finite` arms, or an action set."""
        if type(arms) is not np.ndarray and isinstance(arms, ActionSet):
            best = self.find_best(arms)
            return self._record_choice(-1, best.features, best.action)
        rows = self._read_arms(arms)
        index = self.pick_arm(rows, arms)
        return self._record_choice(index, rows[index].copy())

    def amend(self, features: npt.ArrayLike, more: float, at: float | None = None) -> None:
        """Add to the reward of a learned observation, whose choice was made `at` a time or round.

        b ← b + w·x·more, for a reward that arrives in parts. Only keep and half_life know the
        weight w of an old observation, and only if the policy keeps no past observations.
        """
        from windvane.beliefs.full.learning import select_amend

        if not self.memory.kind.amendable or self._limit != 0:
            names = " and ".join(names_of(lambda kind: kind.amendable))
            raise SettingError(
                f"amend: only {names} know the weight of an old observation, if no past "
                f"observations are kept, got {self.memory!r} with {self.exploration!r}"
            )
        row = validation.check_features("learn", features, self.dim)
        extra = validation.check_reward(more, "amend")
        when = float(self.round) if at is None else validation.real("amend", "at", at)
        validation.check_finite_arms(row[None])
        select_amend(self._arrays.rules)(self._arrays, row, extra, when)

    @property
    def theta(self) -> Floats:
        """The current estimate θ̂, (d,)."""
        return self._arrays.block[self.dim : 2 * self.dim].copy()

    @property
    def alarms(self) -> int:
        """How often `detect` raised an alarm and dropped all observations."""
        return int(self._arrays.tally["alarms"][0])

    @property
    def estimated_noise(self) -> float:
        """The estimate σ̂ of the standard deviation of the noise, of which `posterior` is a share.

        Restarts and alarms do not change it. `amend` does not change it either.
        """
        from windvane.beliefs.full.counters import compute_noise

        if not has_noise_estimate(self._arrays):
            raise SettingError(
                "estimated_noise: a policy estimates its noise only if its exploration has a scale "
                f"such as posterior(0.5), got {self.exploration!r}"
            )
        return float(compute_noise(self._arrays))

    @property
    def belief(self) -> Belief:
        """The current belief: precision W, noise W̃, moment b; it can be merged and assigned."""
        return read_belief(self._arrays, self.memory, self.ridge)

    @belief.setter
    def belief(self, belief: Belief) -> None:
        check_belief(belief, self.dim, self.memory, self.ridge)
        if self._limit != 0:
            raise BeliefError(
                f"belief: {self.exploration!r} needs the observations themselves, "
                "so this policy cannot be given a belief"
            )
        write_belief(self._arrays, belief, self.exploration)

    def widths(self, arms: npt.ArrayLike) -> Floats:
        """The uncertainty about each arm: ‖x‖_{V⁻¹}, (K,)."""
        return self.belief.widths(validation.check_finite_arms(self._read_arms(arms)))

    def propensities(
        self, arms: npt.ArrayLike, samples: int = 200, chosen: int | None = None
    ) -> Floats:
        """The probability with which `choose` would play each arm in this round, (K,).

        The result is exact, except for thompson and perturbed_history: they count `samples` draws,
        and the `chosen` index counts as one more draw, so that its share is never 0.
        """
        from windvane.beliefs.full import propensities

        rows = self._check_propensity_arguments(arms, samples, chosen)
        arrays = self._current_arrays()
        if self.is_large:
            return propensities.compute_large_propensities(arrays, rows)
        if self._is_by_line:
            return propensities.compute_propensities_by_width(arrays, rows)
        source = propensities.BeliefSource(
            arrays, partial(read_belief, arrays, self.memory, self.ridge)
        )
        shares = propensities.compute_shares(source, rows, samples, self.key, self.round)
        if propensities.is_counted(arrays.rules):
            shares = propensities.add_chosen_draw(shares, samples, chosen)
        mix = float(arrays.rules["mix"][0])
        return (1.0 - mix) * shares + mix / len(rows)

    def choose_with_propensities(self, arms: npt.ArrayLike) -> tuple[Choice, Floats]:
        """Choose one of the arms, and return the probability that each arm had, (K,).

        The choice is that of `choose`. If levels are drawn from a density, both together take
        little longer than `choose`.
        """
        rows = self._read_arms(arms)
        if not self._is_by_line or self.round == self._next_restart:
            index = self.pick_arm(rows, arms)
            chances = self.propensities(rows, chosen=index)
        else:
            index, chances = self._choose_with_propensities(
                self._arrays, rows, self.key, self.round
            )
            if index < 0:
                validation.refuse_arms(rows)
        return self._record_choice(index, rows[index].copy()), chances

    @cached_property
    def _choose_with_propensities(self) -> Callable[..., tuple[int, Floats]]:
        """The compiled part of `choose_with_propensities`, loaded at its first call."""
        from windvane._numba.compilation import compile_for
        from windvane.beliefs.full import propensities

        return compile_for(
            propensities.choose_with_propensities,
            self._arrays,
            np.zeros((1, self.dim)),
            self.key,
            0,
        )

    def export_settings(self) -> persistence.Header:
        """Return the settings as the header of a saved file holds them."""
        return {
            "dim": self.dim,
            "memory": repr(self.memory),
            "exploration": repr(self.exploration),
            "ridge": self.ridge,
            "floor": self.floor,
        }

    @classmethod
    def from_settings(cls, header: persistence.Header, arrays: persistence.Arrays) -> Self:
        """Make a policy that has learned nothing from the settings in a saved header."""
        dim = validation.whole("load", "dim", header["dim"])
        if arrays["block"].size < dim * dim:
            raise ValueError(f"its belief is too small for dimension {dim}")
        return cls(
            dim,
            text_form.read_memory(header["memory"]),
            text_form.read_exploration(header["exploration"]),
            validation.positive("load", "ridge", header["ridge"]),
            floor=header["floor"],
        )

    def export_state(self) -> tuple[persistence.Header, persistence.Arrays]:
        """Return everything beyond the settings, as a saved file holds it."""
        header = {
            "key": self.key,
            "round": self.round,
            "born": self._oldest_round,
            "next_restart": self._next_restart,
            "tally": export_counters(self._arrays),
        }
        block, past = self._arrays.block, self._arrays.past
        return header, {"block": block, "past": past, "open": self._list_open_rounds()}

    def restore_state(self, header: persistence.Header, arrays: persistence.Arrays) -> None:
        """Take over a saved state if it fits the settings; raise ValueError if it does not."""
        past, blank = arrays["past"], self._arrays
        block = arrays["block"]
        least = 0 if self._limit == 0 else 1
        most = len(past) if self._limit is None else self._limit
        if block.dtype != blank.block.dtype or block.shape != blank.block.shape:
            raise ValueError(f"its belief has shape {block.shape}, not {blank.block.shape}")
        if past.dtype != block.dtype or past.shape[1:] != blank.past.shape[1:]:
            raise ValueError(f"its history has shape {past.shape}")
        if not least <= len(past) <= most:
            raise ValueError("its history is out of bounds")
        if not (np.isfinite(block).all() and np.isfinite(past).all()):
            raise ValueError("it holds a number that is not finite")
        self._restore_rounds(header, arrays["open"])
        self._oldest_round = validation.whole("load", "born", header["born"], least=0)
        restore_counters(blank, header["tally"])
        self._arrays = blank._replace(
            block=np.array(block, order="C"), past=np.array(past, order="C")
        )
        self._next_restart = validation.whole("load", "next_restart", header["next_restart"], -1)

    def _comparable_state(self) -> tuple[persistence.Header, persistence.Arrays]:
        header, arrays = self.export_state()
        seen = int(self._arrays.tally["seen"][0])
        return header, {**arrays, "past": self._arrays.past[:seen]}

    def _make_blank(self, rules: Records, past: Floats) -> PolicyArrays:
        """The arrays of a policy that has learned nothing."""
        size = layout.block_size(rules) + layout.pending_size(rules)
        tally, block = np.zeros(1, layout.TALLY), np.zeros(size)
        arrays = PolicyArrays(rules, tally, block, past)
        write_blank_belief(arrays)
        return arrays

    def _current_arrays(self) -> PolicyArrays:
        """The arrays with which this round chooses: blank ones if a restart is due."""
        if self.round == self._next_restart:
            blank = self._make_blank(self._arrays.rules, self._arrays.past)
            for name in layout.COUNTERS_OF_ERRORS:  # a restart keeps the noise
                blank.tally[name] = self._arrays.tally[name]
            return blank
        return self._arrays

    def pick_arm(self, rows: Floats, arms: npt.ArrayLike) -> int:
        """Choose the arm of this round; of prepared arms only those that can be best are scored."""
        if self.round == self._next_restart:
            validation.check_finite_arms(rows)  # a call that raises must change nothing
            self._restart()
        places = None
        if rows is not arms and isinstance(arms, Finite):
            places = screen(arms, settle(self._arrays), self.key, self.round)
        few = rows if places is None else rows[places]
        index = self._choose(self._arrays, few, self.key, self.round)
        if index < 0:
            validation.refuse_arms(rows)
        return index if places is None else int(places[index])

    def prepare_rounds(self, most: int) -> tuple[PolicyArrays, int]:
        """Return the arrays for compiled code that learns in up to `most` rounds from this one.

        A restart that is due is made. The second value is the round of the next one, or -1.
        """
        if 0 <= self._next_restart <= self.round:
            self._restart()
        if self._limit != 0:
            self._make_room(most)
        return self._arrays, self._next_restart

    def skip_round(self) -> None:
        """Count a round in which another policy chooses."""
        if self.round == self._next_restart:
            self._restart()
        self.round += 1

    def _restart(self) -> None:
        """Drop all observations of the rounds before this one."""
        from windvane.beliefs.full.block import reset

        reset(self._arrays)
        self._oldest_round = self.round
        self._next_restart = self.memory.next_restart(self.round)

    def find_best(self, actions: ActionSet) -> Best:
        """The best action for the θ of this round; if the set finds none, nothing changes."""
        from windvane.beliefs.full.sampling import choose_parameter

        check_best_can_be_found(self.exploration, self.floor)
        self._check_dim(actions)
        due = self.round == self._next_restart
        theta = choose_parameter(self._current_arrays(), self.key, self.round)
        best = actions.best(theta)
        validation.check_finite_arms(best.features[None])
        if due:
            self._restart()
        return best

    def learn_row(self, features: Floats, reward: float, round_: int, at: float) -> None:
        if round_ < self._oldest_round:
            return
        if self._limit != 0:
            self.check_learnable(features[None])
            self._make_room(1)
        alarms = self.alarms if self._raises_alarms else 0
        refused = self._learn(self._arrays, features, reward, at)
        if refused:
            refuse_features(refused, self.ridge, self.memory)
        if self._raises_alarms and self.alarms > alarms:
            self._oldest_round = self.round

    def learn_rows(self, rows: Floats, rewards: Floats, rounds: list[int], at: Floats) -> None:
        from windvane.beliefs.full.learning import learn_all

        is_kept = np.array(rounds, dtype=np.int64) >= self._oldest_round
        rows = rows[is_kept]
        self.check_learnable(rows)
        if self._raises_alarms:  # one of these rewards may raise an alarm
            kept_rounds = [round_ for round_ in rounds if round_ >= self._oldest_round]
            kept = zip(rows, rewards[is_kept].tolist(), kept_rounds, strict=True)
            for row, reward, round_ in kept:
                self.learn_row(row, reward, round_, 0.0)
            return
        self._make_room(len(rows))
        if self.is_large:
            for row, reward, when in zip(rows, rewards[is_kept], at[is_kept], strict=True):
                self._learn(self._arrays, row, reward, when)
            return
        learn_all(self._arrays, rows, rewards[is_kept], at[is_kept])

    def check_learnable(self, rows: Floats) -> None:
        """Refuse features that are not finite, or so large that too few digits are left."""
        from windvane.beliefs.full.learning import check_observations

        refused = check_observations(self._arrays, rows)
        if refused:
            refuse_features(refused, self.ridge, self.memory)

    def _make_room(self, more: int) -> None:
        """Grow the array of past observations for more of them, up to the limit of the memory."""
        past = self._arrays.past
        room = len(past)
        larger = compute_room(int(self._arrays.tally["seen"][0]), more, room, self._limit)
        if larger > room:
            grown = np.zeros((larger, past.shape[1]))
            grown[:room] = past
            self._arrays = self._arrays._replace(past=grown)


def check_best_can_be_found(exploration: Exploration, floor: float) -> None:
    """Refuse an exploration that needs a list of the actions."""
    kind = exploration.kind
    usable = ", ".join(each.symbols for each in EXPLORATIONS.values() if each.by_oracle)
    hint = f"use one of {usable}, which need only the best action"
    if exploration.chance or floor:
        raise SettingError(
            "choose: epsilon and a floor choose an action uniformly at random, which needs a "
            f"list of the actions; {hint}, with floor=0"
        )
    if not kind.by_oracle:
        needed = "the width" if kind.needs == "widths" else "the estimate"
        raise SettingError(
            f"choose: {exploration!r} needs {needed} of every action, and the actions of "
            f"a set cannot be listed; {hint}"
        )


def refuse_features(refused: int, ridge: float, memory: Memory) -> NoReturn:
    """Say why features cannot be learned, by the answer of the kernel that checks them."""
    from windvane.beliefs.full.learning import LARGEST_CONDITION, NOT_FINITE

    if refused == NOT_FINITE:
        raise ArmsError(f"learn: features must be finite, with norm up to {LARGEST**0.5:g}")
    unit = f"ridge ({ridge:g})"
    if memory.kind.is_filter:
        unit += f" and the variance ({memory.noise**2:g}) of the noise"
    raise ArmsError(
        f"learn: the squared features learned so far must sum to at most "
        f"{LARGEST_CONDITION:g} times the {unit}, or too few digits are left; scale them "
        f"to norm 1"
    )
