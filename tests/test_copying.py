"""Copies, pickles, equality and repr of policies and of the values that they are made of."""

import copy
import multiprocessing
import pickle
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import numpy as np
import pytest

import windvane as wv
from choosers import CHOOSERS
from grid import EXPLORATIONS, MEMORIES, every_memory, row_and_column_of_each_belief
from windvane import sets
from windvane.beliefs.adaptive import Adaptation, Adaptive, bandits, predictive
from windvane.errors import ArmsError, FileError, SettingError, StoreError
from windvane.lab import worlds

ARMS = np.random.default_rng(21).standard_normal((120, 5, 3))
REWARDS = np.random.default_rng(22).random(120)  # from 0 to 1, as every link allows
WAYS: dict[str, Callable[[Any], Any]] = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle": lambda value: pickle.loads(pickle.dumps(value)),
}
every_way = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
every_maker = pytest.mark.parametrize("make", CHOOSERS.values(), ids=CHOOSERS)


def play(policy: wv.Chooser, start: int, stop: int) -> list[tuple[int, bytes]]:
    """Play rounds in which every fourth reward never comes; return the arms and estimates."""
    trace = []
    for t in range(start, stop):
        choice = policy.choose(ARMS[t])
        if t % 4:
            policy.learn(choice, REWARDS[t])
        trace.append((choice.index, policy.theta.tobytes()))
    return trace


def check_copy(policy: wv.Chooser, way: Callable[[Any], Any]) -> None:
    """A copy continues with the same bits, and neither policy changes the other."""
    late = policy.choose(ARMS[0])
    play(policy, 1, 50)
    twin, witness = way(policy), way(policy)
    assert twin == policy
    assert type(twin) is type(policy)
    twin.learn(late, 0.5)
    trace = play(twin, 50, 120)
    assert policy == witness != twin
    policy.learn(late, 0.5)
    assert play(policy, 50, 120) == trace
    assert twin == policy


@every_way
@row_and_column_of_each_belief
def test_a_copied_policy_continues_with_the_same_bits(
    belief: str, memory: wv.Memory, exploration: wv.Exploration, way: Callable[[Any], Any]
) -> None:
    check_copy(wv.Policy(3, memory, exploration, 0.7, 5, belief=belief), way)


@every_way
@every_maker
def test_a_copy_of_every_chooser_continues_with_the_same_bits(
    make: Callable[[int], wv.Chooser], way: Callable[[Any], Any]
) -> None:
    check_copy(make(5), way)


def test_a_copied_policy_has_the_propensities_of_the_original() -> None:
    policy = wv.Policy(3, wv.discount(0.9), wv.randomized(wv.half_normal(1.0)), seed=5)
    play(policy, 0, 20)
    policy.choose_with_propensities(ARMS[20])  # binds a compiled function that a copy binds itself
    twin = copy.deepcopy(policy)
    for one, other in ((policy, twin), (twin, policy)):
        chances = other.propensities(ARMS[21])
        choice, of_choice = one.choose_with_propensities(ARMS[21])
        assert chances[choice.index] > 0
        np.testing.assert_array_equal(of_choice, chances)


def test_a_policy_works_in_a_process_that_was_spawned() -> None:
    """As joblib and multiprocessing send it."""
    policies = [make(5) for make in CHOOSERS.values()]
    for policy in policies:
        play(policy, 0, 20)
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        elsewhere = [pool.submit(policy.choose_many, ARMS[20:30]) for policy in policies]
        for policy, future in zip(policies, elsewhere, strict=True):
            assert future.result() == policy.choose_many(ARMS[20:30])


@every_maker
def test_a_policy_unpickled_from_read_only_memory_can_learn(
    make: Callable[[int], wv.Chooser],
) -> None:
    """joblib maps large arrays into all processes, and they cannot be written to."""
    policy = make(5)
    play(policy, 0, 50)
    buffers: list[pickle.PickleBuffer] = []
    data = pickle.dumps(policy, protocol=5, buffer_callback=buffers.append)
    shared = [bytes(buffer) for buffer in buffers]
    assert shared
    before = list(shared)
    twin = pickle.loads(data, buffers=shared)
    assert play(twin, 50, 80) == play(policy, 50, 80)
    assert shared == before


def test_a_subclass_keeps_its_own_attributes() -> None:
    policy = Labelled("mine")
    play(policy, 0, 10)
    for way in (copy.copy, copy.deepcopy):
        twin = way(policy)
        assert (type(twin), twin.label) == (Labelled, "mine")
        assert twin == policy


class Labelled(wv.Policy):
    """A policy with a constructor of its own."""

    def __init__(self, label: str) -> None:
        super().__init__(3, wv.keep(), wv.thompson(1.0), seed=5)
        self.label = label


@every_maker
def test_equality_sees_every_difference(make: Callable[[int], wv.Chooser]) -> None:
    policy, twin = make(5), make(5)
    assert policy == twin
    assert hash(policy) == hash(twin)
    assert len({policy, twin, make(6)}) == 2
    assert make(6) != policy
    assert policy != "policy"
    choice = policy.choose(ARMS[0])
    assert policy != twin  # another round
    assert twin.choose(ARMS[0]) == choice
    assert policy == twin
    policy.dismiss(choice)
    assert policy != twin  # an open round
    twin.dismiss(choice)
    policy.learn(ARMS[0][0], 1.0)
    assert policy != twin  # an observation
    twin.learn(ARMS[0][0], 1.0)
    assert policy == twin


def test_equality_sees_every_setting() -> None:
    policy = wv.Policy(3, wv.discount(0.9), wv.thompson(1.0), seed=5)
    others = [
        wv.Policy(2, wv.discount(0.9), wv.thompson(1.0), seed=5),
        wv.Policy(3, wv.discount(0.8), wv.thompson(1.0), seed=5),
        wv.Policy(3, wv.discount(0.9), wv.thompson(2.0), seed=5),
        wv.Policy(3, wv.discount(0.9), wv.thompson(1.0), ridge=2.0, seed=5),
        wv.Policy(3, wv.discount(0.9), wv.thompson(1.0), seed=5, floor=0.1),
        wv.GeneralizedPolicy(3, "identity", wv.discount(0.9), seed=5),
    ]
    assert all(policy != other for other in others)


@pytest.mark.parametrize("make", [CHOOSERS["window"], CHOOSERS["adaptive"], CHOOSERS["predictive"]])
def test_room_for_observations_to_come_does_not_count(make: Callable[[int], wv.Chooser]) -> None:
    """learn_many makes room for all observations at once, learn for a few at a time."""
    one, many = make(5), make(5)
    rows = ARMS[:100, 0] / 4
    for row, reward in zip(rows, REWARDS, strict=False):
        one.learn(row, reward)
    for part in (slice(0, 70), slice(70, 100)):
        many.learn_many(rows[part], REWARDS[part])
    assert one == many


@every_memory
def test_a_belief_equals_its_copies_alone(memory: wv.Memory) -> None:
    policy = wv.Policy(3, memory, wv.greedy(), seed=5)
    play(policy, 0, 30)
    belief = policy.belief
    for way in WAYS.values():
        assert way(belief) == belief
        assert hash(way(belief)) == hash(belief)
    policy.learn(ARMS[30][0], 1.0)
    assert policy.belief != belief
    assert belief != "belief"


VALUES = [
    *MEMORIES,
    *EXPLORATIONS,
    *(exploration.law for exploration in EXPLORATIONS if exploration.law),
    wv.confidence(0.05, anytime=True),
    bandits(3, 150, "discount"),
    predictive("window"),
    worlds.world(4, 3, 50, worlds.abrupt([20], flip=0.5), worlds.fixed(), worlds.bernoulli()),
    worlds.world(4, 3, 50, worlds.walk(1.0), worlds.ball(2.0)),
    worlds.world(12, 5, 50, worlds.periodic(20), worlds.routes(3, 3)),
    worlds.world(2, 2, 50, worlds.rotation(1.0), worlds.pools(np.eye(2)), worlds.poisson()),
    worlds.abrupt([3], to=[[1.0, 2.0]]),
]


@every_way
@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_a_value_equals_its_copies(value: object, way: Callable[[Any], Any]) -> None:
    twin = way(value)
    assert twin == value
    assert hash(twin) == hash(value)
    assert repr(twin) == repr(value)


@every_way
def test_a_copied_world_draws_the_same(way: Callable[[Any], Any]) -> None:
    world = worlds.world(3, 4, 50, worlds.walk(1.0), worlds.fixed(np.eye(4)[:, :3]))
    first, second = world.draw(1), way(world).draw(1)
    for one, other in zip(first, way(second), strict=True):
        np.testing.assert_array_equal(one, other)


ACTION_SETS = [
    sets.ball(3, 2.0, [1.0, 0.0, 0.0]),
    sets.ellipsoid(np.diag([1.0, 2.0, 3.0])),
    sets.box([0, 0, 0], [1, 2, 3]),
    sets.simplex(3),
    sets.polytope(np.vstack([np.eye(3), -np.eye(3)]), np.ones(6)),
    sets.oracle(np.sign, 3),
    sets.subsets(ARMS[0], 2),
    sets.paths([(0, 1), (1, 2), (0, 2)], 0, 2),
    sets.assignments(ARMS[:2]),
]


@every_way
@pytest.mark.parametrize("actions", ACTION_SETS, ids=repr)
def test_a_copied_action_set_has_the_same_best_action(
    actions: sets.ActionSet, way: Callable[[Any], Any]
) -> None:
    theta = [-0.3, 0.5, 0.7]
    best, other = actions.best(theta), way(actions).best(theta)
    np.testing.assert_array_equal(best.features, other.features)
    assert best.action == other.action
    assert repr(way(actions)) == repr(actions)


@every_way
def test_copied_prepared_arms_are_chosen_from_alike(way: Callable[[Any], Any]) -> None:
    rows = np.random.default_rng(3).standard_normal((5000, 3))
    arms = sets.finite(rows)
    policy = wv.Policy(3, wv.keep(), wv.thompson(1.0), seed=5)
    twin = way(policy)
    assert [policy.choose(arms) for _ in range(5)] == [twin.choose(way(arms)) for _ in range(5)]


def test_choices_are_equal_if_all_of_them_is_equal() -> None:
    policy = wv.Policy(3, wv.keep(), wv.thompson(1.0), seed=5)
    choice, later = policy.choose(ARMS[0]), policy.choose(ARMS[0])
    from_ball = wv.Policy(3, wv.keep(), wv.greedy(), seed=5).choose(sets.ball(3))
    assert len({choice, later, from_ball, copy.copy(choice), copy.deepcopy(later)}) == 3
    assert choice != later
    assert choice != from_ball
    assert choice != "choice"
    for way in WAYS.values():
        assert way(choice) == choice
        assert way(from_ball) == from_ball


def test_every_error_can_be_pickled() -> None:
    for kind in (SettingError, ArmsError, FileError):
        assert str(pickle.loads(pickle.dumps(kind("a message")))) == "a message"
    error = pickle.loads(pickle.dumps(StoreError("the disk is full", "full")))
    assert (str(error), error.kind) == ("the disk is full", "full")


@row_and_column_of_each_belief
def test_the_repr_of_a_policy_makes_it_again(
    belief: str, memory: wv.Memory, exploration: wv.Exploration
) -> None:
    check_repr(wv.Policy(3, memory, exploration, 0.7, 5, 0.05, belief))


@every_maker
def test_the_repr_of_every_chooser_makes_it_again(make: Callable[[int], wv.Chooser]) -> None:
    check_repr(make(5))


def check_repr(policy: wv.Chooser) -> None:
    """The text, run after `from windvane import *`, makes a policy with the same settings.

    Adaptive policies also name two types of their room.
    """
    names = {name: getattr(wv, name) for name in wv.__all__}
    names |= {"Adaptive": Adaptive, "Adaptation": Adaptation}
    again = eval(repr(policy), names)
    assert type(again) is type(policy)
    assert again.export_settings() == policy.export_settings()
    assert repr(again) == repr(policy)
    again.key = policy.key  # a repr does not tell the seed
    assert again == policy
