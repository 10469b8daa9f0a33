"""Checks of arguments, made once, where a caller enters the library.

Every check returns the value in the type that the library computes with, or raises an error that
says who checked, what must hold and what came: `discount: gamma must lie in (0, 1), got 1.2`.

Memories, explorations and laws can be given as text. An `Entry` of a registry writes the text of a
part, and `read_part` reads it.
"""

import ast
import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Concatenate, Generic, NoReturn, ParamSpec, TypeVar, cast

import numpy as np
import numpy.typing as npt

from windvane.errors import ArmsError, RewardError, SettingError, shorten
from windvane.settings import check_sequence as check_sequence
from windvane.settings import inside as inside
from windvane.settings import not_negative as not_negative
from windvane.settings import of_kind as of_kind
from windvane.settings import positive as positive
from windvane.settings import real as real
from windvane.settings import share as share
from windvane.settings import to_float
from windvane.settings import whole as whole
from windvane.types import Floats

FLOAT64 = np.dtype(np.float64)
LARGEST = 1e100  # a reward, or the squared norm of an arm, above this counts as not finite
UNREADABLE = (TypeError, ValueError, OverflowError, RecursionError, MemoryError)  # by NumPy
NOT_REAL_KINDS = "cmM"  # of NumPy types: complex numbers, differences of times, times
Kind = TypeVar("Kind")
Item = TypeVar("Item")
Part = TypeVar("Part")
Facts = ParamSpec("Facts")
Factory = TypeVar("Factory", bound=Callable[..., object])
EntryKind = TypeVar("EntryKind")


def suggest(name: object, names: Iterable[str], otherwise: str = "") -> str:
    """The end of an error about an unknown name: the closest of the known ones, if one is close.

    >>> suggest("discuont", ["discount", "window"])
    "; did you mean 'discount'?"
    """
    by_lower_case = {known.lower(): known for known in names}
    matches = get_close_matches(shorten(name, str).lower(), by_lower_case, n=1)
    return f"; did you mean {by_lower_case[matches[0]]!r}?" if matches else otherwise


def check_numbers(who: str, name: str, value: npt.ArrayLike, axes: int) -> Floats:
    """Return a copy of at least one finite number in an array of 1, 2 or 3 axes."""
    array = _read_or_empty(value)
    if array.ndim != axes or array.size == 0 or not np.isfinite(array).all():
        shape = {1: "a row", 2: "rows", 3: "a table of rows"}[axes]
        raise SettingError(
            f"{who}: {name} must be {shape} of finite numbers, at least one"
            + (", and rows of one length" if axes > 1 else "")
        )
    return array


def check_vector(who: str, name: str, value: npt.ArrayLike, size: int) -> Floats:
    """Return a copy of exactly `size` finite numbers."""
    vector = _read_or_empty(value)
    if vector.shape != (size,) or not np.isfinite(vector).all():
        raise ArmsError(f"{who}: {name} must be {size} finite numbers, got {shorten(value)}")
    return vector


def check_arms(who: str, arms: npt.ArrayLike, dim: int | None = None, copy: bool = False) -> Floats:
    """Return arms as rows (K, d) that compiled code can read; without `dim`, d may be any number.

    Without `copy`, the rows may share memory with `arms`. Their numbers are not checked.
    """
    try:
        rows = _to_floats(arms, copy)
    except UNREADABLE as reason:
        raise ArmsError(f"{who}: arms must be rows of numbers: {reason}") from None
    if rows.ndim != 2 or (dim is not None and rows.shape[1] != dim):
        raise ArmsError(
            f"{who}: arms must have shape (K, {dim or 'd'}), one row for each arm, got {rows.shape}"
        )
    if rows.size == 0:
        raise ArmsError(f"{who}: there must be at least one arm and feature, got {rows.shape}")
    return rows if rows.flags.carray else rows.copy()


def read_rows(arms: npt.ArrayLike, dim: int) -> Floats:
    """Return arms as rows (K, d) that compiled code can read in place, if possible."""
    if (
        type(arms) is np.ndarray
        and arms.dtype is FLOAT64
        and arms.ndim == 2
        and arms.shape[1] == dim
        and arms.shape[0] > 0
        and arms.flags.carray
    ):
        return arms
    return check_arms("choose", arms, dim)


def check_features(who: str, features: npt.ArrayLike, dim: int) -> Floats:
    """Return a copy of the features of one arm, (d,). Their numbers are not checked."""
    try:
        row = _to_floats(features)
    except UNREADABLE as reason:
        raise ArmsError(f"{who}: features must be numbers: {reason}") from None
    if row.shape != (dim,):
        got = row.shape if row.ndim else repr(features)  # such as an index in place of a choice
        raise ArmsError(f"{who}: features must have shape ({dim},), got {got}")
    return row


def check_finite_arms(rows: Floats, who: str = "choose") -> Floats:
    """Return the same rows (K, d) if every number is finite and no row is too long."""
    if not (np.einsum("kd,kd->k", rows, rows) <= LARGEST).all():
        refuse_arms(rows, who)
    return rows


def refuse_arms(rows: Floats, who: str = "choose") -> NoReturn:
    """Raise an error that names the first arm that cannot be scored."""
    squared_norms = np.einsum("kd,kd->k", rows, rows)
    arm = int(np.argmin(squared_norms <= LARGEST))
    raise ArmsError(
        f"{who}: arms must be finite, with norm up to {LARGEST**0.5:g}; "
        f"arm {arm} is {np.array2string(rows[arm], threshold=8)}"
    )


def check_reward(reward: object, who: str = "learn") -> float:
    """Return a reward as a finite float."""
    is_scalar = isinstance(reward, np.ndarray | np.generic) and not reward.ndim
    value = to_float(cast(np.generic, reward).item() if is_scalar else reward)
    if not -LARGEST <= value <= LARGEST:
        bound = f" of at most {LARGEST:g} in size" if math.isfinite(value) else ""
        raise RewardError(
            f"{who}: the reward must be a finite number{bound}, got {shorten(reward)}"
        )
    return value


def _read_or_empty(value: npt.ArrayLike) -> Floats:
    """Return a copy of the value as float64, or an empty array if it does not hold numbers."""
    try:
        return _to_floats(value)
    except UNREADABLE:
        return np.empty(0)


def _to_floats(value: npt.ArrayLike, copy: bool = True) -> Floats:
    """Return a value as float64, or raise; without `copy`, it may share memory with the value."""
    if isinstance(value, np.ndarray | np.generic) and value.dtype.kind in NOT_REAL_KINDS:
        raise TypeError(f"{value.dtype} is not a real number")  # NumPy would convert it
    return np.array(value, dtype=np.float64, order="C", copy=copy or None)


# Parts as text: one form for files, command lines and arguments. The text looks like Python but is
# never run. Only registered names and plain values are accepted.

Factories = Mapping[str, Callable[..., object]]
FACTORIES: dict[str, Callable[..., object]] = {}  # of memories, explorations and laws, by name


class Scalable(ABC):
    """A width that a text may multiply by a number: `0.4 * confidence(0.01)`."""

    @abstractmethod
    def __mul__(self, factor: float) -> "Scalable":
        """Return the width times a number."""


@dataclass(frozen=True)
class Entry(Generic[Part]):
    """One row of a registry: a factory and how the parts that it makes are written."""

    factory: Callable[..., Part]
    symbols: str  # the call with the letters of the equations, for tables: "discount(γ)"
    examples: tuple[str, ...]  # calls, as text, that every property test runs over
    # the values of the factory's parameters; None: the fields of these names
    arguments: Callable[[Part], Sequence[object]] | None = None

    @property
    def name(self) -> str:
        """The name of the factory."""
        return self.factory.__name__

    def format(self, part: Part) -> str:
        """The call that makes this part again, as `read_part` reads it.

        Numbers are always written. A flag or a text is written only if it is not the default.
        """
        parameters = inspect.signature(self.factory).parameters
        if self.arguments is None:
            values: Iterable[object] = (getattr(part, name) for name in parameters)
        else:
            values = self.arguments(part)
        words = []
        for parameter, value in zip(parameters.values(), values, strict=True):
            if parameter.kind is parameter.VAR_POSITIONAL:
                words += [repr(each) for each in cast(Iterable[object], value)]
            elif parameter.kind is parameter.KEYWORD_ONLY:
                words += [f"{parameter.name}={value!r}"] if value else []
            elif isinstance(value, bool):
                words += [f"{parameter.name}={value}"] if value != parameter.default else []
            elif not isinstance(value, str) or value != parameter.default:
                words.append(repr(value))
        return f"{self.name}({', '.join(words)})"


class Registry(dict[str, EntryKind], Generic[EntryKind, Part]):
    """The entries of all parts of one kind, by name."""

    def __init__(self, who: str, kind: type[Part], example: str) -> None:
        super().__init__()
        self.who = who  # "memory" or "exploration"
        self.kind = kind
        self.example = example

    def make_registrar(
        self, make_entry: Callable[Concatenate[Callable[..., Part], Facts], EntryKind]
    ) -> Callable[Facts, Callable[[Factory], Factory]]:
        """Make a decorator that takes facts and enters a factory with these facts."""

        def register(*args: Facts.args, **facts: Facts.kwargs) -> Callable[[Factory], Factory]:
            def enter(factory: Factory) -> Factory:
                make_part = cast(Callable[..., Part], factory)
                self[factory.__name__] = make_entry(make_part, *args, **facts)
                FACTORIES[factory.__name__] = factory
                return factory

            return enter

        return register

    def names_of(self, can: Callable[[EntryKind], bool]) -> list[str]:
        """The names of the parts with some capability."""
        return [name for name, entry in self.items() if can(entry)]

    def read(self, text: object) -> Part:
        """The part that a text stands for."""
        return read_part(self.who, text, self.kind, list(self))

    def accept(self, who: str, part: object) -> Part:
        """The part itself, or the one that a text stands for."""
        if isinstance(part, str):
            return self.read(part)
        if not isinstance(part, self.kind):
            name = self.kind.__name__
            article = "an" if name[0] in "AEIOU" else "a"
            raise SettingError(
                f"{who}: {self.who} must be {article} {name} or a text such as {self.example!r}, "
                f"got {describe_part(part)}"
            )
        return part


def describe_part(value: object) -> str:
    """How an error shows a value: a factory that was not called by its name."""
    if inspect.isfunction(value):
        return f"the function {value.__name__} itself; call it: {_format_call(value)}"
    return shorten(value)


def _format_call(factory: Callable[..., object]) -> str:
    """The shortest call of a factory: its name and the arguments that have no default."""
    parameters = inspect.signature(factory).parameters.values()
    names = [each.name for each in parameters if each.default is inspect.Parameter.empty]
    return f"{factory.__name__}({', '.join(names)})"


def read_part(who: str, text: object, kind: type[Item], names: Sequence[str]) -> Item:
    """Return the memory, the exploration or the law that a text stands for.

    `names` are the factories of this kind.
    """
    part = read_call(who, text, FACTORIES, names)
    if part is None or isinstance(part, int | float | str | list):
        raise SettingError(f"{who}: must be a call such as discount(0.99), got {shorten(text)}")
    if not isinstance(part, kind):
        raise SettingError(f"{who}: must be one of {', '.join(names)}, got {shorten(text)}")
    return part


def read_call(
    who: str, text: object, factories: Factories, names: Sequence[str] | None = None
) -> object:
    """Return the value of a text such as "walk(2.0)" that calls only the given factories.

    `names` are the names to suggest if the outermost name is unknown, by default all of them.

    >>> read_call("numbers", "total([1, -2.5])", {"total": sum})
    -1.5
    """
    suggestions = list(factories if names is None else names)
    if not isinstance(text, str):
        raise SettingError(
            f"{who}: must be a text such as '{suggestions[-1]}(...)', got {shorten(text)}"
        )
    try:
        tree = ast.parse(text.strip(), mode="eval").body
        return _evaluate(who, tree, factories, suggestions)
    except (SyntaxError, TypeError, ValueError, RecursionError, MemoryError) as reason:
        if isinstance(reason, SettingError):
            raise
        raise SettingError(f"{who}: {shorten(text)} cannot be read: {reason}") from None


def _evaluate(who: str, node: ast.expr, factories: Factories, names: Sequence[str]) -> object:
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float | str | None):
        return node.value
    if isinstance(node, ast.List | ast.Tuple):
        return [_evaluate(who, item, factories, names) for item in node.elts]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        value = _evaluate(who, node.operand, factories, [])
        if not isinstance(value, int | float):
            raise SettingError(f"{who}: {shorten(ast.unparse(node.operand))} is not a number")
        return -value
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        left, right = (_evaluate(who, side, factories, names) for side in (node.left, node.right))
        return _multiply(who, left, right)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        factory = _find_factory(who, node.func.id, factories, names)
        inner = list(factories)
        positional = [_evaluate(who, item, factories, inner) for item in node.args]
        named = {
            item.arg: _evaluate(who, item.value, factories, inner)
            for item in node.keywords
            if item.arg
        }
        return factory(*positional, **named)
    if isinstance(node, ast.Name):
        factory = _find_factory(who, node.id, factories, names)
        raise SettingError(
            f"{who}: {node.id!r} must be a call such as {_format_call(factory)}, with parentheses"
        )
    example = f"{next(iter(names or factories))}(...)"
    raise SettingError(
        f"{who}: {shorten(ast.unparse(node))} is neither a call such as {example} nor a plain value"
    )


def _find_factory(
    who: str, name: str, factories: Factories, names: Sequence[str]
) -> Callable[..., object]:
    if name not in factories:
        hint = suggest(name, names, f"; known names are {', '.join(names)}")
        raise SettingError(f"{who}: {shorten(name)} is unknown{hint}")
    return factories[name]


def _multiply(who: str, left: object, right: object) -> object:
    plain, other = (left, right) if isinstance(left, int | float) else (right, left)
    if isinstance(plain, int | float) and isinstance(other, Scalable):
        return other * plain
    raise SettingError(
        f"{who}: only a number and confidence(...) or posterior(...) can be multiplied"
    )
