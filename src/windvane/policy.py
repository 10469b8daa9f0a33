"""`Policy`: a memory and an exploration over a belief, which choose among arms and learn."""

from typing import Any

import numpy as np

from windvane import persistence, validation
from windvane.beliefs.chooser import Choice, Chooser, check_draws
from windvane.beliefs.diagonal.sparse_rows import Arms, Features
from windvane.beliefs.full.belief import Belief, settle
from windvane.beliefs.full.layout import LARGEST, PolicyArrays
from windvane.beliefs.full.policy_belief import FullPolicyBelief
from windvane.beliefs.policy_belief import PolicyBelief
from windvane.errors import ArmsError, SettingError, shorten
from windvane.exploration import (
    EXPLORATIONS,
    Exploration,
    as_exploration,
    randomized,
)
from windvane.laws import half_normal, posterior
from windvane.memory import Memory, as_memory, discount, names_of
from windvane.persistence import locked
from windvane.sets.base import ActionSet, Best
from windvane.sets.finite_arms import Finite, screen
from windvane.types import Floats

DEFAULT_EXPLORATION = randomized(half_normal(posterior(0.5)))
DEFAULT_RIDGE = 0.01  # an arm of norm 1 about which nothing is known has a width of 10
LEAST_DEFAULT_LENGTH = 100  # observations
DEFAULT_LENGTH_PER_FEATURE = 10  # observations
DRAWS_COUNTED = 200  # for propensities that are counted, if the caller gives no number


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

    The full belief has all correlations between d weights, in O(d²). A diagonal one has none: a
    choice and a lesson cost O(entries that are not 0), memory grows with the weights that were
    learned, and `dim` can be any number. Its arms are a SciPy sparse matrix, `SparseRows`, or an
    array, and `learn` also takes a pair of indices and values. Its memories are keep, discount,
    half_life, restart, restart_at, detect and parts. Every exploration works except
    perturbed_history.

    >>> policy = wv.Policy(2**22, wv.half_life(500.0), wv.thompson(0.5), seed=7, belief="diagonal")
    >>> news, sport = ([7, 1_000_000], [1.0, 1.0]), ([7, 4_000_000], [1.0, 1.0])
    >>> arms = wv.SparseRows.from_pairs([news, sport])
    >>> for _ in range(200):
    ...     choice = policy.choose(arms)
    ...     policy.learn(choice, reward=1.0 if choice.index == 1 else 0.0)
    >>> policy.choose(arms).index
    1
    """

    FILE_KIND = "Policy"
    SETTINGS = ("dim", "memory", "exploration", "ridge", "floor", "belief_kind")

    def __init__(
        self,
        dim: int,
        memory: Memory | str | None = None,
        exploration: Exploration | str | None = None,
        ridge: float | None = None,
        seed: int | np.random.SeedSequence | None = None,
        floor: float = 0.0,
        belief: str = "full",
    ) -> None:
        super().__init__(dim, seed)
        memory = make_default_memory(self.dim) if memory is None else memory
        if ridge is None:
            ridge = DEFAULT_RIDGE if exploration is None else 1.0
        exploration = DEFAULT_EXPLORATION if exploration is None else exploration
        self._memory = memory = as_memory("Policy", memory)
        self.exploration = exploration = as_exploration("Policy", exploration)
        self.ridge = validation.positive("Policy", "ridge", ridge)
        if not 1.0 / LARGEST <= self.ridge <= LARGEST:
            raise SettingError(f"Policy: ridge must lie in [1e-100, 1e100], got {shorten(ridge)}")
        self.floor = validation.share("Policy", "floor", floor)
        self.belief_kind = belief
        make_belief = find_belief(belief)
        self._belief = make_belief(self.dim, memory, exploration, self.ridge, self.floor)
        self._raises_alarms = memory.kind.raises_alarms
        self._oldest_round = 0  # rewards for choices of earlier rounds are dropped
        self._next_restart = memory.first_restart

    @property
    def memory(self) -> Memory:
        """The rule by which past observations fade."""
        return self._memory

    def choose(self, arms: Arms | ActionSet) -> Choice:
        """Choose one of the arms: rows of features (K, d), `finite` arms, or an action set.

        Under a diagonal belief they are a SciPy sparse matrix, `SparseRows`, or an array (K, d).
        """
        with self._lock:
            if type(arms) is not np.ndarray and isinstance(arms, ActionSet):
                best = self.find_best(arms)
                return self._record_choice(-1, best.features, best.action)
            rows = self._belief.read_arms(arms)
            index = self.pick_arm(rows, arms)
            return self._record_choice(index, self._belief.copy_row(rows, index))

    @locked
    def amend(self, features: Features, more: float, at: float | None = None) -> None:
        """Add to the reward of a learned observation, whose choice was made `at` a time or round.

        b ← b + w·x·more, for a reward that arrives in parts. Only keep and half_life know the
        weight w of an old observation, and only if the policy keeps no past observations. Under a
        diagonal belief this is exact for a row of one entry, and an approximation for longer rows.
        """
        if not self._belief.is_amendable():
            names = " and ".join(names_of(lambda kind: kind.amendable))
            raise SettingError(
                f"amend: only {names} know the weight of an old observation, if no past "
                f"observations are kept, got {self.memory!r} with {self.exploration!r}"
            )
        row = self._belief.read_features("amend", features)
        extra = validation.check_reward(more, "amend")
        when = float(self.round) if at is None else validation.real("amend", "at", at)
        self._belief.amend(row, extra, when)

    @property
    @locked
    def theta(self) -> Floats:
        """The current estimate θ̂, (d,)."""
        return self._belief.theta

    @property
    def alarms(self) -> int:
        """How often `detect` raised an alarm and dropped all observations."""
        return self._belief.alarms

    @property
    @locked
    def estimated_noise(self) -> float:
        """The estimate σ̂ of the standard deviation of the noise, of which `posterior` is a share.

        Restarts and alarms do not change it. `amend` does not change it either.
        """
        return self._belief.estimate_noise()

    @property
    @locked
    def belief(self) -> Belief:
        """The current belief: precision W, noise W̃, moment b; it can be merged and assigned."""
        return self._belief.read()

    @belief.setter
    @locked
    def belief(self, belief: Belief) -> None:
        self._belief.check_settings(belief)
        self._belief.write(belief)

    @locked
    def predict(self, arms: Arms) -> Floats:
        """The predicted reward of each arm in this round, xᵀθ̂, (K,)."""
        return self._current_belief().predict(self._read_finite_arms(arms))

    @locked
    def widths(self, arms: Arms) -> Floats:
        """The uncertainty about each arm: ‖x‖_{V⁻¹}, (K,)."""
        return self._belief.measure_widths(self._read_finite_arms(arms))

    @locked
    def propensities(
        self, arms: Arms, samples: int = DRAWS_COUNTED, chosen: int | None = None
    ) -> Floats:
        """The probability with which `choose` would play each arm in this round, (K,).

        The result is exact, except for thompson and perturbed_history: they count `samples` draws,
        and the `chosen` index counts as one more draw, so that its share is never 0.
        """
        rows, belief = self._read_finite_arms(arms), self._current_belief()
        check_draws(belief.count_rows(rows), samples, chosen)
        return belief.compute_propensities(rows, self.key, self.round, samples, chosen)

    @locked
    def choose_with_propensities(self, arms: Arms) -> tuple[Choice, Floats]:
        """Choose one of the arms, and return the probability that each arm had, (K,).

        The choice is that of `choose`. If levels are drawn from a density, both together take
        little longer than `choose`.
        """
        rows, belief = self._read_arms(arms), self._current_belief()
        index, chances = belief.choose_with_propensities(rows, self.key, self.round, DRAWS_COUNTED)
        if index < 0:
            belief.refuse_rows(rows)
        self._accept(belief)
        return self._record_choice(index, belief.copy_row(rows, index)), chances

    @classmethod
    def check_size(cls, dim: int, header: persistence.Header, arrays: persistence.Arrays) -> None:
        find_belief(header["belief"]).check_size(dim, arrays)

    def export_state(self) -> tuple[persistence.Header, persistence.Arrays]:
        header = {
            "key": self.key,
            "round": self.round,
            "born": self._oldest_round,
            "next_restart": self._next_restart,
            "tally": self._belief.export_counters(),
        }
        return header, {**self._belief.export_arrays(), "open": self._list_open_rounds()}

    def restore_state(self, header: persistence.Header, arrays: persistence.Arrays) -> None:
        self._belief.restore(header["tally"], arrays)
        self._restore_rounds(header, arrays["open"])
        self._oldest_round = validation.whole("load", "born", header["born"], least=0)
        self._next_restart = validation.whole("load", "next_restart", header["next_restart"], -1)

    def _comparable_state(self) -> tuple[persistence.Header, persistence.Arrays]:
        header, arrays = self.export_state()
        return header, {**arrays, **self._belief.list_comparable_arrays()}

    def _current_belief(self) -> PolicyBelief[Any, Any, Any]:
        """The belief with which this round chooses: a blank one if a restart is due."""
        return self._belief if self.round != self._next_restart else self._belief.make_blank()

    def _accept(self, belief: PolicyBelief[Any, Any, Any]) -> None:
        """Take over the belief that chose; if it is blank, earlier rounds are dropped."""
        if belief is not self._belief:
            self._belief = belief
            self._oldest_round = self.round
            self._next_restart = self.memory.next_restart(self.round)

    def pick_arm(self, rows: Any, arms: Any) -> int:
        """Choose the arm of this round; of prepared arms only those that can be best are scored."""
        belief = self._current_belief()
        places = None
        if rows is not arms and isinstance(arms, Finite) and self.belief_kind == "full":
            places = screen(arms, settle(belief.arrays), self.key, self.round)
        few = rows if places is None else rows[places]
        index = belief.choose(few, self.key, self.round)
        if index < 0:
            belief.refuse_rows(rows)
        self._accept(belief)
        return index if places is None else int(places[index])

    @property
    def is_large(self) -> bool:
        """Whether the matrices of the belief wait for several observations."""
        return isinstance(self._belief, FullPolicyBelief) and self._belief.is_large

    def prepare_rounds(self, most: int) -> tuple[PolicyArrays, int]:
        """Return the arrays for compiled code that learns in up to `most` rounds from this one.

        A restart that is due is made. The second value is the round of the next one, or -1.
        """
        if 0 <= self._next_restart <= self.round:
            self._accept(self._belief.make_blank())
        self._belief.make_room(most)
        return self._belief.arrays, self._next_restart

    def skip_round(self) -> None:
        """Count a round in which another policy chooses."""
        self._accept(self._current_belief())
        self.round += 1

    def find_best(self, actions: ActionSet) -> Best:
        """The best action for the θ of this round; if the set finds none, nothing changes."""
        belief = self._current_belief()
        if not isinstance(belief, FullPolicyBelief):
            raise ArmsError(
                f"choose: a diagonal belief needs a list of arms, got {shorten(actions)}"
            )
        check_best_can_be_found(self.exploration, self.floor)
        self._check_dim(actions)
        best = actions.best(belief.choose_parameter(self.key, self.round))
        validation.check_finite_arms(best.features[None])
        self._accept(belief)
        return best

    def learn_row(self, features: Any, reward: float, round_: int, at: float) -> None:
        if round_ < self._oldest_round:
            return
        alarms = self.alarms if self._raises_alarms else 0
        self._belief.learn(features, reward, at)
        if self._raises_alarms and self.alarms > alarms:
            self._oldest_round = self.round

    def learn_rows(self, rows: Any, rewards: Floats, rounds: list[int], at: Floats) -> None:
        kept = [place for place, round_ in enumerate(rounds) if round_ >= self._oldest_round]
        if len(kept) < len(rounds):
            rows = self._belief.stack([rows[place] for place in kept])
        rewards, at = rewards[kept], at[kept]
        self._belief.check_learnable(rows)
        if not self._raises_alarms:
            self._belief.learn_all(rows, rewards, at)
            return
        lessons = zip(rows, rewards.tolist(), kept, at.tolist(), strict=True)
        for row, reward, place, time in lessons:  # one of these rewards may raise an alarm
            self.learn_row(row, reward, rounds[place], time)

    def check_learnable(self, rows: Any) -> None:
        """Refuse features that are not finite, or so large that too few digits are left."""
        self._belief.check_learnable(rows)

    def _read_arms(self, arms: Arms) -> Any:
        if type(arms) is not np.ndarray and isinstance(arms, ActionSet):
            super()._read_arms(arms)  # raises the error
        return self._belief.read_arms(arms)

    def _read_finite_arms(self, arms: Arms) -> Any:
        return self._belief.check_rows(self._read_arms(arms))

    def _check_arms(self, arms: Arms) -> Any:
        rows = self._read_arms(arms)
        return arms if isinstance(arms, Finite) else self._belief.check_rows(rows)

    def _read_features(self, who: str, features: Features) -> Any:
        return self._belief.read_features(who, features)

    def _stack(self, rows: list[Any]) -> Any:
        return self._belief.stack(rows)


def find_belief(name: str) -> type[PolicyBelief[Any, Any, Any]]:
    """Return the class of a belief by its name, full or diagonal."""
    if validation.of_kind("Policy", "belief", name, str) == "full":
        return FullPolicyBelief
    if name == "diagonal":
        from windvane.beliefs.diagonal.policy_belief import DiagonalPolicyBelief

        return DiagonalPolicyBelief  # imported late: it loads numba
    raise SettingError(f"Policy: belief must be full or diagonal, got {shorten(name)}")


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
