"""Compiled code: learn an observation, estimate θ, score the arms, choose.

- `belief_block`: the parts of a belief; `linalg`: linear algebra
- `entry_points`: the two kernels of a pair
- `learning`, and a file for each memory with kernels of its own: `window`, `half_life`, `kalman`,
  `detect`
- `pending`, `large_learning`, `large_widths`, `large_choosing`, `symmetric_products`,
  `float32_forms`, `blocked_inverse`: the same for large dimensions
- `choosing`, `widths`, `sampling`, `round_draws`, `noise`: explorations
- `float32_bounds`: screening of prepared arms
"""

from windvane.kernels.belief_block import refresh, reset, view_belief
from windvane.kernels.choosing import (
    choose_by_widths,
    choose_measured,
    mix_uniformly,
    score_linearly,
    select_choose,
)
from windvane.kernels.learning import (
    LARGEST_CONDITION,
    NOT_FINITE,
    TOO_LARGE,
    check_observations,
    learn,
    learn_all,
    learn_and_track,
    select_amend,
    select_learn,
)
from windvane.kernels.noise import compute_noise, forget_errors
from windvane.kernels.sampling import (
    choose_parameter,
    compute_grid_weights,
    compute_scale,
    draw_level,
    sample_parameter,
)
from windvane.kernels.widths import (
    TrackedArms,
    compute_exact_width,
    compute_squared_norms,
    compute_squared_widths,
    compute_widths,
    measure_arms,
)

__all__ = [
    "LARGEST_CONDITION",
    "NOT_FINITE",
    "TOO_LARGE",
    "TrackedArms",
    "check_observations",
    "choose_by_widths",
    "choose_measured",
    "choose_parameter",
    "compute_exact_width",
    "compute_grid_weights",
    "compute_noise",
    "compute_scale",
    "compute_squared_norms",
    "compute_squared_widths",
    "compute_widths",
    "draw_level",
    "forget_errors",
    "learn",
    "learn_all",
    "learn_and_track",
    "measure_arms",
    "mix_uniformly",
    "refresh",
    "reset",
    "sample_parameter",
    "score_linearly",
    "select_amend",
    "select_choose",
    "select_learn",
    "view_belief",
]
