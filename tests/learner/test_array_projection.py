"""Long arrays are projected to a given size by fixed random signs."""

import math
from pathlib import Path

import numpy as np
import pytest

import windvane as wv
from windvane.beliefs.bank.sides import project
from windvane.errors import FeatureError, SettingError
from windvane.types import Floats

MASK = 2**64 - 1


def scramble(bits: int) -> int:
    """The finisher of splitmix64."""
    bits = (bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    bits = (bits ^ (bits >> 27)) * 0x94D049BB133111EB & MASK
    return bits ^ (bits >> 31)


def list_signs(length: int, size: int) -> Floats:
    """The signs s_ri, (size, length), from the hash of r and i in plain Python."""
    signs = np.empty((size, length))
    for i in range(length):
        for r in range(size):
            block = r - r % 64
            word = scramble((0x9E3779B97F4A7C15 * (i + 1) + 0xD1B54A32D192ED03 * block) & MASK)
            signs[r, i] = 1.0 if word >> (r % 64) & 1 else -1.0
    return signs


def project_array(array: Floats, size: int) -> Floats:
    projected = np.empty(size)
    project(array, projected)
    return projected


@pytest.mark.parametrize(("length", "size"), [(3, 2), (100, 64), (300, 130)])
def test_a_projection_is_the_product_with_the_signs(length: int, size: int) -> None:
    array = np.random.default_rng(1).normal(size=length)
    expected = list_signs(length, size) @ array / math.sqrt(size)
    assert project_array(array, size) == pytest.approx(expected, abs=1e-12)


def test_inner_products_stay_the_same_on_average() -> None:
    """The error of ⟨x, y⟩ has the variance (|x|²|y|² + ⟨x, y⟩² − 2Σx²y²)/m; within 5 of its
    standard errors over 400 pairs."""
    random, size = np.random.default_rng(2), 48
    scores = []
    for _ in range(400):
        x, y = random.normal(size=(2, 200))
        y += x * random.uniform(-1.0, 1.0)
        product = x @ y
        variance = (x @ x) * (y @ y) + product**2 - 2.0 * ((x * y) ** 2).sum()
        error = project_array(x, size) @ project_array(y, size) - product
        scores.append(error / math.sqrt(variance / size))
    assert abs(np.mean(scores)) < 5 / math.sqrt(len(scores))
    assert 0.8 < np.std(scores) < 1.2


def test_a_learner_projects_arrays_of_the_context_and_of_actions() -> None:
    random = np.random.default_rng(3)
    whole, given = wv.Learner(seed=1, array_size=5), wv.Learner(seed=1)
    for i in range(60):
        visitor, short = random.normal(size=40), random.normal(size=5).tolist()
        items = random.normal(size=(3, 9))
        decisions = []
        for learner, size in ((whole, 0), (given, 5)):

            def cut(array: Floats, size: int = size) -> list[float]:
                return list(project_array(array, size) if size else array)

            context = {"device": "phone", "visitor": cut(visitor), "short": short}
            actions = [{"id": f"{k}", "item": cut(item)} for k, item in enumerate(items)]
            decision = learner.rank(context, actions, at=float(i))
            learner.reward(decision, float(visitor[0] * items[decision.index, 0] > 0))
            decisions.append(decision)
        assert decisions[0].probabilities.tolist() == decisions[1].probabilities.tolist()
    assert whole.bank.export_state()[1]["weight_sums"].tobytes() == (
        given.bank.export_state()[1]["weight_sums"].tobytes()
    )
    explained = whole.explain(decision := whole.rank(context, actions, at=60.0))
    assert {name for name, _ in explained} >= {"context.visitor", "action.item"}
    lesson = decision.lesson
    predicted = whole.bank.predict(lesson, 60.0)[0]
    assert sum(amount for _, amount in explained) == pytest.approx(predicted, abs=1e-12)


def test_a_long_embedding_fits_if_it_is_projected() -> None:
    context = {"embedding": [0.1 * (i % 7) for i in range(1536)]}
    actions = [{"id": f"{k}", "e": [float(i == k) for i in range(1536)]} for k in range(10)]
    with pytest.raises(FeatureError, match="at most 1048576 crossings, got"):
        wv.Learner(seed=1).rank(context, actions, at=0.0)
    decision = wv.Learner(seed=1, array_size=64).rank(context, actions, at=0.0)
    assert decision.lesson.sizes.tolist() == [64, 64, 1]


def test_a_projected_embedding_is_learned() -> None:
    """1000 visitors of four kinds with embeddings of 256 numbers: 32 are enough."""
    random = np.random.default_rng(4)
    centres = random.normal(size=(4, 256))
    learner, right = wv.Learner(seed=1, array_size=32), []
    for i in range(1000):
        kind = int(random.integers(4))
        embedding = (centres[kind] + random.normal(size=256)).tolist()
        decision = learner.rank({"e": embedding}, ["a", "b", "c", "d"], at=float(i))
        right.append(decision.index == kind)
        learner.reward(decision, float(right[-1]))
    assert np.mean(right[500:]) > 0.9


def test_numbers_of_any_size_stay_finite() -> None:
    huge = np.array([1e308, -1e308, 1.7e308, 5.0])
    assert np.isfinite(project_array(huge, 3)).all()


def test_the_array_size_is_checked_and_saved(tmp_path: Path) -> None:
    for bad in (-1, 4097):
        with pytest.raises(SettingError, match="array_size must be a"):
            wv.Learner(array_size=bad)
    learner = wv.Learner(seed=1, array_size=8)
    learner.save(tmp_path / "learner")
    assert wv.Learner.load(tmp_path / "learner").array_size == 8
