"""Progress bars for a terminal, which the lab and the service share."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress


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
