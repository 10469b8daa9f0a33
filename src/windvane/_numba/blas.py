"""Products with large symmetric matrices by BLAS, which numba's `np.dot` does not offer.

Half of the numbers of a symmetric matrix say all. Machine code finds the functions of SciPy's BLAS
by their names, which this module tells LLVM; if the compiler is off, SciPy calls them.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite.binding import add_symbol
from numba.core import types
from numba.extending import get_cython_function_address, overload
from scipy.linalg import blas

from windvane._numba.compilation import compiled
from windvane.types import Floats


def _declare(name: str, arguments: int) -> Any:
    """A function of SciPy's BLAS, which takes the addresses of all its arguments."""
    add_symbol(f"windvane_{name}", get_cython_function_address("scipy.linalg.cython_blas", name))
    return types.ExternalFunction(f"windvane_{name}", types.void(*(types.voidptr,) * arguments))


_dsymv, _dtrmm = _declare("dsymv", 10), _declare("dtrmm", 11)
_INTEGER = np.int64  # little-endian: a BLAS that takes 32 bits reads the half that is in front
FEW_ROWS = 4  # up to it, a product of BLAS for each row takes less time than one for all
_L, _N = 76, 78  # letters: left side or lower half, and not transposed or no unit diagonal


def multiply_symmetric(matrix: Floats, vector: Floats, out: Floats) -> None:
    """Write matrix·vector to `out` (d,) for a symmetric matrix (d, d)."""
    out[:] = blas.dsymv(1.0, matrix.T, vector, lower=1)


def multiply_by_half(matrix: Floats, rows: Floats) -> Floats:
    """Half·row of every row, (n, d), for the half of a matrix (d, d) on and above its diagonal."""
    products: Floats = blas.dtrmm(1.0, matrix.T, rows.T, lower=1).T
    return products


@overload(multiply_symmetric)
def _compile_multiply_symmetric(matrix: Any, vector: Any, out: Any) -> Callable[..., None]:
    def multiply(matrix: Any, vector: Any, out: Any) -> None:
        letter, numbers = np.array([_L], np.uint8).ctypes, np.array([1.0, 0.0])
        size, step = np.array([vector.size], _INTEGER).ctypes, np.array([1], _INTEGER).ctypes
        one, zero, x, y = numbers.ctypes, numbers[1:].ctypes, vector.ctypes, out.ctypes
        _dsymv(letter, size, one, matrix.ctypes, size, x, step, zero, y, step)

    return multiply


@overload(multiply_by_half)
def _compile_multiply_by_half(matrix: Any, rows: Any) -> Callable[..., Any]:
    def multiply(matrix: Any, rows: Any) -> Any:
        letters, one, products = np.array([_L, _N], np.uint8), np.array([1.0]), rows.copy()
        sizes = np.array([rows.shape[1], rows.shape[0]], _INTEGER)
        left, no, d, n = letters.ctypes, letters[1:].ctypes, sizes.ctypes, sizes[1:].ctypes
        _dtrmm(left, left, no, no, d, n, one.ctypes, matrix.ctypes, d, products.ctypes, d)
        return products

    return multiply


@compiled
def multiply_rows(rows: Floats, matrix: Floats) -> Floats:
    """rows·matrix, (n, d), for a symmetric matrix (d, d)."""
    if rows.shape[0] > FEW_ROWS:
        products: Floats = np.dot(rows, matrix)
        return products
    out = np.empty(rows.shape)
    for k in range(rows.shape[0]):
        multiply_symmetric(matrix, rows[k], out[k])
    return out


@compiled
def compute_forms(matrix: Floats, rows: Floats) -> Floats:
    """xᵀ·matrix·x of every row, (n,), for a symmetric matrix (d, d)."""
    products, forms = multiply_by_half(matrix, rows), np.empty(rows.shape[0])
    for k in range(forms.size):
        x, product, total = rows[k], products[k], 0.0
        for i in range(x.size):
            total += x[i] * (2.0 * product[i] - matrix[i, i] * x[i])
        forms[k] = total
    return forms
