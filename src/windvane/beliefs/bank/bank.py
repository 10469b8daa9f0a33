"""The belief bank of a learner: several beliefs that learn the same lessons, judged by prediction.

If no half-life is fixed, time is counted in lessons, and the beliefs of `AUTO_BELIEFS` differ in
how a weight may move: as a sum of components that fade at different speeds, as one that never
fades, or as one that forgets everything. Each has a loose and a tight form, by its first prior
precisions. Two dense beliefs join them while features are few. If the beliefs change,
`transfer_beliefs` continues with all that was learned.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from windvane import persistence, validation
from windvane._numba.compilation import call_directly
from windvane._numba.instructions import make_aligned_zeros
from windvane.beliefs.bank.choosing import Ranking, copy_columns, predict_means, rank_actions
from windvane.beliefs.bank.dense import (
    count_dense_numbers,
    end_dense_beliefs,
    explain_densely,
    export_dense,
    has_room,
    make_dense_beliefs,
    make_dense_room,
    restore_dense,
)
from windvane.beliefs.bank.feature_parts import (
    COUNT,
    SCALE_SIZE,
    SQUARES,
    PackedSides,
    Parts,
    Scales,
    make_page,
    make_parts,
)
from windvane.beliefs.bank.layout import (
    LOSS,
    MAX_LOSS,
    MEAN_REWARD,
    REWARD_COUNT,
    Bank,
    BankRules,
    build_row,
    compute_contributions,
    compute_noise,
)
from windvane.beliefs.bank.learning import amend_lesson, learn_lesson
from windvane.beliefs.bank.slot_chain import PageRanking, rank_page
from windvane.beliefs.diagonal.kernels import PRECISION
from windvane.beliefs.diagonal.weight_table import ABSENT, EMPTY, move_keys
from windvane.types import Booleans, Floats, Places, UnsignedIntegers

NEVER = math.inf


class Component(NamedTuple):
    """A component of the weights of a belief."""

    half_life: float  # lessons, rounds or seconds
    first_prior: float  # the prior precision of weights before any lesson


Components = tuple[Component, ...]
LOOSE, TIGHT = 0.3, 3.0
AUTO_BELIEFS: tuple[Components, ...] = (
    (
        *(Component(30.0, 3.0), Component(300.0, 1.0)),
        *(Component(3000.0, LOOSE), Component(NEVER, 0.1)),
    ),
    (
        *(Component(30.0, 30.0), Component(300.0, 10.0)),
        *(Component(3000.0, 5.0), Component(NEVER, TIGHT)),
    ),
    (Component(250.0, LOOSE),),
    (Component(250.0, TIGHT),),
    (Component(1000.0, LOOSE),),
    (Component(1000.0, TIGHT),),
    (Component(3000.0, LOOSE),),
    (Component(3000.0, TIGHT),),
    (Component(NEVER, LOOSE),),
    (Component(NEVER, TIGHT),),
)
DENSE_PRIOR = 0.3  # the prior precision of the weights of the dense belief that never fades
DENSE_COMPONENTS = (Component(300.0, 1.0), Component(NEVER, 0.5))  # of the one that moves
DENSE_COUNT = 2
EXPLORATION_SHARE = 1.2  # of the noise: the scale of exploration
NOISE_MEMORY = 1000.0  # lessons over which the noise is estimated
LEAD_MARGIN = 1.0  # nats by which another belief must predict better to take the lead
FIRST_PLACES = 256  # of the hash tables
MAX_PLACES = 2**17
MAX_GROUP_PLACES = 2**14
MAX_SCALE_PLACES = 2**16
MAX_FILL = 0.7  # share of the places that are taken
# Their numbers are converted before a call, because an int in place of a float is another type.
_rank_actions = call_directly(rank_actions)
_rank_page = call_directly(rank_page)
_predict_means = call_directly(predict_means)
_learn_lesson = call_directly(learn_lesson)


class LeaderCopy(NamedTuple):
    """A copy of the belief that leads, made by `copy_columns`; empty if there is none."""

    belief: int
    sums: Floats  # (places + 1, 2, components)


NO_LEADER_COPY = LeaderCopy(-1, np.empty((0, 2, 1)))


class Explanation(NamedTuple):
    """What entries add to a prediction; the first one is the level of rewards."""

    pairs: Places  # (n, 2): the part of the context and of the action, or ABSENT
    amounts: Floats  # (n, components)


def _list_pairs(parts: Parts) -> Places:
    """List the parts of each entry of a row, in the order of `build_row`."""
    first, last = parts.ends.tolist()
    values, masks = parts.values, parts.masks
    alone = [(j, ABSENT) if j < first else (ABSENT, j) for j in range(last) if values[j] != 0.0]
    crossed = [
        (j, i)
        for i in range(first, last)
        for j in range(first)
        if values[i] * values[j] != 0.0 and masks[i] & masks[j]
    ]
    return np.array([(ABSENT, ABSENT), *alone, *crossed])


def fix_half_life(half_life: float) -> tuple[Components, ...]:
    """Return the beliefs of a fixed half-life."""
    return tuple((Component(half_life, prior),) for prior in (LOOSE, TIGHT))


class BeliefBank:
    """Beliefs that learn the same lessons; one of them leads."""

    def __init__(self, beliefs: Sequence[Components], floor: float) -> None:
        components = [component for belief in beliefs for component in belief]
        count = len(components)
        self.rules = BankRules(
            half_lives=np.array([component.half_life for component in components]),
            first_priors=np.array([component.first_prior for component in components]),
            starts=np.cumsum([0, *map(len, beliefs)]),
            share=EXPLORATION_SHARE,
            floor=floor,
            noise_memory=NOISE_MEMORY,
            margin=LEAD_MARGIN,
        )
        self.bank = Bank(
            keys=make_aligned_zeros((FIRST_PLACES,), np.uint64),
            sums=make_aligned_zeros((FIRST_PLACES, 2, count), np.float64),
            origins=np.zeros(count),
            judgements=np.zeros((len(beliefs) + DENSE_COUNT, 3)),
            leader_errors=np.zeros(3),
            level=np.zeros(2),
            group_keys=make_aligned_zeros((FIRST_PLACES,), np.uint64),
            evidence=make_aligned_zeros((FIRST_PLACES, 2, count), np.float64),
        )
        self.dense = make_dense_beliefs(
            1.0 / DENSE_PRIOR,
            np.array([1.0 / component.first_prior for component in DENSE_COMPONENTS]),
            np.array([component.half_life for component in DENSE_COMPONENTS]),
        )
        self.scales = Scales(
            make_aligned_zeros((FIRST_PLACES,), np.uint64),
            make_aligned_zeros((FIRST_PLACES, SCALE_SIZE), np.float64),
        )
        self.weight_count = 0
        self.group_count = 0
        self.scale_count = 0
        self.lessons = 0
        self.newest = -math.inf  # time of the newest decision that was learned
        self.leader = len(beliefs) - 1
        if beliefs is not AUTO_BELIEFS:
            self._end_dense_beliefs()
        self.max_places = MAX_PLACES  # of the table of weights
        self.leader_copy = NO_LEADER_COPY  # what ranks read

    @property
    def sparse_count(self) -> int:
        """How many beliefs are not dense."""
        return len(self.rules.starts) - 1

    @property
    def noise(self) -> float:
        """The estimated standard deviation of the noise, by the belief that leads."""
        return float(compute_noise(self.bank, self.leader))

    def count_bytes(self) -> int:
        """Count the bytes of all arrays."""
        arrays = (*self.bank, *self.scales, self.leader_copy.sums)
        return sum(array.nbytes for array in arrays) + 8 * count_dense_numbers(self.dense)

    def rank(
        self,
        sides: PackedSides,
        places: Places,
        at: float,
        key: int,
        round_: int,
        slots: int = 1,
    ) -> Ranking:
        """Choose among the actions at `places`, for a single decision or one slot of a page.

        After n lessons, an action is chosen uniformly at random with a probability of 1/(n + 1) at
        least, unless the floor is 0: one reward says little. The slots of a page share this floor.
        """
        self.prepare()
        rules, when = self._choose_floor(slots), self._reach(at)
        return _rank_actions(
            *(rules, self.bank, self.dense, self.leader_copy.sums, self.scales, sides),
            *(places, self.leader, when, key, round_),
        )

    def rank_page(
        self,
        sides: PackedSides,
        starts: Places,
        allowed: Booleans,
        at: float,
        key: int,
        round_: int,
    ) -> PageRanking:
        """Fill the slots of a page, whose features start at `starts`, with `allowed` actions.

        The floor is that of `rank` divided by the number of slots.
        """
        self.prepare()
        rules, when = self._choose_floor(len(allowed)), self._reach(at)
        return _rank_page(
            *(rules, self.bank, self.dense, self.leader_copy.sums, self.scales, sides, starts),
            *(allowed, self.leader, when, key, round_),
        )

    def _choose_floor(self, slots: int) -> BankRules:
        rules = self.rules
        if 0.0 < rules.floor * (self.lessons + 1) < 1.0:
            rules = rules._replace(floor=1.0 / (self.lessons + 1))
        return rules if slots == 1 else rules._replace(floor=rules.floor / slots)

    def _reach(self, at: float) -> float:
        """The time of a rank: never before the newest lesson."""
        when = float(max(at, self.newest))
        return when if math.isfinite(when) else 0.0

    @property
    def now(self) -> float:
        """The time of the newest decision that was learned, or 0."""
        return self.newest if math.isfinite(self.newest) else 0.0

    def predict(self, sides: PackedSides, at: float) -> Floats:
        """Predict the reward of a context with each action by the belief that leads, (K,).

        This changes nothing, so that another thread may predict. Many predictions are faster after
        `prepare`.
        """
        when = float(max(at, self.now))
        bank, leader_copy = self.bank, self.leader_copy
        if not self._is_current(leader_copy):
            leader_copy = self._copy_leader()
        return _predict_means(
            *(self.rules, bank, self.dense, leader_copy.sums, self.scales, sides),
            *(self.leader, when),
        )

    def predict_slowly(self, sides: PackedSides, at: float) -> float:
        """Predict the reward of a context with one action by the loose belief of longest memory."""
        belief, when = self.sparse_count - 2, float(max(at, self.now))
        row = build_row(make_parts(sides, self.scales))
        amounts = compute_contributions(self.rules, self.bank, belief, when, row)
        return float(self.bank.level[MEAN_REWARD] + amounts.sum())

    @property
    def parts_belief(self) -> int:
        """The belief that shows what moves: the better one of those with most components."""
        counts = np.diff(self.rules.starts)
        losses = np.where(counts == counts.max(), self.bank.judgements[: len(counts), LOSS], np.inf)
        return int(losses.argmin())

    def explain(self, sides: PackedSides, at: float, belief: int) -> "Explanation":
        """Split the prediction of a context with one action by a belief into what entries add."""
        parts, when = make_parts(sides, self.scales), float(max(at, self.now))
        level = np.array([[self.bank.level[MEAN_REWARD]]])
        if belief >= self.sparse_count:
            state = self.dense.still if belief == self.sparse_count else self.dense.moving
            places, amounts = explain_densely(self.dense, state, parts, when)
            pairs = np.column_stack([places, np.full(len(places), parts.ends[1] - 1)])
        else:
            pairs = _list_pairs(parts)
            row = build_row(parts)
            amounts = compute_contributions(self.rules, self.bank, belief, when, row)
        amounts = np.vstack([np.pad(level, ((0, 0), (amounts.shape[1] - 1, 0))), amounts])
        return Explanation(np.vstack([[ABSENT, ABSENT], pairs]), amounts)

    def learn(self, sides: PackedSides, reward: float, at: float) -> None:
        """Learn the reward of a context and one action, or of a page: see `join_page`."""
        reward, at = float(reward), float(at)
        self._advance(at)
        self._make_scale_room(sides.numbers.size + sides.feature_counts.size // 2)
        leader = self.leader
        while True:
            room, group_room = self._count_room()
            scale_room = int(MAX_FILL * len(self.scales.keys)) - self.scale_count
            origins = self.bank.origins.copy()
            known = (self.rules, self.bank, self.dense, self._get_leader_sums(), leader)
            learned = _learn_lesson(
                *known, sides, self.scales, reward, at, self.newest, room, group_room, scale_room
            )
            needed = learned.dense_parts, learned.dense_actions
            if needed[0] and not has_room(self.dense, *needed):
                self._make_dense_room(*needed)
                leader = self.leader
            elif learned.size <= room:
                break
            else:
                self._make_room(learned.size)
        if not np.array_equal(self.bank.origins, origins):  # the sums of a column were scaled
            self.leader_copy = NO_LEADER_COPY
        self.weight_count += learned.weights
        self.group_count += learned.groups
        self.scale_count += learned.scales
        self.lessons += 1
        if learned.best != leader:
            self.leader, self.leader_copy = learned.best, NO_LEADER_COPY

    def amend(self, sides: PackedSides, more: float, at: float) -> None:
        """Add to the reward of an earlier lesson."""
        self._advance(at)
        self._make_room(sum(build_row(parts).keys.size for parts in make_page(sides, self.scales)))
        leader_sums = self._get_leader_sums()
        self.weight_count += amend_lesson(
            *(self.rules, self.bank, self.dense, leader_sums, self.leader, sides, self.scales),
            *(more, at, self.newest),
        )
        self.leader_copy = NO_LEADER_COPY

    def export_state(self) -> tuple[persistence.Header, persistence.Arrays]:
        """Return the state as a saved file holds it; the tables without their empty places."""
        is_taken, is_scaled = self.bank.keys != EMPTY, self.scales.keys != EMPTY
        is_group = self.bank.group_keys != EMPTY
        header = {
            "lessons": self.lessons,
            "newest": self.newest if math.isfinite(self.newest) else None,
            "leader": self.leader,
        }
        return header, {
            **export_dense(self.dense),
            "weight_keys": self.bank.keys[is_taken],
            "weight_sums": self.bank.sums[is_taken],
            "origins": self.bank.origins.copy(),
            "judgements": self.bank.judgements.copy(),
            "lead_errors": self.bank.leader_errors.copy(),
            "level": self.bank.level.copy(),
            "group_keys": self.bank.group_keys[is_group],
            "evidence": self.bank.evidence[is_group],
            "scale_keys": self.scales.keys[is_scaled],
            "scales": self.scales.rows[is_scaled],
        }

    def restore_state(self, header: persistence.Header, arrays: persistence.Arrays) -> None:
        """Take over a saved state if it fits; raise ValueError if it does not."""
        columns, beliefs = self.rules.half_lives.size, len(self.bank.judgements)
        weights, scales = len(arrays["weight_keys"]), len(arrays["scale_keys"])
        groups = len(arrays["group_keys"])
        shapes = {
            "weight_keys": ((weights,), np.uint64),
            "weight_sums": ((weights, 2, columns), np.float64),
            "origins": ((columns,), np.float64),
            "judgements": ((beliefs, 3), np.float64),
            "lead_errors": ((3,), np.float64),
            "level": ((2,), np.float64),
            "group_keys": ((groups,), np.uint64),
            "evidence": ((groups, 2, columns), np.float64),
            "scale_keys": ((scales,), np.uint64),
            "scales": ((scales, SCALE_SIZE), np.float64),
        }
        for name, (shape, kind) in shapes.items():
            array = arrays[name]
            if array.shape != shape or array.dtype != kind:
                raise ValueError(f"its array {name} has a wrong shape or type")
            if kind is np.float64 and not np.isfinite(array).all():
                raise ValueError(f"its array {name} has a number that is not finite")
            if kind is np.uint64 and (len(np.unique(array)) < len(array) or (array == EMPTY).any()):
                raise ValueError(f"its array {name} has a key twice")
        dense = restore_dense(self.dense, arrays)
        leader = validation.whole("load", "leader", header["leader"], least=0)
        most = beliefs if len(dense.newest) else self.sparse_count
        if (
            leader >= most
            or weights > MAX_FILL * MAX_PLACES
            or groups > MAX_FILL * MAX_GROUP_PLACES
            or scales > MAX_FILL * MAX_SCALE_PLACES
        ):
            raise ValueError("its counters are out of bounds")
        newest = -math.inf if header["newest"] is None else float(header["newest"])
        sums_of_squares = (
            *(arrays["weight_sums"][:, PRECISION], arrays["evidence"], arrays["judgements"]),
            *(arrays["lead_errors"], arrays["scales"][:, SQUARES]),
        )
        if any((array < 0.0).any() for array in sums_of_squares) or (
            (arrays["scales"][:, COUNT] <= 0.0).any()
            or abs(arrays["level"]).max() > validation.LARGEST
            or arrays["level"][REWARD_COUNT] < 0.0
            or (arrays["origins"] > (newest if math.isfinite(newest) else 0.0)).any()
        ):
            raise ValueError("its sums cannot be those of any lessons")
        self.lessons = validation.whole("load", "lessons", header["lessons"], least=0)
        self.newest = newest
        self.leader, self.dense = leader, dense
        width = 2 * columns
        keys, sums = _fill(arrays["weight_keys"], arrays["weight_sums"].reshape(weights, width))
        group_keys, evidence = _fill(
            arrays["group_keys"], arrays["evidence"].reshape(groups, width)
        )
        self.bank = Bank(
            keys,
            sums.reshape(len(keys), 2, columns),
            arrays["origins"].copy(),
            arrays["judgements"].copy(),
            arrays["lead_errors"].copy(),
            arrays["level"].copy(),
            group_keys,
            evidence.reshape(len(group_keys), 2, columns),
        )
        self.scales = Scales(*_fill(arrays["scale_keys"], arrays["scales"]))
        self.weight_count, self.scale_count, self.group_count = weights, scales, groups
        self.leader_copy = NO_LEADER_COPY

    def prepare(self) -> None:
        """Copy the sums of the leader, unless the copy is up to date."""
        if not self._is_current(self.leader_copy):
            self.leader_copy = self._copy_leader()

    def _is_current(self, copy: LeaderCopy) -> bool:
        return copy.belief == self.leader and (
            self.leader >= self.sparse_count or len(copy.sums) == len(self.bank.keys) + 1
        )

    def _copy_leader(self) -> LeaderCopy:
        if self.leader >= self.sparse_count:  # dense beliefs need no copy
            return NO_LEADER_COPY._replace(belief=self.leader)
        first, end = self.rules.starts[self.leader : self.leader + 2]
        return LeaderCopy(self.leader, copy_columns(self.bank.sums, first, end))

    def _get_leader_sums(self) -> Floats:
        """Return the copy of the leader, so that it learns too, or nothing."""
        if not self._is_current(self.leader_copy):
            self.leader_copy = NO_LEADER_COPY
        return self.leader_copy.sums

    def _advance(self, at: float) -> None:
        if self.newest == -math.inf:
            self.bank.origins[:] = at
        self.newest = max(self.newest, at)

    def _make_dense_room(self, parts: int, actions: int) -> None:
        """Grow the dense beliefs; if there are too many parts or actions, they end."""
        self.dense = make_dense_room(self.dense, parts, actions)
        if not len(self.dense.newest):
            self._end_dense_beliefs()

    def _end_dense_beliefs(self) -> None:
        self.dense = end_dense_beliefs(self.dense)
        losses = self.bank.judgements[:, LOSS]
        losses[self.rules.starts.size - 1 :] = MAX_LOSS
        if self.leader >= self.sparse_count:
            self.leader = int(losses.argmin())

    def _count_room(self) -> tuple[int, int]:
        """Return the most entries of a row for which no table must grow, and of new groups."""
        room = int(MAX_FILL * len(self.bank.keys)) - self.weight_count
        group_places = len(self.bank.group_keys)
        group_room = int(MAX_FILL * group_places) - self.group_count
        return (min(room, group_room) if group_places < MAX_GROUP_PLACES else room), group_room

    def _make_room(self, weights: int) -> None:
        """Grow the tables so that a row fits; a full table drops its weights with least data."""
        max_places = self.max_places
        while weights > MAX_FILL * max_places:  # one row does not fit into a limited table
            max_places *= 2
        while self.weight_count + weights > MAX_FILL * len(self.bank.keys):
            keys, sums = self.bank.keys, self.bank.sums
            is_kept = keys != EMPTY
            places = len(keys)
            if places < max_places:
                places *= 2
            else:
                precisions = sums[:, PRECISION, -1]
                is_kept &= precisions > np.median(precisions[is_kept])
            new_keys, new_sums = _move(keys, sums.reshape(len(keys), -1), is_kept, places)
            self.weight_count = int(np.count_nonzero(is_kept))
            self.bank = self.bank._replace(keys=new_keys, sums=new_sums.reshape(places, 2, -1))
            self.leader_copy = NO_LEADER_COPY
        places = len(self.bank.group_keys)
        while self.group_count + weights > MAX_FILL * places and places < MAX_GROUP_PLACES:
            keys, evidence = self.bank.group_keys, self.bank.evidence
            rows = evidence.reshape(places, -1)
            places *= 2
            new_keys, new_rows = _move(keys, rows, keys != EMPTY, places)
            self.bank = self.bank._replace(
                group_keys=new_keys, evidence=new_rows.reshape(places, 2, -1)
            )

    def _make_scale_room(self, scales: int) -> None:
        """Grow the table of scales so that the numbers of a lesson fit."""
        while (
            self.scale_count + scales > MAX_FILL * len(self.scales.keys)
            and len(self.scales.keys) < MAX_SCALE_PLACES
        ):
            keys, rows = self.scales
            is_kept = keys != EMPTY
            self.scales = Scales(*_move(keys, rows, is_kept, 2 * len(keys)))


def _move(
    keys: UnsignedIntegers, rows: Floats, is_kept: Booleans, places: int
) -> tuple[UnsignedIntegers, Floats]:
    new_keys = make_aligned_zeros((places,), np.uint64)
    new_rows = make_aligned_zeros((places, rows.shape[1]), np.float64)
    move_keys(keys, rows, is_kept, new_keys, new_rows)
    return new_keys, new_rows


def _fill(keys: UnsignedIntegers, rows: Floats) -> tuple[UnsignedIntegers, Floats]:
    """Make a table of these keys and their rows."""
    places = FIRST_PLACES
    while len(keys) > MAX_FILL * places:
        places *= 2
    return _move(keys, rows, np.ones(len(keys), np.bool_), places)


def transfer_beliefs(old: BeliefBank, new: BeliefBank, now: float, has_same_clock: bool) -> None:
    """Let a new bank continue with all that an old one has learned.

    Each belief of one component starts from the nearest such belief of the old bank, and so does
    the component that never fades of the others; between different clocks, from the one with the
    longest half-life. `now` is the time of the newest decision on the clock of the new bank. The
    old bank must not be used afterwards: the two share arrays.
    """
    new.scales, new.lessons = old.scales, old.lessons
    new.weight_count, new.group_count, new.scale_count = (
        *(old.weight_count, old.group_count),
        old.scale_count,
    )
    half_lives, priors = new.rules.half_lives, new.rules.first_priors
    if has_same_clock and np.array_equal(half_lives, old.rules.half_lives):
        new.bank, new.newest, new.leader = old.bank, old.newest, old.leader
        new.dense = old.dense
        return
    sources: Places = np.array(
        [
            find_single(old, half_life if has_same_clock else NEVER, prior)
            for half_life, prior in zip(half_lives.tolist(), priors.tolist(), strict=True)
        ]
    )
    is_blank = np.isfinite(half_lives) & np.repeat(
        np.diff(new.rules.starts) > 1, np.diff(new.rules.starts)
    )
    columns = old.rules.starts[sources]
    sums = (old.bank.sums * compute_fades(old))[:, :, columns]
    evidence = old.bank.evidence[:, :, columns]
    sums[:, :, is_blank], evidence[:, :, is_blank] = 0.0, 0.0
    judgements = np.zeros_like(new.bank.judgements)
    judgements[: new.sparse_count] = old.bank.judgements[sources[new.rules.starts[1:] - 1]]
    judgements[:, LOSS] = 0.0
    new.bank = Bank(
        keys=old.bank.keys,
        sums=np.ascontiguousarray(sums),
        origins=np.full(len(half_lives), now),
        judgements=judgements,
        leader_errors=old.bank.leader_errors,
        level=old.bank.level,
        group_keys=old.bank.group_keys,
        evidence=np.ascontiguousarray(evidence),
    )
    new.newest = now
    first = old.rules.starts[old.leader] if old.leader < old.sparse_count else -1
    new.leader = find_single(new, NEVER, float(old.rules.first_priors[first]))


LEAST_RATE = 1e-12  # 1/half-life, which tells never from the longest half-life


def find_single(bank: BeliefBank, half_life: float, first_prior: float) -> int:
    """Find the belief of one component that is nearest, by its half-life and then its prior."""
    starts = bank.rules.starts
    singles = np.flatnonzero(np.diff(starts) == 1)
    half_lives, priors = bank.rules.half_lives[starts[singles]], bank.rules.first_priors
    rates = np.log(1.0 / half_lives + LEAST_RATE)
    distances = np.abs(rates - math.log(1.0 / half_life + LEAST_RATE))
    distances += 1e-3 * np.abs(np.log(priors[starts[singles]] / first_prior))
    return int(singles[distances.argmin()])


def compute_fades(bank: BeliefBank) -> Floats:
    """Compute the factor by which the sums of each component have faded by now, (C,)."""
    fades: Floats = np.exp2((bank.bank.origins - bank.now) / bank.rules.half_lives)
    return fades
