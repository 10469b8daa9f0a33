"""What an agent does with `windvane mcp`: choose a prompt, say how it went, ask why.

python examples/agent.py http://127.0.0.1:8787
"""

import asyncio
import sys

from mcp import Client, StdioServerParameters, stdio_client


async def main() -> None:
    """Start the server of MCP as a desktop program does, and call its tools."""
    start = StdioServerParameters(command="windvane", args=["mcp", "--url", sys.argv[1]])
    async with Client(stdio_client(start)) as agent:
        print(", ".join(tool.name for tool in (await agent.list_tools()).tools))
        offer = {"context": {"task": "summary"}, "actions": ["short prompt", "long prompt"]}
        decision = (await agent.call_tool("rank", offer)).structured_content or {}
        event = {"event_id": decision["event_id"]}
        await agent.call_tool("reward", {**event, "value": 1.0})
        reason = (await agent.call_tool("explain", event)).structured_content or {}
        print(reason["chosen"] == decision["action"], reason["rewards"][0]["value"])


if __name__ == "__main__":
    asyncio.run(main())
