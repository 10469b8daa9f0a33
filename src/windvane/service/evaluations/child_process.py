"""The service's end of the process of an evaluation: start it, read what it reports, end it."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import NamedTuple

from windvane.errors import WindvaneError
from windvane.service.evaluations.contract import Job
from windvane.service.evaluations.job_messages import FAILURE, OUTCOME, PROGRESS, SERIES
from windvane.service.evaluations.outcome import encode
from windvane.service.processes import build_command, build_environment
from windvane.service.store.writer.writer_protocol import MessageSplitter

EVALUATION_CODE = "from windvane.service.evaluations.worker import main; main()"
READ_BYTES = 1 << 16
ONE_THREAD = {  # so that an evaluation takes one core and no more
    "NUMBA_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "POLARS_MAX_THREADS": "1",
}


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
