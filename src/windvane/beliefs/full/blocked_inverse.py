"""Products and inverses of large matrices in blocks that stay in the cache of a processor."""

import math
from typing import NamedTuple

import numpy as np

from windvane._numba.compilation import compiled
from windvane.types import Floats

BLOCK = 32  # rows of a block of a triangular root
ROWS_AT_ONCE = 16  # rows of the left factor that stay in the cache
COLUMNS_AT_ONCE = 512  # numbers of a row that are multiplied before the next row is


class Span(NamedTuple):
    """The rows of both factors and the columns over which `add_row_products` goes."""

    left: int
    left_stop: int
    right: int
    right_stop: int
    first: int
    stop: int


@compiled
def add_row_products(
    left: Floats, right: Floats, span: Span, out: Floats, corner: int, sign: float
) -> None:
    """Add sign·(left·rightᵀ) to `out`: rows i of `left` and j of `right` to out[i, j − corner].

    Four rows of `left` and two of `right` are multiplied at once, so that every number that is
    loaded is used two or four times.
    """
    for low in range(span.first, span.stop, COLUMNS_AT_ONCE):
        high = min(low + COLUMNS_AT_ONCE, span.stop)
        for top in range(span.left, span.left_stop, ROWS_AT_ONCE):
            bottom = min(top + ROWS_AT_ONCE, span.left_stop)
            for j in range(span.right, span.right_stop, 2):
                j1 = min(j + 1, span.right_stop - 1)
                for i in range(top, bottom, 4):
                    i1, i2, i3 = (
                        min(i + 1, bottom - 1),
                        min(i + 2, bottom - 1),
                        min(i + 3, bottom - 1),
                    )
                    multiply_tile(
                        left[i, low:high],
                        left[i1, low:high],
                        left[i2, low:high],
                        left[i3, low:high],
                        right[j, low:high],
                        right[j1, low:high],
                        out,
                        (i, i1, i2, i3, j - corner, j1 - corner),
                        sign,
                    )


@compiled
def multiply_tile(
    x0: Floats,
    x1: Floats,
    x2: Floats,
    x3: Floats,
    y0: Floats,
    y1: Floats,
    out: Floats,
    places: tuple[int, int, int, int, int, int],
    sign: float,
) -> None:
    """Add the eight products of four rows with two rows to `out`; a row may be given twice."""
    a0, a1, a2, a3, b0, b1, b2, b3 = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    for k in range(y0.size):
        y, z = y0[k], y1[k]
        a0 += x0[k] * y
        a1 += x1[k] * y
        a2 += x2[k] * y
        a3 += x3[k] * y
        b0 += x0[k] * z
        b1 += x1[k] * z
        b2 += x2[k] * z
        b3 += x3[k] * z
    i0, i1, i2, i3, j0, j1 = places
    a0, a1 = out[i0, j0] + sign * a0, out[i1, j0] + sign * a1
    a2, a3 = out[i2, j0] + sign * a2, out[i3, j0] + sign * a3
    b0, b1 = out[i0, j1] + sign * b0, out[i1, j1] + sign * b1
    b2, b3 = out[i2, j1] + sign * b2, out[i3, j1] + sign * b3
    out[i0, j0], out[i1, j0], out[i2, j0], out[i3, j0] = a0, a1, a2, a3
    out[i0, j1], out[i1, j1], out[i2, j1], out[i3, j1] = b0, b1, b2, b3


@compiled
def invert_in_blocks(matrix: Floats, out: Floats) -> None:
    """Write the inverse of a positive definite matrix (d, d) to the lower half of `out` (d, d).

    Only the lower half of the matrix is read; it is replaced by the root L with LLᵀ = matrix. The
    inverse is MᵀM with M = L⁻¹, whose columns are the rows of `columns`.
    """
    d = matrix.shape[0]
    columns, part = np.zeros((d, d)), np.empty((d, BLOCK))
    corner = np.zeros((BLOCK, BLOCK))  # the inverse of a block on the diagonal of L
    for low in range(0, d, BLOCK):
        high = min(low + BLOCK, d)
        factor_block(matrix, low, high, part, corner)
        size = high - low
        for first in range(0, low, BLOCK):
            for i in range(first, first + BLOCK):
                for j in range(size):
                    part[i, j] = 0.0
            span = Span(first, first + BLOCK, low, high, first, low)
            add_row_products(columns, matrix, span, part, low, 1.0)
        add_row_products(part, corner, Span(0, low, 0, size, 0, size), columns, -low, -1.0)
        for i in range(size):
            for j in range(i, size):
                columns[low + i, low + j] = corner[j, i]
    for i in range(d):
        for j in range(d):
            out[i, j] = 0.0
    for low in range(0, d, BLOCK):
        high = min(low + BLOCK, d)
        add_row_products(columns, columns, Span(low, high, 0, high, low, d), out, 0, 1.0)


@compiled
def is_positive_definite(matrix: Floats) -> bool:
    """Whether a matrix (d, d) has a root; its lower half, which alone is read, is replaced."""
    d = matrix.shape[0]
    part, corner = np.empty((d, BLOCK)), np.zeros((BLOCK, BLOCK))
    for low in range(0, d, BLOCK):
        high = min(low + BLOCK, d)
        factor_block(matrix, low, high, part, corner)
        for i in range(low, high):
            if not matrix[i, i] > 0.0:  # a root of a negative number is NaN
                return False
    return True


@compiled
def factor_block(matrix: Floats, low: int, high: int, part: Floats, corner: Floats) -> None:
    """Replace the columns from `low` to `high` of the lower half by those of its root.

    The columns before them are those of the root. The inverse of the block on the diagonal of the
    root is written to `corner`; `part` (d, BLOCK) is room for other numbers.
    """
    d, size = matrix.shape[0], high - low
    add_row_products(matrix, matrix, Span(low, d, low, high, 0, low), matrix, 0, -1.0)
    factor_corner(matrix, low, high, corner)
    for i in range(high, d):
        for j in range(size):
            part[i, j] = matrix[i, low + j]
            matrix[i, low + j] = 0.0
    add_row_products(part, corner, Span(high, d, 0, size, 0, size), matrix, -low, 1.0)


@compiled
def factor_corner(matrix: Floats, low: int, high: int, corner: Floats) -> None:
    """Factor the block from `low` to `high` on the diagonal in place, and write its inverse.

    All inner loops go along rows, so that they fill vector registers.
    """
    size = high - low
    column = np.empty(size)
    for j in range(size):
        pivot = math.sqrt(matrix[low + j, low + j])
        matrix[low + j, low + j] = pivot
        for i in range(j + 1, size):
            column[i] = matrix[low + i, low + j] / pivot
            matrix[low + i, low + j] = column[i]
        for i in range(j + 1, size):
            row, factor = matrix[low + i, low:high], column[i]
            for k in range(j + 1, i + 1):
                row[k] -= factor * column[k]
    for i in range(size):
        row, out = matrix[low + i, low:high], corner[i]
        for j in range(i):
            out[j] = 0.0
        for k in range(i):
            factor, other = row[k] / row[i], corner[k]
            for j in range(k + 1):
                out[j] -= factor * other[j]
        out[i] = 1.0 / row[i]
