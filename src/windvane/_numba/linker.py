"""Link what a compiled function calls into it, and optimise the whole once.

numba optimises a function together with all that it calls and makes machine code of the result,
again at every level of calls. Here only a function that Python calls is optimised and made into
machine code. The functions that it calls stay LLVM code, which is linked into their callers. This
halves the time of the first use, and more.

The names of numba in NEEDED are private, so pyproject.toml bounds numba's version. If one of them
is gone, functions are compiled in numba's own way; `tests/test_numba.py` then says which.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cached_property
from typing import Any

from llvmlite import ir
from llvmlite.binding import Linkage, ModuleRef, parse_assembly
from numba import njit
from numba.core.codegen import JITCodeLibrary, JITCPUCodegen
from numba.core.compiler import Compiler, CompileResult
from numba.core.cpu import CPUContext

from windvane._numba.compile_notice import compile_notice

NEEDED = {
    JITCodeLibrary: (
        *("_optimize_functions", "_finalize_final_module", "_ensure_finalized"),
        *("_get_compiled_object", "serialize_using_object_code"),
    ),
    JITCPUCodegen: (
        *("_library_class", "_function_pass_manager", "_create_empty_module"),
        *("create_library", "set_env"),
    ),
    CPUContext: ("create_cfunc_wrapper",),
    CompileResult: ("_find_referenced_environments",),
}


POINTER = ir.IntType(8).as_pointer()


def can_link() -> bool:
    """Whether this version of numba has all private names that are needed here."""
    return all(hasattr(owner, name) for owner, names in NEEDED.items() for name in names)


class Library(JITCodeLibrary):  # type: ignore[misc]
    """LLVM code whose functions are simplified one by one before they are linked."""

    def _optimize_functions(self, module: ModuleRef) -> None:
        """Run LLVM's function passes on the functions of a module, and not on its declarations.

        A module declares many times as many functions as it has, and a run takes its time on each.
        """
        module.data_layout = self._codegen._data_layout
        for function in module.functions:
            if not function.is_declaration:
                passes, builder = self._codegen._function_pass_manager()
                passes.run(function, builder)


class LinkedLibrary(Library):
    """The LLVM code of a function that only compiled code calls."""

    _whole_module: ModuleRef | None = None  # with all that it calls

    @property
    def codegen(self) -> type["NoEnvironments"]:
        """Where numba sets the environment of a function once it has machine code."""
        return NoEnvironments

    def finalize(self) -> None:
        """Leave the code as it is: an entry links it and all that it calls, and optimises that."""
        self._raise_if_finalized()
        for function in self._final_module.functions:
            if not function.is_declaration and function.linkage == Linkage.external:
                function.linkage = "linkonce_odr"
        self._finalize_dynamic_globals()
        self._finalized = True

    @property
    def own_module(self) -> ModuleRef:
        """The code of this library without what it calls."""
        self._ensure_finalized()
        return self._final_module

    def _get_module_for_linking(self) -> ModuleRef:
        """Return the code with all that it calls, for functions compiled in numba's way."""
        if self._whole_module is None:
            self._whole_module = self.own_module.clone()
            link_all(self._whole_module, self._linking_libraries)
        return self._whole_module

    def get_pointer_to_function(self, name: str) -> int:
        """Return no address; Python never calls this code."""
        self._ensure_finalized()
        return 0


class EntryLibrary(Library):
    """The machine code of a function that Python calls, with all that it calls."""

    def finalize(self) -> None:
        """Link every library once, optimise, and make machine code."""
        for library in link_all(self._final_module, self._linking_libraries):
            self._reload_init.update(library._reload_init)
        self._linking_libraries.clear()
        super().finalize()

    def serialize_using_object_code(self) -> tuple[str, str, tuple[bytes, bytes]]:
        """Return what is kept on disk: the machine code, and the names by which it is called.

        numba keeps all LLVM code, to link it into other functions, and reads it when it loads the
        machine code. Nobody links an entry, so a variable for each name is enough.
        """
        self._ensure_finalized()
        names = self._codegen._create_empty_module(self.name)
        for function in self._final_module.functions:
            if not function.is_declaration and function.linkage == Linkage.external:
                ir.GlobalVariable(names, POINTER, function.name).initializer = POINTER(None)
        bitcode = parse_assembly(str(names)).as_bitcode()
        return self.name, "object", (self._get_compiled_object(), bitcode)


def link_all(module: ModuleRef, libraries: Sequence[JITCodeLibrary]) -> list[JITCodeLibrary]:
    """Link libraries and all that they call into a module; return them, each once.

    Callers come before what they call, because LLVM leaves out what nothing has called so far.
    """
    found: dict[JITCodeLibrary, None] = {}  # what is called comes first

    def find(library: JITCodeLibrary) -> None:
        if library not in found:
            if isinstance(library, LinkedLibrary):
                for called in library._linking_libraries:
                    find(called)
            found[library] = None

    for library in libraries:
        find(library)
    for library in reversed(found):
        is_linked = isinstance(library, LinkedLibrary)
        code = library.own_module if is_linked else library._get_module_for_linking()
        module.link_in(code, preserve=True)
    return list(found)


class NoEnvironments:
    """Drops the environment of a function without machine code; its caller gets it instead."""

    @staticmethod
    def set_env(name: str, environment: object) -> None:
        """Do nothing."""


class EntryCompiler(Compiler):  # type: ignore[misc]
    """Compiles a function that Python calls, with all that it calls linked into it."""

    def __init__(self, *arguments: object) -> None:
        """Take what numba gives; the first time, numba registers all that it can compile.

        It then looks for a BLAS by an import of SciPy's linear algebra, which takes a fifth of a
        second. SciPy is always installed here, and a function that calls a BLAS imports it when it
        is compiled.
        """
        from numba.np import linalg  # imported late: a process that only loads code does without

        with replacing(linalg, "ensure_blas", _do_nothing):
            super().__init__(*arguments)

    def compile_extra(self, function: Callable[..., object]) -> CompileResult:
        """Compile the function; numba calls this if the function is not in its disk cache."""
        codegen = self.state.targetctx.codegen()
        self.state.library = EntryLibrary(codegen, function.__qualname__)
        self.state.library.enable_object_caching()
        with ExitStack() as stack:
            stack.enter_context(compile_notice.watch())
            # Every library that is created in the meantime is a linked one, and numba makes no
            # functions that C could call, as it does of every function that it calls itself.
            context = self.state.targetctx
            stack.enter_context(replacing(codegen, "_library_class", LinkedLibrary))
            stack.enter_context(replacing(context, "create_cfunc_wrapper", _do_nothing))
            result = super().compile_extra(function)
        result = EntryResult(*result)._replace(type_annotation="")  # long, and nobody reads it
        for environment in result._find_referenced_environments():
            codegen.set_env(environment.env_name, environment)
        return result


class EntryResult(CompileResult):  # type: ignore[misc]
    """What numba knows of an entry, and keeps on disk."""

    __slots__ = ()

    def _find_referenced_environments(self) -> list[Any]:
        """Return the environments that code may read: not those of numba's own that are empty.

        An environment imports its module when the code is loaded, and the modules of numba take
        long. A function needs its environment to raise an error with values in it; what numba
        raises in these functions are fixed texts.
        """
        return [
            each
            for each in super()._find_referenced_environments()
            if each.consts or not each.globals["__name__"].startswith("numba.")
        ]


@contextmanager
def replacing(owner: object, name: str, value: object) -> Iterator[None]:
    """Give an object another attribute in the meantime, instead of its own or its class's."""
    before = {key: own for key, own in vars(owner).items() if key == name}
    setattr(owner, name, value)
    try:
        yield
    finally:
        delattr(owner, name)
        vars(owner).update(before)


def _do_nothing(*_: object) -> None:
    """Do nothing."""


class LinkedFunction:
    """A function as compiled code calls it, beside the dispatcher that Python calls."""

    def __init__(self, function: Callable[..., object], options: dict[str, object]) -> None:
        self._function = function
        self._options = {**options, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}

    @cached_property
    def _dispatcher(self) -> Any:
        """The dispatcher, made when the first caller is compiled."""
        return njit(**self._options)(self._function)

    def serve_calls_of(self, dispatcher: Any) -> None:
        """Answer what numba asks a dispatcher while it compiles a caller."""
        dispatcher.get_call_template = self._get_call_template
        dispatcher.get_overload = self._get_overload

    def _get_call_template(self, args: Any, kws: Any) -> Any:
        return self._dispatcher.get_call_template(args, kws)

    def _get_overload(self, signature: Any) -> Any:
        return self._dispatcher.get_overload(signature)
