"""What all commands share: the --json flag, results on stdout, messages and bars on stderr."""

import json
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

if TYPE_CHECKING:
    from rich.progress import Progress

MAX_MESSAGE_LETTERS = 2000  # of a sentence, which may quote a file
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]


class CommandGroups(TyperGroup):
    """Lists commands by their `rich_help_panel`, each with the whole first sentence of its help."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        groups: dict[str, list[tuple[str, str]]] = {}
        for name in self.list_commands(ctx):
            command = self.commands[name]
            panel = getattr(command, "rich_help_panel", None)
            sentence, dot, _ = " ".join((command.help or "").split()).partition(". ")
            row = (name, sentence + "." * bool(dot))
            groups.setdefault(panel if isinstance(panel, str) else "Commands", []).append(row)
        for title, rows in groups.items():
            with formatter.section(title):
                formatter.write_dl(rows)


def print_json(value: object) -> None:
    """Print a value as indented JSON on stdout."""
    print(json.dumps(value, indent=2, ensure_ascii=False))


def print_message(sentence: str) -> None:
    """Print a sentence for people on stderr: one line, whatever a file has put into it."""
    line = "".join(letter if letter.isprintable() else " " for letter in sentence.strip())
    if len(line) > MAX_MESSAGE_LETTERS:
        line = f"{line[:MAX_MESSAGE_LETTERS]}..."
    print(f"windvane: {line}", file=sys.stderr, flush=True)


def make_bars() -> "Progress":
    """Make bars on stderr with the time left; they show nothing if stderr is no terminal.

    Every task has a field `unit`, the name of what is counted.
    """
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    console = Console(stderr=True)
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[unit]}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=console,
        disable=not (console.is_terminal or console.is_jupyter),
    )
