"""The build of a wheel: setuptools, and machine code for a fixed processor inside the package.

`pip install .` and `python -m build` call the functions of this file (PEP 517). A wheel has the
code that `windvane.warm_up` compiles, so its first choice waits for no compiler. The processor is
fixed, so every machine that has its instructions runs the same code; `TARGETS` has them. On other
machines, in an editable installation and with `-C machine-code=no`, nothing is compiled now; a
process compiles what it needs, once, when it needs it.
"""

import os
import platform
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any

from setuptools import build_meta
from setuptools.build_meta import *  # noqa: F403 what stays as it is
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

Settings = dict[str, Any] | None
X86_64_V3 = (  # as LLVM names what the psABI lists for x86-64-v3
    "cx8 cmov fxsr mmx sse sse2 cx16 sahf popcnt sse3 ssse3 sse4.1 sse4.2 avx avx2 bmi bmi2 f16c "
    "fma lzcnt movbe xsave"
)
TARGETS = {  # the processor as LLVM names it, and its instructions, by the name of the machine
    "x86_64": ("x86-64-v3", X86_64_V3),
    "amd64": ("x86-64-v3", X86_64_V3),
    "aarch64": ("generic", "fp-armv8 neon"),  # every processor of arm64 has these
    "arm64": ("generic", "fp-armv8 neon"),
}
COMPILE = """
import pathlib, sys
import windvane
from windvane._numba.installed_code import pack_code
windvane.warm_up()
pack_code(pathlib.Path(sys.argv[1]))
"""
_wants_machine_code = False  # a build of a wheel may turn it on


def get_requires_for_build_wheel(config_settings: Settings = None) -> list[str]:
    """Return what a build needs beside setuptools: all that the package imports, to compile it."""
    if not _read_settings(config_settings):
        return []
    project = tomllib.loads(Path("pyproject.toml").read_text("utf-8"))["project"]
    needed: list[str] = project["dependencies"]
    return needed


def build_wheel(
    wheel_directory: str, config_settings: Settings = None, metadata_directory: str | None = None
) -> str:
    """Build a wheel with machine code, or without it if the settings or the machine say so."""
    global _wants_machine_code
    _wants_machine_code = _read_settings(config_settings)
    return str(build_meta.build_wheel(wheel_directory, None, metadata_directory))


def _read_settings(settings: Settings) -> bool:
    value = (settings or {}).get("machine-code", "yes")
    if value not in ("yes", "no"):
        sys.exit(f"windvane: the setting machine-code must be yes or no, got {value!r}")
    return bool(value == "yes")


def find_target() -> tuple[str, str] | None:
    """Return the processor to compile for, with its instructions, or None if there is none."""
    target = TARGETS.get(platform.machine().lower())
    if target is None:
        return None
    from llvmlite import binding  # a requirement of builds with machine code

    processor, features = target
    has = binding.get_host_cpu_features()
    missing = [name for name in features.split() if not has.get(name)]
    if missing:
        print(f"windvane: no machine code: this processor has no {', '.join(missing)}")
        return None
    return processor, ",".join(f"+{name}" for name in features.split())


class BuildPackage(build_py):  # type: ignore[misc]
    """Copies the sources, and compiles their kernels beside them."""

    def run(self) -> None:
        super().run()
        folder = Path(self.build_lib) / "windvane" / "_machine_code"
        shutil.rmtree(folder, ignore_errors=True)  # of an earlier build
        target = find_target() if _wants_machine_code else None
        if target is None:
            return
        folder.mkdir()
        with tempfile.TemporaryDirectory() as cache:
            variables = {
                "NUMBA_CPU_NAME": target[0],
                "NUMBA_CPU_FEATURES": target[1],
                "NUMBA_CACHE_DIR": cache,
                "PYTHONDONTWRITEBYTECODE": "1",
                "PYTHONPATH": os.pathsep.join([self.build_lib, os.environ.get("PYTHONPATH", "")]),
                "WINDVANE_COMPILE_NOTICE": "0",
            }
            command = [sys.executable, "-c", COMPILE, str(folder)]
            subprocess.run(command, env=os.environ | variables, check=True)


class PlatformWheel(bdist_wheel):  # type: ignore[misc]
    """A wheel for one Python and one system if it has machine code, else one for all."""

    def finalize_options(self) -> None:
        super().finalize_options()
        self.root_is_pure = not _wants_machine_code or find_target() is None
