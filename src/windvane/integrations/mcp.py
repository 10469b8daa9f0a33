"""A server of the Model Context Protocol: the loops of a service as tools of an agent."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from functools import wraps
from typing import Any
from urllib.parse import quote

import msgspec
from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError

from windvane import __version__
from windvane.client import AsyncClient
from windvane.errors import WindvaneError

Json = dict[str, Any]
Tool = Callable[..., Awaitable[Any]]
EVALUATION_SECONDS = 300.0  # after which an evaluation that still runs is reported as pending
POLL_SECONDS = 0.5
DEFAULT_LOOP = "default"  # every service has it
INSTRUCTIONS = (
    "Windvane chooses one of several actions for a context and learns from rewards in [-1, 1]. "
    "Call rank before you act, do what it chose, and call reward with its event_id afterwards."
)


def build_server(client: AsyncClient) -> MCPServer:
    """Make a server whose tools call a service."""
    server: MCPServer = MCPServer("windvane", version=__version__, instructions=INSTRUCTIONS)
    tools = LoopTools(client)
    own = (tools.list_loops, tools.rank, tools.reward, tools.report, tools.evaluate, tools.explain)
    for tool in own:
        server.add_tool(_explain_errors(tool))
    return server


class LoopTools:
    """The tools; the docstring of each is what an agent reads."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client

    async def list_loops(self) -> list[Json]:
        """List the loops: kinds of decisions that are made again and again, and their settings."""
        return msgspec.convert(await self._client.request("GET", "/loops"), list[Json])

    async def rank(
        self, context: Json, actions: list[str | Json], loop: str = DEFAULT_LOOP
    ) -> Json:
        """Choose one of the actions for a context, and say with which probability.

        `context` has features, such as {"device": "phone", "age": 31}. An action is an id, or an
        object with an id and features. Keep the event_id of the result for the reward. If
        `is_local` is true, no server answered and the first action was taken.
        """
        decision = await self._client.rank(context, actions, loop=loop)
        return {**msgspec.to_builtins(decision), "probability": decision.probability}

    async def reward(self, event_id: str, value: float, loop: str = DEFAULT_LOOP) -> Json:
        """Say how well a choice went: a value in [-1, 1], for the event_id that rank returned."""
        return dict(msgspec.to_builtins(await self._client.reward(event_id, value, loop=loop)))

    async def report(self, loop: str = DEFAULT_LOOP) -> Json:
        """Report how a loop does: what it earns beside other policies, with standard errors.

        Also whether the world drifts, what is chosen, whether rewards arrive, which features
        matter, and the newest event ids.
        """
        board = await self._client.request("GET", f"/board/{quote(loop, safe='')}.json")
        return dict(drop_series(board))

    async def evaluate(
        self, policies: dict[str, str] | None = None, days: float = 30.0, loop: str = DEFAULT_LOOP
    ) -> Json:
        """Estimate from the last days of the log what other policies would have earned.

        `policies` has settings by name, such as {"slow": "halfLife=30 days"}; the present policy,
        always the first action and a random action are always compared. This needs an admin key.
        """
        now, asked = datetime.now(UTC), (policies or {}).items()
        request = {
            "name": f"agent {now:%Y-%m-%d %H:%M:%S}",
            "startTime": (now - timedelta(days=days)).isoformat(),
            "endTime": now.isoformat(),
            "policies": [{"name": name, "arguments": text} for name, text in asked],
        }
        path = f"/loops/{quote(loop, safe='')}/personalizer/v1.0/evaluations"
        found: Any = await self._client.request("POST", path, request)
        end = asyncio.get_running_loop().time() + EVALUATION_SECONDS
        while found["status"] == "pending" and asyncio.get_running_loop().time() < end:
            await asyncio.sleep(POLL_SECONDS)
            found = await self._client.request("GET", f"{path}/{found['id']}")
        results = [
            {"name": each["name"], "arguments": each["arguments"], **each["evidence"]}
            for each in found["policyResults"]
        ]
        return {"status": found["status"], "error": found["error"], "policies": results}

    async def explain(self, event_id: str, loop: str = DEFAULT_LOOP) -> Json:
        """Explain a decision: its probabilities, what each feature added, and its rewards."""
        path = f"/board/{quote(loop, safe='')}/events/{quote(event_id, safe='')}"
        return msgspec.convert(await self._client.request("GET", path), Json)


def _explain_errors(tool: Tool) -> Tool:
    """Let an agent read the sentences of errors; the SDK hides those of other exceptions."""

    @wraps(tool)
    async def call(*args: object, **options: object) -> Any:
        try:
            return await tool(*args, **options)
        except WindvaneError as error:
            raise ToolError(str(error)) from None

    return call


def drop_series(value: Any) -> Any:
    """Leave out the lists of numbers of a report: its curves, which are long and for the eye.

    >>> drop_series({"mean": {"value": 0.5}, "curve": {"low": [0.1, None]}, "recent": ["visit-1"]})
    {'mean': {'value': 0.5}, 'recent': ['visit-1']}
    """
    if isinstance(value, list):
        return [drop_series(each) for each in value if isinstance(each, dict | str)]
    if not isinstance(value, dict):
        return value
    kept = {name: drop_series(each) for name, each in value.items()}
    return {name: each for name, each in kept.items() if each not in ({}, [])}
