"""What is inside a loop's model, for tests that look at its numbers."""

import numpy as np
from msgspec.structs import replace

from windvane.learner import Learner
from windvane.policy import Policy
from windvane.service.loops.full_model import FullModel
from windvane.service.loops.learner_model import LearnerModel
from windvane.service.loops.loop import Loop
from windvane.service.loops.model import Model
from windvane.service.loops.settings import Settings


def policy_of(loop: Loop) -> Policy:
    """The policy of a loop."""
    return policy_of_model(loop.model)


def policy_of_model(model: Model) -> Policy:
    """The policy of a model."""
    assert isinstance(model, FullModel)
    return model.policy


def full_settings(**changes: object) -> Settings:
    """Settings of a full belief, with some changes by field."""
    return replace(Settings.from_names({"belief": "full"}), **changes)


def learner_of(loop: Loop) -> Learner:
    """The learner of a loop whose belief is diagonal."""
    assert isinstance(loop.model, LearnerModel)
    return loop.model.learner


def read_bits(loop: Loop) -> dict[str, bytes]:
    """All bits that a loop has learned; the order of a hash table does not count."""
    if isinstance(loop.model, FullModel):
        belief = loop.model.policy.belief
        arrays = {"gram": belief.gram, "noise": belief.noise_gram, "moment": belief.moment}
        return {name: array.tobytes() for name, array in arrays.items()}
    return read_learner_bits(learner_of(loop))


def read_learner_bits(learner: Learner) -> dict[str, bytes]:
    """All bits that a learner has learned; the order of a hash table does not count."""
    header, arrays = learner.bank.export_state()
    tables = {"weight_sums": "weight_keys", "evidence": "group_keys", "scales": "scale_keys"}
    bits = {"header": repr(header).encode()}
    for name, array in arrays.items():
        keys = arrays[tables.get(name, name)] if name in tables or name.endswith("_keys") else None
        bits[name] = (array if keys is None else array[np.argsort(keys)]).tobytes()
    return bits
