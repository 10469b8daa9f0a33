"""DiagonalPolicy: a policy for very many sparse features, with a diagonal belief."""

from collections.abc import Sequence
from functools import cached_property
from types import ModuleType
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np

from windvane import persistence, text_form, validation
from windvane.beliefs.diagonal.belief import DiagonalBelief
from windvane.beliefs.diagonal.sparse_rows import (
    Arms,
    CheckedRow,
    CheckedRows,
    Features,
    SparseChoice,
    read_arms,
    read_features,
)
from windvane.beliefs.full import layout
from windvane.beliefs.full.belief_arrays import export_counters, restore_counters
from windvane.beliefs.full.layout import LARGEST, PolicyArrays
from windvane.chooser import Choice, Chooser
from windvane.errors import ArmsError, BeliefError, SettingError
from windvane.exploration import Exploration
from windvane.exploration import names_of as explorations_of
from windvane.laws import estimate_noise
from windvane.memory import Memory, names_of
from windvane.types import Floats

if TYPE_CHECKING:
    from windvane.beliefs.diagonal.sparse_weights import Weights

LARGEST_RATIO = 1e13  # ‖x‖²/λ beyond this would leave too few digits in the sums of a row

DRAWS_COUNTED = 200  # for the propensities of thompson, if the caller gives no number


class DiagonalPolicy(Chooser):
    """Chooses and learns as `Policy`, with a mean and a variance for each weight, uncorrelated.

    A choice and a lesson cost O(entries that are not 0), and memory grows with the weights that
    were learned, so `dim` can be any number. In units of the noise, with W = λ + p:

        m = b/W,  s = 1/W;  score of an arm by Σ xᵢmᵢ and the width √(Σ xᵢ²W̃ᵢ/Wᵢ²)
        lesson (x, y) of weight w:  e = y − Σ xᵢmᵢ,  S = 1/w + Σ xᵢ²sᵢ
        mᵢ ← mᵢ + sᵢxᵢe/S,  pᵢ ← pᵢ + gᵢ,  W̃ᵢ ← W̃ᵢ + w·gᵢ  with gᵢ = xᵢ²/(S − sᵢxᵢ²)

    The memories are keep, discount, half_life, restart, restart_at and detect. Every exploration
    works except perturbed_history.

    Arms are a SciPy sparse matrix, `SparseRows`, or an array. `learn` takes a choice, a pair of
    indices and values, or an array.

    >>> import windvane as wv
    >>> policy = wv.DiagonalPolicy(2**22, wv.half_life(500.0), wv.thompson(0.5), seed=7)
    >>> news, sport = ([7, 1_000_000], [1.0, 1.0]), ([7, 4_000_000], [1.0, 1.0])
    >>> arms = wv.SparseRows.from_pairs([news, sport])
    >>> for _ in range(200):
    ...     choice = policy.choose(arms)
    ...     policy.learn(choice, reward=1.0 if choice.index == 1 else 0.0)
    >>> policy.choose(arms).index
    1
    """

    FILE_KIND = "DiagonalPolicy"
    COMPILED: ClassVar[tuple[str, ...]] = ("_storage", "_choose", "_learn")

    def __init__(
        self,
        dim: int,
        memory: Memory | str,
        exploration: Exploration | str,
        ridge: float = 1.0,
        seed: int | np.random.SeedSequence | None = None,
        floor: float = 0.0,
    ) -> None:
        who = "DiagonalPolicy"
        super().__init__(dim, seed)
        self._memory = memory = text_form.as_memory(who, memory)
        self.exploration = exploration = text_form.as_exploration(who, exploration)
        _check_parts(who, memory, exploration)
        self.ridge = validation.positive(who, "ridge", ridge)
        if not 1.0 / LARGEST <= self.ridge <= LARGEST:
            raise SettingError(f"{who}: ridge must lie in [1e-100, 1e100], got {ridge!r}")
        self.floor = validation.share(who, "floor", floor)
        rules = layout.build_rules(self.dim, memory, exploration, self.ridge, self.floor)
        tally = np.zeros(1, layout.TALLY)
        self._arrays = PolicyArrays(rules, tally, np.empty(0), np.empty((0, 0)))
        self._weights: Weights = self._storage.make_blank_weights(memory)
        self._oldest_round = 0  # rewards for choices of earlier rounds are dropped
        self._next_restart = memory.first_restart
        self._bind_kernels()

    @cached_property
    def _storage(self) -> ModuleType:
        from windvane.beliefs.diagonal import (
            weight_arrays,  # imported late: compiled code is slow to load
        )

        return weight_arrays

    def _bind_kernels(self) -> None:
        from windvane._numba.compilation import compile_for
        from windvane.beliefs.diagonal.choosing import choose
        from windvane.beliefs.diagonal.learning import learn

        row = CheckedRow(np.zeros(1, np.int64), np.zeros(1))
        rows = CheckedRows(*row, np.ones(1, np.int64))
        belief = (self._arrays, self._weights)
        self._choose = compile_for(choose, *belief, *rows, self.key, 0)
        self._learn = compile_for(learn, *belief, *row, 0.0, 0.0)

    def __repr__(self) -> str:
        floor = f", floor={self.floor!r}" if self.floor else ""
        return (
            f"DiagonalPolicy(dim={self.dim}, memory={self.memory!r}, "
            f"exploration={self.exploration!r}, ridge={self.ridge!r}{floor})"
        )

    @property
    def memory(self) -> Memory:
        """The rule by which past observations fade."""
        return self._memory

    @property
    def theta(self) -> Floats:
        """The means of all weights as a vector, (d,); `belief` has those that were learned."""
        belief = self.belief
        return CheckedRow(belief.indices, belief.means).to_dense(self.dim)

    @property
    def alarms(self) -> int:
        """How often `detect` raised an alarm and dropped all observations."""
        return int(self._arrays.tally["alarms"][0])

    @property
    def estimated_noise(self) -> float:
        """The estimate σ̂ of the standard deviation of the noise, of which `posterior` is a share.

        Restarts and alarms do not change it. `amend` does not change it either.
        """
        if self._arrays.rules["unit"][0] != layout.NOISE:
            raise SettingError(
                "estimated_noise: a policy estimates its noise only if its exploration has a scale "
                f"such as posterior(0.5), got {self.exploration!r}"
            )
        counters = (self._arrays.tally[name].item() for name in layout.COUNTERS_OF_ERRORS)
        return estimate_noise(*counters)

    def choose(self, arms: Arms) -> Choice:
        """Choose one of the arms: a SciPy sparse matrix, `SparseRows`, or an array (K, d)."""
        rows = read_arms("choose", arms, self.dim)
        return self._record(self._pick_arm(rows), rows)

    def choose_many(self, sets: Sequence[Arms] | Floats) -> list[Choice]:
        """Choose from each arm set, one round each, and learn nothing in between."""
        who = "choose_many"
        arm_sets = validation.check_sequence(who, "arm sets", sets)
        checked_sets = [read_arms("choose", arms, self.dim) for arms in arm_sets]
        return [self._record(self._pick_arm(rows), rows) for rows in checked_sets]

    def choose_with_propensities(self, arms: Arms) -> tuple[Choice, Floats]:
        """Choose one of the arms, and return the probability that each arm had, (K,)."""
        from windvane.beliefs.diagonal.propensities import choose_with_propensities

        rows, belief = read_arms("choose", arms, self.dim), self._current_belief()
        index, chances = choose_with_propensities(
            *belief, rows, self.key, self.round, DRAWS_COUNTED
        )
        self._accept(index, belief)
        return self._record(index, rows), chances

    def propensities(
        self, arms: Arms, samples: int = DRAWS_COUNTED, chosen: int | None = None
    ) -> Floats:
        """The probability with which `choose` would play each arm in this round, (K,).

        The result is exact, except for thompson: it counts `samples` draws, and the `chosen` index
        counts as one more draw, so that its share is never 0.
        """
        from windvane.beliefs.diagonal.propensities import compute_propensities

        rows = read_arms("propensities", arms, self.dim)
        validation.whole("propensities", "samples", samples)
        if chosen is not None:
            validation.whole("propensities", "chosen", chosen, 0)
            if chosen >= rows.ends.size:
                raise ArmsError(
                    f"propensities: chosen must be below {rows.ends.size}, got {chosen}"
                )
        belief = self._current_belief()
        return compute_propensities(*belief, rows, self.key, self.round, samples, chosen)

    def predict(self, arms: Arms) -> Floats:
        """The predicted reward of each arm in this round, Σ xᵢmᵢ, (K,)."""
        from windvane.beliefs.diagonal.choosing import measure_rows

        rows = read_arms("predict", arms, self.dim)
        arrays, weights = self._current_belief()
        return measure_rows(arrays, weights, *rows)[0]

    def widths(self, arms: Arms) -> Floats:
        """The uncertainty about each arm, √(Σ xᵢ²W̃ᵢ/Wᵢ²), (K,)."""
        from windvane.beliefs.diagonal.choosing import measure_rows

        return measure_rows(self._arrays, self._weights, *read_arms("widths", arms, self.dim))[1]

    def learn(self, choice: Choice | Features, reward: float, at: float | None = None) -> None:
        """Learn the reward of a choice, or of any features, at any time and in any order.

        `at` is the time of the choice, for a half-life in time. By default the round counts.
        """
        reward = validation.check_reward(reward)
        if at is not None:
            at = validation.real("learn", "at", at)
        round_ = self.round
        if isinstance(choice, Choice):
            round_ = choice.round
            if round_ not in self._open or choice.key != self.key:
                self._refuse_choice("learn", choice)
        row = self._read_item(choice)
        self.learn_row(row, reward, round_, float(round_) if at is None else at)
        if isinstance(choice, Choice):
            self._open.remove(round_)

    def learn_many(
        self,
        choices: Sequence[Choice | Features] | Floats,
        rewards: Sequence[float] | Floats,
        at: Sequence[float] | Floats | None = None,
    ) -> None:
        """Learn many rewards in order: all of them or, if one is refused, none."""
        batch = self._check_batch(choices, rewards, at)
        rows = [self._read_item(item) for item in batch.items]
        for row in rows:
            self._check_learnable(row)
        lessons = zip(rows, batch.rewards.tolist(), batch.rounds, batch.times.tolist(), strict=True)
        for row, reward, round_, time in lessons:
            self.learn_row(row, reward, round_, time)
        self._open.difference_update(choice.round for choice in batch.choices)

    def amend(self, features: Features, more: float, at: float | None = None) -> None:
        """Add to the reward of a learned observation, whose choice was made `at` a time or round.

        This is exact for a row of one entry. For longer rows it is an approximation: what the first
        part of the reward moved depended on the variances at that time, which are gone.
        """
        if not self.memory.kind.amendable:
            names = " and ".join(names_of(lambda kind: kind.amendable))
            raise SettingError(
                f"amend: only {names} know the weight of an old observation, got {self.memory!r}"
            )
        from windvane.beliefs.diagonal.learning import amend

        row = read_features("amend", features, self.dim)
        extra = validation.check_reward(more, "amend")
        when = float(self.round) if at is None else validation.real("amend", "at", at)
        self._check_learnable(row)
        self._weights = self._storage.make_room(self._weights, row.indices.size)
        amend(self._arrays, self._weights, *row, extra, when)

    @property
    def belief(self) -> DiagonalBelief:
        """The current belief, as copies; it can be merged and assigned."""
        belief: DiagonalBelief = self._storage.read_belief(
            self._arrays, self._weights, self.memory, self.ridge
        )
        return belief

    @belief.setter
    def belief(self, belief: DiagonalBelief) -> None:
        if not isinstance(belief, DiagonalBelief):
            raise BeliefError(f"belief: a DiagonalBelief must be given, got {belief!r}")
        ours = (self.memory, self.ridge, self.dim)
        theirs = (belief.memory, belief.ridge, belief.dim)
        if ours != theirs:
            raise BeliefError(
                f"belief: memory, ridge and dim of this policy are {ours!r}, got {theirs!r}"
            )
        belief.check()
        self._weights = self._storage.write_belief(self._arrays, belief)

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
        return cls(
            validation.whole("load", "dim", header["dim"]),
            text_form.read_memory(header["memory"]),
            text_form.read_exploration(header["exploration"]),
            header["ridge"],
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
        return header, {
            **self._storage.export_weights(self._weights),
            "open": self._list_open_rounds(),
        }

    def restore_state(self, header: persistence.Header, arrays: persistence.Arrays) -> None:
        """Take over a saved state if it fits the settings; raise ValueError if it does not."""
        weights: Weights = self._storage.restore_weights(self.memory, self.dim, arrays)
        restored = self._arrays._replace(tally=self._arrays.tally.copy())
        restore_counters(restored, header["tally"], has_ridge=False)
        self._restore_rounds(header, arrays["open"])
        self._oldest_round = validation.whole("load", "born", header["born"], least=0)
        self._next_restart = validation.whole("load", "next_restart", header["next_restart"], -1)
        self._arrays, self._weights = restored, weights

    def learn_row(
        self, features: Floats | CheckedRow, reward: float, round_: int, at: float
    ) -> None:
        """Learn one checked observation of a round, or raise and change nothing."""
        row = read_features("learn", features, self.dim)
        self._check_learnable(row)
        if round_ < self._oldest_round:
            return
        alarms = self.alarms
        self._weights = self._storage.make_room(self._weights, row.indices.size)
        self._learn(self._arrays, self._weights, *row, reward, at)
        if self.alarms > alarms:
            self._oldest_round = self.round

    def learn_rows(self, rows: Floats, rewards: Floats, rounds: list[int], at: Floats) -> None:
        """Learn checked observations in order, or raise and change nothing."""
        self.learn_many([read_features("learn", row, self.dim) for row in rows], rewards, at)

    def _read_item(self, item: Choice | Features) -> CheckedRow:
        """Return the row of a choice or of features."""
        if isinstance(item, SparseChoice):
            if item.dim != self.dim:
                self._refuse_choice("learn", item)
            return item.row
        features = item.features if isinstance(item, Choice) else item
        return read_features("learn", features, self.dim)

    def _check_learnable(self, row: CheckedRow) -> None:
        if not float(row.values @ row.values) <= LARGEST_RATIO * self.ridge:
            raise ArmsError(
                f"learn: the squared features of a row must sum to at most {LARGEST_RATIO:g} times "
                f"the ridge ({self.ridge:g}), or too few digits are left; scale them to norm 1"
            )

    def _current_belief(self) -> tuple[PolicyArrays, "Weights"]:
        """The arrays with which this round chooses: blank ones if a restart is due."""
        if self.round != self._next_restart:
            return self._arrays, self._weights
        blank = self._arrays._replace(tally=np.zeros(1, layout.TALLY))
        for name in layout.COUNTERS_OF_ERRORS:  # a restart keeps the noise
            blank.tally[name] = self._arrays.tally[name]
        return blank, self._storage.make_blank_weights(self._memory)

    def _pick_arm(self, rows: CheckedRows) -> int:
        """Choose the arm of this round."""
        belief = self._current_belief()
        indices, values, ends = rows
        index = int(self._choose(*belief, indices, values, ends, self.key, self.round))
        self._accept(index, belief)
        return index

    def _accept(self, index: int, belief: tuple[PolicyArrays, "Weights"]) -> None:
        """Take over the belief that chose, which is blank after a restart, if it chose an arm."""
        if index < 0:
            raise ArmsError(
                "choose: the scores of the arms are not finite; scale the features to norm 1"
            )
        if self.round == self._next_restart:
            self._arrays, self._weights = belief
            self._oldest_round = self.round
            self._next_restart = self.memory.next_restart(self.round)

    def _record(self, index: int, rows: CheckedRows) -> SparseChoice:
        """Return the choice of this round and start the next round."""
        round_ = self.round
        self._open.add(round_)
        self.round = round_ + 1
        return SparseChoice(index, rows.copy_row(index), round_, self.key, self.dim)


def _check_parts(who: str, memory: Memory, exploration: Exploration) -> None:
    """Refuse memories and explorations that need what a diagonal belief does not have."""
    if not memory.kind.diagonal:
        names = ", ".join(names_of(lambda kind: kind.diagonal))
        raise SettingError(f"{who}: memory must be one of {names}, got {memory!r}")
    if exploration.kind.needs == "history":
        names = ", ".join(explorations_of(lambda kind: kind.needs != "history"))
        raise SettingError(f"{who}: exploration must be one of {names}, got {exploration!r}")
