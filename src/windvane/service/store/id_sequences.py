"""The last id that each table has given to a row, also if that row was deleted since.

Ids always increase: a snapshot names the last lesson that it contains by its id. A copy of a log
therefore has to go on after the last id of its source, not after the last row.
"""

from collections.abc import Iterable, Iterator

from sqlalchemy import Connection, Table, func, select, text

_SEQUENCE_NAME = text("SELECT pg_get_serial_sequence(:name, :column)")
_SET_SEQUENCE = text("SELECT setval(CAST(:sequence AS regclass), :value, :is_used)")


def read_last_ids(connection: Connection, tables: Iterable[Table]) -> dict[str, int]:
    """Read the last id of every table that counts its ids."""
    if connection.dialect.name == "sqlite":
        rows = connection.exec_driver_sql("SELECT name, seq FROM sqlite_sequence").all()
        counted = {str(name): int(last_id) for name, last_id in rows}
    else:
        counted = {}
        for table, sequence in _find_sequences(connection, tables):
            query = f"SELECT last_value, is_called FROM {sequence}"
            value, is_used = connection.exec_driver_sql(query).one()
            counted[table.name] = int(value) if is_used else int(value) - 1
    return {
        table.name: max(
            counted.get(table.name, 0), connection.scalar(select(func.max(column))) or 0
        )
        for table in tables
        if (column := table.autoincrement_column) is not None
    }


def set_last_ids(connection: Connection, tables: Iterable[Table], last_ids: dict[str, int]) -> None:
    """Let every table go on after its last id."""
    if connection.dialect.name == "sqlite":
        for table in tables:
            if table.name in last_ids and table.dialect_options["sqlite"]["autoincrement"]:
                name, last_id = table.name, last_ids[table.name]
                connection.exec_driver_sql("DELETE FROM sqlite_sequence WHERE name = ?", (name,))
                insert = "INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?)"
                connection.exec_driver_sql(insert, (name, last_id))
        return
    for table, sequence in _find_sequences(connection, tables):
        last_id = last_ids.get(table.name, 0)
        values = {"sequence": sequence, "value": max(last_id, 1), "is_used": last_id > 0}
        connection.execute(_SET_SEQUENCE, values)


def _find_sequences(connection: Connection, tables: Iterable[Table]) -> Iterator[tuple[Table, str]]:
    """Every table with the name of its sequence in PostgreSQL."""
    for table in tables:
        column = table.autoincrement_column
        if column is None:
            continue
        names = {"name": table.name, "column": column.name}
        sequence = connection.scalar(_SEQUENCE_NAME, names)
        if sequence is not None:
            yield table, sequence
