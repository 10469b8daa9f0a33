"""Memories: the rules by which past observations fade.

Most memories answer three questions. By what factor does an observation fade when the next one is
learned? After how many observations is an observation dropped? When are all observations dropped?

| memory            | fades by    | dropped after  | all dropped                | clock           |
|-------------------|-------------|----------------|----------------------------|-----------------|
| `keep()`          | 1           | never          | never                      | none            |
| `discount(γ)`     | γ           | never          | never                      | observations    |
| `half_life(h)`    | ½ in h      | never          | never                      | rounds, or time |
| `window(w)`       | 1           | w observations | never                      | observations    |
| `restart(H)`      | 1           | never          | before rounds H, 2H, 3H, … | rounds          |
| `restart_at(R)`   | 1           | never          | before each round in R     | rounds          |
| `detect(σ)`       | 1           | never          | when an alarm is raised    | observations    |
| `kalman(ρ, σ)`    | filter gain | never          | never                      | observations    |
| `parts(h₁, …)`    | filter gain | never          | never                      | observations    |
| `fading_prior(γ)` | γ           | never          | never                      | observations    |
| `one_pass(μ, γ)`  | γ           | never          | never                      | observations    |
| `directional(γ)`  | γ along x   | never          | never                      | observations    |
| `detect_shift(σ)` | 1           | never          | when an alarm is raised    | observations    |

An observation is a reward that was learned. A round is an arm set that was chosen from. A round
without a reward does not change `keep`, `discount` and `window`; `restart` and `restart_at` count
it. A reward that arrives after a restart, for a choice made before the restart, is dropped.

Each factory is entered in `MEMORIES` with what its memories can do. Everything else follows from
these entries: the text form, the checks, the tables of capabilities and the test grid.
"""

import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Literal

from windvane import validation
from windvane.beliefs import links
from windvane.errors import SettingError, shorten
from windvane.settings import HalfLife, format_half_life, parse_half_life
from windvane.validation import Entry, Registry

MOST_PARTS = 4
LEAST_PRIOR = 1e-4  # a smaller share of the ridge would leave too few digits in W⁻¹

__all__ = [
    "Memory",
    "detect",
    "detect_shift",
    "directional",
    "discount",
    "fading_prior",
    "half_life",
    "kalman",
    "keep",
    "one_pass",
    "parts",
    "restart",
    "restart_at",
    "window",
]


@dataclass(frozen=True)
class Memory:
    """A rule by which past observations fade; made by the functions below.

    >>> discount(0.99) == Memory("discount", gamma=0.99)
    True
    """

    name: str
    gamma: float = 1.0  # γ
    single: bool = False  # whether W⁻¹ stands for V⁻¹, so that W̃ is not kept
    least: float = 1.0  # the share of the ridge down to which it fades
    along: float = 1.0  # γ in the direction of each new observation
    least_square: float = 0.0  # ‖x‖² below which an observation forgets nothing
    rounds: int = 0  # the length of a window, in observations
    every: int = 0  # H, rounds between two restarts
    at: tuple[int, ...] = ()  # rounds before which everything is dropped
    span: float = 0.0  # a half-life, in rounds or in units of time
    rho: float = 0.0  # ρ
    noise: float = 0.0  # σ
    theta_norm: float = 0.0  # S
    link: str = ""  # of one_pass
    slack: float = 0.0
    alarm: float = 0.0
    delta: float = 0.0  # δ of detect_shift
    half_lives: tuple[float, ...] = ()  # of the parts of θ, in observations or in seconds
    in_time: bool = False  # whether the parts fade with time
    shares: tuple[float, ...] = ()  # of the parts in the first variance of θ
    finds: bool = False  # whether the variances of the parts are found from the rewards

    @property
    def kind(self) -> "MemoryKind":
        """The entry of the registry that says what this memory can do."""
        return MEMORIES[self.name]

    @property
    def first_restart(self) -> int:
        """The first round before which everything is dropped, or -1 if there is none."""
        return self.next_restart(-1 if self.at else 0)

    def next_restart(self, after: int) -> int:
        """The first restart in a round later than `after`, or -1 if there is none."""
        if self.every:
            return (after // self.every + 1) * self.every
        place = bisect_right(self.at, after)
        return self.at[place] if place < len(self.at) else -1

    @property
    def effective_length(self) -> float:
        """Σ of the weights after many observations: w, 1/(1−γ), or infinity if it has no limit."""
        if self.rounds:
            return self.rounds
        return math.inf if self.gamma == 1.0 else 1.0 / (1.0 - self.gamma)

    def reach(self, least: float) -> int | None:
        """After how many later observations one counts less than `least`; None if unknown."""
        if self.rounds:
            return self.rounds
        fade = self.rho or self.gamma
        if fade == 1.0:
            return None
        return math.ceil(math.log(least) / math.log(fade))

    def __repr__(self) -> str:
        return self.kind.format(self)


@dataclass(frozen=True)
class MemoryKind(Entry[Memory]):
    """An entry of the registry: a factory and what its memories can do."""

    _: KW_ONLY
    fades: bool = False  # weights fall below 1, so that W̃ differs from W
    is_timed: bool = False  # a weight follows from the time of the choice
    is_filter: bool = False  # the belief is the mean and covariance of a filter, not sums
    keeps_history: bool = False  # past observations are needed, one by one, to drop them
    raises_alarms: bool = False  # an observation may drop everything before it
    mergeable: bool = False  # two beliefs can be merged, and a policy can be given a belief
    amendable: bool = False  # the weight of an old observation is known, so a reward can grow
    works_with_link: bool = False  # GeneralizedPolicy accepts it
    works_with_history: bool = False  # perturbed_history can go through past observations
    diagonal: bool = False  # a diagonal belief has it
    large: bool = False  # above 128 dimensions, the matrices of a full belief may wait for it
    sized_by: Literal["", "gamma", "length"] = ""  # the number that adaptive policies vary


MEMORIES = Registry[MemoryKind, Memory]("memory", Memory, "discount(0.99)")
_register = MEMORIES.make_registrar(MemoryKind)
names_of = MEMORIES.names_of
read_memory = MEMORIES.read
as_memory = MEMORIES.accept


def memory_of_size(who: str, family: str, length: int, gamma: float) -> Memory:
    """The memory of a family that holds about `length` observations.

    >>> memory_of_size("tune", "window", 20, 0.95), memory_of_size("tune", "discount", 20, 0.95)
    (window(20), discount(0.95))
    """
    families = names_of(lambda kind: bool(kind.sized_by))
    if family not in families:
        hint = validation.suggest(family, families)
        raise SettingError(
            f"{who}: family must be one of {', '.join(families)}, got {shorten(family)}{hint}"
        )
    kind = MEMORIES[family]
    return kind.factory(gamma if kind.sized_by == "gamma" else length)


@_register(
    symbols="keep()",
    examples=("keep()",),
    mergeable=True,
    amendable=True,
    works_with_link=True,
    diagonal=True,
    large=True,
    works_with_history=True,
)
def keep() -> Memory:
    """Forget nothing: W = λI + Σ xxᵀ.

    >>> keep()
    keep()

    Abbasi-Yadkori, Pál & Szepesvári (2011), "Improved algorithms for linear stochastic bandits".
    """
    return Memory("keep")


@_register(
    symbols="discount(γ)",
    examples=("discount(0.9)", "discount(0.999)", "discount(0.95, single=True)"),
    fades=True,
    mergeable=True,
    works_with_link=True,
    sized_by="gamma",
    diagonal=True,
    large=True,
    works_with_history=True,
)
def discount(gamma: float, single: bool = False) -> Memory:
    """Let each observation fade by γ whenever another one is learned.

    W ← γW + xxᵀ + (1−γ)λI,  W̃ ← γ²W̃ + xxᵀ + (1−γ²)λI,  b ← γb + xy

    The uncertainty is V⁻¹ = W⁻¹W̃W⁻¹. With `single` it is W⁻¹, as in LB-WeightUCB, without W̃.

    >>> discount(0.99)
    discount(0.99)
    >>> discount(0.99, single=True)
    discount(0.99, single=True)

    Kim & Tewari (2020), §3.2, after Russac, Vernade & Cappé (2019), "Weighted linear bandits for
    non-stationary environments"; `single`: Wang, Zhao & Zhou (2023).
    """
    gamma = validation.inside("discount", "gamma", gamma)
    single = validation.of_kind("discount", "single", single, bool)
    return Memory("discount", gamma=gamma, single=single)


@_register(
    symbols="half_life(h)",
    examples=("half_life(20.0)", "half_life(0.4)"),
    fades=True,
    is_timed=True,
    mergeable=True,
    amendable=True,
    diagonal=True,
    large=True,
    works_with_history=True,
)
def half_life(span: float) -> Memory:
    """Let each observation count half after a span of rounds, or of time if `learn` gets `at`.

    The age of an observation counts from its choice, however late its reward arrives. With
    w = 2^{−age/span}:  W = λI + Σ w·xxᵀ,  W̃ = λI + Σ w²·xxᵀ,  b = Σ w·xy.
    The newest choice that was learned has age 0.

    >>> half_life(7 * 86400.0)                       # a week, if times are in seconds
    half_life(604800.0)

    `discount` with γ = 2^{−1/span} for each unit of a clock: Kim & Tewari (2020), §3.2.
    """
    return Memory("half_life", span=validation.positive("half_life", "span", span))


@_register(
    symbols="window(w)",
    examples=("window(2)", "window(30)"),
    keeps_history=True,
    works_with_link=True,
    sized_by="length",
    works_with_history=True,
)
def window(rounds: int) -> Memory:
    """Keep the last `rounds` observations: W = λI + Σ xxᵀ over these.

    >>> window(500)
    window(500)

    Cheung, Simchi-Levi & Zhu (2019), "Learning to optimize under non-stationarity".
    """
    return Memory("window", rounds=validation.whole("window", "rounds", rounds))


@_register(
    symbols="restart(H)",
    examples=("restart(25)",),
    sized_by="length",
    diagonal=True,
    large=True,
    works_with_history=True,
)
def restart(every: int) -> Memory:
    """Keep everything, and drop all of it before rounds H, 2H, 3H, … (the first round is 0).

    W = λI + Σ xxᵀ over the observations chosen since the last restart.

    >>> restart(1000)
    restart(1000)

    Zhao, Zhang, Jiang & Zhou (2020), "A simple approach for non-stationary linear bandits".
    """
    return Memory("restart", every=validation.whole("restart", "every", every))


@_register(
    symbols="restart_at(R)",
    examples=("restart_at([0, 10, 45])",),
    arguments=lambda memory: [list(memory.at)],
    diagonal=True,
    large=True,
    works_with_history=True,
)
def restart_at(rounds: Iterable[int]) -> Memory:
    """Keep everything, and drop all of it before each given round (the first round is 0).

    W = λI + Σ xxᵀ over the observations chosen since the last restart.

    >>> restart_at([4000, 2000])
    restart_at([2000, 4000])

    The oracle restart of LinTS-OR: Kim & Tewari (2020), §4.
    """
    restarts = validation.check_sequence("restart_at", "rounds", rounds)
    places = {validation.whole("restart_at", "a round", place, least=0) for place in restarts}
    return Memory("restart_at", at=tuple(sorted(places)))


@_register(
    symbols="detect(σ)",
    examples=("detect(0.2, alarm=6.0)",),
    raises_alarms=True,
    diagonal=True,
    works_with_history=True,
)
def detect(
    noise: float = 1.0, theta_norm: float = 1.0, slack: float = 1.4, alarm: float = 25.0
) -> Memory:
    """Keep everything until rewards no longer match the predictions, then drop all of it.

    r² = (y − xᵀθ̂)² / (σ² + (σ² + λS²)‖x‖²_{W⁻¹}),  C ← max(0, C + min(r², 9) − slack)

    If C > alarm, all observations are dropped, except the one that raised the alarm.

    >>> detect(noise=0.4)
    detect(0.4, 1.0, 1.4, 25.0)

    A CUSUM test, after Page (1954), "Continuous inspection schemes".
    """
    return Memory(
        "detect",
        noise=validation.positive("detect", "noise", noise),
        theta_norm=validation.not_negative("detect", "theta_norm", theta_norm),
        slack=validation.positive("detect", "slack", slack),
        alarm=validation.positive("detect", "alarm", alarm),
    )


@_register(
    symbols="kalman(ρ, σ)", examples=("kalman(0.97, 0.5)",), is_filter=True, works_with_history=True
)
def kalman(rho: float, noise: float = 1.0) -> Memory:
    """Assume that θ drifts, θ ← ρθ + N(0, (1−ρ²)I/λ), and track it with a Kalman filter.

    Σ ← ρ²Σ + (1−ρ²)I/λ,  μ ← ρμ;  then, with p = Σx and c = σ² + xᵀp:
    μ ← μ + p(y − xᵀμ)/c,  Σ ← Σ − ppᵀ/c;  θ̂ = μ and V⁻¹ = Σ.

    >>> kalman(0.999, noise=0.5)
    kalman(0.999, 0.5)

    Kalman (1960), "A new approach to linear filtering and prediction problems".
    """
    return Memory(
        "kalman",
        rho=validation.inside("kalman", "rho", rho),
        noise=validation.positive("kalman", "noise", noise),
    )


DEFAULT_HALF_LIVES = (50.0, 1000.0)  # observations


@_register(
    symbols="parts(h₁, …)",
    examples=("parts(20.0, 200.0)", "parts(5.0, 'never', shares=[0.5, 0.5])"),
    arguments=lambda memory: _write_parts(memory),
    is_filter=True,
    diagonal=True,
)
def parts(*half_lives: float | str, shares: Sequence[float] = ()) -> Memory:
    """Assume that θ is still, or a sum of parts that fade at different speeds; nothing is tuned.

    θ = θ₁ + … + θ_S, where part s moves by θ_s ← φ_s·θ_s + N(0, (1−φ_s²)v_s·I), φ_s = 2^{−1/h_s}:
    a Gaussian process in time, followed by an exact Kalman filter of S·d numbers. What changes
    quickly goes into the fast parts, and moves into the slow ones if it stays.

    Half-lives are numbers of observations, or texts such as "1 day" if `learn` gets `at` in
    seconds. The last one can be "never". Without `shares`, the variances v_s are found from the
    rewards, and a second filter believes that θ is still, until rewards say that it has moved. With
    `shares`, v_s is the share of part s, divided by the sum of all and by the ridge, and stays so.
    In a diagonal belief each part of a weight is one more entry of a row, without correlations.

    >>> parts(), parts("1 day", "30 days")
    (parts(50.0, 1000.0), parts('1 day', '30 days'))
    >>> parts(100, "never", shares=[1, 3])
    parts(100.0, 'never', shares=[0.25, 0.75])

    Rasmussen & Williams (2006), "Gaussian processes for machine learning", for the processes; how
    stillness is judged and renewed is Windvane's own.
    """
    spans, in_time = _read_half_lives(half_lives or DEFAULT_HALF_LIVES)
    given = validation.check_sequence("parts", "shares", shares)
    if given and len(given) != len(spans):
        raise SettingError(f"parts: shares must be {len(spans)}, one a part, got {len(given)}")
    own = [validation.positive("parts", "a share", each) for each in given]
    own = own or [float(place + 1) for place in range(len(spans))]  # slow parts move more
    whole = sum(own)
    return Memory(
        "parts",
        half_lives=spans,
        in_time=in_time,
        shares=tuple(each / whole for each in own),
        finds=not given,
    )


def _read_half_lives(half_lives: Sequence[float | str]) -> tuple[tuple[float, ...], bool]:
    """Return half-lives in observations or in seconds, and whether they are in seconds."""
    spans: list[float] = []
    units = set()
    for each in half_lives:
        read = parse_half_life(each) if isinstance(each, str) else each
        if read is not None:
            units.add(isinstance(read, HalfLife) and not read.in_rounds)
        span = read.length if isinstance(read, HalfLife) else read
        spans.append(
            math.inf if span is None else validation.positive("parts", "a half-life", span)
        )
    shown = shorten(list(half_lives))
    if len(spans) > MOST_PARTS or spans != sorted(set(spans)) or len(units) != 1:
        raise SettingError(
            f"parts: half-lives must be up to {MOST_PARTS} in rising order, all in observations "
            f'or all texts such as "1 day", and "never" may be the last, got {shown}'
        )
    return tuple(spans), units.pop()


def _write_parts(memory: Memory) -> list[object]:
    """Return the arguments with which `parts` makes a memory again."""
    spans: list[object] = [
        format_half_life(span) if memory.in_time or math.isinf(span) else span
        for span in memory.half_lives
    ]
    return [spans, [] if memory.finds else list(memory.shares)]


@_register(
    symbols="fading_prior(γ)",
    examples=("fading_prior(0.95, 0.05)",),
    fades=True,
    works_with_history=True,
)
def fading_prior(gamma: float, least: float = 0.01) -> Memory:
    """Let the prior fade with the observations: the posterior, to the power γ, is the next prior.

    W ← γW + xxᵀ,  b ← γb + xy,  θ̂ = W⁻¹b and V⁻¹ = W⁻¹, from W = λI and b = 0

    What is left of the prior is λγⁿ·I. It stops to fade at the share `least` of λ, so that no
    eigenvalue of W falls below it, also in directions in which nothing is observed any more.

    >>> fading_prior(0.99)
    fading_prior(0.99, 0.01)

    Werge, Wu, Akgül & Kandemir (2026), "Weighted sequential Bayesian inference for non-stationary
    linear contextual bandits" (WSB); the least share is Windvane's own.
    """
    gamma = validation.inside("fading_prior", "gamma", gamma)
    least = validation.share("fading_prior", "least", least)
    if least < LEAST_PRIOR:
        raise SettingError(f"fading_prior: least must be at least {LEAST_PRIOR:g}, got {least!r}")
    return Memory("fading_prior", gamma=gamma, single=True, least=least)


@_register(
    symbols="one_pass(μ, γ)",
    examples=("one_pass('identity', 0.97, 0.9)",),
    fades=True,
)
def one_pass(link: str, gamma: float = 1.0, theta_norm: float = 1.0) -> Memory:
    """Follow means μ(xᵀθ) under a link, for clicks and counts, with O(d²) a round and no history.

    One step of mirror descent on the newest loss, with η = 1 + S, or 1 under the identity link:

    θ' = θ̂ − η(μ(xᵀθ̂) − y)·A⁻¹x  with  A = W + η·μ'(xᵀθ̂)·xxᵀ;  θ̂ ← θ'·min(1, S/‖θ'‖)
    W ← γW + (1−γ)λI + μ'(xᵀθ̂)·xxᵀ  with the new θ̂;  V⁻¹ = W⁻¹

    S = `theta_norm` must not be below ‖θ‖, and a larger one learns more slowly. Scores and widths
    are those of xᵀθ: the mean rises with it. With the identity link and γ = 1 it is `keep`, as long
    as ‖θ'‖ ≤ S.

    >>> one_pass("logistic", 0.99, theta_norm=3)
    one_pass('logistic', 0.99, 3.0)

    Zhang, Xu, Zhao & Sugiyama (2025), "Generalized linear bandits: almost optimal regret with
    one-pass update" (GLB-OMD); with γ < 1 after Lee & Oh (2026), "Nonstationary generalized linear
    bandits with discounted online mirror descent" (DOMD-GLB). θ' is scaled back to the ball instead
    of being projected in the norm of A.
    """
    who = "one_pass"
    links.check_link(who, link)
    if gamma != 1.0:
        gamma = validation.inside(who, "gamma", gamma)
    radius = validation.positive(who, "theta_norm", theta_norm)
    return Memory(who, gamma=float(gamma), single=True, link=link, theta_norm=radius)


@_register(
    symbols="directional(γ)",
    examples=("directional(0.9, 0.2)",),
    arguments=lambda memory: [memory.along, memory.least_square],
)
def directional(gamma: float, least_square: float = 0.01) -> Memory:
    """Forget only in the direction of what is learned: a feature seen once a week is kept.

    W ← W − (1−γ)·Wx·xᵀW/(xᵀWx) + xxᵀ, where forgetting leaves θ̂ as it is;  V⁻¹ = W⁻¹

    An observation with ‖x‖² < ε = `least_square` is learned and forgets nothing. So no eigenvalue
    of W falls below min(λ, ε/(1−γ)), whatever is observed.

    >>> directional(0.99)
    directional(0.99, 0.01)

    Lai & Bernstein (2024), "SIFt-RLS: subspace of information forgetting recursive least squares".
    """
    gamma = validation.inside("directional", "gamma", gamma)
    least = validation.positive("directional", "least_square", least_square)
    return Memory("directional", along=gamma, least_square=least)


@_register(
    symbols="detect_shift(σ)",
    examples=("detect_shift(0.2, delta=0.3)",),
    raises_alarms=True,
    works_with_history=True,
)
def detect_shift(noise: float = 1.0, theta_norm: float = 1.0, delta: float = 0.01) -> Memory:
    """Keep everything until the mean of the prediction errors shifts, then drop all of it.

    r = (y − xᵀθ̂)/√(σ² + (σ² + λS²)‖x‖²_{W⁻¹}); of n errors since the last alarm, n₁ old ones with
    mean r̄₁ and n₂ new ones with mean r̄₂: max over splits of n₁n₂(r̄₁ − r̄₂)²/(2n) ≥ log(3n^{3/2}/δ)

    A generalised likelihood ratio for a change at one round. Splits are tried at the ends of blocks
    whose lengths are powers of 2, so that a test costs O(log n). Slow drift raises no alarm for
    long; `detect` also sees errors that only grow.

    >>> detect_shift(noise=0.4)
    detect_shift(0.4, 1.0, 0.01)

    After Besson, Kaufmann, Maillard & Seznec (2022), "Efficient change-point detection for tackling
    piecewise-stationary bandits", and DAL of Gerogiannis, Huang, Bose & Veeravalli (2025).
    """
    who = "detect_shift"
    return Memory(
        who,
        noise=validation.positive(who, "noise", noise),
        theta_norm=validation.not_negative(who, "theta_norm", theta_norm),
        delta=validation.inside(who, "delta", delta),
    )
