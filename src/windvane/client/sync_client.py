"""`Client`: decisions and rewards over HTTP; every method waits for its answer."""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

import httpx2 as httpx

from windvane.client import operations
from windvane.client.attempts import Attempts
from windvane.client.base import (
    MAX_PAGE_DECISIONS,
    MAX_WAIT_SECONDS,
    RANK_TIMEOUT_SECONDS,
    TIMEOUT_SECONDS,
    ClientSettings,
)
from windvane.client.errors import ClientError
from windvane.client.operations import Call, Event, Operation
from windvane.client.results import (
    Decision,
    DecisionPage,
    Health,
    LoggedDecision,
    Reward,
    RewardOutcome,
)
from windvane.client.transport import (
    TimeLeft,
    build_request,
    describe_failure,
    judge_response,
    make_delivery_error,
)
from windvane.features.request_reader import Features

Result = TypeVar("Result")


class Client(ClientSettings):
    """A client of one or several servers on the same log.

    Threads may share a client. Processes may not: make one in each. `timeout` and `rank_timeout`
    are seconds for a request with all its repetitions. `http` is an `httpx2.Client` for other
    settings of TLS or proxies; it is not closed.

    >>> from windvane.client import Client
    >>> with Client(["http://127.0.0.1:9", "http://127.0.0.1:19"], rank_timeout=0.2) as client:
    ...     decision = client.rank({"device": "phone"}, ["news", "match"])  # nobody is there
    >>> decision.action, decision.probability, decision.degraded
    ('news', 1.0, True)
    """

    def __init__(
        self,
        servers: str | Sequence[str] = "http://127.0.0.1:8787",
        *,
        key: str | None = None,
        loop: str = "default",
        timeout: float = TIMEOUT_SECONDS,
        rank_timeout: float = RANK_TIMEOUT_SECONDS,
        http: httpx.Client | None = None,
    ) -> None:
        super().__init__(servers, key, loop, timeout, rank_timeout)
        self._owns_http = http is None
        self._http = httpx.Client() if http is None else http

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections."""
        if self._owns_http:
            self._http.close()

    def rank(
        self,
        context: Features | Sequence[Features],
        actions: Sequence[str | Features],
        *,
        exclude: Sequence[str] = (),
        event_id: str | None = None,
        defer_activation: bool = False,
        loop: str | None = None,
        timeout: float | None = None,
    ) -> Decision:
        """Choose one of the actions, which are ids or objects with an id and features.

        If no server answers within `rank_timeout` seconds, the first action that is not excluded is
        chosen, with `degraded` and `is_local`. Only a wrong request raises an error.
        """
        options = self._make_rank_options(exclude, event_id, defer_activation, loop, timeout)
        return self._run(operations.rank(context, actions, options))

    def reward(
        self,
        event: Event,
        value: float,
        *,
        request_id: str | None = None,
        loop: str | None = None,
    ) -> RewardOutcome:
        """Send the reward of a decision or an event id, in [-1, 1]; it counts once.

        The reward of a decision that the client made itself is not sent. Raises a DeliveryError if
        no server takes the reward in time.
        """
        reward = operations.make_reward(event, value, loop, request_id)
        return reward if isinstance(reward, RewardOutcome) else self.rewards([reward])[0]

    def rewards(
        self, many: Iterable[Reward | tuple[Event, float]], *, loop: str | None = None
    ) -> list[RewardOutcome]:
        """Send many rewards; returns the outcome of each, in their order.

        Raises a DeliveryError if no server takes some of them in time; its `undelivered` can be
        given to this method again.
        """
        return self._run(operations.put_rewards(many, loop or self.loop, self.timeout))

    def activate(self, event: Event, *, loop: str | None = None) -> bool:
        """Activate a decision whose activation was deferred; False if the client made it itself."""
        return self._run(operations.activate(event, loop or self.loop, self.timeout))

    def read_decisions(
        self,
        after: int = 0,
        *,
        limit: int = 100,
        wait: float = 0.0,
        final: bool = False,
        loop: str | None = None,
    ) -> DecisionPage:
        """Read a page of decisions; if there is none, the server waits up to `wait` seconds."""
        query = self._make_page_query(after, limit, wait, final)
        return self._run(operations.read_page(query, loop or self.loop, self.timeout))

    def decisions(
        self,
        after: int = 0,
        *,
        final: bool = False,
        follow: bool = False,
        loop: str | None = None,
    ) -> Iterator[LoggedDecision]:
        """Iterate over the decisions with an id greater than `after`, in the order of the log.

        With `final`, each decision comes when its reward can no longer change. With `follow`, the
        iteration waits for new decisions without end. After an error, go on from the last id.
        """
        wait = MAX_WAIT_SECONDS if follow else 0.0
        while True:
            page = self.read_decisions(
                after, limit=MAX_PAGE_DECISIONS, wait=wait, final=final, loop=loop
            )
            yield from page.decisions
            if page.after == after and not follow:
                return
            after = page.after

    def settings(self, *, loop: str | None = None) -> Mapping[str, object]:
        """Read the settings of a loop, by their names on the wire."""
        return self._run(operations.read_settings(loop or self.loop, self.timeout))

    def health(self) -> Health:
        """Read the health of the first server that answers."""
        return self._run(operations.read_health(self.timeout))

    def _run(self, operation: Operation[Result]) -> Result:
        try:
            call = next(operation)
            while True:
                try:
                    answer = self._send(call)
                except ClientError as error:
                    call = operation.throw(error)
                else:
                    call = operation.send(answer)
        except StopIteration as end:
            result: Result = end.value
            return result

    def _send(self, call: Call) -> Any:
        attempts = Attempts(self._servers, call.timeout, call.wait)
        while (attempt := attempts.plan_next()) is not None:
            time.sleep(attempt.pause_seconds)
            extensions = {"timeout": TimeLeft(attempt.seconds)}
            url = self.servers[attempt.server]
            try:
                response = self._http.send(build_request(url, call, self._headers, extensions))
            except httpx.TransportError as error:
                attempts.note_failure(attempt, describe_failure(error))
                continue
            answer = judge_response(call, attempts, attempt, response)
            if answer is not None:
                return answer.value
        raise make_delivery_error(call, attempts)
