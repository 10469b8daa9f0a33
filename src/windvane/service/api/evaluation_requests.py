"""What handlers of evaluations read from a request: generation, times, windows, pages, filters."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from starlette.requests import Request

from windvane.errors import SettingError
from windvane.service.api.errors import ApiError, bad_request
from windvane.service.api.evaluation_rendering import Window
from windvane.service.api.evaluation_schemas import Generation
from windvane.service.api.requests import WholeNumbers, read_whole_number
from windvane.service.dates import parse_date
from windvane.service.errors import EvaluationError
from windvane.service.store.queries.evaluation_queries import Kind
from windvane.service.store.rows import EvaluationRow

COUNTS = WholeNumbers(0, 2**31 - 1)
PAGE_SIZES = WholeNumbers(1, 100)
INTERVALS = (5, 60, 360, 720, 1440)  # minutes
FILTER = re.compile(r"\s*(?:metadata\s*=\s*)?(evaluationType|status)\s+eq\s+'([^']*)'\s*")
CONTRACT_CODE: dict[Generation, str] = {
    "v1": "InvalidEvaluationContract",
    "2022": "InvalidContract",
}
STATUS_AND_CODE = {  # of an EvaluationError, by reason
    "policy": (400, "InvalidPolicyContract"),
    "duplicate": (400, "DuplicateCustomPolicyNames"),
    "no logs": (400, "NoLogsExistInDateRange"),
    "too many logs": (400, "LogsSizeExceedAllowedLimit"),
    "full": (429, "TooManyRequests"),
    "no settings": (404, "LearningSettingsNotFound"),
    "not ended": (404, "EvaluationModelNotFound"),
}
CODE_BY_KIND = {  # of an EvaluationError, by reason and kind
    ("exists", "evaluation"): (409, "EvaluationAlreadyExists"),
    ("exists", "importance"): (409, "FeatureImportanceAlreadyExists"),
    ("unknown", "evaluation"): (404, "EvaluationNotFound"),
    ("unknown", "importance"): (404, "FeatureImportanceNotFound"),
}


def find_generation(request: Request) -> Generation:
    """The generation of the API that a request speaks."""
    is_v1 = "/personalizer/v1" in request.scope["path"] or request.query_params.get(
        "api-version", ""
    ).startswith("v1")
    return "v1" if is_v1 else "2022"


@contextmanager
def render_errors(request: Request, kind: Kind) -> Iterator[None]:
    """Render what is wrong with an evaluation with the code of the generation."""
    try:
        yield
    except EvaluationError as error:
        if error.reason == "contract":
            status, code = 400, CONTRACT_CODE[find_generation(request)]
        elif (error.reason, kind) in CODE_BY_KIND:
            status, code = CODE_BY_KIND[error.reason, kind]
        else:
            status, code = STATUS_AND_CODE[error.reason]
        headers = {"retry-after": "60"} if status == 429 else None
        raise ApiError(status, code, str(error), error.target, headers) from None


def read_time(text: str, target: str) -> int:
    """The time of a field; a text that is no time is refused."""
    try:
        return parse_date(text)
    except SettingError as reason:
        raise EvaluationError("contract", str(reason), target) from None


def read_window(request: Request, since: int, until: int) -> Window:
    """Which part of the time series a request asks for; `since` and `until` if it names none."""
    query = request.query_params
    minutes = read_whole_number(request, "intervalInMinutes", INTERVALS[0], COUNTS)
    if minutes not in INTERVALS:
        message = f"intervalInMinutes must be one of {', '.join(map(str, INTERVALS))}"
        raise EvaluationError("contract", f"{message}, got {minutes}", "intervalInMinutes")
    default = "Expanding" if minutes == INTERVALS[0] else "Rolling"
    window = query.get("window", default)
    if window not in ("Expanding", "Rolling"):
        raise EvaluationError("contract", "window must be Expanding or Rolling", "window")
    if (window == "Expanding") != (minutes == INTERVALS[0]):
        message = "window must be Expanding with 5 minutes, and Rolling with more"
        raise EvaluationError("contract", message, "window")
    since = read_time(query["startTime"], "startTime") if "startTime" in query else since
    until = read_time(query["endTime"], "endTime") if "endTime" in query else until
    return Window(since, until, minutes, window == "Rolling")


class Page(NamedTuple):
    """A part of a list, and the address of the rest."""

    rows: Sequence[EvaluationRow]
    next_link: str | None


def read_page(request: Request, rows: Sequence[EvaluationRow]) -> Page:
    """The page of a list that a request asks for."""
    skip = read_whole_number(request, "skip", 0, COUNTS)
    top = read_whole_number(request, "top", COUNTS.most, COUNTS)
    size = read_whole_number(request, "maxpagesize", PAGE_SIZES.most, PAGE_SIZES)
    wanted = rows[skip : skip + top]
    page = wanted[:size]
    if len(wanted) <= size:
        return Page(page, None)
    more = {"skip": skip + size}
    if "top" in request.query_params:
        more["top"] = top - size
    return Page(page, str(request.url.include_query_params(**more)))


def filter_rows(request: Request, rows: Sequence[EvaluationRow]) -> list[EvaluationRow]:
    """The rows that the filter of a request lets through."""
    text = request.query_params.get("filter")
    if text is None:
        return [*rows]
    match = FILTER.fullmatch(text)
    if match is None:
        message = "filter must be such as \"metadata=evaluationType eq 'Manual'\""
        raise bad_request("BadRequest", f"{message}, got {text[:80]!r}", "filter")
    name, value = match.groups()
    field = "type" if name == "evaluationType" else "status"
    return [row for row in rows if getattr(row, field) == value]
