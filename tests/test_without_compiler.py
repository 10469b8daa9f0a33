"""Kernels as plain Python, for debugging: NUMBA_DISABLE_JIT=1 gives the same choices."""

from pathlib import Path

import windvane as wv
from grid import ARMS, EXPLORATIONS, MEMORIES, REWARDS, play_with_late_rewards
from processes import run_python

SUPPORT = Path(__file__).parent / "support"
ROUNDS = 30


def print_choices() -> None:
    """Print the choices of one memory with every exploration, and of one exploration with every."""
    pairs = [(wv.discount(0.9), exploration) for exploration in EXPLORATIONS]
    pairs += [(memory, wv.optimism(0.8)) for memory in MEMORIES]
    for memory, exploration in pairs:
        policy = wv.Policy(3, memory, exploration, seed=7)
        seen = play_with_late_rewards(policy, ARMS, REWARDS, 0, ROUNDS)
        print(memory, exploration, *(index for index, _, _ in seen))
        if memory.kind.diagonal and exploration.kind.needs != "history":
            policy = wv.Policy(3, memory, exploration, seed=7, belief="diagonal")
            seen = play_with_late_rewards(policy, ARMS, REWARDS, 0, ROUNDS)
            print("diagonal", memory, exploration, *(index for index, _, _ in seen))
    learner = wv.Learner(seed=1, array_size=2)
    for t in range(ROUNDS):
        context = {"device": "phone" if t % 2 else "desk", "age": 0.1 * t, "vector": [0.1, 0.2, t]}
        decision = learner.rank(context, ["news", {"id": "match", "topic": "sport"}], at=float(t))
        learner.reward(decision, float(decision.action == "match"))
        print(decision.action, decision.probabilities.round(9))


def test_policies_choose_alike_with_and_without_the_compiler() -> None:
    outputs = []
    for switch in ("0", "1"):
        code = f"import sys; sys.path += {[str(SUPPORT), str(SUPPORT.parent)]}\n"
        code += "from test_without_compiler import print_choices; print_choices()"
        done = run_python("-W", "error", "-c", code, environment={"NUMBA_DISABLE_JIT": switch})
        outputs.append(done.stdout.splitlines())
    assert len(outputs[0]) > len(EXPLORATIONS) + len(MEMORIES) + ROUNDS
    assert outputs[0] == outputs[1]
