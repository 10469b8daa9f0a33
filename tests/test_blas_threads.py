"""What a policy keeps, and what it chooses, has the same bits with one BLAS thread and with two."""

import os

import numpy as np
import pytest
from numpy.typing import NDArray

from processes import run_python
from windvane.beliefs.full.linalg import factor_cholesky, factor_semidefinite, solve_with_root

DIM = 128
PROGRAM = f"""
import hashlib
from dataclasses import replace

import numpy as np

import windvane as wv
from windvane import sets

rows = np.random.default_rng(1).normal(size=(300, {DIM})) / {DIM} ** 0.5
rewards = np.random.default_rng(2).normal(size=300)


def report(name, *arrays):
    digest = hashlib.sha256(b"".join(np.ascontiguousarray(array).tobytes() for array in arrays))
    print(name, digest.hexdigest())


def learn(memory, exploration):
    policy = wv.Policy({DIM}, memory, exploration, seed=1)
    for i, (row, reward) in enumerate(zip(rows, rewards)):
        policy.learn(row, float(reward), at=float(i))
    return policy


def report_policy(name, policy):
    _, arrays = policy.export_state()
    report(name, arrays["block"], policy.theta)


for memory in ("half_life(100)", "discount(0.99)", "keep()"):
    for exploration in ("optimism(1)", "thompson(0.3)"):
        policy = learn(memory, exploration)
        report_policy(f"{{memory}} {{exploration}} learned", policy)
        policy.belief = replace(policy.belief, gram=2.0 * policy.belief.gram)
        report_policy(f"{{memory}} {{exploration}} set", policy)
        report("derived", policy.belief.theta, policy.belief.covariance)

for memory in ("window(200)", "window(64)", "kalman(0.01, 0.5)"):
    policy = learn(memory, "thompson(0.3)")
    report_policy(f"{{memory}} learned", policy)
    belief = policy.belief
    report(f"{{memory}} belief", belief.gram, belief.moment, belief.theta)
    best = [policy.choose(sets.ball({DIM})).features for _ in range(5)]
    report(f"{{memory}} parameters", *best)
"""


@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="two BLAS threads need two cores")
def test_bits_do_not_depend_on_the_number_of_blas_threads() -> None:
    outputs = []
    for threads in ("1", "1", "2"):  # the first process compiles, which may order sums otherwise
        names = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS")
        done = run_python("-c", PROGRAM, environment=dict.fromkeys(names, threads))
        outputs.append(done.stdout.splitlines())
    assert len(outputs[1]) == 27
    assert outputs[1] == outputs[2]


def make_semidefinite(dim: int, rank: int) -> NDArray[np.float64]:
    rows = np.random.default_rng(dim).normal(size=(rank, dim))
    return rows.T @ rows


@pytest.mark.parametrize("dim", [1, 2, 7, 64])
def test_a_root_of_a_positive_matrix_solves_with_it(dim: int) -> None:
    matrix = make_semidefinite(dim, 2 * dim) + np.eye(dim)
    root = matrix.copy()
    factor_cholesky(root)
    assert (np.triu(root, 1) == 0.0).all()
    assert root @ root.T == pytest.approx(matrix, rel=1e-12, abs=1e-12)
    right = np.random.default_rng(1).normal(size=(dim, 3))
    solution = right.copy()
    solve_with_root(root, solution)
    assert matrix @ solution == pytest.approx(right, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize(("dim", "rank"), [(1, 0), (5, 0), (5, 1), (40, 7), (40, 40)])
def test_a_singular_matrix_has_as_many_rows_as_its_rank(dim: int, rank: int) -> None:
    matrix = make_semidefinite(dim, rank)
    rows = factor_semidefinite(matrix)
    assert rows.shape == (rank, dim)
    scale = max(1.0, np.abs(matrix).max())
    assert rows.T @ rows == pytest.approx(matrix, abs=1e-12 * scale)
