"""Saved policies: going on bit for bit, and refusing every file that is not one."""

import io
import json
import pickle
import re
import tracemalloc
import zipfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import windvane as wv
from grid import contents, every_memory, play_with_late_rewards, row_and_column
from windvane import persistence
from windvane.beliefs.full.layout import TALLY
from windvane.errors import ChoiceError, FileError

ARMS = np.random.default_rng(12).standard_normal((300, 5, 3))
REWARDS = np.random.default_rng(13).random(300)


def play(policy: wv.Policy, start: int, stop: int) -> list[tuple[int, bytes, bytes]]:
    """Rounds in which every third reward comes late, and what could be seen in each of them."""
    return play_with_late_rewards(policy, ARMS, REWARDS, start, stop)


@row_and_column
def test_going_on_after_a_load_equals_never_having_stopped(
    memory: wv.Memory, exploration: wv.Exploration, tmp_path: Path
) -> None:
    """Choices, θ̂ and propensities to the last bit, with choices open when it was saved."""
    policy = wv.Policy(3, memory, exploration, ridge=0.7, seed=5, floor=0.05)
    play(policy, 0, 60)
    open_choices = [policy.choose(ARMS[t]) for t in range(60, 65)]
    policy.save(tmp_path / "policy.npz")
    loaded = wv.Policy.load(tmp_path / "policy.npz")
    assert repr(loaded) == repr(policy)
    for one in (policy, loaded):
        for choice in reversed(open_choices):
            one.learn(choice, 0.25)
    assert play(loaded, 65, 150) == play(policy, 65, 150)
    assert loaded.belief.seen == policy.belief.seen
    assert contents(loaded, tmp_path) == contents(policy, tmp_path)


@every_memory
def test_a_choice_learned_before_saving_cannot_be_learned_again_after(
    memory: wv.Memory, tmp_path: Path
) -> None:
    """What is open is part of what is saved."""
    policy = wv.Policy(3, memory, wv.greedy(), seed=5)
    first, second = policy.choose(ARMS[0]), policy.choose(ARMS[1])
    policy.learn(first, 1.0)
    policy.save(tmp_path / "policy.npz")
    loaded = wv.Policy.load(tmp_path / "policy.npz")
    with pytest.raises(ChoiceError):
        loaded.learn(first, 1.0)
    loaded.learn(second, 1.0)


@pytest.mark.parametrize("rounds", range(8))
@pytest.mark.parametrize(
    "memory", [wv.restart(3), wv.restart_at([0]), wv.restart_at([0, 1, 4])], ids=repr
)
def test_a_load_in_any_round_restarts_when_the_original_does(
    memory: wv.Memory, rounds: int, tmp_path: Path
) -> None:
    """Also where something was learned before the first round, and a restart is due in it."""
    policy = wv.Policy(3, memory, wv.greedy(), seed=1)
    policy.learn([1.0, 0.0, 0.0], 1.0)
    for t in range(rounds):
        policy.learn(policy.choose(ARMS[t]), REWARDS[t])
    policy.save(tmp_path / "policy.npz")
    loaded = wv.Policy.load(tmp_path / "policy.npz")
    for t in range(rounds, rounds + 5):
        for one in (policy, loaded):
            one.learn(one.choose(ARMS[t]), REWARDS[t])
        assert policy.theta.tobytes() == loaded.theta.tobytes()


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A small saved policy whose file has every kind of array in it."""
    policy = wv.Policy(2, wv.window(4), wv.perturbed_history(1.0), seed=1)
    for t in range(6):
        policy.learn(policy.choose(ARMS[t][:, :2]), REWARDS[t])
    policy.choose(ARMS[6][:, :2])
    path = tmp_path / "saved.npz"
    policy.save(path)
    return path


def refused(path: Path) -> str:
    """Loading raises a FileError, nothing else, and names the file."""
    with pytest.raises(FileError) as caught:
        wv.Policy.load(path)
    assert str(path) in str(caught.value)
    assert str(caught.value).startswith("load: ")
    return str(caught.value)


def test_a_file_cut_short_anywhere_is_refused(saved: Path) -> None:
    """At every one of a hundred lengths, down to nothing."""
    whole = saved.read_bytes()
    for length in {*range(0, len(whole), max(len(whole) // 100, 1)), len(whole) - 1}:
        saved.write_bytes(whole[:length])
        refused(saved)


def test_a_file_with_any_byte_changed_is_refused_or_says_the_same(saved: Path) -> None:
    """Every byte is covered by a checksum, or by none because nothing depends on it."""
    whole = saved.read_bytes()
    wanted = wv.Policy.load(saved)
    refusals = 0
    for place in range(len(whole)):
        changed = bytearray(whole)
        changed[place] ^= (1, 0x80, 0xFF)[place % 3]
        saved.write_bytes(changed)
        try:
            loaded = wv.Policy.load(saved)
        except FileError:
            refusals += 1
        else:
            assert loaded._belief.arrays.block.tobytes() == wanted._belief.arrays.block.tobytes()
            assert loaded._belief.arrays.past.tobytes() == wanted._belief.arrays.past.tobytes()
            assert (loaded.key, loaded.round, loaded._open, repr(loaded)) == (
                wanted.key,
                wanted.round,
                wanted._open,
                repr(wanted),
            )
    assert refusals > 0.8 * len(whole)


def test_noise_is_refused(tmp_path: Path) -> None:
    """Random bytes, with and without the marks of a zip file."""
    random = np.random.default_rng(0)
    path = tmp_path / "noise.npz"
    for size in (1, 22, 100, 5000):
        for opening in (b"", b"PK\x03\x04", b"PK\x05\x06"):
            path.write_bytes(opening + random.bytes(size))
            refused(path)


def test_what_is_no_file_or_an_empty_one_is_refused(tmp_path: Path) -> None:
    """Missing, empty, or a directory."""
    assert "does not exist" in refused(tmp_path / "missing.npz")
    (tmp_path / "empty.npz").touch()
    refused(tmp_path / "empty.npz")
    (tmp_path / "folder").mkdir()
    refused(tmp_path / "folder")


def test_a_foreign_zip_is_refused(tmp_path: Path) -> None:
    """NumPy's own archives, compressed ones, and those that only look alike."""
    path = tmp_path / "foreign.npz"
    np.savez(path, block=np.zeros(3))
    assert "not a policy that Windvane saved" in refused(path)
    np.savez_compressed(path, block=np.zeros(3))
    refused(path)
    for text in ("", "[]", "null", '"policy"', '{"format": "other"}', "[" * 100_000):
        with zipfile.ZipFile(path, "w") as file:
            file.writestr("policy.json", text)
        refused(path)
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("policy.json", b"\xff\xfe{}")
    refused(path)


def test_a_name_inside_that_is_no_text_is_refused(saved: Path) -> None:
    """A zip whose directory holds bytes that are not UTF-8."""
    with zipfile.ZipFile(saved, "a") as file:
        file.writestr("é.npy", b"")
    saved.write_bytes(saved.read_bytes().replace("é".encode(), b"\xff\xff"))
    refused(saved)


def rewrite(
    path: Path,
    edit: Callable[[dict[str, Any]], object] = lambda header: None,
    files: dict[str, bytes] | None = None,
) -> None:
    """Change a saved file as one who knows its format would: the checksum fits again."""
    with zipfile.ZipFile(path) as file:
        content = {name: file.read(name) for name in file.namelist()}
    header = json.loads(content.pop("policy.json"))
    header.pop("sha256")
    edit(header)
    content.update(files or {})
    header["sha256"] = persistence.compute_digest(header, content)
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("policy.json", json.dumps(header))
        for name, data in content.items():
            file.writestr(name, data)


def test_a_rewritten_file_loads_where_nothing_was_changed(saved: Path) -> None:
    """So that the refusals below are for what was changed."""
    rewrite(saved)
    assert wv.Policy.load(saved).round == 7


def test_an_edited_header_is_refused_by_its_checksum(saved: Path) -> None:
    """Changing a setting by hand is noticed."""
    with zipfile.ZipFile(saved) as file:
        content = {name: file.read(name) for name in file.namelist()}
    content["policy.json"] = content["policy.json"].replace(b'"round": 7', b'"round": 8')
    with zipfile.ZipFile(saved, "w") as file:
        for name, data in content.items():
            file.writestr(name, data)
    assert "checksum does not fit" in refused(saved)


NOT_FINITE = (float("nan"), float("inf"))
BAD_SETTINGS: dict[str, tuple[object, ...]] = {
    "memory": (
        *("discount(2)", "discount(gamma=2)", "discount(0.5)", "window(3)", "greedy()", ""),
        *(
            "__import__('os').system('true')",
            "keep.__class__",
            "window(" * 5000,
            "keep()\0",
            5,
            None,
        ),
    ),
    "exploration": ("thompson(-1)", "keep()", ["greedy()"], None),
    "dim": (3, 0, -1, 2.0, "2", 10**30),
    "ridge": (0, -1.0, NOT_FINITE[0], None),
    "floor": (2, "0"),
    "key": (-1, 10**30),
    "round": (-1, 1.5, 10**30),
    "born": (-1, 10**30),
    "tally": (None, [], {}),
    "version": (2, None),
    "format": ("other",),
}
BAD_COUNTERS: dict[str, tuple[object, ...]] = {
    "seen": (-1, 10**30, "six", None),
    "ridge": (0.0, -1.0, *NOT_FINITE),
    "noise_ridge": (-1.0, NOT_FINITE[0]),
    "energy": NOT_FINITE[:1],
    "stale": (-(10**15),),
    "squared_errors": (-1.0,),
    "error_weight": NOT_FINITE[:1],
}


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name in BAD_SETTINGS for value in BAD_SETTINGS[name]]
)
def test_settings_that_do_not_fit_are_refused_whatever_the_checksum_says(
    saved: Path, name: str, value: object
) -> None:
    """A file from a stranger is checked as any other input is."""
    rewrite(saved, lambda header: header.update({name: value}))
    message = refused(saved)
    if name == "version":
        assert f"format version {value!r}, this Windvane reads" in message


@pytest.mark.parametrize("name", ["dim", "memory", "exploration", "ridge", "key", "round", "tally"])
def test_a_missing_setting_is_refused(saved: Path, name: str) -> None:
    """Nothing is made up."""
    rewrite(saved, lambda header: header.pop(name))
    refused(saved)


@pytest.mark.parametrize("name", TALLY.names or ())
def test_a_missing_counter_is_refused(saved: Path, name: str) -> None:
    rewrite(saved, lambda header: header["tally"].pop(name))
    assert name in refused(saved)


def test_the_errors_of_prediction_are_saved(saved: Path) -> None:
    policy = wv.Policy(2, seed=1)
    policy.learn([1.0, 0.0], 7.0)
    policy.save(saved)
    assert wv.Policy.load(saved).estimated_noise == policy.estimated_noise > 0.55


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name in BAD_COUNTERS for value in BAD_COUNTERS[name]]
)
def test_counters_that_cannot_be_are_refused(saved: Path, name: str, value: object) -> None:
    """No count is negative, no ridge is missing."""
    rewrite(saved, lambda header: header["tally"].update({name: value}))
    refused(saved)


def npy(header: str, data: bytes = b"") -> bytes:
    """An array file with a header of one's own."""
    text = header.encode("latin1") + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + data


def sized(count: int) -> str:
    """The header of an array of so many numbers."""
    return f"{{'descr': '<f8', 'fortran_order': False, 'shape': ({count},)}}"


def packed(array: np.ndarray[Any, np.dtype[Any]]) -> bytes:
    """An array file as NumPy writes it."""
    return persistence._pack(array)


@pytest.mark.parametrize("name", ["block", "past", "open"])
@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"PK", id="short"),
        pytest.param(packed(np.zeros(1)), id="one number"),
        pytest.param(packed(np.zeros((2, 2, 2))), id="three axes"),
        pytest.param(packed(np.array(1.0)), id="no axis"),
        pytest.param(packed(np.zeros(12, dtype="c16")), id="complex"),
        pytest.param(packed(np.array(["text"])), id="text"),
        pytest.param(packed(np.full((4, 3), np.nan)), id="nan"),
        pytest.param(packed(np.zeros(12, dtype=">f8")), id="other byte order"),
        pytest.param(npy(sized(9)), id="no data"),
        pytest.param(npy(sized(2**70)), id="too large"),
        pytest.param(npy(sized(2**45)), id="terabytes"),
        pytest.param(npy("{'descr': '<f8', ("), id="broken header"),
        pytest.param(npy("{[]: 1}"), id="impossible header"),
        pytest.param(npy("(" * 3000), id="deep header"),
        pytest.param(npy("{'descr': '|O', 'fortran_order': False, 'shape': ()}"), id="object"),
    ],
)
def test_arrays_that_do_not_fit_are_refused_whatever_the_checksum_says(
    saved: Path, name: str, content: bytes
) -> None:
    """Of the wrong shape, kind or size, or not arrays at all."""
    rewrite(saved, files={f"{name}.npy": content})
    refused(saved)


def test_an_array_in_another_order_is_read_as_what_it_says(saved: Path) -> None:
    """Columns first in the file, rows first in memory."""
    wanted = wv.Policy.load(saved)
    rewrite(saved, files={"past.npy": packed(np.asfortranarray(wanted._belief.arrays.past))})
    loaded = wv.Policy.load(saved)
    assert loaded._belief.arrays.past.tobytes() == wanted._belief.arrays.past.tobytes()
    assert loaded._belief.arrays.past.flags.carray
    assert loaded._belief.arrays.block.flags.carray


class Trap:
    """Something that writes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return (Path.touch, (self.path,))


@pytest.mark.parametrize("name", ["block", "past", "open", "more"])
def test_nothing_in_a_file_is_ever_run(saved: Path, name: str) -> None:
    """A pickle inside an array is refused unread."""
    sprung = saved.with_name("sprung")
    bait = Trap(sprung)
    header = "{'descr': '|O', 'fortran_order': False, 'shape': (1,)}"
    rewrite(saved, files={f"{name}.npy": npy(header, pickle.dumps(np.array([bait])))})
    refused(saved)
    assert not sprung.exists()
    pickle.loads(pickle.dumps(bait))
    assert sprung.exists()


def test_a_small_file_cannot_ask_for_a_large_policy(saved: Path) -> None:
    """The arrays are measured before room is made for what the header claims."""
    rewrite(saved, lambda header: header.update({"dim": 1500}))
    tracemalloc.start()
    refused(saved)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 5_000_000


def test_saving_over_a_file_leaves_the_old_or_the_new(
    saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A save that fails half way leaves the old file whole, and no draft behind."""
    before = saved.read_bytes()
    policy = wv.Policy.load(saved)
    policy.choose(ARMS[7][:, :2])

    def fail(*_: object, **__: object) -> None:
        raise OSError("disk full")

    real = zipfile.ZipFile.writestr
    calls: list[object] = []

    def second_fails(self: zipfile.ZipFile, name: str, data: bytes) -> None:
        calls.append(name)
        fail() if len(calls) == 2 else real(self, name, data)

    with monkeypatch.context() as patch:
        patch.setattr(zipfile.ZipFile, "writestr", second_fails)
        with pytest.raises(OSError, match="disk full"):
            policy.save(saved)
    assert saved.read_bytes() == before
    with monkeypatch.context() as patch:
        patch.setattr("os.replace", fail)
        with pytest.raises(OSError, match="disk full"):
            policy.save(saved)
    assert saved.read_bytes() == before
    assert [path.name for path in saved.parent.iterdir()] == ["saved.npz"]
    policy.save(saved)
    assert wv.Policy.load(saved).round == policy.round


def test_a_save_into_a_folder_that_does_not_exist_names_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "missing"
    with pytest.raises(FileError, match=re.escape(f"save: the folder {folder} does not exist")):
        wv.Policy(2, wv.keep(), wv.greedy()).save(folder / "policy.npz")
    assert not folder.exists()


def test_a_save_never_writes_into_the_file_it_replaces(saved: Path) -> None:
    """A reader that opened the old file before goes on reading the old file."""
    before = saved.read_bytes()
    policy = wv.Policy.load(saved)
    policy.choose(ARMS[7][:, :2])
    with saved.open("rb") as reader:
        policy.save(saved)
        assert reader.read() == before
    assert saved.read_bytes() != before


def test_threads_that_save_to_one_path_do_not_disturb_each_other(tmp_path: Path) -> None:
    """Each save is whole, whichever comes last, and none of them fails."""
    policy = wv.Policy(20, wv.keep(), wv.thompson(1.0), seed=0)
    path = tmp_path / "shared.npz"

    def save_and_load(_: int) -> int:
        policy.save(path)
        return wv.Policy.load(path).dim

    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(save_and_load, range(200))) == {20}
    assert [file.name for file in tmp_path.iterdir()] == ["shared.npz"]


def test_saving_changes_nothing_and_gives_the_same_contents_twice(saved: Path) -> None:
    """A file is a function of the policy alone."""
    policy = wv.Policy.load(saved)
    assert contents(policy, saved.parent) == contents(policy, saved.parent)


def test_an_open_file_will_do_in_place_of_a_path() -> None:
    """Saved into memory and loaded from it, a policy is the same."""
    policy = wv.Policy(3, wv.discount(0.9), wv.thompson(0.5), seed=3)
    policy.learn(policy.choose(np.eye(3)), 0.5)
    file = io.BytesIO()
    policy.save(file)
    loaded = wv.Policy.load(file)
    assert loaded._belief.arrays.block.tobytes() == policy._belief.arrays.block.tobytes()
    with pytest.raises(FileError, match="load: the file is truncated or not"):
        wv.Policy.load(io.BytesIO(file.getvalue()[:100]))
