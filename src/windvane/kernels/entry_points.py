"""The two kernels of a pair, compiled at the same time in two processes."""

import sys
from importlib import import_module

import numpy as np

from windvane._compile_ahead import compiling_ahead
from windvane._jit import compile_for
from windvane._layout import RULES, TALLY, PolicyArrays
from windvane.kernels.choosing import ChooseKernel, select_choose
from windvane.kernels.learning import LearnKernel, select_learn

COMPILE_LEARN = "from windvane.kernels.entry_points import main; main()"


def load_pair(arrays: PolicyArrays) -> tuple[ChooseKernel, LearnKernel]:
    """Return the kernels with which a policy chooses and learns, without their type dispatch."""
    choose, learn = select_choose(arrays.rules), select_learn(arrays.rules)
    with compiling_ahead(learn, COMPILE_LEARN, learn.__module__, learn.__name__):
        return compile_for(choose, arrays, np.zeros((1, 1)), 0, 0), load_learn(learn, arrays)


def load_learn(learn: LearnKernel, arrays: PolicyArrays) -> LearnKernel:
    """Return a kernel that learns, without its type dispatch."""
    return compile_for(learn, arrays, np.zeros(1), 0.0, 0.0)


def main() -> None:
    """Compile the kernel that learns, whose module and name are the arguments of the process."""
    module, name = sys.argv[1:]
    arrays = PolicyArrays(np.zeros(1, RULES), np.zeros(1, TALLY), np.zeros(1), np.zeros((1, 1)))
    load_learn(getattr(import_module(module), name), arrays)
