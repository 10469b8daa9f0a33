"""The click alarm: false alarms without a change, and clicks until a change is found.

Still worlds last 100,000 decisions. Changed worlds have 600 clicks before the change. How long an
alarm takes is counted in expected clicks: the clicks that the decisions since the change would have
had without it. Three kinds of predictions:

- exact: the share of clicks before the change
- rough: between half and twice of it, the same for all decisions of a run, with random errors as
  large as the share itself for each decision, so that some are below 0
- a loop: `wv.Learner` chooses among 5 offers for 10 segments, predicts, and learns all the time

`python benchmarks/alarms.py` prints the tables; `--json` prints them for machines; `--runs 20` is
quicker than the 60 runs of the documentation.
"""

import argparse
import json
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

import windvane as wv
from windvane._terminal.tables import Cell, format_table
from windvane.service.monitoring.alarms import ClickAlarm, ClickMonitor, Outcomes, RateChange

DECISIONS = 100_000  # of a still world
CLICKS_BEFORE = 600
SECONDS_BETWEEN_DECISIONS = 20.0
BUCKET = 32  # decisions that are counted together, as in the service
SEGMENTS, OFFERS = 10, 5
RATES = (0.005, 0.02, 0.1)
CHANGES = {"halves": 0.5, "doubles": 2.0}
LONGEST_CLICKS = 1000  # expected ones after the change, after which an alarm counts as missed


class World(NamedTuple):
    """A share of clicks that is multiplied by a factor at a decision."""

    rate: float
    decisions: int
    change: int
    factor: float = 1.0


def make_world(rate: float, factor: float) -> World:
    """A world with 600 clicks before its change."""
    change = round(CLICKS_BEFORE / rate)
    return World(rate, change + round(LONGEST_CLICKS / rate), change, factor)


def simulate(
    world: World, is_rough: bool, generator: np.random.Generator
) -> Iterator[tuple[Outcomes, int]]:
    """The outcomes of each bucket, and the number of decisions so far."""
    bias = 2.0 ** generator.uniform(-1.0, 1.0) if is_rough else 1.0
    noise = world.rate * BUCKET**0.5 if is_rough else 0.0
    for end in range(BUCKET, world.decisions + 1, BUCKET):
        rate = world.rate * (world.factor if end > world.change else 1.0)
        expected = bias * world.rate * BUCKET + noise * generator.normal()
        yield Outcomes(BUCKET, float(generator.binomial(BUCKET, rate)), expected), end


def play(world: World, half_life: str, generator: np.random.Generator) -> Iterator[RateChange]:
    """The alarms of a loop that learns: shares of clicks differ by segment and by offer."""
    tastes = world.rate * generator.uniform(0.5, 1.5, (SEGMENTS, OFFERS))
    learner, monitor = (
        wv.Learner(half_life=half_life, seed=int(generator.integers(2**32))),
        ClickMonitor(),
    )
    offers = [f"offer{k}" for k in range(OFFERS)]
    for n in range(1, world.decisions + 1):
        segment = int(generator.integers(SEGMENTS))
        at = SECONDS_BETWEEN_DECISIONS * n
        decision = learner.rank({"segment": f"segment{segment}"}, offers, at=at)
        rate = tastes[segment, decision.index]
        if n > world.change:
            rate *= world.factor
        click = float(generator.random() < rate)
        prediction = float(learner.bank.predict(decision.lesson, at)[0])
        is_explored = decision.probability < float(decision.probabilities.max())
        monitor.count(n, n, click, Outcomes(1, click, prediction), is_explored)
        learner.reward(decision, click)
        if n % BUCKET == 0:
            yield from monitor.advance(n)


def raise_alarms(stream: Iterator[tuple[Outcomes, int]]) -> Iterator[RateChange]:
    """The alarms on outcomes of buckets."""
    alarm = ClickAlarm()
    for outcomes, end in stream:
        change = alarm.update(outcomes, end)
        if change is not None:
            yield change


def list_delays(world: World, runs: Iterable[Iterator[RateChange]]) -> list[float]:
    """Expected clicks until the first alarm after the change; infinite if there is none."""
    delays = []
    for changes in runs:
        found = next((change.at for change in changes if change.at > world.change), float("inf"))
        delays.append((found - world.change) * world.rate)
    return delays


def measure_false_alarms(runs: int) -> list[dict[str, Cell]]:
    """Alarms in still worlds."""
    rows: list[dict[str, Cell]] = []
    for rate in RATES:
        world = World(rate, DECISIONS, DECISIONS)
        for name, is_rough in (("exact", False), ("rough", True)):
            generator = np.random.default_rng([1, round(rate * 1000), is_rough])
            streams = (simulate(world, is_rough, generator) for _ in range(runs))
            alarms = sum(len(list(raise_alarms(stream))) for stream in streams)
            row: dict[str, Cell] = {"rate": rate, "predictions": name, "runs": runs}
            rows.append(row | {"alarms": alarms, "of explored": ""})
        generator = np.random.default_rng([2, round(rate * 1000)])
        played = max(runs // 20, 1)
        changes = [change for _ in range(played) for change in play(world, "auto", generator)]
        explored = sum(change.is_of_explored for change in changes)
        row = {"rate": rate, "predictions": "a loop", "runs": played}
        rows.append(row | {"alarms": len(changes) - explored, "of explored": explored})
    return rows


def measure_delays(runs: int) -> list[dict[str, Cell]]:
    """Expected clicks until a change is found."""
    rows: list[dict[str, Cell]] = []
    for change, factor in CHANGES.items():
        for rate in RATES:
            world = make_world(rate, factor)
            for name, is_rough in (("exact", False), ("rough", True)):
                generator = np.random.default_rng([3, round(rate * 1000), is_rough])
                streams = (simulate(world, is_rough, generator) for _ in range(runs))
                delays = list_delays(world, map(raise_alarms, streams))
                rows.append(summarise(change, rate, name, delays))
        world = make_world(0.02, factor)
        for half_life in ("auto", "never", f"{round(100 / world.rate)} rounds"):
            generator = np.random.default_rng(4)
            loops = (play(world, half_life, generator) for _ in range(max(runs // 20, 1)))
            name = f"a loop, half-life {half_life}"
            rows.append(summarise(change, world.rate, name, list_delays(world, loops)))
    return rows


def summarise(change: str, rate: float, predictions: str, delays: list[float]) -> dict[str, Cell]:
    """The median, the 90 % quantile and the share of delays of at most 200 expected clicks."""
    ordered = sorted(delays)
    return {
        "share": change,
        "rate": rate,
        "predictions": predictions,
        "runs": len(delays),
        "median": round(ordered[len(ordered) // 2], 1),
        "90 %": round(ordered[-(-9 * len(ordered) // 10) - 1], 1),
        "within 200": round(float(np.mean([delay <= 200 for delay in delays])), 3),
    }


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--runs", type=int, default=60)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    measures = {
        "false alarms in 100,000 decisions": measure_false_alarms,
        "expected clicks until an alarm": measure_delays,
    }
    if arguments.json:
        print(json.dumps({title: measure(arguments.runs) for title, measure in measures.items()}))
        return
    for title, measure in measures.items():
        print(f"{title}:\n\n{format_table(measure(arguments.runs))}\n", flush=True)


if __name__ == "__main__":
    main()
