"""Policy: a memory times an exploration, with choose and learn."""

from collections.abc import Callable
from functools import cached_property, partial
from types import ModuleType
from typing import ClassVar, NoReturn, Self

import numpy as np
import numpy.typing as npt

from windvane import _layout, policy_file, text_form, validation
from windvane._layout import LARGEST, PolicyArrays
from windvane.action_sets.base import ActionSet, Best
from windvane.belief import Belief
from windvane.chooser import Choice, Chooser, compute_room
from windvane.errors import ArmsError, BeliefError, SettingError
from windvane.exploration import Exploration
from windvane.memory import Memory, names_of
from windvane.prepared_arms import Finite, screen
from windvane.types import Floats, Records


class Policy(Chooser):
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

    FILE_KIND = "Policy"
    COMPILED: ClassVar[tuple[str, ...]] = ("_kernels", "_choose", "_learn", "_drawn")

    def __init__(
        self,
        dim: int,
        memory: Memory | str,
        exploration: Exploration | str,
        ridge: float = 1.0,
        seed: int | np.random.SeedSequence | None = None,
        floor: float = 0.0,
    ) -> None:
        super().__init__(dim, seed)
        self._memory = memory = text_form.as_memory("Policy", memory)
        self.exploration = exploration = text_form.as_exploration("Policy", exploration)
        self.ridge = validation.positive("Policy", "ridge", ridge)
        if not 1.0 / LARGEST <= self.ridge <= LARGEST:
            raise SettingError(f"Policy: ridge must lie in [1e-100, 1e100], got {ridge!r}")
        self.floor = validation.share("Policy", "floor", floor)
        self._limit = _layout.history_limit(memory, exploration)
        rules = _layout.rules_of(self.dim, memory, exploration, self.ridge, self.floor)
        past = np.zeros((0 if self._limit == 0 else 1, _layout.history_width(self.dim, memory)))
        self._arrays = self._make_blank(rules, past)
        self._raises_alarms = memory.kind.raises_alarms
        self._born = 0  # the round before which everything was dropped
        self._lines = _layout.is_by_line(rules)  # each arm is a line in the level that is drawn
        self._next_restart = memory.first_restart
        self._bind_kernels()

    @cached_property
    def _kernels(self) -> ModuleType:
        from windvane import kernels  # imported late, because compiled code is slow to load

        return kernels

    def _bind_kernels(self) -> None:
        from windvane._jit import compile_for

        row = np.zeros(self.dim)
        self._choose = compile_for(self._kernels.choose, self._arrays, row[None], self.key, 0)
        self._learn = compile_for(self._kernels.learn, self._arrays, row, 0.0, 0.0)

    def __repr__(self) -> str:
        floor = f", floor={self.floor!r}" if self.floor else ""
        return (
            f"Policy(dim={self.dim}, memory={self.memory!r}, exploration={self.exploration!r}, "
            f"ridge={self.ridge!r}{floor})"
        )

    @property
    def memory(self) -> Memory:
        """How its past fades."""
        return self._memory

    def choose(self, arms: npt.ArrayLike | ActionSet) -> Choice:
        """Pick one of the arms: rows of features (K, d), prepared by `finite`, or an action set."""
        if type(arms) is not np.ndarray and isinstance(arms, ActionSet):
            best = self.find_best(arms)
            return self._record_choice(-1, best.features, best.action)
        rows = self._read_arms(arms)
        index = self.pick_arm(rows, arms)
        return self._record_choice(index, rows[index].copy())

    def amend(self, features: npt.ArrayLike, more: float, at: float | None = None) -> None:
        """Add to the reward of what was learned before, chosen `at` a time or round.

        b ← b + w·x·more, so that a reward may come in parts. Only under keep and half_life, where
        the weight of an observation is known from its age.
        """
        if not self.memory.kind.amendable or self._limit != 0:
            names = " and ".join(names_of(lambda kind: kind.amendable))
            raise SettingError(
                f"amend: only {names} know how much an observation still counts, "
                f"got {self.memory!r} with {self.exploration!r}"
            )
        row = validation.check_features("learn", features, self.dim)
        extra = validation.check_reward(more, "amend")
        when = float(self.round) if at is None else validation.real("amend", "at", at)
        validation.check_finite_arms(row[None])
        self._kernels.amend(self._arrays, row, extra, when)

    @property
    def theta(self) -> Floats:
        """The current estimate θ̂, (d,)."""
        return self._arrays.block[self.dim : 2 * self.dim].copy()

    @property
    def alarms(self) -> int:
        """How often `detect` has dropped everything because rewards were not what they had been."""
        return int(self._arrays.tally["alarms"][0])

    @property
    def belief(self) -> Belief:
        """What is believed now: precision W, noise W̃, moment b. Can be merged and given back."""
        return self._read_belief(self._arrays)

    @belief.setter
    def belief(self, belief: Belief) -> None:
        values, vectors = self._check_fits(belief)
        tally, state = self._arrays.tally, self._kernels.parts(self._arrays)
        state.gram[:] = belief.gram
        state.noise[:] = belief.noise_gram
        state.moment[:] = belief.moment
        state.theta[:] = belief.theta
        if self.exploration.kind.needs == "sample":
            half = np.sqrt(np.maximum(values, 0.0))[:, None] * vectors.T
            state.root[:] = np.linalg.qr(half, mode="r")
        tally["seen"] = belief.seen
        tally["clock"] = belief.clock
        tally["held"] = belief.held
        tally["energy"] = np.trace(belief.gram)
        self._kernels.refresh(self._arrays, state)

    def widths(self, arms: npt.ArrayLike) -> Floats:
        """How much is in doubt about each arm: ‖x‖_{V⁻¹}, (K,)."""
        return self.belief.widths(validation.check_finite_arms(self._read_arms(arms)))

    def propensities(
        self, arms: npt.ArrayLike, samples: int = 200, chosen: int | None = None
    ) -> Floats:
        """The probability with which `choose` would play each arm now, (K,).

        Exact, but for thompson and perturbed_history, which count `samples` draws. There, the
        index that was `chosen` counts as one draw more, so that its share is never 0.
        """
        from windvane import propensity

        rows = self._check_propensity_arguments(arms, samples, chosen)
        arrays = self._arrays_now()
        if self._lines:
            return propensity.by_width(arrays, rows)
        now = propensity.Moment(arrays, partial(self._read_belief, arrays))
        shares = propensity.shares(now, rows, samples, self.key, self.round)
        if propensity.counted(arrays.rules):
            shares = propensity.with_one_more(shares, samples, chosen)
        mix = float(arrays.rules["mix"][0])
        return (1.0 - mix) * shares + mix / len(rows)

    def choose_with_propensities(self, arms: npt.ArrayLike) -> tuple[Choice, Floats]:
        """Pick one of the arms, and the probability with which each was to be picked, (K,).

        The choice is that of `choose`. Where levels are drawn it takes little longer.
        """
        rows = self._read_arms(arms)
        if not self._lines or self.round == self._next_restart:
            index = self.pick_arm(rows, arms)
            chances = self.propensities(rows, chosen=index)
        else:
            index, chances = self._drawn(self._arrays, rows, self.key, self.round)
            if index < 0:
                validation.refuse_arms(rows)
        return self._record_choice(index, rows[index].copy()), chances

    @cached_property
    def _drawn(self) -> Callable[..., tuple[int, Floats]]:
        """The compiled call behind it, loaded when it is first asked for."""
        from windvane import propensity
        from windvane._jit import compile_for

        return compile_for(propensity.drawn, self._arrays, np.zeros((1, self.dim)), self.key, 0)

    def export_settings(self) -> policy_file.Header:
        """Return the settings as the header of a saved file holds them."""
        return {
            "dim": self.dim,
            "memory": repr(self.memory),
            "exploration": repr(self.exploration),
            "ridge": self.ridge,
            "floor": self.floor,
        }

    @classmethod
    def from_settings(cls, header: policy_file.Header, arrays: policy_file.Arrays) -> Self:
        """Make a policy that has learned nothing from the settings in a saved header."""
        dim = validation.whole("load", "dim", header["dim"])
        if arrays["block"].size < dim * dim:
            raise ValueError(f"its belief is too small for dimension {dim}")
        return cls(
            dim,
            text_form.read_memory(header["memory"]),
            text_form.read_exploration(header["exploration"]),
            header["ridge"],
            floor=header["floor"],
        )

    def export_state(self) -> tuple[policy_file.Header, policy_file.Arrays]:
        """Return everything beyond the settings, as a saved file holds it."""
        header = {
            "key": self.key,
            "round": self.round,
            "born": self._born,
            "next_restart": self._next_restart,
            "tally": {name: self._arrays.tally[name].item() for name in _layout.TALLY.names or ()},
        }
        block, past = self._arrays.block, self._arrays.past
        return header, {"block": block, "past": past, "open": self._list_open_rounds()}

    def restore_state(self, header: policy_file.Header, arrays: policy_file.Arrays) -> None:
        """Take over a saved state if it fits the settings; raise ValueError if it does not."""
        block, past, blank = arrays["block"], arrays["past"], self._arrays
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
        self._born = validation.whole("load", "born", header["born"], least=0)
        tally = blank.tally
        for name in _layout.TALLY.names or ():
            tally[name] = header["tally"][name]
        counters = [tally[name].item() for name in _layout.TALLY.names or () if name != "clock"]
        sound = np.isfinite(counters).all() and np.isfinite(tally["clock"]).all()
        if not (sound and min(counters) >= 0 and tally["ridge"] > 0):
            raise ValueError("its counters are out of bounds")
        self._arrays = PolicyArrays(
            blank.rules, tally, np.array(block, order="C"), np.array(past, order="C")
        )
        self._next_restart = validation.whole("load", "next_restart", header["next_restart"], -1)

    def _comparable_state(self) -> tuple[policy_file.Header, policy_file.Arrays]:
        header, arrays = self.export_state()
        seen = int(self._arrays.tally["seen"][0])
        return header, {**arrays, "past": self._arrays.past[:seen]}

    def _make_blank(self, rules: Records, past: Floats) -> PolicyArrays:
        """The arrays of a policy that has learned nothing."""
        tally, block = np.zeros(1, _layout.TALLY), np.zeros(_layout.block_size(rules))
        arrays = PolicyArrays(rules, tally, block, past)
        self._kernels.blank(arrays)
        return arrays

    def _arrays_now(self) -> PolicyArrays:
        """The arrays with which this round chooses: blank ones if a restart is due."""
        if self.round == self._next_restart:
            return self._make_blank(self._arrays.rules, self._arrays.past)
        return self._arrays

    def _read_belief(self, arrays: PolicyArrays) -> Belief:
        tally, state = arrays.tally, self._kernels.parts(arrays)
        if self.memory.kind.is_filter:
            precision = np.linalg.inv(state.inverse)
            gram = 0.5 * (precision + precision.T) - self.ridge * np.eye(self.dim)
            sums = gram, gram, precision @ state.theta
            return Belief(self.memory, self.ridge, tally["seen"].item(), *sums)
        sums = state.gram.copy(), state.noise.copy(), state.moment.copy()
        clock, held = tally["clock"].item(), tally["held"].item()
        return Belief(self.memory, self.ridge, tally["seen"].item(), *sums, clock, held)

    def pick_arm(self, rows: Floats, arms: npt.ArrayLike) -> int:
        """The arm to play in this round; of prepared ones, among those that can be the best."""
        if self.round == self._next_restart:
            validation.check_finite_arms(rows)  # a call that raises must change nothing
            self._restart()
        places = None
        if rows is not arms and isinstance(arms, Finite):
            places = screen(arms, self._arrays, self.key, self.round)
        few = rows if places is None else rows[places]
        index = self._choose(self._arrays, few, self.key, self.round)
        if index < 0:
            validation.refuse_arms(rows)
        return index if places is None else int(places[index])

    def skip_round(self) -> None:
        """Let a round go by in which this policy is not asked."""
        if self.round == self._next_restart:
            self._restart()
        self.round += 1

    def _restart(self) -> None:
        """Drop everything before this round."""
        self._kernels.blank(self._arrays)
        self._born = self.round
        self._next_restart = self.memory.next_restart(self.round)

    def find_best(self, actions: ActionSet) -> Best:
        """The best action for the θ of this round; nothing has changed where none is found."""
        self._check_best_can_be_found(actions)
        due = self.round == self._next_restart
        theta = self._kernels.direction(self._arrays_now(), self.key, self.round)
        best = actions.best(theta)
        validation.check_finite_arms(best.features[None])
        if due:
            self._restart()
        return best

    def _check_best_can_be_found(self, actions: ActionSet) -> None:
        """Refuse what would need a list of the actions."""
        works = "greedy(), thompson(scale) and perturbed_history(scale) need only the best action"
        if self.exploration.chance or self.floor:
            raise SettingError(
                "choose: epsilon and a floor play any action at all, all equally likely, which "
                f"needs a list of them; {works}, with floor=0"
            )
        if not self.exploration.kind.by_oracle:
            asks = "the width" if self.exploration.kind.needs == "widths" else "the estimate"
            raise SettingError(
                f"choose: {self.exploration!r} needs {asks} of every action, which cannot be "
                f"had where they cannot be listed; {works}"
            )
        self._check_dim(actions)

    def learn_row(self, features: Floats, reward: float, round_: int, at: float) -> None:
        if round_ < self._born:
            return
        if self._limit != 0:
            self.check_learnable(features[None])
            self._make_room(1)
        alarms = self.alarms if self._raises_alarms else 0
        refused = self._learn(self._arrays, features, reward, at)
        if refused:
            self._refuse_features(refused)
        if self._raises_alarms and self.alarms > alarms:
            self._born = self.round  # choices made before belong to what was dropped

    def learn_rows(self, rows: Floats, rewards: Floats, rounds: list[int], at: Floats) -> None:
        held = np.array(rounds, dtype=np.int64) >= self._born
        rows = rows[held]
        self.check_learnable(rows)
        if self._raises_alarms:  # an alarm may be raised in between
            chosen = [round_ for round_ in rounds if round_ >= self._born]
            for row, reward, round_ in zip(rows, rewards[held].tolist(), chosen, strict=True):
                self.learn_row(row, reward, round_, 0.0)
            return
        self._make_room(len(rows))
        self._kernels.learn_all(self._arrays, rows, rewards[held], at[held])

    def check_learnable(self, rows: Floats) -> None:
        refused = self._kernels.acceptable(self._arrays, rows)
        if refused:
            self._refuse_features(refused)

    def _make_room(self, more: int) -> None:
        """Let the kept observations grow, up to as many as the memory can reach."""
        past = self._arrays.past
        room = len(past)
        larger = compute_room(int(self._arrays.tally["seen"][0]), more, room, self._limit)
        if larger > room:
            grown = np.zeros((larger, past.shape[1]))
            grown[:room] = past
            self._arrays = self._arrays._replace(past=grown)

    def _check_fits(self, belief: Belief) -> tuple[Floats, Floats]:
        """The eigenvalues and -vectors of the noise of a belief that this policy can hold."""
        mine = (self.memory, self.ridge, self.dim)
        given = (belief.memory, belief.ridge, belief.dim)
        if mine != given:
            raise BeliefError(f"belief: this policy holds {mine!r}, got {given!r}")
        if not self.memory.kind.mergeable or self._limit != 0:
            names = ", ".join(names_of(lambda kind: kind.mergeable))
            raise BeliefError(
                f"belief: {self.memory!r} with {self.exploration!r} needs the observations "
                f"themselves; only {names} can be given a belief"
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
        unit = f"ridge ({self.ridge:g})"
        if self.memory.kind.is_filter:
            unit += f" and the variance ({self.memory.noise**2:g}) of the noise"
        raise ArmsError(
            f"learn: the squared features learned so far must sum to at most {most:g} times the "
            f"{unit}, or too few digits are left; scale them to norm 1"
        )
