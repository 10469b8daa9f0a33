"""Read a result folder, whichever study wrote it."""

from os import PathLike
from pathlib import Path

import polars as pl

from windvane.errors import FileError
from windvane.lab.output.panels import SUMMARY_FILE, read_json
from windvane.lab.studies.coverage import COVERAGE_FILE, Coverage
from windvane.lab.studies.leaderboard import LEADERBOARD_FILE, Leaderboard
from windvane.lab.studies.reproduction import Reproduction
from windvane.lab.studies.result import StudyResult
from windvane.lab.studies.simulation import Simulation
from windvane.lab.studies.tuning import TUNING_FILE, Tuning


def load(folder: str | PathLike[str]) -> StudyResult:
    """Read the result that `save` or a command of the lab wrote to a folder."""
    path = Path(folder)
    try:
        return _find_study(path).read(path)
    except (OSError, ValueError, KeyError, TypeError, pl.exceptions.PolarsError) as reason:
        raise FileError(
            f"result folder: {path} holds no finished run of reproduce, simulate, tune, "
            f"leaderboard or coverage ({reason})"
        ) from None


def _find_study(folder: Path) -> type[StudyResult]:
    """Return the class of the result by the files that are in the folder."""
    if (folder / SUMMARY_FILE).exists():
        kind = read_json(folder / SUMMARY_FILE).get("kind")
        return Reproduction if kind == Reproduction.picture else Simulation
    if (folder / TUNING_FILE).exists():
        return Tuning
    if (folder / LEADERBOARD_FILE).exists():
        return Leaderboard
    if (folder / COVERAGE_FILE).exists():
        return Coverage
    files = f"{SUMMARY_FILE}, {TUNING_FILE}, {LEADERBOARD_FILE} or {COVERAGE_FILE}"
    raise ValueError(f"it has no {files}")
