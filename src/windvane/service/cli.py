"""The service's commands: serve, loop, key, backup, restore, export, demo."""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from windvane._text_table import Cell, format_table
from windvane.errors import SettingError, StoreError
from windvane.service.clock import MICROSECONDS_PER_SECOND, now_us

if TYPE_CHECKING:
    from windvane.service.store.log import Store

Data = Annotated[Path, typer.Option(envvar="WINDVANE_DATA", help="Directory of the service's log.")]
Database = Annotated[
    str | None,
    typer.Option(envvar="WINDVANE_DATABASE", help="postgresql://... in place of --data."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]
HERE = Path("windvane-data")

loop = typer.Typer(help="Make and list loops: decisions that are made again and again.")
key = typer.Typer(help="Make, list and expire keys.")


def serve(
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 takes a free one.")] = 8787,
    data: Data = HERE,
    database: Database = None,
    certificate: Annotated[Path | None, typer.Option(help="Certificate (PEM), for TLS.")] = None,
    key: Annotated[Path | None, typer.Option(help="Its private key (PEM).")] = None,
) -> None:
    """Answer rank and reward over HTTP until stopped; what was acknowledged is on disk."""
    if (certificate is None) != (key is None):
        raise SettingError("serve: --certificate and --key go together")
    _one_thread()
    with _extra("serve"):
        from windvane.service import server

        address = server.Address(host, port, certificate, key)
        where = _where(data, database)
        server.check_keys(where, address)
        from windvane.service.app import make

        server.run(make(where), address, lambda url: _say(f"serving on {url}"))
    _say("stopped")


@loop.command("create")
def create_loop(
    name: Annotated[str, typer.Argument(help="Its name, part of its address.")],
    half_life: Annotated[
        str, typer.Option(help='Age at which a reward counts half: "7 days", "500 rounds", never.')
    ] = "7 days",
    wait: Annotated[str, typer.Option(help="How long a reward may take.")] = "PT10M",
    default_reward: Annotated[float, typer.Option(help="What counts when none comes.")] = 0.0,
    aggregation: Annotated[str, typer.Option(help="earliest or sum.")] = "earliest",
    exploration: Annotated[float, typer.Option(help="Share that every action is given.")] = 0.1,
    mode: Annotated[str, typer.Option(help="Online, Apprentice or LoggingOnly.")] = "Online",
    dim: Annotated[int, typer.Option(help="Dimension of the hashed features.")] = 128,
    seed: Annotated[int, typer.Option(help="Seed of its choices.")] = 0,
    data: Data = HERE,
    database: Database = None,
    as_json: AsJson = False,
) -> None:
    """Make a loop; a service that runs on the same log has it at once."""
    told = {
        "halfLife": half_life,
        "rewardWaitTime": wait,
        "defaultReward": default_reward,
        "rewardAggregation": aggregation,
        "explorationPercentage": exploration,
        "learningMode": mode,
        "dim": dim,
        "seed": seed,
    }
    with _store(data, database, new=True) as store:
        from windvane.service.loops import settings
        from windvane.service.store.admin_operations import PutLoop

        checked = settings.write(settings.read(json.dumps(told)))
        put = PutLoop(settings.loop_name(name), checked, now_us(), "command line")
        row = store.submit(put).result()
    if as_json:
        print(json.dumps({"name": row.name, "settings": json.loads(row.settings)}, indent=2))
    else:
        print(f"/loops/{row.name}/personalizer/v1.0")


@loop.command("list")
def list_loops(data: Data = HERE, database: Database = None, as_json: AsJson = False) -> None:
    """List the loops with what became of their decisions."""
    with _store(data, database) as store:
        rows: list[dict[str, Cell]] = []
        for row in store.list_loops():
            told, funnel = json.loads(row.settings), store.read_funnel(row.id)
            rows.append(
                {
                    "loop": row.name,
                    "created": _date(row.created),
                    "half-life": told["halfLife"],
                    "wait": told["rewardWaitTime"],
                    "mode": told["learningMode"],
                    "ranked": funnel.ranked,
                    "rewarded": funnel.learned,
                    "default": funnel.default,
                    "late": funnel.late,
                    "orphan": funnel.orphan,
                }
            )
    _show(rows, as_json, "no loops yet")


@key.command("create")
def create_key(
    role: Annotated[str, typer.Option(help="rank, read or admin.")],
    data: Data = HERE,
    database: Database = None,
    as_json: AsJson = False,
) -> None:
    """Make a key and print it, this once; the log keeps its hash."""
    with _store(data, database, new=True) as store:
        from windvane.service.api import auth

        made = auth.fresh(role, now_us())
        kept = store.submit(made.put).result()
    if as_json:
        print(json.dumps({"id": kept.id, "role": kept.role, "key": made.secret}, indent=2))
    else:
        print(made.secret)
        _say(f"key {kept.id} of the role {role}; it is not shown again")


@key.command("list")
def list_keys(data: Data = HERE, database: Database = None, as_json: AsJson = False) -> None:
    """List the keys, without what is secret about them."""
    with _store(data, database) as store:
        from windvane.service.api.auth import is_valid

        known = store.list_keys()
        rows: list[dict[str, Cell]] = [
            {
                "id": kept.id,
                "role": kept.role,
                "created": _date(kept.created),
                "expires": None if kept.expires is None else _date(kept.expires),
                "valid": is_valid(kept, now_us()),
            }
            for kept in known
        ]
    _show(rows, as_json, "no keys yet: the service is open to this machine alone")


@key.command("expire")
def expire_key(
    number: Annotated[int, typer.Argument(metavar="ID", help="The key's id, as key list has it.")],
    within: Annotated[
        str | None, typer.Option("--in", help='How long it still works: "1 day"; else no longer.')
    ] = None,
    data: Data = HERE,
    database: Database = None,
) -> None:
    """Let a key end, now or after a while, so that an old one and a new one overlap."""
    with _store(data, database) as store:
        from windvane.service.loops.settings import seconds
        from windvane.service.store.admin_operations import ExpireKey

        delay = 0 if within is None else round(seconds(within) * MICROSECONDS_PER_SECOND)
        until = now_us() + delay
        if not store.submit(ExpireKey(number, until)).result():
            raise SettingError(f"key: there is none with the id {number}")
    _say(f"key {number} is valid until {_date(until)}")


def backup(
    path: Annotated[Path, typer.Argument(help="The file to write.")],
    data: Data = HERE,
    database: Database = None,
) -> None:
    """Copy the log as it is at one moment, while the service goes on."""
    with _store(data, database) as store:
        store.backup(path)
    _say(f"{path} holds {database or data} as of now")


def restore(
    path: Annotated[Path, typer.Argument(help="What backup wrote.")],
    data: Data = HERE,
    database: Database = None,
) -> None:
    """Make a backup the log of a directory that has none."""
    with _extra("serve"):
        from windvane.service.store.backup import restore as put_back
    put_back(path, _where(data, database))
    _say(f"{database or data} holds what {path} does")


def export(
    parquet: Annotated[Path, typer.Option(help="The file to write.")],
    loop: Annotated[str, typer.Option(help="Whose decisions.")] = "default",
    data: Data = HERE,
    database: Database = None,
) -> None:
    """Write every decision of a loop with its probabilities and its reward, for evaluation."""
    with _extra("lab"):
        from windvane.service.store.parquet_export import export_log
    with _store(data, database) as store:
        rows = export_log(store, loop, parquet)
    _say(f"{parquet} has {rows} decisions")


def demo(
    minutes: Annotated[
        float | None, typer.Option(min=0.01, help="How long to play; else until Ctrl-C.")
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 takes a free one.")] = 0,
) -> None:
    """Play visitors whose tastes change every minute against a service, and watch its board."""
    _one_thread()
    with _extra("serve"):
        from windvane.service.demo import play
    play(minutes, port, _say)


def _one_thread() -> None:
    """Small matrices gain nothing from more, and where others want the cores they stall."""
    import os

    for name in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):  # read with SciPy
        os.environ.setdefault(name, "1")


def _where(data: Path, database: str | None) -> str:
    return database or str(data)


@contextmanager
def _store(data: Path, database: str | None, new: bool = False) -> Iterator["Store"]:
    """The log; only what makes something makes it where there is none."""
    with _extra("serve"):
        from windvane.service.store.database import resolve_url
        from windvane.service.store.log import Store
    url = resolve_url(_where(data, database))
    if not new and url.get_backend_name() == "sqlite" and not Path(url.database or "").exists():
        raise StoreError(f"store: there is no log in {data}", "unreachable")
    with Store(_where(data, database)) as store:
        yield store


@contextmanager
def _extra(name: str) -> Iterator[None]:
    """Say what to install when something is missing."""
    try:
        yield
    except ModuleNotFoundError as missing:
        if (missing.name or "").startswith("windvane"):
            raise
        message = f"{missing.name} is missing: pip install 'windvane[{name}]'"
        raise SettingError(message) from None


def _date(at: int) -> str:
    from windvane.service.schemas import date

    return date(at).strftime("%Y-%m-%d %H:%M:%S UTC")


def _say(sentence: str) -> None:
    print(f"windvane: {sentence}", file=sys.stderr, flush=True)


def _show(rows: Sequence[Mapping[str, Cell]], as_json: bool, none: str) -> None:
    if as_json:
        print(json.dumps(rows, indent=2, ensure_ascii=False))
    elif rows:
        print(format_table(rows))
    else:
        _say(none)
