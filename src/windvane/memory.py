"""Memories: how the past fades.

Every memory is three answers. By what factor does an observation fade when the next one comes?
After how many observations is it dropped? Before which rounds is everything dropped?

| memory          | fades by | dropped after | all dropped before round | its clock    |
|-----------------|----------|---------------|--------------------------|--------------|
| `keep()`        | 1        | never         | never                    | none         |
| `discount(γ)`   | γ        | never         | never                    | observations |
| `window(w)`     | 1        | w             | never                    | observations |
| `restart(H)`    | 1        | never         | H, 2H, 3H, …             | rounds       |
| `restart_at(R)` | 1        | never         | each round in R          | rounds       |

An observation is a reward that was learned, a round is an arm set that was chosen from. A round
that never gets a reward is therefore invisible to keep, discount and window, and only its tick
counts for restart and restart_at. A reward that comes after a restart for a choice made before it
belongs to what was dropped, and is dropped too.
"""

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass

from windvane import checks


@dataclass(frozen=True)
class Memory:
    """How the past fades; made by `keep`, `discount`, `window`, `restart` and `restart_at`."""

    name: str
    gamma: float = 1.0
    rounds: int = 0
    every: int = 0
    at: tuple[int, ...] = ()

    def next_restart(self, after: int) -> int:
        """The first restart in a round later than `after`, or -1 where there is none."""
        if self.every:
            return (after // self.every + 1) * self.every
        place = bisect_right(self.at, after)
        return self.at[place] if place < len(self.at) else -1

    def __repr__(self) -> str:
        given = {
            "discount": f"{self.gamma!r}",
            "window": f"{self.rounds}",
            "restart": f"{self.every}",
            "restart_at": f"{list(self.at)}",
        }
        return f"{self.name}({given.get(self.name, '')})"


def keep() -> Memory:
    """Forget nothing: W = λI + Σ xxᵀ."""
    return Memory("keep")


def discount(gamma: float) -> Memory:
    """Let each observation fade by γ whenever a new one is learned.

    W ← γW + xxᵀ + (1−γ)λI,  W̃ ← γ²W̃ + xxᵀ + (1−γ²)λI,  b ← γb + xy
    """
    return Memory("discount", gamma=checks.inside("discount", "gamma", gamma))


def window(rounds: int) -> Memory:
    """Keep the last `rounds` observations and nothing before them."""
    return Memory("window", rounds=checks.whole("window", "rounds", rounds))


def restart(every: int) -> Memory:
    """Keep everything, and drop it all before rounds H, 2H, 3H, … (counted from 0)."""
    return Memory("restart", every=checks.whole("restart", "every", every))


def restart_at(rounds: Iterable[int]) -> Memory:
    """Keep everything, and drop it all before each given round, counted from 0."""
    known = sorted({checks.whole("restart_at", "a round", r, least=0) for r in rounds})
    return Memory("restart_at", at=tuple(known))
