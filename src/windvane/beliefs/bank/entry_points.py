"""The two kernels of a learner, compiled at the same time in two processes."""

import math

import numpy as np

from windvane._compile_ahead import compiling_ahead
from windvane.beliefs.bank.bank import BeliefBank
from windvane.beliefs.bank.feature_parts import PackedSides
from windvane.beliefs.bank.learning import learn_lesson
from windvane.beliefs.bank.sides import join_request
from windvane.features.offer_reader import read_offer

COMPILE_LESSONS = "from windvane.beliefs.bank.entry_points import load_lessons; load_lessons()"


def load_ranking() -> None:
    """Load what a learner calls to rank; compile what it calls to learn in another process."""
    with compiling_ahead(learn_lesson, COMPILE_LESSONS):
        bank, sides = _make_request()
        bank.rank(sides, np.zeros(1, np.int64), 0.0, 0, 0)


def load_lessons() -> None:
    """Load what a learner calls to learn."""
    bank, sides = _make_request()
    bank.learn(sides, 0.0, 0.0)


def _make_request() -> tuple[BeliefBank, PackedSides]:
    """A small bank, and a request with one action."""
    return BeliefBank((math.inf,), 0.0), join_request([{}], read_offer(["nothing"]).actions)
