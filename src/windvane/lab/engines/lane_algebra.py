"""Linear algebra side by side: the matrices of eight replications, one in each lane.

All matrices and vectors are rows of one array of lanes (n, 8), and functions take the first row of
each: one array compiles much faster than many. A symmetric matrix (d, d) is packed as its lower
half, row by row, and a root as its upper half: d(d+1)/2 rows of lanes. A vector (d,) has d rows.
"""

from windvane._numba.compilation import compiled
from windvane._numba.lanes import load, repeat, select_if_less, store, take_root
from windvane.types import Floats


@compiled
def sum_products(lanes: Floats, d: int, left: int, right: int) -> Floats:
    """Σ left·right of two vectors."""
    total = repeat(0.0)
    for i in range(d):
        total = total + load(lanes, left + i) * load(lanes, right + i)
    return total


@compiled
def scale_rows(lanes: Floats, first: int, end: int, factor: float) -> None:
    """Multiply rows by a number."""
    for i in range(first, end):
        store(lanes, i, load(lanes, i) * factor)


@compiled
def clear_rows(lanes: Floats, first: int, end: int) -> None:
    """Write 0 into rows."""
    for i in range(first, end):
        store(lanes, i, repeat(0.0))


@compiled
def multiply_packed(lanes: Floats, d: int, matrix: int, vector: int, out: int) -> None:
    """Write matrix·vector to `out`; each entry of the packed half serves two places."""
    at = matrix
    for i in range(d):
        own, total = load(lanes, vector + i), repeat(0.0)
        for j in range(i):
            entry = load(lanes, at + j)
            total = total + entry * load(lanes, vector + j)
            store(lanes, out + j, load(lanes, out + j) + entry * own)
        store(lanes, out + i, total + load(lanes, at + i) * own)
        at += i + 1


@compiled
def multiply_packed_by_two(
    lanes: Floats, d: int, matrix: int, first: int, second: int, first_out: int, second_out: int
) -> None:
    """Write matrix·first and matrix·second to two outputs, in one pass over the matrix."""
    at = matrix
    for i in range(d):
        own1, own2 = load(lanes, first + i), load(lanes, second + i)
        total1, total2 = repeat(0.0), repeat(0.0)
        for j in range(i):
            entry = load(lanes, at + j)
            total1 = total1 + entry * load(lanes, first + j)
            total2 = total2 + entry * load(lanes, second + j)
            store(lanes, first_out + j, load(lanes, first_out + j) + entry * own1)
            store(lanes, second_out + j, load(lanes, second_out + j) + entry * own2)
        entry = load(lanes, at + i)
        store(lanes, first_out + i, total1 + entry * own1)
        store(lanes, second_out + i, total2 + entry * own2)
        at += i + 1


@compiled
def multiply_arms(lanes: Floats, d: int, count: int, matrix: int, arms: int, out: int) -> None:
    """Write matrix·x of every arm (count·d rows) to `out`, two arms a pass."""
    for k in range(0, count - 1, 2):
        x, y = arms + k * d, out + k * d
        multiply_packed_by_two(lanes, d, matrix, x, x + d, y, y + d)
    if count % 2 == 1:
        last = (count - 1) * d
        multiply_packed(lanes, d, matrix, arms + last, out + last)


@compiled
def remove_image(
    lanes: Floats, d: int, inverse: int, image: int, divisor: Floats, fade: float
) -> None:
    """P ← (P − ppᵀ/c)/f for p = `image` (d,) and the lanes c = `divisor`."""
    growth, at = 1.0 / fade, inverse
    share = growth / divisor
    for i in range(d):
        own = load(lanes, image + i) * share
        for j in range(i + 1):
            store(lanes, at + j, load(lanes, at + j) * growth - own * load(lanes, image + j))
        at += i + 1


@compiled
def sum_squares(
    lanes: Floats, d: int, count: int, arms: int, weights: int, ridge: float, out: int
) -> None:
    """Write ridge·I + Σ weights[k]·xxᵀ over the arms to the packed `out`, two arms a pass."""
    at = out
    for i in range(d):
        for j in range(i):
            store(lanes, at + j, repeat(0.0))
        store(lanes, at + i, repeat(ridge))
        at += i + 1
    for k in range(0, count, 2):
        two = min(k + 1, count - 1)  # an odd last arm is paired with itself, with half its weight
        share = 1.0 if two > k else 0.5
        x, y, at = arms + k * d, arms + two * d, out
        weight1, weight2 = share * load(lanes, weights + k), share * load(lanes, weights + two)
        for i in range(d):
            own1, own2 = weight1 * load(lanes, x + i), weight2 * load(lanes, y + i)
            for j in range(i + 1):
                more = own1 * load(lanes, x + j) + own2 * load(lanes, y + j)
                store(lanes, at + j, load(lanes, at + j) + more)
            at += i + 1


@compiled
def add_square(lanes: Floats, d: int, matrix: int, weight: float, out: int, row: int) -> None:
    """Add weight·matrix² to `out`, both packed; `row` (d,) is scratch."""
    first = matrix
    for k in range(d):
        copy_symmetric_row(lanes, d, k, first, row)
        add_outer_product(lanes, d, repeat(weight), row, out)
        first += k + 1


@compiled
def copy_symmetric_row(lanes: Floats, d: int, k: int, first: int, out: int) -> None:
    """Write row k of a packed symmetric matrix to `out` (d,); `first` is the place of the row."""
    for i in range(k):
        store(lanes, out + i, load(lanes, first + i))
    at = first + k
    for i in range(k, d):
        store(lanes, out + i, load(lanes, at))
        at += i + 1


@compiled
def add_outer_product(lanes: Floats, d: int, weight: Floats, vector: int, out: int) -> None:
    """Add weight·vvᵀ to the packed `out`."""
    at = out
    for i in range(d):
        own = weight * load(lanes, vector + i)
        for j in range(i + 1):
            store(lanes, at + j, load(lanes, at + j) + own * load(lanes, vector + j))
        at += i + 1


@compiled
def invert_packed(lanes: Floats, d: int, matrix: int, row: int) -> None:
    """Invert a positive definite matrix in place by the sweep operator; `row` (d,) is scratch."""
    first = matrix  # the place of row k
    for k in range(d):
        pivot = 1.0 / load(lanes, first + k)
        copy_symmetric_row(lanes, d, k, first, row)
        store(lanes, row + k, repeat(0.0))
        add_outer_product(lanes, d, -pivot, row, matrix)
        for i in range(k):
            store(lanes, first + i, load(lanes, row + i) * pivot)
        store(lanes, first + k, -pivot)
        at = first + k
        for i in range(k + 1, d):
            at += i
            store(lanes, at, load(lanes, row + i) * pivot)
        first += k + 1
    scale_rows(lanes, matrix, first, -1.0)


@compiled
def rotate_into_root(
    lanes: Floats, d: int, root: int, fade: float | Floats, x: int, rest: int
) -> None:
    """Update a packed upper triangular R: RᵀR ← f²RᵀR + xxᵀ; `rest` (d,) is scratch.

    `fade` is a number or lanes. The plane rotations are those of `linalg.update_root`.
    """
    at, zero, one = root, repeat(0.0), repeat(1.0)
    for i in range(d):
        store(lanes, rest + i, load(lanes, x + i))
    for k in range(d):
        own, other = fade * load(lanes, at), load(lanes, rest + k)
        length = take_root(own * own + other * other)
        cosine = select_if_less(zero, length, own / length, one)
        sine = select_if_less(zero, length, other / length, zero)
        store(lanes, at, length)
        for i in range(k + 1, d):
            old, value = fade * load(lanes, at + i - k), load(lanes, rest + i)
            store(lanes, at + i - k, cosine * old + sine * value)
            store(lanes, rest + i, cosine * value - sine * old)
        at += d - k


@compiled
def add_root_product(
    lanes: Floats, d: int, root: int, weights: int, scale: float, out: int
) -> None:
    """Add scale·Rᵀw to `out` (d,), for a packed upper triangular R and weights w (d,)."""
    at = root
    for k in range(d):
        own = scale * load(lanes, weights + k)
        for i in range(k, d):
            store(lanes, out + i, load(lanes, out + i) + own * load(lanes, at + i - k))
        at += d - k
