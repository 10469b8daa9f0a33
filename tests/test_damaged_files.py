"""Saved files changed on purpose, checksum included: refused, or a policy that works."""

import io
import json
import struct
import tracemalloc
import zipfile
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import windvane as wv
from windvane import persistence
from windvane.errors import FileError

ARMS = np.random.default_rng(3).standard_normal((5, 3)) / 2
NUMBERS = [0, -1, 1, 7, 2**31, 2**62, 2**63, 10**30, 10**400, 0.5, -0.5, 1e-300, 1e300, 3000]
VALUES: list[Any] = [
    *NUMBERS,
    None,
    True,
    "",
    "keep()",
    [],
    {},
    [[]],
    float("nan"),
    float("inf"),
    "x" * 10**5,
]
MUTATIONS = 60  # of each kind

MAKERS: dict[str, Callable[[], Any]] = {
    "full": lambda: wv.Policy(3, wv.discount(0.9), wv.optimism(0.5), seed=5),
    "samples": lambda: wv.Policy(3, wv.half_life(20.0), wv.thompson(0.5), seed=5),
    "window": lambda: wv.Policy(3, wv.window(8), wv.perturbed_history(0.5), seed=5),
    "history": lambda: wv.Policy(3, wv.keep(), wv.perturbed_history(0.5), seed=5),
    "kalman": lambda: wv.Policy(3, wv.kalman(0.99, 1.0), wv.greedy(), seed=5),
    "diagonal": lambda: wv.Policy(3, wv.discount(0.9), wv.optimism(1.0), seed=5, belief="diagonal"),
    "glm": lambda: wv.GeneralizedPolicy(3, "logistic", wv.window(20), seed=5),
    "predictive": lambda: wv.PredictiveMemory(3, wv.optimism(0.5), longest=80, seed=5),
    "bandits": lambda: wv.BanditsOverBandits(3, 100, wv.optimism(0.5), seed=5),
    "learner": lambda: wv.Learner(seed=5),
}


def play(policy: Any, rounds: int) -> None:
    """Choose and learn, and check that probabilities sum to 1."""
    rewards = np.random.default_rng(policy.round % 1000).integers(0, 2, rounds).tolist()
    for reward in rewards:
        if isinstance(policy, wv.Learner):
            decision = policy.rank({"age": 7.0 + reward}, ["a", {"id": "b", "x": 0.5}], at=1e6)
            assert decision.probabilities.sum() == pytest.approx(1.0)
            policy.reward(decision, float(reward))
        else:
            assert policy.propensities(ARMS, samples=5).sum() == pytest.approx(1.0)
            policy.learn(policy.choose(ARMS), float(reward))


def save(policy: Any) -> bytes:
    file = io.BytesIO()
    policy.save(file)
    return file.getvalue()


def unpack(saved: bytes) -> tuple[dict[str, Any], dict[str, bytes]]:
    with zipfile.ZipFile(io.BytesIO(saved)) as archive:
        contents = {name: archive.read(name) for name in archive.namelist()}
    header = json.loads(contents.pop(persistence.HEADER))
    header.pop("sha256")
    return header, contents


def pack(header: dict[str, Any], contents: dict[str, bytes]) -> bytes:
    """A file whose checksum fits."""
    file = io.BytesIO()
    whole = {**header, "sha256": persistence.compute_digest(header, contents)}
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(persistence.HEADER, json.dumps(whole))
        for name, content in contents.items():
            archive.writestr(name, content)
    return file.getvalue()


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
@pytest.mark.parametrize("kind", MAKERS)
def test_a_changed_file_is_refused_or_gives_a_policy_that_works(kind: str) -> None:
    policy = MAKERS[kind]()
    play(policy, 30)
    header, contents = unpack(save(policy))
    refusals = 0
    for seed in range(MUTATIONS):
        random = np.random.default_rng([seed, len(kind)])
        changed_header, changed = json.loads(json.dumps(header)), dict(contents)
        if random.random() < 0.5:
            mutate_value(random, changed_header)
        else:
            name = sorted(changed)[random.integers(len(changed))]
            changed[name] = mutate_array(random, changed[name])
        try:
            loaded = type(policy).load(io.BytesIO(pack(changed_header, changed)))
        except FileError as error:
            assert len(str(error)) < 1100  # noqa: PT017
            refusals += 1
            continue
        with np.errstate(all="ignore"):
            play(loaded, 3)
    assert MUTATIONS / 3 < refusals < MUTATIONS


@pytest.mark.parametrize("kind", ["full", "predictive", "glm", "bandits"])
def test_a_small_file_does_not_make_a_large_policy(kind: str) -> None:
    policy = MAKERS[kind]()
    header, contents = unpack(save(policy))
    file = pack({**header, "dim": 3000}, contents)
    tracemalloc.start()
    with pytest.raises(FileError, match="holds no policy"):
        type(policy).load(io.BytesIO(file))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 10_000_000


def test_an_array_that_claims_more_than_it_has_takes_no_memory() -> None:
    header, contents = unpack(save(MAKERS["full"]()))
    text = b"{'descr': '<f8', 'fortran_order': False, 'shape': (50000000,)}\n"
    contents["block.npy"] = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text
    tracemalloc.start()
    with pytest.raises(FileError, match="cannot be read"):
        wv.Policy.load(io.BytesIO(pack(header, contents)))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 10_000_000


def test_members_that_overlap_or_come_twice_are_refused() -> None:
    """A thousand names for the same bytes would take a thousand times the memory."""
    saved = save(MAKERS["full"]())
    start = saved.index(b"PK\x01\x02")
    end = saved.index(b"PK\x05\x06")
    directory, tail = saved[start:end], bytearray(saved[end:])
    entry = directory[: directory.index(b"PK\x01\x02", 4)]
    for name in (b"policy.json", b"polizy.json"):
        more = directory + entry.replace(b"policy.json", name)
        changed = bytearray(tail)
        count = struct.unpack_from("<H", tail, 10)[0] + 1
        struct.pack_into("<HHI", changed, 8, count, count, len(more))
        with pytest.raises(FileError, match="not a policy that Windvane saved"):
            wv.Policy.load(io.BytesIO(saved[:start] + more + bytes(changed)))
