"""Play up to eight replications at once, one in each lane of the vector registers.

Every replication has the draws and the choices that it has when it is played alone. This engine
plays policies with fixed arms whose memory keeps or fades sums, and that choose by widths, by a
sample or by the estimate. The engine `linear` plays all other pairs.
"""

from collections.abc import Sequence

import numpy as np

from windvane._numba.lanes import LANES
from windvane.beliefs.full.layout import (
    DISCOUNT,
    MEAN,
    NOISE,
    SAMPLE,
    TALLY,
    WIDTH,
    PolicyArrays,
    build_rules,
)
from windvane.lab.engines.game import Player, accumulate_regret
from windvane.lab.engines.lane_game import fill_rows, lay_out_rows, open_lane_game
from windvane.lab.engines.lane_samples import lay_out_sample_rows, play_samples
from windvane.lab.engines.lane_widths import lay_out_width_rows, play_widths
from windvane.lab.engines.linear import list_restarts
from windvane.lab.worlds.draw import Draw, Marks
from windvane.types import Floats

LEAST_GAMMA = 0.5  # below this, older weights fall so fast that nothing is gained by updates
MOST_NUMBERS = 16_384  # K·d; larger lists of arms of eight replications leave the caches


def can_play_side_by_side(player: Player, draw: Draw) -> bool:
    """Whether this engine plays the player in a world with such draws."""
    if player.adaptation or player.link or len(draw.picks) > 1:
        return False
    if draw.picks.shape[1] * min(draw.picks.shape[1], draw.dim) > MOST_NUMBERS:
        return False
    memory = player.memory
    rule = build_rules(1, memory, player.exploration, player.ridge, player.floor)[0]
    is_faded = rule["memory"] == DISCOUNT and memory.gamma >= LEAST_GAMMA
    is_kept = memory.name in ("keep", "restart", "restart_at")
    return bool(
        (is_faded or is_kept) and rule["style"] in (MEAN, SAMPLE, WIDTH) and rule["unit"] != NOISE
    )


def chooses_by_widths(player: Player) -> bool:
    """Whether a player chooses by widths; else by a sample or by the estimate."""
    rules = build_rules(1, player.memory, player.exploration, player.ridge, player.floor)
    return bool(rules["style"][0] == WIDTH)


def replay_side_by_side(
    player: Player, draws: Sequence[Draw], keys: Sequence[int], marks: Marks
) -> Floats:
    """Play replications and return their cumulative regret at the marks, (replications, M)."""
    groups = range(0, len(draws), LANES)
    curves = [
        _replay_group(player, draws[i : i + LANES], keys[i : i + LANES], marks) for i in groups
    ]
    return np.concatenate(curves)


def _replay_group(
    player: Player, draws: Sequence[Draw], keys: Sequence[int], marks: Marks
) -> Floats:
    game = open_lane_game(player, draws, keys)
    rows = lay_out_rows(game.theta.shape[2], game.means.shape[1])
    rules = build_rules(
        rows.dim,
        player.memory,
        player.exploration,
        player.ridge,
        player.floor,
        space=draws[0].dim,
    )
    arrays = PolicyArrays(rules, np.zeros(1, TALLY), np.zeros(0), np.zeros((0, 0)))
    restarts = list_restarts(player.memory, draws[0].rounds)
    if rules["style"][0] == WIDTH:
        width_rows = lay_out_width_rows(rows)
        lanes = fill_rows(game, rows, width_rows.end)
        play_widths(game, arrays, lanes, rows, width_rows, restarts)
    else:
        sample_rows = lay_out_sample_rows(rows)
        lanes = fill_rows(game, rows, sample_rows.end)
        play_samples(game, arrays, lanes, rows, sample_rows, restarts)
    return np.array([accumulate_regret(game.regret[i], marks) for i in range(len(draws))])
