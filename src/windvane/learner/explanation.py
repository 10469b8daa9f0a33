"""Explain a prediction: what each feature and each crossing adds to it."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from windvane.features.json_reader import FeatureList
from windvane.features.labels import Contribution, label_parts, name_crossing
from windvane.features.packed_features import Action, pack_actions, read_action
from windvane.kernels.belief_bank import explain_lesson

if TYPE_CHECKING:
    from windvane.learner.learner import Learner


def explain_action(
    learner: "Learner",
    context: Sequence[Mapping[str, Any]],
    action: Action,
    at: float,
    round_: int,
    with_category: bool = True,
) -> list[Contribution]:
    """List what each feature and crossing adds to the prediction of an action, largest first.

    Without categories, all categories of a feature count under its name.
    """
    bank = learner.bank
    sides = learner.join(context, pack_actions([action]))
    when = max(learner.clock_of(round_, at), bank.newest)
    parts, amounts = explain_lesson(
        bank.rules, bank.bank, bank.scales, sides, bank.lead.column, when
    )
    context_features = FeatureList("the context", context)
    action_features = read_action(action.id, action.features)
    size = learner.array_size
    context_labels = label_parts("context", context_features, with_category, size)
    action_labels = label_parts("action", action_features, with_category, size)
    names = ["constant"]
    labels = context_labels + action_labels
    names += [label for label, value in zip(labels, parts.values, strict=True) if value != 0.0]
    first = len(context_labels)
    for i, action_label in enumerate(action_labels, start=first):
        names += [
            name_crossing(context_label, action_label)
            for j, context_label in enumerate(context_labels)
            if parts.values[i] * parts.values[j] != 0.0 and parts.masks[i] & parts.masks[j]
        ]
    totals: dict[str, float] = {}
    for name, amount in zip(names, amounts.tolist(), strict=True):
        totals[name] = totals.get(name, 0.0) + amount
    order = np.argsort(-np.abs(list(totals.values())), kind="stable")
    listed = list(totals.items())
    return [Contribution(*listed[place]) for place in order]
