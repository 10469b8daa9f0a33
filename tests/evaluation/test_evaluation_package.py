"""The public names of windvane.evaluation."""

from windvane import evaluation


def test_public_names_are_sorted_and_there() -> None:
    assert evaluation.__all__ == sorted(evaluation.__all__)
    assert all(hasattr(evaluation, name) for name in evaluation.__all__)
