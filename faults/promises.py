"""The promises of the service, and how each is checked against a log and a record of traffic.

The page docs/service/promises.md states them for users. Every case ends with `check_promises`.
"""

import json
import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import closing
from itertools import chain
from typing import NamedTuple

from choice_frequencies import compare_choices
from faults.belief_fold import read_beliefs
from faults.outcome import Outcome
from faults.stage import Site
from faults.traffic import LOOPS, EventKey, Visitor
from server_process import BASE, Client, Server
from store_helpers import list_decisions
from windvane.service.loops.settings import LoopSettings
from windvane.service.store.database import resolve_url
from windvane.service.store.files.service_lock import hold_service_lock
from windvane.service.store.log import LogReader
from windvane.service.store.rows import DecisionRow, Lesson, RewardRow, SettingsChange, get_answer

DURABLE = "acknowledged is durable"
ONCE = "learned once"
BELIEF = "belief equals a fresh fold"
ONE_DECISION = "one decision an event"
NO_ERROR = "no internal error"
LATENCY = "bounded latency"
DEGRADED = "degraded is never learned"
RECOVERY = "recovers by itself"
PROBABILITIES = "choices follow their probabilities"
SETTINGS = "settings follow the log"
PROMISES = (
    *(DURABLE, ONCE, BELIEF, ONE_DECISION, NO_ERROR, LATENCY, DEGRADED, RECOVERY),
    *(PROBABILITIES, SETTINGS),
)

MAX_ANSWER_SECONDS = 30.0  # to any request that is answered, also while a service restarts
RECOVERY_SECONDS = 60.0  # from the end of a fault until requests succeed again
WRITER_END_SECONDS = 30.0  # for the writer process to end after its service
LEAST_P_VALUE = 1e-6  # of the choices of a loop; a whole run has about a thousand such tests
LEAST_CHOICES = 100  # in a loop, so that the law of large numbers holds
MAX_REPEATED_RANKS = 200  # requests that are sent again in the end, of each visitor


class LoopLog(NamedTuple):
    """All rows of one loop."""

    decisions: dict[str, DecisionRow]  # by event id
    lessons: dict[int, list[Lesson]]  # by decision
    rewards: dict[str, list[RewardRow]]  # by event id


def check_promises(
    outcome: Outcome, site: Site, server: Server, visitors: Sequence[Visitor]
) -> None:
    """Check all promises after the faults have ended; in the end the service is stopped."""
    check_answers(outcome, visitors)
    if not check_recovery(outcome, server):
        return
    with closing(server.client()) as client:
        check_repeated_ranks(outcome, client, visitors)
    check_beliefs(outcome, site, server)
    outcome.check(NO_ERROR, "Traceback" not in server.log, f"a traceback in {server.data}.log")
    server.stop()
    with hold_service_lock(resolve_url(site.location), WRITER_END_SECONDS):
        check_log(outcome, site, visitors)
        check_modes(outcome, site, visitors)


def check_answers(outcome: Outcome, visitors: Sequence[Visitor]) -> None:
    """Check what the visitors saw: statuses, latency, the same answer to a repeated request."""
    for visitor in visitors:
        outcome.counts.update(visitor.counts)
        outcome.checks[NO_ERROR] += sum(visitor.counts[what] for what in ("rank", "reward"))
        for sentence in visitor.unexpected:
            promise = ONE_DECISION if "two answers" in sentence else NO_ERROR
            outcome.check(promise, False, sentence)
        slowest = visitor.slowest_seconds
        name = "milliseconds of the slowest answer"
        outcome.counts[name] = max(outcome.counts[name], round(1000 * slowest))
        sentence = f"a request was answered after {slowest:.1f} seconds"
        outcome.check(LATENCY, slowest < MAX_ANSWER_SECONDS, sentence)


def check_recovery(outcome: Outcome, server: Server) -> bool:
    """Check that the service answers every loop again, without degraded answers."""
    try:
        server.wait(RECOVERY_SECONDS)
    except RuntimeError as reason:
        outcome.check(RECOVERY, False, f"the service does not start again: {reason}")
        return False
    for loop in LOOPS:
        is_back = wait_for_choice(server, loop)
        sentence = f"loop {loop} is still degraded {RECOVERY_SECONDS:.0f} seconds after the faults"
        outcome.check(RECOVERY, is_back, sentence)
    return True


def wait_for_choice(server: Server, loop: str) -> bool:
    """Whether a rank request of a loop is answered in time without being degraded."""
    end = time.monotonic() + RECOVERY_SECONDS
    with closing(server.client()) as client:
        while time.monotonic() < end:
            body = {"actions": [{"id": "one", "features": []}]}
            answer = client.rank(body, f"/loops/{loop}")
            if answer.status == 201 and not answer.json["degraded"]:
                return True
            time.sleep(0.1)
    return False


def check_repeated_ranks(outcome: Outcome, client: Client, visitors: Sequence[Visitor]) -> None:
    """Check that another request with the id of a decided event gets the same answer."""
    last_deletion = max((visitor.last_deletion for visitor in visitors), default=0.0)
    for visitor in visitors:
        kept = [
            (key, answer.body)
            for key, answer in visitor.answers.items()
            if key[0] != "purged" or answer.sent > last_deletion
        ]
        for (loop, event), body in kept[-MAX_REPEATED_RANKS:]:
            request = {"eventId": event, "actions": [{"id": "new", "features": []}]}
            again = client.rank(request, f"/loops/{loop}")
            sentence = f"event {event} of {loop}: {body!r}, then {again.body!r}"
            outcome.check(ONE_DECISION, again.body == body, sentence)


def check_beliefs(outcome: Outcome, site: Site, server: Server) -> None:
    """Check that every live belief has the bits of a fold over its log.

    The log still grows by default rewards for a moment, so that a difference counts if it stays.
    """
    end = time.monotonic() + RECOVERY_SECONDS
    while True:
        with closing(server.client()) as client:
            models = {loop: client.call("GET", f"/loops/{loop}{BASE}/model").body for loop in LOOPS}
        beliefs = read_beliefs(site.location, models)
        differing = {
            loop: parts
            for loop, parts in beliefs.items()
            # Lessons that a snapshot contains are deleted with the log.
            if parts.live != parts.restored or (parts.folded != parts.live and loop != "purged")
        }
        if not differing or time.monotonic() > end:
            break
        time.sleep(0.5)
    for loop, parts in beliefs.items():
        outcome.check(BELIEF, loop not in differing, f"loop {loop}: {parts}")
        outcome.counts["lessons"] += parts.lessons


def read_loop_log(log: LogReader, loop: int, events: set[str]) -> LoopLog:
    """Read all rows of a loop, with the rewards of these events."""
    decisions = {decision.event_id: decision for decision in list_decisions(log, loop)}
    lessons: dict[int, list[Lesson]] = defaultdict(list)
    for batch in log.iterate_lessons(loop):
        for lesson in batch:
            lessons[lesson.decision].append(lesson)
    rewards = {event: log.list_rewards(loop, event) for event in events}
    return LoopLog(decisions, lessons, rewards)


def check_log(outcome: Outcome, site: Site, visitors: Sequence[Visitor]) -> None:
    """Check the rows of the log against the record of the traffic."""
    last_deletion = max((visitor.last_deletion for visitor in visitors), default=0.0)
    events: dict[str, set[str]] = {loop: set() for loop in LOOPS}
    for visitor in visitors:
        for loop, event in (*visitor.events, *(reward[:2] for reward in visitor.rewards)):
            events[loop].add(event)
    logs: dict[str, LoopLog] = {}
    changes: list[SettingsChange] = []
    with LogReader(site.location) as log:
        for loop in LOOPS:
            row = log.find_loop(loop)
            outcome.check(DURABLE, row is not None, f"loop {loop} is not in the log")
            if row is not None:
                logs[loop] = read_loop_log(log, row.id, events[loop])
                check_rounds(outcome, loop, logs[loop])
                check_lessons(outcome, loop, logs[loop])
                check_probabilities(outcome, loop, logs[loop])
                changes_of_loop = log.list_settings_changes(row.id)
                check_expiries(outcome, loop, logs[loop], changes_of_loop)
                changes += changes_of_loop
    check_settings(outcome, changes, visitors)
    for visitor in visitors:
        check_acknowledged(outcome, logs, visitor, last_deletion)
        check_degraded(outcome, logs, visitor.degraded)


def check_settings(
    outcome: Outcome, changes: list[SettingsChange], visitors: Sequence[Visitor]
) -> None:
    """Check that the log has all changes of settings that were acknowledged."""
    shares = {json.loads(change.settings)["explorationPercentage"] for change in changes}
    for visitor in visitors:
        for share in visitor.shares:
            sentence = f"the change to exploration {share} is not in the log"
            outcome.check(DURABLE, share in shares, sentence)


def check_expiries(
    outcome: Outcome, loop: str, log: LoopLog, changes: list[SettingsChange]
) -> None:
    """Check that decisions waited as long as the settings said, and learned their default reward.

    The settings are those of the last change before the lesson, by the order of the log.
    """
    for lesson in sorted(chain.from_iterable(log.lessons.values())):
        if lesson.kind != "default":
            continue
        [*_, change] = (each for each in changes if each.lesson < lesson.id)
        settings = LoopSettings.from_json(change.settings)
        waited = lesson.at - lesson.ranked_at
        sentence = f"a decision of {loop} waited for {waited} us with {settings.reward_wait_time}"
        outcome.check(SETTINGS, waited >= settings.reward_wait_us, sentence)
        sentence = f"{lesson.value} was learned instead of {settings.default_reward} in {loop}"
        outcome.check(SETTINGS, lesson.value == settings.default_reward, sentence)


def check_modes(outcome: Outcome, site: Site, visitors: Sequence[Visitor]) -> None:
    """Check that each decision has the mode that was acknowledged before, by the same server."""
    with LogReader(site.location) as log:
        row = log.find_loop("plain")
        rows = [] if row is None else list_decisions(log, row.id)
    modes = {decision.event_id: decision.mode for decision in rows}
    for visitor in visitors:
        for (_, event), mode in visitor.modes.items():
            sentence = f"event {event} was decided in mode {modes.get(event)}, not {mode}"
            outcome.check(SETTINGS, modes.get(event) == mode, sentence)


def check_rounds(outcome: Outcome, loop: str, log: LoopLog) -> None:
    """Check that no two choices of a loop were made in the same round."""
    first: dict[int, str] = {}
    for event, decision in log.decisions.items():
        if not decision.degraded:
            other = first.setdefault(decision.round, event)
            sentence = f"round {decision.round} of {loop} was given to {other} and to {event}"
            outcome.check(ONE_DECISION, other == event, sentence)


def check_lessons(outcome: Outcome, loop: str, log: LoopLog) -> None:
    """Check that every decision was learned at most once, and each reward as its status says."""
    by_id = {decision.id: event for event, decision in log.decisions.items()}
    for decision, lessons in log.lessons.items():
        event = by_id.get(decision, "(deleted)")
        kinds = [lesson.kind for lesson in lessons]
        firsts = kinds.count("observe") + kinds.count("default")
        outcome.check(ONCE, firsts == 1, f"event {event} of {loop} has the lessons {kinds}")
        if event in log.rewards:
            statuses = [reward.status for reward in log.rewards[event]]
            expected = (statuses.count("learned"), statuses.count("summed"))
            counted = (kinds.count("observe"), kinds.count("amend"))
            sentence = f"event {event} of {loop} has the lessons {kinds} and rewards {statuses}"
            outcome.check(ONCE, counted == expected, sentence)


def check_probabilities(outcome: Outcome, loop: str, log: LoopLog) -> None:
    """Check that the choices of a loop follow the probabilities in the log."""
    answers = [
        json.loads(get_answer(decision))
        for decision in log.decisions.values()
        if not decision.degraded
    ]
    if len(answers) >= LEAST_CHOICES:
        p_value = compare_choices(answers)
        sentence = f"loop {loop}: the p-value of {len(answers)} choices is {p_value:.1e}"
        outcome.check(PROBABILITIES, p_value > LEAST_P_VALUE, sentence)
        outcome.counts["choices"] += len(answers)


def check_acknowledged(
    outcome: Outcome, logs: dict[str, LoopLog], visitor: Visitor, last_deletion: float
) -> None:
    """Check that the log has all decisions, rewards and activations that were acknowledged."""

    def is_kept(loop: str, sent: float) -> bool:
        return loop in logs and (loop != "purged" or sent > last_deletion)

    for (loop, event), rank in visitor.answers.items():
        if is_kept(loop, rank.sent):
            decision = logs[loop].decisions.get(event)
            stored = None if decision is None else get_answer(decision)
            sentence = f"event {event} of {loop} was answered {rank.body!r}, the log has {stored!r}"
            outcome.check(DURABLE, stored == rank.body, sentence)
    for reward in visitor.rewards:
        if is_kept(reward.loop, reward.sent):
            rows = logs[reward.loop].rewards[reward.event]
            values = [row.value for row in rows if row.request_id == reward.request]
            sentence = f"{reward} is in the log as {values}"
            outcome.check(DURABLE, values == [reward.value], sentence)
    for (loop, event), sent in visitor.activated.items():
        if is_kept(loop, sent) and (loop != "purged" or (loop, event) in visitor.answers):
            is_there = event in logs[loop].decisions
            outcome.check(DURABLE, is_there, f"event {event} of {loop} was activated, and is gone")


def check_degraded(outcome: Outcome, logs: dict[str, LoopLog], degraded: set[EventKey]) -> None:
    """Check that nothing was learned of events that got a degraded answer."""
    for loop, event in degraded:
        if loop in logs and (decision := logs[loop].decisions.get(event)) is not None:
            lessons = logs[loop].lessons.get(decision.id, [])
            sentence = f"event {event} of {loop} was answered degraded; the log has {lessons}"
            outcome.check(DEGRADED, not lessons, sentence)
            sentence = f"event {event} of {loop} was answered degraded; the log has a choice"
            outcome.check(DEGRADED, decision.degraded, sentence)
        else:
            outcome.checks[DEGRADED] += 1
