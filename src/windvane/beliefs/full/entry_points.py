"""The two kernels of a pair, compiled at the same time in two processes."""

import sys
from importlib import import_module

import numpy as np

from windvane._compile_ahead import compiling_ahead
from windvane._numba.compilation import compile_for
from windvane.beliefs.full.choosing import (
    ChooseKernel,
    choose_by_estimate,
    choose_by_history,
    choose_by_sample,
    choose_by_sample_of_window,
    select_choose,
)
from windvane.beliefs.full.layout import RULES, TALLY, PolicyArrays
from windvane.beliefs.full.learning import LearnKernel, select_learn

COMPILE_KERNEL = "from windvane.beliefs.full.entry_points import main; main()"
QUICK_CHOICES = (  # kernels that compile faster than those that learn
    choose_by_estimate,
    choose_by_sample,
    choose_by_sample_of_window,
    choose_by_history,
)


def load_pair(arrays: PolicyArrays) -> tuple[ChooseKernel, LearnKernel]:
    """Return the kernels with which a policy chooses and learns, without their type dispatch.

    The other process starts half a second later, so it compiles what takes less time.
    """
    choose, learn = select_choose(arrays.rules), select_learn(arrays.rules)
    if choose in QUICK_CHOICES:
        with compiling_ahead(choose, COMPILE_KERNEL, "choose", choose.__module__, choose.__name__):
            learning = load_learn(learn, arrays)
            return load_choose(choose, arrays), learning
    with compiling_ahead(learn, COMPILE_KERNEL, "learn", learn.__module__, learn.__name__):
        return load_choose(choose, arrays), load_learn(learn, arrays)


def load_choose(choose: ChooseKernel, arrays: PolicyArrays) -> ChooseKernel:
    """Return a kernel that chooses, without its type dispatch."""
    return compile_for(choose, arrays, np.zeros((1, 1)), 0, 0)


def load_learn(learn: LearnKernel, arrays: PolicyArrays) -> LearnKernel:
    """Return a kernel that learns, without its type dispatch."""
    return compile_for(learn, arrays, np.zeros(1), 0.0, 0.0)


def main() -> None:
    """Compile the kernel that the arguments of the process name: what it does, module and name."""
    task, module, name = sys.argv[1:]
    arrays = PolicyArrays(np.zeros(1, RULES), np.zeros(1, TALLY), np.zeros(1), np.zeros((1, 1)))
    kernel = getattr(import_module(module), name)
    if task == "choose":
        load_choose(kernel, arrays)
    else:
        load_learn(kernel, arrays)
