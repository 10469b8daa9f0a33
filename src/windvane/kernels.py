"""The compiled heart: learn an observation, estimate, score the arms, choose.

`inverse` is kept by rank-one steps and made afresh every few observations. Between two refreshes
the ridge inside it fades with the rest, by a known small amount. So it serves as a guide, never as
the truth: solutions are polished against W itself, and arms that the guide cannot tell apart are
scored again exactly.
"""

import math

import numpy as np

from windvane import exploration, stream
from windvane.arrays import Floats, Records
from windvane.belief import State
from windvane.compiling import compiled
from windvane.rules import GRID, HISTORY, MEAN, NORMAL, POINT, SAMPLE, WIDTH

# Places of a round's stream: whether to mix, which arm then, which of equals, all other draws.
MIX, ANY, TIE, DRAWS = 0, 1, 2, 3

LARGEST = 1e100  # a squared norm beyond this counts as not finite
CONDITION = 1e13  # trace(S)/λ beyond this would leave too few digits in W⁻¹
FULL, AMPLE = 1e-13, 1e-10  # relative errors: of the estimate, of what is only compared
NOT_FINITE, TOO_LARGE = -1, -2  # what a kernel answers when it refuses

mass = compiled(exploration.mass)
radius_of = compiled(exploration.radius)
anytime = compiled(exploration.anytime)


@compiled
def parts(rules: Records, block: Floats) -> State:
    """Name the parts of a block of memory."""
    rule = rules[0]
    d, square = rule.dim, rule.dim * rule.dim
    gram = block[2 * d : 2 * d + square].reshape(d, d)
    inverse = block[2 * d + square : 2 * d + 2 * square].reshape(d, d)
    noise, spread, root = gram, inverse, inverse
    used = 2 * d + 2 * square
    if rule.gamma < 1.0:
        noise = block[used : used + square].reshape(d, d)
        used += square
        if rule.style == WIDTH:
            spread = block[used : used + square].reshape(d, d)
            used += square
    if rule.style == SAMPLE and rule.window == 0:
        root = block[used : used + square].reshape(d, d)
    return State(block[:d], block[d : 2 * d], gram, inverse, noise, spread, root)


@compiled
def times(matrix: Floats, vector: Floats, out: Floats) -> None:
    """Matrix times vector."""
    for i in range(matrix.shape[0]):
        total = 0.0
        for j in range(matrix.shape[1]):
            total += matrix[i, j] * vector[j]
        out[i] = total


@compiled
def dot(left: Floats, right: Floats) -> float:
    """Σ left·right."""
    total = 0.0
    for i in range(left.size):
        total += left[i] * right[i]
    return total


@compiled
def blank(rules: Records, tally: Records, block: Floats) -> None:
    """Forget everything: W = W̃ = λI, b = 0."""
    block[:] = 0.0
    tally[0].seen = 0
    tally[0].energy = 0.0
    refresh(rules, tally, parts(rules, block))


@compiled
def refresh(rules: Records, tally: Records, state: State) -> None:
    """Invert anew, with a ridge as much too large now as it will be too small at the next time."""
    rule, counts = rules[0], tally[0]
    ahead = rule.gamma ** (-0.5 * rule.refresh)
    counts.ridge = rule.ridge * ahead
    counts.noise_ridge = rule.ridge * ahead * ahead
    counts.stale = 0
    ridged = state.gram.copy()
    for i in range(rule.dim):
        ridged[i, i] += counts.ridge
    state.inverse[:] = np.linalg.inv(ridged)
    if rule.gamma < 1.0 and rule.style == WIDTH:
        ridged[:] = state.noise
        for i in range(rule.dim):
            ridged[i, i] += counts.noise_ridge
        state.spread[:] = np.dot(state.inverse, np.dot(ridged, state.inverse))


@compiled
def solve(
    rules: Records, tally: Records, state: State, right: Floats, answer: Floats, digits: float
) -> None:
    """Polish `answer` until W·answer = right, to a relative error of about `digits`.

    `inverse` is P = (W − (λ−Λ)I)⁻¹, so u ← P(right − (λ−Λ)u) closes in on the answer, by the
    factor |λ−Λ|/Λ at least in every step. The last step, against W itself, does so too and
    removes P's rounding.
    """
    rule, counts = rules[0], tally[0]
    lag = rule.ridge - counts.ridge
    shrink, last = abs(lag) / counts.ridge, np.inf
    missing, step = np.empty_like(answer), np.empty_like(answer)
    for _ in range(60):
        for i in range(rule.dim):
            missing[i] = right[i] - lag * answer[i]
        times(state.inverse, missing, step)
        largest, moved = 0.0, 0.0
        for i in range(rule.dim):
            largest = max(largest, abs(step[i]))
            moved = max(moved, abs(step[i] - answer[i]))
            answer[i] = step[i]
        if last < np.inf:
            shrink = min(shrink, moved / last)
        if shrink * shrink * moved <= digits * largest or moved >= last:
            break
        last = moved
    times(state.gram, answer, missing)
    for i in range(rule.dim):
        missing[i] = right[i] - missing[i] - rule.ridge * answer[i]
    times(state.inverse, missing, step)
    for i in range(rule.dim):
        answer[i] += step[i]


@compiled
def absorb(rules: Records, tally: Records, state: State, x: Floats, reward: float) -> None:
    """Add one observation to the sums and, by rank-one steps, to what is derived from them.

    P' = (P − ppᵀ/c)/γ and Q' = Q − (pqᵀ+qpᵀ)/c + (1+s)ppᵀ/c² for P = `inverse`, Q = `spread`,
    p = Px, q = Qx, c = γ + xᵀp, s = xᵀq.
    """
    rule, counts = rules[0], tally[0]
    d, gamma = rule.dim, rule.gamma
    p = np.empty(d)
    times(state.inverse, x, p)
    c = gamma + dot(x, p)
    if gamma < 1.0:
        fade = gamma * gamma
        for i in range(d):
            for j in range(d):
                state.noise[i, j] = fade * state.noise[i, j] + x[i] * x[j]
        if rule.style == WIDTH:
            q = np.empty(d)
            times(state.spread, x, q)
            own = (1.0 + dot(x, q)) / (c * c)
            for i in range(d):
                for j in range(d):
                    state.spread[i, j] += own * (p[i] * p[j]) - (p[i] * q[j] + q[i] * p[j]) / c
    for i in range(d):
        state.moment[i] = gamma * state.moment[i] + x[i] * reward
        for j in range(d):
            state.gram[i, j] = gamma * state.gram[i, j] + x[i] * x[j]
            state.inverse[i, j] = (state.inverse[i, j] - (p[i] * p[j]) / c) / gamma
    if rule.style == SAMPLE and rule.window == 0:
        rotate(state.root, gamma, x)
    counts.ridge *= gamma
    counts.noise_ridge *= gamma * gamma
    counts.energy = gamma * counts.energy + dot(x, x)
    counts.stale += 1


@compiled
def rotate(root: Floats, gamma: float, x: Floats) -> None:
    """RᵀR ← γ²RᵀR + xxᵀ by plane rotations, which work from R = 0 on."""
    v = x.copy()
    for k in range(v.size):
        own = gamma * root[k, k]
        length = math.sqrt(own * own + v[k] * v[k])
        cosine, sine = (own / length, v[k] / length) if length > 0.0 else (1.0, 0.0)
        root[k, k] = length
        for i in range(k + 1, v.size):
            old = gamma * root[k, i]
            root[k, i] = cosine * old + sine * v[i]
            v[i] = cosine * v[i] - sine * old


@compiled
def release(tally: Records, state: State, x: Floats, reward: float) -> bool:
    """Take one observation of a window out again; False where too few digits would be left."""
    d, counts = x.size, tally[0]
    p = np.empty(d)
    times(state.inverse, x, p)
    c = 1.0 - dot(x, p)
    if c < 1e-2:
        return False
    for i in range(d):
        state.moment[i] -= x[i] * reward
        for j in range(d):
            state.gram[i, j] -= x[i] * x[j]
            state.inverse[i, j] += (p[i] * p[j]) / c
    counts.energy -= dot(x, x)
    return True


@compiled
def sum_anew(tally: Records, state: State, past: Floats) -> None:
    """The sums of a window from its observations, so that rounding never piles up."""
    d = state.moment.size
    features, rewards = past[:, :d].copy(), past[:, d].copy()
    state.gram[:] = np.dot(features.T, features)
    state.moment[:] = np.dot(features.T, rewards)
    tally[0].energy = np.trace(state.gram)


@compiled
def acceptable(rules: Records, tally: Records, x: Floats) -> int:
    """0, or why these features cannot be learned from."""
    if not dot(x, x) <= LARGEST:
        return NOT_FINITE
    if tally[0].energy + dot(x, x) > CONDITION * rules[0].ridge:
        return TOO_LARGE
    return 0


@compiled
def learn(
    rules: Records, tally: Records, block: Floats, past: Floats, x: Floats, reward: float
) -> int:
    """Fold one observation in and estimate θ̂ anew; 0, or why not, and then nothing changed."""
    refused = acceptable(rules, tally, x)
    if refused:
        return refused
    rule, counts, state = rules[0], tally[0], parts(rules, block)
    d = rule.dim
    absorb(rules, tally, state, x, reward)
    exact = True
    if past.shape[0] > 0:
        slot = counts.seen % past.shape[0]
        old, old_reward = past[slot, :d].copy(), past[slot, d]
        past[slot, :d] = x
        past[slot, d] = reward
        if 0 < rule.window <= counts.seen:
            exact = release(tally, state, old, old_reward)
            if slot == past.shape[0] - 1 or not exact:
                sum_anew(tally, state, past)
                exact = False
    counts.seen += 1
    if counts.stale >= rule.refresh or not exact:
        refresh(rules, tally, state)
    solve(rules, tally, state, state.moment, state.theta, FULL)
    return 0


@compiled
def learn_all(
    rules: Records, tally: Records, block: Floats, past: Floats, xs: Floats, rewards: Floats
) -> int:
    """Fold observations in, one after the other; 0, or why not, and then nothing changed."""
    energy = tally[0].energy
    for i in range(rewards.size):
        size = dot(xs[i], xs[i])
        if not size <= LARGEST:
            return NOT_FINITE
        energy += size
    if energy > CONDITION * rules[0].ridge:
        return TOO_LARGE
    for i in range(rewards.size):
        learn(rules, tally, block, past, xs[i], rewards[i])
    return 0


@compiled
def scale_of(rules: Records, tally: Records) -> float:
    """The scale of the law: a number, or so many times the radius for what was seen."""
    rule, seen = rules[0], tally[0].seen
    scale: float = rule.scale
    if rule.grows:
        delta = anytime(rule.delta, seen) if rule.anytime else rule.delta
        held = mass(seen, rule.gamma, rule.window)
        scale *= radius_of(
            held, rule.dim, rule.ridge, delta, rule.noise, rule.theta_norm, rule.arm_norm
        )
    return scale


@compiled
def level(rules: Records, scale: float, start: np.uint64) -> float:
    """Draw the confidence level Z of a round."""
    rule = rules[0]
    if rule.law == POINT:
        return scale
    if rule.law == GRID:
        return scale * grid_level(rules, stream.uniform(start, DRAWS))
    draw = np.empty(1)
    stream.normals(start, DRAWS, draw)
    z = float(draw[0])
    return scale * (z if rule.law == NORMAL else abs(z))


@compiled
def grid_level(rules: Records, chance: float) -> float:
    """The point of the unit grid at which the law's distribution function reaches `chance`."""
    weights = grid_weights(rules)
    reached = 0.0
    for m in range(weights.size):
        reached += weights[m]
        if chance <= reached:
            return m / (weights.size - 1)
    return 1.0


@compiled
def grid_weights(rules: Records) -> Floats:
    """The probability of each grid point: `top` for the last, a Gaussian shape for the rest."""
    rule = rules[0]
    weights = np.empty(rule.points)
    total = 0.0
    for m in range(rule.points - 1):
        place = m / (rule.points - 1)
        weights[m] = math.exp(-0.5 * (place / rule.sigma) ** 2)
        total += weights[m]
    weights[: rule.points - 1] *= (1.0 - rule.top) / total
    weights[rule.points - 1] = rule.top
    return weights


@compiled
def sampled(rules: Records, tally: Records, state: State, past: Floats, start: np.uint64) -> Floats:
    """θ̃ = W⁻¹(b + a·ξ) with ξ ~ N(0, W̃), or with a freshly perturbed past."""
    rule = rules[0]
    d = rule.dim
    right = state.moment.copy()
    if rule.style == HISTORY:
        perturb(rules, tally, past, start, right)
    elif rule.window > 0:
        ridged = state.gram.copy()
        for i in range(d):
            ridged[i, i] += rule.ridge
        z = np.empty(d)
        stream.normals(start, DRAWS, z)
        right += rule.scale * np.dot(np.linalg.cholesky(ridged), z)
    else:
        z = np.empty(2 * d)
        stream.normals(start, DRAWS, z)
        for k in range(d):
            for i in range(k, d):
                right[i] += rule.scale * state.root[k, i] * z[k]
            right[k] += rule.scale * math.sqrt(rule.ridge) * z[d + k]
    answer = state.theta.copy()
    solve(rules, tally, state, right, answer, AMPLE)
    return answer


@compiled
def perturb(rules: Records, tally: Records, past: Floats, start: np.uint64, right: Floats) -> None:
    """Add a fresh pseudo-reward to every past reward: b ← b + Σ w·x·Z, and the ridge's share."""
    rule, seen = rules[0], tally[0].seen
    d, held = rule.dim, min(tally[0].seen, past.shape[0])
    z = np.empty(held + d)
    if rule.coins > 0:
        for i in range(held):
            z[i] = heads(stream.word(start, DRAWS + i), rule.coins)
        z[held:] = 0.0
    else:
        stream.normals(start, DRAWS, z)
        z *= rule.scale
    weight = 1.0
    for age in range(held):
        slot = (seen - 1 - age) % past.shape[0]
        for i in range(d):
            right[i] += weight * z[age] * past[slot, i]
        weight *= rule.gamma
    for i in range(d):
        right[i] += math.sqrt(rule.ridge) * z[held + i]
    if rule.coins > 0:
        right /= rule.coins + 1.0


@compiled
def heads(bits: np.uint64, coins: int) -> float:
    """How many of the first `coins` bits are set."""
    count = 0.0
    for k in range(coins):
        count += np.float64((bits >> np.uint64(k)) & np.uint64(1))
    return count


@compiled
def exact_width(rules: Records, tally: Records, state: State, x: Floats) -> float:
    """‖x‖_{V⁻¹} = √(uᵀW̃u) with W·u = x."""
    u, image = np.empty(x.size), np.empty(x.size)
    times(state.inverse, x, u)
    solve(rules, tally, state, x, u, AMPLE)
    times(state.noise, u, image)
    return math.sqrt(dot(u, image) + rules[0].ridge * dot(u, u))


@compiled
def looseness(rules: Records, tally: Records) -> float:
    """By what share of itself a width read off `spread` can be wrong.

    For ridges Λ and Λ̃ left in `inverse` and `spread`, û = Px and ŵ² = xᵀQx:
    ‖u−û‖_W ≤ |λ−Λ|·‖û‖/√λ, ‖û‖ ≤ ŵ/√Λ̃, and W̃ for W̃−(λ−Λ̃)I moves ŵ² by at most |λ−Λ̃|·‖û‖².
    """
    rule, counts = rules[0], tally[0]
    if rule.gamma == 1.0:
        return 0.0
    lag: float = abs(rule.ridge - counts.ridge) / math.sqrt(rule.ridge * counts.noise_ridge)
    noise_lag: float = abs(rule.ridge - counts.noise_ridge) / counts.noise_ridge
    return lag + 1.0 - math.sqrt(max(1.0 - noise_lag, 0.0))


@compiled
def linear_scores(arms: Floats, direction: Floats) -> Floats:
    """xᵀ·direction of every arm; NaN for an arm that is not finite or too large to square."""
    scores = np.empty(arms.shape[0])
    for k in range(arms.shape[0]):
        total, size = 0.0, 0.0
        for i in range(arms.shape[1]):
            total += arms[k, i] * direction[i]
            size += arms[k, i] * arms[k, i]
        scores[k] = total if size <= LARGEST else np.nan
    return scores


@compiled
def squared_widths(arms: Floats, spread: Floats) -> Floats:
    """xᵀQx of every arm, four arms to each pass over the lower half of Q = `spread`."""
    last = arms.shape[0] - 1
    out = np.empty(last + 1)
    for k in range(0, last + 1, 4):
        k1, k2, k3 = min(k + 1, last), min(k + 2, last), min(k + 3, last)
        x0, x1, x2, x3 = arms[k], arms[k1], arms[k2], arms[k3]
        sum0, sum1, sum2, sum3 = 0.0, 0.0, 0.0, 0.0
        for i in range(arms.shape[1]):
            row, own = spread[i], 0.5 * spread[i, i]
            part0, part1, part2, part3 = own * x0[i], own * x1[i], own * x2[i], own * x3[i]
            for j in range(i):
                part0 += row[j] * x0[j]
                part1 += row[j] * x1[j]
                part2 += row[j] * x2[j]
                part3 += row[j] * x3[j]
            sum0 += x0[i] * part0
            sum1 += x1[i] * part1
            sum2 += x2[i] * part2
            sum3 += x3[i] * part3
        out[k], out[k1], out[k2], out[k3] = 2.0 * sum0, 2.0 * sum1, 2.0 * sum2, 2.0 * sum3
    return out


@compiled
def width_scores(rules: Records, tally: Records, state: State, arms: Floats, z: float) -> Floats:
    """xᵀθ̂ + z‖x‖_{V⁻¹} of every arm that could be the best; the others fall to -inf."""
    loose, grain = looseness(rules, tally), 1e-7 / math.sqrt(rules[0].ridge)
    squares = squared_widths(arms, state.spread)
    scores, highest = linear_scores(arms, state.theta), np.empty(arms.shape[0])
    floor = -np.inf
    for k in range(arms.shape[0]):
        width = math.sqrt(max(squares[k], 0.0))
        margin = abs(z) * (loose * width + grain * math.sqrt(dot(arms[k], arms[k])))
        highest[k] = scores[k] + z * width + margin
        floor = max(floor, highest[k] - 2.0 * margin)
    rivals = 0
    for k in range(arms.shape[0]):
        rivals += highest[k] >= floor
    for k in range(arms.shape[0]):
        if highest[k] < floor:
            scores[k] = -np.inf
        elif rivals > 1:
            scores[k] += z * exact_width(rules, tally, state, arms[k])
    return scores


@compiled
def best(scores: Floats, chance: float) -> int:
    """The place of the largest score, equals drawn by lot; NOT_FINITE where one is no number."""
    top = -np.inf
    for k in range(scores.size):
        if math.isnan(scores[k]) or scores[k] == np.inf:
            return NOT_FINITE
        top = max(top, scores[k])
    least = top - 1e-12 * abs(top)
    equals = 0
    for k in range(scores.size):
        equals += scores[k] >= least
    left = int(chance * equals)
    for k in range(scores.size):
        if scores[k] >= least:
            if left == 0:
                return k
            left -= 1
    return NOT_FINITE


@compiled
def choose(
    rules: Records,
    tally: Records,
    block: Floats,
    past: Floats,
    arms: Floats,
    key: int,
    round_: int,
) -> int:
    """The arm to play in a round, or NOT_FINITE where the arms hold no finite numbers."""
    rule, state = rules[0], parts(rules, block)
    start = stream.opening(np.uint64(key), round_)
    if rule.style == MEAN:
        scores = linear_scores(arms, state.theta)
    elif rule.style == WIDTH:
        z = level(rules, scale_of(rules, tally), start)
        scores = width_scores(rules, tally, state, arms, z)
    else:
        scores = linear_scores(arms, sampled(rules, tally, state, past, start))
    chosen = best(scores, stream.uniform(start, TIE))
    if chosen >= 0 and stream.uniform(start, MIX) < rule.mix:
        chosen = int(stream.uniform(start, ANY) * scores.size)
    return chosen
