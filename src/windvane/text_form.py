"""Memories and explorations as text: one form for files, command lines and arguments.

>>> from windvane.text_form import read
>>> read("discount(0.99)")
discount(0.99)
>>> read("randomized(half_normal(0.4 * confidence(0.01, 0.39)))")
randomized(half_normal(0.4 * confidence(0.01, 0.39, 1.0, 1.0)))

The text looks like Python but is never run. Only registered names and plain values are accepted.
"""

import ast
import inspect
from collections.abc import Callable, Mapping, Sequence

from windvane import validation
from windvane.errors import SettingError
from windvane.exploration import EXPLORATIONS, Exploration
from windvane.laws import LAWS, Confidence, Law, Posterior, confidence, posterior
from windvane.memory import MEMORIES, Memory

Part = Memory | Exploration | Law | Confidence | Posterior
Factories = Mapping[str, Callable[..., object]]
FACTORIES: dict[str, Callable[..., Part]] = {
    **{kind.name: kind.factory for kind in MEMORIES.values()},
    **{kind.name: kind.factory for kind in EXPLORATIONS.values()},
    **LAWS,
    "confidence": confidence,
    "posterior": posterior,
}


def as_memory(who: str, memory: object) -> Memory:
    """The memory itself, or the one that a text such as "discount(0.99)" stands for."""
    if isinstance(memory, str):
        return read_memory(memory)
    if not isinstance(memory, Memory):
        raise SettingError(
            f"{who}: memory must be a Memory or a text such as 'discount(0.99)', "
            f"got {_describe(memory)}"
        )
    return memory


def as_exploration(who: str, exploration: object) -> Exploration:
    """The exploration itself, or the one that a text such as "thompson(0.5)" stands for."""
    if isinstance(exploration, str):
        return read_exploration(exploration)
    if not isinstance(exploration, Exploration):
        raise SettingError(
            f"{who}: exploration must be an Exploration or a text such as 'thompson(0.5)', "
            f"got {_describe(exploration)}"
        )
    return exploration


def _describe(value: object) -> str:
    """How an error shows a value: a factory that was not called by its name."""
    if inspect.isfunction(value):
        return f"the function {value.__name__} itself; call it: {_format_call(value)}"
    return repr(value)


def _format_call(factory: Callable[..., object]) -> str:
    """The shortest call of a factory: its name and the arguments that have no default."""
    parameters = inspect.signature(factory).parameters.values()
    names = [each.name for each in parameters if each.default is inspect.Parameter.empty]
    return f"{factory.__name__}({', '.join(names)})"


def read_memory(text: str) -> Memory:
    """The memory that a text stands for."""
    part = _read("memory", text, list(MEMORIES))
    if not isinstance(part, Memory):
        raise SettingError(f"memory: must be one of {', '.join(MEMORIES)}, got {text!r}")
    return part


def read_exploration(text: str) -> Exploration:
    """The exploration that a text stands for."""
    part = _read("exploration", text, list(EXPLORATIONS))
    if not isinstance(part, Exploration):
        raise SettingError(f"exploration: must be one of {', '.join(EXPLORATIONS)}, got {text!r}")
    return part


def read(text: str) -> Part:
    """The memory, exploration, law, confidence or posterior that a text stands for."""
    return _read("text", text, list(FACTORIES))


def _read(who: str, text: str, names: list[str]) -> Part:
    """Read a text; `names` are the ones to suggest if the outermost name is unknown."""
    part = read_call(who, text, FACTORIES, names)
    if not isinstance(part, Part):
        raise SettingError(f"{who}: must be a call such as discount(0.99), got {text!r}")
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
        raise SettingError(f"{who}: must be a text such as '{suggestions[-1]}(...)', got {text!r}")
    try:
        tree = ast.parse(text.strip(), mode="eval").body
        return _evaluate(who, tree, factories, suggestions)
    except (SyntaxError, TypeError, ValueError, RecursionError, MemoryError) as reason:
        if isinstance(reason, SettingError):
            raise
        raise SettingError(f"{who}: {text!r} cannot be read: {reason}") from None


def _evaluate(who: str, node: ast.expr, factories: Factories, names: Sequence[str]) -> object:
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float | str | None):
        return node.value
    if isinstance(node, ast.List | ast.Tuple):
        return [_evaluate(who, item, factories, names) for item in node.elts]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_number(who, node.operand, factories)
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
        f"{who}: {ast.unparse(node)!r} is neither a call such as {example} nor a plain value"
    )


def _find_factory(
    who: str, name: str, factories: Factories, names: Sequence[str]
) -> Callable[..., object]:
    if name not in factories:
        hint = validation.suggest(name, names, f"; known names are {', '.join(names)}")
        raise SettingError(f"{who}: {name!r} is unknown{hint}")
    return factories[name]


def _number(who: str, node: ast.expr, factories: Factories) -> float:
    value = _evaluate(who, node, factories, [])
    if not isinstance(value, int | float):
        raise SettingError(f"{who}: {ast.unparse(node)!r} is not a number")
    return value


def _multiply(who: str, left: object, right: object) -> object:
    if isinstance(left, int | float) and isinstance(right, Confidence | Posterior):
        return left * right
    if isinstance(left, Confidence | Posterior) and isinstance(right, int | float):
        return left * right
    raise SettingError(
        f"{who}: only a number and confidence(...) or posterior(...) can be multiplied"
    )
