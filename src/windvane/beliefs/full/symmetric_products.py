"""Products with large symmetric matrices, of which only the lower half is read.

Each number of a matrix is loaded once and used several times, because large matrices do not fit
into the fast caches of a processor.
"""

import numpy as np

from windvane._numba.compilation import compiled
from windvane.beliefs.full.linalg import fill
from windvane.types import Floats, Places

COLUMNS_AT_ONCE = 512  # of the rows that `add_outer_products` adds, so that they stay in the cache
MOST_SPARSE_SHARE = 0.125  # of non-zero features, up to which only these are multiplied


@compiled
def find_non_zeros(row: Floats, places: Places) -> int:
    """Write the places of the non-zero numbers of a row (d,) to `places` (d,); return how many."""
    count = 0
    for i in range(row.size):
        if row[i] != 0.0:
            places[count] = i
            count += 1
    return count


@compiled
def is_sparse(row: Floats) -> bool:
    """Whether so many numbers of a row (d,) are 0 that only the others should be multiplied."""
    count = 0
    for i in range(row.size):
        count += row[i] != 0.0
    return count <= MOST_SPARSE_SHARE * row.size


@compiled
def multiply_symmetric(matrix: Floats, vector: Floats, out: Floats) -> None:
    """Write matrix·vector to `out` (d,), four rows of the lower half at a time."""
    d = vector.size
    whole = d - d % 4
    fill(out, 0.0)
    for i in range(0, whole, 4):
        row0, row1, row2, row3 = matrix[i], matrix[i + 1], matrix[i + 2], matrix[i + 3]
        x0, x1, x2, x3 = vector[i], vector[i + 1], vector[i + 2], vector[i + 3]
        sum0, sum1, sum2, sum3 = 0.0, 0.0, 0.0, 0.0
        for j in range(i):
            m0, m1, m2, m3, x = row0[j], row1[j], row2[j], row3[j], vector[j]
            sum0 += m0 * x
            sum1 += m1 * x
            sum2 += m2 * x
            sum3 += m3 * x
            out[j] += m0 * x0 + m1 * x1 + m2 * x2 + m3 * x3
        out[i] += sum0
        out[i + 1] += sum1
        out[i + 2] += sum2
        out[i + 3] += sum3
        add_corner(matrix, i, i + 4, vector, out)
    for i in range(whole, d):
        add_row(matrix[i], i, vector, out)


@compiled
def multiply_symmetric_twice(
    matrix: Floats, left: Floats, right: Floats, left_out: Floats, right_out: Floats
) -> None:
    """Write matrix·left and matrix·right, (d,) each, in one pass over the lower half."""
    d = left.size
    whole = d - d % 4
    fill(left_out, 0.0)
    fill(right_out, 0.0)
    for i in range(0, whole, 4):
        row0, row1, row2, row3 = matrix[i], matrix[i + 1], matrix[i + 2], matrix[i + 3]
        x0, x1, x2, x3 = left[i], left[i + 1], left[i + 2], left[i + 3]
        y0, y1, y2, y3 = right[i], right[i + 1], right[i + 2], right[i + 3]
        sum0, sum1, sum2, sum3 = 0.0, 0.0, 0.0, 0.0
        total0, total1, total2, total3 = 0.0, 0.0, 0.0, 0.0
        for j in range(i):
            m0, m1, m2, m3, x, y = row0[j], row1[j], row2[j], row3[j], left[j], right[j]
            sum0 += m0 * x
            sum1 += m1 * x
            sum2 += m2 * x
            sum3 += m3 * x
            total0 += m0 * y
            total1 += m1 * y
            total2 += m2 * y
            total3 += m3 * y
            left_out[j] += m0 * x0 + m1 * x1 + m2 * x2 + m3 * x3
            right_out[j] += m0 * y0 + m1 * y1 + m2 * y2 + m3 * y3
        left_out[i] += sum0
        left_out[i + 1] += sum1
        left_out[i + 2] += sum2
        left_out[i + 3] += sum3
        right_out[i] += total0
        right_out[i + 1] += total1
        right_out[i + 2] += total2
        right_out[i + 3] += total3
        add_corner(matrix, i, i + 4, left, left_out)
        add_corner(matrix, i, i + 4, right, right_out)
    for i in range(whole, d):
        add_row(matrix[i], i, left, left_out)
        add_row(matrix[i], i, right, right_out)


@compiled
def add_corner(matrix: Floats, first: int, stop: int, vector: Floats, out: Floats) -> None:
    """Add the product with the square from `first` to `stop` on the diagonal to `out`."""
    for i in range(first, stop):
        for j in range(first, i):
            out[i] += matrix[i, j] * vector[j]
            out[j] += matrix[i, j] * vector[i]
        out[i] += matrix[i, i] * vector[i]


@compiled
def add_row(row: Floats, i: int, vector: Floats, out: Floats) -> None:
    """Add the products with row i of the lower half to `out`."""
    total, x = row[i] * vector[i], vector[i]
    for j in range(i):
        total += row[j] * vector[j]
        out[j] += row[j] * x
    out[i] += total


@compiled
def multiply_symmetric_sparse(matrix: Floats, vector: Floats, places: Places, out: Floats) -> None:
    """Write matrix·vector to `out` (d,) for a vector that is 0 except at `places`, in order."""
    fill(out, 0.0)
    for m in range(places.size):
        i = places[m]
        row, x = matrix[i], vector[i]
        for j in range(i + 1):
            out[j] += x * row[j]
        for j in range(i + 1, out.size):
            out[j] += x * matrix[j, i]


@compiled
def multiply_rows_symmetric(matrix: Floats, rows: Floats, places: Places, out: Floats) -> None:
    """Write matrix·row for the rows (n, d) at `places` to the same places of `out` (n, d).

    A pass over the matrix serves two rows.
    """
    last = places.size - 1
    for m in range(0, last, 2):
        k, n = places[m], places[m + 1]
        multiply_symmetric_twice(matrix, rows[k], rows[n], out[k], out[n])
    if last % 2 == 0:
        multiply_symmetric(matrix, rows[places[last]], out[places[last]])


@compiled
def compute_quadratic_forms(arms: Floats, matrix: Floats, out: Floats) -> None:
    """Write xᵀ·matrix·x of every arm to `out` (K,): sparse arms one by one, the others in fours."""
    dense = compute_sparse_forms(arms, matrix, out)
    count = dense.size
    for m in range(0, count, 4):
        k0, k1 = dense[m], dense[min(m + 1, count - 1)]
        k2, k3 = dense[min(m + 2, count - 1)], dense[min(m + 3, count - 1)]
        forms = compute_four_forms(arms[k0], arms[k1], arms[k2], arms[k3], matrix)
        out[k0], out[k1], out[k2], out[k3] = forms


@compiled
def compute_sparse_forms(arms: Floats, matrix: Floats, out: Floats) -> Places:
    """Write xᵀ·matrix·x of every sparse arm to `out` (K,); return the places of the other arms."""
    places, dense = np.empty(arms.shape[1], np.int64), np.empty(arms.shape[0], np.int64)
    count = 0
    for k in range(arms.shape[0]):
        if is_sparse(arms[k]):
            used = find_non_zeros(arms[k], places)
            out[k] = compute_sparse_form(arms[k], places[:used], matrix)
        else:
            dense[count] = k
            count += 1
    return dense[:count]


@compiled
def compute_sparse_form(x: Floats, places: Places, matrix: Floats) -> float:
    """xᵀ·matrix·x for an arm (d,) that is 0 except at `places`, in order."""
    total = 0.0
    for m in range(places.size):
        i = places[m]
        row, part = matrix[i], 0.5 * matrix[i, i] * x[i]
        for n in range(m):
            part += row[places[n]] * x[places[n]]
        total += x[i] * part
    return 2.0 * total


@compiled
def compute_four_forms(
    x0: Floats, x1: Floats, x2: Floats, x3: Floats, matrix: Floats
) -> tuple[float, float, float, float]:
    """xᵀ·matrix·x of four arms (d,), in one pass over the lower half, two rows at a time."""
    form0, form1, form2, form3 = 0.0, 0.0, 0.0, 0.0
    d = x0.size
    for i in range(0, d - 1, 2):
        row, next_row = matrix[i], matrix[i + 1]
        a0, a1, a2, a3 = 0.0, 0.0, 0.0, 0.0
        b0, b1, b2, b3 = 0.0, 0.0, 0.0, 0.0
        for j in range(i):
            m, n = row[j], next_row[j]
            a0 += x0[j] * m
            a1 += x1[j] * m
            a2 += x2[j] * m
            a3 += x3[j] * m
            b0 += x0[j] * n
            b1 += x1[j] * n
            b2 += x2[j] * n
            b3 += x3[j] * n
        own, cross, next_own = 0.5 * row[i], next_row[i], 0.5 * next_row[i + 1]
        form0 += x0[i] * (a0 + own * x0[i]) + x0[i + 1] * (
            b0 + cross * x0[i] + next_own * x0[i + 1]
        )
        form1 += x1[i] * (a1 + own * x1[i]) + x1[i + 1] * (
            b1 + cross * x1[i] + next_own * x1[i + 1]
        )
        form2 += x2[i] * (a2 + own * x2[i]) + x2[i + 1] * (
            b2 + cross * x2[i] + next_own * x2[i + 1]
        )
        form3 += x3[i] * (a3 + own * x3[i]) + x3[i + 1] * (
            b3 + cross * x3[i] + next_own * x3[i + 1]
        )
    if d % 2 == 1:
        row = matrix[d - 1]
        a0, a1, a2, a3 = 0.0, 0.0, 0.0, 0.0
        for j in range(d - 1):
            a0 += x0[j] * row[j]
            a1 += x1[j] * row[j]
            a2 += x2[j] * row[j]
            a3 += x3[j] * row[j]
        own, last = 0.5 * row[d - 1], d - 1
        form0 += x0[last] * (a0 + own * x0[last])
        form1 += x1[last] * (a1 + own * x1[last])
        form2 += x2[last] * (a2 + own * x2[last])
        form3 += x3[last] * (a3 + own * x3[last])
    return 2.0 * form0, 2.0 * form1, 2.0 * form2, 2.0 * form3


@compiled
def add_outer_products(matrix: Floats, left: Floats, right: Floats, factor: float) -> None:
    """Update the lower half: matrix ← factor·(matrix + leftᵀ·right), with rows (m, d), m % 4 = 0.

    The product must be symmetric.
    """
    d = matrix.shape[0]
    whole = d - d % 4
    for low in range(0, d, COLUMNS_AT_ONCE):
        for i in range(low, whole, 4):
            high = min(low + COLUMNS_AT_ONCE, i + 4)  # numbers above the diagonal are never read
            row0, row1 = matrix[i, low:high], matrix[i + 1, low:high]
            row2, row3 = matrix[i + 2, low:high], matrix[i + 3, low:high]
            for m in range(0, left.shape[0], 4):
                a0, b0, c0, d0 = left[m, i], left[m, i + 1], left[m, i + 2], left[m, i + 3]
                n = m + 1
                a1, b1, c1, d1 = left[n, i], left[n, i + 1], left[n, i + 2], left[n, i + 3]
                n = m + 2
                a2, b2, c2, d2 = left[n, i], left[n, i + 1], left[n, i + 2], left[n, i + 3]
                n = m + 3
                a3, b3, c3, d3 = left[n, i], left[n, i + 1], left[n, i + 2], left[n, i + 3]
                x0, x1 = right[m, low:high], right[m + 1, low:high]
                x2, x3 = right[m + 2, low:high], right[m + 3, low:high]
                for j in range(row0.size):
                    x, y, z, w = x0[j], x1[j], x2[j], x3[j]
                    row0[j] += a0 * x + a1 * y + a2 * z + a3 * w
                    row1[j] += b0 * x + b1 * y + b2 * z + b3 * w
                    row2[j] += c0 * x + c1 * y + c2 * z + c3 * w
                    row3[j] += d0 * x + d1 * y + d2 * z + d3 * w
            if factor != 1.0:
                for j in range(row0.size):
                    row0[j] *= factor
                    row1[j] *= factor
                    row2[j] *= factor
                    row3[j] *= factor
    for i in range(whole, d):
        row = matrix[i]
        for m in range(left.shape[0]):
            a, x0 = left[m, i], right[m]
            for j in range(i + 1):
                row[j] += a * x0[j]
        for j in range(i + 1):
            row[j] *= factor


@compiled
def mirror_lower_half(matrix: Floats) -> None:
    """Copy the lower half of a matrix (d, d) to its upper half, in tiles that fit the cache."""
    d, tile = matrix.shape[0], 32
    for first in range(0, d, tile):
        for low in range(0, first + 1, tile):
            for i in range(first, min(first + tile, d)):
                for j in range(low, min(low + tile, i)):
                    matrix[j, i] = matrix[i, j]
