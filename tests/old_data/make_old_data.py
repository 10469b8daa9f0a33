"""How the data in this folder was made. It runs with release 0.1.0 alone.

    PYTHONPATH=OLD/src:NEW/tests python NEW/tests/old_data/make_old_data.py

where OLD is a checkout of release 0.1.0 and NEW is this one. It writes into the folder it is in.
It is kept to tell what the files hold; it is not run again, since a later release would write data
of its own kind. The modules of the lab that it needs have the names they had in 0.1.0.

- policies/NAME.npz: a saved policy, with choices that wait for their reward; policies/NAME.json:
  what it looks like when it is loaded, and how it goes on. steps.py says from which arms.
- service.tar.gz: `data`, the directory of a service that was stopped while decisions waited for
  their reward; `backup`, a copy by `windvane backup` that was made before, while it ran, and so
  holds lessons after its last snapshot; `default.parquet` and `shop.parquet`, by `windvane export`.
  service.json: its keys, which open nothing else, and what release 0.1.0 answers on a copy of the
  directory. Logs are kept for ever, and rewards are waited for ten years; but for those of the loop
  `brief` a few seconds, which were over soon after it was stopped.
- lab.tar.gz: `simulated`, `figure`, `tuning`: what simulate, reproduce and tune wrote, without the
  pictures; `interrupted`: what a run of simulate leaves that was stopped half-way. plan.toml is
  what was simulated.
"""

import gzip
import importlib
import json
import shutil
import sqlite3
import sys
import tarfile
import tempfile
from collections.abc import Callable, Mapping
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path

import windvane as wv
from old_data.steps import (
    HERE,
    REPRODUCE,
    REST,
    SHORT,
    SIMULATE,
    TUNE,
    Client,
    Json,
    Policies,
    arms_of,
    bits,
    observe,
    play,
    request_of,
    run,
    serving,
    state,
    still_open,
    sums,
    value_of,
)

RELEASE = "0.1.0"
MODULES = ("policy", "storage", "choices", "kernels", "lab.setup", "service.opening")  # of 0.1.0
ROUNDS, MORE = 60, 60  # before a policy is saved, and after it was loaded
DATE = 1_600_000_000  # of every file in an archive

RADIUS = wv.confidence(0.05, noise=0.3, theta_norm=0.8, arm_norm=2.0)
ANYTIME = wv.confidence(0.05, noise=0.2, anytime=True)
HORIZON = wv.confidence(0.1, noise=0.2, horizon=500)
POLICIES: dict[str, Callable[[], Policies]] = {
    "keep-thompson": lambda: wv.Policy(3, wv.keep(), wv.thompson(0.3), seed=1),
    "keep-coins": lambda: wv.Policy(3, wv.keep(), wv.perturbed_history(3, "coins"), seed=2),
    "discount-randomized": lambda: wv.Policy(
        4, wv.discount(0.95), wv.randomized(wv.half_normal(0.4 * RADIUS)), ridge=0.7, seed=3
    ),
    "discount-thompson": lambda: wv.Policy(
        5, wv.discount(0.9), wv.thompson(0.2), seed=4, floor=0.05
    ),
    "discount-single-optimism": lambda: wv.Policy(
        4, wv.discount(0.95, single=True), wv.optimism(HORIZON), seed=5
    ),
    "window-epsilon": lambda: wv.Policy(3, wv.window(20), wv.epsilon(0.2), seed=6),
    "window-perturbed": lambda: wv.Policy(4, wv.window(25), wv.perturbed_history(0.3), seed=7),
    "restart-inverse-gap": lambda: wv.Policy(3, wv.restart(15), wv.inverse_gap(8.0), seed=8),
    "restart-at-greedy": lambda: wv.Policy(
        3, wv.restart_at([10, 45, 80]), wv.greedy(), ridge=2.0, seed=9, floor=0.1
    ),
    "half-life-thompson": lambda: wv.Policy(5, wv.half_life(12.0), wv.thompson(0.3), seed=10),
    "half-life-timed": lambda: wv.Policy(
        3, wv.half_life(20.0), wv.randomized(wv.grid(1.5, points=9, sigma=0.4, top=0.01)), seed=11
    ),
    "kalman-thompson": lambda: wv.Policy(4, wv.kalman(0.97, 0.3), wv.thompson(0.5), seed=12),
    "detect-optimism": lambda: wv.Policy(
        3, wv.detect(0.1, alarm=4.0), wv.optimism(ANYTIME), seed=13
    ),
    "detect-normal": lambda: wv.Policy(
        3, wv.detect(0.2, alarm=6.0), wv.randomized(wv.normal(0.7)), seed=14
    ),
    "logistic": lambda: wv.GeneralizedPolicy(
        4, "logistic", wv.discount(0.97), scale=0.5, seed=15, floor=0.05
    ),
    "poisson": lambda: wv.GeneralizedPolicy(3, "poisson", wv.keep(), scale=0.4, seed=16),
    "identity": lambda: wv.GeneralizedPolicy(3, "identity", wv.window(20), scale=0.3, seed=17),
    "bandits": lambda: wv.BanditsOverBandits(3, 500, wv.thompson(0.3), seed=18),
    "bandits-warm": lambda: wv.BanditsOverBandits(
        3, 500, wv.randomized(wv.half_normal(0.5)), "window", warm=True, seed=19, floor=0.05
    ),
    "bandits-restart": lambda: wv.BanditsOverBandits(3, 300, wv.optimism(0.5), "restart", seed=20),
    "predictive": lambda: wv.PredictiveMemory(4, wv.thompson(0.3), seed=21),
    "predictive-window": lambda: wv.PredictiveMemory(
        3, wv.perturbed_history(0.3), "window", shortest=5, longest=40, seed=22
    ),
}


def make_policies(folder: Path) -> None:
    """Each policy saved, and how it goes on; loaded, it must do the same to the bit."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, make in POLICIES.items():
        policy, waiting, timed = make(), list[wv.Choice](), name.endswith("timed")
        kind = type(policy)
        indices = play(policy, 0, ROUNDS, waiting, timed)
        policy.save(folder / f"{name}.npz")
        expected: Json = {
            "release": RELEASE,
            "class": kind.__name__,
            "timed": timed,
            "open": [[choice.round, choice.index] for choice in waiting],
            "learned": [ROUNDS - 2, indices[ROUNDS - 2]],
            "loaded": state(policy),
            "propensities": policy.propensities(arms_of(ROUNDS, policy.dim)).tolist(),
            "rounds": MORE,
        }
        loaded = kind.load(folder / f"{name}.npz")
        again = play(loaded, ROUNDS, ROUNDS + MORE, still_open(loaded, expected), timed)
        expected["indices"] = play(policy, ROUNDS, ROUNDS + MORE, waiting, timed)
        expected["theta"] = bits(policy.theta)
        if again != expected["indices"] or bits(loaded.theta) != expected["theta"]:
            raise RuntimeError(f"{name} does not go on as if never stopped")
        write(folder / f"{name}.json", expected)


def make_service(folder: Path) -> None:
    """A service on a new directory, its backup, its exports, and what it answers on copies."""
    data = folder / "data"
    settings = "--half-life|40 rounds|--wait|P3650D|--default-reward|-0.25|--aggregation|sum"
    more = "--exploration|0.2|--dim|16|--seed|7|--json"
    run("loop", "create", "shop", *f"{settings}|{more}".split("|"), "--data", data, folder=folder)
    keys = {}
    for number, role in enumerate(("admin", "rank", "read", "expired"), 1):
        kind = "rank" if role == "expired" else role
        words = ("key", "create", "--role", kind, "--json", "--data", data)
        keys[role] = json.loads(run(*words, folder=folder))["key"]
        if role == "expired":
            run("key", "expire", number, "--data", data, folder=folder)
    with serving(data, keys) as client:
        visit(client, "default", range(10))  # under the settings that are there from the start
        configure(client, "default", logRetentionDays=-1, rewardWaitTime="P3650D")
        configure(client, "shop", logRetentionDays=-1)
        visit(client, "shop", range(20))
        client.reward("shop", "shop-199", 0.75)  # before its rank
    with serving(data, keys) as client:
        configure(client, "shop", width=0.6, halfLife="60 rounds")
        for loop in REST:
            visit(client, loop, range(10 if loop == "default" else 20, 48))
        run("backup", folder / "backup", "--data", data, folder=folder)
        timing = {"rewardWaitTime": "PT5S", "defaultReward": 0.5, "halfLife": "30 minutes"}
        limits = {"logRetentionDays": -1, "dim": 8}
        client.request("POST", "/loops", {"name": "brief", "settings": timing | limits}, "admin")
        for number in range(SHORT):
            client.request(
                "POST",
                "/loops/brief/personalizer/v1.0/rank",
                {**request_of("brief", number), "deferActivation": False},
                "rank",
            )
    with closing(sqlite3.connect(data / "windvane.db")) as log:
        waits = "SELECT name, count(*) FROM waiting JOIN loops ON loop = id GROUP BY name"
        waiting = dict(log.execute(waits).fetchall())
    if waiting.get("brief") != SHORT or not {"default", "shop"} <= waiting.keys():
        raise RuntimeError(f"decisions must wait in every loop, found {waiting}")
    for loop in REST:
        exporting = ("export", "--loop", loop, "--parquet", folder / f"{loop}.parquet")
        run(*exporting, "--data", data, folder=folder)
    pack(HERE / "service.tar.gz", folder, ["data", "backup", "default.parquet", "shop.parquet"])
    listed = {
        name: json.loads(run(name, "list", "--json", "--data", data, folder=folder))
        for name in ("loop", "key")
    }
    seen = []
    for number in range(2):  # twice, to see that nothing of it depends on when it is asked
        shutil.copytree(data, copy := folder / f"copy-{number}")
        with serving(copy, keys) as client:
            seen.append(observe(client))
    if seen[0] != seen[1]:
        raise RuntimeError("two copies of a service go on differently")
    run("restore", folder / "backup", "--data", folder / "restored", folder=folder)
    with serving(folder / "restored", keys) as client:
        restored = {loop: sums(client.policy(loop)) for loop in REST}
    expected = {
        "release": RELEASE,
        "keys": keys,
        "waiting": waiting,
        "listed": listed,
        "restored": restored,
        **seen[0],
    }
    write(HERE / "service.json", expected)


def visit(client: Client, loop: str, numbers: range) -> None:
    """Rank and reward; every fourth decision gets no reward, every other deferred one is used."""
    for number in numbers:
        event = f"{loop}-{number}"
        answer = client.rank(loop, number)
        if number % 16 == 7:
            path = f"/loops/{loop}/personalizer/v1.0/events/{event}/activate"
            client.request("POST", path, None, "rank")
        if number % 4 == 3 and number != 15:
            continue
        value = value_of(number, answer["rewardActionId"])
        client.reward(loop, event, value, f"first-{number}")
        if number % 5 == 0:
            client.reward(loop, event, value / 4, f"second-{number}")
        if number % 10 == 0:
            client.reward(loop, event, value / 4, f"second-{number}")  # sent again


def configure(client: Client, loop: str, **settings: object) -> None:
    path = f"/loops/{loop}/personalizer/v1.0/configurations/service"
    client.request("PUT", path, settings, "admin")


def make_lab(folder: Path) -> None:
    """What the lab's commands write, and what simulate leaves when it is stopped half-way."""
    run(*SIMULATE, "--out", folder / "simulated", folder=folder)
    run(*REPRODUCE, "--out", folder / "figure", folder=folder)
    run(*TUNE, "--out", folder / "tuning", folder=folder)
    setup = importlib.import_module("windvane.lab.setup")
    experiment = importlib.import_module("windvane.lab.experiment")
    plan = setup.read_plan(SIMULATE[1])._replace(replications=5)  # of seven
    for one in plan.experiments().values():
        experiment.run(one, keep=folder / "interrupted" / "chunks")
    for picture in (*folder.rglob("*.png"), *folder.rglob("*.pdf")):
        picture.unlink()
    pack(HERE / "lab.tar.gz", folder, ["simulated", "figure", "tuning", "interrupted"])


def pack(target: Path, folder: Path, names: list[str]) -> None:
    """An archive that says nothing of who made it and when."""

    def plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
        member.uid = member.gid = 0
        member.uname = member.gname = ""
        member.mtime, member.mode = DATE, 0o755 if member.isdir() else 0o644
        return member

    with (
        open(target, "wb") as file,
        gzip.GzipFile("", "wb", 9, file, mtime=DATE) as packed,
        tarfile.open(fileobj=packed, mode="w") as archive,
    ):
        for name in names:
            archive.add(folder / name, name, filter=plain)


def write(path: Path, content: Mapping[str, object]) -> None:
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", "utf-8")


def main() -> None:
    if missing := [name for name in MODULES if find_spec(f"windvane.{name}") is None]:
        sys.exit(f"this is not release {RELEASE}: it has no windvane.{missing[0]}")
    make_policies(HERE / "policies")
    with tempfile.TemporaryDirectory() as folder:
        make_lab(Path(folder))
        make_service(Path(folder))


if __name__ == "__main__":
    main()
