"""The registries: one entry for each memory and each exploration, from which all else follows."""

from types import ModuleType

import pytest

import windvane as wv
from grid import read_any
from windvane import exploration, memory

MODULES = [memory, exploration]
SAVED_TEXTS = [
    "keep()",
    "discount(0.9)",
    "discount(0.999)",
    "discount(0.95, single=True)",
    "fading_prior(0.95, 0.05)",
    "directional(0.9, 0.2)",
    "half_life(20.0)",
    "half_life(0.4)",
    "window(2)",
    "window(30)",
    "restart(25)",
    "restart_at([0, 10, 45])",
    "detect(0.2, 1.0, 1.4, 6.0)",
    "detect_shift(0.2, 1.0, 0.3)",
    "kalman(0.97, 0.5)",
    "one_pass('logistic', 0.95, 2.0)",
    "greedy()",
    "epsilon(0.3)",
    "inverse_gap(4.0)",
    "optimism(0.8)",
    "optimism(confidence(0.05, 0.3, 0.8, 2.0))",
    "randomized(normal(0.7))",
    "randomized(half_normal(0.4 * confidence(0.05, 0.3, 0.8, 2.0)))",
    "randomized(grid(1.5, 9, 0.4, 0.01))",
    "randomized(half_normal(posterior(0.5)))",
    "thompson(0.6)",
    "thompson(posterior(0.8))",
    "thompson(0.6, predictive=True)",
    "perturbed_history(0.6)",
    "perturbed_history(3, 'coins')",
    "perturbed_history(0.6, 'evill')",
]


@pytest.mark.parametrize("module", MODULES)
def test_the_table_in_the_docstring_has_every_entry_of_the_registry(module: ModuleType) -> None:
    lines = [line for line in (module.__doc__ or "").splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[1:]]
    registry = memory.MEMORIES if module is memory else exploration.EXPLORATIONS
    assert [row[0] for row in cells] == [f"`{kind.symbols}`" for kind in registry.values()]
    assert all(all(row) for row in cells)


@pytest.mark.parametrize("kind", [*memory.MEMORIES.values(), *exploration.EXPLORATIONS.values()])
def test_an_entry_has_examples_and_a_public_factory_that_says_its_idea(
    kind: memory.MemoryKind | exploration.ExplorationKind,
) -> None:
    assert kind.name in wv.__all__
    assert getattr(wv, kind.name) is kind.factory
    assert kind.symbols.startswith(f"{kind.name}(")
    assert kind.examples
    for example in kind.examples:
        part = read_any(example)
        assert isinstance(part, wv.Memory | wv.Exploration)
        assert part.kind is kind
    text = kind.factory.__doc__ or ""
    assert f">>> {kind.name}(" in text
    assert any(year in text for year in map(str, range(1950, 2030))), "a reference"


@pytest.mark.parametrize("text", SAVED_TEXTS)
def test_texts_in_saved_files_are_still_written_and_read(text: str) -> None:
    """A file holds its memory and exploration as text, so these texts must not change."""
    assert repr(read_any(text)) == text
