"""The service's commands: serve, loop, key, demo, and those on a log as a whole."""

import inspect
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from windvane._terminal.console import AsJson, CommandGroups, make_bars, print_json, print_message
from windvane._terminal.tables import Cell, format_table
from windvane.errors import SettingError, StoreError
from windvane.service.clock import MICROSECONDS_PER_SECOND, ServiceClock, read_wall_us, to_datetime

try:
    from windvane.service.loops.settings import SETTINGS
except ModuleNotFoundError as missing:  # the extra `serve` is not installed
    if (missing.name or "").startswith("windvane"):
        raise
    SETTINGS = ()

if TYPE_CHECKING:
    from windvane.service.store.log import Store

Data = Annotated[Path, typer.Option(envvar="WINDVANE_DATA", help="Directory of the service's log.")]
Database = Annotated[
    str | None,
    typer.Option(envvar="WINDVANE_DATABASE", help="postgresql://... in place of --data."),
]
DEFAULT_DATA = Path("windvane-data")
IMPORT_SECONDS = 60.0  # until a service must have taken a part of an import
Flags = dict[str, str | int | float]  # values of the flags that the command line has, by wire name
# Without the extra, flags are not known, and the command itself says what to install.
LOOP_CONTEXT = {} if SETTINGS else {"ignore_unknown_options": True, "allow_extra_args": True}
loop_commands = typer.Typer(
    cls=CommandGroups,
    help="Create, list and delete loops: kinds of decisions that are made again and again.",
)
key_commands = typer.Typer(cls=CommandGroups, help="Create, list and expire keys.")


def require_posix(command: str) -> None:
    """Refuse a system without the signals and socket passing that the service needs."""
    if sys.platform == "win32":
        raise SettingError(f"{command}: the service needs Linux, macOS or WSL, got Windows")


@contextmanager
def open_store(data: Path, database: str | None, create: bool = False) -> Iterator["Store"]:
    """The log; without `create` it must exist."""
    require_posix("store")
    from windvane.service.store.database import may_have_log, resolve_url
    from windvane.service.store.log import Store

    where = database or str(data)
    if not create and not may_have_log(resolve_url(where)):
        raise StoreError(f"store: there is no log in {data}", "unreachable")
    with Store(where) as store:
        yield store


def with_setting_flags(command: Callable[..., None]) -> Callable[..., None]:
    """A command with a flag for each setting in place of its parameter `settings`."""

    def run(**values: Any) -> None:
        flag_values = {setting.name: values.pop(setting.field) for setting in SETTINGS}
        flags: Flags = {name: value for name, value in flag_values.items() if value is not None}
        command(settings=flags, **values)

    parameters: list[inspect.Parameter] = []
    for parameter in inspect.signature(command).parameters.values():
        if parameter.name == "settings":
            parameters += map(_build_flag, SETTINGS)
        else:
            parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    run.__doc__ = command.__doc__
    return run


def _build_flag(setting: Any) -> inspect.Parameter:
    return inspect.Parameter(
        setting.field,
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[
            setting.type | None,
            typer.Option(setting.flag, help=setting.meaning, show_default=str(setting.default)),
        ],
    )


def backup(
    path: Annotated[Path, typer.Argument(help="The file to write.")],
    data: Data = DEFAULT_DATA,
    database: Database = None,
) -> None:
    """Copy the log as it is at one moment; the service may keep running."""
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
    from windvane.service.store.files.log_copy import restore_backup

    restore_backup(path, database or str(data))
    print_message(f"{database or data} holds the log of {path}")


def compact(data: Data = DEFAULT_DATA, database: Database = None) -> None:
    """Shrink the file of a log that no service uses; later deletions shrink it by themselves."""
    from windvane.service.store.files.log_copy import compact_database

    with open_store(data, database):
        pass  # the log must exist
    before, after = compact_database(database or str(data))
    print_message(f"the log had {before / 1e6:.1f} MB and has {after / 1e6:.1f} MB")


def export(
    file: Annotated[Path | None, typer.Argument(help="The Parquet file to write.")] = None,
    parquet: Annotated[Path | None, typer.Option(help="The same as FILE.")] = None,
    loop: Annotated[str, typer.Option(help="Loop whose decisions are written.")] = "default",
    data: Data = DEFAULT_DATA,
    database: Database = None,
) -> None:
    """Write every decision of a loop with its probabilities and reward, for offline evaluation."""
    target = file or parquet
    if target is None or (file and parquet):
        raise SettingError("export: one file to write must be given, such as log.parquet")
    from windvane.service.store.files.parquet_export import export_log

    with open_store(data, database) as store, make_bars() as bars:
        task = bars.add_task("export", total=None, unit="decisions")

        def report(done: int, total: int) -> None:
            bars.update(task, completed=done, total=total)

        rows = export_log(store, loop, target, report)
    print_message(f"{target} has {rows} decisions")


def import_log(
    logs: Annotated[
        list[str], typer.Argument(metavar="LOG...", help="Files, directories or glob patterns.")
    ],
    loop: Annotated[
        str, typer.Option(help="Loop to warm-start; with --data it is created if missing.")
    ],
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
    url: Annotated[
        str | None,
        typer.Option(help="A running service that learns the log, in place of --data."),
    ] = None,
    key: Annotated[
        str | None, typer.Option(envvar="WINDVANE_KEY", help="With --url: a key of role admin.")
    ] = None,
    data: Data = DEFAULT_DATA,
    database: Database = None,
    as_json: AsJson = False,
) -> None:
    """Warm-start a loop from the log of another system. No service may run on --data meanwhile."""
    from windvane.evaluation.readers import open_log
    from windvane.evaluation.readers.column_mapping import join_columns

    log = open_log(logs, format, join_columns(columns), strict)
    require_posix("import")
    from windvane.service.evaluations import log_import

    with make_bars() as bars:
        task = bars.add_task("import", total=None, unit="decisions")

        def report(rows: int) -> None:
            bars.update(task, completed=rows)

        if url is not None:
            from windvane.client import Client

            with Client(url, key=key, timeout=IMPORT_SECONDS) as client:
                counts = log_import.import_over_http(client.request, log, loop, report)
        else:
            with open_store(data, database, create=True) as store:
                counts = log_import.import_log(store, log, loop, report)
    left_out = counts.left_out | ({"it cannot be read": log.bad_row_count} if log.bad_rows else {})
    if as_json:
        print_json({"imported": counts.imported, "known": counts.known, "left out": left_out})
    else:
        print_message(f"{loop} has learned {counts.imported} decisions of {log.description}")
        if counts.known:
            print_message(f"{counts.known} decisions were there already")
        for reason, count in left_out.items():
            print_message(f"rows left out: {count} ({reason})")
    if not counts.imported and not counts.known:
        most = max(left_out, key=lambda reason: left_out[reason], default="the log has no rows")
        print_message(f"import: nothing was imported: {most}")
        raise typer.Exit(1)


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


def serve(
    host: Annotated[
        str, typer.Option(envvar="WINDVANE_HOST", help="Address to listen on.")
    ] = "127.0.0.1",
    port: Annotated[
        int,
        typer.Option(min=0, max=65535, envvar="WINDVANE_PORT", help="Port; 0 takes a free one."),
    ] = 8787,
    data: Data = DEFAULT_DATA,
    database: Database = None,
    certificate: Annotated[
        Path | None,
        typer.Option(envvar="WINDVANE_CERTIFICATE", help="Certificate (PEM), for TLS."),
    ] = None,
    key: Annotated[
        Path | None,
        typer.Option(
            envvar="WINDVANE_CERTIFICATE_KEY", help="Private key (PEM) of the certificate."
        ),
    ] = None,
    believe_clock: Annotated[
        bool,
        typer.Option(
            "--believe-clock",
            envvar="WINDVANE_BELIEVE_CLOCK",
            help="Start at the wall clock's time, however far it is ahead of the log.",
        ),
    ] = False,
    trusted_proxy: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ADDRESS",
            envvar="WINDVANE_TRUSTED_PROXY",
            help="Address or network of a reverse proxy whose X-Forwarded-For and "
            "X-Forwarded-Proto are believed; may be repeated.",
        ),
    ] = None,
    requests_per_second: Annotated[
        float | None,
        typer.Option(
            min=0.01,
            envvar="WINDVANE_REQUESTS_PER_SECOND",
            help="Requests that each key may send a second; default: without a limit.",
        ),
    ] = None,
    drain_seconds: Annotated[
        float,
        typer.Option(
            min=0.0,
            max=600.0,
            envvar="WINDVANE_DRAIN_SECONDS",
            help="How long after SIGTERM requests are answered while /readyz says 503.",
        ),
    ] = 0.0,
) -> None:
    """Answer rank and reward requests over HTTP; each is on disk before it is answered."""
    require_posix("serve")
    if (certificate is None) != (key is None):
        raise SettingError("serve: --certificate and --key go together")
    _use_one_thread()
    from windvane.service import server
    from windvane.service.app import EdgeOptions

    address = server.Address(host, port, certificate, key)
    where = database or str(data)
    server.check_keys(where, address)
    edge = EdgeOptions(tuple(trusted_proxy or ()), requests_per_second)
    server.serve(where, address, edge, believe_clock, drain_seconds)


@loop_commands.command("create", context_settings=LOOP_CONTEXT)
@with_setting_flags
def create_loop(
    name: Annotated[str, typer.Argument(help="Name of the loop, part of its URL.")],
    settings: Flags,
    data: Data = DEFAULT_DATA,
    database: Database = None,
    as_json: AsJson = False,
) -> None:
    """Create a loop; a service that runs on the same log has it at once."""
    with open_store(data, database, create=True) as store:
        from windvane.service.loops.settings import LoopSettings, check_loop_name
        from windvane.service.store.writer.loop_operations import PutLoop

        checked = LoopSettings.from_names(settings).to_json()
        put = PutLoop(check_loop_name(name), checked, _read_latest_us(store), "command line")
        row = store.write(put)
    if as_json:
        print_json({"name": row.name, "settings": json.loads(row.settings)})
    else:
        print(f"/loops/{row.name}/personalizer/v1.0")


@loop_commands.command("list")
def list_loops(
    data: Data = DEFAULT_DATA, database: Database = None, as_json: AsJson = False
) -> None:
    """List the loops, and how many of their decisions were rewarded."""
    with open_store(data, database) as store:
        from windvane.service.loops.settings import LoopSettings

        rows: list[dict[str, Cell]] = []
        for row in store.list_loops():
            settings = LoopSettings.from_json(row.settings)
            funnel = store.read_funnel(row.id)
            rows.append(
                {
                    "loop": row.name,
                    "created": _format_time(row.created),
                    "half-life": settings.half_life,
                    "wait": settings.reward_wait_time,
                    "mode": settings.learning_mode,
                    "ranked": funnel.ranked,
                    "rewarded": funnel.learned,
                    "default": funnel.default,
                    "late": funnel.late,
                    "orphan": funnel.orphan,
                }
            )
    _print_rows(rows, as_json, "no loops yet")


@loop_commands.command("delete")
def delete_loop(
    name: Annotated[str, typer.Argument(help="Name of the loop.")],
    confirm: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The name once more; without it the command asks."),
    ] = None,
    data: Data = DEFAULT_DATA,
    database: Database = None,
) -> None:
    """Delete a loop with its log and its model; only a backup brings them back."""
    with open_store(data, database) as store:
        from windvane.service.store.writer.loop_operations import DeleteLoop, PurgeLoops

        row = store.find_loop(name)
        if row is None:
            raise SettingError(f"loop: there is no loop {name!r}")
        if confirm is None:
            ranked = store.read_funnel(row.id).ranked
            question = f"The loop has made {ranked} decisions. Type its name to delete it"
            confirm = typer.prompt(question, err=True)
        if confirm != name:
            raise SettingError(f"loop: {confirm!r} is not {name!r}, nothing was deleted")
        store.write(DeleteLoop(row.id, store.find_newest_time() or 0))
        with suppress(StoreError):  # a service deletes what is left
            while store.write(PurgeLoops()):
                pass
    print_message(f"the loop {name} is deleted")


@key_commands.command("create")
def create_key(
    role: Annotated[str, typer.Option(help="rank, read or admin.")],
    data: Data = DEFAULT_DATA,
    database: Database = None,
    as_json: AsJson = False,
) -> None:
    """Create a key and print it once; the log keeps only its hash."""
    with open_store(data, database, create=True) as store:
        from windvane.service.api import auth

        new = auth.create_key(role, _read_latest_us(store))
        row = store.write(new.put)
    if as_json:
        print_json({"id": row.id, "role": row.role, "key": new.secret})
    else:
        print(new.secret)
        print_message(f"key {row.id} of the role {role}; it is not shown again")


@key_commands.command("list")
def list_keys(
    data: Data = DEFAULT_DATA, database: Database = None, as_json: AsJson = False
) -> None:
    """List the keys without their secrets."""
    with open_store(data, database) as store:
        from windvane.service.api.auth import is_valid

        keys = store.list_keys()
        latest = _read_latest_us(store)
        rows: list[dict[str, Cell]] = [
            {
                "id": row.id,
                "role": row.role,
                "created": _format_time(row.created),
                "expires": None if row.expires is None else _format_time(row.expires),
                "valid": is_valid(row, latest),
            }
            for row in keys
        ]
    _print_rows(rows, as_json, "no keys yet: only localhost may connect to the service")


@key_commands.command("expire")
def expire_key(
    number: Annotated[int, typer.Argument(metavar="ID", help="Id of the key, from `key list`.")],
    delay: Annotated[
        str | None, typer.Option("--in", help='When the key expires: "1 day"; default: now.')
    ] = None,
    data: Data = DEFAULT_DATA,
    database: Database = None,
) -> None:
    """Let a key expire, now or later; with a delay, an old key and a new one overlap."""
    with open_store(data, database) as store:
        from windvane.service.store.writer.loop_operations import ExpireKey
        from windvane.settings import parse_seconds

        if delay is None:  # expired by service time and by any wall clock, now and later
            until = min(read_wall_us(), store.find_newest_time() or read_wall_us())
        else:
            seconds = parse_seconds(delay)
            until = _read_latest_us(store) + round(seconds * MICROSECONDS_PER_SECOND)
        if not store.write(ExpireKey(number, until)):
            raise SettingError(f"key: there is no key with the id {number}")
    if delay is None:
        print_message(f"key {number} has expired")
    else:
        print_message(f"key {number} is valid until {_format_time(until)}")


def demo(
    minutes: Annotated[
        float | None, typer.Option(min=0.01, help="How long to play; default: until Ctrl-C.")
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 takes a free one.")] = 0,
) -> None:
    """Simulate visitors whose tastes change every minute, and watch the dashboard of a service."""
    require_posix("demo")
    _use_one_thread()
    from windvane.service.demo import run_demo

    run_demo(minutes, port, print_message)


def _use_one_thread() -> None:
    """Limit BLAS to one thread: its threads slow small matrices down when cores are busy."""
    import os

    for name in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):  # read when SciPy is loaded
        os.environ.setdefault(name, "1")


def _read_latest_us(store: "Store") -> int:
    """The later one of the wall clock and the newest time in the log."""
    return ServiceClock(store.find_newest_time()).latest_us()


def _format_time(at_us: int) -> str:
    return to_datetime(at_us).strftime("%Y-%m-%d %H:%M:%S UTC")


def _print_rows(rows: Sequence[Mapping[str, Cell]], as_json: bool, if_empty: str) -> None:
    if as_json:
        print_json(rows)
    elif rows:
        print(format_table(rows))
    else:
        print_message(if_empty)


SERVICE_COMMANDS: tuple[Callable[..., None], ...] = (
    *(serve, backup, restore, compact, export, migrate, demo),
)
