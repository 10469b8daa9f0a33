"""The commands that ask a log: check."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from windvane._console import AsJson, print_json, print_message
from windvane._progress_bars import make_bars
from windvane._text_table import format_table
from windvane.errors import SettingError

if TYPE_CHECKING:
    from windvane.evaluation.log_batch import Log
    from windvane.evaluation.log_check import CheckReport

SERVICE_DATABASE = "windvane.db"  # in a data directory
DEFAULT_LOOP = "default"
LogPaths = Annotated[
    list[str],
    typer.Argument(metavar="LOG", help="Files, directories or patterns; .gz is read too."),
]
Format = Annotated[
    str,
    typer.Option(help="windvane, dsjson, vw, csv, parquet or obd; auto finds it by the bytes."),
]
Columns = Annotated[
    list[str] | None,
    typer.Option(
        help="Columns of CSV and Parquet: action=arm,reward=click,probability=p,time=ts,"
        "context=age;city. Other keys: probabilities, actions, count, excluded, event_id, "
        "context_json, multiplicity, defaulted. May be repeated."
    ),
]
Loop = Annotated[
    str | None,
    typer.Option(
        help="LOG is the data directory of a service, or the URL of its database: the loop whose "
        "decisions are read; default: default."
    ),
]
Strict = Annotated[bool, typer.Option("--strict", help="Stop at the first row that is bad.")]


def check(
    log: LogPaths,
    format: Format = "auto",
    columns: Columns = None,
    strict: Strict = False,
    loop: Loop = None,
    as_json: AsJson = False,
) -> None:
    """Check whether a log can be used to evaluate policies; exit 1 if it cannot."""
    from windvane.evaluation.log_check import check as check_log

    opened = open_log(log, format, columns, strict, loop)
    with show_progress("check", opened):
        report = check_log(opened)
    if as_json:
        print_json(report.to_json())
    else:
        _print_report(report)
    raise typer.Exit(0 if report.is_usable else 1)


def open_log(
    paths: list[str],
    format: str,
    columns: list[str] | None,
    strict: bool,
    loop: str | None = None,
) -> "Log":
    """Open the log that the arguments of a command name: files, or the data of a service."""
    from windvane.evaluation.readers import open_log as open_files
    from windvane.evaluation.readers.column_mapping import parse_columns

    if len(paths) == 1 and is_service_data(paths[0]):
        return open_service_data(paths[0], loop or DEFAULT_LOOP)
    if loop is not None:
        message = "--loop: LOG must be the data directory of a service, or the URL of its database"
        raise SettingError(f"{message}, got {' '.join(paths)}")
    mapping = parse_columns(",".join(columns)) if columns else None
    return open_files(paths, format, mapping, strict)


def is_service_data(path: str) -> bool:
    """Whether a path is the data directory of a service, or the URL of its database."""
    return "://" in path or (Path(path) / SERVICE_DATABASE).is_file()


def open_service_data(where: str, loop: str) -> "Log":
    """Open the decisions of a loop in the data of a service, which may run."""
    from windvane.service.cli import needs_extra

    with needs_extra("serve"):
        from windvane.service.store.log import LogReader
        from windvane.service.store.logged_decisions import LoggedDecisions
    return LoggedDecisions(LogReader(where), loop)


@contextmanager
def show_progress(task: str, log: "Log") -> Iterator[None]:
    """Show a bar on stderr while a log is read, if the log knows how far it is."""
    from windvane.evaluation.readers.file_log import HasProgress

    if not isinstance(log, HasProgress):
        yield
        return
    with make_bars() as bars:
        bar = bars.add_task(task, total=100, unit="percent")
        log.on_progress = lambda share: bars.update(bar, completed=int(100 * share))
        try:
            yield
        finally:
            log.on_progress = None


def _print_report(report: "CheckReport") -> None:
    rows = [
        {"check": finding.name, "level": finding.level, "finding": finding.sentence}
        for finding in report.findings
    ]
    print(f"{report.description}\n\n{format_table(rows)}")
    for text, count in report.notes.items():
        print_message(f"{count} {text}")
    for bad in report.bad_rows:
        print_message(f"bad row {bad.source}:{bad.line}: {bad.reason}")


EVALUATION_COMMANDS: tuple[Callable[..., object], ...] = (check,)
