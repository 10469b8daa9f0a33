"""Routes on a rectangular street grid, as an action set."""

import numpy as np

from windvane.errors import SettingError
from windvane.sets import ActionSet, paths


def make_routes(dim: int, rows: int, columns: int) -> ActionSet:
    """Make the set of routes between opposite corners of a grid; each street is a coordinate."""
    number = np.arange(rows * columns).reshape(rows, columns)
    right = np.stack([number[:, :-1].ravel(), number[:, 1:].ravel()], axis=1)
    down = np.stack([number[:-1].ravel(), number[1:].ravel()], axis=1)
    edges = np.concatenate([right, down])
    if len(edges) != dim:
        raise SettingError(
            f"world: dim must be {len(edges)}, the number of streets of routes, got {dim}"
        )
    return paths(edges, 0, rows * columns - 1)
