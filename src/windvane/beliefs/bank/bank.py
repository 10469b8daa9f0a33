"""The belief bank of a learner: beliefs of several half-lives, judged by prediction.

Each half-life has two beliefs, one with a loose and one with a tight first prior precision. If the
half-lives change, `transfer_beliefs` continues with all that was learned.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from windvane import persistence, validation
from windvane._numba.compilation import call_directly
from windvane._numba.instructions import make_aligned_zeros
from windvane.beliefs.bank.choosing import Ranking, copy_column, predict_means, rank_actions
from windvane.beliefs.bank.feature_parts import COUNT, SQUARES, PackedSides, Scales
from windvane.beliefs.bank.layout import (
    LOSS,
    Bank,
    BankRules,
    build_lesson_row,
    compute_noise,
)
from windvane.beliefs.bank.learning import amend_lesson, learn_lesson
from windvane.beliefs.diagonal.kernels import PRECISION
from windvane.beliefs.diagonal.weight_table import EMPTY, move_keys
from windvane.types import Booleans, Floats, Places, UnsignedIntegers

HOUR = 3600.0
DAY = 24 * HOUR
HALF_LIVES = (HOUR, 6 * HOUR, DAY, 4 * DAY, 14 * DAY, 90 * DAY, math.inf)
FIRST_PRIORS = (0.3, 3.0)  # prior precisions of weights before any lesson: loose and tight
EXPLORATION_SHARE = 1.0  # of the noise: the scale of exploration
NOISE_MEMORY = 1000.0  # lessons over which the noise is estimated
LEAD_MARGIN = 1.0  # nats by which another half-life must predict better to take the lead
FIRST_PLACES = 256  # of the hash tables
MAX_PLACES = 2**17
MAX_GROUP_PLACES = 2**14
MAX_SCALE_PLACES = 2**16
MAX_FILL = 0.7  # share of the places that are taken
# Their numbers are converted before a call, because an int in place of a float is another type.
_rank_actions = call_directly(rank_actions)
_predict_means = call_directly(predict_means)
_learn_lesson = call_directly(learn_lesson)


class Column(NamedTuple):
    """One belief of the bank."""

    half_life: float  # seconds
    first_prior: float


class Lead(NamedTuple):
    """The half-life that leads, and since when."""

    column: int
    lesson: int  # how many lessons had been learned
    at: float  # the time of the newest decision then


class LeaderCopy(NamedTuple):
    """A copy of the column that leads, made by `copy_column`; empty if there is none."""

    column: int
    sums: Floats  # (places + 1, 2)


NO_LEADER_COPY = LeaderCopy(-1, np.empty((0, 2)))


class BeliefBank:
    """Beliefs of different half-lives that learn the same lessons; one of them leads."""

    def __init__(self, half_lives: Sequence[float], floor: float) -> None:
        columns = [Column(each, prior) for each in half_lives for prior in FIRST_PRIORS]
        count = len(columns)
        self.rules = BankRules(
            half_lives=np.array([column.half_life for column in columns]),
            first_priors=np.array([column.first_prior for column in columns]),
            share=EXPLORATION_SHARE,
            floor=floor,
            noise_memory=NOISE_MEMORY,
            margin=LEAD_MARGIN,
        )
        self.bank = Bank(
            keys=make_aligned_zeros((FIRST_PLACES,), np.uint64),
            sums=make_aligned_zeros((FIRST_PLACES, 2, count), np.float64),
            origins=np.zeros(count),
            judgements=np.zeros((count, 3)),
            leader_errors=np.zeros(2),
            group_keys=make_aligned_zeros((FIRST_PLACES,), np.uint64),
            evidence=make_aligned_zeros((FIRST_PLACES, 2, count), np.float64),
        )
        self.scales = Scales(
            make_aligned_zeros((FIRST_PLACES,), np.uint64),
            make_aligned_zeros((FIRST_PLACES, 3), np.float64),
        )
        self.weight_count = 0
        self.group_count = 0
        self.scale_count = 0
        self.lessons = 0
        self.newest = -math.inf  # time of the newest decision that was learned
        self.lead = Lead(count - 1, 0, 0.0)
        self.max_places = MAX_PLACES  # of the table of weights
        self.leader_copy = NO_LEADER_COPY  # what ranks read

    @property
    def leader_half_life(self) -> float:
        """The half-life that leads, in seconds."""
        return float(self.rules.half_lives[self.lead.column])

    @property
    def noise(self) -> float:
        """The estimated standard deviation of the noise, by the belief that leads."""
        return float(compute_noise(self.bank, self.lead.column))

    def count_bytes(self) -> int:
        """Count the bytes of all arrays."""
        return sum(array.nbytes for array in (*self.bank, *self.scales, self.leader_copy.sums))

    def rank(self, sides: PackedSides, places: Places, at: float, key: int, round_: int) -> Ranking:
        """Choose among the actions at `places`."""
        self.prepare()
        when = float(max(at, self.newest))
        when = when if math.isfinite(when) else 0.0
        column, leader_sums = self.leader_copy
        return _rank_actions(
            self.rules,
            self.bank,
            leader_sums,
            self.scales,
            sides,
            places,
            column,
            when,
            key,
            round_,
        )

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
        bank, column, leader_copy = self.bank, self.lead.column, self.leader_copy
        if leader_copy.column != column or len(leader_copy.sums) != len(bank.keys) + 1:
            leader_copy = LeaderCopy(column, copy_column(bank.sums, column))
        return _predict_means(self.rules, bank, leader_copy.sums, self.scales, sides, column, when)

    def learn(self, sides: PackedSides, reward: float, at: float) -> bool:
        """Learn the reward of a context and one action; returns whether the lead changed."""
        reward, at = float(reward), float(at)
        self._advance(at)
        self._make_scale_room(sides.numbers.size)
        column, origin = self.lead.column, self.bank.origins[self.lead.column]
        while True:
            room, group_room = self._count_room()
            scale_room = int(MAX_FILL * len(self.scales.keys)) - self.scale_count
            learned = _learn_lesson(
                *(self.rules, self.bank, self._get_leader_sums(), column, sides, self.scales),
                *(reward, at, self.newest, room, group_room, scale_room),
            )
            if learned.size <= room:
                break
            self._make_room(learned.size)
        if self.bank.origins[column] != origin:  # all sums of the column were scaled
            self.leader_copy = NO_LEADER_COPY
        self.weight_count += learned.weights
        self.group_count += learned.groups
        self.scale_count += learned.scales
        self.lessons += 1
        return learned.best != column and self._follow(learned.best)

    def amend(self, sides: PackedSides, more: float, at: float) -> None:
        """Add to the reward of an earlier lesson."""
        self._advance(at)
        row = build_lesson_row(sides, self.scales)
        self._make_room(row.keys.size)
        leader_sums, origin = self._get_leader_sums(), self.bank.origins[self.lead.column]
        self.weight_count += amend_lesson(
            *(self.rules, self.bank, leader_sums, self.lead.column, row),
            *(more, at, self.newest),
        )
        if self.bank.origins[self.lead.column] != origin:
            self.leader_copy = NO_LEADER_COPY

    def export_state(self) -> tuple[persistence.Header, persistence.Arrays]:
        """Return the state as a saved file holds it; the tables without their empty places."""
        is_taken, is_scaled = self.bank.keys != EMPTY, self.scales.keys != EMPTY
        is_group = self.bank.group_keys != EMPTY
        header = {
            "lessons": self.lessons,
            "newest": self.newest if math.isfinite(self.newest) else None,
            "lead": list(self.lead),
        }
        return header, {
            "weight_keys": self.bank.keys[is_taken],
            "weight_sums": self.bank.sums[is_taken],
            "origins": self.bank.origins.copy(),
            "judgements": self.bank.judgements.copy(),
            "lead_errors": self.bank.leader_errors.copy(),
            "group_keys": self.bank.group_keys[is_group],
            "evidence": self.bank.evidence[is_group],
            "scale_keys": self.scales.keys[is_scaled],
            "scales": self.scales.rows[is_scaled],
        }

    def restore_state(self, header: persistence.Header, arrays: persistence.Arrays) -> None:
        """Take over a saved state if it fits; raise ValueError if it does not."""
        columns = self.rules.half_lives.size
        weights, scales = len(arrays["weight_keys"]), len(arrays["scale_keys"])
        groups = len(arrays["group_keys"])
        shapes = {
            "weight_keys": ((weights,), np.uint64),
            "weight_sums": ((weights, 2, columns), np.float64),
            "origins": ((columns,), np.float64),
            "judgements": ((columns, 3), np.float64),
            "lead_errors": ((2,), np.float64),
            "group_keys": ((groups,), np.uint64),
            "evidence": ((groups, 2, columns), np.float64),
            "scale_keys": ((scales,), np.uint64),
            "scales": ((scales, 3), np.float64),
        }
        for name, (shape, kind) in shapes.items():
            array = arrays[name]
            if array.shape != shape or array.dtype != kind:
                raise ValueError(f"its array {name} has a wrong shape or type")
            if kind is np.float64 and not np.isfinite(array).all():
                raise ValueError(f"its array {name} has a number that is not finite")
            if kind is np.uint64 and (len(np.unique(array)) < len(array) or (array == EMPTY).any()):
                raise ValueError(f"its array {name} has a key twice")
        column, lesson, at = header["lead"]
        if (
            column not in range(columns)
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
            or (arrays["origins"] > (newest if math.isfinite(newest) else 0.0)).any()
        ):
            raise ValueError("its sums cannot be those of any lessons")
        self.lessons = validation.whole("load", "lessons", header["lessons"], least=0)
        self.newest = newest
        self.lead = Lead(column, validation.whole("load", "lead", lesson, least=0), float(at))
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
            group_keys,
            evidence.reshape(len(group_keys), 2, columns),
        )
        self.scales = Scales(*_fill(arrays["scale_keys"], arrays["scales"]))
        self.weight_count, self.scale_count, self.group_count = weights, scales, groups
        self.leader_copy = NO_LEADER_COPY

    def prepare(self) -> None:
        """Copy the sums of the leader's column, unless the copy is up to date."""
        if self.leader_copy.column != self.lead.column:
            self.leader_copy = LeaderCopy(
                self.lead.column, copy_column(self.bank.sums, self.lead.column)
            )

    def _get_leader_sums(self) -> Floats:
        """Return the copy of the leader's column, so that it learns too, or nothing."""
        if self.leader_copy.column != self.lead.column:
            self.leader_copy = NO_LEADER_COPY
        return self.leader_copy.sums

    def _advance(self, at: float) -> None:
        if self.newest == -math.inf:
            self.bank.origins[:] = at
        self.newest = max(self.newest, at)

    def _follow(self, best: int) -> bool:
        """Let another column lead; returns whether it has another half-life."""
        half_life = self.leader_half_life
        self.lead = self.lead._replace(column=best)
        self.leader_copy = NO_LEADER_COPY
        if self.leader_half_life == half_life:  # with another first prior precision
            return False
        self.lead = Lead(best, self.lessons, self.newest)
        return True

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


LEAST_RATE = 1e-12  # 1/half-life, which tells never from the longest half-life


def transfer_beliefs(old: BeliefBank, new: BeliefBank, now: float, has_same_clock: bool) -> None:
    """Let a new bank continue with all that an old one has learned.

    Each half-life starts from the nearest one of the old bank, and the one nearest to the old
    leader leads. Between clocks in rounds and in seconds, each starts from the old leader, and the
    longest leads. `now` is the time of the newest decision on the clock of the new bank. The old
    bank must not be used afterwards: the two share arrays.
    """
    new.scales, new.lessons = old.scales, old.lessons
    new.weight_count, new.group_count, new.scale_count = (
        *(old.weight_count, old.group_count),
        old.scale_count,
    )
    half_lives, priors = new.rules.half_lives, new.rules.first_priors
    if has_same_clock and np.array_equal(half_lives, old.rules.half_lives):
        new.bank, new.newest, new.lead = old.bank, old.newest, old.lead
        return
    leader, leading_prior = old.leader_half_life, float(old.rules.first_priors[old.lead.column])
    sources: Places = np.array(
        [
            find_column(old, half_life if has_same_clock else leader, prior)
            for half_life, prior in zip(half_lives.tolist(), priors.tolist(), strict=True)
        ]
    )
    judgements = old.bank.judgements[sources]
    judgements[:, LOSS] = 0.0
    new.bank = Bank(
        keys=old.bank.keys,
        sums=np.ascontiguousarray((old.bank.sums * compute_fades(old))[:, :, sources]),
        origins=np.full(len(half_lives), now),
        judgements=judgements,
        leader_errors=old.bank.leader_errors,
        group_keys=old.bank.group_keys,
        evidence=np.ascontiguousarray(old.bank.evidence[:, :, sources]),
    )
    longest = float(half_lives.max())
    column = find_column(new, leader if has_same_clock else longest, leading_prior)
    new.newest, new.lead = now, Lead(column, old.lessons, now)


def find_column(bank: BeliefBank, half_life: float, first_prior: float) -> int:
    """Find the column of a first prior whose half-life is nearest on a logarithmic scale."""
    rates = np.log(1.0 / bank.rules.half_lives + LEAST_RATE)
    distances = np.abs(rates - math.log(1.0 / half_life + LEAST_RATE))
    distances[bank.rules.first_priors != first_prior] = np.inf
    return int(distances.argmin())


def compute_fades(bank: BeliefBank) -> Floats:
    """Compute the factor by which the sums of each column have faded by now, (H,)."""
    fades: Floats = np.exp2((bank.bank.origins - bank.now) / bank.rules.half_lives)
    return fades
