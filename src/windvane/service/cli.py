"""The service's commands: serve, loop, key and demo; those on a log as a whole are in `log_cli`."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from windvane._terminal.console import AsJson, print_json, print_message
from windvane._terminal.tables import Cell, format_table
from windvane.errors import SettingError
from windvane.service.cli_options import (
    DEFAULT_DATA,
    LOOP_CONTEXT,
    Data,
    Database,
    Flags,
    locate,
    needs_extra,
    open_store,
    require_posix,
    with_setting_flags,
)
from windvane.service.clock import MICROSECONDS_PER_SECOND, ServiceClock, read_wall_us
from windvane.service.log_cli import LOG_COMMANDS

if TYPE_CHECKING:
    from windvane.service.store.log import Store

loop_commands = typer.Typer(
    help="Create and list loops: kinds of decisions that are made again and again."
)
key_commands = typer.Typer(help="Create, list and expire keys.")


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
    with needs_extra("serve"):
        from windvane.service import server

        address = server.Address(host, port, certificate, key)
        where = locate(data, database)
        server.check_keys(where, address)
        server.serve(
            server.ServeOptions(
                where,
                address,
                believe_clock,
                tuple(trusted_proxy or ()),
                requests_per_second,
                drain_seconds,
            )
        )


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
        row = store.submit(put).result()
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
        row = store.submit(new.put).result()
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
        from windvane.beliefs.bank.settings import parse_seconds
        from windvane.service.store.writer.loop_operations import ExpireKey

        if delay is None:  # expired by service time and by any wall clock, now and later
            until = min(read_wall_us(), store.find_newest_time() or read_wall_us())
        else:
            seconds = parse_seconds(delay)
            until = _read_latest_us(store) + round(seconds * MICROSECONDS_PER_SECOND)
        if not store.submit(ExpireKey(number, until)).result():
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
    with needs_extra("serve"):
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
    from windvane.service.schemas import to_datetime

    return to_datetime(at_us).strftime("%Y-%m-%d %H:%M:%S UTC")


def _print_rows(rows: Sequence[Mapping[str, Cell]], as_json: bool, if_empty: str) -> None:
    if as_json:
        print_json(rows)
    elif rows:
        print(format_table(rows))
    else:
        print_message(if_empty)


SERVICE_COMMANDS: tuple[Callable[..., None], ...] = (serve, *LOG_COMMANDS, demo)
