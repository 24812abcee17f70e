"""A scripted API server: each test says what it answers, and looks at what was asked."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from numazones_client import ClusterConfig, RetryPolicy

QUICK = RetryPolicy(attempts=3, initial=0.001, maximum=0.002)


@dataclass
class Asked:
    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    groups: list[str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


Answer = web.Response | Callable[[web.Request], Any]


@dataclass
class ScriptedServer:
    """Gives its answers in order, the last one for ever."""

    answers: list[Answer] = field(default_factory=list)
    asked: list[Asked] = field(default_factory=list)
    url: str = ""

    async def handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        self.asked.append(
            Asked(
                request.method,
                request.path,
                dict(request.query),
                dict(request.headers),
                request.headers.getall("Impersonate-Group", []),
                body,
            )
        )
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, web.Response):
            # A response can be sent once only; answers are given again and again.
            headers = {key: value for key, value in answer.headers.items() if key != "Content-Length"}
            return web.Response(status=answer.status, body=answer.body, headers=headers)
        response: web.StreamResponse = await answer(request)
        return response

    def config(self) -> ClusterConfig:
        return ClusterConfig(self.url)


def status(code: int, reason: str = "", message: str = "no", **more: Any) -> web.Response:
    body = {"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": message, **more}
    return web.json_response(body, status=code)


async def eventually(probe: Callable[[], Any]) -> Any:
    """Wait until the probe gives something true, however long a busy machine takes."""
    async with asyncio.timeout(60):
        while not (found := probe()):  # noqa: ASYNC110 - what is waited for has no event of its own
            await asyncio.sleep(0.005)
        return found
