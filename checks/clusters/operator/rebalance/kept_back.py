"""Statuses of recommendations as the API server gets them: whoever writes them waits at a certain one."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from numazones_apiserver import ApiServer
from numazones_apiserver.requests import HTTPRequest, RequestInfo
from numazones_apiserver.responses import HTTPResponse
from numazones_client.resources import REBALANCE_RECOMMENDATIONS

_WRITE = ("patch", REBALANCE_RECOMMENDATIONS.plural, "status")


@asynccontextmanager
async def answer_kept_back(server: ApiServer, phase: str) -> AsyncIterator[asyncio.Event]:
    """Store the first status that has a move in a phase, and answer at the end of the block.

    Yields what is set as soon as it is stored: from then on whoever has written it waits.
    """
    stored, over, serve = asyncio.Event(), asyncio.Event(), server._answer

    async def answer(request: HTTPRequest, info: RequestInfo) -> HTTPResponse:
        answered = await serve(request, info)
        if _is_write(info) and not stored.is_set() and phase in _phases(answered):
            stored.set()
            await over.wait()
        return answered

    server._answer = answer  # type: ignore[method-assign]
    try:
        yield stored
    finally:
        over.set()
        server._answer = serve  # type: ignore[method-assign]


@asynccontextmanager
async def next_write_kept_back(server: ApiServer, phase: str) -> AsyncIterator[asyncio.Event]:
    """Store a status that has a move in a phase, and none after it: who writes on waits, and has to die.

    Yields what is set as soon as somebody has done more than that, and has come to write it.
    """
    came, over, serve = asyncio.Event(), asyncio.Event(), server._answer
    stored = False

    async def answer(request: HTTPRequest, info: RequestInfo) -> HTTPResponse:
        nonlocal stored
        if _is_write(info) and stored:
            came.set()
            await over.wait()
            raise ConnectionResetError  # the writer is dead
        answered = await serve(request, info)
        stored = stored or (_is_write(info) and phase in _phases(answered))
        return answered

    server._answer = answer  # type: ignore[method-assign]
    try:
        yield came
    finally:
        over.set()
        server._answer = serve  # type: ignore[method-assign]


def _is_write(info: RequestInfo) -> bool:
    return (info.verb, info.resource, info.subresource) == _WRITE


def _phases(answered: HTTPResponse) -> set[str]:
    body = json.loads(answered.body)
    return {one["phase"] for one in (body.get("status") or {}).get("progress") or ()}
