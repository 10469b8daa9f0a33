"""Linear algebra side by side: the matrices of eight replications, one in each lane.

A symmetric matrix (d, d) is packed as its lower half, row by row, and a root as its upper half:
d(d+1)/2 rows of lanes. A vector (d,) is d rows of lanes.
"""

from windvane._jit import compiled
from windvane._lanes import load, repeat, select_if_less, store, take_root
from windvane.types import Floats


@compiled
def sum_products(left: Floats, right: Floats) -> Floats:
    """Σ left·right of two vectors."""
    total = repeat(0.0)
    for i in range(left.shape[0]):
        total = total + load(left, i) * load(right, i)
    return total


@compiled
def fill_lanes(out: Floats, value: float) -> None:
    """Write a number into every lane of an array."""
    for i in range(out.shape[0]):
        store(out, i, repeat(value))


@compiled
def scale_lanes(out: Floats, factor: float) -> None:
    """Multiply an array by a number."""
    for i in range(out.shape[0]):
        store(out, i, load(out, i) * factor)


@compiled
def multiply_packed(matrix: Floats, vector: Floats, out: Floats) -> None:
    """Write matrix·vector to `out`; each entry of the packed half serves two places."""
    at = 0
    for i in range(vector.shape[0]):
        own, total = load(vector, i), repeat(0.0)
        for j in range(i):
            entry = load(matrix, at + j)
            total = total + entry * load(vector, j)
            store(out, j, load(out, j) + entry * own)
        store(out, i, total + load(matrix, at + i) * own)
        at += i + 1


@compiled
def multiply_packed_by_two(
    matrix: Floats, first: Floats, first_out: Floats, second: Floats, second_out: Floats
) -> None:
    """Write matrix·first and matrix·second to two outputs, in one pass over the matrix."""
    at = 0
    for i in range(first.shape[0]):
        own1, own2, total1, total2 = load(first, i), load(second, i), repeat(0.0), repeat(0.0)
        for j in range(i):
            entry = load(matrix, at + j)
            total1 = total1 + entry * load(first, j)
            total2 = total2 + entry * load(second, j)
            store(first_out, j, load(first_out, j) + entry * own1)
            store(second_out, j, load(second_out, j) + entry * own2)
        entry = load(matrix, at + i)
        store(first_out, i, total1 + entry * own1)
        store(second_out, i, total2 + entry * own2)
        at += i + 1


@compiled
def remove_image(inverse: Floats, image: Floats, divisor: Floats, fade: float) -> None:
    """P ← (P − ppᵀ/c)/f for p = `image` (d,) and the lanes c = `divisor`."""
    growth, at = 1.0 / fade, 0
    share = growth / divisor
    for i in range(image.shape[0]):
        own = load(image, i) * share
        for j in range(i + 1):
            store(inverse, at + j, load(inverse, at + j) * growth - own * load(image, j))
        at += i + 1


@compiled
def sum_squares(arms: Floats, counts: Floats, ridge: float, out: Floats) -> None:
    """Write ridge·I + Σ counts[k]·xxᵀ to `out`, for arms (K·d) and counts (K), four arms a pass."""
    count = counts.shape[0]
    d = arms.shape[0] // count
    fill_lanes(out, 0.0)
    k = 0
    while k + 4 <= count:
        n0, n1, n2, n3 = load(counts, k), load(counts, k + 1), load(counts, k + 2), load(counts, k + 3)
        x0, at = k * d, 0
        x1, x2, x3 = x0 + d, x0 + 2 * d, x0 + 3 * d
        for i in range(d):
            own0, own1 = n0 * load(arms, x0 + i), n1 * load(arms, x1 + i)
            own2, own3 = n2 * load(arms, x2 + i), n3 * load(arms, x3 + i)
            for j in range(i + 1):
                more = own0 * load(arms, x0 + j) + own1 * load(arms, x1 + j)
                rest = own2 * load(arms, x2 + j) + own3 * load(arms, x3 + j)
                store(out, at + j, load(out, at + j) + (more + rest))
            at += i + 1
        k += 4
    while k < count:
        n0, x0, at = load(counts, k), k * d, 0
        for i in range(d):
            own0 = n0 * load(arms, x0 + i)
            for j in range(i + 1):
                store(out, at + j, load(out, at + j) + own0 * load(arms, x0 + j))
            at += i + 1
        k += 1
    at = 0
    for i in range(d):
        store(out, at + i, load(out, at + i) + ridge)
        at += i + 1


@compiled
def invert_packed(matrix: Floats, row: Floats) -> None:
    """Invert a positive definite matrix in place by the sweep operator; `row` (d,) is scratch."""
    d, first = row.shape[0], 0  # `first` is the place of row k
    for k in range(d):
        pivot = 1.0 / load(matrix, first + k)
        for i in range(k):
            store(row, i, load(matrix, first + i))
        store(row, k, repeat(0.0))
        at = first + k + 1
        for i in range(k + 1, d):
            store(row, i, load(matrix, at + k))
            at += i + 1
        at = 0
        for i in range(d):
            factor = load(row, i) * pivot
            for j in range(i + 1):
                store(matrix, at + j, load(matrix, at + j) - factor * load(row, j))
            at += i + 1
        for i in range(k):
            store(matrix, first + i, load(row, i) * pivot)
        at = first + k + 1
        for i in range(k + 1, d):
            store(matrix, at + k, load(row, i) * pivot)
            at += i + 1
        store(matrix, first + k, -pivot)
        first += k + 1
    for i in range(matrix.shape[0]):
        store(matrix, i, -load(matrix, i))


@compiled
def rotate_into_root(root: Floats, fade: float, x: Floats, rest: Floats) -> None:
    """Update a packed upper triangular R: RᵀR ← f²RᵀR + xxᵀ; `rest` (d,) is scratch.

    The plane rotations are those of `linalg.update_root`.
    """
    d, at = x.shape[0], 0
    zero, one = repeat(0.0), repeat(1.0)
    for i in range(d):
        store(rest, i, load(x, i))
    for k in range(d):
        own, other = fade * load(root, at), load(rest, k)
        length = take_root(own * own + other * other)
        cosine = select_if_less(zero, length, own / length, one)
        sine = select_if_less(zero, length, other / length, zero)
        store(root, at, length)
        for i in range(k + 1, d):
            old, value = fade * load(root, at + i - k), load(rest, i)
            store(root, at + i - k, cosine * old + sine * value)
            store(rest, i, cosine * value - sine * old)
        at += d - k


@compiled
def add_root_product(root: Floats, weights: Floats, scale: float, out: Floats) -> None:
    """Add scale·Rᵀw to `out` (d,), for a packed upper triangular R and weights w (d,)."""
    d, at = out.shape[0], 0
    for k in range(d):
        own = scale * load(weights, k)
        for i in range(k, d):
            store(out, i, load(out, i) + own * load(root, at + i - k))
        at += d - k
