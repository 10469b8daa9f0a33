"""Ways into the service from other tools: `openfeature` flags, and `mcp` for agents.

Each module needs the extra of its name: pip install 'windvane[openfeature]' or 'windvane[mcp]'.
"""
