"""The full belief of a policy: dense features, and all correlations between their weights."""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import ClassVar, NoReturn

import numpy as np
import numpy.typing as npt

from windvane import persistence, validation
from windvane.beliefs import links
from windvane.beliefs.full import layout
from windvane.beliefs.full.belief import (
    Belief,
    check_block,
    check_sums,
    read_belief,
    restore_counters,
    write_belief,
)
from windvane.beliefs.full.layout import LARGEST, PolicyArrays
from windvane.beliefs.policy_belief import PolicyBelief
from windvane.errors import ArmsError, BeliefError, SettingError
from windvane.exploration import Exploration
from windvane.memory import Memory
from windvane.types import Floats

MOST_PART_WEIGHTS = 2048  # S·d; the covariance of all parts then has 32 MiB


class FullPolicyBelief(PolicyBelief[Floats, Floats, Floats]):
    """Sums over dense features, (d, d), and past observations if the memory needs them."""

    COMPILED: ClassVar[tuple[str, ...]] = ("_choose", "_learn", "_choose_with_propensities")

    def __init__(
        self, dim: int, memory: Memory, exploration: Exploration, ridge: float, floor: float
    ) -> None:
        super().__init__(dim, memory, exploration, ridge, floor)
        rules = self.arrays.rules
        rules["room"] = layout.compute_room_for_pending(rules, memory)
        self.is_large = bool(rules["room"][0] > 0)  # its matrices wait for several observations
        self.limit = layout.history_limit(memory, exploration)
        self._is_by_line = layout.is_by_line(rules) and not self.is_large
        past = np.zeros((0 if self.limit == 0 else 1, layout.history_width(dim, memory)))
        self.arrays = self.arrays._replace(past=past)
        self.clear()
        self._bind_kernels()

    def clear(self) -> None:
        from windvane.beliefs.full.block import write_blank_belief  # imported late: it loads numba

        rules, _, _, past = self.arrays
        size = layout.block_size(rules) + layout.pending_size(rules)
        self.arrays = PolicyArrays(rules, np.zeros(1, layout.TALLY), np.zeros(size), past)
        write_blank_belief(self.arrays)

    def _bind_kernels(self) -> None:
        from windvane._numba.compilation import compile_for  # imported late: it loads numba
        from windvane.beliefs.full.choosing import select_choose
        from windvane.beliefs.full.learning import select_learn

        choose, learn = select_choose(self.arrays.rules), select_learn(self.arrays.rules)
        self._choose = compile_for(choose, self.arrays, np.zeros((1, 1)), 0, 0)
        self._learn = compile_for(learn, self.arrays, np.zeros(1), 0.0, 0.0)

    def check_parts(self) -> None:
        """Refuse an exploration for which the memory cannot go through its past observations."""
        if self.exploration.kind.needs == "history" and not self.memory.kind.works_with_history:
            raise SettingError(
                f"Policy: {self.memory!r} cannot be replayed for {self.exploration!r}; "
                "thompson draws from the same law"
            )
        size = len(self.memory.half_lives) * self.dim
        if size > MOST_PART_WEIGHTS:
            raise SettingError(
                f"Policy: {self.memory!r} follows {size} numbers together, and at most "
                f"{MOST_PART_WEIGHTS} are possible; take fewer parts or features"
            )

    def read_arms(self, arms: npt.ArrayLike) -> Floats:
        return validation.read_rows(arms, self.dim)

    def check_rows(self, rows: Floats) -> Floats:
        return validation.check_finite_arms(rows)

    def refuse_rows(self, rows: Floats) -> NoReturn:
        validation.refuse_arms(rows)

    def count_rows(self, rows: Floats) -> int:
        return len(rows)

    def copy_row(self, rows: Floats, index: int) -> Floats:
        row: Floats = rows[index].copy()
        return row

    def read_features(self, who: str, features: npt.ArrayLike) -> Floats:
        return validation.check_features(who, features, self.dim)

    def stack(self, rows: Sequence[Floats]) -> Floats:
        return np.array(rows, dtype=np.float64).reshape(-1, self.dim)

    def choose(self, rows: Floats, key: int, round_: int) -> int:
        return self._choose(self.arrays, rows, key, round_)

    def choose_parameter(self, key: int, round_: int) -> Floats:
        """Return the parameter θ of a round, for which an action set finds its best action."""
        from windvane.beliefs.full.choosing import choose_parameter

        return choose_parameter(self.arrays, key, round_)

    def compute_propensities(
        self, rows: Floats, key: int, round_: int, samples: int, chosen: int | None
    ) -> Floats:
        from windvane.beliefs.full import propensities

        if not propensities.is_counted(self.arrays.rules):
            return propensities.compute_propensities(self.arrays, rows)
        draws = propensities.draw_parameters(self.arrays, self.read, samples, key, round_)
        shares = propensities.count_wins(draws @ rows.T)
        shares = propensities.add_chosen_draw(shares, samples, chosen)
        mix = float(self.arrays.rules["mix"][0])
        return (1.0 - mix) * shares + mix / len(rows)

    def choose_with_propensities(
        self, rows: Floats, key: int, round_: int, samples: int
    ) -> tuple[int, Floats]:
        if self._is_by_line:
            return self._choose_with_propensities(self.arrays, rows, key, round_)
        return super().choose_with_propensities(rows, key, round_, samples)

    @cached_property
    def _choose_with_propensities(self) -> Callable[..., tuple[int, Floats]]:
        """The compiled part of `choose_with_propensities`, loaded at its first call."""
        from windvane._numba.compilation import compile_for
        from windvane.beliefs.full.propensities import choose_with_propensities

        return compile_for(choose_with_propensities, self.arrays, np.zeros((1, self.dim)), 0, 0)

    def predict(self, rows: Floats) -> Floats:
        return rows @ self.theta

    def measure_widths(self, rows: Floats) -> Floats:
        return self.read().widths(rows)

    @property
    def theta(self) -> Floats:
        return self.arrays.block[self.dim : 2 * self.dim].copy()

    def learn(self, row: Floats, reward: float, at: float) -> None:
        if self.memory.link:
            links.check_rewards("learn", self.memory.link, [reward])
        if self.limit != 0:
            self.check_learnable(row[None])
            self.make_room(1)
        refused = self._learn(self.arrays, row, reward, at)
        if refused:
            self._refuse_features(refused)

    def learn_all(self, rows: Floats, rewards: Floats, at: Floats) -> None:
        from windvane.beliefs.full.learning import learn_all

        if self.memory.link:
            links.check_rewards("learn_many", self.memory.link, rewards.tolist())
        self.make_room(len(rows))
        if self.is_large:
            for row, reward, when in zip(rows, rewards, at, strict=True):
                self._learn(self.arrays, row, reward, when)
            return
        learn_all(self.arrays, rows, rewards, at)

    def check_learnable(self, rows: Floats) -> None:
        from windvane.beliefs.full.learning import check_observations

        refused = check_observations(self.arrays, rows)
        if refused:
            self._refuse_features(refused)

    def _refuse_features(self, refused: int) -> NoReturn:
        """Say why features cannot be learned, by the answer of the kernel that checks them."""
        from windvane.beliefs.full.learning import LARGEST_CONDITION, NOT_FINITE

        if refused == NOT_FINITE:
            raise ArmsError(f"learn: features must be finite, with norm up to {LARGEST**0.5:g}")
        unit = f"ridge ({self.ridge:g})"
        if self.memory.kind.is_filter:
            unit += f" and the variance ({self.memory.noise**2:g}) of the noise"
        raise ArmsError(
            f"learn: the squared features learned so far must sum to at most "
            f"{LARGEST_CONDITION:g} times the {unit}, or too few digits are left; scale them "
            f"to norm 1"
        )

    def amend(self, row: Floats, more: float, at: float) -> None:
        from windvane.beliefs.full.learning import select_amend

        validation.check_finite_arms(row[None])
        select_amend(self.arrays.rules)(self.arrays, row, more, at)

    def is_amendable(self) -> bool:
        return self.memory.kind.amendable and self.limit == 0

    def make_room(self, more: int) -> None:
        """Grow the array of past observations for more of them, up to the limit of the memory."""
        past = self.arrays.past
        room = len(past)
        seen = int(self.arrays.tally["seen"][0])
        larger = layout.compute_history_room(seen, more, room, self.limit)
        if larger > room:
            grown = np.zeros((larger, past.shape[1]))
            grown[:room] = past
            self.arrays = self.arrays._replace(past=grown)

    def read(self) -> Belief:
        return read_belief(self.arrays, self.memory, self.ridge)

    def write(self, belief: Belief) -> None:
        check_sums(belief)
        if self.limit != 0:
            raise BeliefError(
                f"belief: {self.exploration!r} needs the observations themselves, "
                "so this policy cannot be given a belief"
            )
        write_belief(self.arrays, belief, self.exploration)

    @classmethod
    def check_size(cls, dim: int, arrays: persistence.Arrays) -> None:
        if arrays["block"].size < dim * dim:
            raise ValueError(f"its belief is too small for dimension {dim}")

    def export_arrays(self) -> persistence.Arrays:
        return {"block": self.arrays.block, "past": self.arrays.past}

    def list_comparable_arrays(self) -> persistence.Arrays:
        seen = int(self.arrays.tally["seen"][0])
        return {"block": self.arrays.block, "past": self.arrays.past[:seen]}

    def restore(self, counters: dict[str, float], arrays: persistence.Arrays) -> None:
        past, blank = arrays["past"], self.arrays
        block = arrays["block"]
        least = 0 if self.limit == 0 else 1
        most = len(past) if self.limit is None else self.limit
        if block.dtype != blank.block.dtype or block.shape != blank.block.shape:
            raise ValueError(f"its belief has shape {block.shape}, not {blank.block.shape}")
        if past.dtype != block.dtype or past.shape[1:] != blank.past.shape[1:]:
            raise ValueError(f"its history has shape {past.shape}")
        if not least <= len(past) <= most:
            raise ValueError("its history is out of bounds")
        if not (np.isfinite(block).all() and np.isfinite(past).all()):
            raise ValueError("it holds a number that is not finite")
        restore_counters(blank, counters)
        if self.limit != 0 and blank.tally["seen"][0] > len(past) != self.limit:
            raise ValueError("its history has fewer observations than were learned")
        from windvane.beliefs.full.learning import LARGEST_CONDITION

        if np.square(past[:, : self.dim]).sum() > len(past) * LARGEST_CONDITION * self.ridge:
            raise ValueError("its history has features that cannot be learned")
        restored = blank._replace(block=np.array(block, order="C"), past=np.array(past, order="C"))
        check_block(restored)
        self.arrays = restored
