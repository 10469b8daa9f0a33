"""Names of array types, for signatures."""

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Singles = npt.NDArray[np.float32]
UnsignedIntegers = npt.NDArray[np.uint64]  # hashes and keys
Booleans = npt.NDArray[np.bool_]
Places = npt.NDArray[np.int64]  # indices, rounds and other whole numbers
Records = npt.NDArray[np.void]  # structured arrays, as `beliefs.full.layout` defines them
