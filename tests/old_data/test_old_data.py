"""Data of release 0.1.0 can be opened, and continues as release 0.1.0 would have continued.

make_old_data.py made the data; steps.py holds what both files do with it. Stored values are
compared bit by bit. Computed values may differ by 1e-12 of their size, because compiled sums may be
ordered differently on another processor; choices must be equal.
"""

import json
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import windvane as wv
from old_data.steps import (
    HERE,
    REPRODUCE,
    SIMULATE,
    TUNE,
    Json,
    Policies,
    arms_of,
    bits,
    choice_of,
    differences,
    extract,
    from_bits,
    observe,
    play,
    run,
    serving,
    state,
    still_open,
    sums,
)
from windvane.errors import ChoiceError

CLOSE = 1e-12
PNG = b"\x89PNG\r\n\x1a\n"

MEMORIES = ("keep", "discount", "window", "restart", "restart_at", "half_life", "kalman", "detect")
SAMPLING = ("thompson", "perturbed_history", "randomized")
EXPLORATIONS = (*SAMPLING, "optimism", "epsilon", "inverse_gap", "greedy")
NAMES = sorted(path.stem for path in (HERE / "policies").glob("*.npz"))
each_policy = pytest.mark.parametrize("name", NAMES)


def expected_of(name: str) -> Json:
    expected: Json = json.loads((HERE / f"{name}.json").read_text("utf-8"))
    return expected


def loaded(name: str) -> tuple[Policies, Json]:
    """A saved policy, and what is known of it."""
    expected = expected_of(f"policies/{name}")
    kind = getattr(wv, expected["class"])
    policy: Policies = kind.load(HERE / "policies" / f"{name}.npz")
    assert type(policy) is kind
    return policy, expected


def test_there_is_a_saved_policy_of_every_kind() -> None:
    known = [expected_of(f"policies/{name}") for name in NAMES]
    assert {each["class"] for each in known} == {
        "Policy",
        "GeneralizedPolicy",
        "BanditsOverBandits",
        "PredictiveMemory",
    }
    said = " ".join(repr(loaded(name)[0]) for name in NAMES)
    for word in (*MEMORIES, *EXPLORATIONS):
        assert f"={word}(" in said, word


@each_policy
def test_a_loaded_policy_has_every_bit_of_the_saved_one(name: str) -> None:
    policy, expected = loaded(name)
    assert differences(expected["loaded"], state(policy)) == []


@each_policy
def test_a_loaded_policy_has_the_propensities_of_the_saved_one(name: str) -> None:
    policy, expected = loaded(name)
    shares = policy.propensities(arms_of(policy.round, policy.dim)).tolist()
    assert differences(expected["propensities"], shares, CLOSE) == []


@each_policy
def test_a_loaded_policy_goes_on_as_the_saved_one_did(name: str) -> None:
    """Rewards for choices that were open when it was saved included."""
    policy, expected = loaded(name)
    first, waiting = policy.round, still_open(policy, expected)
    assert len(waiting) == 2
    indices = play(policy, first, first + expected["rounds"], waiting, expected["timed"])
    assert indices == expected["indices"]
    assert differences(from_bits(expected["theta"]), policy.theta.tolist(), CLOSE) == []


@each_policy
def test_what_was_learned_before_the_save_is_not_learned_again(name: str) -> None:
    policy, expected = loaded(name)
    with pytest.raises(ChoiceError, match="was learned or dismissed already"):
        policy.learn(choice_of(policy, *expected["learned"]), 0.5)
    assert bits(policy.theta) == expected["loaded"]["theta"]


@each_policy
def test_a_policy_that_is_saved_again_is_the_same_file(name: str, tmp_path: Path) -> None:
    """Its arrays to the bit, and its header: 0.1.0 can read what is written now."""
    policy, _ = loaded(name)
    policy.save(tmp_path / "again.npz")
    before, after = contents(HERE / "policies" / f"{name}.npz"), contents(tmp_path / "again.npz")
    assert before == after


def contents(path: Path) -> dict[str, Any]:
    with zipfile.ZipFile(path) as file:
        found: dict[str, Any] = {name: file.read(name) for name in file.namelist()}
    header = json.loads(found.pop("policy.json"))
    header.pop("sha256")
    return {**found, **header}


@pytest.fixture(scope="module")
def service() -> Json:
    """What release 0.1.0 answered."""
    return expected_of("service")


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a stopped service, a backup of it and exports; to be read only."""
    return extract("service.tar.gz", tmp_path_factory.mktemp("service"))


@pytest.fixture(scope="module")
def seen(service: Json, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Json]:
    """What this release answers on the same directory."""
    folder = extract("service.tar.gz", tmp_path_factory.mktemp("served"))
    with serving(folder / "data", service["keys"]) as client:
        yield observe(client)


def test_an_old_service_opens_with_its_loops_settings_and_dates(service: Json, seen: Json) -> None:
    assert {loop["name"] for loop in seen["exact"]["loops"]} == {"default", "shop", "brief"}
    old_names = service["exact"]["loops"][0]["settings"].keys()
    for loop in seen["exact"]["loops"]:
        settings = loop["settings"]
        assert settings["belief"] == "full"
        for name in settings.keys() - old_names:  # settings that 0.1.0 did not have
            del settings[name]
    for part in ("loops", "model properties", "logs properties"):
        assert differences(service["exact"][part], seen["exact"][part]) == [], part
    for loop in seen["exact"]["loops"]:  # the arguments of a policy were a repr in 0.1.0
        policy = seen["exact"]["policies"].get(loop["name"])
        if policy is not None:
            assert policy["name"] == service["exact"]["policies"][loop["name"]]["name"]
            assert f"halfLife={loop['settings']['halfLife']} " in policy["arguments"]
            assert policy["arguments"].endswith("belief=full")
    assert seen["exact"]["policies"].keys() == service["exact"]["policies"].keys()


def test_an_old_service_believes_what_it_did_to_the_bit(service: Json, seen: Json) -> None:
    assert differences(service["exact"]["models"], seen["exact"]["models"]) == []


def test_an_old_event_is_answered_as_it_was(service: Json, seen: Json) -> None:
    assert differences(service["exact"]["asked again"], seen["exact"]["asked again"]) == []


def test_old_keys_open_what_they_did(service: Json, seen: Json) -> None:
    assert differences(service["exact"]["keys"], seen["exact"]["keys"]) == []


def test_old_events_are_explained_and_counted_alike(service: Json, seen: Json) -> None:
    for part in ("boards", "events"):
        assert differences(service["near"][part], seen["near"][part], CLOSE) == [], part


def test_old_decisions_whose_wait_is_over_learn_the_default(service: Json, seen: Json) -> None:
    assert differences(service["near"]["brief"], seen["near"]["brief"], CLOSE) == []


def test_an_old_service_ranks_on_as_it_would_have(service: Json, seen: Json) -> None:
    assert differences(service["near"]["ranked"], seen["near"]["ranked"], CLOSE) == []


def test_rewards_of_old_decisions_are_learned_as_they_would_have_been(
    service: Json, seen: Json
) -> None:
    """Also those that came before their rank, and those that add up."""
    for part in ("learned", "ranked later"):
        assert differences(service["near"][part], seen["near"][part], CLOSE) == [], part


def test_an_old_backup_is_restored_and_learned_from_its_last_snapshot_on(
    service: Json, old: Path, tmp_path: Path
) -> None:
    run("restore", old / "backup", "--data", tmp_path / "data", folder=tmp_path)
    with serving(tmp_path / "data", service["keys"]) as client:
        found = {loop: sums(client.policy(loop)) for loop in service["restored"]}
    assert differences(service["restored"], found, CLOSE) == []


@pytest.mark.parametrize("what", ["loop", "key"])
def test_the_command_line_lists_old_loops_and_keys(
    what: str, service: Json, tmp_path: Path
) -> None:
    data = extract("service.tar.gz", tmp_path) / "data"
    listed = json.loads(run(what, "list", "--json", "--data", data, folder=tmp_path))
    assert differences(service["listed"][what], listed) == []


@pytest.mark.parametrize("loop", ["default", "shop"])
def test_an_old_log_is_exported_as_it_was(loop: str, tmp_path: Path) -> None:
    folder = extract("service.tar.gz", tmp_path)
    words = ("export", "--loop", loop, "--parquet", folder / "now.parquet")
    run(*words, "--data", folder / "data", folder=folder)
    before, after = (pl.read_parquet(folder / f"{name}.parquet") for name in (loop, "now"))
    assert before.height == 48
    added = ["excluded", "schema_version"]  # columns that exports of 0.1.0 do not have
    assert after.columns == [*before.columns, *added]
    assert before.schema == after.drop(added).schema
    assert before.equals(after.drop(added))
    assert after["schema_version"].unique().to_list() == [2]


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    """A copy of what the lab's commands wrote."""
    return extract("lab.tar.gz", tmp_path)


def read(path: Path) -> Any:
    return json.loads(path.read_text("utf-8"))


def same_curves(before: pl.DataFrame, after: pl.DataFrame) -> bool:
    places = ["panel", "policy", "replication", "rounds"]
    alike = np.allclose(before["regret"], after["regret"], rtol=1e-9, atol=1e-9)
    return before.select(places).equals(after.select(places)) and bool(alike)


@pytest.mark.parametrize(("folder", "picture"), [("simulated", "curves"), ("figure", "figure")])
def test_an_old_result_is_drawn_again(folder: str, picture: str, lab: Path) -> None:
    assert not list(lab.rglob("*.png"))
    said = run("plot", lab / folder, folder=lab)
    assert f"{picture}.png" in said
    assert (lab / folder / f"{picture}.png").read_bytes().startswith(PNG)
    assert (lab / folder / f"{picture}.pdf").read_bytes().startswith(b"%PDF")


def test_an_old_plan_is_played_with_the_same_numbers_and_the_same_picture(lab: Path) -> None:
    """The picture of the old run is drawn from what is read back."""
    run("plot", lab / "simulated", folder=lab)
    run(*SIMULATE, "--out", lab / "now", folder=lab)
    before, after = (read(lab / name / "summary.json") for name in ("simulated", "now"))
    assert len(before["results"]) == 6
    assert differences(before, after, 1e-9) == []
    curves = [pl.read_parquet(lab / name / "curves.parquet") for name in ("simulated", "now")]
    assert same_curves(*curves)
    drawn, now = (lab / name / "curves.png" for name in ("simulated", "now"))
    assert drawn.read_bytes() == now.read_bytes()


def test_a_run_that_was_stopped_is_played_from_its_start_with_the_same_numbers(lab: Path) -> None:
    """The chunks of 0.1.0 have other replications; marks in them show that they are not used."""
    chunks = sorted((lab / "interrupted" / "chunks").glob("*.npy"))
    assert len(chunks) == 2
    for path in chunks:
        np.save(path, np.load(path) + 1000.0)
    run(*SIMULATE, "--out", lab / "interrupted", folder=lab)
    before, after = (
        pl.read_parquet(lab / name / "curves.parquet") for name in ("simulated", "interrupted")
    )
    assert same_curves(before, after)


def test_the_figure_of_the_paper_has_the_same_numbers(lab: Path) -> None:
    output = json.loads(run(*REPRODUCE, "--json", "--out", lab / "now", folder=lab))
    before = read(lab / "figure" / "summary.json")
    assert len(before["panels"]) == 5
    for part in ("protocol", "data", "replications", "seed", "panels", "claims"):
        assert differences(before[part], output[part], 1e-9) == [], part
    curves = [pl.read_parquet(lab / name / "curves.parquet") for name in ("figure", "now")]
    assert same_curves(*curves)


def test_a_tuning_has_the_same_numbers(lab: Path) -> None:
    output = json.loads(run(*TUNE, "--json", "--out", lab / "now", folder=lab))
    before = read(lab / "tuning" / "tuning.json")
    assert len(before["results"]) >= 6
    for part in ("world", "exploration", "results"):
        assert differences(before[part], output[part], 1e-9) == [], part
