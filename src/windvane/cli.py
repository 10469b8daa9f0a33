"""The command line: one command a task, results on stdout, messages on stderr."""

import io
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from windvane import __version__
from windvane._terminal.console import AsJson, CommandGroups, print_json, print_message
from windvane._terminal.tables import Cell, format_table
from windvane.errors import WindvaneError
from windvane.evaluation.cli import EVALUATION_COMMANDS
from windvane.lab.cli import LAB_COMMANDS
from windvane.service.cli import SERVICE_COMMANDS, import_log, key_commands, loop_commands

if TYPE_CHECKING:
    from windvane.names import Name

LIBRARY = "Library (names and theory)"
SERVICE = "Service (choices over HTTP with a durable log)"
EXTRAS = {  # what each of them installs, by the names under which it is imported
    "lab": ("polars", "matplotlib"),
    "serve": ("starlette", "uvicorn", "sqlalchemy", "psycopg", "prometheus_client"),
    "client": ("httpx2",),
    "sklearn": ("sklearn",),
    "mcp": ("mcp",),
}
app = typer.Typer(
    cls=CommandGroups,
    add_completion=False,
    rich_markup_mode=None,
    help="Choices that keep up with a changing world: linear bandits whose memory fades.",
)


def _print_version(is_wanted: bool) -> None:
    if is_wanted:
        print(f"windvane {__version__}")
        raise typer.Exit


@app.callback()
def windvane(
    show_version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Make typer treat every command as a subcommand."""


@app.command(rich_help_panel=LIBRARY)
def policies(as_json: AsJson = False) -> None:
    """List the named policies. Show memory, exploration, regret bound and properties of each."""
    from windvane.exploration import EXPLORATIONS
    from windvane.names import BEST_KNOWN, DRIFTING, NAMES

    worlds: dict[str, list[dict[str, Cell]]] = {}
    for name in NAMES:
        worlds.setdefault(name.world, []).append(
            {
                "policy": name.name,
                "memory": _describe_memory(name),
                "exploration": name.exploration,
                "regret bound": name.bound or None,
                "randomised": not EXPLORATIONS[name.exploration].deterministic
                or name.search in ("bandits", "warm")
                or name.only_in_lab,
                "oracle-efficient": EXPLORATIONS[name.exploration].by_oracle,
                "any link": name.has_link,
            }
        )
    _print_tables(worlds, as_json)
    if not as_json:
        print(f"\nThe best known regret for {DRIFTING.lower()} worlds is {BEST_KNOWN}.")


def _describe_memory(name: "Name") -> str:
    if name.single:
        return f"{name.memory} (one Gram matrix)"
    if name.only_in_lab:
        return f"{name.memory}, on many scales (lab only)"
    if name.predictive:
        return f"{name.memory} (predictive sampling)"
    search = {
        "bandits": ", found by EXP3",
        "warm": ", found by EXP3, warm",
        "predictive": ", found by prediction",
    }
    return name.memory + search.get(name.search, "")


@app.command("compile", rich_help_panel=LIBRARY)
def compile_code(
    only_installed: Annotated[
        bool, typer.Option(help="Fail if the installation lacks machine code that fits.")
    ] = False,
) -> None:
    """Load the code of policies, learners and the service. Compile what is not there yet."""
    from windvane._numba.compilation import origins
    from windvane.beliefs.warm_up import warm_up

    warm_up()
    kinds = ", ".join(f"{origins[kind]} {kind}" for kind in ("installed", "loaded", "compiled"))
    print(f"{origins.total()} functions are ready: {kinds}")
    if only_installed and origins["installed"] < max(origins.total(), 1):
        raise typer.Exit(1)


@app.command(rich_help_panel=LIBRARY)
def theory(
    dim: Annotated[int, typer.Option(help="Dimension d of the features.")],
    horizon: Annotated[int, typer.Option(help="Number of rounds T.")],
    drift: Annotated[float, typer.Option(help="Total variation B of the parameter.")],
    arms: Annotated[int, typer.Option(help="Number of arms K.")],
    ridge: Annotated[float, typer.Option(help="Ridge λ.")] = 1.0,
    delta: Annotated[float, typer.Option(help="Chance δ that a radius fails.")] = 0.01,
    as_json: AsJson = False,
) -> None:
    """Print tunings and regret bounds of the paper's theory. Print its radii and constants too."""
    from windvane.theory import summary

    _print_tables(summary(dim, horizon, drift, arms, ridge, delta), as_json)


for title, commands in (
    ("Lab (policies in simulated worlds)", LAB_COMMANDS),
    ("Evaluation (of logs)", EVALUATION_COMMANDS),
    (SERVICE, SERVICE_COMMANDS),
):
    for command in commands:
        app.command(rich_help_panel=title)(command)
app.command("import", rich_help_panel=SERVICE)(import_log)
app.add_typer(loop_commands, name="loop", rich_help_panel=SERVICE)
app.add_typer(key_commands, name="key", rich_help_panel=SERVICE)


@app.command(rich_help_panel=SERVICE)
def mcp(
    url: Annotated[str, typer.Option(help="Running service.")] = "http://127.0.0.1:8787",
    key: Annotated[str | None, typer.Option(envvar="WINDVANE_KEY", help="Its key.")] = None,
) -> None:
    """Give an agent the loops of a service as tools: an MCP server on stdin and stdout."""
    import windvane.integrations.mcp as tools  # first: its extra brings the client, too
    from windvane.client import AsyncClient

    tools.build_server(AsyncClient(url, key=key)).run()


def _print_tables(tables: Mapping[str, Sequence[Mapping[str, Cell]]], as_json: bool) -> None:
    if as_json:
        print_json(tables)
    else:
        print("\n\n".join(f"{title}\n{format_table(rows)}" for title, rows in tables.items()))


def _find_extra(missing: ModuleNotFoundError) -> str | None:
    """Find the extra that brings a module."""
    package = (missing.name or "").partition(".")[0]
    return next((extra for extra, packages in EXTRAS.items() if package in packages), None)


def main() -> None:
    """Run the command line; a user's mistake prints one line on stderr and exits with code 2."""
    if isinstance(sys.stdout, io.TextIOWrapper):  # the name of a file can be any bytes
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        code = app(sys.argv[1:] or ["--help"], standalone_mode=False)
    except (KeyboardInterrupt, typer.Abort):
        sys.exit(130)
    except OSError as error:  # a file that cannot be read or written, a full disk
        print_message(str(error))
        sys.exit(1)
    except Exception as error:
        if isinstance(error, WindvaneError):
            sentence = str(error)
        elif hasattr(error, "format_message"):  # typer's own errors
            sentence = error.format_message()
        elif isinstance(error, ModuleNotFoundError) and (extra := _find_extra(error)):
            sentence = f"{error.name} is missing: pip install 'windvane[{extra}]'"
        else:
            raise
        print_message(sentence)
        sys.exit(2)
    sys.exit(code if isinstance(code, int) else 0)
