"""A server with a few tools, run by tests as a program: over its standard streams or HTTP."""

import os
import sys
import time
from pathlib import Path

from mcp.server import MCPServer

server = MCPServer("test")


@server.tool()
def add(a: int, b: int) -> str:
    """Add two numbers."""
    return str(a + b)


@server.tool()
def shout(text: str) -> str:
    """Say it with a control sequence."""
    return f"\x1b[31m{text.upper()}\x1b[0m"


@server.tool()
def fail() -> str:
    """Never work."""
    raise ValueError("it never works")


@server.tool()
def sleep(seconds: float) -> str:
    """Take a while."""
    time.sleep(seconds)
    return "slept"


@server.tool()
def place() -> str:
    """Tell where it runs and what it can see."""
    outside = Path(os.environ["OUTSIDE"]).exists() if "OUTSIDE" in os.environ else None
    return f"{os.getcwd()} outside={outside} token={os.environ.get('TOKEN', '')}"


if __name__ == "__main__":
    if len(sys.argv) > 1:
        server.run(transport="streamable-http", host="127.0.0.1", port=int(sys.argv[1]))
    else:
        server.run(transport="stdio")
