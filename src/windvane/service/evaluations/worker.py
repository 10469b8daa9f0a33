"""The process of an evaluation: reads a job from stdin and the log from the database.

It runs at the lowest priority, only reads the log, and reports to the service over a pipe: its
progress, then the outcome and the time series, or the sentence of an error. If the service ends,
the pipe of its stdin is closed, and the process ends too.
"""

import contextlib
import math
import os
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import msgspec

from windvane.errors import WindvaneError
from windvane.evaluation.estimates.result import (
    Z_LIMIT,
    Evaluation,
    Gain,
    Interval,
    PolicyResult,
    warn,
)
from windvane.evaluation.estimates.value_series import INTERVAL_MINUTES, ValueSeries
from windvane.evaluation.evaluator import EvaluationProgress, evaluate
from windvane.service.clock import MICROSECONDS_PER_SECOND
from windvane.service.evaluations.compared_policies import (
    ComparedPolicy,
    format_policy,
    list_policies,
)
from windvane.service.evaluations.records import (
    ALPHA,
    CURRENT,
    FAILURE,
    OPTIMAL_IF_NONE_IS_SURE,
    OUTCOME,
    PROGRESS,
    SERIES,
    ChartSeries,
    EvaluationContract,
    EvaluationOutcome,
    IpsSums,
    Job,
    PolicyOutcome,
    PolicySeries,
    decode_job,
    encode,
)
from windvane.service.loops.settings import LoopSettings
from windvane.service.store.decision_queries import count_decisions
from windvane.service.store.log import LogReader
from windvane.service.store.logged_decisions import LoggedDecisions
from windvane.service.store.rows import IMPORTED
from windvane.service.store.writer.writer_protocol import add_size

MAX_POINTS = 50_000  # of the time series of all policies
LOWEST_PRIORITY = 19
STDIN = 0
READ_BYTES = 1 << 16
MAX_STEPS = 60  # and one more if the first step begins before the first decision
MIN_STEPS = 6
DECISIONS_PER_STEP = 50  # on average, or more
MINUTES_PER_DAY = 1440
STEP_MINUTES = (
    *(5, 10, 15, 30, 60, 120, 180, 360, 720),
    *(days * MINUTES_PER_DAY for days in (1, 2, 7, 14, 28, 91, 364)),
)
Send = Callable[[bytes, bytes], None]


def main() -> None:
    os.nice(LOWEST_PRIORITY)
    if hasattr(os, "sched_setscheduler"):  # use the processor only if nobody else needs it
        with contextlib.suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    channel = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever prints does not disturb the messages
    job = decode_job(_read_line())
    threading.Thread(target=_end_with_service, daemon=True).start()

    def send(kind: bytes, content: bytes) -> None:
        channel.write(add_size(kind + content))
        channel.flush()

    try:
        run_job(job, send)
    except WindvaneError as reason:
        send(FAILURE, str(reason).encode())
    except Exception as defect:
        traceback.print_exc()
        send(FAILURE, f"{type(defect).__name__}: {defect}".splitlines()[0].encode())
    channel.close()


def _read_line() -> bytes:
    """Read the job, which is one line, from stdin."""
    parts = []
    while not (part := os.read(STDIN, READ_BYTES)).endswith(b"\n"):
        if not part:
            raise SystemExit(1)  # the service has ended
        parts.append(part)
    return b"".join([*parts, part])


def _end_with_service() -> None:
    """End this process when the other end of stdin is closed."""
    while os.read(STDIN, READ_BYTES):
        pass
    os._exit(1)


def run_job(job: Job, send: Send) -> None:
    """Evaluate, and send what was found."""
    settings = LoopSettings.from_names(job.settings)
    contract = job.contract
    with LogReader(job.where) as reader:
        log = LoggedDecisions(reader, job.loop, contract.since, contract.until)
        policies = list_policies(contract, settings, find_length(log, contract))
        origin = count_origins(reader, job.loop, contract)
        total = max(log.count(), 1)

        def report(progress: EvaluationProgress) -> None:
            send(PROGRESS, repr(min(1.0, progress.rows / total)).encode())

        evaluation = evaluate(
            log,
            [policy.candidate for policy in policies],
            level=compute_level(contract.run, len(policies) - 1),
            reference=CURRENT,
            progress=report,
        )
        no_gain = Gain(0.0, Interval(0.0, 0.0), "not yet", None)  # of the loop over itself
        results = [
            replace(each, gain=no_gain if each.name == CURRENT else evaluation.compare(each.name))
            for each in evaluation.policies
        ]
        judged = [*zip(policies, results, strict=True)]
        outcome = EvaluationOutcome(
            optimal_policy=find_optimal(
                [result for policy, result in judged if not policy.problem]
            ),
            policies=[_summarize(policy, result) for policy, result in judged],
            rows=evaluation.rows,
            imported_rows=origin.imported,
            older_rows=origin.older,
            since=evaluation.since,
            until=evaluation.until,
            doubt=find_doubt(evaluation.policies),
            warnings=[*evaluation.warnings, *origin.describe()],
        )
        send(OUTCOME, encode(outcome))
        send(SERIES, encode(_list_series(evaluation)))


class Origins(NamedTuple):
    """How many decisions of a log are not those of the loop as it is."""

    imported: int
    older: int

    def describe(self) -> list[str]:
        if not self.older:
            return []
        made = f"{self.older:,} decisions were made with other settings of the loop"
        return [f"{made}: what was logged is not what this loop does now"]


def count_origins(reader: LogReader, name: str, contract: EvaluationContract) -> Origins:
    """Count the decisions that were imported, and those before the policy last changed."""
    loop = reader.find_loop(name)
    assert loop is not None
    changes = reader.list_settings_changes(loop.id)
    texts = [format_policy(LoopSettings.from_json(each.settings)) for each in changes]
    pairs = zip(changes[1:], pairwise(texts), strict=True)
    changed = [change.at for change, (old, new) in pairs if old != new]
    since, until = contract.since, contract.until
    before = min(until, max(changed, default=since))
    imported, early = (
        count_decisions(reader, loop.id, since, end, IMPORTED) for end in (until, before)
    )
    return Origins(imported, max(count_decisions(reader, loop.id, since, before) - early, 0))


def find_length(log: LoggedDecisions, contract: EvaluationContract) -> float:
    """The time of the log so far, in seconds."""
    end = min(contract.until / MICROSECONDS_PER_SECOND, time.time())
    for batch in log.iterate_batches():
        if batch.size:
            return max(end - float(batch.times[0]), 0.0)
    return 0.0


def compute_level(run: int, policies: int) -> float:
    """The chance with which the interval of one policy may miss, so that all together have α.

    α/m for m policies; of the k-th run of auto-optimisation (6/(π²k²)) α/m, which adds up to α/m
    over all runs.

    >>> round(sum(compute_level(run, 1) for run in range(1, 100_000)), 5)
    0.05
    """
    share = 6.0 / (math.pi * run) ** 2 if run else 1.0
    return ALPHA * share / max(policies, 1)


def find_optimal(results: Sequence[PolicyResult]) -> str:
    """The policy whose gain over the loop as it is has the highest lower end, or the loop's own.

    The lower end of the confidence sequence must be above 0, which holds at any time and for all
    policies at once, and nothing may speak against the numbers.
    """
    better = [
        result
        for result in results
        if result.gain.verdict == "better" and not list_problems(result)
    ]
    if not better or find_doubt(results):
        return OPTIMAL_IF_NONE_IS_SURE
    return max(better, key=lambda result: result.gain.interval.low).name


def _summarize(policy: ComparedPolicy, result: PolicyResult) -> PolicyOutcome:
    plain = {name: value for name, value in result.to_json().items() if name != "series"}
    [end] = result.series.expand()[-1:]
    return PolicyOutcome(
        name=policy.name,
        source=policy.source,
        arguments=policy.arguments,
        total=IpsSums(
            end.mass, end.weight, end.weighted_reward, end.squared_weighted_reward, end.positive
        ),
        result=plain,
        changes=policy.changes,
        problems=[*([policy.problem] if policy.problem else []), *list_problems(result)],
    )


def list_problems(result: PolicyResult) -> list[str]:
    """Why even the intervals that hold at every moment cannot be trusted for a policy.

    Few decisions, rare large weights and rare rewards are no reason: these intervals hold anyway,
    and a mean weight below 1 may only say that large weights are rare.
    """
    diagnostics = result.diagnostics
    z = diagnostics.mean_weight_z
    lenient = replace(
        diagnostics,
        mean_weight_z=None if z is None else max(z, 0.0),
        effective_rows=float(diagnostics.rows),
        largest_weight=0.0,
        defaulted=0.0,
        degraded=0.0,
    )
    return warn(lenient)


def find_doubt(results: Sequence[PolicyResult]) -> str:
    """Why no number can be trusted: wrong probabilities are wrong for every policy."""
    worst = max(results, key=lambda result: result.diagnostics.mean_weight_z or 0.0)
    is_wrong = (worst.diagnostics.mean_weight_z or 0.0) > Z_LIMIT
    return list_problems(worst)[0] if is_wrong else ""


def _list_series(evaluation: Evaluation) -> list[PolicySeries]:
    """The time series of all policies, in intervals that are long enough to be few."""
    results = evaluation.policies
    longest = max(result.series.minutes for result in results)
    usable = [minutes for minutes in INTERVAL_MINUTES if minutes >= longest]
    for minutes in usable:
        series = [result.series.coarsen(minutes) for result in results]
        if sum(len(each.starts) for each in series) <= MAX_POINTS:
            break
    step = choose_step(series[0])
    differences = {
        pair.first: make_chart_series(pair.series, step)
        for pair in evaluation.pairs
        if pair.second == CURRENT
    }
    return [
        _make_columns(each, step, differences.get(result.name))
        for each, result in zip(series, results, strict=True)
    ]


def _make_columns(
    series: ValueSeries, step_minutes: int, difference: ChartSeries | None
) -> PolicySeries:
    points = series.roll(series.minutes)
    names = IpsSums.__struct_fields__
    return PolicySeries(
        minutes=series.minutes,
        starts=series.starts.tolist(),
        chart=msgspec.structs.replace(
            make_chart_series(series, step_minutes), difference=difference
        ),
        **{name: [getattr(point, name) for point in points] for name in names},
    )


def choose_step(series: ValueSeries) -> int:
    """Choose a round length of a step, in minutes: few steps if there are few decisions."""
    size = min(max(int(series.sums.rows.sum()) // DECISIONS_PER_STEP, MIN_STEPS), MAX_STEPS)
    span = int(series.starts[-1] - series.starts[0]) * series.minutes
    usable = [minutes for minutes in STEP_MINUTES if minutes % series.minutes == 0]
    longest = usable[-1]
    needed = -(-span // (size * longest)) * longest  # a multiple of the longest that is enough
    return next((minutes for minutes in usable if span <= size * minutes), needed)


def make_chart_series(series: ValueSeries, minutes: int) -> ChartSeries:
    """The value in each step of so many minutes, with its standard error.

    The size of a step is (Σw)²/Σw², the number of decisions of the policy's own that tell as much.
    """
    coarse = series.coarsen(minutes)
    points = coarse.roll(minutes)
    return ChartSeries(
        minutes=minutes,
        starts=coarse.starts.tolist(),
        value=[each.value for each in points],
        error=[each.error for each in points],
        size=coarse.sums.effective_rows.tolist(),
    )
