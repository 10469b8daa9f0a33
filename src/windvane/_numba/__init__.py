"""All that Windvane does with numba and llvmlite beyond `@njit`, and all private names of theirs.

- `compilation`: `@compiled` and `@compiled_in_order`, the decorators of every kernel; `compile_for`
  and `call_directly`, which call a kernel without numba's dispatch on types.
- `linker`: compiles a kernel together with all that it calls, once. numba optimises every level of
  calls again; the first choice takes 12 processor seconds this way and 28 in numba's.
- `disk_cache`: machine code on disk. numba looks only at the file of a function; here the code is
  discarded if any source that compiled code may read has changed. One process at a time compiles a
  function, because two may order its sums differently. Code is loaded without all that numba needs
  to compile, which takes half the time.
- `installed_code`: machine code that a wheel carries for a fixed processor, and whether it fits.
- `compile_notice`: one line on stderr whenever a process compiles for longer than a second.
- `instructions`: those of LLVM that numba does not offer, as functions that compiled code calls.
- `blas`: functions of SciPy's BLAS that numba does not offer, for large symmetric matrices.

What happens if numba changes: pyproject.toml bounds its version, and `tests/test_numba.py` names
each private name that is gone. If a name of `linker.NEEDED` is gone, kernels are compiled in
numba's own way, several times as slowly; without one of `disk_cache.NEEDED`, code is loaded in
numba's way. A missing attribute of the dispatcher's cache (`_cache`, `_cache_file`,
`_source_stamp`) and of the modules that make LLVM code is an error at once. `NUMBA_DISABLE_JIT=1`
runs every kernel as plain Python.
"""
