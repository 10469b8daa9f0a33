"""Linear algebra side by side: the vectors and matrices of eight replications, one a lane.

A vector has the shape (d, 8) and a matrix (d, d, 8). Of a symmetric matrix only the lower half is
read and written, of a root only the upper half.
"""

from windvane._numba.compilation import compiled
from windvane._numba.lanes import load, repeat, select_if_less, store, take_root
from windvane.types import Floats


@compiled
def sum_products(left: Floats, right: Floats) -> Floats:
    """Σ left·right of two vectors."""
    total = repeat(0.0)
    for i in range(left.shape[0]):
        total = total + load(left, i) * load(right, i)
    return total


@compiled
def multiply(matrix: Floats, vector: Floats, out: Floats) -> None:
    """Write matrix·vector to `out`; each entry of the lower half serves two places."""
    for i in range(vector.shape[0]):
        row, own, total = matrix[i], load(vector, i), repeat(0.0)
        for j in range(i):
            entry = load(row, j)
            total = total + entry * load(vector, j)
            store(out, j, load(out, j) + entry * own)
        store(out, i, total + load(row, i) * own)


@compiled
def multiply_two(
    matrix: Floats, first: Floats, second: Floats, first_out: Floats, second_out: Floats
) -> None:
    """Write matrix·first and matrix·second to two outputs, in one pass over the matrix."""
    for i in range(first.shape[0]):
        row, own1, own2 = matrix[i], load(first, i), load(second, i)
        total1, total2 = repeat(0.0), repeat(0.0)
        for j in range(i):
            entry = load(row, j)
            total1 = total1 + entry * load(first, j)
            total2 = total2 + entry * load(second, j)
            store(first_out, j, load(first_out, j) + entry * own1)
            store(second_out, j, load(second_out, j) + entry * own2)
        store(first_out, i, total1 + load(row, i) * own1)
        store(second_out, i, total2 + load(row, i) * own2)


@compiled
def add_square(matrix: Floats, fade: float, weight: Floats, vector: Floats) -> None:
    """M ← fade·M + weight·vvᵀ, for a number and lanes."""
    for i in range(vector.shape[0]):
        row, own = matrix[i], weight * load(vector, i)
        for j in range(i + 1):
            store(row, j, fade * load(row, j) + own * load(vector, j))


@compiled
def copy_row(matrix: Floats, k: int, out: Floats) -> None:
    """Write row k of a symmetric matrix to `out` (d, 8)."""
    for i in range(out.shape[0]):
        store(out, i, load(matrix[max(i, k)], min(i, k)))


@compiled
def write_row(matrix: Floats, k: int, vector: Floats, factor: Floats) -> None:
    """Write factor·vector to row and column k of a symmetric matrix."""
    for i in range(vector.shape[0]):
        store(matrix[max(i, k)], min(i, k), factor * load(vector, i))


@compiled
def invert(matrix: Floats, row: Floats) -> None:
    """Invert a positive definite matrix in place by the sweep operator; `row` (d, 8) is scratch."""
    d = matrix.shape[0]
    for k in range(d):
        pivot = 1.0 / load(matrix[k], k)
        copy_row(matrix, k, row)
        store(row, k, repeat(0.0))
        add_square(matrix, 1.0, -pivot, row)
        store(row, k, repeat(-1.0))
        write_row(matrix, k, row, pivot)
    for i in range(d):
        for j in range(i + 1):
            store(matrix[i], j, -load(matrix[i], j))


@compiled
def rotate_into_root(root: Floats, fade: float, x: Floats, rest: Floats) -> None:
    """Update an upper triangular R: RᵀR ← f²RᵀR + xxᵀ; `rest` (d, 8) is scratch.

    The plane rotations are those of `linalg.update_root`.
    """
    d, zero, one = x.shape[0], repeat(0.0), repeat(1.0)
    for i in range(d):
        store(rest, i, load(x, i))
    for k in range(d):
        row = root[k]
        own, other = fade * load(row, k), load(rest, k)
        length = take_root(own * own + other * other)
        cosine = select_if_less(zero, length, own / length, one)
        sine = select_if_less(zero, length, other / length, zero)
        store(row, k, length)
        for i in range(k + 1, d):
            old, value = fade * load(row, i), load(rest, i)
            store(row, i, cosine * old + sine * value)
            store(rest, i, cosine * value - sine * old)


@compiled
def add_root_product(root: Floats, weights: Floats, scale: float, out: Floats) -> None:
    """Add scale·Rᵀw to `out` (d, 8), for an upper triangular R and weights w (d, 8)."""
    for k in range(out.shape[0]):
        row, own = root[k], scale * load(weights, k)
        for i in range(k, out.shape[0]):
            store(out, i, load(out, i) + own * load(row, i))
