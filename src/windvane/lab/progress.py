"""Progress of long runs: a callback for libraries, bars for a terminal."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from windvane._terminal.console import make_bars

if TYPE_CHECKING:
    from rich.progress import TaskID


class TaskProgress(NamedTuple):
    """How much of a task is done."""

    task: str  # the name of a world or of a panel, or "reading"
    done: int
    total: int
    unit: str  # "replications" or "bytes"


Report = Callable[[TaskProgress], None]


@contextmanager
def open_report(progress: bool | Report) -> Iterator[Report]:
    """Give the function that takes progress: bars for True, nothing for False, else `progress`."""
    if callable(progress):
        yield progress
    elif progress:
        with _show_bars() as report:
            yield report
    else:
        yield _ignore


def _ignore(_: TaskProgress) -> None:
    """Show nothing."""


@contextmanager
def _show_bars() -> Iterator[Report]:
    """Show one bar a task on stderr, with the time left; show nothing if stderr is no terminal."""
    bars = make_bars()
    tasks: dict[str, TaskID] = {}

    def report(progress: TaskProgress) -> None:
        name = progress.task
        if name not in tasks:
            tasks[name] = bars.add_task(name, start=False, total=progress.total, unit=progress.unit)
        if progress.done:
            bars.start_task(tasks[name])
            bars.update(tasks[name], completed=progress.done, total=progress.total)

    with bars:
        yield report
