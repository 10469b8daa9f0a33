"""The rows of the route table for evaluations and feature importances."""

from windvane.service.api import evaluations
from windvane.service.api.endpoint import Documentation, Endpoint, Query
from windvane.service.api.evaluation_requests import COUNTS, INTERVALS, PAGE_SIZES
from windvane.service.api.evaluation_schemas import (
    ApplyRequest,
    Evaluation,
    EvaluationList,
    EvaluationRequest,
    FeatureImportances,
    FeatureImportancesList,
    ImportanceRequest,
    V1Evaluation,
)

_COUNT = {"type": "integer", "minimum": COUNTS.least, "maximum": COUNTS.most}
_PAGE_SIZE = {"type": "integer", "minimum": PAGE_SIZES.least, "maximum": PAGE_SIZES.most}
PAGE_QUERIES = (
    Query("top", _COUNT),
    Query("skip", _COUNT),
    Query("maxpagesize", _PAGE_SIZE),
)
WINDOW_QUERIES = (
    Query("startTime", {"type": "string"}),
    Query("endTime", {"type": "string"}),
    Query("intervalInMinutes", {"type": "integer", "enum": list(INTERVALS)}),
    Query("window", {"type": "string", "enum": ["Expanding", "Rolling"]}),
)

EVALUATION_ENDPOINTS = (
    Endpoint(
        "POST", "/configurations/applyFromEvaluation", evaluations.apply_evaluation, "admin",
        document=Documentation("Apply a policy of an evaluation", 204, request=ApplyRequest),
        is_costly=True,
    ),
    Endpoint(
        "GET", "/evaluations", evaluations.list_evaluations, "read",
        document=Documentation(
            "List the evaluations", 200, (list[V1Evaluation], EvaluationList),
            queries=(*PAGE_QUERIES, Query("filter", {"type": "string"})),
        ),
        is_costly=True,
    ),
    Endpoint(
        "POST", "/evaluations", evaluations.create_evaluation, "admin",
        document=Documentation(
            "Evaluate policies on the log", 201, V1Evaluation, EvaluationRequest
        ),
        is_costly=True,
    ),
    Endpoint(
        "GET", "/evaluations/{evaluationId:path}", evaluations.get_evaluation, "read",
        document=Documentation(
            "Read an evaluation", 200, (V1Evaluation, Evaluation),
            queries=WINDOW_QUERIES,
        ),
        is_costly=True,
    ),
    Endpoint(
        "PUT", "/evaluations/{evaluationId:path}", evaluations.put_evaluation, "admin",
        document=Documentation(
            "Evaluate policies on the log", 200, request=EvaluationRequest
        ),
        is_costly=True,
    ),
    Endpoint(
        "DELETE", "/evaluations/{evaluationId:path}", evaluations.delete_evaluation, "admin",
        document=Documentation("Cancel or delete an evaluation", 204),
    ),
    Endpoint(
        "GET", "/featureImportances", evaluations.list_importances, "read",
        document=Documentation(
            "List the feature importances", 200, FeatureImportancesList,
            queries=PAGE_QUERIES,
        ),
        is_costly=True,
    ),
    Endpoint(
        "GET", "/featureImportances/{featureImportanceId:path}", evaluations.get_importance,
        "read",
        document=Documentation("Read feature importances", 200, FeatureImportances),
    ),
    Endpoint(
        "PUT", "/featureImportances/{featureImportanceId:path}", evaluations.put_importance,
        "admin",
        document=Documentation("Measure feature importances", 200, request=ImportanceRequest),
        is_costly=True,
    ),
    Endpoint(
        "DELETE", "/featureImportances/{featureImportanceId:path}", evaluations.delete_importance,
        "admin",
        document=Documentation("Cancel or delete feature importances", 204),
    ),
)  # fmt: skip
