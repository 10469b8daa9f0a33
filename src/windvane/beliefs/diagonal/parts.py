"""The memory `parts` of a diagonal belief: each part of each weight is one more entry of a row.

Part s of weight i has the precision p and the moment b in column s of the sums, which fade by f_s.
With the variance v_s of a part before any data, and ψ_s = 2^{−age/h_s} of a reward that is late:

    f_s ← f_s·2^{−elapsed/h_s},  s_is = 1/(f_s·p_is + 1/v_s),  m_is = f_s·b_is·s_is,  u_is = ψ_s·x_i
    e = y − Σ u_is·m_is,  S = 1 + Σ (1−ψ_s²)v_s·‖x‖² + Σ u_is²·s_is
    m_is ← m_is + s_is·u_is·e/S,  p_is ← p_is + u_is²/(S − s_is·u_is²)/f_s

The mean of a weight is Σ m_is and its variance Σ s_is. This approximates the filter of a full
belief, even if rows have one entry. What a lesson tells about two parts of one weight together is
dropped, as everything between two weights is. And precisions fade as under `half_life`, where the
filter lets means and variances fade.

If variances are found, one more column believes that θ is still. Variances, odds and a new start of
the still belief follow the rules of `beliefs.full.parts`, with two differences. Sums of a lesson go
over the weights of its row. No prior is in the sums, so a found variance counts at once.
"""

import numpy as np

from windvane._numba.compilation import compiled_in_order
from windvane.beliefs.diagonal.kernels import (
    DETERMINED,
    FIRST_VARIANCE,
    LONG_ROWS,
    MOMENT,
    ODDS,
    PRECISION,
    SQUARES,
    VARIANCE,
    WEIGHTS,
    Weights,
    claim_slots,
    correct_entries,
    fade_weights,
    learn_entries,
    predict_entries,
    read_columns,
)
from windvane.beliefs.full.layout import PolicyArrays
from windvane.beliefs.full.noise import add_error, compute_noise
from windvane.beliefs.full.parts import (
    EVIDENCE_FADE,
    FIRST_ODDS,
    IMAGINED_STILL_WEIGHTS,
    IMAGINED_WEIGHTS,
    LEAST_SHARE,
    MOST_ODDS,
    NOISE_FADE,
    choose_first_variance,
    find_variance,
    judge,
    pass_time,
)
from windvane.types import Floats, Places


@compiled_in_order
def learn_by_parts(
    arrays: PolicyArrays,
    weights: Weights,
    indices: Places,
    values: Floats,
    reward: float,
    at: float,
) -> None:
    """Learn the entries of one row, as `kernels.learn` does for all other memories."""
    rule, counts, evidence = arrays.rules[0], arrays.tally[0], weights.evidence
    slots, square = claim_slots(weights, indices), 0.0
    for i in range(values.size):
        square += values[i] * values[i]
    if counts.seen == 0:
        start_parts(arrays, weights, choose_first_variance(arrays, square))
        counts.clock = at
    elapsed, age = pass_time(arrays, at)
    for s in range(rule.parts):
        fade_weights(weights, 0.5 ** (elapsed / rule.half_lives[s]), s)
    noise = compute_noise(arrays) ** 2
    error, total = correct_parts(arrays, weights, slots, values, reward, age)
    if rule.finds:
        priors = np.full(values.size, 1.0 / evidence[rule.parts, VARIANCE])
        still_error, still_total = learn_entries(
            weights.sums, rule.parts, 1.0, slots, values, priors, reward, 1.0
        )
        odds = judge(evidence[-1, ODDS], error, total, still_error, still_total, noise)
        evidence[-1, ODDS] = odds
        if odds > 0.0:
            error, total = still_error, still_total
    add_error(arrays, error, total, NOISE_FADE, 1.0)
    counts.seen += 1
    weights.counters[LONG_ROWS] += values.size > 1
    if rule.finds:
        find_variances(arrays, weights, slots)
        if evidence[-1, ODDS] <= -MOST_ODDS:
            start_still_belief(weights, rule.parts)
            evidence[-1, ODDS] = -0.5 * MOST_ODDS


@compiled_in_order
def start_parts(arrays: PolicyArrays, weights: Weights, first: float) -> None:
    """Set the first variances and the first odds."""
    rule = arrays.rules[0]
    for s in range(weights.fade.size):
        weights.evidence[s, VARIANCE] = first * (rule.shares[s] if s < rule.parts else 1.0)
    weights.evidence[-1, ODDS], weights.evidence[-1, FIRST_VARIANCE] = FIRST_ODDS, first


@compiled_in_order
def correct_parts(
    arrays: PolicyArrays, weights: Weights, slots: Places, values: Floats, reward: float, age: float
) -> tuple[float, float]:
    """Correct all parts by an observation of some age; return the error e and its variance S."""
    rule, sums, fade = arrays.rules[0], weights.sums, weights.fade
    u, priors = np.empty((rule.parts, values.size)), np.empty((rule.parts, values.size))
    error, variance, known = reward, 0.0, 1.0
    for s in range(rule.parts):
        past, own = 0.5 ** (age / rule.half_lives[s]), weights.evidence[s, VARIANCE]
        for i in range(values.size):
            u[s, i], priors[s, i] = past * values[i], 1.0 / own
            known += (1.0 - past * past) * own * values[i] * values[i]
        own_mean, own_variance = predict_entries(sums, s, fade[s], slots, u[s], priors[s])
        error -= own_mean
        variance += own_variance
    for s in range(rule.parts):
        correct_entries(sums, s, fade[s], slots, u[s], priors[s], error, variance, 1.0 / known)
    return error, known + variance


@compiled_in_order
def find_variances(arrays: PolicyArrays, weights: Weights, slots: Places) -> None:
    """Find the variances of the parts and of a still θ, after a lesson about some weights."""
    rule, evidence = arrays.rules[0], weights.evidence
    noise, first = compute_noise(arrays) ** 2, evidence[-1, FIRST_VARIANCE]
    means, variances = np.empty(slots.size), np.empty(slots.size)
    whole = evidence[: rule.parts, VARIANCE].sum()
    for s in range(rule.parts + 1):
        read_columns(weights, s, s + 1, slots, means, variances)
        determined, square = 0.0, 0.0
        for i in range(slots.size):
            determined += 1.0 - variances[i] / evidence[s, VARIANCE]
            square += means[i] * means[i]
        evidence[s, DETERMINED] = EVIDENCE_FADE * evidence[s, DETERMINED] + determined
        evidence[s, SQUARES] = EVIDENCE_FADE * evidence[s, SQUARES] + square / noise
        imagined, share, least = IMAGINED_STILL_WEIGHTS, 1.0, 0.0
        if s < rule.parts:
            imagined, share = IMAGINED_WEIGHTS, rule.shares[s]
            least = LEAST_SHARE * share * whole
        found = find_variance(
            imagined, first * share, evidence[s, SQUARES], evidence[s, DETERMINED]
        )
        evidence[s, VARIANCE] = max(found, least)


@compiled_in_order
def start_still_belief(weights: Weights, parts: int) -> None:
    """Let the still belief start again, at the means of the parts, with Σ s_is + Σ v_s or less.

    Its variances are at most that of its prior, because no precision is below 0.
    """
    slots = np.arange(weights.counters[WEIGHTS])
    means, variances = np.empty(slots.size), np.empty(slots.size)
    read_columns(weights, 0, parts, slots, means, variances)
    prior, whole = 1.0 / weights.evidence[parts, VARIANCE], weights.evidence[:parts, VARIANCE].sum()
    for slot in range(slots.size):
        precision = max(1.0 / (variances[slot] + whole) - prior, 0.0)
        weights.sums[slot, parts, PRECISION] = precision
        weights.sums[slot, parts, MOMENT] = means[slot] * (precision + prior)
