"""Quadratic forms xᵀMx of many arms in float32, with bounds of their errors.

A vector register holds twice as many numbers in float32 as in float64, and the errors are small
enough to exclude most arms. With D² = diag(M), xᵀMx = (Dx)ᵀN(Dx), where no number of N = D⁻¹MD⁻¹
is larger than 1.
"""

import math
from typing import NamedTuple

import numpy as np

from windvane._numba.compilation import compiled
from windvane.beliefs.full.layout import HALF_ULP
from windvane.types import Floats, Places, Singles

MORE_ROUNDINGS = 32  # of a term of a form, besides those of the sum over a row
UNDERFLOW_ERROR = 1e-30  # of a form of scaled numbers
NUMBERS_AT_ONCE = 16  # rows are padded to a multiple of this, so that no loop has a remainder
ROWS_AT_ONCE = 8  # rows of the matrix that are converted, and then multiplied by all arms


class ScaledArms(NamedTuple):
    """Arms u = Dx/unit in float32, none longer than 1, padded with zeros."""

    rows: Singles  # (n, m)  n is even, and m has room for whole blocks of numbers
    squares: Floats  # (n,)  ‖u‖²
    unit: float


@compiled
def scale_arms(arms: Floats, places: Places, roots: Floats, longest: float) -> ScaledArms:
    """Return the arms (K, d) at `places`, for the roots (d,) of diag(M); none exceeds `longest`."""
    count, d, largest = places.size, arms.shape[1], 0.0
    length = d + (-d) % NUMBERS_AT_ONCE + ROWS_AT_ONCE
    rows = np.zeros((count + count % 2, length), np.float32)
    squares, factors = np.zeros(rows.shape[0]), np.empty(d)
    for i in range(d):
        largest = max(largest, roots[i])
    unit = largest * longest if largest * longest > 0.0 else 1.0
    for i in range(d):
        factors[i] = roots[i] / unit
    for m in range(count):
        x, row, square = arms[places[m]], rows[m], 0.0
        for i in range(d):
            number = factors[i] * x[i]
            row[i] = np.float32(number)
            square += number * number
        squares[m] = square
    return ScaledArms(rows, squares, unit)


@compiled
def compute_float32_forms(
    arms: Floats, longest: float, places: Places, matrix: Floats, forms: Floats, errors: Floats
) -> None:
    """Write xᵀMx of the arms (K, d) at `places`, and bounds of the errors, to the same places.

    Only the lower half of the positive matrix M (d, d) is read, and no arm is longer than
    `longest`. Every term uᵢNᵢⱼuⱼ of a form is rounded at most d + MORE_ROUNDINGS times, and
    Σ|uᵢNᵢⱼuⱼ| ≤ ‖u‖²‖N‖_F.
    """
    d = matrix.shape[0]
    roots, inverse_roots = np.empty(d), np.empty(d)
    for i in range(d):
        roots[i] = math.sqrt(max(matrix[i, i], 0.0))
        inverse_roots[i] = 1.0 / roots[i] if roots[i] > 0.0 else 0.0
    scaled = scale_arms(arms, places, roots, longest)
    sums, size = np.zeros(scaled.rows.shape[0]), 0.0
    rows = np.zeros((ROWS_AT_ONCE, scaled.rows.shape[1]), np.float32)
    for low in range(0, d, ROWS_AT_ONCE):
        high = min(low + ROWS_AT_ONCE, d)
        size += scale_rows(matrix, low, high, inverse_roots, rows)
        add_forms(scaled.rows, rows, low, (high + NUMBERS_AT_ONCE - 1) // NUMBERS_AT_ONCE, sums)
    share, scale = 1.01 * (d + MORE_ROUNDINGS) * HALF_ULP * math.sqrt(size), scaled.unit**2
    for m in range(places.size):
        forms[places[m]] = 2.0 * scale * sums[m]
        errors[places[m]] = scale * (share * scaled.squares[m] + UNDERFLOW_ERROR)


@compiled
def scale_rows(matrix: Floats, low: int, high: int, inverse_roots: Floats, rows: Singles) -> float:
    """Write rows of the lower half of N, with half of its diagonal, to `rows` in float32.

    Return what these rows and the columns of the same numbers contribute to ‖N‖²_F.
    """
    total = 0.0
    for i in range(low, high):
        row, out, own, part = matrix[i], rows[i - low], inverse_roots[i], 0.0
        for j in range(i):
            number = own * inverse_roots[j] * row[j]
            out[j] = np.float32(number)
            part += number * number
        out[i] = np.float32(0.5)
        total += 1.0 + 2.0 * part
    for i in range(high - low, ROWS_AT_ONCE):
        for j in range(rows.shape[1]):
            rows[i, j] = np.float32(0.0)
    return total


@compiled
def add_forms(arms: Singles, rows: Singles, low: int, blocks: int, sums: Floats) -> None:
    """Add Σᵢ xᵢ·rows[i − low]ᵀx to the sum of each arm (n,), for two arms and four rows at once."""
    for k in range(0, arms.shape[0], 2):
        x, y = arms[k], arms[k + 1]
        for i in range(0, ROWS_AT_ONCE, 4):
            row0, row1, row2, row3 = rows[i], rows[i + 1], rows[i + 2], rows[i + 3]
            p = low + i
            x0, x1, x2, x3 = x[p], x[p + 1], x[p + 2], x[p + 3]
            y0, y1, y2, y3 = y[p], y[p + 1], y[p + 2], y[p + 3]
            first, second = np.float32(0.0), np.float32(0.0)
            for j in range(blocks * NUMBERS_AT_ONCE):
                m0, m1, m2, m3 = row0[j], row1[j], row2[j], row3[j]
                first += x[j] * (x0 * m0 + x1 * m1 + x2 * m2 + x3 * m3)
                second += y[j] * (y0 * m0 + y1 * m1 + y2 * m2 + y3 * m3)
            sums[k] += first
            sums[k + 1] += second
