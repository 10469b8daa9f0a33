"""Ray gives the bits of threads, even if workers die, and leaves no process or task behind."""

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import windvane as wv
from experiments import make_ray_runner, make_thread_runner, run_experiment
from waiting import wait_until
from windvane.errors import SettingError, WindvaneError
from windvane.evaluation.ray_tasks import MAX_ATTEMPTS, TASKS_PER_CPU, _hide_worker_messages
from windvane.lab import worlds
from windvane.lab.engines.game import Player
from windvane.lab.experiments import Chunk, Experiment
from windvane.lab.worlds.drift import Drift

PLAYERS = (
    Player("one", wv.discount(0.95), wv.thompson(0.4)),
    Player("two", wv.window(40), wv.randomized(wv.half_normal(1.0))),
)
POOLS = np.random.default_rng(0).normal(size=(2, 40, 6))
WORLDS = {
    "abrupt": worlds.world(5, 8, 300, worlds.abrupt([100], flip=0.6)),
    "walk": worlds.world(5, 8, 300, worlds.walk(2.0)),
    "pools": worlds.world(6, 8, 300, actions=worlds.pools(*POOLS)),
    "few arms": worlds.world(6, 4, 300, actions=worlds.pools(*POOLS, new_each_round=False)),
}
CPUS = 2


@pytest.fixture(scope="module")
def installed() -> Iterator[None]:
    """Ray, shut down after the last test; in CI, the tests fail if it is not installed."""
    if find_spec("ray") is None:
        stop = pytest.fail if os.environ.get("CI") else pytest.skip
        stop("Ray is not installed: pip install 'windvane[ray]'")
    import ray

    yield
    ray.shutdown()


@pytest.fixture
def disconnected(installed: None) -> None:
    """Disconnect this process from Ray."""
    import ray

    ray.shutdown()


@pytest.fixture
def two_workers(installed: None) -> None:
    """Connect this process to a Ray of two workers."""
    import ray

    if not ray.is_initialized():
        ray.init("local", num_cpus=CPUS, include_dashboard=False, log_to_driver=False)


def small(world: worlds.World, replications: int = 12) -> Experiment:
    return Experiment(PLAYERS, world, replications, seed=5)


def world_with_side_effect(log: Path, side_effect: Callable[[int], object]) -> worlds.World:
    """A world whose draws, in other processes than this, call `side_effect` with their number."""
    plain, here = WORLDS["walk"], os.getpid()

    # A local function is pickled by value; workers cannot import this file.
    def path(*arguments: object) -> object:
        if os.getpid() != here:
            with open(log, "ab", buffering=0) as file:
                file.write(b".")
                side_effect(file.tell())
        return plain.drift.path(*arguments)  # type: ignore[arg-type]

    return replace(plain, drift=Drift("walk, and something else", path))  # type: ignore[arg-type]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A file in which draws are counted, one byte each."""
    return tmp_path / "log"


def test_missing_ray_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(SettingError, match=r"^ray: .* pip install 'windvane\[ray\]'$"):
        run_experiment(small(WORLDS["walk"]), make_ray_runner())


@pytest.mark.usefixtures("disconnected")
@pytest.mark.parametrize("address", ["127.0.0.1:1", "ray://127.0.0.1:1", "127.0.0.1:port", "here"])
def test_an_address_without_a_ray_is_refused_in_one_line(address: str) -> None:
    with pytest.raises(SettingError, match=f"^ray: no Ray at '{address}': .*$"):
        run_experiment(small(WORLDS["walk"]), make_ray_runner(address))


@pytest.mark.usefixtures("disconnected")
def test_a_local_ray_prints_nothing_and_stops_when_the_run_ends_early(
    log: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    import ray

    def kill(draw: int) -> None:
        if draw == 2:
            os.kill(os.getpid(), signal.SIGKILL)

    experiment = small(world_with_side_effect(log, kill))
    playing = make_ray_runner()([Chunk(experiment, r, r + 1) for r in range(8)])
    for _ in range(7):
        next(playing)
    assert ray.is_initialized()
    playing.close()  # type: ignore[attr-defined]
    assert not ray.is_initialized()
    assert capfd.readouterr() == ("", "")


@pytest.mark.usefixtures("installed")
def test_ray_still_has_the_private_flag_that_hides_worker_messages() -> None:
    """`_hide_worker_messages` sets this flag; without it, Ray prints among the results."""
    from ray._private import worker

    assert worker._worker_logs_enabled is True
    with _hide_worker_messages():
        assert worker._worker_logs_enabled is False
    assert worker._worker_logs_enabled is True


@pytest.mark.usefixtures("two_workers")
@pytest.mark.parametrize("name", WORLDS)
def test_ray_gives_the_bits_of_threads_and_shows_progress(name: str) -> None:
    experiment, steps = small(WORLDS[name]), list[int]()
    on_ray = run_experiment(experiment, make_ray_runner(), steps.append)
    assert (
        on_ray.regret.tobytes() == run_experiment(experiment, make_thread_runner()).regret.tobytes()
    )
    assert sorted(steps) == [4, 8]  # replications of a chunk


@pytest.mark.usefixtures("two_workers")
def test_the_chunk_of_a_killed_worker_is_played_again(log: Path) -> None:
    def kill(draw: int) -> None:
        if draw == 3:
            os.kill(os.getpid(), signal.SIGKILL)

    experiment = small(world_with_side_effect(log, kill))
    on_ray = run_experiment(experiment, make_ray_runner())
    assert (
        on_ray.regret.tobytes() == run_experiment(experiment, make_thread_runner()).regret.tobytes()
    )
    assert log.stat().st_size > experiment.replications


@pytest.mark.usefixtures("two_workers")
def test_a_chunk_that_is_lost_too_often_is_an_error(log: Path) -> None:
    def kill(_: int) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(
        WindvaneError, match=rf"^ray: replications 0 to 4 .* {MAX_ATTEMPTS} times.*$"
    ):
        run_experiment(small(world_with_side_effect(log, kill), replications=5), make_ray_runner())
    assert log.stat().st_size == MAX_ATTEMPTS


@pytest.mark.usefixtures("two_workers")
@pytest.mark.parametrize(
    ("raised", "sentence"),
    [
        (SettingError("walk: never on a Sunday"), "walk: never on a Sunday"),
        (KeyError("Sunday"), "ray: a worker failed: KeyError: 'Sunday'"),
    ],
)
def test_the_error_of_a_chunk_is_one_line(log: Path, raised: Exception, sentence: str) -> None:
    def refuse(_: int) -> None:
        raise raised

    with pytest.raises(WindvaneError, match=f"^{sentence}$"):
        run_experiment(small(world_with_side_effect(log, refuse)), make_ray_runner())


@pytest.mark.usefixtures("two_workers")
def test_the_number_of_tasks_in_flight_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    import ray

    flights, wait = list[int](), ray.wait

    def count_and_wait(tasks: list[object]) -> object:
        flights.append(len(tasks))
        return wait(tasks)

    monkeypatch.setattr(ray, "wait", count_and_wait)
    experiment = small(WORLDS["walk"])
    done = list(make_ray_runner()([Chunk(experiment, r, r + 1) for r in range(12)]))
    assert sorted(chunk.first for chunk, _ in done) == list(range(12))
    assert max(flights) == TASKS_PER_CPU * CPUS


@pytest.mark.usefixtures("two_workers")
def test_an_existing_connection_stays_open_and_its_tasks_are_cancelled(log: Path) -> None:
    import ray

    def wait_long(draw: int) -> None:
        if draw > 1:
            time.sleep(100)

    experiment = small(world_with_side_effect(log, wait_long))
    playing = make_ray_runner()([Chunk(experiment, r, r + 1) for r in range(12)])
    next(playing)
    playing.close()  # type: ignore[attr-defined]
    wait_until(lambda: ray.available_resources().get("CPU") == CPUS)
    with pytest.raises(SettingError, match="already connected to Ray"):
        run_experiment(experiment, make_ray_runner("auto"))
