"""What a policy refuses: explorations that need a list of the actions, and features too large."""

from typing import NoReturn

from windvane._layout import LARGEST
from windvane.errors import ArmsError, SettingError
from windvane.exploration import EXPLORATIONS, Exploration
from windvane.memory import Memory


def check_best_can_be_found(exploration: Exploration, floor: float) -> None:
    """Refuse an exploration that needs a list of the actions."""
    kind = exploration.kind
    usable = ", ".join(each.symbols for each in EXPLORATIONS.values() if each.by_oracle)
    hint = f"use one of {usable}, which need only the best action"
    if exploration.chance or floor:
        raise SettingError(
            "choose: epsilon and a floor choose an action uniformly at random, which needs a "
            f"list of the actions; {hint}, with floor=0"
        )
    if not kind.by_oracle:
        needed = "the width" if kind.needs == "widths" else "the estimate"
        raise SettingError(
            f"choose: {exploration!r} needs {needed} of every action, and the actions of "
            f"a set cannot be listed; {hint}"
        )


def refuse_features(refused: int, ridge: float, memory: Memory) -> NoReturn:
    """Say why features cannot be learned, by the answer of the kernel that checks them."""
    from windvane import kernels  # imported late, because compiled code is slow to load

    if refused == kernels.NOT_FINITE:
        raise ArmsError(f"learn: features must be finite, with norm up to {LARGEST**0.5:g}")
    unit = f"ridge ({ridge:g})"
    if memory.kind.is_filter:
        unit += f" and the variance ({memory.noise**2:g}) of the noise"
    raise ArmsError(
        f"learn: the squared features learned so far must sum to at most "
        f"{kernels.LARGEST_CONDITION:g} times the {unit}, or too few digits are left; scale them "
        f"to norm 1"
    )
