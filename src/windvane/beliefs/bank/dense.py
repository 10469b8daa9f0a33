"""Beliefs with correlations: a dense belief for each action, while features are few.

A dense belief predicts the reward of an action from the constant and the parts of the context, with
a parameter of its own for each action. Each of its weights is a sum of components that fade at
different speeds, as in the other beliefs of a bank, but all covariances are kept: the belief of an
action is an exact Kalman filter. With the fading factor φ of a component for the lessons since the
last one of this action, and its first variance v, in units of the noise,

    m ← φm,   C ← φCφ + (1 − φ²)v             what time does
    S = 1 + xᵀCx,   e = y − xᵀm               what a lesson does
    m ← m + Cx·e/S,   C ← C − Cx(Cx)ᵀ/S

If there are more parts or actions than a dense belief can hold, it ends for good.
"""

from typing import NamedTuple

import numpy as np

from windvane import persistence
from windvane._numba.compilation import compiled_in_order
from windvane.beliefs.bank.feature_parts import Parts
from windvane.beliefs.diagonal.weight_table import ABSENT, claim_key, find_key
from windvane.types import Floats, Places, UnsignedIntegers

MAX_PARTS = 160  # of the context, with the constant
MAX_ACTIONS = 64
MAX_BINS = 20  # of a context; if it has more numbers, their bins are left out
MAX_NUMBERS = 2**21  # of all covariances
TABLE_PLACES = 512  # of the tables of parts and of actions
PART_COUNT, ACTION_COUNT = 0, 1
NO_ACTION = -1  # one that no lesson had
FIRST_PARTS, FIRST_ACTIONS = 16, 2


class DenseState(NamedTuple):
    """One belief about each action; a weight has its components one after the other."""

    half_lives: Floats  # (components,) in lessons
    variances: Floats  # (components,) of a weight before any lesson, in units of the noise
    means: Floats  # (actions, n)
    covariances: Floats  # (actions, n, n)


class DenseBeliefs(NamedTuple):
    """The dense beliefs of a bank."""

    part_keys: UnsignedIntegers  # (TABLE_PLACES,)
    part_numbers: Places  # (TABLE_PLACES,) of parts of the context; 0 is the constant
    action_keys: UnsignedIntegers  # (TABLE_PLACES,)
    action_numbers: Places  # (TABLE_PLACES,)
    counts: Places  # (2,) parts with the constant, and actions
    newest: Floats  # (actions,) the time of the last lesson of each action
    still: DenseState
    moving: DenseState


class DenseRow(NamedTuple):
    """The entries of a row of dense beliefs: the constant and parts of the context."""

    numbers: Places  # (n,) of the parts; ABSENT if a part is not known
    values: Floats  # (n,)


def make_dense_beliefs(still: float, moving: Floats, half_lives: Floats) -> DenseBeliefs:
    """Make beliefs without any lesson, with these first variances of the components."""
    return DenseBeliefs(
        part_keys=np.zeros(TABLE_PLACES, np.uint64),
        part_numbers=np.zeros(TABLE_PLACES, np.int64),
        action_keys=np.zeros(TABLE_PLACES, np.uint64),
        action_numbers=np.zeros(TABLE_PLACES, np.int64),
        counts=np.array((1, 0), np.int64),
        newest=np.zeros(FIRST_ACTIONS),
        still=_make_state(np.array([np.inf]), np.array([still])),
        moving=_make_state(half_lives, moving),
    )


def _make_state(half_lives: Floats, variances: Floats) -> DenseState:
    empty = DenseState(half_lives, variances, np.zeros((0, 0)), np.zeros((0, 0, 0)))
    return _grow_state(empty, FIRST_ACTIONS, FIRST_PARTS)


def _grow_state(state: DenseState, actions: int, parts: int) -> DenseState:
    """Make room for so many actions and parts."""
    size, old_actions, old_size = parts * len(state.half_lives), *state.means.shape
    means, covariances = np.zeros((actions, size)), np.zeros((actions, size, size))
    covariances[:] = np.diag(np.tile(state.variances, parts))
    means[:old_actions, :old_size] = state.means
    covariances[:old_actions, :old_size, :old_size] = state.covariances
    return state._replace(means=means, covariances=covariances)


def make_dense_room(dense: DenseBeliefs, parts: int, actions: int) -> DenseBeliefs:
    """Grow the beliefs so that they hold so many parts and actions, or end them."""
    room = len(dense.newest)
    part_room = dense.still.means.shape[1]
    while actions > room:
        room *= 2
    while parts > part_room:
        part_room += FIRST_PARTS
    numbers = room * part_room**2 * (1 + len(dense.moving.half_lives) ** 2)
    if parts > MAX_PARTS or actions > MAX_ACTIONS or numbers > MAX_NUMBERS:
        return end_dense_beliefs(dense)
    newest = np.zeros(room)
    newest[: len(dense.newest)] = dense.newest
    return dense._replace(
        newest=newest,
        still=_grow_state(dense.still, room, part_room),
        moving=_grow_state(dense.moving, room, part_room),
    )


def count_dense_numbers(dense: DenseBeliefs) -> int:
    """Count the numbers of all covariances of parts and actions that have occurred."""
    parts, actions = dense.counts.tolist()
    square: int = actions * parts**2 * (1 + len(dense.moving.half_lives) ** 2)
    return square if len(dense.newest) else 0


def end_dense_beliefs(dense: DenseBeliefs) -> DenseBeliefs:
    """Drop all that dense beliefs have learned; they learn no more."""
    still, moving = (
        state._replace(means=np.zeros((0, 0)), covariances=np.zeros((0, 0, 0)))
        for state in (dense.still, dense.moving)
    )
    return dense._replace(newest=np.zeros(0), still=still, moving=moving)


def export_dense(dense: DenseBeliefs) -> persistence.Arrays:
    """Return what a saved file holds; the rest follows from it."""
    part_count, action_count = dense.counts.tolist()
    parts, actions = np.zeros(part_count, np.uint64), np.zeros(action_count, np.uint64)
    has_part, has_action = dense.part_keys != 0, dense.action_keys != 0
    parts[dense.part_numbers[has_part]] = dense.part_keys[has_part]
    actions[dense.action_numbers[has_action]] = dense.action_keys[has_action]
    if not len(dense.newest):
        parts, actions, action_count, part_count = parts[:0], actions[:0], 0, 0
    arrays = {
        "dense_parts": parts,
        "dense_actions": actions,
        "dense_newest": dense.newest[:action_count],
    }
    for name, state in (("still", dense.still), ("moving", dense.moving)):
        size = part_count * len(state.half_lives)
        arrays[f"dense_{name}_means"] = state.means[:action_count, :size]
        arrays[f"dense_{name}_covariances"] = state.covariances[:action_count, :size, :size]
    return {name: array.copy() for name, array in arrays.items()}


def restore_dense(empty: DenseBeliefs, arrays: persistence.Arrays) -> DenseBeliefs:
    """Make the beliefs of a saved file from empty ones; raise ValueError if they do not fit."""
    parts, actions, newest = (arrays[f"dense_{name}"] for name in ("parts", "actions", "newest"))
    if not len(parts):
        return end_dense_beliefs(empty)
    if not len(empty.newest):
        raise ValueError("it has dense beliefs, which no learner with a fixed half-life has")
    dense = make_dense_room(empty, len(parts), max(1, len(actions)))
    for name, state in (("still", dense.still), ("moving", dense.moving)):
        size = len(parts) * len(state.half_lives)
        means, covariances = arrays[f"dense_{name}_means"], arrays[f"dense_{name}_covariances"]
        shape = (len(actions), size)
        kinds = {means.dtype, covariances.dtype, newest.dtype}
        if means.shape != shape or covariances.shape != (*shape, size) or kinds != {_FLOAT}:
            raise ValueError("its dense beliefs have a wrong shape or type")
        variances = np.diagonal(covariances, axis1=1, axis2=2)
        if not np.isfinite(means).all() or not np.isfinite(covariances).all():
            raise ValueError("its dense beliefs have a number that is not finite")
        most = np.sqrt(np.abs(variances[:, :, None] * variances[:, None])) + ROUNDING
        if (
            (variances < -ROUNDING).any()
            or (np.abs(covariances) > most).any()
            or newest.shape != shape[:1]
            or not np.isfinite(newest).all()
        ):
            raise ValueError("its dense beliefs cannot be those of any lessons")
        state.means[: len(actions), :size] = means
        state.covariances[: len(actions), :size, :size] = covariances
    for keys, table, numbers, first in (
        (parts, dense.part_keys, dense.part_numbers, 1),
        (actions, dense.action_keys, dense.action_numbers, 0),
    ):
        if keys.dtype != np.uint64 or len(np.unique(keys)) < len(keys) or (keys[first:] == 0).any():
            raise ValueError("its dense beliefs have a key twice")
        for number in range(first, len(keys)):
            numbers[claim_key(table, keys[number])[0]] = number
    dense.newest[: len(actions)] = newest
    dense.counts[:] = len(parts), len(actions)
    return dense


_FLOAT = np.dtype(np.float64)
ROUNDING = 1e-6  # errors of a covariance after many lessons


@compiled_in_order
def is_on(dense: DenseBeliefs) -> bool:
    """Whether dense beliefs still learn."""
    return dense.newest.size > 0


@compiled_in_order
def list_dense_parts(parts: Parts) -> Places:
    """List the parts of the context that dense beliefs learn: not 0, and few bins or none."""
    chosen, size, bins = np.empty(parts.ends[0], np.int64), 0, 0
    for j in range(chosen.size):
        bins += parts.is_bin[j]
    for j in range(chosen.size):
        if parts.values[j] != 0.0 and not (parts.is_bin[j] and bins > MAX_BINS):
            chosen[size] = j
            size += 1
    return chosen[:size]


@compiled_in_order
def list_new_keys(
    dense: DenseBeliefs, page: list[Parts]
) -> tuple[UnsignedIntegers, UnsignedIntegers]:
    """List the parts and the actions of a lesson that no lesson had; parts may come twice."""
    room = 0
    for parts in page:
        room += parts.ends[0]
    part_keys, size = np.empty(room, np.uint64), 0
    action_keys, count = np.empty(len(page), np.uint64), 0
    for parts in page:
        for j in list_dense_parts(parts):
            if find_key(dense.part_keys, parts.keys[j]) == ABSENT:
                part_keys[size] = parts.keys[j]
                size += 1
        id_key = parts.keys[parts.ends[1] - 1]
        if find_key(dense.action_keys, id_key) == ABSENT:
            action_keys[count] = id_key
            count += 1
    return part_keys[:size], action_keys[:count]


@compiled_in_order
def has_room(dense: DenseBeliefs, parts: int, actions: int) -> bool:
    """Whether so many parts and actions fit."""
    return parts <= dense.still.means.shape[1] and actions <= dense.newest.size


@compiled_in_order
def claim_parts(dense: DenseBeliefs, parts: Parts) -> int:
    """Give a number to each new part of a lesson, and return that of its action."""
    for j in list_dense_parts(parts):
        place, is_new = claim_key(dense.part_keys, parts.keys[j])
        if is_new:
            dense.part_numbers[place] = dense.counts[PART_COUNT]
            dense.counts[PART_COUNT] += 1
    place, is_new = claim_key(dense.action_keys, parts.keys[parts.ends[1] - 1])
    if is_new:
        dense.action_numbers[place] = dense.counts[ACTION_COUNT]
        dense.counts[ACTION_COUNT] += 1
    return int(dense.action_numbers[place])


@compiled_in_order
def build_dense_row(dense: DenseBeliefs, parts: Parts) -> DenseRow:
    """Build the row of a context, which is the same for all actions."""
    chosen = list_dense_parts(parts)
    numbers, values = np.empty(chosen.size + 1, np.int64), np.empty(chosen.size + 1)
    numbers[0], values[0] = 0, 1.0
    for i in range(chosen.size):
        place = find_key(dense.part_keys, parts.keys[chosen[i]])
        numbers[i + 1] = ABSENT if place == ABSENT else dense.part_numbers[place]
        values[i + 1] = parts.values[chosen[i]]
    return DenseRow(numbers, values)


@compiled_in_order
def compute_component_fades(half_lives: Floats, elapsed: float) -> Floats:
    """Return the fading factor φ of each component."""
    fades = np.empty(half_lives.size)
    for s in range(half_lives.size):
        fades[s] = 1.0
        if half_lives[s] != np.inf:
            fades[s] = 2.0 ** (-elapsed / half_lives[s])
    return fades


@compiled_in_order
def predict_densely(
    state: DenseState, row: DenseRow, action: int, elapsed: float
) -> tuple[float, float]:
    """Return the mean and the variance of a row by the belief about one action, or none yet."""
    count = state.half_lives.size
    fades = compute_component_fades(state.half_lives, elapsed)
    mean, variance = 0.0, 0.0
    for i in range(row.numbers.size):
        x = row.values[i]
        if action == NO_ACTION or row.numbers[i] == ABSENT:
            for s in range(count):
                variance += x * x * state.variances[s]
            continue
        covariances = state.covariances[action]
        first = row.numbers[i] * count
        for s in range(count):
            mean += x * fades[s] * state.means[action, first + s]
            variance += x * x * (1.0 - fades[s] * fades[s]) * state.variances[s]
            own = 0.0
            for j in range(row.numbers.size):
                if row.numbers[j] != ABSENT:
                    other = row.numbers[j] * count
                    for r in range(count):
                        own += row.values[j] * fades[r] * covariances[first + s, other + r]
            variance += x * fades[s] * own
    return mean, variance


@compiled_in_order
def predict_actions_densely(
    dense: DenseBeliefs, state: DenseState, parts: Parts, at: float
) -> tuple[Floats, Floats]:
    """Return the mean and the variance of every action, (K,) each."""
    row, count = build_dense_row(dense, parts), parts.ends.size - 1
    means, variances = np.empty(count), np.empty(count)
    for k in range(count):
        place = find_key(dense.action_keys, parts.keys[parts.ends[k + 1] - 1])
        action, elapsed = NO_ACTION, 0.0
        if place != ABSENT:
            action = int(dense.action_numbers[place])
            elapsed = max(0.0, at - dense.newest[action])
        means[k], variances[k] = predict_densely(state, row, action, elapsed)
    return means, variances


def explain_densely(
    dense: DenseBeliefs, state: DenseState, parts: Parts, at: float
) -> tuple[Places, Floats]:
    """Return the parts of the context, and what each adds, (n, components).

    The first part is ABSENT, the constant. Parts that no lesson had add 0.
    """
    chosen, count = list_dense_parts(parts), len(state.half_lives)
    row = build_dense_row(dense, parts)
    amounts = np.zeros((len(row.values), count))
    place = find_key(dense.action_keys, parts.keys[parts.ends[1] - 1])
    if place != ABSENT:
        action = dense.action_numbers[place]
        fades = compute_component_fades(state.half_lives, max(0.0, at - dense.newest[action]))
        is_known = row.numbers != ABSENT
        means = state.means[action].reshape(-1, count)[row.numbers[is_known]]
        amounts[is_known] = row.values[is_known, None] * fades * means
    return np.concatenate([[ABSENT], chosen]), amounts


@compiled_in_order
def learn_densely(
    state: DenseState,
    row: DenseRow,
    action: int,
    elapsed: float,
    reward: float,
    noise: float,
    size: int,
) -> tuple[float, float]:
    """Learn a reward in the belief about one action; return the error e and S.

    `noise` is the variance of the reward around xᵀθ, 1 for a lesson of one slot. `size` is the
    number of parts that have occurred: the others are as they were at first.
    """
    count = state.half_lives.size
    means, covariances = state.means[action], state.covariances[action]
    fades = compute_component_fades(state.half_lives, elapsed)
    if fades.min() < 1.0:
        for i in range(size * count):
            own = fades[i % count]
            means[i] *= own
            for j in range(0, size * count, count):
                for s in range(count):
                    covariances[i, j + s] *= own * fades[s]
            covariances[i, i] += (1.0 - own * own) * state.variances[i % count]
    gains = np.zeros(size * count)  # Cx
    mean = 0.0
    for j in range(row.numbers.size):
        first, x = row.numbers[j] * count, row.values[j]
        for s in range(count):
            mean += x * means[first + s]
            own_row = covariances[first + s]
            for i in range(gains.size):
                gains[i] += x * own_row[i]
    total = noise
    for j in range(row.numbers.size):
        first = row.numbers[j] * count
        for s in range(count):
            total += row.values[j] * gains[first + s]
    error = reward - mean
    for i in range(gains.size):
        means[i] += gains[i] * error / total
        share = gains[i] / total
        if share != 0.0:
            own_row = covariances[i]
            for j in range(gains.size):
                own_row[j] -= share * gains[j]
    return error, total


@compiled_in_order
def learn_all_densely(
    dense: DenseBeliefs,
    page: list[Parts],
    reward: float,
    at: float,
    errors: Floats,
    spreads: Floats,
) -> None:
    """Learn a lesson in both dense beliefs; write e and S of each.

    The reward of a page is what its slots add: y = Σ_s x_sᵀθ_s + noise, with a parameter of its own
    for each action. Its error e = y − Σ_s x_sᵀm_s has the variance S = 1 + Σ_s x_sᵀC_s x_s, and
    the exact step of slot s is m_s ← m_s + C_s x_s·e/S. This is a lesson of slot s alone with the
    reward x_sᵀm_s + e and the noise S − x_sᵀC_s x_s. Covariances between actions are left out.
    """
    slots = len(page)
    actions, means, variances = np.empty(slots, np.int64), np.zeros(slots), np.zeros(slots)
    for slot in range(slots):
        actions[slot] = claim_parts(dense, page[slot])
    size = dense.counts[PART_COUNT]
    for own, state in enumerate((dense.still, dense.moving)):
        error, total = reward, 1.0
        if slots > 1:
            for slot in range(slots):
                row = build_dense_row(dense, page[slot])
                elapsed = at - dense.newest[actions[slot]]
                means[slot], variances[slot] = predict_densely(state, row, actions[slot], elapsed)
                error -= means[slot]
                total += variances[slot]
        for slot in range(slots):
            row = build_dense_row(dense, page[slot])
            elapsed = at - dense.newest[actions[slot]]
            errors[own], spreads[own] = learn_densely(
                *(state, row, actions[slot], elapsed, means[slot] + error),
                *(total - variances[slot], size),
            )
    for slot in range(slots):
        dense.newest[actions[slot]] = at


@compiled_in_order
def amend_densely(dense: DenseBeliefs, page: list[Parts], more: float) -> None:
    """Add to the reward of an earlier lesson: C_s x_s·more/noise of each slot.

    The noise of a slot is that of `learn_all_densely` with the present variances: it is 1, and
    exact right after the lesson, if there is one slot.
    """
    slots = len(page)
    for state in (dense.still, dense.moving):
        variances = np.zeros(slots)
        for slot in range(slots if slots > 1 else 0):
            row, action = build_dense_row(dense, page[slot]), find_action(dense, page[slot])
            variances[slot] = predict_densely(state, row, action, 0.0)[1]
        total = 1.0 + variances.sum()
        for slot in range(slots):
            action = find_action(dense, page[slot])
            if action != NO_ACTION:
                share = more / (total - variances[slot])
                amend_action(state, build_dense_row(dense, page[slot]), action, share)


@compiled_in_order
def find_action(dense: DenseBeliefs, parts: Parts) -> int:
    """Return the number of the only action of these parts, or NO_ACTION."""
    place = find_key(dense.action_keys, parts.keys[parts.ends[1] - 1])
    return NO_ACTION if place == ABSENT else int(dense.action_numbers[place])


@compiled_in_order
def amend_action(state: DenseState, row: DenseRow, action: int, more: float) -> None:
    """Add Cx·more to the means of an action."""
    count = state.half_lives.size
    for j in range(row.numbers.size):
        if row.numbers[j] != ABSENT:
            for s in range(count):
                own_row = state.covariances[action, row.numbers[j] * count + s]
                for i in range(own_row.size):
                    state.means[action, i] += own_row[i] * row.values[j] * more
