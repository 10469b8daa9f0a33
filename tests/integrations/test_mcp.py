"""`windvane mcp` as a process, driven by the client of the real SDK, against a real service."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

pytest.importorskip("mcp", reason="pip install 'windvane[mcp]'")

from mcp import Client as AgentClient
from mcp import StdioServerParameters, stdio_client
from mcp.types import CallToolResult

from server_process import MAIN, Nursery, Server

ACTIONS = ["news", {"id": "match", "topic": "sports"}]


@pytest.fixture(scope="module")
def server(nursery: Nursery, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(nursery, tmp_path_factory.mktemp("mcp") / "data") as server:
        yield server


def drive(server: Server, session: Callable[[AgentClient], Awaitable[None]]) -> None:
    """Start the command as an agent does, and talk to it."""
    program, *words = MAIN
    start = StdioServerParameters(command=program, args=[*words, "mcp", "--url", server.url])

    async def talk() -> None:
        async with AgentClient(stdio_client(start)) as agent:
            await session(agent)

    asyncio.run(talk())


def read(result: CallToolResult) -> Any:
    """What a tool returns, which its text says, too."""
    assert not result.is_error, result.content
    content = result.structured_content
    assert content is not None
    return content["result"] if set(content) == {"result"} else content


def test_an_agent_ranks_rewards_and_asks(server: Server) -> None:
    async def session(agent: AgentClient) -> None:
        tools = (await agent.list_tools()).tools
        assert [tool.name for tool in tools] == [
            *("list_loops", "rank", "reward", "report", "evaluate", "explain")
        ]
        assert all(tool.description for tool in tools)
        for visitor in range(60):
            device = "phone" if visitor % 2 else "desktop"
            decision = read(
                await agent.call_tool("rank", {"context": {"device": device}, "actions": ACTIONS})
            )
            assert decision["probability"] == decision["probabilities"][decision["index"]]
            is_liked = (decision["action"] == "match") == (device == "phone")
            outcome = read(
                await agent.call_tool(
                    "reward", {"event_id": decision["event_id"], "value": float(is_liked)}
                )
            )
            assert outcome["status"] == "learned"
        event = decision["event_id"]
        [loop] = read(await agent.call_tool("list_loops"))
        assert loop["name"] == "default"
        report = read(await agent.call_tool("report"))
        assert report["decisions"] == 60
        assert report["arrived"]["funnel"]["learned"] == 60
        assert report["recent"][0] == event
        assert report["learning"]["mean"]["count"] == 60
        assert len(json.dumps(report)) < 8000
        explained = read(await agent.call_tool("explain", {"event_id": event}))
        assert explained["chosen"] == decision["action"]
        assert explained["chance"] == pytest.approx(decision["probability"])
        assert explained["rewards"][0]["value"] == float(is_liked)
        asked = {"policies": {"calm": "explorationPercentage=0.01"}, "days": 1}
        evaluation = read(await agent.call_tool("evaluate", asked))
        assert (evaluation["status"], evaluation["error"]) == ("completed", None)
        results = {each["name"]: each for each in evaluation["policies"]}
        assert "calm" in results
        assert all(each["rows"] == 60 for each in results.values())
        assert all(each["gainInterval"][0] <= each["gain"] for each in results.values())

    drive(server, session)


MISTAKES: list[tuple[str, dict[str, Any], str]] = [
    ("rank", {"context": {}, "actions": []}, "rank: there must be at least one action"),
    ("reward", {"event_id": "visit-1", "value": 7.0}, "must be a number in [-1, 1], got 7.0"),
    ("explain", {"event_id": "../nobody"}, "the event id '../nobody'"),
    ("report", {"loop": "no-such-loop"}, "there is no loop 'no-such-loop'"),
]


def test_a_mistake_is_a_sentence_that_an_agent_can_read(server: Server) -> None:
    answers: list[CallToolResult] = []

    async def session(agent: AgentClient) -> None:
        answers.extend([await agent.call_tool(name, options) for name, options, _ in MISTAKES])

    drive(server, session)
    for (_, _, words), answer in zip(MISTAKES, answers, strict=True):
        assert answer.is_error
        assert words in answer.content[0].text  # type: ignore[union-attr]
