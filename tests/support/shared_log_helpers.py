"""What the tests of several servers on one log share."""

import io

from policy_access import read_learner_bits
from server_process import BASE, Client
from windvane.learner import Learner
from windvane.service.loops.learner_model import LearnerModel
from windvane.service.sharing.fold import decode_snapshot

ACTIONS = [{"id": name, "features": [{"name": name}]} for name in ("ice", "tea", "soup")]
BODY = {"actions": ACTIONS}


def read_bits(client: Client, loop: str = "") -> tuple[int, dict[str, bytes]]:
    """How many lessons a server has learned, and its belief to the last bit."""
    packed = decode_snapshot(client.call("GET", f"{loop}{BASE}/model").body)
    learner = Learner.load(io.BytesIO(packed.model))
    return learner.bank.lessons, read_learner_bits(learner)


def fold(model: LearnerModel) -> tuple[int, dict[str, bytes]]:
    """The same of a model that has learned all lessons of the log."""
    learner = Learner.load(io.BytesIO(model.save()))
    return learner.bank.lessons, read_learner_bits(learner)
