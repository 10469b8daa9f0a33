"""A client of one loop, and checks that tests of the API share."""

import io
import re
from collections.abc import Callable
from typing import Any

from server_process import BASE, Answer, Client, Server
from waiting import wait_until
from windvane.learner import Learner
from windvane.service.sharing.fold import decode_snapshot
from windvane.service.store.log import Store
from windvane.service.store.rows import Funnel
from windvane.types import Floats

BODY: dict[str, Any] = {
    "actions": [{"id": name, "features": []} for name in ("ice", "tea", "soup")]
}
CALM = {"halfLife": "never", "explorationPercentage": 0.0}


class LoopClient:
    """One loop over HTTP, and its part of the log."""

    def __init__(self, server: Server, client: Client, name: str, **settings: object) -> None:
        self.server, self.client, self.name = server, client, name
        self.path = f"/loops/{name}"
        created = client.call("POST", "/loops", {"name": name, "settings": CALM | settings})
        assert created.status == 201, created

    def rank(self, event: str, **more: object) -> dict[str, object]:
        answer = self.client.rank(BODY | {"eventId": event} | more, self.path)
        assert answer.status == 201, answer
        response: dict[str, object] = answer.json
        assert not response["degraded"]
        return response

    def reward(self, event: str, value: float, request: str | None = None) -> None:
        assert self.client.reward(event, value, self.path, request).status == 204

    def activate(self, event: str) -> int:
        return self.client.activate(event, self.path).status

    def call(self, method: str, path: str, body: object = None) -> Answer:
        return self.client.call(method, f"{self.path}{BASE}{path}", body)

    def learner(self) -> Learner:
        return Learner.load(io.BytesIO(decode_snapshot(self.call("GET", "/model").body).model))

    def lessons(self) -> int:
        """How many rewards the loop has learned."""
        return self.learner().bank.lessons

    def metric(self, name: str) -> float:
        """A metric of this loop."""
        text = self.client.call("GET", "/metrics").body.decode()
        [value] = re.findall(rf'^{name}{{loop="{self.name}"}} (\S+)$', text, re.MULTILINE)
        return float(value)

    def weights(self) -> Floats:
        """The sums of every weight by key; they depend on the order of rewards."""
        _, arrays = self.learner().bank.export_state()
        weights: Floats = arrays["weight_sums"][arrays["weight_keys"].argsort()]
        return weights

    def funnel(self) -> Funnel:
        with Store(self.server.data) as store:
            row = store.find_loop(self.name)
            assert row is not None
            return store.read_funnel(row.id)

    def until(self, **counts: int) -> Funnel:
        """Wait until the log has these counts."""
        wait_until(lambda: (funnel := self.funnel()) == funnel._replace(**counts))
        return self.funnel()


def restart(server: Server, end: Callable[[], None]) -> None:
    """End the server and start it again."""
    end()
    server.start()
    server.wait()


def check_refusal(answer: Answer, status: int, code: str | None = None) -> None:
    """Check that an answer is an error with the envelope and its header."""
    assert answer.status == status, answer
    error = answer.json["error"]
    assert error["code"] == answer.headers["x-ms-error-code"]
    assert code in (None, error["code"])
    assert error["message"]
