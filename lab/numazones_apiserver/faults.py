"""Failures on purpose, so that it can be tested how clients behave then.

A fault names what it strikes (verb, resource, namespace, name, subresource; nothing named means
anything) and how often. The oldest matching fault strikes first and is used up after ``count`` times.
"""

import asyncio
from dataclasses import dataclass, field
from typing import Any

from numazones_apiserver import errors
from numazones_apiserver.errors import StatusError
from numazones_apiserver.requests import HTTPRequest, RequestInfo


class ConnectionBroken(Exception):
    """The connection is to be cut without an answer."""


@dataclass(slots=True)
class Fault:
    """Something that goes wrong for the requests that match."""

    verb: str = ""
    resource: str = ""
    namespace: str = ""
    name: str = ""
    subresource: str | None = None
    count: int | None = 1
    """How many requests it strikes; None for all, until it is removed."""
    delay: float = 0.0
    """Seconds to wait before the request is served or fails."""
    error: StatusError | None = None
    reset: bool = False
    struck: int = 0
    """How many requests it has struck."""

    def matches(self, info: RequestInfo) -> bool:
        """Return whether the fault applies to the request."""
        return (
            self.verb in ("", info.verb)
            and self.resource in ("", info.resource)
            and self.namespace in ("", info.namespace)
            and self.name in ("", info.name)
            and self.subresource in (None, info.subresource)
        )


@dataclass(eq=False, slots=True)
class OpenWatch:
    """A watch that is being served, and how to end it."""

    info: RequestInfo
    request: HTTPRequest
    """As its client made it."""
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    ending: StatusError | ConnectionBroken | None = None
    silent: bool = False
    """Whether it is as if the client were no longer there: nothing is sent, not even its end."""

    @property
    def client(self) -> str:
        """The client's User-Agent."""
        return self.request.headers.get("User-Agent", "")

    def end(self, how: StatusError | ConnectionBroken) -> None:
        """End it with an ERROR event, or by cutting the connection."""
        self.ending = how
        self.wake.set()


@dataclass(slots=True)
class Faults:
    """The faults that are in force, and the watches that are open."""

    pending: list[Fault] = field(default_factory=list)
    watches: set[OpenWatch] = field(default_factory=set)

    def add(self, fault: Fault) -> Fault:
        """Add a fault."""
        self.pending.append(fault)
        return fault

    def remove(self, fault: Fault) -> None:
        """Remove a fault; it may be used up already."""
        if fault in self.pending:
            self.pending.remove(fault)

    def clear(self) -> None:
        """Remove all faults."""
        self.pending.clear()

    def delay(self, seconds: float, **match: Any) -> Fault:
        """Answer late."""
        return self.add(Fault(delay=seconds, **match))

    def reset(self, **match: Any) -> Fault:
        """Cut the connection without an answer."""
        return self.add(Fault(reset=True, **match))

    def conflict(self, **match: Any) -> Fault:
        """Answer 409 Conflict, as when somebody else wrote in between."""
        message = f"Operation cannot be fulfilled on the object: {errors.MODIFIED}"
        return self.add(Fault(error=StatusError(409, "Conflict", message), **match))

    def resource_expired(self, **match: Any) -> Fault:
        """Answer 410 Expired, as for a resource version that is compacted."""
        return self.add(Fault(error=errors.resource_expired("too old resource version: 1 (2)"), **match))

    def too_many_requests(self, retry_after: int = 1, **match: Any) -> Fault:
        """Answer 429 with Retry-After, as priority and fairness does."""
        message = "the server has received too many requests and has asked us to try again later"
        error = StatusError(
            429,
            "TooManyRequests",
            message,
            details={"retryAfterSeconds": retry_after},
            headers={"Retry-After": str(retry_after)},
        )
        return self.add(Fault(error=error, **match))

    def server_error(self, code: int = 500, **match: Any) -> Fault:
        """Answer 500 InternalError, or 503 ServiceUnavailable, 504 Timeout."""
        reason = _SERVER_REASONS.get(code, "InternalError")
        error = StatusError(code, reason, "an error on the server has been injected")
        return self.add(Fault(error=error, **match))

    def drop_watches(self, resource: str = "", *, compacted: bool = False) -> int:
        """End the open watches now: cut their connections, or send them 410; returns how many."""
        matching = [watch for watch in self.watches if resource in ("", watch.info.resource)]
        for watch in matching:
            watch.end(
                errors.resource_expired("too old resource version: 1 (2)")
                if compacted
                else ConnectionBroken()
            )
        return len(matching)

    def silence_watches(self, resource: str = "", *, client: str = "") -> int:
        """Let the open watches say nothing any more, as after a connection died without a word; how many.

        ``client``: the User-Agent of the only client that this happens to. A watch opened later works.
        """
        matching = [
            watch
            for watch in self.watches
            if resource in ("", watch.info.resource) and client in ("", watch.client)
        ]
        for watch in matching:
            watch.silent = True
        return len(matching)

    async def strike(self, info: RequestInfo) -> None:
        """Let the oldest matching fault strike; raises what it makes of the request."""
        fault = next((one for one in self.pending if one.matches(info)), None)
        if fault is None:
            return
        fault.struck += 1
        if fault.count is not None and fault.struck >= fault.count:
            self.remove(fault)
        if fault.delay:
            await asyncio.sleep(fault.delay)
        if fault.reset:
            raise ConnectionBroken
        if fault.error is not None:
            raise fault.error


_SERVER_REASONS = {500: "InternalError", 503: "ServiceUnavailable", 504: "Timeout"}
