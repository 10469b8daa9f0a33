"""The commands on a log as a whole: backup, restore, compact, export, import, migrate."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from windvane._terminal.console import AsJson, make_bars, print_json, print_message
from windvane.service.cli_options import (
    DEFAULT_DATA,
    Data,
    Database,
    locate,
    needs_extra,
    open_store,
    require_posix,
)


def backup(
    path: Annotated[Path, typer.Argument(help="The file to write.")],
    data: Data = DEFAULT_DATA,
    database: Database = None,
) -> None:
    """Copy the log as it is at one moment; the service may keep running."""
    with needs_extra("serve"):
        from windvane.service.store.files.log_copy import write_backup
    with open_store(data, database) as store:
        write_backup(store, path)
    print_message(f"{path} holds {database or data} as of now")


def restore(
    path: Annotated[Path, typer.Argument(help="File that `backup` wrote.")],
    data: Data = DEFAULT_DATA,
    database: Database = None,
) -> None:
    """Restore a backup to a directory without a log."""
    with needs_extra("serve"):
        from windvane.service.store.files.log_copy import restore_backup
    restore_backup(path, locate(data, database))
    print_message(f"{database or data} holds the log of {path}")


def compact(data: Data = DEFAULT_DATA, database: Database = None) -> None:
    """Shrink the file of a log that no service uses; later deletions shrink it by themselves."""
    with needs_extra("serve"):
        from windvane.service.store.files.log_copy import compact_database
    with open_store(data, database):
        pass  # the log must exist
    sizes = compact_database(locate(data, database))
    print_message(f"the log had {sizes.before / 1e6:.1f} MB and has {sizes.after / 1e6:.1f} MB")


def export(
    parquet: Annotated[Path, typer.Option(help="The file to write.")],
    loop: Annotated[str, typer.Option(help="Loop whose decisions are written.")] = "default",
    data: Data = DEFAULT_DATA,
    database: Database = None,
) -> None:
    """Write every decision of a loop with its probabilities and reward, for offline evaluation."""
    with needs_extra("lab"):
        from windvane.service.store.files.parquet_export import export_log
    with open_store(data, database) as store, make_bars() as bars:
        task = bars.add_task("export", total=None, unit="decisions")
        rows = export_log(
            store,
            loop,
            parquet,
            lambda done, total: bars.update(task, completed=done, total=total),
        )
    print_message(f"{parquet} has {rows} decisions")


def import_log(
    logs: Annotated[
        list[str], typer.Argument(metavar="LOG...", help="Files, directories or glob patterns.")
    ],
    loop: Annotated[str, typer.Option(help="Loop to warm-start; it is created if missing.")],
    format: Annotated[
        str, typer.Option(help="Format of the logs; auto finds it by their bytes.")
    ] = "auto",
    columns: Annotated[
        list[str] | None,
        typer.Option(
            help="Columns of CSV and Parquet: action=arm,reward=click,probability=p,time=ts,"
            "context=age;city; see `windvane check --help`. May be repeated."
        ),
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Stop at the first bad row.")] = False,
    data: Data = DEFAULT_DATA,
    database: Database = None,
    as_json: AsJson = False,
) -> None:
    """Warm-start a loop from the log of another system; no service may run on the data."""
    with needs_extra("lab"):
        from windvane.evaluation.readers import open_log
        from windvane.evaluation.readers.column_mapping import parse_columns
    mapping = parse_columns(",".join(columns)) if columns else None
    log = open_log(logs, format, mapping, strict)
    with open_store(data, database, create=True) as store, make_bars() as bars:
        from windvane.service.evaluations import log_import

        task = bars.add_task("import", total=None, unit="decisions")
        counts = log_import.import_log(
            store, log, loop, report=lambda rows: bars.update(task, completed=rows)
        )
    left_out = counts.left_out | ({"it cannot be read": log.bad_row_count} if log.bad_rows else {})
    if as_json:
        print_json({"imported": counts.imported, "known": counts.known, "left out": left_out})
        return
    print_message(f"{loop} has learned {counts.imported} decisions of {log.description}")
    if counts.known:
        print_message(f"{counts.known} decisions were there already")
    for reason, count in left_out.items():
        print_message(f"rows left out: {count} ({reason})")


def migrate(
    source: Annotated[
        str,
        typer.Option(
            "--from",
            envvar="WINDVANE_MIGRATE_FROM",
            help="The log to copy: a data directory or postgresql://...",
        ),
    ],
    target: Annotated[
        str,
        typer.Option(
            "--to",
            envvar="WINDVANE_MIGRATE_TO",
            help="Where the copy goes: postgresql://... or a data directory, without a log.",
        ),
    ],
    as_json: AsJson = False,
) -> None:
    """Copy a log whole to another database; run it again to finish a copy that was interrupted."""
    require_posix("migrate")
    with needs_extra("serve"):
        from windvane.service.store.database import resolve_url
        from windvane.service.store.files.log_copy import copy_log
    with make_bars() as bars:
        task = bars.add_task("migrate", total=None, unit="rows")
        is_new = True

        def report(table: str, done: int, total: int) -> None:
            nonlocal is_new
            if is_new:  # rows that an earlier run has copied say nothing about the speed
                bars.reset(task, completed=done, total=total)
                is_new = False
            bars.update(task, description=f"migrate {table}", completed=done, total=total)

        counts = copy_log(source, target, report)
    if as_json:
        print_json(counts)
        return
    shown = [resolve_url(where).render_as_string(hide_password=True) for where in (source, target)]
    print_message(f"{shown[1]} has the log of {shown[0]}: {sum(counts.values())} rows")


LOG_COMMANDS: tuple[Callable[..., None], ...] = (backup, restore, compact, export, migrate)
