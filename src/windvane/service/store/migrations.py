"""Migrations: bring the tables of an older version of Windvane to the current version.

A migration only adds tables, columns and indexes. Rows of decisions, rewards and lessons stay as
they are, so it takes the same short time for a log of any size.
"""

from collections.abc import Callable
from typing import Any

from sqlalchemy import Column, Connection, Table, func, insert, literal, select, update

from windvane.service.store.schema import (
    SCHEMA_VERSION,
    clock,
    decisions,
    evaluation_parts,
    evaluations,
    half_life_changes,
    lease,
    lessons,
    loops,
    offers,
    positions,
    schema_version,
    servers,
    settings_log,
    snapshot_parts,
    waiting,
)


def migrate(connection: Connection) -> None:
    """Apply every migration that the database lacks, inside the caller's transaction."""
    # The row lock lets a second process wait here, and then find nothing left to do.
    version = connection.scalar(select(schema_version.c.version).with_for_update()) or 0
    for source in range(version, SCHEMA_VERSION):
        MIGRATIONS[source](connection)
        connection.execute(update(schema_version).values(version=source + 1))


def _migrate_1_to_2(connection: Connection) -> None:
    clock.create(connection)
    for index in waiting.indexes:
        index.create(connection)
    offers.create(connection)
    snapshot_parts.create(connection)
    _add_columns(connection, decisions.c.offer, decisions.c.offer_at)


def _migrate_2_to_3(connection: Connection) -> None:
    half_life_changes.create(connection)


def _migrate_3_to_4(connection: Connection) -> None:
    evaluations.create(connection)
    evaluation_parts.create(connection)


def _migrate_4_to_5(connection: Connection) -> None:
    for table in (positions, servers, lease):
        table.create(connection)
    last = (_select_last_id(lessons), _select_last_id(settings_log))
    zeros = (literal(0), literal(0))  # the next round follows from the decisions, see TakeRounds
    rows = select(loops.c.id, *last, *zeros)
    connection.execute(insert(positions).from_select(list(positions.c.keys()), rows))


def _select_last_id(table: Table) -> Any:
    """The last id of a table for each loop; 0 if the loop has no row there."""
    query = select(func.max(table.c.id)).where(table.c.loop == loops.c.id)
    return func.coalesce(query.correlate(loops).scalar_subquery(), 0)


def _add_columns(connection: Connection, *columns: Column[Any]) -> None:
    """Add columns that may be NULL, which changes no row."""
    for column in columns:
        type_ = column.type.compile(connection.dialect)
        table = column.table.description
        connection.exec_driver_sql(f"ALTER TABLE {table} ADD COLUMN {column.name} {type_}")


MIGRATIONS: dict[int, Callable[[Connection], None]] = {  # by the version before
    1: _migrate_1_to_2,
    2: _migrate_2_to_3,
    3: _migrate_3_to_4,
    4: _migrate_4_to_5,
}
OLDEST_VERSION = min(MIGRATIONS)  # of a log that can be opened
