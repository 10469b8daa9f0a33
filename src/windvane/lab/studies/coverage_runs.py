"""Play the logging policy of the study of coverage, and judge other policies by its log."""

import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import NamedTuple

import numpy as np

from windvane.lab.engines.decision_log import log_decisions
from windvane.lab.engines.game import Player
from windvane.lab.progress import Report, TaskProgress
from windvane.lab.studies.interval_estimates import JudgedLog, estimate_at_looks
from windvane.lab.worlds import World
from windvane.lab.worlds.draw import Draw
from windvane.types import Floats, Places

JUDGED_POLICIES = ("first action", "at random", "best at the start")
REPLICATIONS_PER_CHUNK = 10


class LoggedRuns(NamedTuple):
    """A world, the policy that logs in it, and the looks at its log."""

    world: World
    player: Player
    looks: Places
    alpha: float
    seed: int

    def play(self, replications: range) -> Floats:
        """Log and judge consecutive replications, (estimators, R, P, looks, 4)."""
        judged = []
        for r in replications:
            seed = np.random.SeedSequence(self.seed, spawn_key=(r,))
            key = int(seed.generate_state(1, np.uint64)[0]) >> 1
            draw = self.world.draw(seed)
            judged.append(JudgedLog(log_decisions(self.player, draw, key), judge_policies(draw)))
        largest_weight = self.world.arms / self.player.floor
        return estimate_at_looks(judged, self.looks, largest_weight, self.alpha)


def judge_policies(draw: Draw) -> Floats:
    """The probabilities of the arms under each of JUDGED_POLICIES, (3, T, K)."""
    arms = draw.picks.shape[1]
    first = np.zeros(draw.rounds, dtype=np.int64)
    scores = draw.arms[draw.picks] @ draw.theta[draw.era[0]]  # (T or 1, K)
    best = np.broadcast_to(scores.argmax(axis=1), draw.rounds)
    identity = np.eye(arms)
    at_random = np.full((draw.rounds, arms), 1.0 / arms)
    return np.stack([identity[first], at_random, identity[best]])


def play_all(
    runs: Mapping[str, LoggedRuns], replications: int, report: Report
) -> dict[str, Floats]:
    """Play all replications on threads; the numbers do not depend on the number of threads."""
    for name in runs:
        report(TaskProgress(name, 0, replications, "replications"))
    chunks = [
        (name, range(first, min(first + REPLICATIONS_PER_CHUNK, replications)))
        for name in runs
        for first in range(0, replications, REPLICATIONS_PER_CHUNK)
    ]
    parts: dict[str, dict[int, Floats]] = {name: {} for name in runs}
    done = dict.fromkeys(runs, 0)
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        waiting = {pool.submit(runs[name].play, chunk): (name, chunk) for name, chunk in chunks}
        try:
            for future in as_completed(waiting):
                name, chunk = waiting[future]
                parts[name][chunk.start] = future.result()
                done[name] += len(chunk)
                report(TaskProgress(name, done[name], replications, "replications"))
        finally:
            for future in waiting:
                future.cancel()
    return {
        name: np.concatenate([part for _, part in sorted(chunks_of_run.items())], axis=1)
        for name, chunks_of_run in parts.items()
    }
