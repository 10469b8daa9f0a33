"""Replayers: replay several candidates block by block, a `Policy` in compiled code if it can be.

One compiled call replays all rows of a block with Policy's own kernels. The result equals that of
`RowReplayer`, which calls the policy row by row.
"""

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np

from windvane._numba.compilation import compiled
from windvane.beliefs.full.block import view_belief
from windvane.beliefs.full.choosing import score_linearly
from windvane.beliefs.full.layout import WIDTH, PolicyArrays
from windvane.beliefs.full.learning import learn
from windvane.beliefs.full.propensities import compute_exact_propensities
from windvane.beliefs.full.widths import compute_widths
from windvane.errors import WindvaneError
from windvane.evaluation.learners.candidates import (
    Clock,
    LearnerCandidate,
    PolicyCandidate,
)
from windvane.evaluation.learners.feature_blocks import FeatureBlock
from windvane.evaluation.learners.replay import (
    MOST_REPETITIONS,
    MULTIPLIER,
    Acceptance,
    ReplayCounts,
    Replayer,
    RowReplayer,
    ScoredRows,
    begin_acceptance,
    count_repetitions,
    count_replay,
    make_acceptance_key,
    make_scores,
    start_acceptance,
)
from windvane.evaluation.learners.replayed_policies import (
    ReplayedLearner,
    is_counted,
    make_replayed_chooser,
)
from windvane.evaluation.log_batch import LogFacts
from windvane.policy import Policy
from windvane.types import Floats, Places


class LoggedRows(NamedTuple):
    """The rows of a block, as compiled code reads them."""

    arms: Floats  # (actions, d)
    starts: Places  # (n + 1,)
    chosen: Places  # (n,)
    rewards: Floats  # (n,)
    probabilities: Floats  # (n,)
    multiplicities: Floats  # (n,)
    logged: Floats  # (actions,)
    times: Floats  # (n,) empty if the memory counts rounds


def can_replay_compiled(policy: object) -> bool:
    """Whether a policy has exact propensities and can be replayed in compiled code."""
    if type(policy) is not Policy or policy.belief_kind != "full":
        return False
    return not policy.is_large and not is_counted(policy)


class CompiledReplayer:
    """Replays a policy with exact propensities in compiled code."""

    def __init__(self, policy: Policy, clock: Clock, seed: int) -> None:
        self._policy = policy
        self._clock = clock
        self._key = make_acceptance_key(seed)
        self._acceptance = start_acceptance()

    def open_block(self, block: FeatureBlock) -> None:
        """Encode the actions of a block, before several policies read them at once."""
        block.get_dense(self._policy.dim)

    def score_block(self, block: FeatureBlock, first_row: int) -> ScoredRows:
        """Score the rows of a block and learn from those accepted."""
        size = block.rows.size
        times = np.empty(0)
        if self._clock == "time":
            times = block.times
        elif self._clock == "rows":
            times = np.arange(first_row, first_row + size, dtype=np.float64)
        rows = LoggedRows(
            block.get_dense(self._policy.dim),
            *(block.starts, block.chosen, block.rewards, block.probabilities),
            *(block.multiplicities, block.logged, times),
        )
        scores = make_scores(size, block.logged.size)
        begin_acceptance(self._acceptance, block)
        done = 0
        while done < size:
            done = self._replay(rows, scores, done, first_row)
        return scores

    def _replay(self, rows: LoggedRows, scores: ScoredRows, done: int, first_row: int) -> int:
        """Replay until the end of the block, or until the policy restarts."""
        arrays, restart = self._policy.prepare_rounds(MOST_REPETITIONS * len(rows.chosen))
        done, round_, refused = replay_rows(
            *(arrays, self._acceptance, rows, scores, done, first_row),
            *(self._key, self._policy.round, restart),
        )
        self._policy.round = int(round_)
        if refused:
            raise WindvaneError(
                f"evaluate: row {first_row + done + 1} has features too large to be learned"
            )
        return int(done)

    def count(self) -> ReplayCounts:
        """How the replay went so far."""
        return count_replay(self._acceptance, is_sampled=False)


@compiled
def replay_rows(
    arrays: PolicyArrays,
    acceptance: Acceptance,
    rows: LoggedRows,
    scores: ScoredRows,
    first: int,
    rows_before: int,
    key: np.uint64,
    round_: int,
    restart: int,
) -> tuple[int, int, int]:
    """Score and learn rows from `first` on, until the round of a restart.

    Return the place of the next row, the round, and 0 or the code of a refusal.
    """
    state, no_widths = view_belief(arrays), np.empty(0)
    for i in range(first, rows.chosen.size):
        if 0 <= restart <= round_:
            return i, round_, 0
        arms = rows.arms[rows.starts[i] : rows.starts[i + 1]]
        means = score_linearly(arms, state.theta)
        widths = no_widths
        if arrays.rules[0].style == WIDTH:
            widths = compute_widths(arrays, state, arms)
        propensities = compute_exact_propensities(arrays, means, widths)
        value, unsupported = 0.0, 0.0
        for k in range(means.size):
            place = rows.starts[i] + k
            scores.probabilities[place] = propensities[k]
            scores.predictions[place] = means[k]
            value += propensities[k] * means[k]
            if rows.logged[place] == 0.0:
                unsupported += propensities[k]
        chosen = rows.chosen[i]
        own = propensities[chosen] if chosen >= 0 else 0.0
        scores.weights[i] = own / rows.probabilities[i]
        scores.model_values[i] = value
        scores.model_chosen[i] = means[chosen] if chosen >= 0 else 0.0
        scores.coefficients[i] = acceptance.counters[MULTIPLIER]
        scores.unsupported[i] = unsupported
        weight = own * (rows.multiplicities[i] / rows.probabilities[i])
        repetitions = count_repetitions(acceptance, weight, key, rows_before + i)
        for _ in range(repetitions):
            at = rows.times[i] if rows.times.size > 0 else float(round_)
            refused = learn(arrays, arms[chosen], rows.rewards[i], at)
            if refused != 0:
                return i, round_, refused
            round_ += 1
    return rows.chosen.size, round_, 0


def make_replayer(
    candidate: LearnerCandidate | PolicyCandidate, facts: LogFacts, seed: int
) -> Replayer:
    """Make what replays a candidate that learns."""
    if isinstance(candidate, LearnerCandidate):
        return RowReplayer(ReplayedLearner(candidate.build(seed)), candidate.clock, seed)
    policy = candidate.build(facts, seed)
    if can_replay_compiled(policy):
        return CompiledReplayer(policy, candidate.clock, seed)  # type: ignore[arg-type]
    return RowReplayer(make_replayed_chooser(policy), candidate.clock, seed)


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
