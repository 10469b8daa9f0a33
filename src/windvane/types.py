"""The array types that signatures name."""

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Places = npt.NDArray[np.int64]
Records = npt.NDArray[np.void]
