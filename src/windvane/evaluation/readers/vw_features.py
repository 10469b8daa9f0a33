"""Features of Vowpal Wabbit's text format.

| text | becomes |
|---|---|
| `\\| age:25` | the number `age` |
| `\\|User age:25` | the number `age` in the namespace `User` |
| `\\|User device=phone` | the category `device=phone` in the namespace |
| `\\|User new` | the number `new` = 1 |
| `\\|User tag=a tag=b` | the categories `tag=a` and `tag=b` |
| `\\|User:2 age:25` | numbers times 2 |
"""

from typing import cast

JsonObject = dict[str, object]


def parse_namespaces(text: str) -> list[JsonObject]:
    """Parse what stands after the first bar of a line; raises ValueError."""
    top: JsonObject = {}
    namespaces: dict[str, JsonObject] = {}
    for part in text.split("|"):
        head, *tokens = part.split() if part[:1].strip() else ["", *part.split()]
        name, scale = _split_number(head, 1.0)
        features = namespaces.setdefault(name, {}) if name else top
        for token in tokens:
            _add_feature(features, token, scale)
    objects: list[JsonObject] = [{name: each} for name, each in namespaces.items() if each]
    return [top, *objects] if top else objects


def _add_feature(features: JsonObject, token: str, scale: float) -> None:
    name, equals, value = token.partition("=")
    if equals and ":" not in value:
        earlier = features.get(name)
        if earlier is None:
            features[name] = value
        else:
            texts = earlier if isinstance(earlier, list) else [earlier]
            features[name] = [*map(str, cast(list[object], texts)), value]
        return
    name, number = _split_number(token, 1.0)
    features[name] = number * scale


def _split_number(token: str, default: float) -> tuple[str, float]:
    name, colon, number = token.rpartition(":")
    return (name, float(number)) if colon else (token, default)
