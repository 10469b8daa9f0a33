"""The diagonal belief: its size, settings, files and copies, merged beliefs and amended rewards."""

import copy
import io
import math
import re
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import windvane as wv
from diagonal_game import (
    DENSE,
    DIM,
    REWARDS,
    SPARSE_MEMORIES,
    make_busy,
    make_diagonal,
    read,
)
from grid import contents, rewrite_saved
from windvane.errors import BeliefError, FileError, SettingError


def test_nothing_grows_with_the_dimension() -> None:
    """With 2⁶⁰ weights, a choice, a lesson, a file and a copy take what their entries take."""
    play_and_save()  # loads the compiled code
    tracemalloc.start()
    policy = play_and_save()
    assert tracemalloc.get_traced_memory()[1] < 200_000
    tracemalloc.stop()
    assert read(policy).indices.tolist() == [5, 2**59, 2**60 - 1]


def play_and_save() -> wv.Policy:
    """Use every method whose cost could depend on the dimension."""
    policy = make_diagonal(2**60, wv.half_life(9.0), wv.thompson(1.0), seed=1)
    arms = wv.SparseRows.from_pairs([([5, 2**59], [1.0, 1.0]), ([5, 2**60 - 1], [1.0, -1.0])])
    for _ in range(50):
        choice, chances = policy.choose_with_propensities(arms)
        policy.learn(choice, 1.0)
        assert chances.sum() == pytest.approx(1.0)
    policy.amend(([5], [1.0]), 0.5)
    file = io.BytesIO()
    policy.save(file)
    file.seek(0)
    assert wv.Policy.load(file) == copy.copy(policy) == policy
    return policy


def test_room_grows_with_the_weights_that_were_learned() -> None:
    """Choosing makes no room, and learning at most twice what is needed."""
    policy = make_diagonal(2**22, wv.keep(), wv.greedy(), seed=1)
    random = np.random.default_rng(2)
    for _ in range(100):
        rows = [(random.integers(0, 2**22, 50), np.ones(50)) for _ in range(4)]
        policy.learn(policy.choose(wv.SparseRows.from_pairs(rows)), 1.0)
    learned = read(policy).indices.size
    assert 4500 < learned <= 5000
    assert len(policy._belief.weights.indices) == 8192  # type: ignore[attr-defined]
    assert policy.theta.shape == (2**22,)


OF_MEMORIES = "the memory of a diagonal belief must be one of keep, discount, half_life, restart, "
OF_EXPLORATIONS = (
    "the exploration of a diagonal belief must be one of greedy, epsilon, inverse_gap, "
)


@pytest.mark.parametrize(
    ("memory", "exploration", "complaint"),
    [
        ("window(9)", "greedy()", f"{OF_MEMORIES}restart_at, detect, parts, got window(9)"),
        (
            "kalman(0.9)",
            "greedy()",
            f"{OF_MEMORIES}restart_at, detect, parts, got kalman(0.9, 1.0)",
        ),
        (
            "keep()",
            "perturbed_history(1.0)",
            f"{OF_EXPLORATIONS}optimism, randomized, thompson, got perturbed_history(1.0)",
        ),
    ],
)
def test_settings_that_do_not_fit_are_refused(
    memory: str, exploration: str, complaint: str
) -> None:
    with pytest.raises(SettingError, match=re.escape(f"Policy: {complaint}")):
        make_diagonal(3, memory, exploration)
    with pytest.raises(SettingError, match="belief must be full or diagonal, got 'wide'"):
        wv.Policy(3, belief="wide")


def test_what_a_policy_cannot_tell_or_do_is_refused() -> None:
    policy = make_busy(wv.discount(0.9), wv.thompson(1.0))
    with pytest.raises(SettingError, match="a policy estimates its noise only if its exploration"):
        _ = policy.estimated_noise
    with pytest.raises(SettingError, match="amend: only keep and half_life know the weight of"):
        policy.amend(DENSE[0, 0], 1.0)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda header, arrays: arrays.update(indices=arrays["indices"] + 9), "out of bounds"),
        (lambda header, arrays: arrays["indices"].fill(3), "it has a weight twice"),
        (lambda header, arrays: arrays.update(sums=arrays["sums"][1:]), "different lengths"),
        (lambda header, arrays: arrays.update(squares=np.zeros(0)), "different lengths"),
        (lambda header, arrays: arrays.update(sums=arrays["sums"][:, 0]), "have shape"),
        (lambda header, arrays: arrays["sums"].fill(math.nan), "not finite"),
        (lambda header, arrays: arrays["sums"].fill(-1.0), "a negative precision"),
        (lambda header, arrays: arrays["squares"].fill(-1.0), "a negative precision"),
        (lambda header, arrays: arrays["fade"].fill(0.0), "out of bounds"),
        (lambda header, arrays: arrays["counters"].fill(1), "another number of weights"),
        (lambda header, arrays: header["tally"].update(seen=-1), "counters are out of bounds"),
        (lambda header, arrays: header.update(belief="wide"), "belief must be full or diagonal"),
        (lambda header, arrays: header.update(dim=0), "dim must be a whole number"),
        (lambda header, arrays: arrays.pop("fade"), "fade"),
    ],
)
def test_a_file_that_does_not_fit_together_is_refused(
    change: Callable[[Any, Any], object], complaint: str, tmp_path: Path
) -> None:
    """Even if its checksum is right."""
    path = tmp_path / "policy.npz"
    make_busy(wv.discount(0.9), wv.greedy()).save(path)
    rewrite_saved(path, change)
    with pytest.raises(FileError, match=complaint):
        wv.Policy.load(path)


MERGEABLE = [m for m in SPARSE_MEMORIES if m.kind.mergeable]
every_mergeable = pytest.mark.parametrize("memory", MERGEABLE, ids=repr)


def learn_all(memory: wv.Memory, lessons: list[tuple[Any, float, float]]) -> wv.Policy:
    policy = make_diagonal(DIM, memory, wv.optimism(1.0), ridge=0.7, seed=1)
    for features, reward, at in lessons:
        policy.learn(features, reward, at)
    return policy


def check_merge(memory: wv.Memory, older: list[Any], newer: list[Any]) -> None:
    """The merged belief is that of one policy, and a policy that gets it goes on like that one."""
    whole = learn_all(memory, [*older, *newer])
    part = learn_all(memory, older)
    merged = part.belief.merge(learn_all(memory, newer).belief)
    for name in ("indices", "gram", "noise_gram", "moment", "seen", "clock", "held"):
        np.testing.assert_allclose(getattr(merged, name), getattr(whole.belief, name), atol=1e-12)
    part.belief = merged
    assert part.belief == merged
    for policy in (part, whole):
        policy.learn(DENSE[7, 0], 0.3, at=40.0)
    np.testing.assert_allclose(part.theta, whole.theta, atol=1e-12)
    np.testing.assert_allclose(part.widths(DENSE[8]), whole.widths(DENSE[8]), atol=1e-12)


@every_mergeable
def test_beliefs_of_different_weights_are_merged_exactly(memory: wv.Memory) -> None:
    older = [(([t % 3, 3 + t % 3], [1.0, 0.5]), REWARDS[t], float(t)) for t in range(20)]
    newer = [(([6 + t % 3, 9 + t % 3], [0.3, -1.0]), REWARDS[t], float(t)) for t in range(20, 30)]
    check_merge(memory, older, newer)
    check_merge(memory, older, [])
    check_merge(memory, [], newer)


@every_mergeable
def test_beliefs_of_rows_of_one_entry_are_merged_exactly(memory: wv.Memory) -> None:
    lessons = [(([t % 5], [0.4 + t % 3]), REWARDS[t], float(t)) for t in range(30)]
    check_merge(memory, lessons[:20], lessons[20:])


def test_merged_beliefs_have_the_noise_of_both() -> None:
    """Each policy judged its own predictions; older errors fade."""
    one, other = (
        make_diagonal(DIM, wv.discount(0.9), wv.thompson(wv.posterior(0.5))) for _ in range(2)
    )
    one.learn(([1], [1.0]), 2.0)
    other.learn_many([([2], [1.0]), ([3], [2.0])], [1.0, -3.0])
    one.belief = one.belief.merge(other.belief)
    squares = 0.81 * 4.0 / 2 + 0.9 * 1.0 / 2 + 9.0 / 5
    assert one.estimated_noise**2 == pytest.approx((0.5 + squares) / (2 + 0.81 + 0.9 + 1))


def test_beliefs_that_cannot_be_merged_exactly_are_refused() -> None:
    long = learn_all(wv.keep(), [(([1, 2], [1.0, 1.0]), 1.0, 0.0)])
    short = learn_all(wv.keep(), [(([2], [1.0]), 1.0, 0.0)])
    for one, other in ((long, short), (short, long), (long, long)):
        with pytest.raises(BeliefError, match="only if every row had one entry; both learned"):
            one.belief.merge(other.belief)
    restarting = learn_all(wv.restart(9), [])
    with pytest.raises(BeliefError, match="only beliefs of keep, discount, half_life"):
        restarting.belief.merge(restarting.belief)
    with pytest.raises(BeliefError, match="memory, ridge and dim must be the same"):
        long.belief.merge(learn_all(wv.discount(0.9), []).belief)
    with pytest.raises(BeliefError, match="merge: a DiagonalBelief must be given, got 3"):
        long.belief.merge(3)  # type: ignore[arg-type]
    with pytest.raises(BeliefError, match="belief: a DiagonalBelief must be given, got 3"):
        long.belief = 3  # type: ignore[assignment]
    with pytest.raises(BeliefError, match="memory, ridge and dim of this policy are"):
        long.belief = learn_all(wv.discount(0.9), []).belief


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"gram": np.array([-1.0, 0.0])}, "precisions must not be negative"),
        ({"moment": np.array([math.nan, 0.0])}, "sums must be finite"),
        ({"moment": np.zeros(3)}, "must have one length"),
        ({"indices": np.array([2, 1])}, "indices must rise"),
        ({"indices": np.array([2, DIM])}, "indices must rise and lie between 0 and 11"),
        ({"seen": -1}, "the count at least 0"),
        ({"error_weight": -1.0}, "the count at least 0"),
    ],
)
def test_a_belief_that_no_policy_can_have_is_refused(
    change: dict[str, Any], complaint: str, tmp_path: Path
) -> None:
    policy = learn_all(wv.keep(), [(([1, 2], [1.0, 1.0]), 1.0, 0.0)])
    before = contents(policy, tmp_path)
    belief = type(policy.belief)(**{**vars(policy.belief), **change})
    with pytest.raises(BeliefError, match=complaint):
        policy.belief = belief
    assert contents(policy, tmp_path) == before


@pytest.mark.parametrize("memory", [wv.keep(), wv.half_life(4.0)], ids=repr)
def test_a_reward_in_parts_equals_a_whole_reward_for_rows_of_one_entry(memory: wv.Memory) -> None:
    row = ([3], [0.7])
    between = [(([t % 5], [1.0]), REWARDS[t], float(t)) for t in range(6)]
    whole = learn_all(memory, [(row, 1.0, 2.0), *between])
    parts = learn_all(memory, [(row, 0.4, 2.0), *between])
    parts.amend(row, 0.6, at=2.0)
    np.testing.assert_allclose(parts.theta, whole.theta, atol=1e-14)


def test_a_reward_in_parts_is_close_for_long_rows() -> None:
    """It moves every mean in the right direction, and by half to twice as much."""
    row = ([1, 3, 5], [1.0, -0.5, 0.5])
    whole = learn_all(wv.keep(), [(row, 1.0, 0.0), (([1, 2], [1.0, 1.0]), 0.5, 0.0)])
    parts = learn_all(wv.keep(), [(row, 0.0, 0.0), (([1, 2], [1.0, 1.0]), 0.5, 0.0)])
    before = parts.theta
    parts.amend(row, 1.0)
    moved, wanted = (parts.theta - before)[[1, 3, 5]], (whole.theta - before)[[1, 3, 5]]
    assert ((moved / wanted > 0.5) & (moved / wanted < 2.0)).all()
