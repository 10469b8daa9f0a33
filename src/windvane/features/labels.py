"""Names of features and crossings, for explanations."""

from typing import NamedTuple

from windvane.features.json_reader import FeatureList


class Contribution(NamedTuple):
    """The name of a feature or of a crossing, and what it adds to an estimate."""

    name: str
    amount: float


def label_parts(
    side: str, features: FeatureList, with_category: bool, array_size: int = 0
) -> list[str]:
    """List the label of each part of a side, "context" or "action".

    Arrays of more than `array_size` numbers have so many parts, unless it is 0.
    """
    labels = []
    for name, length in zip(features.names, features.sizes(), strict=True):
        size = min(length, array_size or length)
        label = side + name[3:] if name.startswith("_id=") else f"{side}.{name}"
        labels += [label if with_category else label.partition("=")[0]] * size
    return labels


def name_crossing(context_label: str, action_label: str) -> str:
    """Name the pair of two labels; an empty label stands for the constant of a side."""
    if context_label and action_label:
        return f"{context_label} × {action_label}"
    return context_label or action_label or "constant"
