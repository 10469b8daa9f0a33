"""A learner by the conventions of scikit-learn: `fit`, `partial_fit` and `predict`.

pip install 'windvane[sklearn]'
"""

from importlib.util import find_spec

if find_spec("sklearn") is None:
    raise ModuleNotFoundError(
        "windvane.sklearn needs scikit-learn: pip install 'windvane[sklearn]'", name="sklearn"
    )

from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import (
    check_consistent_length,
    check_is_fitted,
    column_or_1d,
    validate_data,
)

from windvane.features.request_reader import Features, is_table, iterate_rows
from windvane.learner import Learner
from windvane.settings import AUTO, EXPLORATION
from windvane.types import Floats

__all__ = ["LearnerClassifier"]


class LearnerClassifier(ClassifierMixin, BaseEstimator):
    """A classifier whose classes are the actions of a learner, and whose data have rewards.

    With `rewards`, the actions y were taken and earned them. Without, y are the right actions: each
    earns 1, and all other classes 0. A table of pandas, polars or pyarrow may have columns of
    texts, times and missing values; an array has numbers.

    >>> from windvane.sklearn import LearnerClassifier
    >>> bandit = LearnerClassifier(random_state=1)
    >>> ages, actions = [[20], [60], [25], [70]] * 25, ["a", "a", "b", "b"] * 25
    >>> bandit.fit(ages, actions, rewards=[1, 0, 0, 1] * 25).predict([[22], [65]])
    array(['a', 'b'], dtype='<U1')
    """

    def __init__(
        self,
        half_life: str = AUTO,
        exploration: float = EXPLORATION,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.half_life = half_life
        self.exploration = exploration
        self.random_state = random_state

    def fit(self, X: npt.ArrayLike, y: npt.ArrayLike, rewards: npt.ArrayLike | None = None) -> Self:
        """Forget everything, then learn the rows in their order."""
        return self._learn(X, y, None, rewards, is_first=True)

    def partial_fit(
        self,
        X: npt.ArrayLike,
        y: npt.ArrayLike,
        classes: npt.ArrayLike | None = None,
        rewards: npt.ArrayLike | None = None,
    ) -> Self:
        """Learn more rows. Actions that were not in `classes` are added when they occur."""
        return self._learn(X, y, classes, rewards, is_first=not hasattr(self, "learner_"))

    def predict(self, X: npt.ArrayLike) -> npt.NDArray[Any]:
        """Return the action with the highest predicted reward for each row, (n,)."""
        best = self.predict_rewards(X).argmax(axis=1)
        actions: npt.NDArray[Any] = self.classes_[best]
        return actions

    def predict_rewards(self, X: npt.ArrayLike) -> Floats:
        """Return the predicted reward of each action, in the order of `classes_`, (n, K)."""
        rows, ids = self._read(X), self._list_ids()
        return np.array([self.learner_.predict(row, ids) for row in rows])

    def choose(self, X: npt.ArrayLike) -> npt.NDArray[Any]:
        """Draw an action for each row, as the learner explores, (n,)."""
        decisions = self.learner_.rank_many(self._read(X), self._list_ids())
        for decision in decisions:  # `partial_fit` brings their rewards
            self.learner_.dismiss(decision)
        actions: npt.NDArray[Any] = self.classes_[[decision.index for decision in decisions]]
        return actions

    def _learn(
        self,
        X: npt.ArrayLike,
        y: npt.ArrayLike,
        classes: npt.ArrayLike | None,
        rewards: npt.ArrayLike | None,
        is_first: bool,
    ) -> Self:
        """Learn the rows in their order."""
        checked, y = self._check(X, y, reset=is_first)
        taken = column_or_1d(y, warn=True)
        check_classification_targets(taken)
        earned = None if rewards is None else column_or_1d(rewards)
        check_consistent_length(checked, taken, earned)
        if is_first:
            seed = check_random_state(self.random_state).randint(2**31)
            self.learner_ = Learner(
                half_life=self.half_life, exploration=self.exploration, seed=seed
            )
        named = [] if classes is None else [np.asarray(classes)]
        known = [] if is_first else [self.classes_]
        self.classes_: npt.NDArray[Any] = np.unique(np.concatenate([*known, *named, taken]))
        lessons: list[dict[str, object]] = []
        for place, (row, action) in enumerate(zip(self._list_rows(checked), taken, strict=True)):
            if earned is None:
                outcomes = [(each, each == action) for each in self.classes_]
            else:
                outcomes = [(action, earned[place])]
            lessons += [
                {"context": row, "action": str(each), "reward": reward} for each, reward in outcomes
            ]
        self.learner_.learn_from(lessons, context="context")
        return self

    def _check(self, *data: npt.ArrayLike, reset: bool) -> Any:
        """Check X, or X and y; the cells of a table are checked when they are read."""
        if is_table(data[0]):
            return validate_data(self, *data, reset=reset, skip_check_array=True)
        return validate_data(self, *data, reset=reset, ensure_all_finite="allow-nan")

    def _read(self, X: npt.ArrayLike) -> list[Features]:
        """Read the rows for which a fitted estimator predicts."""
        check_is_fitted(self)
        return self._list_rows(self._check(X, reset=False))

    def _list_rows(self, X: Any) -> list[Features]:
        """List checked rows as dicts."""
        names = getattr(self, "feature_names_in_", [f"x{i}" for i in range(self.n_features_in_)])
        rows = [row.values() for row in iterate_rows(X)] if is_table(X) else X.tolist()
        return [dict(zip(names, row, strict=True)) for row in rows]

    def _list_ids(self) -> list[str]:
        return [*map(str, self.classes_)]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags
