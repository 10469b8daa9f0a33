"""DiagonalPolicy: forms of input, what is refused, copies and files, merged and amended beliefs."""

import copy
import io
import math
import pickle
import re
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

import windvane as wv
from grid import EXPLORATIONS, MEMORIES, contents
from windvane import policy_file

DIM = 12
SPARSE_MEMORIES = [m for m in MEMORIES if not (m.kind.keeps_history or m.kind.is_filter)]
SPARSE_EXPLORATIONS = [e for e in EXPLORATIONS if e.kind.needs != "history"]
every_memory = pytest.mark.parametrize("memory", SPARSE_MEMORIES, ids=repr)
every_exploration = pytest.mark.parametrize("exploration", SPARSE_EXPLORATIONS, ids=repr)
RANDOM = np.random.default_rng(71)
DENSE = RANDOM.standard_normal((150, 5, DIM)) * (RANDOM.random((150, 5, DIM)) < 0.3)
REWARDS = np.random.default_rng(72).random(150)


def make_busy(memory: wv.Memory, exploration: wv.Exploration) -> wv.DiagonalPolicy:
    """A policy that has learned in 14 rounds."""
    policy = wv.DiagonalPolicy(DIM, memory, exploration, ridge=0.7, seed=7, floor=0.05)
    play(policy, 0, 14)
    return policy


def play(policy: wv.DiagonalPolicy, start: int, stop: int) -> list[tuple[int, bytes, bytes]]:
    """Rounds in which every third reward comes late, and what could be seen in each of them."""
    trace, late = [], []
    for t in range(start, stop):
        chances = policy.propensities(DENSE[t], samples=7).tobytes()
        choice = policy.choose(DENSE[t])
        if t % 3 == 0:
            late.append((choice, REWARDS[t]))
        else:
            policy.learn(choice, REWARDS[t])
        if t % 10 == 9:
            policy.learn_many([c for c, _ in late], [y for _, y in late])
            late = []
        trace.append((choice.index, policy.theta.tobytes(), chances))
    return trace


FORMS: dict[str, Callable[[Any], Any]] = {
    "list": lambda arms: arms.tolist(),
    "float32": lambda arms: arms.astype(np.float32),
    "columns first": np.asfortranarray,
    "read-only": lambda arms: freeze(arms.copy()),
    "csr_array": sparse.csr_array,
    "csr_matrix": sparse.csr_matrix,
    "csc_array": sparse.csc_array,
    "coo_array": sparse.coo_array,
    "lil_matrix": sparse.lil_matrix,
    "dok_array": sparse.dok_array,
    "bsr_array": sparse.bsr_array,
    "read-only csr": lambda arms: freeze_matrix(sparse.csr_array(arms)),
    "SparseRows": lambda arms: make_rows(sparse.csr_array(arms)),
    "duplicates": lambda arms: double_entries(sparse.csr_array(arms)),
    "reversed": lambda arms: reverse_entries(sparse.csr_array(arms)),
}


def freeze(array: np.ndarray) -> np.ndarray:
    array.flags.writeable = False
    return array


def freeze_matrix(matrix: Any) -> Any:
    for part in (matrix.data, matrix.indices, matrix.indptr):
        freeze(part)
    return matrix


def make_rows(matrix: Any) -> wv.SparseRows:
    return wv.SparseRows(matrix.indices, matrix.data, matrix.indptr[1:])


def double_entries(matrix: Any) -> wv.SparseRows:
    """Every entry as two that sum to it, and an entry that is 0."""
    rows = []
    for k in range(matrix.shape[0]):
        part = slice(matrix.indptr[k], matrix.indptr[k + 1])
        indices, values = matrix.indices[part].tolist(), matrix.data[part].tolist()
        halves = [0.5 * x for x in values]
        rows.append(([*indices, 0, *indices], [*halves, 0.0, *halves]))
    return wv.SparseRows.from_pairs(rows)


def reverse_entries(matrix: Any) -> wv.SparseRows:
    """The entries of each row from the last to the first."""
    parts = [slice(matrix.indptr[k], matrix.indptr[k + 1]) for k in range(matrix.shape[0])]
    return wv.SparseRows.from_pairs(
        [(matrix.indices[part][::-1], matrix.data[part][::-1]) for part in parts]
    )


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_arms_of_every_form_are_the_same_arms(form: Callable[[Any], Any]) -> None:
    """Duplicate indices are summed."""
    dense = DENSE.astype(np.float32).astype(np.float64)
    one, other = (
        wv.DiagonalPolicy(DIM, wv.discount(0.9), wv.thompson(1.0), seed=3) for _ in range(2)
    )
    for t in range(20):
        arms = form(dense[t])
        np.testing.assert_array_equal(one.propensities(dense[t]), other.propensities(arms))
        np.testing.assert_array_equal(one.widths(dense[t]), other.widths(arms))
        first, second = one.choose(dense[t]), other.choose(arms)
        assert first == second
        np.testing.assert_array_equal(second.features, dense[t, first.index])
        one.learn(first, REWARDS[t])
        other.learn(second, REWARDS[t])
    assert one == other


def test_features_of_every_form_are_the_same_features() -> None:
    row = DENSE[3, 1]
    indices = np.flatnonzero(row)
    forms = [
        row,
        row.tolist(),
        (indices, row[indices]),
        (indices[::-1].tolist(), row[indices][::-1].tolist()),
        wv.SparseRow(indices, row[indices]),
        wv.SparseRow(np.tile(indices, 2), np.tile(0.5 * row[indices], 2)),
        sparse.csr_array(row[None]),
        sparse.coo_matrix(row[None]),
    ]
    policies = [wv.DiagonalPolicy(DIM, wv.keep(), wv.greedy(), seed=3) for _ in forms]
    for policy, features in zip(policies, forms, strict=True):
        policy.learn(features, 0.5)
        policy.learn_many([features, features], [0.5, 1.0])
        policy.amend(features, 0.25)
        assert policy == policies[0]
        assert policy.theta.any()


def test_a_pair_of_numbers_is_a_vector() -> None:
    policy = wv.DiagonalPolicy(2, wv.keep(), wv.greedy())
    policy.learn((0.0, 1.0), 1.0)
    np.testing.assert_array_equal(policy.theta, [0.0, 0.5])


def test_nothing_grows_with_the_dimension() -> None:
    """With 2⁶⁰ weights, a choice, a lesson, a file and a copy take what their entries take."""
    play_and_save()  # loads the compiled code
    tracemalloc.start()
    policy = play_and_save()
    assert tracemalloc.get_traced_memory()[1] < 200_000
    tracemalloc.stop()
    assert policy.belief.indices.tolist() == [5, 2**59, 2**60 - 1]


def play_and_save() -> wv.DiagonalPolicy:
    """Use every method whose cost could depend on the dimension."""
    policy = wv.DiagonalPolicy(2**60, wv.half_life(9.0), wv.thompson(1.0), seed=1)
    arms = wv.SparseRows.from_pairs([([5, 2**59], [1.0, 1.0]), ([5, 2**60 - 1], [1.0, -1.0])])
    for _ in range(50):
        choice, chances = policy.choose_with_propensities(arms)
        policy.learn(choice, 1.0)
        assert chances.sum() == pytest.approx(1.0)
    policy.amend(([5], [1.0]), 0.5)
    file = io.BytesIO()
    policy.save(file)
    file.seek(0)
    assert wv.DiagonalPolicy.load(file) == copy.copy(policy) == policy
    return policy


def test_room_grows_with_the_weights_that_were_learned() -> None:
    """Choosing makes no room, and learning at most twice what is needed."""
    policy = wv.DiagonalPolicy(2**22, wv.keep(), wv.greedy(), seed=1)
    random = np.random.default_rng(2)
    for _ in range(100):
        rows = [(random.integers(0, 2**22, 50), np.ones(50)) for _ in range(4)]
        policy.learn(policy.choose(wv.SparseRows.from_pairs(rows)), 1.0)
    learned = policy.belief.indices.size
    assert 4500 < learned <= 5000
    assert policy._weights.indices.size == 8192
    assert policy.theta.shape == (2**22,)


BAD_ARMS: list[tuple[Any, str]] = [
    (np.ones((4, 2)), "arms must have shape (K, 12), got (4, 2)"),
    (sparse.csr_array(np.ones((4, 13))), "arms must have shape (K, 12), got (4, 13)"),
    (sparse.csr_array(np.ones((4, 12)) * 1j), "values must be numbers in one row"),
    (wv.SparseRows([0], [1.0], []), "there must be at least one arm, got none"),
    (wv.SparseRows([0, 12], [1.0, 1.0], [1, 2]), "indices must be from 0 to 11; arm 1 has [12]"),
    (wv.SparseRows([0, -1], [1.0, 1.0], [1, 2]), "indices must be from 0 to 11; arm 1 has [-1]"),
    (wv.SparseRows([0, 1], [1.0], [1, 2]), "one value for each index, got 2 indices and 1 values"),
    (wv.SparseRows([0, 1], [1.0, 2.0], [1]), "ends of rows must rise to the number of entries, 2"),
    (wv.SparseRows([0, 1], [1.0, 2.0], [2, 1]), "ends of rows must rise to the number of entries"),
    (wv.SparseRows([0, 1], [1.0, 2.0], [-1, 2]), "ends of rows must rise to the number of entries"),
    (wv.SparseRows([0, 1], [1.0, 2.0], [1, 3]), "ends of rows must rise to the number of entries"),
    (wv.SparseRows([0.5], [1.0], [1]), "indices must be whole numbers in one row"),
    (wv.SparseRows([[0]], [[1.0]], [1]), "indices must be whole numbers in one row"),
    (wv.SparseRows([0], ["a"], [1]), "values must be numbers in one row"),
    (wv.SparseRows([0, 2], [1.0, math.nan], [1, 2]), "arm 1 has the values [nan]"),
    (wv.SparseRows([0, 2], [1.0, math.inf], [2]), "arm 0 has the values [ 1. inf]"),
    (wv.SparseRows([2, 0], [math.inf, 1.0], [2]), "arms must be finite, with norm up to 1e+50"),
    (wv.SparseRows([0, 0], [1e200, -1e200], [2]), "arms must be finite, with norm up to 1e+50"),
    (wv.simplex(DIM), "DiagonalPolicy needs a list of arms, got simplex"),
]


@pytest.mark.parametrize(("arms", "complaint"), BAD_ARMS, ids=[text for _, text in BAD_ARMS])
def test_arms_that_cannot_be_scored_are_refused_and_change_nothing(
    arms: Any, complaint: str, tmp_path: Path
) -> None:
    policy = make_busy(wv.restart(14), wv.optimism(1.0))  # a restart is due
    before = contents(policy, tmp_path)
    for ask in (
        policy.choose,
        policy.propensities,
        policy.widths,
        policy.choose_with_propensities,
        lambda bad: policy.choose_many([DENSE[0], bad]),
    ):
        with pytest.raises(wv.ArmsError, match=re.escape(complaint)):
            ask(arms)
    assert contents(policy, tmp_path) == before


BAD_FEATURES: list[tuple[Any, str]] = [
    (np.ones(3), "features must have shape (12,), got (3,)"),
    (np.ones((1, 12)), "features must have shape (12,), got (1, 12)"),
    (sparse.csr_array(np.ones((2, 12))), "features must be one row, got 2"),
    (([0, 12], [1.0, 1.0]), "indices must be from 0 to 11; its row has [ 0 12]"),
    (([0, 1], [1.0, math.nan]), "features must be finite, with norm up to 1e+50; its row has"),
    (([0, 1], [1.0]), "one value for each index"),
    (([3], [1e7]), "the squared features of a row must sum to at most 1e+13 times the ridge (0.7)"),
]


@pytest.mark.parametrize("memory", [wv.keep(), wv.half_life(3.0)], ids=repr)
def test_features_and_rewards_that_cannot_be_learned_are_refused_and_change_nothing(
    memory: wv.Memory, tmp_path: Path
) -> None:
    """Also as the last of many."""
    policy = make_busy(memory, wv.thompson(1.0))
    choice = policy.choose(DENSE[20])
    before = contents(policy, tmp_path)
    for features, complaint in BAD_FEATURES:
        with pytest.raises(wv.ArmsError, match=re.escape(complaint)):
            policy.learn(features, 1.0)
        with pytest.raises(wv.ArmsError, match=re.escape(complaint)):
            policy.learn_many([choice, features], [1.0, 1.0])
        with pytest.raises(wv.ArmsError, match=re.escape(complaint)):
            policy.amend(features, 1.0)
    for reward in (math.nan, math.inf, None, "1"):
        with pytest.raises(wv.RewardError, match="the reward must be a finite number"):
            policy.learn(choice, reward)  # type: ignore[arg-type]
        with pytest.raises(wv.RewardError, match="the reward must be a finite number"):
            policy.learn_many([choice], [reward])  # type: ignore[list-item]
    with pytest.raises(wv.SettingError, match="at must be a finite number"):
        policy.learn(choice, 1.0, at=math.nan)
    with pytest.raises(wv.SettingError, match="samples must be a whole number >= 1, got 0"):
        policy.propensities(DENSE[0], samples=0)
    with pytest.raises(wv.ArmsError, match="chosen must be below 5, got 5"):
        policy.propensities(DENSE[0], chosen=5)
    assert contents(policy, tmp_path) == before


def test_a_choice_is_learned_once_and_only_by_its_policy(tmp_path: Path) -> None:
    policy, other = make_busy(wv.keep(), wv.greedy()), make_busy(wv.keep(), wv.greedy())
    other.key += 1
    wider = wv.DiagonalPolicy(DIM + 1, wv.keep(), wv.greedy(), seed=7)
    choice, foreign = policy.choose(DENSE[20]), other.choose(DENSE[20])
    for _ in range(choice.round + 1):
        wide = wider.choose(np.ones((1, DIM + 1)))
    policy.learn(choice, 1.0)
    dismissed = policy.choose(DENSE[21])
    policy.dismiss(dismissed)
    before = contents(policy, tmp_path)
    for bad, complaint in (
        (choice, "was learned already"),
        (dismissed, "was learned already"),
        (foreign, "was made by another policy"),
        (wide, "was learned already|was made by another policy"),
    ):
        with pytest.raises(wv.ChoiceError, match=complaint):
            policy.learn(bad, 1.0)
        with pytest.raises(wv.ChoiceError, match=complaint):
            policy.learn_many([bad], [1.0])
    assert contents(policy, tmp_path) == before
    policy.learn(foreign.features, 1.0)


def test_a_choice_keeps_the_entries_of_its_row_alone() -> None:
    policy = wv.DiagonalPolicy(2**22, wv.keep(), wv.greedy(), seed=1)
    choice = policy.choose(wv.SparseRows.from_pairs([([9, 2**21], [1.0, 2.0])]))
    assert repr(choice) == "Choice(index=0, round=0)"
    assert len(pickle.dumps(choice)) < 1000
    assert np.flatnonzero(choice.features).tolist() == [9, 2**21]
    assert pickle.loads(pickle.dumps(choice)) == copy.deepcopy(choice) == choice
    other = policy.choose(wv.SparseRows.from_pairs([([9, 2**21], [1.0, 3.0])]))
    assert other != choice
    assert choice != "choice"


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (
            lambda: wv.DiagonalPolicy(3, wv.window(9), wv.greedy()),
            "DiagonalPolicy: memory must be one of keep, discount, half_life, restart, restart_at, "
            "detect, got window(9)",
        ),
        (
            lambda: wv.DiagonalPolicy(3, wv.kalman(0.9), wv.greedy()),
            "DiagonalPolicy: memory must be one of keep, discount, half_life, restart, restart_at, "
            "detect, got kalman(0.9, 1.0)",
        ),
        (
            lambda: wv.DiagonalPolicy(3, wv.keep(), wv.perturbed_history(1.0)),
            "DiagonalPolicy: exploration must be one of greedy, epsilon, inverse_gap, optimism, "
            "randomized, thompson, got perturbed_history(1.0)",
        ),
        (lambda: wv.DiagonalPolicy(0, "keep()", "greedy()"), "DiagonalPolicy: dim must be"),
        (
            lambda: wv.DiagonalPolicy(3, "keep()", "greedy()", ridge=0.0),
            "DiagonalPolicy: ridge must be above 0, got 0.0",
        ),
        (
            lambda: wv.DiagonalPolicy(3, "keep()", "greedy()", floor=2.0),
            "DiagonalPolicy: floor must lie in [0, 1], got 2.0",
        ),
        (
            lambda: make_busy(wv.discount(0.9), wv.greedy()).amend(DENSE[0, 0], 1.0),
            "amend: only keep and half_life know the weight of an old observation",
        ),
    ],
)
def test_settings_that_do_not_fit_are_refused(make: Callable[[], object], complaint: str) -> None:
    with pytest.raises(wv.SettingError, match=re.escape(complaint)):
        make()


@every_memory
@every_exploration
def test_going_on_after_a_load_equals_never_having_stopped(
    memory: wv.Memory, exploration: wv.Exploration, tmp_path: Path
) -> None:
    """Choices, estimates and propensities to the last bit, with choices open when it was saved."""
    policy = wv.DiagonalPolicy(DIM, memory, exploration, ridge=0.7, seed=5, floor=0.05)
    play(policy, 0, 40)
    waiting = [policy.choose(DENSE[t]) for t in range(40, 45)]
    policy.save(tmp_path / "policy.npz")
    twins = [wv.DiagonalPolicy.load(tmp_path / "policy.npz"), copy.copy(policy)]
    twins.append(pickle.loads(pickle.dumps(policy)))
    names = {name: getattr(wv, name) for name in wv.__all__}
    assert repr(eval(repr(policy), names)) == repr(policy)
    for each in (policy, *twins):
        for choice in reversed(waiting):
            each.learn(choice, 0.25)
    expected = play(policy, 45, 80)
    for twin in twins:
        assert play(twin, 45, 80) == expected
        assert twin == policy
        assert contents(twin, tmp_path) == contents(policy, tmp_path)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda header, arrays: arrays.update(indices=arrays["indices"] + 9), "out of bounds"),
        (lambda header, arrays: arrays["indices"].fill(3), "it has a weight twice"),
        (lambda header, arrays: arrays.update(sums=arrays["sums"][1:]), "different lengths"),
        (lambda header, arrays: arrays.update(squares=np.zeros(0)), "different lengths"),
        (lambda header, arrays: arrays.update(sums=arrays["sums"][:, 0]), "have shape"),
        (lambda header, arrays: arrays["sums"].fill(math.nan), "not finite"),
        (lambda header, arrays: arrays["sums"].fill(-1.0), "a negative precision"),
        (lambda header, arrays: arrays["squares"].fill(-1.0), "a negative precision"),
        (lambda header, arrays: arrays["fade"].fill(0.0), "out of bounds"),
        (lambda header, arrays: arrays["counters"].fill(1), "another number of weights"),
        (lambda header, arrays: header["tally"].update(seen=-1), "counters are out of bounds"),
        (lambda header, arrays: header.update(dim=0), "dim must be a whole number"),
        (lambda header, arrays: arrays.pop("fade"), "fade"),
    ],
)
def test_a_file_that_does_not_fit_together_is_refused(
    change: Callable[[Any, Any], object], complaint: str, tmp_path: Path
) -> None:
    """Even if its checksum is right."""
    path = tmp_path / "policy.npz"
    make_busy(wv.discount(0.9), wv.greedy()).save(path)
    header, arrays = policy_file.read(path, "DiagonalPolicy")
    change(header, arrays)
    for name in ("format", "version"):
        header.pop(name)
    policy_file.write(path, header, arrays, "DiagonalPolicy")
    with pytest.raises(wv.FileError, match=complaint):
        wv.DiagonalPolicy.load(path)


def test_another_kind_of_policy_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "policy.npz"
    make_busy(wv.keep(), wv.greedy()).save(path)
    with pytest.raises(wv.FileError, match="holds a DiagonalPolicy, not a Policy"):
        wv.Policy.load(path)


MERGEABLE = [m for m in SPARSE_MEMORIES if m.kind.mergeable]
every_mergeable = pytest.mark.parametrize("memory", MERGEABLE, ids=repr)


def learn_all(memory: wv.Memory, lessons: list[tuple[Any, float, float]]) -> wv.DiagonalPolicy:
    policy = wv.DiagonalPolicy(DIM, memory, wv.optimism(1.0), ridge=0.7, seed=1)
    for features, reward, at in lessons:
        policy.learn(features, reward, at)
    return policy


def check_merge(memory: wv.Memory, older: list[Any], newer: list[Any]) -> None:
    """The merged belief is that of one policy, and a policy that gets it goes on like that one."""
    whole = learn_all(memory, [*older, *newer])
    part = learn_all(memory, older)
    merged = part.belief.merge(learn_all(memory, newer).belief)
    for name in ("indices", "precision", "noise_precision", "moment", "seen", "clock", "held"):
        np.testing.assert_allclose(getattr(merged, name), getattr(whole.belief, name), atol=1e-12)
    part.belief = merged
    assert part.belief == merged
    for policy in (part, whole):
        policy.learn(DENSE[7, 0], 0.3, at=40.0)
    np.testing.assert_allclose(part.theta, whole.theta, atol=1e-12)
    np.testing.assert_allclose(part.widths(DENSE[8]), whole.widths(DENSE[8]), atol=1e-12)


@every_mergeable
def test_beliefs_of_different_weights_are_merged_exactly(memory: wv.Memory) -> None:
    older = [(([t % 3, 3 + t % 3], [1.0, 0.5]), REWARDS[t], float(t)) for t in range(20)]
    newer = [(([6 + t % 3, 9 + t % 3], [0.3, -1.0]), REWARDS[t], float(t)) for t in range(20, 30)]
    check_merge(memory, older, newer)
    check_merge(memory, older, [])
    check_merge(memory, [], newer)


@every_mergeable
def test_beliefs_of_rows_of_one_entry_are_merged_exactly(memory: wv.Memory) -> None:
    lessons = [(([t % 5], [0.4 + t % 3]), REWARDS[t], float(t)) for t in range(30)]
    check_merge(memory, lessons[:20], lessons[20:])


def test_beliefs_that_cannot_be_merged_exactly_are_refused() -> None:
    long = learn_all(wv.keep(), [(([1, 2], [1.0, 1.0]), 1.0, 0.0)])
    short = learn_all(wv.keep(), [(([2], [1.0]), 1.0, 0.0)])
    for one, other in ((long, short), (short, long), (long, long)):
        with pytest.raises(wv.BeliefError, match="only if every row had one entry; both learned"):
            one.belief.merge(other.belief)
    restarting = learn_all(wv.restart(9), [])
    with pytest.raises(wv.BeliefError, match="only beliefs of keep, discount, half_life"):
        restarting.belief.merge(restarting.belief)
    with pytest.raises(wv.BeliefError, match="memory, ridge and dim must be the same"):
        long.belief.merge(learn_all(wv.discount(0.9), []).belief)
    with pytest.raises(wv.BeliefError, match="memory, ridge and dim of this policy are"):
        long.belief = learn_all(wv.discount(0.9), []).belief


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"precision": np.array([-1.0, 0.0])}, "precisions must not be negative"),
        ({"moment": np.array([math.nan, 0.0])}, "sums must be finite"),
        ({"moment": np.zeros(3)}, "must have one length"),
        ({"indices": np.array([2, 1])}, "indices must rise"),
        ({"indices": np.array([2, DIM])}, "indices must rise and lie between 0 and 11"),
        ({"seen": -1}, "the count at least 0"),
    ],
)
def test_a_belief_that_no_policy_can_have_is_refused(
    change: dict[str, Any], complaint: str, tmp_path: Path
) -> None:
    policy = learn_all(wv.keep(), [(([1, 2], [1.0, 1.0]), 1.0, 0.0)])
    before = contents(policy, tmp_path)
    belief = type(policy.belief)(**{**vars(policy.belief), **change})
    with pytest.raises(wv.BeliefError, match=complaint):
        policy.belief = belief
    assert contents(policy, tmp_path) == before


@pytest.mark.parametrize("memory", [wv.keep(), wv.half_life(4.0)], ids=repr)
def test_a_reward_in_parts_equals_a_whole_reward_for_rows_of_one_entry(memory: wv.Memory) -> None:
    row = ([3], [0.7])
    between = [(([t % 5], [1.0]), REWARDS[t], float(t)) for t in range(6)]
    whole = learn_all(memory, [(row, 1.0, 2.0), *between])
    parts = learn_all(memory, [(row, 0.4, 2.0), *between])
    parts.amend(row, 0.6, at=2.0)
    np.testing.assert_allclose(parts.theta, whole.theta, atol=1e-14)


def test_a_reward_in_parts_is_close_for_long_rows() -> None:
    """It moves every mean in the right direction, and by half to twice as much."""
    row = ([1, 3, 5], [1.0, -0.5, 0.5])
    whole = learn_all(wv.keep(), [(row, 1.0, 0.0), (([1, 2], [1.0, 1.0]), 0.5, 0.0)])
    parts = learn_all(wv.keep(), [(row, 0.0, 0.0), (([1, 2], [1.0, 1.0]), 0.5, 0.0)])
    before = parts.theta
    parts.amend(row, 1.0)
    moved, wanted = (parts.theta - before)[[1, 3, 5]], (whole.theta - before)[[1, 3, 5]]
    assert ((moved / wanted > 0.5) & (moved / wanted < 2.0)).all()
