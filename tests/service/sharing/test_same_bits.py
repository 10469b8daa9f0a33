"""All processes learn the same bits: one that compiles, one that loads, one after other work."""

import os
import subprocess
import sys
from pathlib import Path

OTHER_WORK = """
import numpy as np
import windvane as wv

policy = wv.Policy(3, seed=1)
for k in range(9):
    policy.learn(policy.choose(np.eye(3) + k), 0.5)
"""
LEARN = """
import hashlib, random

from windvane.features.packed_features import pack_actions
from windvane.service.loops.learner_model import LearnerModel, Moment
from windvane.service.loops.settings import LoopSettings
from windvane.service.schemas import Action

model, draw, digest = LearnerModel(LoopSettings(seed=3)), random.Random(5), hashlib.sha256()
for k in range(200):
    context = [{"sky": draw.choice("ab"), "warmth": draw.random(), "place": [draw.random(), 1.0]}]
    actions = [Action(name, [{"price": draw.random()}]) for name in "abc"]
    moment = Moment(k, 3_000_000 * k)
    choice = model.rank(context, pack_actions(actions), range(3), moment.at_us)
    model.learn(choice.features, draw.random(), moment)
    if k % 7 == 0:
        model.amend(choice.features, 0.25, moment)
    digest.update(choice.probabilities.tobytes() + choice.features)
    digest.update(repr(model.estimate_actions(context, actions)).encode())
print(digest.hexdigest())
"""


def run(program: str, **variables: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | variables,
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    return done.stdout


def test_bits_do_not_depend_on_what_a_process_has_compiled_or_loaded_before(tmp_path: Path) -> None:
    compiled_here = run(LEARN, NUMBA_CACHE_DIR=str(tmp_path))
    loaded_again = run(LEARN, NUMBA_CACHE_DIR=str(tmp_path))
    after_other_work = run(OTHER_WORK + LEARN)
    assert len(compiled_here) > 60
    assert compiled_here == loaded_again == after_other_work
