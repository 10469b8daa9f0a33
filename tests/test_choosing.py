"""Choosing: the arms of the formulas, in any form, one round or many."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

import naive
import windvane as wv
from grid import (
    ARMS,
    LAWS,
    MEMORIES,
    REWARDS,
    Floats,
    busy_policy,
    contents,
    every_exploration,
    every_memory,
    make_inversions_rare,
    row_and_column_of_each_belief,
    unit_rows,
)
from windvane import _random
from windvane.beliefs.full.choosing import compute_scale, draw_level


def read_draws(policy: wv.Policy, history: naive.History) -> naive.Draws:
    """The random numbers that the policy will use in this round."""
    exploration, d = policy.exploration, policy.dim
    start = np.uint64(_random.start_round(np.uint64(policy.key), policy.round))
    if exploration.law:
        uniform = np.array([_random.uniform(start, 3)])
        if exploration.law.name == "grid":
            return naive.Draws(level=float(naive.quantile(exploration.law, uniform)[0]))
        level = np.empty(1)
        _random.fill_normals(start, 3, level)
        return naive.Draws(
            float(np.abs(level[0]) if exploration.law.name != "normal" else level[0])
        )
    if exploration.name == "thompson":
        has_root = policy.memory.name not in ("window", "directional")
        normals = np.empty(2 * d if has_root else d)
        _random.fill_normals(start, 3, normals)
        return naive.Draws(normals=normals)
    count = np.count_nonzero(naive.weights(policy.memory, history, policy.ridge))
    pseudo = np.zeros(count + d if policy.memory.name != "kalman" else count + (count + 1) * d)
    if exploration.pseudo == "coins":
        for i in range(count):
            bits = int(_random.draw_word(start, 3 + i))
            pseudo[i] = (bits & (2 ** int(exploration.factor) - 1)).bit_count()
    else:
        _random.fill_normals(start, 3, pseudo)
    return naive.Draws(pseudo=pseudo)


@every_memory
@every_exploration
def test_every_pair_plays_as_the_formulas_say(
    memory: wv.Memory, exploration: wv.Exploration
) -> None:
    """With the same random numbers, the chosen arm has the largest score of the formulas."""
    policy = wv.Policy(3, memory, exploration, ridge=0.8, seed=9)
    xs, ys = np.zeros((0, 3)), np.zeros(0)
    for t in range(120):
        history = naive.History(xs, ys, np.arange(t), t)
        scores = naive.scores(
            exploration, memory, 0.8, history, ARMS[t], read_draws(policy, history)
        )
        start = np.uint64(_random.start_round(np.uint64(policy.key), t))
        choice = policy.choose(ARMS[t])
        if _random.uniform(start, 0) < exploration.chance:
            assert choice.index == int(6 * _random.uniform(start, 1))
        elif exploration.name == "inverse_gap" and np.ptp(scores) > 0:
            assert choice.index == naive.by_gap(
                scores, exploration.factor, _random.uniform(start, 3)
            )
        else:
            assert scores[choice.index] >= scores.max() - 1e-9 * (1 + abs(scores.max()))
        policy.learn(choice, REWARDS[t])
        xs, ys = np.vstack([xs, ARMS[t, choice.index]]), np.append(ys, REWARDS[t])


SCREENED_MEMORIES = [
    *(m for m in MEMORIES if not (m.kind.fades or m.kind.is_filter or m.kind.raises_alarms)),
    *(wv.discount(gamma, single) for gamma in (0.5, 0.99) for single in (False, True)),
]
EXPLORATIONS_BY_WIDTH = [wv.optimism(1.0), wv.optimism(30.0), *(wv.randomized(law) for law in LAWS)]


@pytest.mark.parametrize(
    ("memory", "is_rare"),
    [
        *((memory, False) for memory in SCREENED_MEMORIES),
        *(
            (wv.discount(gamma, each), True)
            for gamma in (0.9, 0.99, 0.999)
            for each in (False, True)
        ),
    ],
    ids=repr,
)
@pytest.mark.parametrize("exploration", EXPLORATIONS_BY_WIDTH, ids=repr)
def test_screening_never_loses_the_best_arm(
    memory: wv.Memory, is_rare: bool, exploration: wv.Exploration
) -> None:
    """Of 50 arms, often nearly equal, the best by the exact widths of all arms is played.

    The bounds hold even if inversions are rare, so that widths are far from the exact ones.
    """
    policy = wv.Policy(10, memory, exploration, seed=3)
    if is_rare:
        make_inversions_rare(policy)
    random = np.random.default_rng(17)
    theta = random.standard_normal(10)
    running = naive.Running(memory, 1.0, 10)
    assert exploration.law is not None
    for t in range(300):
        running.tick(t)
        arms = unit_rows(random, 50, 10)
        if t % 2:
            arms = unit_rows(random, 1, 10) + 0.03 * arms
        now = running.estimate()
        widths = np.sqrt(np.einsum("kd,kd->k", arms @ now.V_inverse, arms))
        start = np.uint64(_random.start_round(np.uint64(policy.key), t))
        choice = policy.choose(arms)
        z = draw_level(policy._belief.arrays.rules, compute_scale(policy._belief.arrays), start)
        scores = arms @ now.theta + z * widths
        assert scores[choice.index] >= scores.max() - 1e-9 * (1 + abs(z))
        reward = float(arms[choice.index] @ theta + random.standard_normal())
        policy.learn(choice, reward)
        running.learn(arms[choice.index], reward)


def test_ties_are_broken_at_random() -> None:
    policy = wv.Policy(2, wv.keep(), wv.greedy(), seed=0)
    played = [policy.choose(np.ones((4, 2))).index for _ in range(4000)]
    assert np.bincount(played, minlength=4).min() > 850


@every_memory
def test_a_seed_fixes_every_choice(memory: wv.Memory) -> None:
    policies = [wv.Policy(3, memory, wv.thompson(1.0), seed=seed) for seed in (5, 5, 6)]
    played = [[policy.choose(arms).index for arms in ARMS[:60]] for policy in policies]
    assert played[0] == played[1] != played[2]


@row_and_column_of_each_belief
def test_choose_many_equals_repeated_choose(
    belief: str, memory: wv.Memory, exploration: wv.Exploration, tmp_path: Path
) -> None:
    """The choices and the state are the same, also across restarts."""
    many, one = (busy_policy(memory, exploration, belief)[0] for _ in range(2))
    assert many.choose_many(ARMS[20:70]) == [one.choose(arms) for arms in ARMS[20:70]]
    assert contents(many, tmp_path) == contents(one, tmp_path)
    mixed = many.choose_many([ARMS[0].tolist(), ARMS[1][:2]])
    assert [c.index for c in mixed] == [one.choose(ARMS[0]).index, one.choose(ARMS[1][:2]).index]


def make_read_only(arms: Floats) -> Floats:
    """A copy that cannot be written to."""
    arms = arms.copy()
    arms.flags.writeable = False
    return arms


FORMS: dict[str, Callable[[Floats], npt.ArrayLike]] = {
    "read-only": make_read_only,
    "Fortran order": np.asfortranarray,
    "every other row": lambda arms: np.repeat(arms, 2, axis=0)[::2],
    "reversed twice": lambda arms: arms[::-1].copy()[::-1],
    "float32": lambda arms: arms.astype(np.float32),
    "integers": lambda arms: arms.astype(np.int64),
    "lists": lambda arms: arms.tolist(),
    "tuples of rows": lambda arms: tuple(arms),
    "big-endian": lambda arms: arms.astype(">f8"),
    "unaligned": lambda arms: np.frombuffer(
        b"x" + arms.tobytes(), dtype=np.float64, offset=1
    ).reshape(arms.shape),
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS.keys())
@every_exploration
def test_arms_in_any_form_are_the_same_arms(
    exploration: wv.Exploration, form: Callable[[Floats], npt.ArrayLike]
) -> None:
    """The same whole numbers in another dtype or memory layout give the same bits."""
    plain, other = (wv.Policy(3, wv.discount(0.9), exploration, seed=3) for _ in range(2))
    for t in range(40):
        arms = np.rint(4 * ARMS[t]) + 0.0
        one, two = plain.choose(arms), other.choose(form(arms))
        assert one.index == two.index
        assert one.features.tobytes() == two.features.tobytes()
        assert (
            plain.propensities(arms, samples=3).tobytes()
            == other.propensities(form(arms), samples=3).tobytes()
        )
        plain.learn(one, REWARDS[t])
        other.learn(two, REWARDS[t])
    assert plain.theta.tobytes() == other.theta.tobytes()
