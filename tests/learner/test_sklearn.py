"""A learner by the conventions of scikit-learn."""

from datetime import datetime
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import cross_val_score
from sklearn.utils.estimator_checks import check_estimator

import windvane as wv
from windvane.sklearn import LearnerClassifier

NEEDS_ARRAY_API = "check_array_api_input"  # of estimators on other devices, if SciPy is set up so


def test_the_checks_of_scikit_learn_pass() -> None:
    outcomes = check_estimator(LearnerClassifier(), on_skip=None)
    others = {each["check_name"] for each in outcomes if each["status"] != "passed"}
    assert others <= {NEEDS_ARRAY_API}
    assert len(outcomes) > 40


def draw_history(count: int = 400) -> pd.DataFrame:
    """Visitors, random actions, and a click if phones get the match and others the news."""
    random = np.random.default_rng(1)
    devices = random.choice(["phone", "desktop"], count)
    actions = random.choice(["news", "match"], count)
    return pd.DataFrame(
        {
            "device": devices,
            "age": np.where(random.random(count) < 0.2, np.nan, random.normal(40, 10, count)),
            "seen": [datetime(2026, 11, 1 + i % 28, i % 24) for i in range(count)],
            "action": actions,
            "clicked": (devices == "phone") == (actions == "match"),
        }
    )


@pytest.mark.parametrize("make", [pd.DataFrame, pl.from_pandas])
def test_a_table_of_texts_times_and_missing_values_is_learned_with_its_rewards(make: Any) -> None:
    history = draw_history()
    features = make(history[["device", "age", "seen"]])
    bandit = LearnerClassifier(random_state=1)
    bandit.fit(features, history["action"], rewards=history["clicked"])
    right = np.where(history["device"] == "phone", "match", "news")
    assert (bandit.predict(features) == right).mean() > 0.95
    assert bandit.feature_names_in_.tolist() == ["device", "age", "seen"]
    first = {"device": "phone", "age": 35.0, "seen": datetime(2026, 11, 3, 9)}
    wanted = bandit.learner_.predict(first, ["match", "news"])
    assert bandit.predict_rewards(make(pd.DataFrame([first]))).tolist() == [wanted.tolist()]


def test_rewards_of_actions_are_learned_as_a_learner_learns_them() -> None:
    history = draw_history(60)
    numbers = history[["age"]].to_numpy()
    bandit = LearnerClassifier(random_state=1).fit(numbers, history["action"], history["clicked"])
    learner = wv.Learner(seed=0)
    for age, action, clicked in zip(
        numbers[:, 0], history["action"], history["clicked"], strict=True
    ):
        learner.reward(learner.rank({"x0": age}, [action], at=0.0), clicked)
    learner.key = bandit.learner_.key  # which is drawn from the random state
    assert bandit.learner_ == learner


def test_learning_in_parts_is_learning_all_at_once_and_new_actions_join() -> None:
    history = draw_history(100)
    ages, actions, clicks = (history[name].to_numpy() for name in ("age", "action", "clicked"))
    whole, parts = LearnerClassifier(random_state=1), LearnerClassifier(random_state=1)
    whole.fit(ages[:, None], actions, rewards=clicks)
    for half in (slice(50), slice(50, None)):
        parts.partial_fit(ages[half, None], actions[half], rewards=clicks[half])
    assert parts.learner_ == whole.learner_
    parts.partial_fit([[30.0]], ["film"], classes=["quiz"], rewards=[1.0])
    assert parts.classes_.tolist() == ["film", "match", "news", "quiz"]
    assert parts.predict_rewards([[30.0]]).shape == (1, 4)


def test_choices_explore_and_leave_nothing_open() -> None:
    bandit = LearnerClassifier(exploration=1.0, random_state=1).fit([[1.0], [2.0]], [0, 1])
    chosen = bandit.choose(np.ones((200, 1)))
    assert 60 < chosen.sum() < 140  # uniformly at random
    assert bandit.learner_.round == 4 + 200
    assert bandit.learner_.export_state()[1]["open_places"].size == 0


def test_a_model_is_selected_as_any_other() -> None:
    random = np.random.default_rng(1)
    X = random.normal(size=(200, 2))
    scores = cross_val_score(LearnerClassifier(random_state=1), X, (X[:, 0] > 0).astype(int), cv=4)
    assert scores.mean() > 0.9


def test_mistakes_are_refused_as_scikit_learn_does_it() -> None:
    bandit = LearnerClassifier()
    with pytest.raises(NotFittedError):
        bandit.predict([[1.0]])
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        bandit.fit([[1.0], [2.0]], [0, 1], rewards=[1.0])
    with pytest.raises(wv.WindvaneError, match="row 1: the reward must be a finite number"):
        bandit.fit([[1.0], [2.0]], [0, 1], rewards=[1.0, np.nan])
    with pytest.raises(ValueError, match="2 features"):
        bandit.fit([[1.0], [2.0]], [0, 1]).predict([[1.0, 2.0]])
