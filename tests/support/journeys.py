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
        self.environment = os.environ | {"PYTHONPATH": paths, "WINDVANE_RECORDING": str(folder)}

    @contextmanager
    def phase(self, calls: list[Hop]) -> Iterator[None]:
        """Add to `calls` what was called in the meantime, in the order of the first calls."""
        with open(self._folder / "phase", "ab") as file:
            file.write(b".")
        size = (self._folder / "phase").stat().st_size
        yield
        calls.extend(self._read(size))

    def _read(self, phase: int) -> list[Hop]:
        lines = []
        for file in self._folder.glob("*.calls"):
            for line in file.read_text("utf-8").splitlines():
                when, number, path, name = line.split("\t")
                if int(number) == phase:
                    lines.append((int(when), Hop(path, name)))
        return [hop for _, hop in sorted(lines)]
