"""Triangular roots of matrices, and what is solved with them, in compiled code.

The sums of BLAS and LAPACK depend on how many threads they use. What a policy keeps is computed
here instead: it has the same bits whatever the number of threads is.
"""

import math

import numpy as np

from windvane._numba.compilation import compiled
from windvane.types import Floats


@compiled
def factor_cholesky(matrix: Floats) -> None:
    """Replace a positive definite matrix (d, d) by its lower triangular root L: LLᵀ = matrix.

    Only the lower half is read. If the matrix is singular, some columns of L are 0.
    """
    d = matrix.shape[0]
    for i in range(d):
        for j in range(i + 1):
            total = 0.0
            for k in range(j):
                total += matrix[i, k] * matrix[j, k]
            rest = matrix[i, j] - total
            if i == j:
                matrix[i, i] = math.sqrt(max(rest, 0.0))
            else:
                matrix[i, j] = rest / matrix[j, j] if matrix[j, j] > 0.0 else 0.0
        for j in range(i + 1, d):
            matrix[i, j] = 0.0


@compiled
def solve_with_root(root: Floats, right: Floats) -> None:
    """Replace `right` (d, k) by the solution of LLᵀ·u = right, with a lower triangular L (d, d)."""
    d = root.shape[0]
    for i in range(d):
        row = right[i]
        for k in range(i):
            factor, other = root[i, k], right[k]
            for j in range(row.size):
                row[j] -= factor * other[j]
        for j in range(row.size):
            row[j] /= root[i, i]
    for i in range(d - 1, -1, -1):
        row = right[i]
        for k in range(i + 1, d):
            factor, other = root[k, i], right[k]
            for j in range(row.size):
                row[j] -= factor * other[j]
        for j in range(row.size):
            row[j] /= root[i, i]


@compiled
def factor_semidefinite(matrix: Floats) -> Floats:
    """Return rows G (r, d) with GᵀG = matrix, for a positive semidefinite matrix (d, d) of rank r.

    Each row removes the largest diagonal entry that is left, until rounding errors are left.
    """
    d = matrix.shape[0]
    rest = matrix.copy()
    rows = np.zeros((d, d))
    least = d * np.finfo(np.float64).eps * max(np.max(np.diag(matrix)), 0.0)
    for r in range(d):
        pivot = np.argmax(np.diag(rest))
        if rest[pivot, pivot] <= least:
            return rows[:r].copy()
        row = rows[r]
        row[:] = rest[pivot] / math.sqrt(rest[pivot, pivot])
        for i in range(d):
            for j in range(d):
                rest[i, j] -= row[i] * row[j]
    return rows
