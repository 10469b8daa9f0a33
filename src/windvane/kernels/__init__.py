"""The compiled heart: learn an observation, estimate, score the arms, choose."""

from windvane.kernels.belief_block import blank, parts, refresh
from windvane.kernels.choosing import choose, choose_among, linear_scores, or_any
from windvane.kernels.learning import (
    CONDITION,
    NOT_FINITE,
    TOO_LARGE,
    acceptable,
    amend,
    learn,
    learn_all,
    learn_watching,
)
from windvane.kernels.sampling import direction, grid_weights, level, sampled, scale_of
from windvane.kernels.widths import (
    Watched,
    all_widths,
    exact_width,
    look,
    squared_norms,
    squared_widths,
)

__all__ = [
    "CONDITION",
    "NOT_FINITE",
    "TOO_LARGE",
    "Watched",
    "acceptable",
    "all_widths",
    "amend",
    "blank",
    "choose",
    "choose_among",
    "direction",
    "exact_width",
    "grid_weights",
    "learn",
    "learn_all",
    "learn_watching",
    "level",
    "linear_scores",
    "look",
    "or_any",
    "parts",
    "refresh",
    "sampled",
    "scale_of",
    "squared_norms",
    "squared_widths",
]
