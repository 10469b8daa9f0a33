"""Learn a lesson in every belief of a bank.

The formulas are those of `beliefs.diagonal.kernels`, for all columns at once. Columns are computed
in lanes of four, and of two at the end: their number is even. Every step is rounded as written.
"""

from typing import NamedTuple

import numpy as np

from windvane._numba.compilation import compiled_in_order
from windvane._numba.instructions import (
    KEYS_PER_LINE,
    load_ahead,
    load_four,
    load_like,
    load_two,
    store_at,
)
from windvane.beliefs.bank.choosing import index_keys
from windvane.beliefs.bank.dense import (
    ACTION_COUNT,
    PART_COUNT,
    DenseBeliefs,
    amend_densely,
    has_room,
    is_on,
    learn_all_densely,
    list_new_keys,
)
from windvane.beliefs.bank.feature_parts import (
    PackedSides,
    Parts,
    Scales,
    make_page,
    update_scales,
)
from windvane.beliefs.bank.layout import (
    ERRORS,
    LEAST_VARIANCE,
    LOSS,
    MAX_AGE,
    MAX_LOSS,
    MEAN_REWARD,
    NO_GROUP,
    PRIOR_ERRORS,
    PRIOR_WEIGHTS,
    RESCALED_AFTER,
    REWARD_COUNT,
    REWARDS,
    WEIGHTS,
    Bank,
    BankRules,
    Row,
    build_row,
    claim_groups,
    compute_fade,
    compute_noise,
    fade_evidence,
    spread_priors,
)
from windvane.beliefs.diagonal.kernels import MOMENT, PRECISION
from windvane.beliefs.diagonal.weight_table import claim_key, find_group
from windvane.types import Floats, Places

LEVEL_LESSONS = 100.0  # whose mean reward is the level from which all is learned


class Learned(NamedTuple):
    """What became of a lesson."""

    size: int  # entries of its row; if it is more than there was room for, nothing was learned
    dense_parts: int  # parts and actions of the dense beliefs; if they have no room for them,
    dense_actions: int  # nothing was learned
    weights: int  # number of new ones
    groups: int  # number of new ones
    scales: int  # number of new ones
    best: int  # the belief that should lead


class Recollection(NamedTuple):
    """What a bank knows of a row before a lesson."""

    priors: Floats  # (n, C) prior precisions
    own_means: Floats  # (n, C) of each weight
    own_variances: Floats  # (n, C) of each weight
    means: Floats  # (C,) of the row
    variances: Floats  # (C,) of the row


class Steps(NamedTuple):
    """What a lesson does to the weights of a row, by column."""

    totals: Floats  # (C,) S: the variance of the error, in units of the noise
    shifts: Floats  # (C,) e/S
    inverse_fades: Floats  # (C,) 1/f
    noise_precisions: Floats  # (C,) 1/noise²


@compiled_in_order
def claim_row(bank: Bank, row: Row) -> tuple[Places, int]:
    """Return the place of each weight of a row, new ones included, and how many are new.

    The cache lines of keys and of sums are loaded ahead, so that the processor waits for many of
    them at the same time.
    """
    places, added = np.empty(row.keys.size, np.int64), 0
    width = 2 * bank.sums.shape[2]
    for i in range(row.keys.size):
        load_ahead(bank.keys, find_group(bank.keys, row.keys[i]))
    for i in range(row.keys.size):
        places[i], is_new = claim_key(bank.keys, row.keys[i])
        added += is_new
        first = places[i] * width
        for number in range(first, first + width, KEYS_PER_LINE):
            load_ahead(bank.sums, number)
    return places, added


@compiled_in_order
def weigh_lesson(rules: BankRules, bank: Bank, at: float, newest: float) -> tuple[Floats, Floats]:
    """Return the fading factor at the newest time and the weight of a lesson, (C,) each.

    The sums of a column are scaled back once their factor would become too small.
    """
    columns = rules.half_lives.size
    fades, weights = np.empty(columns), np.empty(columns)
    for j in range(columns):
        fades[j], weights[j] = 1.0, 1.0
        half_life = rules.half_lives[j]
        if half_life == np.inf:
            continue
        elapsed = (newest - bank.origins[j]) / half_life
        if elapsed > RESCALED_AFTER:
            scale_column(bank.sums, j, 2.0 ** -min(elapsed, 2000.0))
            bank.origins[j] = newest
        fades[j] = compute_fade(rules, bank, j, newest)
        weights[j] = 2.0 ** -min((newest - at) / half_life, MAX_AGE)
    return fades, weights


@compiled_in_order
def scale_column(sums: Floats, column: int, factor: float) -> None:
    """Multiply the sums of a column, before fading makes their scale too large."""
    for place in range(sums.shape[0]):
        for part in range(2):
            scaled = sums[place, part, column] * factor
            sums[place, part, column] = scaled if abs(scaled) > 1e-200 else 0.0


@compiled_in_order
def recall_row(
    bank: Bank, fades: Floats, places: Places, values: Floats, priors: Floats
) -> Recollection:
    """Return the mean m and the variance s of each weight and of the row."""
    shape, columns = priors.shape, fades.size
    own_means, own_variances = np.empty(shape), np.empty(shape)
    recalled = Recollection(priors, own_means, own_variances, np.empty(columns), np.empty(columns))
    for j in range(columns):
        recalled.means[j], recalled.variances[j] = 0.0, 0.0
    fours = columns - columns % 4
    for i in range(places.size):
        own = 2 * columns * places[i]
        for j in range(0, fours, 4):
            recall_columns(bank.sums, recalled, own, i, j, values[i], load_four(fades, j))
        if fours < columns:
            recall_columns(bank.sums, recalled, own, i, fours, values[i], load_two(fades, fours))
    return recalled


@compiled_in_order
def recall_columns(
    sums: Floats, recalled: Recollection, own: int, i: int, j: int, x: float, fades: Floats
) -> None:
    """Recall entry i of a row in some columns, from column j on; its sums are at `own`.

    `fades` are lanes with the fading factors of these columns.
    """
    columns = recalled.means.size
    at = i * columns + j
    precisions = fades * load_like(sums, own + j, fades) + load_like(recalled.priors, at, fades)
    variances = 1.0 / precisions
    means = fades * load_like(sums, own + columns + j, fades) * variances
    store_at(recalled.own_means, at, means)
    store_at(recalled.own_variances, at, variances)
    store_at(recalled.means, j, load_like(recalled.means, j, fades) + x * means)
    store_at(recalled.variances, j, load_like(recalled.variances, j, fades) + x * x * variances)


@compiled_in_order
def update_leader_sums(
    rules: BankRules, sums: Floats, places: Places, leader: int, leader_sums: Floats
) -> None:
    """Copy the new sums of a belief at some places to its copy; an empty copy stays empty."""
    if leader_sums.size == 0:
        return
    first = rules.starts[leader]
    for i in range(places.size):
        place = places[i]
        for j in range(leader_sums.shape[2]):
            leader_sums[place, PRECISION, j] = sums[place, PRECISION, first + j]
            leader_sums[place, MOMENT, j] = sums[place, MOMENT, first + j]


@compiled_in_order
def learn_columns(
    sums: Floats,
    recalled: Recollection,
    steps: Steps,
    own: int,
    i: int,
    j: int,
    x: float,
    totals: Floats,
) -> None:
    """Learn entry i of a row in some columns, from column j on; its sums are at `own`.

    `totals` are lanes with the S of these columns.
    """
    columns = recalled.means.size
    at = i * columns + j
    variances = load_like(recalled.own_variances, at, totals)
    means = load_like(recalled.own_means, at, totals)
    shifts = load_like(steps.shifts, j, totals)
    inverse_fades = load_like(steps.inverse_fades, j, totals)
    gains = x * x / (totals - x * x * variances)
    moments = (means + variances * x * shifts) * (1.0 / variances + gains)
    store_at(sums, own + j, load_like(sums, own + j, totals) + gains * inverse_fades)
    store_at(sums, own + columns + j, moments * inverse_fades)


@compiled_in_order
def gather_columns(
    evidence: Floats, recalled: Recollection, own: int, i: int, j: int, noise_precisions: Floats
) -> None:
    """Add entry i of a row, as it was before the lesson, to the evidence on its prior precision.

    The evidence of its group is at `own`; `noise_precisions` are lanes of some columns, from j on.
    """
    columns = recalled.means.size
    at = i * columns + j
    variances = load_like(recalled.own_variances, at, noise_precisions)
    means = load_like(recalled.own_means, at, noise_precisions)
    spread = load_like(recalled.priors, at, noise_precisions) * variances
    store_at(evidence, own + j, load_like(evidence, own + j, noise_precisions) + (1.0 - spread))
    at = own + columns + j
    store_at(
        evidence, at, load_like(evidence, at, noise_precisions) + means * means * noise_precisions
    )


@compiled_in_order
def learn_row(
    bank: Bank, recalled: Recollection, steps: Steps, places: Places, groups: Places, values: Floats
) -> None:
    """Change the sums of the weights of a row, and the evidence on their prior precisions."""
    columns = recalled.means.size
    fours = columns - columns % 4
    for i in range(places.size):
        own, group, x = 2 * columns * places[i], 2 * columns * groups[i], values[i]
        for j in range(0, fours, 4):
            learn_columns(bank.sums, recalled, steps, own, i, j, x, load_four(steps.totals, j))
            if groups[i] != NO_GROUP:
                gather_columns(
                    bank.evidence, recalled, group, i, j, load_four(steps.noise_precisions, j)
                )
        if fours < columns:
            j = fours
            learn_columns(bank.sums, recalled, steps, own, i, j, x, load_two(steps.totals, j))
            if groups[i] != NO_GROUP:
                gather_columns(
                    bank.evidence, recalled, group, i, j, load_two(steps.noise_precisions, j)
                )


@compiled_in_order
def build_page_row(page: list[Parts]) -> Row:
    """Build the row of a lesson: the sum of the rows of all slots of a page, Σ_s x_s.

    The reward of a page is what its slots add, Σ_s x_sᵀθ + noise: one observation of this row, so
    that the regression shares it among the slots. Most lessons have one slot.
    """
    row = build_row(page[0])
    for slot in range(1, len(page)):
        other = build_row(page[slot])
        numbers, keys = index_keys(np.concatenate((row.keys, other.keys)))
        values, groups = np.zeros(keys.size), np.empty(keys.size, np.uint64)
        for i in range(numbers.size):
            is_own, j = i < row.keys.size, i - row.keys.size
            values[numbers[i]] += row.values[i] if is_own else other.values[j]
            groups[numbers[i]] = row.groups[i] if is_own else other.groups[j]
        row = Row(keys[1:], values[1:], groups[1:])
    return row


@compiled_in_order
def learn_lesson(
    rules: BankRules,
    bank: Bank,
    dense: DenseBeliefs,
    leader_sums: Floats,
    leader: int,
    sides: PackedSides,
    scales: Scales,
    reward: float,
    at: float,
    newest: float,
    room: int,
    group_room: int,
    scale_room: int,
) -> Learned:
    """Learn a lesson in every belief, unless its row has more than `room` entries.

    `at` is the time of the lesson's decision, `newest` that of the newest decision learned, this
    one included. `leader_sums` is a copy of the leader's column, which learns as well, or empty. At
    most `group_room` new groups and `scale_room` new numbers get a place.

    The sides are the context and the action of each slot of a page, one slot after the other. The
    level of rewards is that of one slot.
    """
    page = make_page(sides, scales)
    slots, row = len(page), build_page_row(page)
    dense_parts, dense_actions = 0, 0
    if is_on(dense):
        part_keys, action_keys = list_new_keys(dense, page)
        dense_parts = dense.counts[PART_COUNT] + index_keys(part_keys)[1].size - 1
        dense_actions = dense.counts[ACTION_COUNT] + action_keys.size
    if row.keys.size > room or not (
        dense_parts == 0 or has_room(dense, dense_parts, dense_actions)
    ):
        return Learned(row.keys.size, dense_parts, dense_actions, 0, 0, 0, leader)
    level = bank.level
    if level[REWARD_COUNT] < LEVEL_LESSONS:
        level[REWARD_COUNT] += 1.0
        level[MEAN_REWARD] += (reward / slots - level[MEAN_REWARD]) / level[REWARD_COUNT]
    reward -= slots * level[MEAN_REWARD]
    fades, weights = weigh_lesson(rules, bank, at, newest)
    places, added = claim_row(bank, row)
    groups, added_groups = claim_groups(bank.group_keys, row.groups, group_room)
    fade_evidence(bank.evidence, groups)
    priors = spread_priors(bank.evidence, rules.first_priors, groups)
    recalled = recall_row(bank, fades, places, row.values, priors)
    columns, beliefs = fades.size, bank.judgements.shape[0]
    steps = Steps(np.empty(columns), np.empty(columns), np.empty(columns), np.empty(columns))
    errors, spreads = np.empty(beliefs), np.empty(beliefs)
    for h in range(rules.starts.size - 1):
        first, end = rules.starts[h], rules.starts[h + 1]
        mean, total = 0.0, 1.0 / weights[first]
        for j in range(first, end):
            mean += recalled.means[j]
            total += recalled.variances[j]
        errors[h], spreads[h] = reward - mean, weights[first] * total
        noise = compute_noise(bank, h)
        for j in range(first, end):
            steps.totals[j], steps.shifts[j] = total, errors[h] / total
            steps.inverse_fades[j] = 1.0 / fades[j]
            steps.noise_precisions[j] = 1.0 / (noise * noise)
    learn_row(bank, recalled, steps, places, groups, row.values)
    update_leader_sums(rules, bank.sums, places, leader, leader_sums)
    if is_on(dense):
        first = rules.starts.size - 1
        learn_all_densely(dense, page, reward, newest, errors[first:], spreads[first:])
    judge_beliefs(rules, bank, dense, leader, errors, spreads, reward)
    square = errors[leader] * errors[leader] / spreads[leader]
    added_scales = update_scales(sides, scales, scale_room, square)
    best = find_best_belief(rules, bank, leader)
    return Learned(
        row.keys.size, dense_parts, dense_actions, added, added_groups, added_scales, best
    )


@compiled_in_order
def find_best_belief(rules: BankRules, bank: Bank, leader: int) -> int:
    """Return the belief with the least loss if it is clearly better than the leader."""
    best = 0
    for j in range(bank.judgements.shape[0]):
        if bank.judgements[j, LOSS] < bank.judgements[best, LOSS]:
            best = j
    is_close = bank.judgements[leader, LOSS] <= bank.judgements[best, LOSS] + rules.margin
    return leader if is_close else best


@compiled_in_order
def judge_beliefs(
    rules: BankRules,
    bank: Bank,
    dense: DenseBeliefs,
    leader: int,
    errors: Floats,
    spreads: Floats,
    reward: float,
) -> None:
    """Take the errors of a lesson into the noise and the loss of every belief."""
    keep = 1.0 - 1.0 / rules.noise_memory
    leader_errors = bank.leader_errors
    variance = (PRIOR_ERRORS + leader_errors[ERRORS]) / (PRIOR_WEIGHTS + leader_errors[WEIGHTS])
    count = errors.size if is_on(dense) else rules.starts.size - 1
    for j in range(count):
        own, square = bank.judgements[j], errors[j] * errors[j]
        own[ERRORS] = keep * own[ERRORS] + square / spreads[j]
        own[WEIGHTS] = keep * own[WEIGHTS] + 1.0
        own[LOSS] += 0.5 * square / max(variance, LEAST_VARIANCE)
    leader_errors[ERRORS] = keep * leader_errors[ERRORS] + errors[leader] * errors[leader]
    leader_errors[WEIGHTS] = keep * leader_errors[WEIGHTS] + 1.0
    leader_errors[REWARDS] = keep * leader_errors[REWARDS] + reward * reward
    least = bank.judgements[0, LOSS]
    for j in range(1, count):
        least = min(least, bank.judgements[j, LOSS])
    for j in range(count):
        bank.judgements[j, LOSS] = min(bank.judgements[j, LOSS] - least, MAX_LOSS)
    for j in range(count, errors.size):  # dense beliefs that have ended
        bank.judgements[j, LOSS] = MAX_LOSS


@compiled_in_order
def amend_lesson(
    rules: BankRules,
    bank: Bank,
    dense: DenseBeliefs,
    leader_sums: Floats,
    leader: int,
    sides: PackedSides,
    scales: Scales,
    more: float,
    at: float,
    newest: float,
) -> int:
    """Add to the reward of an earlier lesson in every belief; return how many weights are new.

    The formula is that of `beliefs.diagonal.kernels.amend_entries`, for all columns at once.
    """
    page = make_page(sides, scales)
    row = build_page_row(page)
    fades, weights = weigh_lesson(rules, bank, at, newest)
    places, added = claim_row(bank, row)
    groups, _ = claim_groups(bank.group_keys, row.groups, 0)
    priors = spread_priors(bank.evidence, rules.first_priors, groups)
    recalled = recall_row(bank, fades, places, row.values, priors)
    for h in range(rules.starts.size - 1):
        first, end = rules.starts[h], rules.starts[h + 1]
        total = 1.0 / weights[first]
        for j in range(first, end):
            total += recalled.variances[j]
        for i in range(places.size):
            own, x = bank.sums[places[i]], row.values[i]
            for j in range(first, end):
                gain = x * more / (total - x * x * recalled.own_variances[i, j])
                own[MOMENT, j] += gain / fades[j]
    update_leader_sums(rules, bank.sums, places, leader, leader_sums)
    if is_on(dense):
        amend_densely(dense, page, more)
    return added
