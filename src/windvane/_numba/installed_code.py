"""Machine code that an installation carries, made for a fixed processor when it was built.

The folder `_machine_code` of the package has a file for each function and signature, and an index
that says for what the code was made. Code is loaded only if all of it fits this process: the
sources, Python, numba, llvmlite, NumPy, the system, and every instruction that it may use. Each
file is compared with its hash in the index. Otherwise functions are compiled for this processor,
and the notice of compilation says what does not fit. An editable installation has no such folder.
"""

import hashlib
import json
import pickle
import sys
from collections.abc import Callable, Mapping
from functools import cache as run_once
from pathlib import Path
from typing import Any

import llvmlite
import numba
import numpy as np
from numba.core.caching import NullCache
from numba.core.compiler import CompileResult
from numba.core.registry import cpu_target

from windvane._numba.compile_notice import compile_notice
from windvane._numba.disk_cache import PACKAGE, compute_stamp, list_saved, register_runtime

FOLDER = PACKAGE / "_machine_code"
INDEX = "index.json"


class InstalledCode(NullCache):  # type: ignore[misc]
    """The code of one function for one signature, as a disk cache that numba reads."""

    def __init__(self, code: bytes) -> None:
        self._code = code

    def load_overload(self, signature: Any, context: Any) -> Any:
        """Return the function; None, and numba compiles it, if it is for other types."""
        register_runtime()
        result = CompileResult._rebuild(context, *pickle.loads(self._code))
        return result if tuple(result.signature.args) == tuple(signature) else None


def find_code(function: Callable[..., object], signature: Any) -> bytes | None:
    """Return the installed code of a function for a signature, or None if there is none."""
    name = _name_file(function, signature)
    expected = _read_index().get(name)
    if expected is None:
        return None
    try:
        code = (FOLDER / name).read_bytes()
    except OSError:
        return None
    return code if hashlib.sha256(code).hexdigest() == expected else None


def pack_code(folder: Path) -> None:
    """Write all code that this process has compiled into a folder, with its index."""
    files = {}
    for function, signature, code in list_saved():
        name = _name_file(function, signature)
        assert name not in files, f"two signatures of {function} have the same text"
        files[name] = hashlib.sha256(code).hexdigest()
        (folder / name).write_bytes(code)
    index = {"made_for": _describe_process(), "files": files}
    (folder / INDEX).write_text(json.dumps(index, indent=1))


def _name_file(function: Callable[..., object], signature: Any) -> str:
    types = ", ".join(map(str, signature))
    text = f"{function.__module__}.{function.__qualname__}({types})"
    return f"{function.__name__}-{hashlib.sha256(text.encode()).hexdigest()[:16]}.bin"


@run_once
def _read_index() -> Mapping[str, str]:
    """Return the hash of every file by its name; nothing if the code does not fit this process."""
    try:
        index = json.loads((FOLDER / INDEX).read_bytes())
    except FileNotFoundError:
        return {}
    made_for, process = index["made_for"], _describe_process()
    lacking = {*made_for.pop("features").split(",")} - {*process.pop("features").split(",")}
    if lacking:
        needed = ", ".join(sorted(each.lstrip("+") for each in lacking))
        compile_notice.reason = f"the installed code needs a processor with {needed}"
        return {}
    for name, value in made_for.items():
        if process[name] != value:
            made = f"other {name}" if name == "sources" else f"{name} {value}, not {process[name]}"
            compile_notice.reason = f"the installed code is for {made}"
            return {}
    files: Mapping[str, str] = index["files"]
    return files


def _describe_process() -> dict[str, str]:
    """Return all that machine code depends on; numba looks at two numbers of NumPy's version."""
    system, _, features = cpu_target.target_context.codegen().magic_tuple()
    return {
        "sources": compute_stamp(),
        "Python": f"{sys.implementation.cache_tag}{getattr(sys, 'abiflags', '')}",
        "numba": numba.__version__,
        "llvmlite": llvmlite.__version__,
        "NumPy": ".".join(np.__version__.split(".")[:2]),
        "system": system,
        "features": features,
    }
