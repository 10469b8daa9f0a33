"""Compare values that contain arrays."""

import numpy as np


class EqualByContents:
    """A base class of frozen dataclasses with arrays: they are equal if all their fields are."""

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return are_equal(vars(self), vars(other))

    def __hash__(self) -> int:
        fields = vars(self).values()
        return hash(tuple(value for value in fields if not isinstance(value, np.ndarray)))


def are_equal(left: object, right: object) -> bool:
    """Tell if two values are equal; arrays must agree in type, shape and every number."""
    if isinstance(left, np.ndarray) or isinstance(right, np.ndarray):
        return (
            isinstance(left, np.ndarray)
            and isinstance(right, np.ndarray)
            and left.dtype == right.dtype
            and np.array_equal(left, right)
        )
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(are_equal(left[k], right[k]) for k in left)
    if isinstance(left, list | tuple) and isinstance(right, list | tuple):
        return (
            type(left) is type(right)
            and len(left) == len(right)
            and all(map(are_equal, left, right))
        )
    return bool(left == right)
