"""Beliefs computed from a log, in a process that loads compiled code in the order of the service.

A process that has loaded other functions before may sum in another order.
"""

import base64
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from windvane.service.loops.full_model import FullModel
from windvane.service.loops.learner_model import LearnerModel
from windvane.service.loops.loop import Loop
from windvane.service.loops.model import Model, Moment
from windvane.service.loops.model_factory import load_model
from windvane.service.loops.snapshot import decode_snapshot
from windvane.service.loops.warmup import compile_kernels, load_kernels
from windvane.service.store.log import LogReader, SnapshotKey

CODE = "from faults.belief_fold import serve_folds; serve_folds()"


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


class BeliefFold:
    """The process that folds logs."""

    def __init__(self) -> None:
        paths = os.pathsep.join(path or os.curdir for path in sys.path)
        self._process = subprocess.Popen(
            [sys.executable, "-c", CODE],
            env=os.environ | {"PYTHONPATH": paths},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def read_beliefs(self, location: str, models: Mapping[str, bytes]) -> dict[str, LoopBeliefs]:
        """The beliefs of loops; `models` are those that the service gave, by loop."""
        if self._process.stdin is None or self._process.stdout is None:
            raise RuntimeError("the process has no pipes")
        coded = {loop: base64.b64encode(model).decode() for loop, model in models.items()}
        self._process.stdin.write(json.dumps([location, coded]) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the process that folds logs has ended")
        return {loop: LoopBeliefs(*parts) for loop, parts in json.loads(line).items()}

    def close(self) -> None:
        """End the process."""
        self._process.communicate()


def serve_folds() -> None:
    """Answer each line of stdin, a location and the models of its loops, with a line of beliefs."""
    compile_kernels()
    load_kernels()
    for line in sys.stdin:
        location, models = json.loads(line)
        beliefs = {
            loop: read_loop_beliefs(location, loop, base64.b64decode(model))
            for loop, model in models.items()
        }
        print(json.dumps(beliefs), flush=True)


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
        digest_model(load_model(restored.settings, snapshot.policy, Moment(*snapshot.newest))),
        digest_model(restored.model),
        digest_model(folded.model),
    )


def digest_model(model: Model) -> str:
    """A digest of all bits of a belief, with its memory and how much it has seen."""
    parts: list[Any]
    if isinstance(model, FullModel):
        belief = model.policy.belief
        parts = [repr(belief.memory), belief.seen, belief.clock.hex(), belief.held.hex()]
        arrays = [belief.gram, belief.noise_gram, belief.moment]
    elif isinstance(model, LearnerModel):
        header, by_name = model.learner.bank.export_state()
        parts, arrays = [header], list(_sort_tables(by_name).values())
    else:
        raise TypeError(f"{model!r} has no digest")
    digest = hashlib.sha256(json.dumps(parts).encode())
    for array in arrays:
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
