"""What all commands share: the --json flag, results on stdout, messages and bars on stderr."""

import json
import sys
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.progress import Progress

MAX_MESSAGE_LETTERS = 2000  # of a sentence, which may quote a file
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]


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
