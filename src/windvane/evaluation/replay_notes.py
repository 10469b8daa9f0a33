"""Sentences about a replay and about a log, for people who read an evaluation."""

from windvane.evaluation.candidates import Clock
from windvane.evaluation.log_batch import Log
from windvane.evaluation.players import SAMPLES
from windvane.evaluation.readers.file_log import NO_TIMES_WARNING, HasNotes
from windvane.evaluation.replay import ReplayCounts
from windvane.evaluation.result import Replay
from windvane.evaluation.usable_rows import RowCounts

FEW_ACCEPTED = 100  # with fewer learned rows a policy has hardly begun
CLOCK_NAMES: dict[Clock, str] = {
    "none": "none: it forgets nothing",
    "rounds": "rounds: its memory fades with each accepted row",
    "time": "time: its memory fades by the times of the log",
    "rows": "time: its memory fades with each row of the log",
}


def describe_replay(clock: Clock, counts: ReplayCounts) -> tuple[Replay, list[str]]:
    """Return the report of a replay, and what its reader must know."""
    replay = Replay(
        accepted=counts.accepted,
        violations=counts.violations,
        final_coefficient=counts.multiplier,
        clock=CLOCK_NAMES[clock],
        rows=counts.rows,
        is_sampled=counts.is_sampled,
    )
    rate = replay.acceptance_rate
    sentences = []
    if counts.accepted < FEW_ACCEPTED:
        sentences.append(
            f"only {counts.accepted} of {counts.rows} rows were accepted: the policy has hardly "
            "learned anything, and its value is close to that of a policy that has just begun"
        )
    elif clock == "rounds" and rate < 1.0:
        sentences.append(
            f"the policy learned {rate:.1%} of the rows and forgets by rounds: in the time of the "
            f"log it forgets {1 / rate:.3g} times as slowly as it would in use"
        )
    elif clock in ("time", "rows") and rate < 1.0:
        sentences.append(
            f"the policy learned {rate:.1%} of the rows and forgets by time: it remembers "
            f"{rate:.1%} of the data that it would have in use"
        )
    elif rate < 1.0:
        sentences.append(f"the policy learned {rate:.1%} of the rows")
    if counts.is_sampled:
        sentences.append(f"its probabilities are counted in {SAMPLES} draws for each row")
    return replay, sentences


def list_log_warnings(log: Log, counts: RowCounts, has_replays: bool) -> list[str]:
    """What the reader of an evaluation must know of its log."""
    sentences = []
    if log.has_fitted_probabilities:
        sentences.append(
            "the log has no probabilities: they were estimated from it, and all numbers here are "
            "only as good as they are"
        )
    for count, what in (
        (counts.degraded, "because the service had answered without deciding"),
        (counts.unrewarded, "because the reward is not known"),
        (
            counts.without_probability,
            "because the chosen action has the probability 0, or none",
        ),
    ):
        if count:
            rows = "1 row was" if count == 1 else f"{count} rows were"
            sentences.append(f"{rows} left out, {what}")
    if log.bad_row_count:
        sentences.append(f"rows of the log that could not be read: {log.bad_row_count}")
    if isinstance(log, HasNotes):
        sentences += [f"{count} {what}" for what, count in log.notes.items()]
        if not log.has_times:
            sentences.append(NO_TIMES_WARNING)
    if has_replays and counts.without_features:
        sentences.append(
            "the log has no features: policies that learn tell actions apart by their place only"
        )
    if has_replays:
        sentences.append(
            "policies that learn were replayed: under drift no replay is exact, so trust the order "
            "of these policies more than their values"
        )
    return sentences
