"""Auto-optimisation: other settings are evaluated at a frequency, and applied if better.

The candidates are evaluated over the last two weeks. One of them replaces the settings of the loop
only if the confidence sequence of its gain over what was logged lies above 0. Run k with m policies
has the level α_k/m with α_k = 6α/(π²k²), and Σ α_k = α: over all runs, a candidate that is not
better is applied with a chance of at most α. Every run is an evaluation of the type Auto, with its
evidence.
"""

import asyncio
import logging
from uuid import uuid4

from windvane.beliefs.bank.settings import parse_seconds
from windvane.errors import StoreError
from windvane.service.clock import MICROSECONDS_PER_DAY, MICROSECONDS_PER_SECOND
from windvane.service.dates import format_date, parse_date
from windvane.service.errors import EvaluationError, ServiceError
from windvane.service.evaluations.evaluations import Evaluations
from windvane.service.evaluations.records import EvaluationContract, decode_contract
from windvane.service.loops.loop import Loop
from windvane.service.loops.service import Service
from windvane.service.store.evaluations import AUTO, RUNNING

CHECK_INTERVAL_SECONDS = 60.0  # pause between two looks for loops that are due
EVALUATED_DAYS = 14
logger = logging.getLogger("windvane.service")


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
        await evaluations.create(loop.name, str(uuid4()), contract, AUTO)
    except EvaluationError as reason:
        if reason.reason != "no logs":
            raise
        return False
    return True
