"""The replayers of several candidates, and how they score a block of rows together."""

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from windvane.evaluation.candidates import LearnerCandidate, LogFacts, PolicyCandidate
from windvane.evaluation.compiled_replay import CompiledReplayer, can_replay_compiled
from windvane.evaluation.feature_blocks import FeatureBlock
from windvane.evaluation.players import LearnerPlayer, make_chooser_player
from windvane.evaluation.replay import Replayer, RowReplayer, ScoredRows


def make_replayer(
    candidate: LearnerCandidate | PolicyCandidate, facts: LogFacts, seed: int
) -> Replayer:
    """Make what replays a candidate that learns."""
    if isinstance(candidate, LearnerCandidate):
        return RowReplayer(LearnerPlayer(candidate.build(seed)), candidate.clock, seed)
    policy = candidate.build(facts, seed)
    if can_replay_compiled(policy):
        return CompiledReplayer(policy, candidate.clock, seed)  # type: ignore[arg-type]
    return RowReplayer(make_chooser_player(policy), candidate.clock, seed)


def score_block(
    replayers: Sequence[Replayer | None], block: FeatureBlock, rows_before: int
) -> list[ScoredRows | None]:
    """Score a block by every replayer; compiled ones work on threads at the same time."""
    compiled = [each for each in replayers if isinstance(each, CompiledReplayer)]
    for replayer in compiled:
        replayer.open_block(block)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        running = {each: pool.submit(each.score_block, block, rows_before) for each in compiled}
        scores: list[ScoredRows | None] = []
        for each in replayers:
            if each is None:
                scores.append(None)
            elif isinstance(each, CompiledReplayer):
                scores.append(running[each].result())
            else:
                scores.append(each.score_block(block, rows_before))
    return scores
