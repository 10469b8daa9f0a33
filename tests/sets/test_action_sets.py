"""Action sets: every oracle against a naive enumeration, and every pair that may use them."""

import math
from collections.abc import Callable, Iterator
from itertools import combinations, permutations, product
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

import windvane as wv
from grid import MEMORIES, SAMPLED, Floats, contents
from windvane import sets
from windvane.errors import ArmsError, ChoiceError, SettingError
from windvane.sets import ActionSet

Edges = list[tuple[int, int]]
FREE = [wv.greedy(), *SAMPLED]  # explorations that need no widths
every_free = pytest.mark.parametrize("exploration", FREE, ids=repr)


def normals(seed: int, *shape: int) -> Floats:
    return np.random.default_rng(seed).standard_normal(shape)


# What is in a set, by listing it.


def listed_subsets(items: Floats, size: int) -> dict[tuple[int, ...], Floats]:
    """Every subset with the sum of its items."""
    return {c: np.sum([items[i] for i in c], axis=0) for c in combinations(range(len(items)), size)}


def walks(edges: Edges, node: int, target: int, seen: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Every path that visits no node twice, as indices of edges."""
    if node == target:
        yield ()
        return
    for e, (here, there) in enumerate(edges):
        if here == node and there not in (*seen, node):
            for rest in walks(edges, there, target, (*seen, node)):
                yield (e, *rest)


def listed_paths(
    edges: Edges, source: int, target: int, features: Floats
) -> dict[tuple[int, ...], Floats]:
    """Every simple path with the sum of its edges."""
    found = walks(edges, source, target, ())
    return {path: np.sum([features[e] for e in path], axis=0) for path in found}


def listed_assignments(pairs: Floats) -> dict[tuple[int, ...], Floats]:
    """Every way to give each row a column of its own."""
    rows, columns = pairs.shape[:2]
    return {
        c: np.sum([pairs[i, j] for i, j in enumerate(c)], axis=0)
        for c in permutations(range(columns), rows)
    }


def corners(A: Floats, b: Floats) -> Floats:
    """Every point at which d limits meet and the others hold."""
    found = []
    for rows in map(list, combinations(range(len(A)), A.shape[1])):
        if abs(np.linalg.det(A[rows])) > 1e-9:
            point = np.linalg.solve(A[rows], b[rows])
            if (A @ point <= b + 1e-9).all():
                found.append(point)
    return np.array(found)


FORWARD: Edges = [
    *((0, 3), (0, 1), (3, 1), (1, 4), (3, 4), (4, 2), (1, 2), (0, 2), (3, 4), (4, 2)),
    *((5, 4), (1, 6), (2, 7), (8, 9)),  # lead to or from nowhere
]
STREETS: Edges = [
    (3 * row + column, 3 * r + c)
    for row, column in product(range(3), repeat=2)
    for r, c in product(range(3), repeat=2)
    if abs(row - r) + abs(column - c) == 1
]  # both ways between neighbours
ITEMS, PAIRS = normals(1, 7, 4), normals(2, 3, 5, 4)
LENGTHS, WAYS = normals(3, len(FORWARD), 4), normals(4, len(STREETS), 4)
LIMITS = (np.vstack([normals(5, 12, 3), np.eye(3), -np.eye(3)]), np.full(18, 2.0))
SHAPE = normals(6, 4, 4) @ normals(6, 4, 4).T + 0.1 * np.eye(4)
CENTRE = normals(7, 4)

PARTS: list[tuple[ActionSet, dict[tuple[int, ...], Floats]]] = [
    (sets.subsets(ITEMS, 1), listed_subsets(ITEMS, 1)),
    (sets.subsets(ITEMS, 3), listed_subsets(ITEMS, 3)),
    (sets.subsets(ITEMS, 7), listed_subsets(ITEMS, 7)),
    (sets.paths(FORWARD, 0, 2, LENGTHS), listed_paths(FORWARD, 0, 2, LENGTHS)),
    (sets.paths(FORWARD, 0, 2), listed_paths(FORWARD, 0, 2, np.eye(14))),
    (sets.paths(FORWARD, 3, 4), listed_paths(FORWARD, 3, 4, np.eye(14))),
    (sets.assignments(PAIRS), listed_assignments(PAIRS)),
    (sets.assignments((3, 4)), listed_assignments(np.eye(12).reshape(3, 4, 12))),
]
BOX = np.array([[-1.0, 2.0], [0.5, 0.75], [-3.0, -3.0], [0.0, 1.0]])  # (low, high) a row
POINTS: list[tuple[ActionSet, Floats]] = [
    (sets.box(*BOX.T), np.array(list(product(*BOX)))),
    (sets.simplex(5, 2.0), 2.0 * np.eye(5)),
    (sets.polytope(*LIMITS), corners(*LIMITS)),
]
ALL = [each for each, _ in PARTS] + [each for each, _ in POINTS]
ALL += [sets.ball(4), sets.ball(3, 2.5, [1, 0, -1]), sets.ellipsoid(SHAPE, CENTRE)]
SETS = [repr(each) for each in ALL]
every_set = pytest.mark.parametrize("actions", ALL, ids=repr)


@pytest.mark.parametrize(("actions", "listed"), PARTS, ids=SETS[: len(PARTS)])
def test_parts_are_the_best_of_all_listed(
    actions: ActionSet, listed: dict[tuple[int, ...], Floats]
) -> None:
    """The very action that is on top, over random θ of either sign."""
    for theta in normals(8, 200, actions.dim):
        gains = {action: float(x @ theta) for action, x in listed.items()}
        best = actions.best(theta)
        assert best.action in gains
        np.testing.assert_allclose(best.features, listed[best.action], atol=1e-12)
        assert gains[best.action] == pytest.approx(max(gains.values()), abs=1e-9)


@pytest.mark.parametrize(("actions", "listed"), POINTS, ids=SETS[len(PARTS) :][:3])
def test_points_are_the_best_of_all_corners(actions: ActionSet, listed: Floats) -> None:
    for theta in normals(9, 60, actions.dim):
        best = actions.best(theta)
        assert best.action is None
        assert best.features @ theta == pytest.approx((listed @ theta).max(), abs=1e-6)
        assert np.abs(listed - best.features).max(axis=1).min() < 1e-6


@pytest.mark.parametrize(
    ("actions", "centre", "root"),
    [
        (sets.ball(4), np.zeros(4), np.eye(4)),
        (sets.ball(3, 2.5, [1, 0, -1]), np.array([1.0, 0, -1]), 2.5 * np.eye(3)),
        (sets.ellipsoid(SHAPE, CENTRE), CENTRE, np.linalg.cholesky(SHAPE)),
    ],
    ids=SETS[-3:],
)
def test_balls_and_ellipsoids_give_the_touching_point(
    actions: ActionSet, centre: Floats, root: Floats
) -> None:
    """It lies on the edge, its normal there is θ, and no point inside earns more."""
    inside = normals(10, 2000, actions.dim)
    inside /= np.maximum(1.0, np.linalg.norm(inside, axis=1, keepdims=True))
    for theta in normals(11, 60, actions.dim):
        u = np.linalg.solve(root, actions.best(theta).features - centre)
        assert np.linalg.norm(u) == pytest.approx(1.0, abs=1e-9)
        normal = np.linalg.solve(root.T, u)
        np.testing.assert_allclose(
            normal / np.linalg.norm(normal), theta / np.linalg.norm(theta), atol=1e-9
        )
        earned = actions.best(theta).features @ theta
        assert earned >= ((centre + inside @ root.T) @ theta).max() - 1e-12


@every_set
@pytest.mark.parametrize("scale", [1e-200, 1e-9, 1e9, 1e90])
def test_only_the_direction_of_theta_counts(actions: ActionSet, scale: float) -> None:
    for theta in normals(12, 5, actions.dim):
        same = actions.best(theta), actions.best(scale * theta)
        np.testing.assert_allclose(same[0].features, same[1].features, rtol=1e-9, atol=1e-7)


@every_set
def test_theta_of_nothing_still_gives_an_action_to_learn_from(actions: ActionSet) -> None:
    best = actions.best(np.zeros(actions.dim))
    assert best.features.any()
    assert np.isfinite(best.features).all()


def test_where_edges_lead_round_costs_are_still_met_by_the_best_path() -> None:
    """Also where single edges pay, as long as no round trip does."""
    listed = listed_paths(STREETS, 0, 8, np.eye(24))
    height = normals(13, 9)  # a climb that is undone on the way back
    climb = np.array([height[there] - height[here] for here, there in STREETS])
    routes, paying = sets.paths(STREETS, 0, 8), 0
    for cost in np.random.default_rng(14).random((300, 24)):
        theta = climb - 0.5 * cost
        paying += bool((theta > 0).any())
        best = routes.best(theta)
        assert best.action in listed
        top = max(float(x @ theta) for x in listed.values())
        assert best.features @ theta == pytest.approx(top, abs=1e-9)
    assert paying > 250


def test_where_a_round_trip_pays_no_edge_counts_more_than_nothing() -> None:
    """Always a path from source to target that visits no node twice."""
    listed = listed_paths(STREETS, 0, 8, WAYS)
    routes, identity = sets.paths(STREETS, 0, 8, WAYS), sets.paths(STREETS, 0, 8)
    for theta in normals(15, 300, 4):
        assert routes.best(theta).action in listed
        gains = WAYS @ theta
        cut = {path: float(np.minimum(gains[list(path)], 0).sum()) for path in listed}
        found = identity.best(gains).action
        assert found is not None
        assert cut[found] == pytest.approx(max(cut.values()), abs=1e-9)


def test_round_trips_that_gain_only_by_rounding_do_no_harm() -> None:
    """Streets that cost as much one way as they pay back the other."""
    listed = listed_paths(STREETS, 0, 8, np.eye(24))
    for height in normals(16, 200, 9):
        climb = np.array([height[there] - height[here] for here, there in STREETS])
        assert sets.paths(STREETS, 0, 8).best(climb).action in listed


def test_an_oracle_is_any_function() -> None:
    actions = sets.oracle(lambda theta: np.sign(theta), 3)
    assert actions.best([2.0, -1.0, 0.0]).features.tolist() == [1, -1, 0]


# Choosing.


def listed_of(actions: ActionSet) -> Floats:
    return np.array(next(list(x.values()) for each, x in PARTS if each is actions))


CHOSEN = [PARTS[1][0], PARTS[3][0], PARTS[4][0], PARTS[6][0]]


@pytest.mark.parametrize("actions", CHOSEN, ids=repr)
@pytest.mark.parametrize(
    ("memory", "exploration"),
    [
        *((memory, wv.thompson(0.6)) for memory in MEMORIES),
        *((wv.discount(0.9), exploration) for exploration in FREE),
    ],
    ids=repr,
)
def test_a_set_is_chosen_from_as_if_it_were_listed(
    actions: ActionSet, memory: wv.Memory, exploration: wv.Exploration
) -> None:
    """The same seed and the same past give the same action, through every restart."""
    rows, random = listed_of(actions), np.random.default_rng(17)
    one, two = (wv.Policy(actions.dim, memory, exploration, seed=4) for _ in range(2))
    compared = 0
    for _ in range(60):
        chosen, expected = two.choose(actions), one.choose(rows)
        if exploration.name == "thompson" or one.theta.any():  # else all are equal
            np.testing.assert_allclose(chosen.features, expected.features, atol=1e-12)
            compared += 1
        x, y = random.standard_normal(actions.dim), random.random()
        one.learn(x, y)
        two.learn(x, y)
    assert compared >= 56


def test_a_choice_says_what_was_chosen() -> None:
    policy = wv.Policy(4, wv.keep(), wv.greedy())
    policy.learn([1.0, 0, 0, 0], 1.0)
    choice = policy.choose(sets.subsets(np.eye(4), 1))
    assert (choice.index, choice.action, choice.features.tolist()) == (-1, (0,), [1, 0, 0, 0])
    assert repr(choice) == "Choice(action=(0,), round=0)"
    assert policy.choose(sets.ball(4)).action is None
    assert policy.choose(np.eye(4)).action is None


@every_free
def test_rewards_are_learned_and_saved_as_ever(exploration: wv.Exploration, tmp_path: Path) -> None:
    """Late and in any order, and a policy that was loaded goes on to the bit."""
    routes = PARTS[4][0]
    policy = wv.Policy(routes.dim, wv.discount(0.95), exploration, seed=2)
    waiting = [policy.choose(routes) for _ in range(6)]
    for choice in waiting[3:]:
        policy.learn(choice, -choice.features.sum())
    policy.save(tmp_path / "it.npz")
    again = wv.Policy.load(tmp_path / "it.npz")
    for each in (policy, again):
        for choice in waiting[:3]:
            each.learn(choice, -choice.features.sum())
        for _ in range(20):
            choice = each.choose(routes)
            each.learn(choice, -choice.features.sum())
    assert contents(policy, tmp_path) == contents(again, tmp_path)
    assert policy.belief.seen == 26
    with pytest.raises(ChoiceError, match="learned or dismissed already"):
        policy.learn(waiting[0], 0.0)


def test_thompson_finds_the_best_of_a_ball() -> None:
    theta = np.array([0.6, -0.8, 0.0])
    policy, ball = wv.Policy(3, wv.discount(0.99), wv.thompson(0.1), seed=1), sets.ball(3)
    late = []
    for _ in range(400):
        choice = policy.choose(ball)
        policy.learn(choice, float(choice.features @ theta))
        late.append(float(choice.features @ theta))
    assert np.mean(late[300:]) > 0.95


# Mistakes.

ROOM = sets.ball(3)
UNIFORM = "epsilon and a floor choose an action uniformly at random,"
WIDE = "needs the width of every action, .* cannot be listed; .*greedy.*thompson.*perturbed_history"


@pytest.mark.parametrize(
    ("exploration", "floor", "message"),
    [
        (wv.optimism(1.0), 0.0, r"choose: optimism\(1.0\) " + WIDE),
        (wv.optimism(wv.confidence()), 0.0, WIDE),
        (wv.randomized(wv.normal(1.0)), 0.0, r"choose: randomized\(normal\(1.0\)\) " + WIDE),
        (wv.epsilon(0.1), 0.0, f"{UNIFORM} .* needs a list"),
        (wv.thompson(1.0), 0.1, f"{UNIFORM} .* with floor=0"),
    ],
    ids=repr,
)
def test_what_needs_a_list_of_actions_says_so(
    exploration: wv.Exploration, floor: float, message: str, tmp_path: Path
) -> None:
    policy = wv.Policy(3, wv.keep(), exploration, floor=floor)
    before = contents(policy, tmp_path)
    with pytest.raises(SettingError, match=message):
        policy.choose(ROOM)
    assert contents(policy, tmp_path) == before


def failing(theta: Floats) -> Floats:
    raise RuntimeError("no road today")


@pytest.mark.parametrize(
    ("actions", "error", "message"),
    [
        (sets.ball(4), ArmsError, "choose: actions must have dim 3, got 4"),
        (sets.oracle(failing, 3), RuntimeError, "no road today"),
        (
            sets.oracle(lambda theta: theta[:2], 3),
            ArmsError,
            "the result of the function must be 3 finite numbers, got",
        ),
        (
            sets.oracle(lambda theta: theta * np.nan, 3),
            ArmsError,
            "the result of the function must be 3 finite numbers",
        ),
        (
            sets.oracle(lambda theta: ["a"] * 3, 3),
            ArmsError,
            "the result of the function must be 3 finite numbers",
        ),
        (sets.oracle(lambda theta: [1e60] * 3, 3), ArmsError, "finite, with norm up to 1e"),
        (sets.ball(3, 1e60), ArmsError, "finite, with norm up to 1e"),
    ],
    ids=str,
)
@pytest.mark.parametrize("rounds", [3, 5])  # in the latter a restart is due
def test_a_set_that_gives_no_action_changes_nothing(
    actions: ActionSet, error: type[Exception], message: str, rounds: int, tmp_path: Path
) -> None:
    policy = wv.Policy(3, wv.restart(5), wv.thompson(1.0), seed=1)
    for _ in range(rounds):
        policy.learn(policy.choose(ROOM), 1.0)
    before = contents(policy, tmp_path)
    with pytest.raises(error, match=message):
        policy.choose(actions)
    assert contents(policy, tmp_path) == before


@pytest.mark.parametrize(
    "ask",
    [
        lambda policy: policy.widths(ROOM),
        lambda policy: policy.propensities(ROOM),
        lambda policy: policy.choose_many([ROOM]),
    ],
)
def test_only_choose_takes_a_set(ask: Callable[[wv.Policy], object]) -> None:
    policy = wv.Policy(3, wv.keep(), wv.thompson(1.0))
    with pytest.raises(ArmsError, match=r"only choose takes an action set; .* got ball\(3, 1.0"):
        ask(policy)
    assert policy.round == 0


NAN = math.nan
ONE_EDGE = [(0, 1)]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: sets.ball(0), "ball: dim must be a whole number >= 1, got 0"),
        (lambda: sets.ball(2, 0.0), "ball: radius must be above 0, got 0.0"),
        (lambda: sets.ball(2, NAN), "ball: radius must be a finite number, got nan"),
        (lambda: sets.ball(2, centre=[1]), "ball: centre must have 2 numbers, got 1"),
        (lambda: sets.ball(2, centre=[1, NAN]), "ball: centre must be a row of finite numbers"),
        (
            lambda: sets.ellipsoid([[1, 2], [2, 1]]),
            "ellipsoid: shape must be a symmetric, positive",
        ),
        (lambda: sets.ellipsoid([[1.0, 0.5], [0.0, 1.0]]), "ellipsoid: shape must be a symmetric"),
        (lambda: sets.ellipsoid([[1, 2]]), "ellipsoid: shape must be a symmetric"),
        (lambda: sets.ellipsoid([[NAN]]), "ellipsoid: shape must be rows of finite numbers"),
        (lambda: sets.box([0, 1], [1, 0]), "box: .* low must not exceed high"),
        (lambda: sets.box([0], [1, 0]), "box: low and high must have one length"),
        (lambda: sets.box([], []), "box: low must be a row of finite numbers, at least one"),
        (lambda: sets.simplex(3, -1.0), "simplex: total must be above 0, got -1.0"),
        (lambda: sets.polytope([[1.0]], [1.0]), "polytope: Ax <= b must be bounded"),
        (lambda: sets.polytope([[1, 0], [-1, 0]], [1, 1]), "polytope: Ax <= b must be bounded"),
        (lambda: sets.polytope([[0.0]], [1.0]), "polytope: Ax <= b must be bounded"),
        (lambda: sets.polytope([[1], [-1]], [-1, -1]), "polytope: no point satisfies Ax <= b"),
        (lambda: sets.polytope([[1], [-1]], [1]), "polytope: b must have 2 numbers, got 1"),
        (
            lambda: sets.polytope([[NAN], [-1.0]], [1, 1]),
            "polytope: A must be rows of finite numbers",
        ),
        (
            lambda: sets.subsets([], 1),
            "subsets: items must be rows of finite numbers, at least one",
        ),
        (lambda: sets.subsets(np.eye(2), 3), "subsets: size must be at most 2, got 3"),
        (lambda: sets.subsets(np.eye(2), 0), "subsets: size must be a whole number >= 1, got 0"),
        (lambda: sets.paths([], 0, 1), "paths: edges must be pairs of whole numbers"),
        (lambda: sets.paths([(0, 1), (1,)], 0, 1), "paths: edges must be pairs of whole numbers"),  # type: ignore[list-item]
        (lambda: sets.paths([(0, 0.5)], 0, 1), "paths: edges must be pairs of whole numbers"),  # type: ignore[list-item]
        (lambda: sets.paths(ONE_EDGE, 1, 0), "paths: no path leads from 1 to 0"),
        (lambda: sets.paths(ONE_EDGE, 0, 7), "paths: no path leads from 0 to 7"),
        (lambda: sets.paths(ONE_EDGE, 0, 0), "paths: source and target must differ, got 0 twice"),
        (lambda: sets.paths(ONE_EDGE, 0, 1, [[1], [2]]), "paths: features must have 1 rows, got 2"),
        (lambda: sets.paths(ONE_EDGE, 0, 1, [[NAN]]), "paths: features must be rows of finite"),
        (lambda: sets.assignments((3, 2)), "assignments: 3 rows need as many columns, got 2"),
        (lambda: sets.assignments([2, 3]), "or a tuple of sizes"),
        (lambda: sets.assignments([[[1], [2, 3]]]), "or a tuple of sizes"),
        (lambda: sets.paths([(0, 1)], 0.5, 1), "paths: source must be a whole number"),  # type: ignore[arg-type]
        (
            lambda: sets.assignments((0, 2)),
            "assignments: a size must be a whole number >= 1, got 0",
        ),
        (lambda: sets.assignments(np.eye(2)), "assignments: pairs must be finite features"),
        (lambda: sets.oracle(3, 2), "oracle: function must be callable, got 3"),  # type: ignore[arg-type]
        (lambda: sets.oracle(failing, 0), "oracle: dim must be a whole number >= 1, got 0"),
    ],
)
def test_a_set_that_cannot_be_is_refused(make: Callable[[], ActionSet], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        make()


@pytest.mark.parametrize("theta", [[1.0, 2.0], [1.0, 2.0, NAN], [[1.0, 2.0, 3.0]], "abc"])
def test_theta_must_fit_its_set(theta: npt.ArrayLike) -> None:
    with pytest.raises(ArmsError, match="best: theta must be 3 finite numbers"):
        sets.ball(3).best(theta)
