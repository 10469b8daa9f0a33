"""GET and POST /loops: list and create loops."""

from collections.abc import Iterator

import pytest
from starlette.testclient import TestClient

from windvane.service.app import create_app

ACTIONS = {"actions": [{"id": "a", "features": [{"x": 1}]}, {"id": "b", "features": [{"y": 1}]}]}


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    with TestClient(create_app(str(tmp_path_factory.mktemp("loops")))) as client:
        yield client


def test_loops_are_created_and_listed(web: TestClient) -> None:
    created = web.post("/loops", json={"name": "home", "settings": {"halfLife": "2 days"}})
    assert created.status_code == 201
    assert created.json()["settings"]["halfLife"] == "2 days"
    assert web.post("/loops/home/personalizer/v1.0/rank", json=ACTIONS).status_code == 201
    assert [loop["name"] for loop in web.get("/loops").json()] == ["default", "home"]


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ('{"name": "default"}', "already"),
        ('{"name": "a/b"}', "a loop's name"),
        ('{"name": "c", "settings": {"halfLife": "soon"}}', "duration"),
        ('{"name": "c", "settings": {"halfLives": "1 day"}}', "halfLives is not a known name"),
        ("{", "not JSON"),
    ],
)
def test_an_invalid_loop_is_refused(web: TestClient, body: str, sentence: str) -> None:
    before = web.get("/loops").json()
    answer = web.post("/loops", content=body)
    assert answer.status_code == 400
    assert sentence in answer.json()["error"]["message"]
    assert web.get("/loops").json() == before
