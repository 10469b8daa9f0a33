"""Evaluate candidates on a Ray cluster, with the same numbers as in one process.

Every machine of the cluster must see the files of the log under the same paths.
"""

import pickle
from collections.abc import Sequence
from dataclasses import replace

from windvane.errors import SettingError
from windvane.evaluation.estimates.result import Evaluation
from windvane.evaluation.evaluator import EvaluationSettings, Progress, run_evaluation
from windvane.evaluation.learners.candidates import Candidate, FixedCandidate
from windvane.evaluation.log_batch import Log
from windvane.evaluation.ray_tasks import RayTask, check_installed, connect_to_ray, run_tasks, share

LOCAL = "threads"
CANDIDATES_PER_TASK = 4  # learning candidates that share one pass over the log


def evaluate_on(
    on: str,
    log: Log,
    candidates: Sequence[Candidate],
    settings: EvaluationSettings,
    progress: Progress | None = None,
) -> Evaluation:
    """Evaluate in this process ("threads"), on a new Ray ("ray"), or on the Ray at an address."""
    if on == LOCAL:
        return run_evaluation(log, candidates, settings, progress)
    check_installed()
    groups = group_candidates(candidates)
    with connect_to_ray(None if on == "ray" else on):
        shared = share((log, list(candidates), settings))
        tasks = [RayTask(f"the policies {group}", (shared, group)) for group in groups]
        parts: list[Evaluation | None] = [None] * len(groups)
        for place, result in run_tasks(_evaluate_pickled, tasks):
            assert isinstance(result, Evaluation)
            parts[place] = result
    return merge_evaluations(groups, [part for part in parts if part is not None])


def group_candidates(candidates: Sequence[Candidate]) -> list[list[int]]:
    """The places of the candidates of each task: fixed ones together, others a few at a time."""
    fixed = [k for k, each in enumerate(candidates) if isinstance(each, FixedCandidate)]
    others = [k for k, each in enumerate(candidates) if not isinstance(each, FixedCandidate)]
    step = CANDIDATES_PER_TASK
    groups = [others[first : first + step] for first in range(0, len(others), step)]
    return [fixed, *groups] if fixed else groups


def merge_evaluations(groups: Sequence[Sequence[int]], parts: Sequence[Evaluation]) -> Evaluation:
    """Join the evaluations of all groups in the order of the candidates."""
    if len({part.rows for part in parts}) > 1:
        raise SettingError("evaluate: the log changed while it was evaluated")
    placed = {
        place: policy
        for group, part in zip(groups, parts, strict=True)
        for place, policy in zip(group, part.policies, strict=True)
    }
    warnings = dict.fromkeys(sentence for part in parts for sentence in part.warnings)
    return replace(
        parts[0],
        policies=[placed[place] for place in sorted(placed)],
        warnings=list(warnings),
    )


def _evaluate_pickled(shared: bytes, group: Sequence[int]) -> Evaluation:
    log, candidates, settings = pickle.loads(shared)
    return run_evaluation(log, [candidates[place] for place in group], settings)
