"""The journeys of docs/architecture.md are those of real calls, most with the compiler off.

Every hop of a table must have been called in its phase of the recording, after the hop before it.
"""

import os
import re
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from log_writers import simulate_decisions, write_dsjson
from processes import run_python
from server_process import Nursery, Server
from shared_log_helpers import BODY, read_bits
from waiting import wait_until

PAGE = Path(__file__).parents[2] / "docs" / "architecture.md"
RECORDER = Path(__file__).parents[1] / "support" / "journey_recorder"
ROW = re.compile(r"^\| \d+ \| `([\w./]+)` \| `(\w+)` \| .+ \|$")
MOST_FILES_OF_A_RANK = 38

LIBRARY = """
import os, sys
import numpy as np, windvane as wv

def next_phase():
    with open(os.environ["WINDVANE_RECORDING"] + "/phase", "ab") as file:
        file.write(b".")

policy, arms = wv.Policy(dim=3, seed=1), np.eye(3)
learner = wv.Learner(seed=1)
actions = [{"id": "news", "topic": "politics"}, "match"]
next_phase()
choice = policy.choose(arms)
next_phase()
policy.learn(choice, 1.0)
next_phase()
decision = learner.rank({"device": "phone"}, actions)
next_phase()
learner.reward(decision, 1.0)
"""


class Hop(NamedTuple):
    """A function that was called."""

    file: str  # below src/windvane
    name: str


class Recording:
    """The calls of all processes that were started with `environment`, in phases."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        (folder / "phase").write_bytes(b"")
        paths = os.pathsep.join(filter(None, [str(RECORDER), os.environ.get("PYTHONPATH")]))
        self.environment = os.environ | {
            "PYTHONPATH": paths,
            "WINDVANE_RECORDING": str(folder),
            "NUMBA_DISABLE_JIT": "1",  # calls inside of compiled code are recorded, too
        }

    @contextmanager
    def phase(self, process: int | None = None) -> Iterator[list[Hop]]:
        """The calls in the meantime, of one process or of all; filled when the context ends."""
        calls: list[Hop] = []
        with open(self._folder / "phase", "ab") as file:
            file.write(b".")
        yield calls
        calls.extend(self.read((self._folder / "phase").stat().st_size, process))

    def read(self, phase: int, process: int | None = None) -> list[Hop]:
        """The first calls of each function in a phase, in the order of time."""
        lines = []
        for file in self._folder.glob("*.calls"):
            for line in file.read_text("utf-8").splitlines():
                when, number, who, path, name = line.split("\t")
                if int(number) == phase and process in (None, int(who)):
                    lines.append((int(when), Hop(path, name)))
        return [hop for _, hop in sorted(lines)]


def read_tables(journey: int) -> list[list[Hop]]:
    """The tables of a journey on the page."""
    [section] = re.findall(
        rf"^## Journey {journey}: .*?(?=^## |\Z)", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL
    )
    tables: list[list[Hop]] = [[]]
    for line in section.splitlines():
        if row := ROW.match(line):
            tables[-1].append(Hop(*row.groups()))
        elif tables[-1]:
            tables.append([])
    return [table for table in tables if table]


def compare(table: list[Hop], calls: list[Hop]) -> None:
    """Every hop was called, after the one before it in the table."""
    place = 0
    for hop in table:
        assert hop in calls, f"never called: {hop}"
        assert hop in calls[place:], f"not called after the hop before it: {hop}"
        place = calls.index(hop, place) + 1


@pytest.fixture
def recording(tmp_path: Path) -> Recording:
    folder = tmp_path / "recording"
    folder.mkdir()
    return Recording(folder)


@pytest.mark.parametrize("journey", [1, 2])
def test_a_choice_and_a_lesson_go_as_the_page_says(recording: Recording, journey: int) -> None:
    run_python("-c", LIBRARY, environment=recording.environment)
    first = 2 * journey - 1
    choosing, learning = read_tables(journey)
    compare(choosing, recording.read(first))
    compare(learning, recording.read(first + 1))


def test_a_simulated_round_goes_as_the_page_says(recording: Recording, tmp_path: Path) -> None:
    world = ("--dim", "3", "--arms", "4", "--horizon", "20", "--replications", "2")
    words = ("simulate", "--policy", "D-LinTS", *world, "--out", tmp_path / "out")
    run_python("-m", "windvane", *words, environment=recording.environment)
    [table] = read_tables(3)
    compare(table, recording.read(0))


def test_a_rank_and_its_reward_go_as_the_page_says(
    recording: Recording, tmp_path: Path, nursery: Nursery
) -> None:
    with Server(nursery, tmp_path / "compiled"):  # compiles what is not on disk, unrecorded
        pass
    recorded = Nursery(recording.environment | {"NUMBA_DISABLE_JIT": "0"})
    with closing(recorded), Server(recorded, tmp_path / "data") as server:
        server.stop()
        with recording.phase() as start:
            server.start()
            server.wait()
        with closing(server.client()) as client:
            assert client.rank(BODY).status == 201  # the first one also fills caches
            with recording.phase() as rank:
                assert not client.rank(BODY | {"eventId": "visit"}).json["degraded"]
            with recording.phase() as reward:
                assert client.reward("visit", 1.0).status == 204
                wait_until(lambda: read_bits(client)[0] == 1)
    for table, calls in zip(read_tables(4), (start, rank, reward), strict=True):
        compare(table, calls)
    assert len({hop.file for hop in rank}) <= MOST_FILES_OF_A_RANK


def test_an_evaluation_goes_as_the_page_says(recording: Recording, tmp_path: Path) -> None:
    log = tmp_path / "log.dsjson"
    write_dsjson(log, simulate_decisions(30))
    policies = ("--policy", "first", "--policy", "learner")
    words = ("-m", "windvane", "evaluate", log, *policies, "--json")
    run_python(*words, environment=recording.environment)
    [table] = read_tables(5)
    compare(table, recording.read(0))


def test_another_server_folds_the_log_as_the_page_says(
    recording: Recording, tmp_path: Path, postgresql: Callable[[], str]
) -> None:
    nursery, database = Nursery(recording.environment), postgresql()
    with (
        closing(nursery),
        Server(nursery, tmp_path / "a", database) as one,
        Server(nursery, tmp_path / "b", database) as other,
        closing(one.client()) as client,
        closing(other.client()) as other_client,
        recording.phase(other.process) as fold,
    ):
        assert not client.rank(BODY | {"eventId": "visit"}).json["degraded"]
        assert client.reward("visit", 1.0).status == 204
        wait_until(lambda: read_bits(other_client)[0] == 1)
    [table] = read_tables(6)
    compare(table, fold)
