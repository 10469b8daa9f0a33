"""What the registries of memories and of explorations share: an entry, its text and its lookup."""

import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Concatenate, Generic, ParamSpec, TypeVar, cast

Part = TypeVar("Part")
Facts = ParamSpec("Facts")
Factory = TypeVar("Factory", bound=Callable[..., object])


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
        """The call that makes this part again, as `text_form` reads it.

        Numbers are always written. A flag or a text is written only if it is not the default.
        """
        parameters = inspect.signature(self.factory).parameters
        if self.arguments is None:
            values: Iterable[object] = (getattr(part, name) for name in parameters)
        else:
            values = self.arguments(part)
        words = []
        for parameter, value in zip(parameters.values(), values, strict=True):
            if isinstance(value, bool | str) and value == parameter.default:
                continue
            words.append(f"{parameter.name}={value}" if isinstance(value, bool) else repr(value))
        return f"{self.name}({', '.join(words)})"


Kind = TypeVar("Kind")


def make_registrar(
    make_entry: Callable[Concatenate[Callable[..., Part], Facts], Kind], registry: dict[str, Kind]
) -> Callable[Facts, Callable[[Factory], Factory]]:
    """Make a decorator that takes facts and enters a factory with these facts in a registry."""

    def register(*args: Facts.args, **facts: Facts.kwargs) -> Callable[[Factory], Factory]:
        def enter(factory: Factory) -> Factory:
            make_part = cast(Callable[..., Part], factory)
            registry[factory.__name__] = make_entry(make_part, *args, **facts)
            return factory

        return enter

    return register
