"""Features of a dsjson line, in the form in which the learner and the encoder read features.

| dsjson | becomes |
|---|---|
| `"FromUrl": [{…}, {…}]`, and `"j": [{…}]` of an action | the objects, as the client sent them |
| another object, or list of objects, under a key | a namespace with the name of the key |
| a number, text, boolean or list under a key | a feature |
| objects in a namespace | features with a dot in their names: `a.b` |
| action `"i"`, and keys that start with `_` | nothing: they hold the id, labels and tags |
"""

from collections.abc import Mapping, Sequence

from windvane.evaluation.log_batch import DecisionFeatures, LoggedAction

SENT_CONTEXT = "FromUrl"  # holds the context features of a rank request
SENT_FEATURES = "j"  # holds the features of an action of a rank request
ACTION_ID = "i"
SLOT_FEATURES = "sj"
SLOT = "slot"  # the namespace of a slot's id and features

JsonObject = dict[str, object]


def read_decision_features(
    context: Mapping[str, object], ids: Sequence[str], slot: Mapping[str, object] | None = None
) -> DecisionFeatures:
    """The features of a line's `c`, with those of one slot if the line has slots."""
    objects = read_objects(context, SENT_CONTEXT)
    if slot is not None:
        features = {SLOT_FEATURES: slot.get(SLOT_FEATURES)}
        merged: JsonObject = {"id": str(slot.get("_id", ""))}
        for each in read_objects(features, SLOT_FEATURES):
            merged.update(_flatten(each))
        objects.append({SLOT: merged})
    actions = context.get("_multi")
    assert isinstance(actions, list)  # the reader has counted them
    return DecisionFeatures(
        objects,
        [
            LoggedAction(id_, read_objects(action, SENT_FEATURES))
            for id_, action in zip(ids, actions, strict=True)
        ],
    )


def read_objects(features: Mapping[str, object], sent: str) -> list[JsonObject]:
    """Objects with at most one level of namespaces; `sent` is the key of what a client sent."""
    objects: list[JsonObject] = []
    for key, value in features.items():
        if key.startswith("_") or key == ACTION_ID:
            continue
        parts = value if isinstance(value, list) and _has_objects(value) else [value]
        if key == sent:
            objects += [_limit_depth(part) for part in parts if isinstance(part, dict)]
            parts = [part for part in parts if not isinstance(part, dict)]
        for part in parts:
            if isinstance(part, dict):
                objects.append({key: _flatten(part)})
            elif part is not None:
                objects.append({key: part})
    return objects


def _has_objects(values: list[object]) -> bool:
    return any(isinstance(value, dict) for value in values)


def _limit_depth(features: JsonObject) -> JsonObject:
    """An object whose namespaces hold no further objects."""
    return {
        name: _flatten(value) if isinstance(value, dict) else value
        for name, value in features.items()
    }


def _flatten(features: JsonObject, prefix: str = "") -> JsonObject:
    """The features of an object and of all objects in it, under names joined by dots."""
    flat: JsonObject = {}
    for name, value in features.items():
        if name.startswith("_"):
            continue
        parts = value if isinstance(value, list) and _has_objects(value) else [value]
        for part in parts:
            if isinstance(part, dict):
                flat |= _flatten(part, f"{prefix}{name}.")
            else:
                flat[f"{prefix}{name}"] = part
    return flat
