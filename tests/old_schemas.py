"""Logs of every older schema version, with rows in every table, on both databases."""

import re
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, inspect, text

from windvane.service.store.database import make_engine, prepare_file, resolve_url

SCHEMAS = Path(__file__).parent / "service" / "store" / "schemas"

Row = dict[str, Any]
COUNTS = ("ranked", "activated", "unactivated", "default", "learned", "summed", "extra", "held")
REWARD_COUNTS = ("late", "orphan", "duplicate", "unlearned")
DECISION: Row = {
    "id": 5,
    "loop": 1,
    "event_id": "first",
    "round": 3,
    "at": 1_700_000_000_000_001,
    "mode": "Online",
    "deferred": False,
    "degraded": False,
    "activated_at": 1_700_000_000_000_001,
    "chosen": 1,
    "features": b"\x00\x01\xff",
    "probabilities": b"\x7f\xf0" * 8,
    "actions": '["a", "é"]',
    "answer": b'{"eventId": "first"}',
    "request": '{"contextFeatures": ["é"]}',
}
WAITING_DECISION = DECISION | {
    "id": 7,
    "event_id": "second",
    "deferred": True,
    "activated_at": None,
    "features": None,
}
ROWS_SINCE: dict[int, dict[str, list[Row]]] = {  # by the version that has their tables and columns
    1: {
        "loops": [
            {"id": 1, "name": "default", "settings": '{"dim": 2}', "created": 11},
            {"id": 4, "name": "shop", "settings": '{"dim": 8}', "created": 12},
        ],
        "settings_log": [
            {"id": 2, "loop": 4, "at": 13, "settings": '{"dim": 8}', "by": "key 1", "lesson": 0}
        ],
        "decisions": [DECISION, WAITING_DECISION],
        "waiting": [{"loop": 1, "decision": 7, "at": 1_700_000_000_000_001}],
        "rewards": [
            {
                "id": 3,
                "loop": 1,
                "event_id": event,
                "request_id": request,
                "value": value,
                "at": 14,
                "status": status,
            }
            | {"id": id_}
            for id_, event, request, value, status in (
                (3, "first", None, 0.1, "learned"),
                (8, "nowhere", "r-1", -1.0, "orphan"),
            )
        ],
        "lessons": [{"id": 9, "loop": 1, "decision": 5, "kind": "observe", "value": 0.1, "at": 14}],
        "snapshots": [{"id": 6, "loop": 1, "lesson": 9, "blob": b"\x93NUMPY\x00", "at": 15}],
        "keys": [{"id": 2, "role": "admin", "hash": "f" * 64, "created": 16, "expires": None}],
        "counters": [
            {"loop": 1} | dict.fromkeys(COUNTS, 2) | dict.fromkeys(REWARD_COUNTS, 1),
            {"loop": 4} | dict.fromkeys(COUNTS + REWARD_COUNTS, 0),
        ],
    },
    2: {
        "clock": [{"at": 1_700_000_000_000_002}],
        "offers": [
            {
                "id": 1,
                "loop": 1,
                "hash": b"\x00" * 16,
                "last_used": 17,
                "ids": '["a"]',
                "actions": '[{"id": "a"}]',
            }
        ],
        "decisions": [DECISION | {"id": 12, "event_id": "third", "offer": 1, "offer_at": 4}],
        "snapshot_parts": [{"loop": 1, "at": 15, "place": 1, "blob": b"\xff\x00"}],
    },
    3: {"half_life_changes": [{"loop": 1, "lesson": 9, "at": 14, "seconds": None}]},
    4: {
        "evaluations": [
            {
                "id": 2,
                "loop": 4,
                "kind": "evaluation",
                "key": "e-1",
                "name": "one",
                "type": "Manual",
                "contract": "{}",
                "status": "Completed",
                "created": 18,
                "ended": 19,
                "outcome": None,
            }
        ],
        "evaluation_parts": [{"evaluation": 2, "place": 0, "blob": b"\x28\xb5\x2f\xfd"}],
    },
}


def list_rows(version: int) -> dict[str, list[Row]]:
    """The rows of each table of a log of this version, in an order that foreign keys allow."""
    rows: dict[str, list[Row]] = {}
    for since, tables in ROWS_SINCE.items():
        if since <= version:
            for table, more in tables.items():
                rows.setdefault(table, []).extend(more)
    return rows


def make_old_log(where: str, version: int) -> None:
    """Make a log as an older version of Windvane left it."""
    url = resolve_url(where)
    backend = url.get_backend_name()
    if backend == "sqlite":
        prepare_file(Path(url.database or ""))
    engine = make_engine(url, writes=True)
    script = (SCHEMAS / f"version_{version}_{backend}.sql").read_text("utf-8")
    with engine.begin() as connection:
        for statement in re.sub(r"^--.*$", "", script, flags=re.MULTILINE).split(";"):
            if statement.strip():
                connection.exec_driver_sql(statement)
        for table, rows in list_rows(version).items():
            for row in rows:
                names = ", ".join(f'"{name}"' for name in row)
                marks = ", ".join(f":{name}" for name in row)
                statement = f"INSERT INTO {table} ({names}) VALUES ({marks})"
                connection.execute(text(statement), row)
        set_version(connection, version)
    engine.dispose()


def set_version(connection: Connection, version: int) -> None:
    """Say that a log has a schema version."""
    connection.execute(text("DELETE FROM windvane_schema"))
    connection.execute(text("INSERT INTO windvane_schema VALUES (:at)"), {"at": version})


def read_rows(engine: Engine, tables: dict[str, list[Row]]) -> dict[str, list[Row]]:
    """Read all rows of some tables, in the columns that the given rows have, sorted."""
    found = {}
    with engine.connect() as connection:
        for table, rows in tables.items():
            names = list(rows[0])
            columns = ", ".join(f'"{name}"' for name in names)
            query = f"SELECT {columns} FROM {table} ORDER BY {columns}"
            found[table] = [
                {name: _unify(value, rows[0][name]) for name, value in zip(names, row, strict=True)}
                for row in connection.execute(text(query))
            ]
    return found


def _unify(value: object, example: object) -> object:
    """A value with the type of an example: SQLite has no booleans."""
    return bool(value) if isinstance(example, bool) else value


def describe_tables(engine: Engine) -> dict[str, object]:
    """Columns, keys, constraints, indexes and options of every table, without their order."""
    inspector = inspect(engine)
    is_sqlite = engine.dialect.name == "sqlite"
    return {
        table: {
            "columns": {
                column["name"]: (
                    str(column["type"]),
                    column["nullable"],
                    column["default"],
                    column.get("autoincrement"),
                )
                for column in inspector.get_columns(table)
            },
            "primary key": inspector.get_pk_constraint(table)["constrained_columns"],
            "foreign keys": sorted(
                (key["constrained_columns"], key["referred_table"], key["referred_columns"])
                for key in inspector.get_foreign_keys(table)
            ),
            "unique": sorted(
                constraint["column_names"] for constraint in inspector.get_unique_constraints(table)
            ),
            "checks": sorted(
                constraint["sqltext"] for constraint in inspector.get_check_constraints(table)
            ),
            "indexes": {
                index["name"]: (
                    index["column_names"],
                    bool(index["unique"]),
                    {
                        option: str(value)
                        for option, value in index.get("dialect_options", {}).items()
                    },
                )
                for index in inspector.get_indexes(table)
            },
            "options": _read_options(engine, table) if is_sqlite else None,
        }
        for table in inspector.get_table_names()
    }


def _read_options(engine: Engine, table: str) -> tuple[bool, bool]:
    """Whether ids are never used again, and whether the table has no hidden row id."""
    with engine.connect() as connection:
        query = "SELECT sql FROM sqlite_master WHERE type = 'table' AND name = ?"
        sql = connection.exec_driver_sql(query, (table,)).scalar_one()
    return "AUTOINCREMENT" in sql, "WITHOUT ROWID" in sql
