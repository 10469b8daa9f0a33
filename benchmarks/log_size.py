"""Bytes of the log for one decision with its reward and lesson, for the request of service.py.

Prints one row for each table and index of SQLite, then the size of the whole file. Contexts and
rewards vary, the offered actions are the same. `--decisions N` writes more of them.
"""

import json
import random
import runpy
import sqlite3
import sys
import tempfile
from pathlib import Path

import msgspec

from windvane._terminal.tables import Cell, format_table
from windvane.service.loops.loop import Loop
from windvane.service.loops.rank_requests import parse_offer
from windvane.service.loops.settings import LoopSettings
from windvane.service.schemas import RawRankRequest
from windvane.service.store.log import Store
from windvane.service.store.writer.decision_operations import PutDecision
from windvane.service.store.writer.loop_operations import PutLoop
from windvane.service.store.writer.reward_operations import PutReward

GROUP = 32
BODY = runpy.run_path(str(Path(__file__).with_name("service.py")))["BODY"]
decode_request = msgspec.json.Decoder(RawRankRequest).decode


def write_decisions(store: Store, count: int) -> None:
    """Write decisions as the service does, each with a reward, in groups."""
    settings = LoopSettings()
    row = store.write(PutLoop("default", settings.to_json(), 0, "benchmark"))
    loop = Loop(row, store)
    draw = random.Random(1)
    for _ in range(0, count, GROUP):
        puts: list[PutDecision | PutReward] = []
        for _ in range(GROUP):
            context = {
                "time": draw.choice(["morning", "noon", "evening"]),
                "device": draw.choice(["phone", "laptop"]),
                "weather": {"sunny": draw.random() < 0.5, "temp": round(draw.uniform(-9, 35), 1)},
                "age": draw.randrange(18, 90),
            }
            text = json.dumps(BODY | {"contextFeatures": [context]})
            request = decode_request(text)
            decision = loop.decide(request, parse_offer(bytes(request.actions)), text)
            value = round(draw.random(), 2)
            puts.append(PutDecision(decision, loop.terms, True))
            puts.append(PutReward(loop.id, decision.event_id, value, decision.at, loop.terms))
        store.write_group(puts)


def measure_parts(path: Path, count: int) -> list[dict[str, Cell]]:
    """Bytes for each decision, by table and index."""
    connection = sqlite3.connect(path)
    query = "SELECT name, SUM(pgsize) AS size FROM dbstat GROUP BY name ORDER BY size DESC LIMIT 12"
    try:
        parts = connection.execute(query).fetchall()
    except sqlite3.OperationalError:  # SQLite was built without the table dbstat
        parts = []
    connection.close()
    parts.append(("the whole file", path.stat().st_size))
    return [{"part": name, "bytes a decision": round(size / count, 1)} for name, size in parts]


def main() -> None:
    """Print the table."""
    flag = "--decisions"
    count = int(sys.argv[sys.argv.index(flag) + 1]) if flag in sys.argv else 10_000
    with tempfile.TemporaryDirectory() as directory:
        with Store(directory) as store:
            write_decisions(store, count)
        rows = measure_parts(Path(directory) / "windvane.db", count)
    print(json.dumps(rows, indent=2) if "--json" in sys.argv else format_table(rows))


if __name__ == "__main__":
    main()
