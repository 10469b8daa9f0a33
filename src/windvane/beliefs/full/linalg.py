"""Linear algebra for compiled code: products, inverses and triangular roots of small matrices.

Loops are written out because they cost less than a call of BLAS up to a few hundred dimensions, and
because the sums of BLAS and LAPACK depend on how many threads they use: what a policy keeps has the
same bits whatever the number of threads is.
"""

import math

import numpy as np

from windvane._numba.compilation import compiled
from windvane.types import Floats, Places


@compiled
def copy_vector(source: Floats, out: Floats) -> None:
    """Write a vector (n,) to `out`; a loop compiles much faster than an assignment of arrays."""
    for i in range(out.size):
        out[i] = source[i]


@compiled
def copy_matrix(source: Floats, out: Floats) -> None:
    """Write a matrix (n, m) to `out`."""
    for i in range(out.shape[0]):
        for j in range(out.shape[1]):
            out[i, j] = source[i, j]


@compiled
def fill(out: Floats, value: float) -> None:
    """Write a number into every place of a vector (n,)."""
    for i in range(out.size):
        out[i] = value


@compiled
def dot(left: Floats, right: Floats) -> float:
    """Σ left·right for two vectors (d,)."""
    total = 0.0
    for i in range(left.size):
        total += left[i] * right[i]
    return total


@compiled
def multiply_vector(matrix: Floats, vector: Floats, out: Floats) -> None:
    """Write matrix·vector to `out`: (n, m) times (m,) to (n,)."""
    for i in range(matrix.shape[0]):
        total = 0.0
        for j in range(matrix.shape[1]):
            total += matrix[i, j] * vector[j]
        out[i] = total


@compiled
def multiply_matrices(left: Floats, right: Floats, out: Floats) -> None:
    """Write left·right to `out`: (n, m) times (m, k) to (n, k).

    Each pass over a row of `out` adds four rows of `right`.
    """
    inner = left.shape[1]
    for i in range(left.shape[0]):
        row = out[i]
        fill(row, 0.0)
        k = 0
        while k + 4 <= inner:
            a, b, c, d = left[i, k], left[i, k + 1], left[i, k + 2], left[i, k + 3]
            for j in range(row.size):
                row[j] += (
                    a * right[k, j]
                    + b * right[k + 1, j]
                    + c * right[k + 2, j]
                    + d * right[k + 3, j]
                )
            k += 4
        while k < inner:
            for j in range(row.size):
                row[j] += left[i, k] * right[k, j]
            k += 1


@compiled
def combine_rows(rows: Floats, weights: Floats, places: Places, out: Floats) -> None:
    """Write Σ weights[i]·rows[i] over `places` to `out`: rows (n, m), weights (n,), out (m,).

    Each pass over `out` adds four rows.
    """
    whole = places.size - places.size % 4
    fill(out, 0.0)
    for m in range(0, whole, 4):
        i0, i1, i2, i3 = places[m], places[m + 1], places[m + 2], places[m + 3]
        x0, x1, x2, x3 = weights[i0], weights[i1], weights[i2], weights[i3]
        row0, row1, row2, row3 = rows[i0], rows[i1], rows[i2], rows[i3]
        for j in range(out.size):
            out[j] += x0 * row0[j] + x1 * row1[j] + x2 * row2[j] + x3 * row3[j]
    for m in range(whole, places.size):
        weight, row = weights[places[m]], rows[places[m]]
        for j in range(out.size):
            out[j] += weight * row[j]


@compiled
def invert(matrix: Floats) -> None:
    """Invert a positive definite matrix (d, d) in place by the sweep operator, pivot by pivot."""
    d = matrix.shape[0]
    row = np.empty(d)
    for k in range(d):
        pivot = 1.0 / matrix[k, k]
        for i in range(k):
            row[i] = matrix[k, i]
        row[k] = 0.0
        for i in range(k + 1, d):
            row[i] = matrix[i, k]
        for i in range(d):  # only the lower half is kept up to date
            factor = row[i] * pivot
            for j in range(i + 1):
                matrix[i, j] -= factor * row[j]
        for i in range(k):
            matrix[k, i] = row[i] * pivot
        for i in range(k + 1, d):
            matrix[i, k] = row[i] * pivot
        matrix[k, k] = -pivot
    for i in range(d):
        for j in range(i + 1):
            matrix[i, j] = -matrix[i, j]
            matrix[j, i] = matrix[i, j]


@compiled
def update_root(root: Floats, fade: float, x: Floats, weight: float) -> None:
    """Update an upper triangular R (d, d): RᵀR ← f²RᵀR + w²·xxᵀ.

    Plane rotations do this also if R is singular, as the zero matrix at the start is.
    """
    v = np.empty(x.size)
    for i in range(x.size):
        v[i] = weight * x[i]
    for k in range(v.size):
        own = fade * root[k, k]
        length = math.sqrt(own * own + v[k] * v[k])
        cosine, sine = (own / length, v[k] / length) if length > 0.0 else (1.0, 0.0)
        root[k, k] = length
        for i in range(k + 1, v.size):
            old = fade * root[k, i]
            root[k, i] = cosine * old + sine * v[i]
            v[i] = cosine * v[i] - sine * old


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
