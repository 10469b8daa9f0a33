"""Games of a contestant on a stream: played once, written to a file, and read back."""

import heapq
import json
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from time import perf_counter, process_time
from typing import Any, NamedTuple

import numpy as np

from benchmarks.contestants import CONTESTANTS, Contestant
from benchmarks.stream_sets import find_stream
from benchmarks.streams import Stream

WARM_UP_ROUNDS = 20  # compiling and loading are no part of the time a round
TRIAL_SECONDS = 10.0  # of CPU, after which a game that would take too long is given up
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


class Game(NamedTuple):
    """Who plays what."""

    set_name: str
    stream: str
    contestant: str
    seed: int


class Result(NamedTuple):
    """What a game gave; without a reward if it would have taken longer than the limit."""

    game: Game
    parameters: str  # of the stream; a result of other parameters does not count
    reward: float | None  # mean of the expected rewards
    last_quarter: float | None
    micros: float  # CPU time a round
    seconds: float  # of the whole game


def play_rounds(
    stream: Stream, contestant: Contestant, seed: int, limit_seconds: float
) -> tuple[list[float], float]:
    """Return the expected reward of each choice and the CPU time a round, in seconds.

    Rewards are learned when they arrive, before the next choice. The list is shorter than the
    stream if the game would have taken longer than the limit.
    """
    expected: list[float] = []
    pending: list[tuple[float, int, Any, float]] = []  # arrival, round, ticket, reward
    spent, is_tried = 0.0, False
    for n, round_ in enumerate(stream.play(seed)):
        if n == WARM_UP_ROUNDS:
            spent = 0.0
        started = process_time()
        while pending and pending[0][0] <= round_.at:
            _, _, ticket, reward = heapq.heappop(pending)
            contestant.learn(ticket, reward)
        chosen = contestant.choose(round_)
        reward = float(round_.rewards[chosen.index])
        if round_.wait == 0.0:
            contestant.learn(chosen.ticket, reward)
        else:
            heapq.heappush(pending, (round_.at + round_.wait, n, chosen.ticket, reward))
        spent += process_time() - started
        expected.append(float(round_.means[chosen.index]))
        if n > WARM_UP_ROUNDS and spent > TRIAL_SECONDS and not is_tried:
            is_tried = True
            if spent / (n - WARM_UP_ROUNDS) * stream.rounds > limit_seconds:
                break
    return expected, spent / max(1, len(expected) - WARM_UP_ROUNDS)


def play_game(game: Game, limit_seconds: float) -> Result:
    """Play one game in this process."""
    stream = find_stream(game.set_name, game.stream)
    if stream is None:
        raise ValueError(f"{game.set_name} has no stream {game.stream}")
    contestant = CONTESTANTS[game.contestant].make(stream, game.seed)
    started = perf_counter()
    expected, spent = play_rounds(stream, contestant, game.seed, limit_seconds)
    seconds = perf_counter() - started
    if len(expected) < stream.rounds:
        return Result(game, repr(stream), None, None, spent * 1e6, seconds)
    quarter = float(np.mean(expected[-(stream.rounds // 4) :]))
    return Result(game, repr(stream), float(np.mean(expected)), quarter, spent * 1e6, seconds)


def play_all(
    games: Iterable[Game], limit_seconds: float, processes: int
) -> Iterator[tuple[Game, Result | Exception]]:
    """Play games in processes of their own, one BLAS thread each, and give them as they end."""
    os.environ.update(dict.fromkeys(THREADS, "1"))
    with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
        futures: dict[Future[Result], Game] = {
            pool.submit(play_game, game, limit_seconds): game for game in games
        }
        for future in as_completed(futures):
            failure = future.exception()
            if isinstance(failure, Exception):
                yield futures[future], failure
            else:
                yield futures[future], future.result()


def read_results(path: Path) -> dict[Game, Result]:
    """Read the results of games on the present streams; the last one of a game counts."""
    results: dict[Game, Result] = {}
    for line in path.read_text().splitlines() if path.exists() else ():
        fields = json.loads(line)
        game = Game(*fields.pop("game"))
        stream = find_stream(game.set_name, game.stream)
        if repr(stream) == fields["parameters"]:
            results[game] = Result(game, **fields)
    return results


def append_result(path: Path, result: Result) -> None:
    """Write a result at the end of the file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write(json.dumps(result._asdict()) + "\n")


def estimate_seconds(games: Iterable[Game], results: Iterable[Result]) -> float:
    """Estimate how long games take, from those of the same stream and contestant, else of all."""
    by_pair: dict[tuple[str, str], list[float]] = {}
    for result in results:
        by_pair.setdefault((result.game.stream, result.game.contestant), []).append(result.seconds)
    means = {pair: float(np.mean(seconds)) for pair, seconds in by_pair.items()}
    usual = float(np.mean(list(means.values()))) if means else 0.0
    return sum(means.get((game.stream, game.contestant), usual) for game in games)


Tell = Callable[[str], None]


def play_missing(
    games: list[Game],
    results: dict[Game, Result],
    path: Path,
    limit_seconds: float,
    processes: int,
    tell: Tell,
) -> int:
    """Play the games that have no result, write each as it ends, and return how many failed."""
    waiting = [game for game in games if game not in results]
    failed = 0
    for done, (game, outcome) in enumerate(play_all(waiting, limit_seconds, processes), start=1):
        if isinstance(outcome, Exception):
            failed += 1
            said = f"failed: {type(outcome).__name__}: {str(outcome).partition(chr(10))[0]}"
        else:
            append_result(path, outcome)
            results[game] = outcome
            said = "over the limit" if outcome.reward is None else f"{outcome.reward:.4f}"
        left = [each for each in waiting if each not in results]
        minutes = estimate_seconds(left, results.values()) / processes / 60
        tell(
            f"{done} of {len(waiting)} games, {minutes:.0f} min left: "
            f"{game.stream}, {game.contestant}, seed {game.seed}: {said}"
        )
    return failed
