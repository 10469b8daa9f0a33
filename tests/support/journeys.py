"""Recordings of real calls: which functions of Windvane ran, file by file, in which order."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

RECORDER = Path(__file__).parent / "journey_recorder"


class Hop(NamedTuple):
    """A function that was called."""

    file: str  # below src/windvane
    name: str


class Recording:
    """The calls of all processes that were started with `environment`, in phases."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        (folder / "phase").write_bytes(b"")
        paths = os.pathsep.join(filter(None, [str(RECORDER), os.environ.get("PYTHONPATH")]))
        self.environment = os.environ | {
            "PYTHONPATH": paths,
            "WINDVANE_RECORDING": str(folder),
            "NUMBA_DISABLE_JIT": "1",  # calls inside of compiled code are recorded, too
        }

    @contextmanager
    def phase(self, process: int | None = None) -> Iterator[list[Hop]]:
        """The calls in the meantime, of one process or of all; filled when the context ends."""
        calls: list[Hop] = []
        with open(self._folder / "phase", "ab") as file:
            file.write(b".")
        yield calls
        calls.extend(self.read((self._folder / "phase").stat().st_size, process))

    def read(self, phase: int, process: int | None = None) -> list[Hop]:
        """The first calls of each function in a phase, in the order of time."""
        lines = []
        for file in self._folder.glob("*.calls"):
            for line in file.read_text("utf-8").splitlines():
                when, number, who, path, name = line.split("\t")
                if int(number) == phase and process in (None, int(who)):
                    lines.append((int(when), Hop(path, name)))
        return [hop for _, hop in sorted(lines)]
