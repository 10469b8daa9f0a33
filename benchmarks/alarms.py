"""The click alarm: false alarms without a change, and clicks until a change is found.

Still worlds last 100,000 decisions. Changed worlds have 600 clicks before the change. How long an
alarm takes is counted in expected clicks: the clicks that the decisions since the change would have
had without it. Three kinds of predictions:

- exact: the share of clicks before the change
- rough: between half and twice of it, the same for all decisions of a run, with random errors as
  large as the share itself for each decision, so that some are below 0
- a loop: `wv.Policy` chooses among 5 offers for 10 segments, predicts, and learns all the time

`python benchmarks/alarms.py` prints the tables; `--json` prints them for machines; `--runs 20` is
quicker than the 60 runs of the documentation.
"""

import argparse
import json
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

import windvane as wv
from windvane._text_table import Cell, format_table
from windvane.service.monitoring.click_alarm import ClickAlarm, Outcomes

DECISIONS = 100_000  # of a still world
CLICKS_BEFORE = 600
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


def play(
    world: World, half_life: float, generator: np.random.Generator
) -> Iterator[tuple[Outcomes, int]]:
    """The outcomes of a loop that learns: shares of clicks differ by segment and by offer."""
    tastes = world.rate * generator.uniform(0.5, 1.5, (SEGMENTS, OFFERS))
    rows = np.zeros((SEGMENTS, OFFERS, 1 + SEGMENTS * OFFERS))
    rows[:, :, 0] = 1.0
    rows[:, :, 1:] = np.eye(SEGMENTS * OFFERS).reshape(SEGMENTS, OFFERS, -1)
    memory = wv.half_life(half_life) if np.isfinite(half_life) else wv.keep()
    width = 0.5 * world.rate**0.5  # half the standard deviation of a click
    policy = wv.Policy(rows.shape[2], memory, wv.randomized(wv.half_normal(width)), floor=0.02)
    outcomes = Outcomes()
    for decision in range(1, world.decisions + 1):
        segment = int(generator.integers(SEGMENTS))
        choice = policy.choose(rows[segment])
        row = rows[segment, choice.index]
        rate = tastes[segment, choice.index] * (world.factor if decision > world.change else 1.0)
        click = float(generator.random() < rate)
        outcomes = outcomes.merge(Outcomes(1, click, float(row @ policy.theta)))
        policy.learn(choice, click)
        if decision % BUCKET == 0:
            yield outcomes, decision
            outcomes = Outcomes()


def list_alarms(stream: Iterator[tuple[Outcomes, int]]) -> list[int]:
    """After how many decisions each alarm was raised."""
    alarm = ClickAlarm()
    return [end for outcomes, end in stream if alarm.update(outcomes, end) is not None]


def list_delays(world: World, streams: Iterator[Iterator[tuple[Outcomes, int]]]) -> list[float]:
    """Expected clicks until the first alarm after the change; infinite if there is none."""
    delays = []
    for stream in streams:
        after = [end for end in list_alarms(stream) if end > world.change]
        delays.append((after[0] - world.change) * world.rate if after else float("inf"))
    return delays


def measure_false_alarms(runs: int) -> list[dict[str, Cell]]:
    """Alarms in still worlds."""
    rows: list[dict[str, Cell]] = []
    for rate in RATES:
        world = World(rate, DECISIONS, DECISIONS)
        for name, is_rough in (("exact", False), ("rough", True)):
            generator = np.random.default_rng([1, round(rate * 1000), is_rough])
            streams = (simulate(world, is_rough, generator) for _ in range(runs))
            alarms = sum(len(list_alarms(stream)) for stream in streams)
            rows.append({"rate": rate, "predictions": name, "runs": runs, "alarms": alarms})
        generator = np.random.default_rng([2, round(rate * 1000)])
        played = max(runs // 20, 1)
        alarms = sum(len(list_alarms(play(world, np.inf, generator))) for _ in range(played))
        rows.append({"rate": rate, "predictions": "a loop", "runs": played, "alarms": alarms})
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
                rows.append(summarise(change, rate, name, list_delays(world, streams)))
        world = make_world(0.02, factor)
        for clicks in (100, 1000, float("inf")):
            generator = np.random.default_rng(4)
            half_life = clicks / world.rate
            streams = (play(world, half_life, generator) for _ in range(max(runs // 10, 1)))
            name = "a loop, no fading" if np.isinf(clicks) else f"a loop, half-life {clicks} clicks"
            rows.append(summarise(change, world.rate, name, list_delays(world, streams)))
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
