"""Explorations: the rules that turn an estimate and its uncertainty into a choice.

An exploration sees the estimate θ̂ = W⁻¹b and the uncertainty V⁻¹, never the memory behind them.

| exploration            | plays the arm with the largest                                  |
|------------------------|-----------------------------------------------------------------|
| `greedy()`             | xᵀθ̂                                                             |
| `epsilon(e)`           | xᵀθ̂, or with probability e an arm chosen uniformly at random    |
| `inverse_gap(η)`       | xᵀθ̂ most often; other arms the less often, the larger their gap |
| `optimism(a)`          | xᵀθ̂ + a‖x‖_{V⁻¹}                                                |
| `randomized(law)`      | xᵀθ̂ + Z‖x‖_{V⁻¹}, one Z ~ law a round for all arms              |
| `thompson(a)`          | xᵀθ̃, θ̃ ~ N(θ̂, a²V⁻¹)                                            |
| `perturbed_history(a)` | xᵀθ̃, θ̃ fitted to the past rewards, each with fresh noise        |

Each factory is entered in `EXPLORATIONS` with what its explorations need and can do. Everything
else follows from these entries: the text form, the checks, the tables of the documentation and the
test grid.
"""

from dataclasses import KW_ONLY, dataclass
from typing import Literal

from windvane import validation
from windvane.errors import SettingError, shorten
from windvane.laws import Law, Posterior, Width, check_width, read_factor
from windvane.validation import Entry, Registry

__all__ = [
    "Exploration",
    "epsilon",
    "greedy",
    "inverse_gap",
    "optimism",
    "perturbed_history",
    "randomized",
    "thompson",
]


Pseudo = Literal["normal", "coins", "evill"]  # laws of the pseudo-rewards of perturbed_history


@dataclass(frozen=True)
class Exploration:
    """A rule that turns belief and uncertainty into a choice; made by the functions below.

    >>> thompson(0.5) == Exploration("thompson", scale=0.5)
    True
    """

    name: str
    law: Law | None = None
    scale: float | Posterior = 0.0  # a, or η of inverse_gap
    chance: float = 0.0  # of an arm chosen uniformly at random
    pseudo: Pseudo = "normal"
    predictive: bool = False  # whether only what future rewards can reveal is sampled

    @property
    def kind(self) -> "ExplorationKind":
        """The entry of the registry that says what this exploration needs and can do."""
        return EXPLORATIONS[self.name]

    @property
    def width(self) -> Width:
        """What multiplies the uncertainty: the scale of the law, or a of an exploration without."""
        return self.law.scale if self.law else self.scale

    @property
    def factor(self) -> float:
        """The number in the width: itself, or the factor of the radius or of the noise."""
        return read_factor(self.width)

    def __repr__(self) -> str:
        return self.kind.format(self)


@dataclass(frozen=True)
class ExplorationKind(Entry[Exploration]):
    """An entry of the registry: a factory and what its explorations need and can do."""

    _: KW_ONLY
    needs: Literal["estimate", "gaps", "widths", "sample", "history"]  # of the belief
    deterministic: bool = False  # the same belief and arms always give the same choice
    by_oracle: bool = False  # needs only argmax xᵀθ over the arms, so action sets work
    works_with_link: bool = False  # what GeneralizedPolicy does


EXPLORATIONS = Registry[ExplorationKind, Exploration]("exploration", Exploration, "thompson(0.5)")
_register = EXPLORATIONS.make_registrar(ExplorationKind)
names_of = EXPLORATIONS.names_of
read_exploration = EXPLORATIONS.read
as_exploration = EXPLORATIONS.accept


@_register(
    symbols="greedy()", examples=("greedy()",), needs="estimate", deterministic=True, by_oracle=True
)
def greedy() -> Exploration:
    """Play the arm with the largest estimate: max xᵀθ̂.

    >>> greedy()
    greedy()

    Bastani, Bayati & Khosravi (2021), "Mostly exploration-free algorithms for contextual bandits".
    """
    return Exploration("greedy")


@_register(symbols="epsilon(e)", examples=("epsilon(0.3)",), needs="estimate")
def epsilon(chance: float) -> Exploration:
    """Play the arm with the largest estimate, but with probability `chance` any arm.

    P(k) = (1−e)·1{k = argmax xᵀθ̂} + e/K

    >>> epsilon(0.1)
    epsilon(0.1)

    Auer, Cesa-Bianchi & Fischer (2002), "Finite-time analysis of the multiarmed bandit problem".
    """
    return Exploration("epsilon", chance=validation.share("epsilon", "chance", chance))


@_register(
    symbols="inverse_gap(η)",
    examples=("inverse_gap(4.0)",),
    arguments=lambda exploration: [exploration.scale],
    needs="gaps",
)
def inverse_gap(eta: float) -> Exploration:
    """Play an arm with a probability that falls with its gap to the best estimate.

    P(k) = 1/(K + η(x_bᵀθ̂ − x_kᵀθ̂)) for every arm k except the best arm b, which gets the rest.

    >>> inverse_gap(30.0)
    inverse_gap(30.0)

    Foster & Rakhlin (2020), "Beyond UCB: optimal and efficient contextual bandits" (SquareCB).
    """
    return Exploration("inverse_gap", scale=validation.not_negative("inverse_gap", "eta", eta))


@_register(
    symbols="optimism(a)",
    examples=("optimism(0.8)", "optimism(confidence(0.05, 0.3, 0.8, 2.0))"),
    arguments=lambda exploration: [exploration.law.scale] if exploration.law else [],
    needs="widths",
    deterministic=True,
)
def optimism(width: Width) -> Exploration:
    """Play the arm with the largest upper confidence bound: max xᵀθ̂ + a‖x‖_{V⁻¹}.

    >>> optimism(2.0)
    optimism(2.0)
    >>> from windvane import confidence
    >>> optimism(confidence(noise=0.4))
    optimism(confidence(0.01, 0.4, 1.0, 1.0))

    Abbasi-Yadkori, Pál & Szepesvári (2011), "Improved algorithms for linear stochastic bandits".
    """
    return Exploration("optimism", law=Law("point", check_width("optimism", "width", width)))


@_register(
    symbols="randomized(law)",
    examples=(
        "randomized(normal(0.7))",
        "randomized(half_normal(0.4 * confidence(0.05, 0.3, 0.8, 2.0)))",
        "randomized(grid(1.5, points=9, sigma=0.4, top=0.01))",
        "randomized(half_normal(posterior(0.5)))",
    ),
    needs="widths",
)
def randomized(law: Law) -> Exploration:
    """Draw the width of the confidence bound: max xᵀθ̂ + Z‖x‖_{V⁻¹}, one Z a round for all arms.

    >>> from windvane import half_normal, posterior
    >>> randomized(half_normal(0.4))
    randomized(half_normal(0.4))
    >>> randomized(half_normal(posterior(0.5)))
    randomized(half_normal(posterior(0.5)))

    Kim & Tewari (2020), §3.3.1 (D-RandLinUCB), after Vaswani et al. (2020).
    """
    if not isinstance(law, Law):
        raise SettingError(
            "randomized: law must be normal(...), half_normal(...) or grid(...), "
            f"got {shorten(law)}"
        )
    return Exploration("randomized", law=law)


@_register(
    symbols="thompson(a)",
    examples=("thompson(0.6)", "thompson(posterior(0.8))"),
    needs="sample",
    by_oracle=True,
)
def thompson(scale: float | Posterior = 1.0, predictive: bool = False) -> Exploration:
    """Play the arm that is best for a sampled parameter: max xᵀθ̃ with θ̃ ~ N(θ̂, a²V⁻¹).

    `predictive`, for the memory `kalman`: sample what all future rewards could reveal of the next
    parameter, so that nothing is spent on what will have changed before it is known. With the
    mean ρμ and the covariance C = ρ²Σ + (1−ρ²)I/λ of that parameter, and δ² = (1−ρ²)/λ:

    θ̃ ~ N(ρμ, a²·C(C + xI/ρ²)⁻¹C),  x = ½(b + √(b² + 4ρ²δ²σ²)),  b = δ² + (1−ρ²)σ²

    if later rounds observe every direction once with noise σ². This is predictive sampling for
    arms that are the unit vectors, where each reward is an AR(1) process of its own.

    >>> thompson(0.5)
    thompson(0.5)
    >>> from windvane import posterior
    >>> thompson(posterior(0.5))
    thompson(posterior(0.5))

    Agrawal & Goyal (2013), "Thompson sampling for contextual bandits with linear payoffs";
    Kim & Tewari (2020), §3.3.2 (D-LinTS); `predictive`: Liu, Kuang & Van Roy (2022),
    "Non-stationary bandit learning via predictive sampling".
    """
    predictive = validation.of_kind("thompson", "predictive", predictive, bool)
    if not isinstance(scale, Posterior):
        scale = validation.not_negative("thompson", "scale", scale)
    return Exploration("thompson", scale=scale, predictive=predictive)


@_register(
    symbols="perturbed_history(a)",
    examples=("perturbed_history(0.6)", "perturbed_history(3, 'coins')"),
    arguments=lambda exploration: [
        int(exploration.factor) if exploration.pseudo == "coins" else exploration.scale,
        exploration.pseudo,
    ],
    needs="history",
    by_oracle=True,
    works_with_link=True,
)
def perturbed_history(scale: float = 1.0, pseudo: Pseudo = "normal") -> Exploration:
    """Play the arm that is best for an estimate fitted, in each round, to perturbed past rewards.

    normal: θ̃ = W⁻¹(Σ w·x(y + a·Z) + a√λ·ζ), Z and ζ standard normal: the law of thompson(a).
    coins:  θ̃ = W⁻¹ Σ w·x(y + Bin(a, ½))/(a+1), as LinPHE, for rewards in [0, 1].
    evill:  Z is √μ'(xᵀθ̂) times a standard normal, under the link of a GeneralizedPolicy: noise as
            large as that of a reward of its mean. Without a link μ' = 1: the same as normal.

    The policy keeps the features that it has learned from.

    >>> perturbed_history(0.5)
    perturbed_history(0.5)
    >>> perturbed_history(2, pseudo="coins")
    perturbed_history(2, 'coins')

    Kveton, Szepesvári, Ghavamzadeh & Boutilier (2019), "Perturbed-history exploration in
    stochastic linear bandits"; evill: Janz, Liu, Ayoub & Szepesvári (2024), "Exploration
    via linearly perturbed loss minimisation".
    """
    who = "perturbed_history"
    if pseudo == "coins":
        count = validation.whole(who, "the number of coins", scale)
        if count > 64:
            raise SettingError(f"{who}: the number of coins must be at most 64, got {scale!r}")
    elif pseudo not in ("normal", "evill"):
        raise SettingError(f"{who}: pseudo must be 'normal', 'coins' or 'evill', got {pseudo!r}")
    return Exploration(who, scale=validation.not_negative(who, "scale", scale), pseudo=pseudo)
