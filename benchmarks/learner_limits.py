"""What the learner of a loop costs: time of a rank and of a lesson, memory, start of a service.

The request has 20 actions of 10 features and a context of 22, which are 242 crossings for each
action with its id. Times are CPU times. Memory is measured with a full table of weights. The start
is that of a loop from a log of `--decisions` (a million), which the store itself has written, once
with the last snapshot and once without any. `--part speed`, `memory` or `start` measures one of
them, `--json` prints the rows for machines.
"""

import argparse
import gc
import json
import random
import resource
import runpy
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import msgspec

import windvane as wv
from windvane._terminal.tables import Cell, format_table
from windvane.beliefs.bank.bank import MAX_FILL, MAX_PLACES
from windvane.service.loops.learner_model import LearnerModel
from windvane.service.loops.loop import Loop
from windvane.service.loops.rank_requests import parse_offer
from windvane.service.loops.settings import LoopSettings
from windvane.service.schemas import RawRankRequest
from windvane.service.store.log import Store
from windvane.service.store.writer.decision_operations import PutDecision
from windvane.service.store.writer.loop_operations import PutLoop, PutSnapshot
from windvane.service.store.writer.reward_operations import PutReward

Row = dict[str, Cell]
BODY = runpy.run_path(str(Path(__file__).with_name("service.py")))["BODY"]
ACTIONS_OFFERED, ACTION_FEATURES, CONTEXT_FEATURES = 20, 10, 22
REQUESTS = 600  # distinct ones
MEASURED_ROUNDS = 1200  # the last ones, of twice as many
GROUP = 500  # decisions that are written together
LEARNED_REQUESTS = 300  # distinct decisions of the log, each repeated with another time
MICROSECONDS_BETWEEN_DECISIONS = 2_000_000


def draw_requests(draw: random.Random) -> Iterator[tuple[dict[str, str], list[dict[str, str]]]]:
    """Contexts and actions with categories of 20 values."""
    catalogue = [
        {"id": f"a{k}", **{f"f{j}": f"v{draw.randrange(20)}" for j in range(ACTION_FEATURES)}}
        for k in range(200)
    ]
    while True:
        context = {f"u{i}": f"v{draw.randrange(20)}" for i in range(CONTEXT_FEATURES)}
        yield context, draw.sample(catalogue, ACTIONS_OFFERED)


def measure_speed() -> list[Row]:
    """CPU microseconds of a rank and of a lesson, the median and the 90 % quantile."""
    draw = random.Random(1)
    learner, stream = wv.Learner(seed=1), draw_requests(draw)
    requests = [next(stream) for _ in range(REQUESTS)]
    times: dict[str, list[float]] = {"rank": [], "lesson": []}
    for n in range(2 * MEASURED_ROUNDS):
        context, actions = requests[n % REQUESTS]
        decision, spent = measure_cpu(lambda: learner.rank(context, actions, at=60.0 * n))  # noqa: B023
        times["rank"].append(spent)
        reward = float(draw.random() < 0.1)
        _, spent = measure_cpu(lambda: learner.reward(decision, reward))  # noqa: B023
        times["lesson"].append(spent)
    rows: list[Row] = []
    for name, seconds in times.items():
        last = sorted(seconds[-MEASURED_ROUNDS:])
        high = last[9 * len(last) // 10]
        rows.append({"what": name, "µs": round(1e6 * median(last)), "90 %": round(1e6 * high)})
    return rows


def measure_cpu(run: Callable[[], Any]) -> tuple[Any, float]:
    """What a function returns, and the CPU time that it took, in seconds."""
    started = time.process_time()
    result = run()
    return result, time.process_time() - started


def measure_memory() -> list[Row]:
    """Megabytes of a learner whose table of weights is full, and of the model that monitors it."""
    draw = random.Random(2)
    learner, shadow = wv.Learner(seed=1), LearnerModel(LoopSettings())
    shadow.limit_memory()
    learner.reward(learner.rank({"a": "b"}, ["x", "y"], at=0.0), 1.0)  # loads compiled code
    gc.collect()
    before = read_resident_bytes()
    lessons: list[tuple[Any, float]] = []
    while learner.bank.weight_count < 0.99 * MAX_FILL * MAX_PLACES:
        context: dict[str, Any] = {
            f"u{i}": f"v{draw.randrange(5000)}" for i in range(CONTEXT_FEATURES)
        }
        context |= {f"n{i}": draw.random() for i in range(10)}
        features = {f"f{j}": f"{len(lessons)}" for j in range(10)}
        action = {"id": f"{draw.randrange(10**6)}", **features}
        decision = learner.rank(context, [action], at=float(len(lessons)))
        lessons.append((decision.lesson, draw.random()))
        learner.reward(decision, lessons[-1][1])
    gc.collect()
    held, grown = learner.bank.count_bytes(), read_resident_bytes() - before
    for number, (lesson, reward) in enumerate(lessons):
        shadow.learner.bank.prepare()
        shadow.learner.learn(lesson, reward, float(number), number)
    gc.collect()
    sizes = {
        "arrays of a full learner": held,
        "arrays with the model of the monitoring": held + shadow.learner.bank.count_bytes(),
        "growth of the process": grown,
        "growth with the model of the monitoring": read_resident_bytes() - before,
    }
    return [{"what": what, "MB": round(size / 1e6, 1)} for what, size in sizes.items()]


def read_resident_bytes() -> int:
    """The memory of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def write_log(store: Store, count: int) -> Loop:
    """Write decisions with rewards; a few hundred are made by the loop, then they are repeated."""
    settings = LoopSettings(log_retention_days=-1)
    loop = Loop(store.write(PutLoop("default", settings.to_json(), 0, "benchmark")), store)
    draw, decode = random.Random(3), msgspec.json.Decoder(RawRankRequest).decode
    made = []
    for _ in range(LEARNED_REQUESTS):
        context = {
            "time": draw.choice(["morning", "noon", "evening"]),
            "device": draw.choice(["phone", "laptop"]),
            "weather": {"sunny": draw.random() < 0.5, "temp": round(draw.uniform(-9, 35), 1)},
            "age": draw.randrange(18, 90),
        }
        text = json.dumps(BODY | {"contextFeatures": [context]})
        request = decode(text)
        made.append(loop.decide(request, parse_offer(bytes(request.actions)), text))
    start = made[0].at - count * MICROSECONDS_BETWEEN_DECISIONS
    for first in range(0, count, GROUP):
        puts: list[Any] = []
        for n in range(first, min(first + GROUP, count)):
            at = start + n * MICROSECONDS_BETWEEN_DECISIONS
            decision = made[n % len(made)]._replace(event_id=f"{n:025d}", round=n, at=at)
            puts.append(PutDecision(decision, loop.terms, True))
            value = round(draw.random(), 2)
            puts.append(PutReward(loop.id, decision.event_id, value, at, loop.terms))
        store.write_group(puts)
    return loop


def measure_start(count: int) -> list[Row]:
    """Seconds in which a loop is read from a log: all lessons, and after a snapshot."""
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder, Store(folder) as store:
        started = time.process_time()
        write_log(store, count)
        rows.append(describe_start("write the log", count, time.process_time() - started))
        row = store.list_loops()[0]
        loop, spent = measure_cpu(lambda: Loop(row, store))
        rows.append(describe_start("start without a snapshot", count, spent))
        lesson, blob = loop.last_lesson, loop.encode_snapshot()
        store.write(PutSnapshot(loop.id, lesson, blob, 1))
        again, spent = measure_cpu(lambda: Loop(row, store))
        rows.append(describe_start("start after a snapshot", count, spent))
        if again.model.save() != loop.model.save():
            raise SystemExit("the beliefs of both starts differ")
    return rows


def describe_start(what: str, count: int, spent: float) -> Row:
    """A row of the table of starts."""
    each = round(1e6 * spent / count, 1)
    return {"what": what, "decisions": count, "CPU s": round(spent, 2), "µs a decision": each}


def main() -> None:
    """Print a table for each part."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--part", choices=["speed", "memory", "start"], help="default: all")
    parser.add_argument("--decisions", type=int, default=1_000_000, help="of the log")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    parts: dict[str, Callable[[], list[Row]]] = {
        "speed": measure_speed,
        "memory": measure_memory,
        "start": lambda: measure_start(asked.decisions),
    }
    for name, measure in parts.items():
        if asked.part in (None, name):
            rows = measure()
            print(json.dumps(rows, ensure_ascii=False) if asked.json else format_table(rows))
            print(flush=True)


if __name__ == "__main__":
    main()
