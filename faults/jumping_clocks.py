"""Faults of the clock: jumps of an hour, a day and a year, ahead and back (libfaketime)."""

import time
from contextlib import closing
from itertools import product
from pathlib import Path

from faults.cases import Case
from faults.outcome import Outcome
from faults.stage import Site, Stage
from faults.under_traffic import Scene, run_under_traffic
from server_process import Client
from windvane.service.clock import MICROSECONDS_PER_SECOND
from windvane.service.store.log import LogReader

CLOCK = "no jump is believed"  # the promise that only these cases check
JUMPS_SECONDS = [sign * size for size, sign in product((3600, 86_400, 365 * 86_400), (1, -1))]
TRAFFIC_SECONDS = 3.0
PATIENT_EVENTS = 20
PATIENT_LOOP = {"halfLife": "1 hour", "rewardWaitTime": "PT10M", "logRetentionDays": 1}
TOLERANCE_SECONDS = 120.0  # by which a time in the log may differ from the true time
LIBRARY = "libfaketimeMT.so.1"
FOLDERS = (Path("/usr/lib"), Path("/usr/local/lib"), Path("/usr/lib64"))


def find_library() -> Path | None:
    """The library that fakes the time."""
    return next((path for folder in FOLDERS for path in sorted(folder.glob(f"**/{LIBRARY}"))), None)


def find_clock_obstacle() -> str | None:
    """Why clocks cannot jump here."""
    return None if find_library() else "install libfaketime (Debian: faketime) for jumping clocks"


def run_jumps(stage: Stage, case: Case) -> Outcome:
    """Let the wall clock jump, sometimes restart the service meanwhile, and let it jump back."""
    site = stage.make_site(case.name, case.database)
    clock = site.data.with_name("clock")
    set_clock(clock, 0)
    began = time.time()
    jump = JUMPS_SECONDS[case.number // 2 % len(JUMPS_SECONDS)]  # each on both databases
    with stage.make_nursery(make_environment(clock)) as nursery:
        outcome = run_under_traffic(
            stage, case, lambda scene: _jump(scene, clock, jump), nursery, site
        )
    check_times(outcome, site, began)
    return outcome


def make_environment(clock: Path) -> dict[str, str]:
    """What a process needs so that a file sets its wall clock; see `set_clock`."""
    return {
        "LD_PRELOAD": str(find_library()),
        "FAKETIME_TIMESTAMP_FILE": str(clock),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "NO_FAKE_STAT": "1",
    }


def set_clock(file: Path, seconds: int) -> None:
    """Let the clock be ahead of the true time by so many seconds."""
    new = file.with_suffix(".new")
    new.write_text(f"{seconds:+d}\n")
    new.replace(file)


def _jump(scene: Scene, clock: Path, jump: int) -> None:
    server, draw = scene.server, scene.draw
    with closing(server.client()) as client:
        created = client.call("POST", "/loops", {"name": "patient", "settings": PATIENT_LOOP})
        if created.status != 201:
            raise RuntimeError(f"the loop cannot be created: {created}")
        events = rank_patient_events(client)
    time.sleep(TRAFFIC_SECONDS)
    for _ in range(scene.case.amount):
        set_clock(clock, jump)
        scene.outcome.counts[f"jump by {jump} s"] += 1
        time.sleep(draw.uniform(1.0, TRAFFIC_SECONDS))
        if draw.random() < 0.5:
            server.kill()
            server.start()
            server.wait()
            scene.outcome.counts["start with a false clock"] += 1
            time.sleep(draw.uniform(1.0, TRAFFIC_SECONDS))
        set_clock(clock, 0)
        time.sleep(draw.uniform(1.0, TRAFFIC_SECONDS))
    with closing(server.client()) as client:
        reward_patient_events(scene, client, events)


def rank_patient_events(client: Client) -> list[str]:
    """Make decisions that wait for their rewards during the jump; returns their events."""
    events = []
    for number in range(PATIENT_EVENTS):
        body = {"eventId": f"patient-{number}", "actions": [{"id": "one", "features": []}]}
        answer = client.rank(body, "/loops/patient")
        if answer.status == 201 and not answer.json["degraded"]:
            events.append(f"patient-{number}")
    return events


def reward_patient_events(scene: Scene, client: Client, events: list[str]) -> None:
    """Check that the decisions still wait, and that their rewards are learned."""
    with LogReader(scene.site.location) as log:
        row = log.find_loop("patient")
        for event in events:
            while client.reward(event, 0.5, "/loops/patient").status == 503:
                time.sleep(0.1)
            rewards = [] if row is None else log.list_rewards(row.id, event)
            statuses = [reward.status for reward in rewards]
            sentence = f"the reward of {event} is {statuses}"
            scene.outcome.check(CLOCK, statuses[:1] == ["learned"], sentence)


def check_times(outcome: Outcome, site: Site, began: float) -> None:
    """Check that all times in the log are near the true time."""
    low = (began - TOLERANCE_SECONDS) * MICROSECONDS_PER_SECOND
    high = (time.time() + TOLERANCE_SECONDS) * MICROSECONDS_PER_SECOND
    with LogReader(site.location) as log:
        for row in log.list_loops():
            for lessons in log.iterate_lessons(row.id):
                for lesson in lessons:
                    is_near = low < lesson.at < high and low < lesson.ranked_at < high
                    ahead = (lesson.at - high) / MICROSECONDS_PER_SECOND
                    sentence = f"a lesson of {row.name} is dated {ahead:.0f} seconds from now"
                    outcome.check(CLOCK, is_near, sentence)
