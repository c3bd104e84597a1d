"""A scripted agent: the official client of the Model Context Protocol over standard input and output, or HTTP."""

import asyncio
import json
import sys
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from cli_process import environment

mcp = pytest.importorskip("mcp", reason="needs the extra [mcp]")


class Agent:
    """``call`` returns the answer of a tool, which structured content and text must agree on."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self.bytes = 0  # of the latest answer

    async def tools(self) -> set[str]:
        return {tool.name for tool in (await self._client.list_tools()).tools}

    async def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        result = await self._client.call_tool(tool, arguments)
        (content,) = result.content
        assert not result.is_error, content.text
        assert json.loads(content.text) == result.structured_content
        self.bytes = len(content.text.encode())
        return result.structured_content

    async def error(self, tool: str, **arguments: Any) -> str:
        result = await self._client.call_tool(tool, arguments)
        assert result.is_error, result.structured_content
        return str(result.content[0].text)


def talk_to_end(conversation: Coroutine[Any, Any, None]) -> None:
    """Run it in a thread of its own: in that of the tests Playwright may have left an event loop running."""
    with ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, conversation).result()


@asynccontextmanager
async def over_stdio(home: Path):
    words = ["-m", "rekindle_service", "mcp"]
    command = mcp.StdioServerParameters(command=sys.executable, args=words, env=environment(home))
    async with mcp.Client(command) as client:
        yield Agent(client)


@asynccontextmanager
async def over_http(url: str, token: str):
    from mcp.client.streamable_http import streamable_http_client

    async with (
        httpx2.AsyncClient(headers={"Authorization": f"Bearer {token}"}) as http,
        mcp.Client(streamable_http_client(url, http_client=http)) as client,
    ):
        yield Agent(client)
