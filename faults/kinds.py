"""All kinds of faults, and how many of each a whole run has."""

from faults.cases import POSTGRESQL, SQLITE, Case, Kind, plan_cases
from faults.changing_settings import run_settings
from faults.failing_disks import (
    find_shim_obstacle,
    run_failing_syncs,
    run_full_disk,
    run_readonly,
    run_slow_syncs,
)
from faults.failing_postgresql import (
    run_cut_connections,
    run_locked_table,
    run_readonly_database,
)
from faults.hostile_requests import run_hostile_requests
from faults.jumping_clocks import find_clock_obstacle, run_jumps
from faults.killed_processes import run_kills, run_stops, run_withdrawals
from faults.shared_log import run_choices, run_servers
from faults.soak import run_soak

KILLS = 1000
CHOICES = 50_000
HOSTILE_REQUESTS = 100_000
SOAK_MINUTES = 60


def list_kinds(
    kills: int = KILLS, requests: int = HOSTILE_REQUESTS, soak_minutes: int = SOAK_MINUTES
) -> list[Kind]:
    """All kinds; the soak comes last."""
    on_sqlite, on_postgresql = (SQLITE,), (POSTGRESQL,)
    shim = find_shim_obstacle
    return [
        Kind("kill", "kills", run_kills, kills, 25),
        Kind("kill-degraded", "kills", run_withdrawals, 60, 3),
        Kind("stop", "stops", run_stops, 60, 5),
        Kind("settings", "faults", run_settings, 64, 8),
        Kind("cut", "cuts", run_cut_connections, 80, 8, on_postgresql),
        Kind("locked", "locks", run_locked_table, 12, 3, on_postgresql),
        Kind("readonly", "faults", run_readonly_database, 12, 3, on_postgresql),
        Kind("readonly", "faults", run_readonly, 12, 3, on_sqlite, shim),
        Kind("full-disk", "faults", run_full_disk, 20, 4, on_sqlite),
        Kind("slow-sync", "faults", run_slow_syncs, 20, 4, on_sqlite, shim),
        Kind("failing-sync", "faults", run_failing_syncs, 20, 4, on_sqlite, shim),
        Kind("servers", "faults", run_servers, 480, 40, on_postgresql),
        Kind("choices", "choices", run_choices, CHOICES, CHOICES, on_postgresql),
        Kind("clock", "jumps", run_jumps, 24, 2, find_obstacle=find_clock_obstacle),
        Kind("hostile", "requests", run_hostile_requests, requests, 2500),
        Kind("soak", "minutes", run_soak, soak_minutes, max(1, soak_minutes), on_sqlite),
    ]


def plan_run(kinds: list[Kind]) -> list[Case]:
    """All cases of a run, the soak last."""
    cases = plan_cases(kinds)
    return sorted(cases, key=lambda case: case.kind == "soak")


def find_kind(kinds: list[Kind], case: Case) -> Kind:
    """The kind of a case; SQLite and PostgreSQL may have faults of one name."""
    for kind in kinds:
        if kind.name == case.kind and case.database in kind.databases:
            return kind
    raise ValueError(f"faults: there is no kind {case.kind} on {case.database}")
