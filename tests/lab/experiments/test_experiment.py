"""Experiments: thinned curves, saved chunks, and the regret of the naive formulas."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

import windvane as wv
from experiments import make_thread_runner, run_experiment
from game import play_by_formulas, play_round_by_round
from windvane.lab import worlds
from windvane.lab.engines.game import Player, reduce_dimension
from windvane.lab.engines.replay import replay
from windvane.lab.experiments import (
    REPLICATIONS_PER_CHUNK,
    Chunk,
    Experiment,
    Runner,
    play_chunk,
    run_experiments,
)
from windvane.types import Floats

WORLD = worlds.world(4, 6, 400, worlds.abrupt([200], flip=0.5))
PLAYERS = (
    Player("faded", wv.discount(0.97), wv.thompson(0.4)),
    Player("greedy", wv.keep(), wv.greedy()),
)


def small(**changed: object) -> Experiment:
    settings = {"players": PLAYERS, "world": WORLD, "replications": 12, "seed": 3}
    return Experiment(**{**settings, **changed})  # type: ignore[arg-type]


def play(checkpoint: Path | None = None, **changed: object) -> bytes:
    """The bits of all regrets."""
    return run_experiment(small(**changed), checkpoint=checkpoint).regret.tobytes()


def record_chunks(seen: list[Chunk]) -> Runner:
    """A runner on threads that lists what it plays."""

    def record_and_play(chunks: Sequence[Chunk]) -> Iterator[tuple[Chunk, Floats]]:
        seen.extend(chunks)
        yield from make_thread_runner()(chunks)

    return record_and_play


def test_curves_are_thinned_and_hold_the_extra_rounds() -> None:
    experiment = small(points=10, extra=(123, 999))
    assert experiment.marks.tolist() == [40, 80, 120, 123, 160, 200, 240, 280, 320, 360, 400]
    result = run_experiment(experiment)
    assert result.regret.shape == (2, 12, 11)
    whole = run_experiment(small(points=400))
    np.testing.assert_array_equal(result.at(123), whole.at(123))
    np.testing.assert_array_equal(result.regret[:, :, -1], whole.regret[:, :, -1])


def test_regret_only_grows() -> None:
    assert (np.diff(run_experiment(small()).regret, axis=2) >= 0).all()


def test_players_see_the_same_replications() -> None:
    twins = (PLAYERS[1], PLAYERS[1]._replace(name="twin"))
    regret = run_experiment(small(players=twins)).regret
    assert regret[0].tobytes() == regret[1].tobytes()


def test_more_replications_leave_the_first_ones_as_they_were() -> None:
    many = run_experiment(small(replications=12)).regret
    assert play(replications=7) == np.ascontiguousarray(many[:, :7]).tobytes()


def test_another_seed_gives_another_run() -> None:
    assert play() != play(seed=4)


def test_an_interrupted_run_continues_from_its_saved_chunks(tmp_path: Path) -> None:
    def play_one_and_stop(chunks: Sequence[Chunk]) -> Iterator[tuple[Chunk, Floats]]:
        for chunk in chunks[:1]:
            yield chunk, play_chunk(chunk)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_experiment(small(), play_one_and_stop, checkpoint=tmp_path)
    seen: list[Chunk] = []
    progress: list[int] = []
    resumed = run_experiment(small(), record_chunks(seen), progress.append, checkpoint=tmp_path)
    assert [chunk.first for chunk in seen] == [REPLICATIONS_PER_CHUNK]
    assert sum(progress) == 12
    assert resumed.regret.tobytes() == play()


@pytest.mark.parametrize("damage", [b"", b"no array", None])
def test_a_damaged_chunk_is_played_again(tmp_path: Path, damage: bytes | None) -> None:
    play(tmp_path)
    for file in tmp_path.iterdir():
        file.write_bytes(file.read_bytes()[:-9] if damage is None else damage)
    assert play(tmp_path) == play()


def test_chunks_of_another_experiment_are_not_used(tmp_path: Path) -> None:
    play(tmp_path, seed=1)
    assert play(tmp_path, seed=2) == play(seed=2)


def test_chunks_of_all_experiments_are_one_list_with_the_longest_first() -> None:
    """No long chunk starts last, and every experiment has the result that it has alone."""
    long_world = worlds.world(4, 6, 900, worlds.stationary())
    experiments = {
        "short": small(),
        "few players": small(players=PLAYERS[:1]),
        "long": small(world=long_world),
        "short again": small(),
    }
    chunks: list[Chunk] = []
    progress: list[tuple[str, int]] = []
    results = run_experiments(
        experiments, record_chunks(chunks), lambda name, count: progress.append((name, count))
    )
    played = [(chunk.name, chunk.last - chunk.first) for chunk in chunks]
    assert played == [
        *(("long", 8), ("long", 4), ("short", 8), ("short again", 8)),
        *(("short", 4), ("few players", 8), ("short again", 4), ("few players", 4)),
    ]
    assert sorted(progress) == sorted(played)
    for name, experiment in experiments.items():
        alone = run_experiment(experiment)
        assert results[name].regret.tobytes() == alone.regret.tobytes()
        assert results[name].names == alone.names


def test_the_level_of_regret_is_that_of_the_naive_formulas() -> None:
    """Six fixed arms in eight dimensions, which the engine plays in six dimensions."""
    world = worlds.world(8, 6, 200, worlds.abrupt([100], flip=0.5), worlds.fixed())
    player = Player("policy", wv.discount(0.98), wv.thompson(0.5))
    draws = [world.draw(s) for s in range(40)]
    fast = np.array([replay(player, d, i, np.array([200]))[0] for i, d in enumerate(draws)])
    slow = np.array([play_by_formulas(player, d, i) for i, d in enumerate(draws)])
    gap = fast - slow
    assert abs(gap.mean()) < 4 * gap.std(ddof=1) / np.sqrt(gap.size)
    assert fast.mean() > 5


def test_the_spanned_game_is_the_same_game() -> None:
    """Optimism is deterministic, so it plays the same arms in the smaller space."""
    world = worlds.world(12, 5, 300, worlds.abrupt([150], flip=0.5), worlds.fixed())
    draw = world.draw(1)
    assert reduce_dimension(draw).dim == 5
    memory, radius = wv.discount(0.98), wv.confidence(0.05, 0.4)
    fast = replay(Player("policy", memory, wv.optimism(radius)), draw, 1, np.arange(1, 301))
    policy = wv.Policy(12, memory, wv.optimism(radius))
    np.testing.assert_allclose(fast, play_round_by_round(policy, 1, draw), atol=1e-8)
