"""What is done with data of an earlier release, alike when it is made and when it is opened again.

Everything here goes through what users have: the names of `windvane`, the command line, HTTP.

Arms and rewards follow from whole numbers alone. With n(t, k, j) = (31t + 17k + 7j + 5tk + 3tj +
11kj + t²) mod 101, feature j of arm k in round t is (n(t, k, j) − 50) / 50. Its reward is
r = (100 + n(t, k, 0) − n(t, k, 1)) / 200, and from round 40 on 1 − r.
"""

import hashlib
import http.client
import io
import json
import math
import os
import re
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

import windvane as wv
from windvane.beliefs.adaptive.policies import Adaptive

HERE = Path(__file__).parent
Floats = npt.NDArray[np.float64]
Json = dict[str, Any]
Policies = wv.Policy | wv.GeneralizedPolicy | Adaptive

ARMS, CHANGE = 4, 40
DELAY = 8  # rounds until a late reward comes
PACE = 1.5  # units of time a round, for policies that learn with `at`

SIMULATE = ("simulate", HERE / "plan.toml")
REPRODUCE = ("reproduce", "--panels", "10x10", "--replications", "2", "--seed", "3")
SMALL = ("--dim", "3", "--arms", "4", "--horizon", "150")
TUNE = ("tune", *SMALL, "--replications", "3", "--points", "3", "--seed", "2")

# A policy.


def numerator(t: int, k: int, j: int) -> int:
    return (31 * t + 17 * k + 7 * j + 5 * t * k + 3 * t * j + 11 * k * j + t * t) % 101


def arms_of(t: int, dim: int) -> Floats:
    """The arms of a round, (K, d)."""
    rows = [[(numerator(t, k, j) - 50) / 50 for j in range(dim)] for k in range(ARMS)]
    return np.array(rows)


def reward_of(t: int, k: int) -> float:
    value = (100 + numerator(t, k, 0) - numerator(t, k, 1)) / 200
    return 1.0 - value if t >= CHANGE else value


def play(
    policy: Policies, first: int, last: int, waiting: list[wv.Choice], timed: bool
) -> list[int]:
    """Play rounds and return what was chosen; every third reward comes late, some never."""
    indices = []

    def learn(choice: wv.Choice) -> None:
        at = PACE * choice.round if timed else None
        policy.learn(choice, reward_of(choice.round, choice.index), at)

    for t in range(first, last):
        while waiting and waiting[0].round + DELAY <= t:
            learn(waiting.pop(0))
        choice = policy.choose(arms_of(t, policy.dim))
        indices.append(choice.index)
        if t % 3 == 0:
            waiting.append(choice)
        elif t % 7 != 5:
            learn(choice)
    return indices


def still_open(policy: Policies, expected: Json) -> list[wv.Choice]:
    """The choices that waited for their reward when the policy was saved, as [round, index]."""
    return [choice_of(policy, round_, index) for round_, index in expected["open"]]


def choice_of(policy: Policies, round_: int, index: int) -> wv.Choice:
    return wv.Choice(index, arms_of(round_, policy.dim)[index], round_, policy.key)


def state(policy: Policies) -> Json:
    """What can be seen of a policy without playing; numbers to the bit."""
    found: Json = {
        "memory": repr(policy.memory),
        "round": policy.round,
        "theta": bits(policy.theta),
    }
    if not isinstance(policy, Adaptive):  # whose repr could not be read back in 0.1.0
        found["repr"] = repr(policy)
    if isinstance(policy, wv.Policy):
        found["alarms"] = policy.alarms
        found["seen"] = policy.belief.seen
        if policy.memory.name != "kalman":  # which keeps the inverse and computes its belief
            held = policy.belief
            found |= {"gram": bits(held.gram), "noise_gram": bits(held.noise_gram)}
            found |= {"moment": bits(held.moment)}
            found |= {"clock": held.clock.hex(), "held": held.held.hex()}
    return found


def bits(array: Floats) -> list[str]:
    """Every number exactly."""
    return [value.hex() for value in array.ravel().tolist()]


def from_bits(words: Sequence[str]) -> list[float]:
    return [float.fromhex(word) for word in words]


# The command line and the service.


def run(*words: object, folder: Path, environment: Mapping[str, str] | None = None) -> str:
    """What `windvane` prints."""
    done = subprocess.run(
        [sys.executable, "-m", "windvane", *map(str, words)],
        cwd=folder,
        env={**os.environ, **(environment or {})},
        capture_output=True,
        text=True,
        timeout=600,
    )
    if done.returncode:
        raise RuntimeError(f"windvane {words} ended with {done.returncode}:\n{done.stderr}")
    return done.stdout


def extract(name: str, target: Path) -> Path:
    """Unpack an archive of this folder."""
    with tarfile.open(HERE / name) as archive:
        archive.extractall(target, filter="data")
    return target


class Client:
    """Asks a service, each time with the key that it takes."""

    def __init__(self, port: int, keys: Mapping[str, str]) -> None:
        self.port, self.keys = port, keys

    def ask(
        self, method: str, path: str, body: object = None, role: str = "admin", request: str = ""
    ) -> tuple[int, bytes]:
        headers = {"Content-Type": "application/json"}
        if role:
            headers["Ocp-Apim-Subscription-Key"] = self.keys[role]
        if request:
            headers["x-ms-client-request-id"] = request
        sent = None if body is None else json.dumps(body).encode()
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)) as line:
            line.request(method, path, sent, headers)
            answer = line.getresponse()
            return answer.status, answer.read()

    def request(self, method: str, path: str, body: object = None, role: str = "read") -> Any:
        """What is answered, as JSON."""
        status, text = self.ask(method, path, body, role)
        if not 200 <= status < 300:
            raise RuntimeError(f"{method} {path} was answered {status}: {text!r}")
        return json.loads(text) if text else None

    def rank(self, loop: str, number: int, **more: object) -> Any:
        path = f"/loops/{loop}/personalizer/v1.0/rank"
        return self.request("POST", path, {**request_of(loop, number), **more}, "rank")

    def reward(self, loop: str, event: str, value: float, request: str = "") -> None:
        path = f"/loops/{loop}/personalizer/v1.0/events/{event}/reward"
        status, text = self.ask("POST", path, {"value": value}, "rank", request)
        if status != 204:
            raise RuntimeError(f"the reward of {event} was answered {status}: {text!r}")

    def policy(self, loop: str) -> wv.Policy:
        """What a loop believes, from its exported model."""
        status, body = self.ask("GET", f"/loops/{loop}/personalizer/v1.0/model", role="read")
        if status != 200:
            raise RuntimeError(f"the model of {loop} was answered {status}: {body!r}")
        return wv.Policy.load(io.BytesIO(msgspec.msgpack.decode(body)["policy"]))


@contextmanager
def serving(data: Path, keys: Mapping[str, str]) -> Iterator[Client]:
    """`windvane serve` on a directory, and then its end by SIGTERM."""
    words = [sys.executable, "-m", "windvane", "serve", "--port", "0", "--data", str(data)]
    heard = data.with_name(f"{data.name}.said")
    with open(heard, "w") as said:
        process = subprocess.Popen(words, cwd=data.parent, stderr=said)
    try:
        client = Client(_port(process, heard), keys)
        _until(lambda: client.ask("GET", "/readyz", role="")[0] == 200, process, heard)
        yield client
        process.send_signal(signal.SIGTERM)
        if process.wait(60) != 0:
            raise RuntimeError(f"the service ended badly:\n{heard.read_text()}")
    finally:
        process.kill()
        process.wait(60)


def _port(process: "subprocess.Popen[bytes]", heard: Path) -> int:
    address = re.compile(r"serving on http://127\.0\.0\.1:(\d+)")
    _until(lambda: address.search(heard.read_text()) is not None, process, heard)
    found = address.search(heard.read_text())
    assert found is not None
    return int(found[1])


def _until(
    condition: Any, process: "subprocess.Popen[bytes]", heard: Path, limit: float = 600.0
) -> None:
    """Wait; a first start ever compiles for some minutes."""
    end = time.monotonic() + limit
    while not condition():
        if process.poll() is not None or time.monotonic() > end:
            raise RuntimeError(f"the service did not start:\n{heard.read_text()}")
        time.sleep(0.05)


TOPICS = ("news", "sport", "music", "film", "food")


def request_of(loop: str, number: int) -> Json:
    """The rank request of a number; the loop `default`, of dimension 128, gets fewer features."""
    offered = [TOPICS[(number + k) % len(TOPICS)] for k in range(4)]
    plain = loop == "default"
    features: list[Json] = [
        {"sport": topic == "sport"}
        if plain
        else {"topic": topic, "length": ((number * 7 + k * 3) % 10) / 10, "new": k % 2 == 0}
        for k, topic in enumerate(offered)
    ]
    actions = [{"id": a, "features": [b]} for a, b in zip(offered, features, strict=True)]
    context: list[Json] = [{"device": ("phone", "desk", "tv")[number % (2 if plain else 3)]}]
    if not plain:
        context += [{"hour": float(number * 5 % 24)}]
        context += [{"user": {"place": [number % 4 / 4, number % 7 / 7]}}]
    asked: Json = {
        "eventId": f"{loop}-{number}",
        "contextFeatures": context,
        "actions": actions,
        "excludedActions": [offered[0]] if number % 6 == 5 else [],
        "deferActivation": number % 8 == 7,
    }
    return asked


def value_of(number: int, chosen: str) -> float:
    """What a choice earns: some topics more, and other topics later."""
    place = (TOPICS.index(chosen) + (2 if number >= 20 else 0)) % len(TOPICS)
    return (place * 10 + number % 7 - 20) / 30


REST = {  # what is learned only after the copy was opened: event and reward
    "default": [("default-3", 0.5), ("default-11", -0.75), ("default-43", 1.0)],
    "shop": [("shop-3", 0.25), ("shop-43", -0.5), ("shop-40", 0.125)],
}
NEXT = range(100, 106)  # numbers of the requests that are ranked after the copy was opened
SHORT = 6  # decisions of the loop `brief`, whose waits are over when it is opened again


def observe(client: Client) -> Json:
    """Open it, look, go on a little, and look again: all of it independent of the time of day.

    With `exact`, only what needs no new computation is observed, so that every bit must agree.
    """
    v1 = "personalizer/v1.0"
    loops = ("default", "shop")
    exact: Json = {
        "loops": client.request("GET", "/loops"),
        "policies": {
            name: client.request("GET", f"/loops/{name}/{v1}/configurations/policy")
            for name in loops
        },
        "model properties": {
            name: client.request("GET", f"/loops/{name}/{v1}/model/properties") for name in loops
        },
        "logs properties": {
            name: client.request("GET", f"/loops/{name}/{v1}/logs/properties") for name in loops
        },
        "models": {name: model(client.policy(name)) for name in loops},
        "asked again": {
            name: [client.rank(name, number) for number in (0, 5, 7, 41)] for name in loops
        },
        "keys": {
            f"{role or 'no key'} {method} {path}": client.ask(method, path, body, role)[0]
            for role in ("", "expired", "rank", "read", "admin")
            for method, path, body in (
                ("GET", "/loops", None),
                ("POST", f"/loops/shop/{v1}/rank", request_of("shop", 0)),
                ("PUT", f"/loops/shop/{v1}/configurations/service", {}),
            )
        },
    }
    brief = read_dashboard(client, "brief", default=SHORT)
    near: Json = {
        "boards": {name: read_dashboard(client, name) for name in loops},
        "events": {
            name: [explain(client, name, number) for number in (0, 7, 40, 43)] for name in loops
        },
        "brief": {"funnel": brief["arrived"]["funnel"], "model": sums(client.policy("brief"))},
        "ranked": {
            name: [client.rank(name, number) for number in NEXT] for name in (*loops, "brief")
        },
    }
    for name in loops:
        for event, value in REST[name]:
            client.reward(name, event, value)
    client.rank("shop", 199)  # its reward came before it
    for number in NEXT:
        client.reward("shop", f"shop-{number}", value_of(number, "film"))
    near |= {
        "learned": {name: sums(client.policy(name)) for name in loops},
        "ranked later": {
            name: [client.rank(name, number) for number in range(200, 204)] for name in loops
        },
    }
    found: Json = json.loads(json.dumps({"exact": exact, "near": near}))
    return found


def model(policy: wv.Policy) -> Json:
    """A belief to the bit."""
    held = policy.belief
    arrays = {"gram": held.gram, "noise_gram": held.noise_gram, "moment": held.moment}
    digests = {name: hashlib.sha256(array.tobytes()).hexdigest() for name, array in arrays.items()}
    return {
        "repr": repr(policy),
        "round": policy.round,
        "seen": held.seen,
        "clock": held.clock.hex(),
        "held": held.held.hex(),
        "theta": bits(policy.theta),
        "sha256": digests,
    }


def sums(policy: wv.Policy) -> Json:
    """A belief as numbers."""
    held = policy.belief
    return {
        "repr": repr(policy),
        "seen": held.seen,
        "clock": held.clock,
        "theta": policy.theta.tolist(),
        "moment": held.moment.tolist(),
        "traces": [float(np.trace(held.gram)), float(np.trace(held.noise_gram))],
    }


LISTED = 12  # weights that the board shows at most


def weighed(weights: list[Json]) -> dict[str, float]:
    """Weights by name, for equal ones may come in any order; none where some were left out."""
    return {each["name"]: each["amount"] for each in weights if len(weights) < LISTED}


def explain(client: Client, loop: str, number: int) -> Json:
    """Return the dashboard's explanation of an event, without its sentence, which may change."""
    answer: Json = client.request("GET", f"/board/{loop}/events/{loop}-{number}")
    del answer["why"]
    options = sorted(answer["options"], key=lambda option: str(option["name"]))
    return {**answer, "options": options, "reasons": weighed(answer["reasons"])}


def read_dashboard(client: Client, loop: str, **wanted: int) -> Json:
    """Return what the dashboard shows at any time, once its counters are as wanted."""
    end = time.monotonic() + 60.0
    while True:
        answer = client.request("GET", f"/board/{loop}.json")
        funnel = answer["arrived"]["funnel"]
        if not answer["behind"] and funnel == {**funnel, **wanted}:
            break
        if time.monotonic() > end:
            raise RuntimeError(f"the board of {loop} has {funnel}, wanted {wanted}")
        time.sleep(0.2)
    learning = {name: answer["learning"][name] for name in ("mean", "baseline", "uniform")}
    return {
        "decisions": answer["decisions"],
        "created": answer["created"],
        "learning": learning,
        "learned": answer["forgetting"]["learned"],
        "arrived": {"funnel": funnel},  # without its sentence, which may change
        "features": weighed(answer["features"]),
        "recent": answer["recent"],
    }


# Comparing.


class Difference(NamedTuple):
    """A place at which two JSON values differ."""

    place: str
    expected: object
    found: object


def differences(
    expected: object, found: object, close: float = 0.0, place: str = ""
) -> list[Difference]:
    """List all differences; floats may differ by `close`, or by that share of their size."""
    if isinstance(expected, dict) and isinstance(found, dict):
        if expected.keys() != found.keys():
            return [Difference(place, sorted(expected), sorted(found))]
        pairs = [(f"{place}/{name}", expected[name], found[name]) for name in expected]
    elif isinstance(expected, list) and isinstance(found, list):
        if len(expected) != len(found):
            return [Difference(place, expected, found)]
        if all(isinstance(value, float) for value in (*expected, *found)):
            unit = max((abs(value) for value in expected), default=0.0)
            away = [abs(a - b) for a, b in zip(expected, found, strict=True)]
            alike = all(each <= close * unit for each in away)
            return [] if alike else [Difference(place, expected, found)]
        zipped = enumerate(zip(expected, found, strict=True))
        pairs = [(f"{place}/{number}", a, b) for number, (a, b) in zipped]
    elif isinstance(expected, float) and isinstance(found, float | int):
        alike = math.isclose(expected, found, rel_tol=close, abs_tol=close)
        return [] if alike else [Difference(place, expected, found)]
    else:
        return [] if expected == found else [Difference(place, expected, found)]
    return [each for where, a, b in pairs for each in differences(a, b, close, where)]
