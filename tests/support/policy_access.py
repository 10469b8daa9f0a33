"""What is inside a loop's model, for tests that look at its numbers."""

import numpy as np

from windvane.learner import Learner
from windvane.service.loops.loop import Loop


def read_bits(loop: Loop) -> dict[str, bytes]:
    """All bits that a loop has learned; the order of a hash table does not count."""
    return read_learner_bits(loop.model.learner)


def read_learner_bits(learner: Learner) -> dict[str, bytes]:
    """All bits that a learner has learned; the order of a hash table does not count."""
    header, arrays = learner.bank.export_state()
    tables = {"weight_sums": "weight_keys", "evidence": "group_keys", "scales": "scale_keys"}
    bits = {"header": repr(header).encode()}
    for name, array in arrays.items():
        keys = arrays[tables.get(name, name)] if name in tables or name.endswith("_keys") else None
        bits[name] = (array if keys is None else array[np.argsort(keys)]).tobytes()
    return bits
