"""The mathematics as written: plain NumPy, the whole history kept, nothing updated in place.

Nothing here comes from Windvane but the fields of its memories and explorations.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import optimize, special, stats

from windvane.exploration import Exploration
from windvane.laws import Confidence, Law, Posterior, Width
from windvane.memory import Memory

Floats = npt.NDArray[np.float64]


class History(NamedTuple):
    """What was learned, in the order in which it was learned."""

    xs: Floats  # (n, d)
    ys: Floats  # (n,)
    rounds: npt.NDArray[np.int64] | Floats  # (n,) the round or time in which each was chosen
    now: int  # the last round that was chosen in


class Estimate(NamedTuple):
    """What follows from a history."""

    W: Floats  # (d, d)
    W_noise: Floats  # (d, d) W̃
    b: Floats  # (d,)
    theta: Floats  # (d,) θ̂
    V_inverse: Floats  # (d, d)

    def widths(self, arms: Floats) -> Floats:
        """‖x‖_{V⁻¹} = √(xᵀV⁻¹x)."""
        return np.array([np.sqrt(x @ self.V_inverse @ x) for x in arms])


def observed(xs: Floats, ys: Floats) -> History:
    """A history in which round t was chosen and learned before round t + 1."""
    return History(xs, ys, np.arange(len(ys)), len(ys) - 1)


def born(memory: Memory, now: int) -> int:
    """The last round up to now before which everything was dropped."""
    restarts = [0]
    if memory.name == "restart":
        restarts += [t for t in range(1, now + 1) if t % memory.every == 0]
    if memory.name == "restart_at":
        restarts += [t for t in memory.at if t <= now]
    return max(restarts)


DROP_WHEN_LEARNING = ["detect", "detect_shift"]  # an observation may drop all those before it


def alarms(memory: Memory, ridge: float, xs: Floats, ys: Floats) -> list[int]:
    """The observations that raised an alarm: a CUSUM over residuals, each from a refit."""
    found: list[int] = []
    blocks: list[list[float]] = []
    first, surprise = 0, 0.0
    for n, (x, y) in enumerate(zip(xs, ys, strict=True)):
        W = ridge * np.eye(len(x)) + xs[first:n].T @ xs[first:n]
        u = solve(W, x)
        miss = y - u @ (xs[first:n].T @ ys[first:n])
        doubt = (memory.noise**2 + ridge * memory.theta_norm**2) * (x @ u)
        if memory.name == "detect_shift":
            blocks.insert(0, [miss / np.sqrt(memory.noise**2 + doubt)])
            if is_shifted(blocks, memory.delta):
                found, first, blocks = [*found, n], n, []
            continue
        surprise = max(0.0, surprise + min(miss**2 / (memory.noise**2 + doubt), 9.0) - memory.slack)
        if surprise > memory.alarm:
            found, first, surprise = [*found, n], n, 0.0
    return found


def is_shifted(blocks: list[list[float]], delta: float) -> bool:
    """The ratio test between any two blocks, newest first; of three as long, two are joined."""
    place = 0
    while place + 2 < len(blocks):
        if len({len(block) for block in blocks[place : place + 3]}) == 1:
            blocks[place + 1 : place + 3] = [blocks[place + 2] + blocks[place + 1]]
        place += 1
    errors = [error for block in reversed(blocks) for error in block]
    cuts = len(errors) - np.cumsum([len(block) for block in blocks])[:-1]
    ratios = [
        sum(np.sum((np.mean(part) - np.mean(errors)) ** 2 * np.ones(len(part))) for part in parts)
        for parts in ((errors[:cut], errors[cut:]) for cut in cuts)
    ]
    return bool(ratios) and 0.5 * max(ratios) >= np.log(3 * len(errors) ** 1.5 / delta)


def weights(memory: Memory, history: History, ridge: float = 1.0) -> Floats:
    """What each observation still counts, (n,)."""
    ages = np.arange(len(history.ys))[::-1].astype(np.float64)
    if memory.name in ("discount", "fading_prior", "kalman", "one_pass"):
        return np.array([(memory.rho or memory.gamma) ** age for age in ages])
    if memory.name in DROP_WHEN_LEARNING[:2]:
        first = max([0, *alarms(memory, ridge, history.xs, history.ys)])
        return np.where(np.arange(len(ages)) >= first, 1.0, 0.0)
    if memory.name == "half_life":
        newest = history.rounds.max() if len(history.rounds) else 0
        return np.asarray(0.5 ** ((newest - history.rounds) / memory.span))
    if memory.name == "window":
        return np.where(ages < memory.rounds, 1.0, 0.0)
    return np.where(history.rounds >= born(memory, history.now), 1.0, 0.0)


def solve(matrix: Floats, right: Floats) -> Floats:
    """The u with matrix·u = right."""
    return np.linalg.solve(matrix, right).astype(np.float64)


def prior(memory: Memory, ridge: float, n: int) -> float:
    """λ or, if it fades, λ·max(γⁿ, least) after n observations."""
    return ridge * max(memory.gamma**n, memory.least) if memory.least < 1 else ridge


def estimate(memory: Memory, ridge: float, history: History) -> Estimate:
    """W = λI + Σ w·xxᵀ, W̃ = λI + Σ w²·xxᵀ, b = Σ w·xy, θ̂ = W⁻¹b, V⁻¹ = W⁻¹W̃W⁻¹."""
    w, xs, ys = weights(memory, history, ridge), history.xs, history.ys
    identity = np.eye(xs.shape[1])
    if memory.name == "directional":
        theta, W = forget_along(memory, ridge, xs, ys)
        return Estimate(W, W, W @ theta, theta, solve(W, identity))
    if memory.name == "one_pass":
        theta, W, _ = descend(memory, ridge, xs, ys)
        return Estimate(W, W, W @ theta, theta, solve(W, identity))
    if memory.name in ("kalman", "parts"):
        follow = kalman if memory.name == "kalman" else fit_parts
        mean, covariance = follow(memory, ridge, xs, ys)
        W = solve(covariance, identity)
        return Estimate(W, W, W @ mean, mean, covariance)
    ridge = prior(memory, ridge, len(ys))
    W = ridge * identity + (w[:, None] * xs).T @ xs
    W_noise = ridge * identity + (w[:, None] ** 2 * xs).T @ xs
    b = (w[:, None] * xs).T @ ys
    if memory.single:
        W_noise = W
    half = solve(W, W_noise)
    return Estimate(W, W_noise, b, solve(W, b), solve(W, half.T))


def kalman(
    memory: Memory, ridge: float, xs: Floats, ys: Floats, strays: Floats | None = None
) -> tuple[Floats, Floats]:
    """The textbook filter of θ ← ρθ + N(0, (1−ρ²)I/λ), y = xᵀθ + N(0, σ²), in Joseph's form.

    `strays`, (n + 1, d), are added to the first mean and, by (1−ρ²)^½, to that of every step.
    """
    identity, rho = np.eye(xs.shape[1]), memory.rho
    strays = np.zeros((len(ys) + 1, xs.shape[1])) if strays is None else strays
    mean, covariance = strays[0], identity / ridge
    for x, y, stray in zip(xs, ys, strays[1:], strict=True):
        mean = rho * mean + np.sqrt(1 - rho**2) * stray
        covariance = rho**2 * covariance + (1 - rho**2) / ridge * identity
        gain = covariance @ x / (x @ covariance @ x + memory.noise**2)
        mean = mean + gain * (y - x @ mean)
        left = identity - np.outer(gain, x)
        covariance = left @ covariance @ left.T + memory.noise**2 * np.outer(gain, gain)
    return mean, covariance


def descend(memory: Memory, ridge: float, xs: Floats, ys: Floats) -> tuple[Floats, Floats, Floats]:
    """θ̂, W and each μ' in it, (n,), under `one_pass`: each θ' minimises a model of the last loss.

    ⟨g, θ'−θ⟩ + ½μ'·(xᵀ(θ'−θ))² + ‖θ'−θ‖²_W/(2η) with g = (μ(xᵀθ) − y)x, then scaled to the ball.
    """
    identity, S = np.eye(xs.shape[1]), memory.theta_norm
    theta, W = np.zeros(len(identity)), ridge * identity
    eta, slopes = 1.0 if memory.link == "identity" else 1.0 + S, []
    for x, y in zip(xs, ys, strict=True):
        bend = slope(memory.link, x @ theta) * np.outer(x, x) + W / eta
        theta = theta - solve(bend, (mean_of(memory.link, x @ theta) - y) * x)
        theta = theta * min(1.0, S / float(np.linalg.norm(theta))) if theta.any() else theta
        W = memory.gamma * W + (1 - memory.gamma) * ridge * identity
        slopes.append(slope(memory.link, x @ theta))
        W = W + slopes[-1] * np.outer(x, x)
    return theta, W, np.array(slopes)


def forget_along(memory: Memory, ridge: float, xs: Floats, ys: Floats) -> tuple[Floats, Floats]:
    """θ̂ and W: of W, the part parallel to x is kept by γ and the rest wholly, then xxᵀ is added."""
    theta, W = np.zeros(xs.shape[1]), ridge * np.eye(xs.shape[1])
    for x, y in zip(xs, ys, strict=True):
        parallel = np.outer(W @ x, W @ x) / (x @ W @ x)
        kept = memory.along if x @ x >= memory.least_square else 1.0
        faded = (W - parallel) + kept * parallel
        W = faded + np.outer(x, x)
        theta = solve(W, faded @ theta + x * y)
    return theta, W


def slope(link: str, score: float) -> float:
    """μ'(u)."""
    mu = float(mean_of(link, np.array([score]))[0])
    return {"identity": 1.0, "logistic": mu * (1 - mu), "poisson": mu}[link]


def fit_parts(memory: Memory, ridge: float, xs: Floats, ys: Floats) -> tuple[Floats, Floats]:
    """The mean and covariance of θ now, under `parts`.

    Given variances make it a regression with the kernel Σ v_s·2^{−|i−j|/h_s}·x_iᵀx_j.
    """
    if memory.finds:
        return find_parts(memory, ridge, xs, ys)[:2]
    n, halves = len(ys), np.array(memory.half_lives)
    steps, v = np.arange(n), np.array(memory.shares) / ridge
    kernel = (0.5 ** (np.abs(steps[:, None] - steps)[..., None] / halves)) @ v
    cross = (0.5 ** ((n - 1 - steps)[:, None] / halves) @ v)[:, None] * xs
    both = solve(kernel * (xs @ xs.T) + np.eye(n), np.column_stack([ys, cross]))
    covariance = v.sum() * np.eye(xs.shape[1]) - cross.T @ both[:, 1:]
    return cross.T @ both[:, 0], covariance


def log_density(error: float, variance: float) -> float:
    """log N(error; 0, variance), which scipy.stats computes a hundred times as slowly."""
    return -0.5 * float(np.log(2 * np.pi * variance) + error**2 / variance)


def find_parts(
    memory: Memory, ridge: float, xs: Floats, ys: Floats
) -> tuple[Floats, Floats, float]:
    """The same if variances are found, and the noise σ̂, by the rules in the order of the text."""
    d, halves = xs.shape[1], np.array(memory.half_lives)
    if not len(ys):
        return np.zeros(d), np.eye(d) / ridge, 0.5
    count, first = len(halves), min(1 / (xs[0] @ xs[0]), 1e8 / ridge)
    v0 = first * np.array(memory.shares)
    v, m, P = v0.copy(), np.zeros(count * d), np.kron(np.diag(v0), np.eye(d))
    still, Q, still_v = np.zeros(d), first * np.eye(d), first
    odds, squares, determined = 1.0, np.zeros(count), np.zeros(count)
    errors = weight = 0.0
    total = np.tile(np.eye(d), count)
    for n, (x, y) in enumerate(zip(xs, ys, strict=True), 1):
        fade = np.repeat(0.5 ** (1 / halves), d)
        m, P = fade * m, np.outer(fade, fade) * P + np.diag((1 - fade**2) * np.repeat(v, d))
        noise, u = (0.5 + errors) / (2 + weight), np.tile(x, count)
        c, e, k, miss = 1 + u @ P @ u, y - u @ m, 1 + x @ Q @ x, y - x @ still
        m, P = m + P @ u * e / c, P - np.outer(P @ u, P @ u) / c
        still, Q = still + Q @ x * miss / k, Q - np.outer(Q @ x, Q @ x) / k
        still_score, parts_score = log_density(miss, noise * k), log_density(e, noise * c)
        odds = np.clip(odds + still_score - parts_score, -5, 5)
        errors = 0.9995 * errors + (miss**2 / k if odds > 0 else e**2 / c)
        weight = 0.9995 * weight + 1
        noise = (0.5 + errors) / (2 + weight)
        is_due = n >= 8 and n.bit_count() == 1  # a power of two
        determined = 0.9995 * determined + d - np.diag(P).reshape(count, d).sum(1) / v
        squares = 0.9995 * squares + (m.reshape(count, d) ** 2).sum(1) / noise
        found = (10 * v0 + squares) / (10 + determined)
        found = np.maximum(found, 0.1 * np.array(memory.shares) * v.sum())
        is_young = halves > 2 * n
        if is_due:
            more = np.where(is_young, 1 / found - 1 / v, 0.0)
            inverse = np.linalg.inv(P)
            P = np.linalg.inv(inverse + np.diag(np.repeat(more, d)))
            m = P @ inverse @ m
            if still_v:
                better = (2 * first + still @ still / noise) / (2 + d - np.trace(Q) / still_v)
                inverse = np.linalg.inv(Q)
                Q = np.linalg.inv(inverse + (1 / better - 1 / still_v) * np.eye(d))
                still, still_v = Q @ inverse @ still, better
        v = np.where(is_due | ~is_young, found, v)
        if odds <= -5:
            odds, still, still_v = -2.5, total @ m, 0.0
            Q = total @ P @ total.T + v.sum() * np.eye(d)
    mean, covariance = (still, Q) if odds > 0 else (total @ m, total @ P @ total.T)
    return mean, covariance, float(np.sqrt((0.5 + errors) / (2 + weight)))


class Running:
    """The same by the recursions of the paper's table, for histories too long to go through."""

    def __init__(self, memory: Memory, ridge: float, dim: int) -> None:
        self.memory, self.ridge = memory, ridge
        self.W, self.W_noise = ridge * np.eye(dim), ridge * np.eye(dim)
        self.b = np.zeros(dim)
        self.kept: list[tuple[Floats, float]] = []
        self.before = self.W, self.b  # W and θ̂ before the next observation, under `directional`
        self.shares = (1.0, 1.0)  # of the ridge before and after the last observation

    def tick(self, now: int) -> None:
        """A round begins: restarts drop everything."""
        if now > 0 and born(self.memory, now) == now:
            self.__init__(self.memory, self.ridge, len(self.b))  # type: ignore[misc]

    def learn(self, x: Floats, y: float) -> None:
        """W ← γW + xxᵀ + (1−γ)λI, W̃ ← γ²W̃ + xxᵀ + (1−γ²)λI, b ← γb + xy."""
        g, ridge = self.memory.gamma, self.ridge * np.eye(len(x))
        self.W = g * self.W + np.outer(x, x) + (1 - g) * ridge
        self.W_noise = g**2 * self.W_noise + np.outer(x, x) + (1 - g**2) * ridge
        self.b = g * self.b + x * y
        if self.memory.name == "fading_prior":  # W ← γW + xxᵀ, until λ_min(W) reaches the least
            self.shares = (self.shares[1], max(g * self.shares[1], self.memory.least))
            self.W += (self.shares[1] - g * self.shares[0] - (1 - g)) * ridge
        if self.memory.name == "directional":
            before, theta = self.before
            kept = self.memory.along if x @ x >= self.memory.least_square else 1.0
            faded = before - (1 - kept) * np.outer(before @ x, before @ x) / (x @ before @ x)
            self.W = self.W_noise = faded + np.outer(x, x)
            self.b = faded @ theta + x * y
            self.before = self.W, solve(self.W, self.b)
        if self.memory.name == "window":
            self.kept = [*self.kept, (x, y)][-self.memory.rounds :]
            self.W = self.W_noise = ridge + sum(np.outer(x, x) for x, _ in self.kept)
            self.b = np.sum([x * y for x, y in self.kept], axis=0)

    def estimate(self) -> Estimate:
        """What follows now."""
        if self.memory.single:
            self.W_noise = self.W
        half = solve(self.W, self.W_noise)
        theta = solve(self.W, self.b)
        return Estimate(self.W, self.W_noise, self.b, theta, solve(self.W, half.T))


def radius(memory: Memory, ridge: float, history: History, promise: Confidence) -> float:
    """β_n = √λ·S + σ√(2·log(1/δ) + d·log(1 + L²·m_n/(λd))), m_n = Σ w²."""
    w = weights(memory, history, ridge)
    drops = memory.name in ("restart", "restart_at", *DROP_WHEN_LEARNING)
    n = int(np.count_nonzero(w)) if drops else len(w)
    return radius_of(float(np.sum(w**2)), n, history.xs.shape[1], ridge, promise)


def radius_of(m: float, n: int, d: int, ridge: float, promise: Confidence) -> float:
    """The radius for m = Σ w² over n observations in d dimensions."""
    n = max(n, 1)
    delta = {
        "round": promise.delta,
        "horizon": promise.delta / promise.horizon,
        "anytime": promise.delta / (2 * n * (1 + np.log(n)) ** 2),
    }[promise.when]
    inside = 2 * np.log(1 / delta) + d * np.log(1 + promise.arm_norm**2 * m / (ridge * d))
    return float(np.sqrt(ridge) * promise.theta_norm + promise.noise * np.sqrt(inside))


def standard_error(memory: Memory, ridge: float, history: History) -> float:
    """e/√S of the last observation, learned in the round in which it was chosen.

    e = y − xᵀθ̂ and S = 1 + xᵀV⁻¹x, both from the observations before it. A Kalman filter first
    moves θ by one step, and its V⁻¹ counts in units of σ². What is dropped is dropped before.
    """
    n, x, y, rounds = len(history.ys) - 1, history.xs[-1], history.ys[-1], history.rounds
    first = 0
    if memory.name in DROP_WHEN_LEARNING:
        first = int(np.argmax(weights(memory, history, ridge)))
        memory = Memory("keep")
    before = History(history.xs[first:n], history.ys[first:n], rounds[first:n], int(rounds[n]))
    now = estimate(memory, ridge, before)
    mean, covariance, unit = now.theta, now.V_inverse, 1.0
    if memory.name == "parts":  # what is learned next sees θ after one more step
        more = np.vstack([history.xs[:n], np.zeros(len(x))])
        mean, covariance = fit_parts(memory, ridge, more, np.append(history.ys[:n], 0.0))
    if memory.name == "one_pass":  # Pearson's residual, and that of a score is μ' times as wide
        mu, rate = mean_of(memory.link, x @ mean), slope(memory.link, x @ mean)
        return float((y - mu) / np.sqrt(max(rate, 1e-12) * (1 + rate * (x @ covariance @ x))))
    if memory.name == "directional" and x @ x >= memory.least_square:  # it has forgotten before
        covariance = covariance + (1 / memory.along - 1) * np.outer(x, x) / (x @ now.W @ x)
    if memory.name == "kalman":
        mean, unit = memory.rho * mean, memory.noise**2
        covariance = memory.rho**2 * covariance + (1 - memory.rho**2) / ridge * np.eye(len(x))
    return float((y - x @ mean) / np.sqrt(1 + x @ covariance @ x / unit))


KNOWN_ERRORS: dict[tuple[object, ...], float] = {}  # they never change, and each costs a refit


def standard_errors(memory: Memory, ridge: float, history: History) -> Floats:
    """e/√S of each observation, (n,)."""
    errors = []
    for n in range(1, len(history.ys) + 1):
        part = History(history.xs[:n], history.ys[:n], history.rounds[:n], history.now)
        key = (memory, ridge, *(each.tobytes() for each in part[:3]))
        if key not in KNOWN_ERRORS:
            KNOWN_ERRORS[key] = standard_error(memory, ridge, part)
        errors.append(KNOWN_ERRORS[key])
    return np.array(errors)


def noise_weights(memory: Memory, history: History) -> Floats:
    """What each error still counts in the noise, (n,): a window fades, restarts drop nothing."""
    ages = np.arange(len(history.ys))[::-1].astype(np.float64)
    if memory.name == "parts":
        return np.asarray(0.9995**ages)
    if memory.name == "window":
        return np.asarray((1 - 1 / memory.rounds) ** ages)
    if memory.name in ("restart", "restart_at", *DROP_WHEN_LEARNING):
        return np.ones(len(ages))
    return weights(memory, history)


def noise(memory: Memory, ridge: float, history: History) -> float:
    """σ̂² = (2·0.25 + Σ w·e²/S)/(2 + Σ w)."""
    if memory.finds:
        return find_parts(memory, ridge, history.xs, history.ys)[2]
    w, errors = noise_weights(memory, history), standard_errors(memory, ridge, history)
    return float(np.sqrt((2 * 0.25 + np.sum(w * errors**2)) / (2 + np.sum(w))))


def scale(width: Width, memory: Memory, ridge: float, history: History) -> float:
    """A number, so many times the radius, or a share of the noise."""
    if isinstance(width, Confidence):
        return width.times * radius(memory, ridge, history, width)
    if isinstance(width, Posterior):
        unit = memory.noise if memory.name == "kalman" else 1.0
        return width.share * noise(memory, ridge, history) / unit
    return width


def grid_points(law: Law) -> tuple[Floats, Floats]:
    """RandUCB's points on [0, 1] and their probabilities."""
    points = np.linspace(0.0, 1.0, law.points)
    shape = np.exp(-(points[:-1] ** 2) / (2 * law.sigma**2))
    return points, np.append((1 - law.top) * shape / shape.sum(), law.top)


def quantile(law: Law, u: Floats) -> Floats:
    """The level below which the unit law lies with probability u."""
    if law.name == "normal":
        return np.asarray(stats.norm.ppf(u))
    if law.name == "half_normal":
        return np.asarray(stats.halfnorm.ppf(u))
    points, chances = grid_points(law)
    places = np.searchsorted(np.cumsum(chances), u)
    return np.asarray(points[np.minimum(places, law.points - 1)])


class Draws(NamedTuple):
    """The randomness of one round, made outside."""

    level: float = 0.0  # Z of the unit law
    normals: Floats = np.zeros(0)  # z, (2d,)
    pseudo: Floats = np.zeros(0)  # pseudo-rewards, newest first, then d for the ridge


def sample(
    exploration: Exploration, memory: Memory, ridge: float, history: History, draws: Draws
) -> Floats:
    """θ̃ = W⁻¹(b + a·ξ), ξ ~ N(0, W̃); or θ̂ refitted to rewards each with its pseudo-reward."""
    now = estimate(memory, ridge, history)
    a = scale(exploration.width, memory, ridge, history)
    d, n = history.xs.shape[1], len(history.ys)
    ridge = prior(memory, ridge, n)
    if memory.name == "kalman" and exploration.name == "perturbed_history":
        stirred, strays = draws.pseudo[:n][::-1], draws.pseudo[n:].reshape(n + 1, d)[::-1]
        if exploration.pseudo == "coins":
            return kalman(memory, ridge, history.xs, history.ys + stirred)[0] / (a + 1)
        rewards = history.ys + a * memory.noise * stirred
        return kalman(memory, ridge, history.xs, rewards, a * strays / np.sqrt(ridge))[0]
    if exploration.name == "thompson":
        if memory.kind.is_filter:
            stray: Floats = np.linalg.cholesky(now.V_inverse) @ draws.normals[:d]
            return now.theta + a * stray
        if memory.name in ("window", "directional"):
            xi = np.linalg.cholesky(now.W) @ draws.normals[:d]
        else:
            w = weights(memory, history, ridge)[:, None]
            if memory.name == "one_pass":
                w = w * descend(memory, ridge, history.xs, history.ys)[2][:, None]
            root = upper_root((np.sqrt(w) if memory.single else w) * history.xs)
            xi = root.T @ draws.normals[:d] + np.sqrt(ridge) * draws.normals[d:]
        return solve(now.W, now.b + a * xi)
    used = min(n, len(draws.pseudo) - d)
    pseudo = np.zeros(n)
    pseudo[n - used :] = draws.pseudo[:used][::-1]
    w = weights(memory, history, ridge)[:, None]
    wx = w * history.xs
    if exploration.pseudo == "coins":
        return solve(now.W, wx.T @ (history.ys + pseudo) / (a + 1))
    zeta = draws.pseudo[used:]
    sx = a * (np.sqrt(w) if memory.single else w) * history.xs
    return solve(now.W, wx.T @ history.ys + sx.T @ pseudo + a * np.sqrt(ridge) * zeta)


def upper_root(rows: Floats) -> Floats:
    """The upper triangular R with RᵀR = rowsᵀ·rows and no negative number on its diagonal."""
    d = rows.shape[1]
    R: Floats = np.asarray(np.linalg.qr(np.vstack([rows, np.zeros((d, d))]), mode="r"))
    turned: Floats = np.where(np.diag(R) < 0, -1.0, 1.0)[:, None] * R
    return turned


def scores(
    exploration: Exploration,
    memory: Memory,
    ridge: float,
    history: History,
    arms: Floats,
    draws: Draws,
) -> Floats:
    """What the exploration maximises, (K,)."""
    now = estimate(memory, ridge, history)
    if exploration.name in ("greedy", "epsilon", "inverse_gap"):
        return arms @ now.theta
    if exploration.law is None:
        return arms @ sample(exploration, memory, ridge, history, draws)
    a = scale(exploration.width, memory, ridge, history)
    if exploration.name == "optimism":
        return arms @ now.theta + a * now.widths(arms)
    return arms @ now.theta + a * draws.level * now.widths(arms)


def by_gap(scores: Floats, eta: float, chance: float) -> int:
    """The arm at which the chances 1/(K + η·gap), with the rest for the leader last, reach u."""
    gaps = scores.max() - scores
    shares = np.where(gaps > 0, 1 / (len(scores) + eta * gaps), 0.0)
    reached = np.flatnonzero(np.cumsum(shares) > chance)
    return int(reached[0] if reached.size else np.argmax(scores))


def shares_of(totals: Floats) -> Floats:
    """Who is on top, a row a case, split in equal parts among equals."""
    top = totals.max(axis=-1, keepdims=True)
    winners = totals >= top - 1e-12 * np.abs(top)
    return np.asarray(winners / winners.sum(axis=-1, keepdims=True))


def propensities(means: Floats, widths: Floats, law: Law, scale: float) -> Floats:
    """P(arm k is on top of mean + Z·width) by going through the law in two million even steps."""
    if law.name == "grid":
        points, chances = grid_points(law)
        return np.asarray(
            chances @ shares_of(means + scale * points[:, None] * widths), dtype=np.float64
        )
    steps, parts = 2_000_000, 50
    total = np.zeros_like(means)
    for u in np.array_split((np.arange(steps) + 0.5) / steps, parts):
        z = scale * quantile(law, u)
        total += shares_of(means + z[:, None] * widths).sum(axis=0)
    return total / steps


def mean_of(link: str, scores: Floats) -> Floats:
    """μ(u)."""
    return np.asarray(
        {"identity": np.array, "logistic": special.expit, "poisson": np.exp}[link](scores)
    )


def generalized_slopes(
    link: str,
    memory: Memory,
    ridge: float,
    history: History,
    theta: Floats,
    pseudo: Floats | float = 0.0,
    zeta: Floats | float = 0.0,
) -> Floats:
    """Σ w·x(μ(xᵀθ) − y − pseudo) + λθ − √λ·ζ, which is 0 at the estimate."""
    w, xs = weights(memory, history), history.xs
    missed = mean_of(link, xs @ theta) - history.ys - pseudo
    return np.asarray((w * missed) @ xs + ridge * theta - np.sqrt(ridge) * zeta)


def generalized(
    link: str,
    memory: Memory,
    ridge: float,
    history: History,
    pseudo: Floats | float = 0.0,
    zeta: Floats | float = 0.0,
) -> Floats:
    """The penalised maximum-likelihood estimate, found by SciPy from 0."""
    w, xs = weights(memory, history), history.xs

    def height(theta: Floats) -> float:
        u = xs @ theta
        potential = {"identity": u**2 / 2, "logistic": np.logaddexp(0.0, u), "poisson": np.exp(u)}[
            link
        ]
        fit = float(w @ (potential - (history.ys + pseudo) * u))
        return fit + float(ridge * theta @ theta / 2 - np.sum(np.sqrt(ridge) * zeta * theta))

    def slopes(theta: Floats) -> Floats:
        return generalized_slopes(link, memory, ridge, history, theta, pseudo, zeta)

    def bend(theta: Floats) -> Floats:
        mu = mean_of(link, xs @ theta)
        rate = {"identity": np.ones_like(mu), "logistic": mu * (1 - mu), "poisson": mu}[link]
        return np.asarray(ridge * np.eye(xs.shape[1]) + ((w * rate)[:, None] * xs).T @ xs)

    start = np.zeros(xs.shape[1])
    low = optimize.minimize(height, start, jac=slopes, hess=bend, method="trust-exact")
    found = optimize.root(slopes, low.x, jac=bend, tol=1e-14)
    assert np.abs(slopes(found.x)).max() < 1e-9 * (1 + np.abs(xs).sum())
    return np.asarray(found.x)


Row = dict[int, float]  # the entries of a row that are not 0, by index


class DiagonalWeights:
    """A diagonal belief: every weight has a mean, a variance and a time, and fades when it is read.

    The variance of a weight is s = 1/(p + λ) with the precision p from data. It fades by itself,
    from the time at which it was last read: p ← fp and m ← m·fp/(fp + λ)·(p + λ)/p. Its q is the
    same as p with squared weights of observations.
    """

    def __init__(self, memory: Memory, ridge: float) -> None:
        self.memory, self.ridge = memory, ridge
        self.alarms = 0
        self.errors: list[tuple[float, float]] = []  # (time, e²/S) of every prediction
        self.drop()

    def drop(self) -> None:
        """Forget everything."""
        self.now = 0.0  # the number of observations, or the time of the newest choice
        self.surprise = 0.0
        self.ages: list[float] = []  # the time of every observation
        self.means: dict[int, float] = {}
        self.variances: dict[int, float] = {}
        self.squares: dict[int, float] = {}
        self.times: dict[int, float] = {}

    def fade(self, since: float) -> float:
        """What is left of the weight of an observation."""
        if self.memory.name == "half_life":
            return float(0.5 ** ((self.now - since) / self.memory.span))
        return float(self.memory.gamma ** (self.now - since))

    def read(self, i: int) -> tuple[float, float, float]:
        """The mean, the variance and the q of a weight now."""
        if i not in self.times:
            return 0.0, 1 / self.ridge, 0.0
        f = self.fade(self.times[i])
        p = 1 / self.variances[i] - self.ridge
        kept = f * p / (f * p + self.ridge) * (p + self.ridge) / p if p > 0 else 0.0
        return kept * self.means[i], 1 / (f * p + self.ridge), f * f * self.squares[i]

    def deviation(self, i: int) -> float:
        """√W̃/W, or √(1/W) if no squared weights are kept."""
        _, s, q = self.read(i)
        if self.memory.name in ("discount", "half_life") and not self.memory.single:
            return float(np.sqrt(q + self.ridge) * s)
        return float(np.sqrt(s))

    def mean(self, row: Row) -> float:
        """Σ xᵢmᵢ."""
        return sum(x * self.read(i)[0] for i, x in row.items())

    def variance(self, row: Row) -> float:
        """Σ xᵢ²sᵢ."""
        return sum(x * x * self.read(i)[1] for i, x in row.items())

    def width(self, row: Row) -> float:
        """√(Σ xᵢ²W̃ᵢ/Wᵢ²)."""
        return float(np.sqrt(sum((x * self.deviation(i)) ** 2 for i, x in row.items())))

    def mass(self) -> float:
        """Σ of the squared weights of all observations."""
        return sum(self.fade(time) ** 2 for time in self.ages)

    def learn(self, row: Row, y: float, at: float) -> None:
        """e = y − Σ xm, S = 1/w + Σ x²s, m ← m + sxe/S, s ← s − s²x²/S, q ← q + w·(change of p)."""
        memory = self.memory
        if memory.name == "detect" and self.is_alarmed(row, y):
            self.drop()
            self.alarms += 1
        square = (y - self.mean(row)) ** 2 / (1 + self.width(row) ** 2)
        w = 1.0
        if memory.name == "half_life":
            self.now = max(self.now, at) if self.ages else at
            w = self.fade(at)
        else:
            self.now += 1
        self.errors.append((at if memory.name == "half_life" else self.now, square))
        self.ages.append(at if memory.name == "half_life" else self.now)
        if w == 0.0:  # too old to count
            return
        before = {i: self.read(i) for i in row}
        e, S = y - self.mean(row), 1 / w + self.variance(row)
        for i, x in row.items():
            m, s, q = before[i]
            self.means[i] = m + s * x * e / S
            self.variances[i] = s - s * s * x * x / S
            self.squares[i] = q + w * (1 / self.variances[i] - 1 / s)
            self.times[i] = self.now

    def is_alarmed(self, row: Row, y: float) -> bool:
        """One step of the CUSUM of `detect`."""
        memory = self.memory
        doubt = (memory.noise**2 + self.ridge * memory.theta_norm**2) * self.variance(row)
        square = (y - self.mean(row)) ** 2 / (memory.noise**2 + doubt)
        self.surprise = max(0.0, self.surprise + min(square, 9.0) - memory.slack)
        return self.surprise > memory.alarm

    def noise(self) -> float:
        """σ̂² = (2·0.25 + Σ w·e²/S)/(2 + Σ w), where restarts and alarms drop no error."""
        w = [self.fade(time) for time, _ in self.errors]
        total = sum(each * square for each, (_, square) in zip(w, self.errors, strict=True))
        return float(np.sqrt((2 * 0.25 + total) / (2 + sum(w))))

    def scale(self, width: Width, dim: int) -> float:
        """A number, so many times the radius, or a share of the noise."""
        if isinstance(width, Confidence):
            radius = radius_of(self.mass(), len(self.ages), dim, self.ridge, width)
            return width.times * radius
        return width.share * self.noise() if isinstance(width, Posterior) else width


class DiagonalParts(DiagonalWeights):
    """A diagonal belief under `parts`, with all weights of all parts in arrays, (S, d)."""

    def __init__(self, memory: Memory, ridge: float, dim: int) -> None:
        self.dim = dim
        super().__init__(memory, ridge)

    def drop(self) -> None:
        """Forget everything."""
        super().drop()
        self.halves, self.share = np.array(self.memory.half_lives), np.array(self.memory.shares)
        self.p, self.b = np.zeros((2, len(self.halves), self.dim))
        self.still_p, self.still_b = np.zeros((2, self.dim))
        self.determined, self.squares_of_parts = np.zeros((2, len(self.halves)))
        self.still_determined = self.still_squares = 0.0
        self.start(1 / self.ridge, 0.0)

    def start(self, first: float, at: float) -> None:
        """Set the variances before any data."""
        self.first, self.v, self.still_v = first, first * self.share, first
        self.now, self.odds = at, 1.0

    def leads(self) -> bool:
        """Whether the belief that nothing moves chooses."""
        return self.memory.finds and self.odds > 0

    def read_all(self) -> tuple[Floats, Floats]:
        """The means and variances of all weights in the belief that chooses, (d,) each."""
        if self.leads():
            variances = 1 / (self.still_p + 1 / self.still_v)
            return self.still_b * variances, variances
        variances = 1 / (self.p + 1 / self.v[:, None])
        return (self.b * variances).sum(axis=0), variances.sum(axis=0)

    def read(self, i: int) -> tuple[float, float, float]:
        """The mean and the variance of a weight now."""
        means, variances = self.read_all()
        return float(means[i]), float(variances[i]), 0.0

    def noise(self) -> float:
        """σ̂² = (2·0.25 + Σ w·e²/S)/(2 + Σ w) with w = 0.9995^age."""
        w = 0.9995 ** np.arange(len(self.errors))[::-1]
        total = float(w @ np.array([square for _, square in self.errors])) if len(w) else 0.0
        return float(np.sqrt((0.5 + total) / (2 + w.sum())))

    def learn(self, row: Row, y: float, at: float) -> None:
        """All entries of all parts as one row, and the belief that nothing moves beside it."""
        x, h = np.zeros(self.dim), self.halves
        x[list(row)] = list(row.values())
        if not self.ages:
            first = 1 / self.ridge
            if self.memory.finds and x.any():
                first = min(1 / float(x @ x), 1e8 * first)
            self.start(first, at)
        elapsed, age = 1.0, 0.0
        if self.memory.in_time:
            elapsed, age = max(at - self.now, 0.0), max(self.now - at, 0.0)
        self.now = max(self.now, at)
        self.ages.append(at)
        self.p *= 0.5 ** (elapsed / h)[:, None]
        self.b *= 0.5 ** (elapsed / h)[:, None]
        noise, psi = self.noise() ** 2, 0.5 ** (age / h)
        known = 1 + float((1 - psi**2) @ self.v * (x @ x))
        prior = np.repeat(1 / self.v, self.dim)
        p, b, e, S = self.correct(self.p, self.b, prior, np.outer(psi, x), y, known)
        self.p, self.b = p.reshape(self.p.shape), b.reshape(self.b.shape)
        if self.memory.finds:
            still = np.full(self.dim, 1 / self.still_v)
            self.still_p, self.still_b, miss, k = self.correct(
                self.still_p, self.still_b, still, x, y, 1.0
            )
            self.odds += log_density(miss, noise * k) - log_density(e, noise * S)
            self.odds = float(np.clip(self.odds, -5, 5))
            e, S = (miss, k) if self.leads() else (e, S)
        self.errors.append((at, e * e / S))
        if self.memory.finds:
            self.find(x != 0.0)

    def correct(
        self, p: Floats, b: Floats, prior: Floats, u: Floats, y: float, known: float
    ) -> tuple[Floats, Floats, float, float]:
        """Bayes' rule for a prior without correlations; the new p and b, e and S."""
        u, before = u.ravel(), 1 / (p.ravel() + prior)
        means = b.ravel() * before
        e, S = y - float(u @ means), known + float(u**2 @ before)
        after, moved = before - (before * u) ** 2 / S, means + before * u * e / S
        return 1 / after - prior, moved / after, e, S

    def find(self, own: npt.NDArray[np.bool_]) -> None:
        """Find variances from the weights of a row; let the still belief start again."""
        noise = self.noise() ** 2
        s, still_s = 1 / (self.p + 1 / self.v[:, None]), 1 / (self.still_p + 1 / self.still_v)
        m, still_m = self.b * s, self.still_b * still_s
        determined = (1 - s / self.v[:, None])[:, own].sum(axis=1)
        self.determined = 0.9995 * self.determined + determined
        squares = (m**2)[:, own].sum(axis=1) / noise
        self.squares_of_parts = 0.9995 * self.squares_of_parts + squares
        found = (10 * self.first * self.share + self.squares_of_parts) / (10 + self.determined)
        self.v = np.maximum(found, 0.1 * self.share * self.v.sum())
        more = (1 - still_s / self.still_v)[own].sum(), (still_m**2)[own].sum() / noise
        self.still_determined = 0.9995 * self.still_determined + more[0]
        self.still_squares = 0.9995 * self.still_squares + more[1]
        self.still_v = (2 * self.first + self.still_squares) / (2 + self.still_determined)
        if self.odds <= -5:
            means, variances = self.read_all()
            self.odds = -2.5
            self.still_p = np.maximum(1 / (variances + self.v.sum()) - 1 / self.still_v, 0.0)
            self.still_b = means * (self.still_p + 1 / self.still_v)
