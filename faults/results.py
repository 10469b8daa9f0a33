"""The results of a run, one line of JSON a case, and the table made of them."""

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from faults.cases import Case, Kind, parse_case
from faults.outcome import Outcome
from windvane._terminal.tables import Cell, format_table

Result = dict[str, Any]


class ResultsFile:
    """Cases that are done; a case that is in the file is not run again."""

    def __init__(self, path: Path) -> None:
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = path.read_text().splitlines() if path.exists() else []
        self.results: dict[str, Result] = {
            result["case"]: result for result in map(json.loads, lines)
        }

    def add(self, case: Case, outcome: Outcome, seconds: float) -> Result:
        """Write the outcome of a case."""
        result = {"case": case.name, "seconds": round(seconds, 1), **outcome.to_json()}
        with self._path.open("a") as file:
            file.write(json.dumps(result) + "\n")
        self.results[case.name] = result
        return result


def format_results(results: Iterable[Result], units: dict[str, str]) -> str:
    """A table with a row for each kind of fault on each database."""
    rows: dict[tuple[str, str], Counter[str]] = {}
    for result in results:
        case = parse_case(result["case"])
        row = rows.setdefault((case.kind, case.database), Counter())
        row["cases"] += 1
        row["faults"] += case.amount
        row["minutes"] += result["seconds"] / 60
        row["checks"] += sum(result["checks"].values())
        row["violations"] += sum(result["broken"].values())
        slowest = result["counts"].get("milliseconds of the slowest answer", 0)
        row["slowest"] = max(row["slowest"], slowest)
        for what in ("rank", "reward", "degraded", "cut", "hostile requests"):
            row[what] += result["counts"].get(what, 0)
    table: list[dict[str, Cell]] = []
    for (kind, database), row in sorted(rows.items()):
        table.append(
            {
                "kind": kind,
                "database": database,
                "cases": row["cases"],
                "faults": f"{row['faults']} {units.get(kind, '')}".strip(),
                "requests": row["rank"] + row["reward"] + row["hostile requests"],
                "degraded": row["degraded"],
                "checks": row["checks"],
                "violations": row["violations"],
                "slowest s": round(row["slowest"] / 1000, 1),
                "minutes": round(row["minutes"], 1),
            }
        )
    return format_table(table) if table else "no case was run"


def list_units(kinds: Iterable[Kind]) -> dict[str, str]:
    """What each kind of fault counts."""
    return {kind.name: kind.unit for kind in kinds}
