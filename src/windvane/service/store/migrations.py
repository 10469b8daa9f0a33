"""Migrations: bring the tables of an older version of Windvane to the current version.

A migration only adds tables, columns and indexes. Rows stay as they are, so it takes the same short
time for a log of any size.
"""

from collections.abc import Callable

from sqlalchemy import Connection, select, update

from windvane.service.store.schema import SCHEMA_VERSION, clock, schema_version, waiting


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


MIGRATIONS: dict[int, Callable[[Connection], None]] = {1: _migrate_1_to_2}  # by the version before
