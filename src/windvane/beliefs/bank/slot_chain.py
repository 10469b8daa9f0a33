"""Fill the slots of a page with different actions, one slot after the other.

For slot s, with the actions h in the slots before, the candidates are

    C_s(h) = those that slot s may show, not in h, with which the slots after s can still be filled

and the choice among them is that of `choosing.rank_actions`, with draws of its own: a level for
each slot. So the probability of an action given h is exact, and that of a page is the product

    p(a_1..a_S) = Π_s p_s(a_s | h_s)

The share of exploration is divided by S, so that a page is explored as often as a single decision.
A slot with one candidate shows it with the probability 1.

Whether later slots can be filled is a question of matchings. A matching of all slots that are not
filled yet is kept. An action that it does not give to a later slot is a candidate, another one is
if that slot can have another action instead, by an augmenting path. If each of S slots may show S
actions or more, every action is a candidate (Hall's theorem).
"""

import math
from typing import NamedTuple

import numpy as np

from windvane import _random
from windvane._numba.compilation import compiled, compiled_in_order
from windvane._random import FIRST_FREE_PLACE
from windvane.beliefs.bank.choosing import balance_noise, choose_among, predict_by, weigh_actions
from windvane.beliefs.bank.dense import DenseBeliefs
from windvane.beliefs.bank.feature_parts import (
    PackedSides,
    Parts,
    Scales,
    has_left_out_crossings,
    make_parts,
)
from windvane.beliefs.bank.layout import MEAN_REWARD, Bank, BankRules, compute_noise
from windvane.beliefs.diagonal.weight_table import ABSENT
from windvane.types import Booleans, Floats, Places

PLACES_PER_SLOT = FIRST_FREE_PLACE + 1  # of the stream of a round


class PageRanking(NamedTuple):
    """The choices for the slots of a page."""

    chosen: Places  # (S,) places of the actions; empty if the slots cannot all be filled
    probabilities: Floats  # (S, K) given the slots before; 0 where an action is no candidate
    means: Floats  # (S, K) the predicted rewards
    deviations: Floats  # (S, K) the standard deviations of the predictions


class Matching(NamedTuple):
    """Actions that are kept for the slots which are not filled yet."""

    slots: Places  # (K,) the slot of each action, or ABSENT
    actions: Places  # (S,) the action of each slot, or ABSENT
    is_barred: Booleans  # (K,) actions that no slot can take any more
    origins: Places  # (K,) the slot from which the last search came to an action, or ABSENT


@compiled_in_order
def find_path(allowed: Booleans, matching: Matching, slot: int) -> int:
    """Return a free action at the end of an augmenting path from a slot, or ABSENT."""
    slot_count, action_count = allowed.shape
    queue, size, head = np.empty(slot_count, np.int64), 1, 0
    queue[0] = slot
    for k in range(action_count):
        matching.origins[k] = ABSENT
    while head < size:
        own = queue[head]
        head += 1
        for k in range(action_count):
            if not allowed[own, k] or matching.is_barred[k] or matching.origins[k] != ABSENT:
                continue
            matching.origins[k] = own
            if matching.slots[k] == ABSENT:
                return int(k)
            queue[size] = matching.slots[k]
            size += 1
    return int(ABSENT)


@compiled_in_order
def match_slot(allowed: Booleans, matching: Matching, slot: int) -> bool:
    """Give an action to a slot that has none; other slots may get another one."""
    action = find_path(allowed, matching, slot)
    if action == ABSENT:
        return False
    while action != ABSENT:
        own = matching.origins[action]
        before = matching.actions[own]
        matching.slots[action], matching.actions[own] = own, action
        action = before
    return True


@compiled_in_order
def start_matching(allowed: Booleans) -> tuple[Matching, bool]:
    """Return a matching of all slots, and whether there is one."""
    slot_count, action_count = allowed.shape
    matching = Matching(
        np.full(action_count, ABSENT),
        np.full(slot_count, ABSENT),
        np.zeros(action_count, np.bool_),
        np.full(action_count, ABSENT),
    )
    for slot in range(slot_count):
        if not match_slot(allowed, matching, slot):
            return matching, False
    return matching, True


@compiled_in_order
def list_candidates(allowed: Booleans, matching: Matching, slot: int, is_free: bool) -> Places:
    """List the candidates of a slot; if `is_free`, those that are left can fill the others."""
    candidates, size = np.empty(allowed.shape[1], np.int64), 0
    for k in range(candidates.size):
        if not allowed[slot, k] or matching.is_barred[k]:
            continue
        owner = matching.slots[k]
        if not (is_free or owner in (ABSENT, slot)):
            matching.is_barred[k] = True
            matching.slots[matching.actions[slot]] = ABSENT
            has_other = find_path(allowed, matching, owner) != ABSENT
            matching.slots[matching.actions[slot]] = slot
            matching.is_barred[k] = False
            if not has_other:
                continue
        candidates[size] = k
        size += 1
    return candidates[:size]


@compiled_in_order
def take_action(allowed: Booleans, matching: Matching, slot: int, action: int) -> None:
    """Give an action to a slot for good."""
    owner, kept = matching.slots[action], matching.actions[slot]
    matching.slots[kept] = ABSENT
    matching.is_barred[action] = True
    if owner != ABSENT and owner != slot:
        matching.actions[owner] = ABSENT
        match_slot(allowed, matching, owner)


@compiled_in_order
def pick_slot(sides: PackedSides, starts: Places, slot: int) -> PackedSides:
    """Return the sides of one slot from those of a page, whose context has all slots.

    The features of the context end at starts[0], those of slot s at starts[s + 1].
    """
    counts = sides.feature_counts.copy()
    context, end = starts[0], starts[starts.size - 1]
    first, last = starts[slot], starts[slot + 1]
    counts[0] = context + last - first
    ends = np.cumsum(sides.sizes)
    numbers = np.empty(4, np.int64)
    for i, feature in enumerate((context, first, last, end)):
        numbers[i] = ends[feature - 1] if feature > 0 else 0
    return PackedSides(
        np.concatenate((sides.hashes[:context], sides.hashes[first:last], sides.hashes[end:])),
        np.concatenate(
            (
                sides.numbers[: numbers[0]],
                sides.numbers[numbers[1] : numbers[2]],
                sides.numbers[numbers[3] :],
            )
        ),
        np.concatenate((sides.sizes[:context], sides.sizes[first:last], sides.sizes[end:])),
        counts,
        np.concatenate((sides.masks[:context], sides.masks[first:last], sides.masks[end:])),
    )


@compiled_in_order
def find_slot_parts(sides: PackedSides, starts: Places) -> Places:
    """Return where the parts of the context end, and those of each slot, (S + 1,)."""
    ends, feature, number, part = np.empty(starts.size, np.int64), 0, 0, 0
    for slot in range(starts.size):
        for _ in range(feature, starts[slot]):
            size = sides.sizes[feature]
            part += size
            part += size == 1 and sides.numbers[number] != np.inf  # its bin
            number += size
            feature += 1
        ends[slot] = part
    return ends


@compiled_in_order
def pick_slot_parts(parts: Parts, ends: Places, slot: int, square: float) -> Parts:
    """Return the parts of one slot from those of a page; `square` is of `measure_slot`."""
    first, last, end = ends[slot], ends[slot + 1], ends[ends.size - 1]
    size = ends[0] + last - first
    places = np.empty(size + parts.keys.size - end, np.int64)
    for i in range(places.size):
        if i < size:
            places[i] = i if i < ends[0] else first + i - ends[0]
        else:
            places[i] = end + i - size
    values = parts.values[places]
    for i in range(size):
        values[i] *= math.sqrt(square)
    return Parts(
        parts.keys[places],
        values,
        parts.fields[places],
        parts.masks[places],
        parts.is_bin[places],
        parts.ends - (end - size),
    )


@compiled_in_order
def predict_slots(
    rules: BankRules,
    bank: Bank,
    leader_sums: Floats,
    belief: int,
    at: float,
    sides: PackedSides,
    starts: Places,
    parts: Parts,
) -> tuple[Floats, Floats]:
    """Return the mean and the variance of every action in every slot, (S, K) each.

    The entries of all slots are weighed at once, as if the context had the features of all. Slot s
    takes those of the context and its own, and the root of the number of its features divides
    their values, instead of that of all features.
    """
    _, _, rows, own = weigh_actions(rules, bank, leader_sums, belief, at, parts)
    ends, first = find_slot_parts(sides, starts), parts.ends[0]
    for slot in range(ends.size):  # from parts to entries: the constant, and values other than 0
        ends[slot] = 1 + (parts.values[: ends[slot]] != 0.0).sum()
    slot_count, action_count = starts.size - 1, parts.ends.size - 1
    shape = own.means.shape[0], slot_count
    row_means, row_variances = np.empty(shape), np.empty(shape)
    for row in range(shape[0]):
        mean, variance = 0.0, 0.0
        for i in range(1, ends[0]):
            mean += own.means[row, i]
            variance += own.variances[row, i]
        for s in range(slot_count):
            slot_mean, slot_variance = mean, variance
            for i in range(ends[s], ends[s + 1]):
                slot_mean += own.means[row, i]
                slot_variance += own.variances[row, i]
            square = measure_slot(starts, s)
            row_means[row, s] = own.means[row, 0] + math.sqrt(square) * slot_mean
            row_variances[row, s] = own.variances[row, 0] + square * slot_variance
    means, variances = np.empty((slot_count, action_count)), np.empty((slot_count, action_count))
    for s in range(slot_count):
        for k in range(action_count):
            mean, variance = row_means[0, s], row_variances[0, s]
            for i in range(parts.ends[k] - first, parts.ends[k + 1] - first):
                if rows[i] > 0:
                    mean += row_means[rows[i], s]
                    variance += row_variances[rows[i], s]
            means[s, k], variances[s, k] = mean, variance
    return means, variances


@compiled_in_order
def predict_each_slot(
    rules: BankRules,
    bank: Bank,
    dense: DenseBeliefs,
    leader_sums: Floats,
    belief: int,
    at: float,
    sides: PackedSides,
    starts: Places,
    scales: Scales,
    parts: Parts,
) -> tuple[Floats, Floats]:
    """Return what `predict_slots` returns, by a belief of any kind, one slot after the other."""
    shape = starts.size - 1, sides.feature_counts.size - 1
    means, variances = np.empty(shape), np.empty(shape)
    ends, has_lengths = find_slot_parts(sides, starts), has_left_out_crossings(sides.masks)
    for s in range(shape[0]):
        if has_lengths:  # values of actions depend on the slot
            own = make_parts(pick_slot(sides, starts, s), scales)
        else:
            own = pick_slot_parts(parts, ends, s, measure_slot(starts, s))
        means[s], variances[s] = predict_by(rules, bank, dense, leader_sums, belief, at, own)
    return means, variances


@compiled_in_order
def measure_slot(starts: Places, slot: int) -> float:
    """Return the number of features of all slots over those of one, with the context each."""
    return float(starts[starts.size - 1] / (starts[0] + starts[slot + 1] - starts[slot]))


@compiled
def rank_page(
    rules: BankRules,
    bank: Bank,
    dense: DenseBeliefs,
    leader_sums: Floats,
    scales: Scales,
    sides: PackedSides,
    starts: Places,
    allowed: Booleans,
    leader: int,
    at: float,
    key: int,
    round_: int,
) -> PageRanking:
    """Choose an action for every slot, by the belief that leads; `pick_slot` explains `starts`."""
    slot_count, action_count = allowed.shape
    shape = slot_count, action_count
    page = PageRanking(
        np.empty(slot_count, np.int64), np.zeros(shape), np.empty(shape), np.empty(shape)
    )
    matching, can_fill = start_matching(allowed)
    if not can_fill:
        return PageRanking(page.chosen[:0], page.probabilities, page.means, page.deviations)
    is_free = True
    for s in range(slot_count):
        is_free &= allowed[s].sum() >= slot_count
    start = _random.start_round(np.uint64(key), round_)
    pooled = compute_noise(bank, leader)
    parts = make_parts(sides, scales)
    if leader < rules.starts.size - 1 and not has_left_out_crossings(sides.masks):
        all_means, all_variances = predict_slots(
            rules, bank, leader_sums, leader, at, sides, starts, parts
        )
    else:
        all_means, all_variances = predict_each_slot(
            rules, bank, dense, leader_sums, leader, at, sides, starts, scales, parts
        )
    for s in range(slot_count):
        means, variances = all_means[s], all_variances[s]
        candidates = list_candidates(allowed, matching, s, is_free)
        noise = balance_noise(pooled, bank, scales, parts, candidates)
        chosen = 0
        page.probabilities[s, candidates[0]] = 1.0
        if candidates.size > 1:
            offset = PLACES_PER_SLOT * s
            own = choose_among(rules, means, variances, noise, candidates, start, offset)
            chosen = own.chosen
            for i in range(candidates.size):
                page.probabilities[s, candidates[i]] = own.probabilities[i]
        page.chosen[s] = candidates[chosen]
        take_action(allowed, matching, s, page.chosen[s])
        for k in range(action_count):
            page.means[s, k] = means[k] + bank.level[MEAN_REWARD]
            page.deviations[s, k] = noise * math.sqrt(max(variances[k], 0.0))
    return page
