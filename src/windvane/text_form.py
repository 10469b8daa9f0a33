"""Read back what a memory or an exploration prints: one text form for files and command lines.

>>> from windvane.text_form import read
>>> read("discount(0.99)")
discount(0.99)
>>> read("randomized(half_normal(0.4 * confidence(0.01, 0.39)))")
randomized(half_normal(0.4 * confidence(0.01, 0.39, 1.0, 1.0)))

The text looks like Python but is never run: only the names below and plain values are known.
"""

import ast
from collections.abc import Callable

from windvane import exploration, memory
from windvane.errors import SettingError
from windvane.exploration import Confidence, Exploration, Law
from windvane.memory import Memory

Part = Memory | Exploration | Law | Confidence
MEMORIES: dict[str, Callable[..., Memory]] = {
    f.__name__: f
    for f in (
        memory.keep,
        memory.discount,
        memory.window,
        memory.restart,
        memory.restart_at,
        memory.half_life,
        memory.kalman,
        memory.detect,
    )
}
EXPLORATIONS: dict[str, Callable[..., Exploration]] = {
    f.__name__: f
    for f in (
        exploration.greedy,
        exploration.epsilon,
        exploration.optimism,
        exploration.randomized,
        exploration.thompson,
        exploration.perturbed_history,
        exploration.inverse_gap,
    )
}
PIECES: dict[str, Callable[..., Law | Confidence]] = {
    "normal": exploration.normal,
    "half_normal": exploration.half_normal,
    "grid": exploration.grid,
    "confidence": exploration.confidence,
}
KNOWN: dict[str, Callable[..., Part]] = {**MEMORIES, **EXPLORATIONS, **PIECES}


def read(text: str) -> Part:
    """The part that this text stands for."""
    if not isinstance(text, str):
        raise SettingError(f"spec: a text such as 'discount(0.99)' must be given, got {text!r}")
    try:
        tree = ast.parse(text.strip(), mode="eval").body
        part = _value(tree)
    except (SyntaxError, TypeError, ValueError, RecursionError, MemoryError) as reason:
        if isinstance(reason, SettingError):
            raise
        raise SettingError(f"spec: {text!r} cannot be read: {reason}") from None
    if not isinstance(part, Memory | Exploration | Law | Confidence):
        raise SettingError(f"spec: {text!r} must be a call such as discount(0.99)")
    return part


def read_memory(text: str) -> Memory:
    """The memory that this text stands for."""
    part = read(text)
    if not isinstance(part, Memory):
        raise SettingError(f"spec: a memory must be one of {', '.join(MEMORIES)}, got {text!r}")
    return part


def read_exploration(text: str) -> Exploration:
    """The exploration that this text stands for."""
    part = read(text)
    if not isinstance(part, Exploration):
        names = ", ".join(EXPLORATIONS)
        raise SettingError(f"spec: an exploration must be one of {names}, got {text!r}")
    return part


def _value(node: ast.expr) -> object:
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float | str):
        return node.value
    if isinstance(node, ast.List | ast.Tuple):
        return [_value(item) for item in node.elts]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_number(node.operand)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        return _product(_value(node.left), _value(node.right))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        if node.func.id not in KNOWN:
            raise SettingError(f"spec: {node.func.id!r} is none of {', '.join(sorted(KNOWN))}")
        given = [_value(item) for item in node.args]
        named = {item.arg: _value(item.value) for item in node.keywords if item.arg}
        return KNOWN[node.func.id](*given, **named)
    raise SettingError(f"spec: {ast.unparse(node)!r} is neither a known name nor a plain value")


def _number(node: ast.expr) -> float:
    value = _value(node)
    if not isinstance(value, int | float):
        raise SettingError(f"spec: {ast.unparse(node)!r} is not a number")
    return value


def _product(left: object, right: object) -> object:
    if isinstance(left, int | float) and isinstance(right, Confidence):
        return left * right
    if isinstance(left, Confidence) and isinstance(right, int | float):
        return left * right
    raise SettingError("spec: only a number times confidence(...) can be multiplied")
