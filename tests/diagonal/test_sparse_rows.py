"""Arms and features of a diagonal belief: their forms, and what is refused."""

import copy
import math
import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

import windvane as wv
from diagonal_game import DENSE, DIM, REWARDS, make_busy, make_diagonal
from grid import contents
from windvane import sets
from windvane.errors import ArmsError, RewardError, SettingError

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
    "SparseRows": lambda arms: make_rows(arms, lambda entries: entries),
    "two for each entry, and a 0": lambda arms: make_rows(
        arms,
        lambda entries: [
            *((i, x / 2) for i, x in entries),
            (0, 0.0),
            *((i, x / 2) for i, x in entries),
        ],
    ),
    "reversed": lambda arms: make_rows(arms, lambda entries: entries[::-1]),
}
Entries = list[tuple[int, float]]


def freeze(array: np.ndarray) -> np.ndarray:
    array.flags.writeable = False
    return array


def freeze_matrix(matrix: Any) -> Any:
    for part in (matrix.data, matrix.indices, matrix.indptr):
        freeze(part)
    return matrix


def make_rows(arms: np.ndarray, change: Callable[[Entries], Entries]) -> wv.SparseRows:
    """Rows with the entries of the arms that are not 0, as `change` lists them."""
    rows = [change([(i, float(row[i])) for i in np.flatnonzero(row).tolist()]) for row in arms]
    return wv.SparseRows.from_pairs([([i for i, _ in row], [x for _, x in row]) for row in rows])


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_arms_of_every_form_are_the_same_arms(form: Callable[[Any], Any]) -> None:
    """Duplicate indices are summed."""
    dense = DENSE.astype(np.float32).astype(np.float64)
    one, other = (make_diagonal(DIM, wv.discount(0.9), wv.thompson(1.0), seed=3) for _ in range(2))
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
    policies = [make_diagonal(DIM, wv.keep(), wv.greedy(), seed=3) for _ in forms]
    for policy, features in zip(policies, forms, strict=True):
        policy.learn(features, 0.5)
        policy.learn_many([features, features], [0.5, 1.0])
        policy.amend(features, 0.25)
        assert policy == policies[0]
        assert policy.theta.any()


def test_a_pair_of_numbers_is_a_vector() -> None:
    policy = make_diagonal(2, wv.keep(), wv.greedy())
    policy.learn((0.0, 1.0), 1.0)
    np.testing.assert_array_equal(policy.theta, [0.0, 0.5])


BAD_ARMS: list[tuple[Any, str]] = [
    (np.ones((4, 2)), "arms must have shape (K, 12), one row for each arm, got (4, 2)"),
    (
        sparse.csr_array(np.ones((4, 13))),
        "arms must have shape (K, 12), one row for each arm, got (4, 13)",
    ),
    (sparse.csr_array(np.ones((4, 12)) * 1j), "values must be numbers in one row"),
    (wv.SparseRows([0], [1.0], []), "there must be at least one arm, got none"),
    (wv.SparseRows([0, 12], [1.0, 1.0], [1, 2]), "indices must be from 0 to 11; arm 1 has [12]"),
    (wv.SparseRows([0, -1], [1.0, 1.0], [1, 2]), "indices must be from 0 to 11; arm 1 has [-1]"),
    (wv.SparseRows([0, 1], [1.0], [1, 2]), "one value for each index, got 2 indices and 1 values"),
    *(
        (
            wv.SparseRows([0, 1], [1.0, 2.0], ends),
            "ends of rows must rise to the number of entries, 2",
        )
        for ends in ([1], [2, 1], [-1, 2], [1, 3])
    ),
    (wv.SparseRows([0.5], [1.0], [1]), "indices must be whole numbers in one row"),
    (wv.SparseRows([[0]], [[1.0]], [1]), "indices must be whole numbers in one row"),
    (wv.SparseRows([0], ["a"], [1]), "values must be numbers in one row"),
    (wv.SparseRows([0, 2], [1.0, math.nan], [1, 2]), "arm 1 has the values [nan]"),
    (wv.SparseRows([0, 2], [1.0, math.inf], [2]), "arm 0 has the values [ 1. inf]"),
    (wv.SparseRows([2, 0], [math.inf, 1.0], [2]), "arms must be finite, with norm up to 1e+50"),
    (wv.SparseRows([0, 0], [1e200, -1e200], [2]), "arms must be finite, with norm up to 1e+50"),
    (sets.simplex(DIM), "needs a list of arms, got simplex"),
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
        with pytest.raises(ArmsError, match=re.escape(complaint)):
            ask(arms)
    assert contents(policy, tmp_path) == before


BAD_FEATURES: list[tuple[Any, str]] = [
    (np.ones(3), "features must have shape (12,), got (3,)"),
    (np.ones((1, 12)), "features must have shape (12,), got (1, 12)"),
    (sparse.csr_array(np.ones((2, 12))), "features must be one row, got 2"),
    (([0, 12], [1.0, 1.0]), "indices must be from 0 to 11; the row has [ 0 12]"),
    (([0, 1], [1.0, math.nan]), "features must be finite, with norm up to 1e+50; the row has"),
    (([0, 1], [1.0]), "one value for each index"),
    (([3], [1e7]), "the squared features of a row must sum to at most 1e+13 times the ridge (0.7)"),
]


@pytest.mark.parametrize("memory", [wv.keep(), wv.half_life(3.0)], ids=repr)
def test_features_and_rewards_that_cannot_be_learned_are_refused_and_change_nothing(
    memory: wv.Memory, tmp_path: Path
) -> None:
    policy = make_busy(memory, wv.thompson(1.0))
    choice = policy.choose(DENSE[20])
    before = contents(policy, tmp_path)
    for features, complaint in BAD_FEATURES:
        uses: tuple[Callable[[Any], None], ...] = (
            lambda bad: policy.learn(bad, 1.0),
            lambda bad: policy.learn_many([choice, bad], [1.0, 1.0]),
            lambda bad: policy.amend(bad, 1.0),
        )
        for use in uses:
            with pytest.raises(ArmsError, match=re.escape(complaint)):
                use(features)
    for reward in (math.nan, math.inf, None, "1"):
        with pytest.raises(RewardError, match="the reward must be a finite number"):
            policy.learn(choice, reward)  # type: ignore[arg-type]
        with pytest.raises(RewardError, match="the reward must be a finite number"):
            policy.learn_many([choice], [reward])  # type: ignore[list-item]
    with pytest.raises(SettingError, match="at must be a finite number"):
        policy.learn(choice, 1.0, at=math.nan)
    with pytest.raises(SettingError, match="samples must be a whole number >= 1, got 0"):
        policy.propensities(DENSE[0], samples=0)
    with pytest.raises(ArmsError, match="chosen must be below 5, got 5"):
        policy.propensities(DENSE[0], chosen=5)
    assert contents(policy, tmp_path) == before


def test_a_choice_keeps_the_entries_of_its_row_alone() -> None:
    policy = make_diagonal(2**22, wv.keep(), wv.greedy(), seed=1)
    choice = policy.choose(wv.SparseRows.from_pairs([([9, 2**21], [1.0, 2.0])]))
    assert repr(choice) == "Choice(index=0, round=0)"
    assert len(pickle.dumps(choice)) < 1000
    assert np.flatnonzero(choice.features).tolist() == [9, 2**21]
    assert pickle.loads(pickle.dumps(choice)) == copy.deepcopy(choice) == choice
    other = policy.choose(wv.SparseRows.from_pairs([([9, 2**21], [1.0, 3.0])]))
    assert other != choice
    assert choice != "choice"
