"""Feature importances: each feature is left out in turn, and the loss of reward is its score.

A learner with the settings of the loop is replayed on the log, once with all features and once
without each of them. With V the estimated value of a decision,

    score(f) = max(0, V(all) − V(all but f)) / max over all features,

so that the most important feature has the score 1, and one whose absence costs nothing 0.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from windvane.evaluation.evaluator import evaluate
from windvane.evaluation.log_batch import BadRow, DecisionFeatures, Log, LogBatch, LoggedAction
from windvane.features.json_reader import JsonObjects
from windvane.learner import Learner
from windvane.service.evaluations.records import FeatureImportance
from windvane.service.loops.settings import LoopSettings

MAX_FEATURES = 50  # features left out in turn: those that most decisions have
CONTEXT_NAMESPACE = "FromUrl"  # of features of the context that are in no namespace
ACTION_NAMESPACE = "j"  # of features of actions that are in no namespace
ID_NAMESPACE = "i"  # of the id of an action, which is a feature too
Side = Literal["context", "action", "id"]
Report = Callable[[float], None]  # takes the share that is done


class Feature(NamedTuple):
    """A feature of the context or of the actions, in a namespace or in none."""

    side: Side
    namespace: str | None
    name: str

    @property
    def shown_namespace(self) -> str:
        """The namespace as the wire has it."""
        default = {"context": CONTEXT_NAMESPACE, "action": ACTION_NAMESPACE, "id": ID_NAMESPACE}
        return self.namespace or default[self.side]


def measure_importances(
    log: Log, settings: LoopSettings, report: Report
) -> list[FeatureImportance]:
    """Score the features of a log, the most important first."""
    features = find_features(log)
    learner = settings.build_learner()
    value = _estimate_value(log, learner)
    losses = {}
    for place, feature in enumerate(features, 1):
        report(place / (len(features) + 1))
        losses[feature] = max(0.0, value - _estimate_value(LogWithout(log, feature), learner))
    largest = max(losses.values(), default=0.0) or 1.0
    scores = [
        FeatureImportance(feature.shown_namespace, feature.name, loss / largest)
        for feature, loss in losses.items()
    ]
    return sorted(scores, key=lambda score: -score.score)


def _estimate_value(log: Log, learner: Learner) -> float:
    [policy] = evaluate(log, [learner]).policies
    return policy.value.value


def find_features(log: Log) -> list[Feature]:
    """Find the features of a log, those of most decisions first."""
    counts: Counter[Feature] = Counter()
    for batch in log.iterate_batches():
        if batch.read_features is None:
            continue
        for row in range(batch.size):
            counts.update(_list_features(batch.read_features(row)))
    return [feature for feature, _ in counts.most_common(MAX_FEATURES)]


def _list_features(features: DecisionFeatures) -> set[Feature]:
    listed = {Feature("id", None, "id")}
    listed.update(_iterate_features("context", features.context))
    for action in features.actions:
        listed.update(_iterate_features("action", action.features))
    return listed


def _iterate_features(side: Side, objects: JsonObjects) -> Iterator[Feature]:
    for each in objects:
        for name, value in each.items():
            if name.startswith("_") or value is None:
                continue
            if isinstance(value, Mapping):
                for inner in value:
                    if not str(inner).startswith("_"):
                        yield Feature(side, name, str(inner))
            else:
                yield Feature(side, None, name)


class LogWithout:
    """A log whose decisions lack one feature."""

    def __init__(self, log: Log, feature: Feature) -> None:
        self._log = log
        self._feature = feature
        self.description = log.description
        self.has_fitted_probabilities = log.has_fitted_probabilities

    @property
    def bad_rows(self) -> Sequence[BadRow]:
        """The first rows that could not be used."""
        return self._log.bad_rows

    @property
    def bad_row_count(self) -> int:
        """How many rows could not be used."""
        return self._log.bad_row_count

    def iterate_batches(self) -> Iterator[LogBatch]:
        """Read the decisions in the order of the log."""
        for batch in self._log.iterate_batches():
            read = batch.read_features
            yield (
                batch
                if read is None
                else batch._replace(read_features=_leave_out(read, self._feature))
            )


def _leave_out(
    read: Callable[[int], DecisionFeatures], feature: Feature
) -> Callable[[int], DecisionFeatures]:
    def read_without(row: int) -> DecisionFeatures:
        context, actions = read(row)
        if feature.side == "context":
            return DecisionFeatures(_remove(context, feature), actions)
        if feature.side == "id":
            return DecisionFeatures(
                context, [LoggedAction("", action.features) for action in actions]
            )
        return DecisionFeatures(
            context,
            [LoggedAction(action.id, _remove(action.features, feature)) for action in actions],
        )

    return read_without


def _remove(objects: JsonObjects, feature: Feature) -> list[Mapping[str, Any]]:
    """The objects without a feature."""
    kept: list[Mapping[str, Any]] = []
    for each in objects:
        if feature.namespace is None:
            kept.append({name: value for name, value in each.items() if name != feature.name})
            continue
        inner = each.get(feature.namespace)
        if not isinstance(inner, Mapping):
            kept.append(each)
            continue
        rest = {name: value for name, value in inner.items() if name != feature.name}
        kept.append({**each, feature.namespace: rest})
    return kept
