"""The command line: one command per task, results to stdout, talk to stderr."""

import json
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from windvane._text_table import Cell, table
from windvane.errors import WindvaneError
from windvane.lab import cli as lab
from windvane.service import cli as service

if TYPE_CHECKING:
    from windvane.names import Name

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    help="Choices that keep up with a changing world: linear bandits whose memory fades.",
)
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]


@app.callback()
def windvane() -> None:
    """Keep one command from becoming the whole program."""


@app.command()
def policies(as_json: AsJson = False) -> None:
    """List the policies of the literature: what each is made of and what it promises."""
    from windvane.exploration import BY_ORACLE, DETERMINISTIC
    from windvane.names import NAMES

    worlds: dict[str, list[dict[str, Cell]]] = {}
    for name in NAMES:
        worlds.setdefault(name.world, []).append(
            {
                "policy": name.name,
                "memory": _memory(name),
                "exploration": name.exploration,
                "regret bound": name.bound or None,
                "randomised": name.exploration not in DETERMINISTIC
                or name.finding in ("bandits", "warm"),
                "oracle-efficient": name.exploration in BY_ORACLE,
                "any link": name.linked,
            }
        )
    _show(worlds, as_json)


def _memory(name: "Name") -> str:
    found = {"bandits": ", found by EXP3", "warm": ", found by EXP3, warm"}
    rest = found.get(name.finding, ", found by prediction" if name.finding else "")
    return name.memory + (" (one Gram matrix)" if name.single else rest)


@app.command()
def theory(
    dim: Annotated[int, typer.Option(help="Dimension d of the features.")],
    horizon: Annotated[int, typer.Option(help="Number of rounds T.")],
    drift: Annotated[float, typer.Option(help="Total variation B of the parameter.")],
    arms: Annotated[int, typer.Option(help="Number of arms K.")],
    ridge: Annotated[float, typer.Option(help="Ridge λ.")] = 1.0,
    delta: Annotated[float, typer.Option(help="Chance δ that a radius fails.")] = 0.01,
    as_json: AsJson = False,
) -> None:
    """Print the tunings, radii, constants and regret bounds of the paper's theory."""
    from windvane.theory import summary

    _show(summary(dim, horizon, drift, arms, ridge, delta), as_json)


for task in (lab.reproduce, lab.simulate, lab.tune, lab.leaderboard, lab.plot):
    app.command()(task)
for job in (service.serve, service.backup, service.restore, service.export, service.demo):
    app.command()(job)
app.add_typer(service.loop, name="loop")
app.add_typer(service.key, name="key")


def _show(tables: Mapping[str, Sequence[Mapping[str, Cell]]], as_json: bool) -> None:
    if as_json:
        print(json.dumps(tables, indent=2, ensure_ascii=False))
    else:
        print("\n\n".join(f"{title}\n{table(rows)}" for title, rows in tables.items()))


def main() -> None:
    """Run the command line; a mistake is one line on stderr and exit code 2."""
    try:
        code = app(sys.argv[1:] or ["--help"], standalone_mode=False)
    except (KeyboardInterrupt, typer.Abort):
        sys.exit(130)
    except Exception as mistake:
        sentence = getattr(
            mistake, "format_message", mistake.__str__
        )  # typer's own have the former
        if not isinstance(mistake, WindvaneError) and sentence == mistake.__str__:
            raise
        print(f"windvane: {sentence()}", file=sys.stderr)
        sys.exit(2)
    sys.exit(code if isinstance(code, int) else 0)
