"""GeneralizedPolicy: clicks, counts and other rewards under a link function (FPL-GLM)."""

from collections.abc import Sequence
from functools import cached_property
from types import ModuleType
from typing import TYPE_CHECKING, ClassVar, NoReturn

import numpy as np
import numpy.typing as npt

from windvane import persistence, validation
from windvane.beliefs import links
from windvane.beliefs.chooser import Choice, Chooser, check_draws
from windvane.beliefs.diagonal.sparse_rows import Arms
from windvane.beliefs.full.layout import LARGEST, compute_history_room
from windvane.errors import ArmsError, FitError, SettingError
from windvane.exploration import Pseudo
from windvane.memory import Memory, as_memory, names_of
from windvane.persistence import locked
from windvane.sets.base import ActionSet, Best
from windvane.types import Floats

if TYPE_CHECKING:
    from windvane.beliefs.glm.kernels import GeneralizedArrays, GeneralizedRules

LEAST_WEIGHT = 1e-12  # an observation with a smaller weight is dropped
MOST_OBSERVATIONS_PER_INVERSION = 32  # the curvature is inverted at least this often


class GeneralizedPolicy(Chooser):
    """Chooses by a new fit to perturbed rewards in every round, with means μ(xᵀθ) under a link.

    θ̃ is the root of Σ w·x(μ(xᵀθ) − y − a·z) + λθ − a√λ·ζ = 0. z and ζ are standard normal and new
    in every round. w is the weight that the memory (keep, discount or window) gives an observation.
    Under the identity link, θ̃ has the distribution of thompson(a). With `scale` a = 0 the policy is
    greedy. The links are identity, logistic and poisson. With `pseudo="evill"`, z is multiplied by
    √μ'(xᵀθ̂), so that rewards that hardly vary are hardly perturbed.

    >>> import numpy as np, windvane as wv
    >>> policy = wv.GeneralizedPolicy(2, "logistic", wv.discount(0.99), scale=0.5, seed=7)
    >>> arms = np.array([[1.0, 0.0], [0.0, 1.0]])
    >>> for _ in range(200):
    ...     choice = policy.choose(arms)
    ...     policy.learn(choice, reward=1.0 if choice.index == 1 else 0.0)
    >>> policy.choose(arms).index
    1
    """

    FILE_KIND = "GeneralizedPolicy"
    SETTINGS = ("dim", "link", "memory", "scale", "ridge", "floor", "pseudo")
    COMPILED: ClassVar[tuple[str, ...]] = (*Chooser.COMPILED, "_kernels", "_choose", "_learn")

    def __init__(
        self,
        dim: int,
        link: str,
        memory: Memory | str,
        scale: float = 1.0,
        ridge: float = 1.0,
        seed: int | np.random.SeedSequence | None = None,
        floor: float = 0.0,
        pseudo: Pseudo = "normal",
    ) -> None:
        super().__init__(dim, seed)
        memory = as_memory("GeneralizedPolicy", memory)
        self._rules = build_rules(link, memory, scale, ridge, floor, pseudo)
        self.link = link
        self.pseudo = pseudo
        self._memory = memory
        self.scale = self._rules.scale
        self.ridge = self._rules.ridge
        self.floor = self._rules.mix
        self._limit = history_limit(memory)
        self._arrays = make_blank(self.dim, self.ridge, 1)
        self._bind_kernels()

    @cached_property
    def _kernels(self) -> ModuleType:
        from windvane.beliefs.glm import kernels  # imported late: compiled code is slow to load

        return kernels

    def _bind_kernels(self) -> None:
        from windvane._numba.compilation import compile_for

        rows = np.zeros((1, self.dim))
        self._choose = compile_for(
            self._kernels.choose, self._rules, self._arrays, rows, self.key, 0
        )
        self._learn = compile_for(self._kernels.learn, self._rules, self._arrays, rows, np.zeros(1))

    @property
    def memory(self) -> Memory:
        """The memory: how past observations fade."""
        return self._memory

    @locked
    def choose(self, arms: npt.ArrayLike | ActionSet) -> Choice:
        """Choose one of the arms, rows of features (K, d), or the best action of an action set."""
        if isinstance(arms, ActionSet):
            best = self.find_best(arms)
            return self._record_choice(-1, best.features, best.action)
        rows = self._read_arms(arms)
        index = self._choose(self._rules, self._arrays, rows, self.key, self.round)
        if index == self._kernels.UNSOLVED:
            refuse_fit("choose", self.link)
        if index < 0:
            validation.refuse_arms(rows)
        return self._record_choice(index, rows[index].copy())

    @locked
    def choose_many(self, sets: Sequence[Arms] | Floats) -> list[Choice]:
        """Choose from each arm set, one round each; if one choice fails, choose from none."""
        first = self.round
        try:
            return super().choose_many(sets)
        except FitError:
            self._open.difference_update(range(first, self.round))
            self.round = first
            raise

    def find_best(self, actions: ActionSet) -> Best:
        """Return the best action for θ̃; a rising mean has the same best action as the score."""
        from windvane import _random

        if self.floor:
            raise SettingError(
                "choose: floor must be 0 for an action set, because a floor needs a list of "
                f"actions, got {self.floor!r}"
            )
        self._check_dim(actions)
        theta = np.empty(self.dim)
        start = np.uint64(_random.start_round(np.uint64(self.key), self.round))
        if not self._kernels.sample_parameter(self._rules, self._arrays, start, theta):
            refuse_fit("choose", self.link)
        best = actions.best(theta)
        validation.check_finite_arms(best.features[None])
        return best

    @property
    @locked
    def theta(self) -> Floats:
        """The estimate θ̂, (d,): the root of Σ w·x(μ(xᵀθ) − y) + λθ = 0."""
        return self._arrays.theta.copy()

    @property
    def seen(self) -> int:
        """The number n of observations learned."""
        return int(self._arrays.tally[0])

    @locked
    def mean(self, arms: npt.ArrayLike) -> Floats:
        """Return the estimated mean reward of each arm, μ(xᵀθ̂), (K,)."""
        scores = validation.check_finite_arms(self._read_arms(arms)) @ self._arrays.theta
        return np.array([links.mean(self._rules.link, score) for score in scores.tolist()])

    @locked
    def propensities(
        self, arms: npt.ArrayLike, samples: int = 200, chosen: int | None = None
    ) -> Floats:
        """Return the share of `samples` draws in which `choose` would choose each arm now, (K,).

        The `chosen` index counts as one draw more, so that its share is never 0. The draws have a
        key of their own, so that this call changes no choice.
        """
        from windvane.beliefs.full import propensities

        rows = validation.check_finite_arms(self._read_arms(arms))
        check_draws(len(rows), samples, chosen)
        thetas = np.empty((samples if self.scale > 0 else 1, self.dim))
        if not self._kernels.sample_parameters(
            self._rules, self._arrays, self.key ^ propensities.COUNTING_KEY, self.round, thetas
        ):
            refuse_fit("propensities", self.link)
        shares = propensities.count_wins(thetas @ rows.T)
        if self.scale > 0:
            shares = propensities.add_chosen_draw(shares, samples, chosen)
        return (1.0 - self.floor) * shares + self.floor / len(rows)

    @classmethod
    def check_size(cls, dim: int, header: persistence.Header, arrays: persistence.Arrays) -> None:
        if arrays["inverse"].shape != (dim, dim):
            raise ValueError(f"its curvature has shape {arrays['inverse'].shape}")

    def export_state(self) -> tuple[persistence.Header, persistence.Arrays]:
        header = {"key": self.key, "round": self.round}
        return header, {**self._arrays._asdict(), "open": self._list_open_rounds()}

    def _comparable_state(self) -> tuple[persistence.Header, persistence.Arrays]:
        header, arrays = self.export_state()
        return header, {**arrays, "past": self._arrays.past[:, : self.seen]}

    def restore_state(self, header: persistence.Header, arrays: persistence.Arrays) -> None:
        restored = type(self._arrays)(
            *(np.array(arrays[name], order="C") for name in self._arrays._fields)
        )
        room = restored.past.shape[-1]
        for name, mine, saved in zip(restored._fields, self._arrays, restored, strict=True):
            fits = saved.dtype == mine.dtype and saved.shape[:-1] == mine.shape[:-1]
            if not fits or (name != "past" and saved.shape != mine.shape):
                raise ValueError(f"its {name} has shape {saved.shape}")
            if not np.isfinite(saved).all():
                raise ValueError("it holds a number that is not finite")
        seen, stale = restored.tally.tolist()
        if not 0 <= stale <= seen or room < 1 or (self._limit and room > self._limit):
            raise ValueError("its counters or its history are out of bounds")
        if seen > room and room != self._limit:
            raise ValueError(f"its history has room for {room} of {seen} observations")
        np.linalg.cholesky(restored.inverse)
        links.check_rewards("load", self.link, restored.past[-1, : min(seen, room)].tolist())
        self._restore_rounds(header, arrays["open"])
        self._arrays = restored

    def learn_row(self, features: Floats, reward: float, round_: int, at: float) -> None:
        self._fit("learn", features[None], [reward])

    def learn_rows(self, rows: Floats, rewards: Floats, rounds: list[int], at: Floats) -> None:
        if len(rows):
            self._fit("learn_many", rows, rewards.tolist())

    def _fit(self, who: str, rows: Floats, rewards: list[float]) -> None:
        links.check_rewards(who, self.link, rewards)
        if not (np.einsum("nd,nd->n", rows, rows) <= LARGEST).all():
            raise ArmsError(f"{who}: features must be finite, with norm up to {LARGEST**0.5:g}")
        arrays = self._make_room(len(rows))
        if not self._learn(self._rules, arrays, rows, np.array(rewards)):
            refuse_fit(who, self.link)
        self._arrays = arrays

    def _make_room(self, more: int) -> "GeneralizedArrays":
        """Return the arrays with room for more observations, up to the reach of the memory."""
        past = self._arrays.past
        room = past.shape[1]
        larger = compute_history_room(self.seen, more, room, self._limit)
        if larger == room:
            return self._arrays
        grown = np.zeros((self.dim + 1, larger))
        grown[:, :room] = past
        return self._arrays._replace(past=grown)


def build_rules(
    link: str,
    memory: Memory,
    scale: float,
    ridge: float,
    floor: float,
    pseudo: Pseudo = "normal",
) -> "GeneralizedRules":
    """Check the settings of a generalised policy and return them as compiled code reads them."""
    from windvane.beliefs.glm.kernels import GeneralizedRules

    who = "GeneralizedPolicy"
    code = links.check_link(who, link)
    if not memory.kind.works_with_link:
        names = ", ".join(names_of(lambda kind: kind.works_with_link))
        raise SettingError(f"{who}: memory must be one of {names}, got {memory!r}")
    if memory.single:
        raise SettingError(f"{who}: memory must be a discount that is not single, got {memory!r}")
    if not 1.0 / LARGEST <= validation.positive(who, "ridge", ridge) <= LARGEST:
        raise SettingError(f"{who}: ridge must lie in [1e-100, 1e100], got {ridge!r}")
    if pseudo not in ("normal", "evill"):
        raise SettingError(f"{who}: pseudo must be 'normal' or 'evill', got {pseudo!r}")
    return GeneralizedRules(
        code,
        memory.gamma,
        float(ridge),
        validation.not_negative(who, "scale", scale),
        validation.share(who, "floor", floor),
        refresh=max(1, int(min(MOST_OBSERVATIONS_PER_INVERSION, memory.effective_length / 8))),
        by_slope=pseudo == "evill",
    )


def history_limit(memory: Memory) -> int | None:
    """Return how many past observations must be kept, None for all of them."""
    return memory.reach(LEAST_WEIGHT)


def make_blank(dim: int, ridge: float, room: int) -> "GeneralizedArrays":
    """Return the arrays of a policy that has learned nothing."""
    from windvane.beliefs.glm.kernels import GeneralizedArrays

    tally = np.zeros(2, dtype=np.int64)
    return GeneralizedArrays(tally, np.zeros(dim), np.eye(dim) / ridge, np.zeros((dim + 1, room)))


def refuse_fit(who: str, link: str) -> NoReturn:
    """Raise the error of an estimate that was not reached."""
    raise FitError(
        f"{who}: the {link} estimate was not reached, because too few digits are left; "
        "scale the features to norm 1, or take a larger ridge"
    )
