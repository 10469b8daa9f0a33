"""Result folders: those of release 0.1.0 are loaded, saved and drawn with the same numbers."""

import json
import tarfile
from pathlib import Path

import polars as pl
import pytest

from windvane import lab

ARCHIVE = Path(__file__).parents[2] / "old_data" / "lab.tar.gz"
KINDS = {"simulated": lab.Simulation, "figure": lab.Reproduction, "tuning": lab.Tuning}


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The result folders that the commands of release 0.1.0 wrote."""
    folder = tmp_path_factory.mktemp("old")
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder, filter="data")
    return folder


@pytest.mark.parametrize("name", KINDS)
def test_an_old_folder_is_loaded_and_saved_with_the_same_files(
    name: str, old: Path, tmp_path: Path
) -> None:
    result = lab.load(old / name)
    assert isinstance(result, KINDS[name])
    result.save(tmp_path)
    for file in (old / name).iterdir():
        saved = tmp_path / file.name
        if file.suffix == ".json":
            assert saved.read_text("utf-8") == file.read_text("utf-8")
        else:
            assert pl.read_parquet(saved).equals(pl.read_parquet(file))
    assert lab.load(tmp_path) == result


@pytest.mark.parametrize("name", KINDS)
def test_the_tables_of_an_old_folder_hold_its_numbers(name: str, old: Path) -> None:
    result = lab.load(old / name)
    (file,) = (old / name).glob("*.json")
    document = json.loads(file.read_text("utf-8"))
    rows = next(iter(result.tables.values())).to_dicts()
    assert rows == document.get("results", document.get("panels"))
    assert len(result.figure().axes) == len(document.get("drawn", [1]))
