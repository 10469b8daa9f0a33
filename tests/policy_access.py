"""The policy inside a loop whose belief is full, for tests that look at its numbers."""

from windvane.policy import Policy
from windvane.service.loops.full_model import FullModel
from windvane.service.loops.loop import Loop
from windvane.service.loops.model import Model


def policy_of(loop: Loop) -> Policy:
    """The policy of a loop."""
    return policy_of_model(loop.model)


def policy_of_model(model: Model) -> Policy:
    """The policy of a model."""
    assert isinstance(model, FullModel)
    return model.policy
