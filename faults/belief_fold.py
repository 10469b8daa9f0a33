"""Beliefs computed from a log: by its last snapshot, and by all its lessons."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from windvane.service.loops.learner_model import LearnerModel
from windvane.service.loops.loop import Loop
from windvane.service.sharing.fold import decode_snapshot
from windvane.service.store.log import LogReader, SnapshotKey


class LoopBeliefs(NamedTuple):
    """The same belief, computed in three ways; each is a digest of its bits."""

    lessons: int  # id of the last lesson
    live: str  # that of the running service
    restored: str  # of the last snapshot and the lessons after it
    folded: str  # of all lessons


class SnapshotlessReader(LogReader):
    """Reads a log as if it had no snapshot."""

    def list_snapshots(self, loop: int) -> list[SnapshotKey]:
        return []


def read_beliefs(location: str, models: Mapping[str, bytes]) -> dict[str, LoopBeliefs]:
    """The beliefs of loops; `models` are those that the service gave, by loop."""
    return {loop: read_loop_beliefs(location, loop, model) for loop, model in models.items()}


def read_loop_beliefs(location: str, name: str, model: bytes) -> LoopBeliefs:
    """The belief of one loop, computed in three ways."""
    snapshot = decode_snapshot(model)
    with LogReader(location) as log, SnapshotlessReader(location) as bare_log:
        row = log.find_loop(name)
        if row is None:
            return LoopBeliefs(0, "no such loop", "no such loop", "no such loop")
        restored, folded = Loop(row, log), Loop(row, bare_log)
    return LoopBeliefs(
        restored.last_lesson,
        digest_model(LearnerModel.load(restored.settings, snapshot.model)),
        digest_model(restored.model),
        digest_model(folded.model),
    )


def digest_model(model: LearnerModel) -> str:
    """A digest of all bits of a belief, with how much it has seen."""
    header, arrays = model.learner.bank.export_state()
    digest = hashlib.sha256(json.dumps([header]).encode())
    for array in _sort_tables(arrays).values():
        digest.update(array.tobytes())
    return f"{model.observation_count} observations, {digest.hexdigest()[:16]}"


def _sort_tables(arrays: Mapping[str, Any]) -> dict[str, Any]:
    """Arrays with the rows of hash tables in the order of their keys."""
    keys_of = {"weight_sums": "weight_keys", "evidence": "group_keys", "scales": "scale_keys"}
    keys_of |= {name: name for name in keys_of.values()}
    return {
        name: array[np.argsort(arrays[keys_of[name]])] if name in keys_of else array
        for name, array in arrays.items()
    }
