"""Saved policies: going on bit for bit, and refusing every file that is not one."""

import io
import json
import pickle
import re
import struct
import tracemalloc
import zipfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import windvane as wv
from choosers import CHOOSERS_AND_LEARNER
from grid import contents, every_memory, play_with_late_rewards, row_and_column_of_each_belief
from windvane import persistence
from windvane.beliefs.full.layout import TALLY
from windvane.errors import ChoiceError, FileError

DIM = 6
RANDOM = np.random.default_rng(12)
ARMS = RANDOM.standard_normal((150, 5, DIM)) * (RANDOM.random((150, 5, DIM)) < 0.6)
REWARDS = RANDOM.random(150)


@row_and_column_of_each_belief
def test_going_on_after_a_load_equals_never_having_stopped(
    belief: str, memory: wv.Memory, exploration: wv.Exploration, tmp_path: Path
) -> None:
    """Choices, θ̂ and propensities to the last bit, with choices open when it was saved."""
    policy = wv.Policy(DIM, memory, exploration, 0.7, 5, 0.05, belief)
    play_with_late_rewards(policy, ARMS, REWARDS, 0, 60)
    open_choices = [policy.choose(ARMS[t]) for t in range(60, 65)]
    policy.save(tmp_path / "policy.npz")
    loaded = wv.Policy.load(tmp_path / "policy.npz")
    assert repr(loaded) == repr(policy)
    for one in (policy, loaded):
        for choice in reversed(open_choices):
            one.learn(choice, 0.25)
    seen, expected = (
        play_with_late_rewards(one, ARMS, REWARDS, 65, 150) for one in (loaded, policy)
    )
    assert seen == expected
    assert contents(loaded, tmp_path) == contents(policy, tmp_path)


@every_memory
def test_a_choice_learned_before_saving_cannot_be_learned_again_after(
    memory: wv.Memory, tmp_path: Path
) -> None:
    policy = wv.Policy(DIM, memory, wv.greedy(), seed=5)
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
    policy = wv.Policy(DIM, memory, wv.greedy(), seed=1)
    policy.learn(np.eye(DIM)[0], 1.0)
    for t in range(rounds):
        policy.learn(policy.choose(ARMS[t]), REWARDS[t])
    policy.save(tmp_path / "policy.npz")
    loaded = wv.Policy.load(tmp_path / "policy.npz")
    for t in range(rounds, rounds + 5):
        for one in (policy, loaded):
            one.learn(one.choose(ARMS[t]), REWARDS[t])
        assert policy.theta.tobytes() == loaded.theta.tobytes()


def save(policy: Any) -> bytes:
    file = io.BytesIO()
    policy.save(file)
    return file.getvalue()


def unpack(saved: bytes) -> tuple[dict[str, Any], dict[str, bytes]]:
    """The header without its checksum, and the arrays as bytes."""
    with zipfile.ZipFile(io.BytesIO(saved)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    header = json.loads(members.pop(persistence.HEADER))
    header.pop("sha256")
    return header, members


def write_zip(*members: tuple[str, str | bytes]) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in members:
            archive.writestr(name, content)
    return file.getvalue()


def pack(header: dict[str, Any], arrays: dict[str, bytes]) -> bytes:
    """A file as one who knows the format would change it: its checksum fits."""
    whole = {**header, "sha256": persistence.compute_digest(header, arrays)}
    return write_zip((persistence.HEADER, json.dumps(whole)), *arrays.items())


@pytest.fixture(scope="module")
def saved() -> bytes:
    """A small saved policy whose file has every kind of array in it."""
    policy = wv.Policy(2, wv.window(4), wv.perturbed_history(1.0), seed=1)
    for t in range(6):
        policy.learn(policy.choose(ARMS[t][:, :2]), REWARDS[t])
    policy.choose(ARMS[6][:, :2])
    return save(policy)


def load(saved: bytes, kind: type[Any] = wv.Policy) -> Any:
    return kind.load(io.BytesIO(saved))


def check_refusal(saved: bytes, complaint: str = "load: ", kind: type[Any] = wv.Policy) -> None:
    with pytest.raises(FileError, match=complaint):
        load(saved, kind)


@contextmanager
def limit_memory(most_bytes: int) -> Iterator[None]:
    """What is loaded inside takes at most so much memory."""
    tracemalloc.start()
    yield
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < most_bytes


@pytest.mark.parametrize("kind", ["window", "learner"])
def test_a_file_cut_short_or_with_a_byte_changed_is_refused_or_says_the_same(kind: str) -> None:
    """Every byte is covered by a checksum, or by none because nothing depends on it."""
    policy = CHOOSERS_AND_LEARNER[kind](5)
    play(policy, 6)
    whole = save(policy)
    for length in {*range(0, len(whole), len(whole) // 100), len(whole) - 1}:
        check_refusal(whole[:length], kind=type(policy))
    refusals = 0
    places = range(0, len(whole), 1 + len(whole) // 2000)
    for place in places:
        changed = bytearray(whole)
        changed[place] ^= (1, 0x80, 0xFF)[place % 3]
        try:
            loaded = load(bytes(changed), type(policy))
        except FileError:
            refusals += 1
        else:
            assert (loaded, repr(loaded)) == (policy, repr(policy))
    assert refusals > 0.8 * len(places)


def test_a_file_of_another_class_names_the_class_that_reads_it() -> None:
    check_refusal(save(wv.Learner(seed=1)), "holds a Learner, not a Policy")


def test_what_is_no_file_or_none_of_windvane_is_refused_by_its_path(tmp_path: Path) -> None:
    """Also random bytes, with and without the marks of a zip file."""
    random, folder = np.random.default_rng(0), tmp_path / "folder"
    folder.mkdir()
    noise = [
        opening + random.bytes(size)
        for size in (1, 22, 100, 5000)
        for opening in (b"", b"PK\x03\x04", b"PK\x05\x06")
    ]
    path = tmp_path / "saved.npz"
    for content in (b"", *noise):
        path.write_bytes(content)
        for each in (path, folder):
            with pytest.raises(FileError) as caught:
                wv.Policy.load(each)
            assert str(caught.value).startswith(f"load: {each} ")
    with pytest.raises(FileError, match=r"missing\.npz does not exist"):
        wv.Policy.load(tmp_path / "missing.npz")


def test_a_foreign_zip_is_refused(saved: bytes) -> None:
    """NumPy's own archives, compressed ones, and those that only look alike."""
    for write in (np.savez, np.savez_compressed):
        file = io.BytesIO()
        write(file, block=np.zeros(3))
        check_refusal(file.getvalue(), "not a policy that Windvane saved")
    texts = ("", "[]", "null", '"policy"', '{"format": "other"}', "[" * 100_000, b"\xff\xfe{}")
    for text in texts:
        check_refusal(write_zip(("policy.json", text)))
    header, arrays = unpack(saved)
    not_utf8 = pack(header, {**arrays, "é.npy": b""}).replace("é".encode(), b"\xff\xff")
    check_refusal(not_utf8)


def test_an_edited_header_is_refused_by_its_checksum(saved: bytes) -> None:
    assert saved.count(b'"round": 7') == 1
    changed = saved.replace(b'"round": 7', b'"round": 8')
    with zipfile.ZipFile(io.BytesIO(saved)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    members["policy.json"] = members["policy.json"].replace(b'"round": 7', b'"round": 8')
    for file in (changed, write_zip(*members.items())):
        check_refusal(file, "checksum does not fit|Bad CRC")
    assert load(pack(*unpack(saved))).round == 7  # what is refused below is refused for its change


NOT_FINITE = (float("nan"), float("inf"))
BAD_SETTINGS: dict[str, tuple[object, ...]] = {
    "memory": (
        *("discount(2)", "discount(gamma=2)", "discount(0.5)", "window(3)", "greedy()", "", 5),
        *("__import__('os').system('true')", "keep.__class__", "window(" * 5000, "keep()\0", None),
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
NEEDED = ("dim", "memory", "exploration", "ridge", "key", "round", "tally")


@pytest.mark.parametrize("name", sorted({*BAD_SETTINGS, *NEEDED}))
def test_settings_that_do_not_fit_or_are_missing_are_refused_whatever_the_checksum_says(
    saved: bytes, name: str
) -> None:
    header, arrays = unpack(saved)
    for value in BAD_SETTINGS.get(name, ()):
        complaint = (
            f"format version {value!r}, this Windvane reads" if name == "version" else "load"
        )
        check_refusal(pack({**header, name: value}, arrays), complaint)
    if name in NEEDED:
        header.pop(name)
        check_refusal(pack(header, arrays))


@pytest.mark.parametrize("name", TALLY.names or ())
def test_counters_that_cannot_be_or_are_missing_are_refused(saved: bytes, name: str) -> None:
    header, arrays = unpack(saved)
    for value in BAD_COUNTERS.get(name, ()):
        check_refusal(pack({**header, "tally": {**header["tally"], name: value}}, arrays))
    header["tally"].pop(name)
    check_refusal(pack(header, arrays), name)


def test_the_errors_of_prediction_are_saved() -> None:
    policy = wv.Policy(2, seed=1)
    policy.learn([1.0, 0.0], 7.0)
    assert load(save(policy)).estimated_noise == policy.estimated_noise > 0.55


def make_npy(header: str, data: bytes = b"") -> bytes:
    """An array file with a header of one's own."""
    text = header.encode("latin1") + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + data


def describe_array(shape: str, kind: str = "<f8") -> str:
    return f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}}}"


ARRAYS = {
    "empty": b"",
    "short": b"PK",
    "one number": persistence._pack(np.zeros(1)),
    "three axes": persistence._pack(np.zeros((2, 2, 2))),
    "no axis": persistence._pack(np.array(1.0)),
    "complex": persistence._pack(np.zeros(12, dtype="c16")),
    "text": persistence._pack(np.array(["text"])),
    "nan": persistence._pack(np.full((4, 3), np.nan)),
    "other byte order": persistence._pack(np.zeros(12, dtype=">f8")),
    "no data": make_npy(describe_array("(9,)")),
    "gigabytes": make_npy(describe_array("(50000000,)")),
    "terabytes": make_npy(describe_array(f"({2**45},)")),
    "too large": make_npy(describe_array(f"({2**70},)")),
    "broken header": make_npy("{'descr': '<f8', ("),
    "impossible header": make_npy("{[]: 1}"),
    "deep header": make_npy("(" * 3000),
    "object": make_npy(describe_array("()", "|O")),
}


@pytest.mark.parametrize("name", ["block", "past", "open"])
@pytest.mark.parametrize("content", ARRAYS.values(), ids=ARRAYS)
def test_arrays_that_do_not_fit_are_refused_whatever_the_checksum_says(
    saved: bytes, name: str, content: bytes
) -> None:
    """None takes the memory that it claims."""
    header, arrays = unpack(saved)
    with limit_memory(10_000_000):
        check_refusal(pack(header, {**arrays, f"{name}.npy": content}))


def test_an_array_in_another_order_is_read_as_what_it_says(saved: bytes) -> None:
    """Columns first in the file, rows first in memory."""
    (header, arrays), wanted = unpack(saved), load(saved)._belief.arrays
    arrays["past.npy"] = persistence._pack(np.asfortranarray(wanted.past))
    loaded = load(pack(header, arrays))._belief.arrays
    assert loaded.past.tobytes() == wanted.past.tobytes()
    assert loaded.past.flags.carray
    assert loaded.block.flags.carray


class Trap:
    """Something that writes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return (Path.touch, (self.path,))


@pytest.mark.parametrize("name", ["block", "past", "open", "more"])
def test_nothing_in_a_file_is_ever_run(saved: bytes, name: str, tmp_path: Path) -> None:
    """A pickle inside an array is refused unread."""
    bait = Trap(tmp_path / "sprung")
    header, arrays = unpack(saved)
    content = make_npy(describe_array("(1,)", "|O"), pickle.dumps(np.array([bait])))
    check_refusal(pack(header, {**arrays, f"{name}.npy": content}))
    assert not bait.path.exists()
    pickle.loads(pickle.dumps(bait))
    assert bait.path.exists()


@pytest.mark.parametrize("kind", ["widths", "predictive", "poisson", "bandits"])
def test_a_small_file_does_not_make_a_large_policy(kind: str) -> None:
    """The arrays are measured before room is made for what the header claims."""
    policy = CHOOSERS_AND_LEARNER[kind](5)
    header, arrays = unpack(save(policy))
    with limit_memory(10_000_000):
        check_refusal(pack({**header, "dim": 3000}, arrays), "holds no policy", type(policy))


def test_members_that_overlap_or_come_twice_are_refused(saved: bytes) -> None:
    """A thousand names for the same bytes would take a thousand times the memory."""
    start, end = saved.index(b"PK\x01\x02"), saved.index(b"PK\x05\x06")
    directory, tail = saved[start:end], saved[end:]
    entry = directory[: directory.index(b"PK\x01\x02", 4)]
    for name in (b"policy.json", b"polizy.json"):
        more = directory + entry.replace(b"policy.json", name)
        changed = bytearray(tail)
        count = struct.unpack_from("<H", tail, 10)[0] + 1
        struct.pack_into("<HHI", changed, 8, count, count, len(more))
        check_refusal(saved[:start] + more + changed, "not a policy that Windvane saved")


NUMBERS = [0, -1, 1, 7, 2**31, 2**62, 2**63, 10**30, 10**400, 0.5, -0.5, 1e-300, 1e300, 3000]
OTHERS: list[Any] = [None, True, "", "keep()", [], {}, [[]], *NOT_FINITE, "x" * 10**5]
VALUES: list[Any] = [*NUMBERS, *OTHERS]
MUTATIONS = 40  # of each kind


def play(policy: Any, rounds: int) -> None:
    """Choose and learn, and check that probabilities sum to 1."""
    rewards = np.random.default_rng(policy.round % 1000).integers(0, 2, rounds).tolist()
    for reward in rewards:
        if isinstance(policy, wv.Learner):
            decision = policy.rank({"age": 7.0 + reward}, ["a", {"id": "b", "x": 0.5}], at=1e6)
            assert decision.probabilities.sum() == pytest.approx(1.0)
            policy.reward(decision, float(reward))
        else:
            arms = ARMS[0, :, :3] / 2
            assert policy.propensities(arms, samples=5).sum() == pytest.approx(1.0)
            policy.learn(policy.choose(arms), float(reward))


def mutate_value(random: np.random.Generator, holder: Any) -> None:
    """Replace, or delete, one value somewhere in a header."""
    keys = list(holder) if isinstance(holder, dict) else list(range(len(holder)))
    key = keys[random.integers(len(keys))]
    if isinstance(holder[key], dict | list) and holder[key] and random.random() < 0.8:
        mutate_value(random, holder[key])
    elif random.random() < 0.1:
        del holder[key]
    else:
        holder[key] = VALUES[random.integers(len(VALUES))]


def mutate_array(random: np.random.Generator, content: bytes) -> bytes:
    """Change one number, the shape, the type or some byte of an array."""
    array = np.lib.format.read_array(io.BytesIO(content))
    way = random.integers(6)
    if way <= 2 and array.size:
        number = NUMBERS[random.integers(len(NUMBERS))]
        place = random.integers(array.size)
        if array.dtype.kind == "f":
            array.reshape(-1)[place] = min(number, 1e300) if number == number else number
        else:
            array.reshape(-1)[place] = int(min(max(number, 0), 2**62))
    elif way == 3:
        array = np.concatenate([array, array])[: random.integers(2 * len(array) + 1)]
    elif way == 4:
        array = array.astype(["f4", "i8", "u8", ">f8", "S8", "c16"][random.integers(6)])
    else:
        changed = bytearray(content)
        changed[random.integers(len(changed))] ^= int(random.integers(1, 256))
        return bytes(changed)
    return persistence._pack(array)


@pytest.mark.filterwarnings("ignore::numpy.exceptions.ComplexWarning")
@pytest.mark.filterwarnings("ignore:invalid value encountered in cast")
@pytest.mark.parametrize("kind", CHOOSERS_AND_LEARNER)
def test_a_changed_file_is_refused_or_gives_a_policy_that_works(kind: str) -> None:
    policy = CHOOSERS_AND_LEARNER[kind](5)
    play(policy, 30)
    header, arrays = unpack(save(policy))
    refusals = 0
    for seed in range(MUTATIONS):
        random = np.random.default_rng([seed, len(kind)])
        changed_header, changed = json.loads(json.dumps(header)), dict(arrays)
        if random.random() < 0.5:
            mutate_value(random, changed_header)
        else:
            name = sorted(changed)[random.integers(len(changed))]
            changed[name] = mutate_array(random, changed[name])
        try:
            loaded = load(pack(changed_header, changed), type(policy))
        except FileError as error:
            assert len(str(error)) < 1100  # noqa: PT017
            refusals += 1
            continue
        with np.errstate(all="ignore"):
            play(loaded, 3)
    assert MUTATIONS / 3 < refusals < MUTATIONS


@pytest.fixture
def path(saved: bytes, tmp_path: Path) -> Path:
    """A saved file, alone in its folder."""
    path = tmp_path / "saved.npz"
    path.write_bytes(saved)
    return path


def test_saving_over_a_file_leaves_the_old_or_the_new(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A save that fails half way leaves the old file whole, and no draft behind."""
    before = path.read_bytes()
    policy = wv.Policy.load(path)
    policy.choose(ARMS[7][:, :2])
    write, calls = zipfile.ZipFile.writestr, list[str]()

    def fail(*_: object) -> None:
        raise OSError("disk full")

    def fail_in_second_call(self: zipfile.ZipFile, name: str, data: bytes) -> None:
        calls.append(name)
        fail() if len(calls) == 2 else write(self, name, data)

    for target, replacement in (
        ("zipfile.ZipFile.writestr", fail_in_second_call),
        ("os.replace", fail),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(target, replacement)
            with pytest.raises(OSError, match="disk full"):
                policy.save(path)
        assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]
    policy.save(path)
    assert wv.Policy.load(path).round == policy.round


def test_a_save_into_a_folder_that_does_not_exist_names_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "missing"
    with pytest.raises(FileError, match=re.escape(f"save: the folder {folder} does not exist")):
        wv.Policy(2, wv.keep(), wv.greedy()).save(folder / "policy.npz")
    assert not folder.exists()


def test_a_reader_goes_on_reading_the_file_that_a_save_replaces(path: Path) -> None:
    before = path.read_bytes()
    policy = wv.Policy.load(path)
    policy.choose(ARMS[7][:, :2])
    with path.open("rb") as reader:
        policy.save(path)
        assert reader.read() == before
    assert path.read_bytes() != before


def test_threads_that_save_to_one_path_do_not_disturb_each_other(path: Path) -> None:
    """Each save is whole, whichever comes last, and none of them fails."""
    policy = wv.Policy(20, wv.keep(), wv.thompson(1.0), seed=0)

    def save_and_load(_: int) -> int:
        policy.save(path)
        return wv.Policy.load(path).dim

    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(save_and_load, range(100))) == {20}
    assert list(path.parent.iterdir()) == [path]


def test_a_file_is_a_function_of_the_policy_alone(saved: bytes) -> None:
    policy = load(saved)
    assert unpack(save(policy)) == unpack(save(policy)) == unpack(saved)
