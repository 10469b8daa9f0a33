"""Every entry of the library against every kind of hostile value: a short error of Windvane."""

import datetime
import decimal
import fractions
from collections.abc import Callable
from typing import Any

import httpx2
import numpy as np
import pytest

import windvane as wv
from windvane.client import Client
from windvane.errors import MAX_MESSAGE_LENGTH

ARMS = np.eye(3)
LONGEST_MESSAGE = MAX_MESSAGE_LENGTH + len(" ...")


class Hostile:
    """A value that cannot be shown."""

    def __repr__(self) -> str:
        raise RuntimeError("never")


def nest(depth: int, kind: Callable[[Any], Any]) -> Any:
    value: Any = 1.0
    for _ in range(depth):
        value = kind(value)
    return value


def make_loop() -> list[Any]:
    endless: list[Any] = []
    endless.append(endless)
    return endless


VALUES: dict[str, Any] = {
    "nested lists": nest(1000, lambda inner: [inner]),
    "nested tuples": nest(1000, lambda inner: (inner,)),
    "nested dicts": nest(1000, lambda inner: {"a": inner}),
    "lists nested too deep to show": nest(3000, lambda inner: [inner]),
    "dicts nested too deep to show": nest(3000, lambda inner: {"a": inner}),
    "a list of itself": make_loop(),
    "10**400": 10**400,
    "-(10**400)": -(10**400),
    "a number with too many digits to show": 10**5000,
    "lists of 10**400": [[10**400] * 3],
    "a fraction": fractions.Fraction(10**400),
    "a signaling NaN": decimal.Decimal("sNaN"),
    "a decimal": decimal.Decimal("1e999999"),
    "NaN": float("nan"),
    "infinity": float("inf"),
    "a complex number": 1j,
    "a large text": "x" * 200_000,
    "a large list": list(range(30_000)),
    "large bytes": b"x" * 200_000,
    "a lone surrogate": "\ud800",
    "NUL": "\0",
    "None": None,
    "a class": int,
    "a function": nest,
    "an ellipsis": ...,
    "a set": {1, 2},
    "a dict": {"a": 1},
    "a dict of odd keys": {(1, 2): 3, None: 4, 10**5000: 5},
    "a date": datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC),
    "an array": np.arange(3.0),
    "an empty array": np.empty((0, 3)),
    "an array of texts": np.array(["a", "b"]),
    "an array of objects": np.array([Hostile(), 10**5000], dtype=object),
    "an array of records": np.zeros(2, dtype=[("a", "f8")]),
    "an array of times": np.array(["2026-01-01"], dtype="M8[s]"),
    "an array of 0 axes": np.array(1.0),
    "an array of 32 axes": np.zeros((1,) * 32),
    "an array of complex numbers": np.array([1j]),
    "a NaN of NumPy": np.float32("nan"),
    "a large integer of NumPy": np.uint64(2**64 - 1),
    "what cannot be shown": Hostile(),
    "a list of what cannot be shown": [Hostile()],
}


def make_policy(**options: Any) -> wv.Policy:
    return wv.Policy(3, wv.keep(), wv.greedy(), seed=1, **options)


def make_learner() -> wv.Learner:
    return wv.Learner(seed=1)


def make_client() -> Client:
    refuse = httpx2.MockTransport(lambda request: httpx2.Response(400))
    return Client("http://a", http=httpx2.AsyncClient(transport=refuse))


def reward(value: Any) -> None:
    learner = make_learner()
    learner.reward(learner.rank({}, ["a"], at=0.0), value)


def learn(value: Any) -> None:
    policy = make_policy()
    policy.learn(policy.choose(ARMS), value)


GLM = wv.GeneralizedPolicy(3, "logistic", wv.keep(), seed=1)
SPARSE = {"belief": "diagonal"}
CLIENT = make_client()
ENTRIES: dict[str, Callable[[Any], object]] = {
    "Policy: dim": lambda value: wv.Policy(value) if not isinstance(value, np.uint64) else None,
    "Policy: memory": lambda value: wv.Policy(3, value),
    "Policy: exploration": lambda value: wv.Policy(3, exploration=value),
    "Policy: ridge": lambda value: wv.Policy(3, ridge=value),
    "Policy: seed": lambda value: wv.Policy(3, seed=value),
    "Policy: floor": lambda value: wv.Policy(3, floor=value),
    "Policy: belief": lambda value: wv.Policy(3, belief=value),
    "choose": lambda value: make_policy().choose(value),
    "choose, diagonal": lambda value: make_policy(**SPARSE).choose(value),
    "choose_many": lambda value: make_policy().choose_many(value),
    "learn: choice": lambda value: make_policy().learn(value, 1.0),
    "learn: choice, diagonal": lambda value: make_policy(**SPARSE).learn(value, 1.0),
    "learn: reward": learn,
    "learn: at": lambda value: make_policy().learn([1.0, 0.0, 0.0], 1.0, at=value),
    "learn_many: choices": lambda value: make_policy().learn_many(value, [1.0]),
    "learn_many: rewards": lambda value: make_policy().learn_many([[1.0, 0.0, 0.0]], value),
    "learn_many: at": lambda value: make_policy().learn_many([[1.0, 0.0, 0.0]], [1.0], value),
    "dismiss": lambda value: make_policy().dismiss(value),
    "predict": lambda value: make_policy().predict(value),
    "widths": lambda value: make_policy().widths(value),
    "propensities": lambda value: make_policy().propensities(value),
    "propensities: chosen": lambda value: make_policy().propensities(ARMS, chosen=value),
    "amend": lambda value: make_policy().amend(value, 1.0),
    "belief": lambda value: setattr(make_policy(), "belief", value),
    "GeneralizedPolicy: link": lambda value: wv.GeneralizedPolicy(3, value, wv.keep()),
    "GeneralizedPolicy: choose": lambda value: GLM.choose(value),
    "PredictiveMemory: longest": lambda value: (
        wv.PredictiveMemory(3, wv.greedy(), longest=value)
        if not isinstance(value, np.uint64)
        else None
    ),
    "finite": lambda value: wv.sets.finite(value),
    "named": lambda value: wv.named(value, dim=3, horizon=100),
    "discount": lambda value: wv.discount(value),
    "window": lambda value: wv.window(value),
    "restart_at": lambda value: wv.restart_at(value),
    "thompson": lambda value: wv.thompson(value),
    "randomized": lambda value: wv.randomized(value),
    "Learner: half_life": lambda value: wv.Learner(half_life=value),
    "Learner: exploration": lambda value: wv.Learner(exploration=value),
    "Learner: crossings": lambda value: wv.Learner(crossings=value),
    "Learner: array_size": lambda value: wv.Learner(array_size=value),
    "rank: context": lambda value: make_learner().rank(value, ["a"]),
    "rank: feature": lambda value: make_learner().rank({"x": value}, ["a"]),
    "rank: feature of a namespace": lambda value: make_learner().rank({"n": {"x": value}}, ["a"]),
    "rank: feature of an array": lambda value: make_learner().rank({"x": [1.0, value]}, ["a"]),
    "rank: actions": lambda value: make_learner().rank({}, value),
    "rank: action": lambda value: make_learner().rank({}, ["a", value]),
    "rank: id": lambda value: make_learner().rank({}, [{"id": value}]),
    "rank: feature of an action": lambda value: make_learner().rank({}, [{"id": "a", "x": value}]),
    "rank: exclude": lambda value: make_learner().rank({}, ["a", "b"], exclude=value),
    "rank: excluded": lambda value: make_learner().rank({}, ["a", "b"], exclude=[value]),
    "rank: at": lambda value: make_learner().rank({}, ["a"], at=value),
    "reward: decision": lambda value: make_learner().reward(value, 1.0),
    "reward: value": reward,
    "explain": lambda value: make_learner().explain(value),
    "client: context": lambda value: CLIENT.rank(value, ["a"]),
    "client: feature": lambda value: CLIENT.rank({"x": value}, ["a"]),
    "client: action": lambda value: CLIENT.rank({}, [value]),
    "client: exclude": lambda value: CLIENT.rank({}, ["a", "b"], exclude=value),
    "client: event_id": lambda value: CLIENT.rank({}, ["a"], event_id=value),
    "client: timeout": lambda value: CLIENT.rank({}, ["a"], timeout=value),
    "client: event": lambda value: CLIENT.reward(value, 1.0),
    "client: reward": lambda value: CLIENT.reward("e", value),
    "client: rewards": lambda value: CLIENT.rewards(value),
    "client: a reward of many": lambda value: CLIENT.rewards([value]),
    "client: after": lambda value: CLIENT.read_decisions(value),
    "client: limit": lambda value: CLIENT.read_decisions(limit=value),
    "client: wait": lambda value: CLIENT.read_decisions(wait=value),
    "client: loop": lambda value: CLIENT.settings(loop=value),
    "Client: servers": lambda value: Client(value).close(),
    "Client: key": lambda value: Client(key=value).close(),
    "Client: http": lambda value: Client(http=value).close(),
}


@pytest.mark.parametrize("entry", ENTRIES)
def test_a_hostile_value_is_taken_or_refused_in_a_few_words(entry: str) -> None:
    for name, value in VALUES.items():
        message = ""
        try:
            ENTRIES[entry](value)
        except wv.WindvaneError as error:
            message = str(error)
        except Exception as error:
            raise AssertionError(f"{name}: {type(error).__name__}") from error
        assert len(message) <= LONGEST_MESSAGE, name
