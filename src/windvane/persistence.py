"""Persistent: what can be saved, loaded, copied, pickled and compared."""

import copy
from abc import ABC, abstractmethod
from os import PathLike
from typing import BinaryIO, ClassVar, Self

import numpy as np

from windvane import policy_file
from windvane._equality import are_equal
from windvane.errors import FileError


class Persistent(ABC):
    """A policy as an object with settings and a state.

    A copy (`copy.copy`, `copy.deepcopy`, `pickle`) has the same settings and the same state. The
    copy continues with the same choices, and neither of the two changes the other. Two policies are
    equal if class, settings and state are equal: key, round, open rounds and everything learned.
    """

    FILE_KIND: ClassVar[str]  # the kind of a saved file, as policy_file names it
    COMPILED: ClassVar[tuple[str, ...]] = ()  # attributes that `_bind_kernels` sets

    @abstractmethod
    def export_settings(self) -> policy_file.Header:
        """Return the settings as the header of a saved file holds them."""

    @abstractmethod
    def export_state(self) -> tuple[policy_file.Header, policy_file.Arrays]:
        """Return everything beyond the settings, as a saved file holds it."""

    @classmethod
    @abstractmethod
    def from_settings(cls, header: policy_file.Header, arrays: policy_file.Arrays) -> Self:
        """Make a policy that has learned nothing from the settings in a saved header.

        The arrays bound its size: a small file must not make a large policy.
        """

    @abstractmethod
    def restore_state(self, header: policy_file.Header, arrays: policy_file.Arrays) -> None:
        """Take over a saved state if it fits the settings; raise ValueError if it does not."""

    def save(self, path: str | PathLike[str] | BinaryIO) -> None:
        """Write the settings and the whole state to a path or to an open binary file.

        A path is replaced atomically: a reader sees the old file or the whole new one.
        """
        header, arrays = self.export_state()
        policy_file.write(path, {**self.export_settings(), **header}, arrays, self.FILE_KIND)

    @classmethod
    def load(cls, path: str | PathLike[str] | BinaryIO) -> Self:
        """Return the policy in a saved file, which continues bit by bit where it was saved."""
        header, arrays = policy_file.read(path, cls.FILE_KIND)
        try:
            policy = cls.from_settings(header, arrays)
            policy.restore_state(header, arrays)
        except (KeyError, TypeError, ValueError, MemoryError, OverflowError) as reason:
            raise FileError(
                f"{policy_file.describe(path)} holds no policy that fits together: {reason}"
            ) from None
        return policy

    def __copy__(self) -> Self:
        return copy.deepcopy(self)  # a shallow copy would share arrays that `learn` changes

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in self.__dict__.items() if name not in self.COMPILED}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update({name: _own_arrays(value) for name, value in state.items()})
        self._bind_kernels()

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other) or not isinstance(other, Persistent):
            return NotImplemented
        return self.export_settings() == other.export_settings() and are_equal(
            self._comparable_state(), other._comparable_state()
        )

    def _comparable_state(self) -> tuple[policy_file.Header, policy_file.Arrays]:
        """Return the state without the spare room in the arrays of past observations."""
        return self.export_state()

    @abstractmethod
    def _bind_kernels(self) -> None:
        """Load the compiled functions that this policy calls, into the attributes in COMPILED."""


def _own_arrays(value: object) -> object:
    """Return a value whose arrays compiled code can change in place.

    An unpickled array can be read-only memory that processes share, as joblib makes it.
    """
    if isinstance(value, np.ndarray):
        is_owned = type(value) is np.ndarray and value.flags.carray
        return value if is_owned else np.array(value, order="C")
    if isinstance(value, tuple) and hasattr(value, "_make"):  # a NamedTuple
        return value._make(map(_own_arrays, value))
    return value
