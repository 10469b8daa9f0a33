"""The evaluations of all loops: ask for one, find, list, delete and apply them.

An evaluation is a row of the log from the moment it is asked for, with the status Running. One
evaluation runs at a time, the oldest first, in a process of its own. A service that is killed and
started again finds the row and starts the evaluation again. If servers share the log, the leader
evaluates; if it is lost, the next leader starts the evaluation again.

Auto-optimisation evaluates other half-lives of a loop at a frequency, over the last two weeks. One
of them replaces the loop's own only if the confidence sequence of its gain over a learner with the
present settings lies above 0. Run k with m policies has the level α_k/m with α_k = 6α/(π²k²), and
Σ α_k = α: over all runs, a candidate that is not better is applied with a chance of at most α.
Every run is an evaluation of the type Auto, with its evidence.
"""

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple
from uuid import uuid4

import msgspec

from windvane.errors import StoreError, WindvaneError
from windvane.service.clock import (
    MICROSECONDS_PER_DAY,
    MICROSECONDS_PER_SECOND,
    format_date,
    parse_date,
)
from windvane.service.errors import ServiceError
from windvane.service.evaluations.compared_policies import check_policies
from windvane.service.evaluations.records import (
    CONFIDENCE,
    FAILURE,
    MAX_EVALUATED_DECISIONS,
    OPTIMAL_IF_NONE_IS_SURE,
    OUTCOME,
    PROGRESS,
    SERIES,
    EvaluationContract,
    EvaluationOutcome,
    Job,
    PolicyOutcome,
    PolicySeries,
    check_contract,
    decode_contract,
    decode_outcome,
    decode_series,
    encode,
)
from windvane.service.loops.loop import Loop
from windvane.service.loops.service import WRITE_TIMEOUT_SECONDS, Service
from windvane.service.store.decision_queries import count_decisions
from windvane.service.store.evaluations import (
    AUTO,
    DeleteEvaluation,
    EndEvaluation,
    PutEvaluation,
    find_evaluation,
    list_evaluations,
    list_running,
    read_result,
    split_result,
)
from windvane.service.store.rows import EvaluationRow
from windvane.service.store.schema import CANCELED, RUNNING
from windvane.service.store.writer.writer_protocol import (
    MessageSplitter,
    build_command,
    build_environment,
)
from windvane.settings import parse_seconds

SUCCEEDED, FAILED, TIMEOUT = "Succeeded", "Failed", "Timeout"
APPLIED, RETAINED = "OptimalPolicyApplied", "OnlinePolicyRetained"
TIME_LIMIT_SECONDS = 6 * 3600.0  # of one evaluation
SHARED_INTERVAL_SECONDS = 1.0  # pause between two looks at what other processes did
RETRY_SECONDS = 5.0  # after the log could not be read or written
BY_AUTO_OPTIMISATION = "auto-optimise"  # author of a change of settings
EVALUATION_CODE = "from windvane.service.evaluations.worker import main; main()"
READ_BYTES = 1 << 16
# so that an evaluation takes one core and no more
LIBRARIES = ("NUMBA_NUM", "OPENBLAS_NUM", "MKL_NUM", "OMP_NUM", "POLARS_MAX")
ONE_THREAD = {f"{library}_THREADS": "1" for library in LIBRARIES}
logger = logging.getLogger("windvane.service")
CHECK_INTERVAL_SECONDS = 60.0  # pause between two looks for loops that are due
EVALUATED_DAYS = 14


class JobResult(NamedTuple):
    """What the process of an evaluation has found, as JSON."""

    outcome: bytes
    series: bytes


class JobError(WindvaneError):
    """The process of an evaluation could not finish; the sentence says why."""


async def run_child(job: Job, report: Callable[[float], None]) -> JobResult:
    """Run a job in a process of its own; if the task is cancelled, the process is killed."""
    process = await asyncio.create_subprocess_exec(
        *build_command(EVALUATION_CODE),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env=build_environment() | ONE_THREAD,
        start_new_session=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    contents: dict[bytes, bytes] = {}
    splitter = MessageSplitter()
    try:
        process.stdin.write(encode(job) + b"\n")
        while data := await process.stdout.read(READ_BYTES):
            for message in splitter.feed(data):
                kind, content = message[:1], message[1:]
                if kind == PROGRESS:
                    report(float(content))
                else:
                    contents[kind] = content
        code = await process.wait()
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    if FAILURE in contents:
        raise JobError(contents[FAILURE].decode())
    if OUTCOME not in contents or SERIES not in contents:
        raise JobError(f"the process of the evaluation ended with code {code}")
    return JobResult(contents[OUTCOME], contents[SERIES])


class Evaluations:
    """The evaluations of a service."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._has_work = asyncio.Event()
        self._has_work.set()  # a service before this one may have left some
        self._running: tuple[int, asyncio.Task[JobResult]] | None = None  # id of the row, its job
        self.progress = 0.0  # of the evaluation that runs
        self.ended_counts: Counter[str] = Counter()  # by status, since the start

    @property
    def running_count(self) -> int:
        """How many evaluations run now: 0 or 1."""
        return 0 if self._running is None else 1

    def find_progress(self, row: EvaluationRow) -> float | None:
        """The share of an evaluation that is done; None if it does not run now."""
        is_running = self._running is not None and self._running[0] == row.id
        return self.progress if is_running else None

    async def create(
        self, loop_name: str, contract: EvaluationContract, type_: str
    ) -> EvaluationRow:
        """Ask for an evaluation; it starts when those before it have ended."""
        key = str(uuid4())
        loop = await self._service.get_loop(loop_name)
        check_contract(contract)
        await asyncio.to_thread(check_policies, contract, loop.settings)
        await asyncio.to_thread(self._check_size, loop, contract)
        text, now = encode(contract).decode(), self._service.clock.now_us()
        put = PutEvaluation(loop.id, key, contract.name, type_, text, now)
        done = await self._service.write(put, timeout=WRITE_TIMEOUT_SECONDS)
        if done == "full":
            raise ServiceError("full", "the loop has too many evaluations: delete some")
        self._has_work.set()
        return await self.find(loop_name, key)

    def _check_size(self, loop: Loop, contract: EvaluationContract) -> None:
        count = count_decisions(self._service.store, loop.id, contract.since, contract.until)
        if count == 0:
            message = "there is no decision between startTime and endTime"
            raise ServiceError("no logs", message, "startTime")
        if count > MAX_EVALUATED_DECISIONS:
            message = f"{count} decisions are more than {MAX_EVALUATED_DECISIONS}: take less time"
            raise ServiceError("too many logs", message, "startTime")

    async def find(self, loop_name: str, key: str) -> EvaluationRow:
        loop = await self._service.get_loop(loop_name)
        row = await asyncio.to_thread(find_evaluation, self._service.store, loop.id, key)
        if row is None:
            raise ServiceError("unknown", f"there is no evaluation with the id {key[:80]!r}")
        return row

    async def list_rows(self, loop_name: str, type_: str | None = None) -> Sequence[EvaluationRow]:
        """List the evaluations of a loop, the newest first."""
        loop = await self._service.get_loop(loop_name)
        return await asyncio.to_thread(list_evaluations, self._service.store, loop.id, type_)

    async def read_series(self, row: EvaluationRow) -> list[PolicySeries]:
        """Read the time series of an evaluation, in the order of its policies."""
        if row.outcome is None or row.status == RUNNING:
            return []
        blob = await asyncio.to_thread(read_result, self._service.store, row.id)
        return await asyncio.to_thread(decode_series, blob) if blob else []

    async def delete(self, row: EvaluationRow) -> None:
        """Delete an evaluation; one that runs is ended."""
        await self._service.write(DeleteEvaluation(row.id), timeout=WRITE_TIMEOUT_SECONDS)
        if row.status == RUNNING:
            self.ended_counts[CANCELED] += 1
        if self._running is not None and self._running[0] == row.id:
            self._running[1].cancel()

    async def apply(self, loop_name: str, key: str, policy_name: str, by: str) -> None:
        """Give a loop the settings of a policy of an evaluation; what it has learned stays."""
        row = await self.find(loop_name, key)
        if row.status in (RUNNING, FAILED, TIMEOUT) or row.outcome is None:
            message = f"the evaluation {key[:80]!r} has no result: its status is {row.status}"
            raise ServiceError("not ended", message, "evaluationId")
        outcome = decode_outcome(row.outcome)
        policy = find_policy(outcome, policy_name)
        if policy is None or policy.changes is None:
            message = f"the evaluation has no policy {policy_name[:80]!r} that a loop can run"
            raise ServiceError("no settings", message, "policyName")
        if not policy.changes:
            return
        if policy.result["gain"]["verdict"] != "better" or policy.problems or outcome.doubt:
            message = (
                f"keep what you have: {policy_name[:80]!r} is not better than the present settings "
                f"with {CONFIDENCE}; PUT configurations/policy changes settings anyway"
            )
            raise ServiceError("not better", message, "policyName")
        await self._service.change_settings(loop_name, policy.changes, by)

    async def run(self) -> None:
        """Run what was asked for, one after the other, until cancelled."""
        while True:
            # Other servers ask for evaluations, too.
            seconds = None if self._service.sharing is None else SHARED_INTERVAL_SECONDS
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._has_work.wait()
            self._has_work.clear()
            try:
                await self._run_all()
            except (StoreError, TimeoutError):
                await asyncio.sleep(RETRY_SECONDS)
                self._has_work.set()

    async def _run_all(self) -> None:
        while self._service.is_leader:
            rows = await asyncio.to_thread(list_running, self._service.store)
            if not rows:
                return
            await self._run_one(rows[0])

    async def _watch(self, row: EvaluationRow, task: "asyncio.Task[JobResult]") -> None:
        """Cancel a job if another server leads now, or the evaluation or its loop was deleted."""
        while True:
            await asyncio.sleep(SHARED_INTERVAL_SECONDS)
            with contextlib.suppress(StoreError):
                running = await asyncio.to_thread(list_running, self._service.store)
                if not self._service.is_leader or row.id not in {each.id for each in running}:
                    task.cancel()

    async def _run_one(self, row: EvaluationRow) -> None:
        loop = self._service.find_loop(row.loop)
        if loop is None:
            await self._end(row, FAILED, EvaluationOutcome(error="its loop cannot be loaded"))
            return
        job = Job(
            where=self._service.store.url.render_as_string(hide_password=False),
            loop=loop.name,
            contract=decode_contract(row.contract),
            settings=msgspec.to_builtins(loop.settings),
        )
        try:
            result = await self._run_job(row, job)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():  # the service ends; the row stays
                raise
            return  # the evaluation was deleted
        except TimeoutError:
            error = f"it took longer than {TIME_LIMIT_SECONDS / 3600:g} hours"
            await self._end(row, TIMEOUT, EvaluationOutcome(error=error))
        except JobError as reason:
            logger.warning("the evaluation %s of loop %s failed: %s", row.key, loop.name, reason)
            await self._end(row, FAILED, EvaluationOutcome(error=str(reason)))
        else:
            await self._finish(row, loop, result)

    async def _run_job(self, row: EvaluationRow, job: Job) -> JobResult:
        self.progress = 0.0
        task = asyncio.create_task(run_child(job, partial(setattr, self, "progress")))
        self._running = (row.id, task)
        tasks: list[asyncio.Task[Any]] = [task, asyncio.create_task(self._watch(row, task))]
        try:
            async with asyncio.timeout(TIME_LIMIT_SECONDS):
                return await task
        finally:
            for each in tasks:
                each.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._running = None

    async def _finish(self, row: EvaluationRow, loop: Loop, result: JobResult) -> None:
        """Write what was found; auto-optimisation applies it."""
        for part in split_result(row.id, result.series):
            await self._service.write(part)
        outcome, status = decode_outcome(result.outcome), SUCCEEDED
        if row.type == AUTO:
            status = RETAINED
            optimal = find_policy(outcome, outcome.optimal_policy)
            changes = None if optimal is None else optimal.changes
            outcome = msgspec.structs.replace(outcome, evidence=describe_evidence(outcome))
            is_current = self._service.find_loop(row.loop) is loop  # another one may have its name
            if changes and is_current and loop.settings.is_auto_optimization_enabled:
                status = APPLIED
                await self._service.change_settings(loop.name, changes, BY_AUTO_OPTIMISATION)
            logger.info("loop %s: %s: %s", loop.name, status, outcome.evidence)
        if not await self._end(row, status, outcome):
            await self._service.write(DeleteEvaluation(row.id))  # the parts of a deleted one

    async def _end(self, row: EvaluationRow, status: str, outcome: EvaluationOutcome) -> bool:
        text = encode(outcome).decode()
        end = EndEvaluation(row.id, status, text, self._service.clock.now_us())
        has_ended = await self._service.write(end)
        if has_ended:
            self.ended_counts[status] += 1
        return has_ended


def find_policy(outcome: EvaluationOutcome, name: str) -> PolicyOutcome | None:
    return next((policy for policy in outcome.policies if policy.name == name), None)


def describe_evidence(outcome: EvaluationOutcome) -> str:
    """Why auto-optimisation applies a policy or retains the loop's own, in a sentence."""
    policy = find_policy(outcome, outcome.optimal_policy)
    if policy is not None and policy.name != OPTIMAL_IF_NONE_IS_SURE:
        low, high = policy.result["gain"]["interval"]
        verb = "is applied" if policy.changes else "cannot be run by a loop"
        return (
            f"{policy.name} ({policy.arguments}) {verb}: it earns between {low:.4f} and "
            f"{high:.4f} more a decision than the present settings, over {outcome.rows} decisions"
        )
    count = sum(policy.source == "OfflineExperimentation" for policy in outcome.policies)
    return (
        f"keep what you have: none of {count} candidates earns more than the present settings with "
        f"{CONFIDENCE}, over {outcome.rows} decisions"
    )


async def run_auto_optimization(service: Service, evaluations: Evaluations) -> None:
    """Ask for an evaluation of every loop that is due, until cancelled."""
    while True:
        for loop in list(service.loops.values()):
            if not (service.is_leader and loop.settings.is_auto_optimization_enabled):
                continue
            try:
                await optimize_if_due(service, evaluations, loop)
            except (StoreError, TimeoutError):
                continue  # the log fails; the next look comes soon
            except ServiceError as reason:
                logger.warning("loop %s cannot be optimised: %s", loop.name, reason)
        await asyncio.sleep(CHECK_INTERVAL_SECONDS)


async def optimize_if_due(service: Service, evaluations: Evaluations, loop: Loop) -> bool:
    """Ask for an evaluation of a loop if it is due; returns whether it was."""
    now = service.clock.now_us()
    settings = loop.settings
    if now < parse_date(settings.auto_optimization_start_date):
        return False
    rows = await evaluations.list_rows(loop.name, AUTO)
    every = parse_seconds(settings.auto_optimization_frequency) * MICROSECONDS_PER_SECOND
    if rows and (rows[0].status == RUNNING or now < rows[0].created + every):
        return False
    contract = EvaluationContract(
        name=f"auto-optimisation of {format_date(now)}",
        since=now - EVALUATED_DAYS * MICROSECONDS_PER_DAY,
        until=now,
        optimizes=True,
        run=1 + (decode_contract(rows[0].contract).run if rows else 0),
    )
    try:
        await evaluations.create(loop.name, contract, AUTO)
    except ServiceError as reason:
        if reason.reason != "no logs":
            raise
        return False
    return True
