"""Load compiled code in one order, so that every process of a cluster computes the same bits.

A process that has just compiled a function may sum in another order than a process that loads the
function from disk. A child process therefore compiles first, once for every version.
"""

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence

import numpy as np

from windvane._numba.disk_cache import cache_folder, cache_lock, compute_stamp, has_cache_folder
from windvane.evaluation.acceptance import count_repetitions
from windvane.evaluation.candidate_text import read_candidate
from windvane.evaluation.evaluation_settings import Settings
from windvane.evaluation.evaluator import run_evaluation
from windvane.evaluation.log_batch import BadRow, DecisionFeatures, LogBatch, LoggedAction

LOAD_CODE = "from windvane.evaluation.kernel_loading import load_kernels; load_kernels()"
CANDIDATES = ("full(half_life(9) * randomized(half_normal(1)), dim=2)", "learner", "first")


def prepare_kernels() -> None:
    """Compile in a child process if there is no compiled code, then load it."""
    if has_cache_folder(count_repetitions):
        folder = cache_folder(count_repetitions)
        marker = folder / f"windvane.{compute_stamp()[:16]}.evaluation"
        if not marker.exists():
            folder.mkdir(parents=True, exist_ok=True)
            with cache_lock(folder, "windvane.evaluation.lock"):
                if not marker.exists():
                    paths = os.pathsep.join(path for path in sys.path if path)
                    environment = {**os.environ, "PYTHONPATH": paths}
                    command = [sys.executable, "-P", "-c", LOAD_CODE]
                    subprocess.run(command, env=environment, check=True)
                    marker.touch()
    load_kernels()


def load_kernels() -> None:
    """Evaluate two rows by a policy, a learner and a fixed rule."""
    run_evaluation(_TwoRows(), [read_candidate(text) for text in CANDIDATES], Settings())


class _TwoRows:
    """A log of two decisions."""

    description = "two rows"
    has_fitted_probabilities = False
    bad_rows: Sequence[BadRow] = ()
    bad_row_count = 0
    warnings: Sequence[str] = ()

    def iterate_batches(self) -> Iterator[LogBatch]:
        actions = [LoggedAction("a", [{"x": 1.0}]), LoggedAction("b", [])]
        features = DecisionFeatures([{"size": 1.0, "place": [1.0, 2.0]}], actions)
        yield LogBatch(
            event_ids=["0", "1"],
            times=np.arange(2.0),
            rewards=np.ones(2),
            chosen=np.zeros(2, np.int64),
            starts=np.array([0, 2, 4]),
            probabilities=np.full(4, 0.5),
            is_eligible=np.ones(4, np.bool_),
            multiplicities=np.ones(2),
            is_defaulted=np.zeros(2, np.bool_),
            is_degraded=np.zeros(2, np.bool_),
            lines=np.arange(2),
            source="memory",
            read_features=lambda row: features,
        )
