"""Which of several replicas writes: leader election on a coordination.k8s.io Lease.

The rules are client-go's ``tools/leaderelection``: a Lease names its holder and when it renewed; others
judge its age by their own clocks, from when they saw it change, so clocks need not agree; every write
carries the resource version that was read, so that of two candidates one loses. A leader that cannot renew
within the deadline steps down before the others may take over.

Written here, in a page, rather than taken from ``kubernetes.aio.leaderelection``, because that would bring
the official client with its own configuration, connections and some 20 MiB into a process that talks to
the API server in one way already (figures in docs/decisions.md).
"""

import asyncio
import logging
import random
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from numazones import timestamp
from numazones_client import AlreadyExists, APIError, Client, Conflict, NotFound
from numazones_client.resources import LEASES

_RELEASE_PATIENCE = 2.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Term:
    """How long candidates and leaders wait, in seconds."""

    lease_duration: float
    renew_deadline: float
    retry_period: float


class Leadership:
    """Holds the Lease, or tries to get it, and leads for as long as it holds it."""

    def __init__(
        self,
        client: Client,
        *,
        name: str,
        namespace: str,
        identity: str,
        term: Term,
        lead: Callable[[], Coroutine[Any, Any, None]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``lead`` is what a leader does: started with leadership, cancelled with its end."""
        self._client = client
        self._name = name
        self._namespace = namespace
        self._identity = identity
        self._term = term
        self._lead = lead
        self._clock = clock
        self._seen: tuple[Any, Any] | None = None
        self._seen_at = 0.0
        self._reign: asyncio.Task[None] | None = None

    @property
    def leading(self) -> bool:
        """Whether this replica leads at this moment."""
        return self._reign is not None

    async def run(self) -> None:
        """Campaign and lead until cancelled; then give the Lease back, so that another need not wait.

        What ``lead`` raises is raised here: a leader that cannot lead makes way for another.
        """
        renewed = 0.0
        try:
            while True:
                asked = self._clock()
                held = await self._try(renewed)
                if held:
                    renewed = asked  # others may have seen the write at once, however late its answer came
                    self._begin()
                elif held is False or self._clock() - renewed >= self._term.renew_deadline:
                    await self._end()
                await self._pause(self._term.retry_period * (0.8 + 0.4 * random.random()))
        finally:
            if self.leading:
                await self._end()
                await self._give_back()

    async def lead_alone(self) -> None:
        """Lead without a Lease, until cancelled."""
        self._begin()
        try:
            await self._pause(None)
        finally:
            await self._end()

    async def _try(self, renewed: float) -> bool | None:
        """Renew or acquire; None if that failed. A leader tries until its deadline and no longer."""
        patience = self._term.renew_deadline
        if self.leading:
            patience = max(0.0, renewed + patience - self._clock())
        try:
            async with asyncio.timeout(patience):
                return await self._attempt()
        except (APIError, TimeoutError) as error:
            _log.warning("the leader's Lease could not be read or written: %s", _reason(error))
            return None

    def _begin(self) -> None:
        if self._reign is None:
            _log.info("%s leads", self._identity)
            self._reign = asyncio.create_task(self._lead(), name="what the leader does")

    async def _end(self) -> None:
        reign, self._reign = self._reign, None
        if reign is not None:
            _log.info("%s stands by", self._identity)
            reign.cancel()
            await asyncio.wait((reign,))

    async def _pause(self, seconds: float | None) -> None:
        """Wait; if the leader's work has ended meanwhile, raise its error."""
        if self._reign is None:
            await asyncio.sleep(seconds or 0.0)
            return
        done, _ = await asyncio.wait((self._reign,), timeout=seconds)
        for reign in done:
            reign.result()

    async def _give_back(self) -> None:
        try:
            async with asyncio.timeout(_RELEASE_PATIENCE):
                await self._release()
        except (APIError, TimeoutError) as error:
            _log.warning("the leader's Lease was not given back: %s", _reason(error))

    async def _attempt(self) -> bool:
        """Renew or acquire; return whether this replica holds the Lease now."""
        try:
            lease = await self._client.get(LEASES, self._name, namespace=self._namespace)
        except NotFound:
            try:
                await self._client.create(LEASES, self._lease({}, 0), namespace=self._namespace)
            except AlreadyExists:
                return False
            return True
        spec = lease.get("spec") or {}
        holder = spec.get("holderIdentity") or ""
        if holder and holder != self._identity and not self._is_abandoned(spec):
            return False
        changes = int(spec.get("leaseTransitions") or 0) + (holder != self._identity)
        body = self._lease(spec if holder == self._identity else {}, changes)
        body["metadata"] |= {"resourceVersion": lease["metadata"]["resourceVersion"]}
        try:
            await self._client.replace(LEASES, body, namespace=self._namespace)
        except Conflict:
            return False if holder != self._identity else await self._attempt()
        return True

    def _is_abandoned(self, spec: dict[str, Any]) -> bool:
        """Whether the holder has not renewed the Lease for as long as the Lease lasts."""
        record = (spec.get("holderIdentity"), spec.get("renewTime"))
        if record != self._seen:
            self._seen, self._seen_at = record, self._clock()
        duration = float(spec.get("leaseDurationSeconds") or self._term.lease_duration)
        return self._clock() - self._seen_at >= duration

    def _lease(self, before: dict[str, Any], transitions: int) -> dict[str, Any]:
        now = timestamp.format_micro(datetime.now(UTC))
        return {
            "apiVersion": LEASES.api_version,
            "kind": "Lease",
            "metadata": {"name": self._name, "namespace": self._namespace},
            "spec": {
                "holderIdentity": self._identity,
                "leaseDurationSeconds": max(1, round(self._term.lease_duration)),
                "acquireTime": before.get("acquireTime") or now,
                "renewTime": now,
                "leaseTransitions": transitions,
            },
        }

    async def _release(self) -> None:
        lease = await self._client.get(LEASES, self._name, namespace=self._namespace)
        if (lease.get("spec") or {}).get("holderIdentity") == self._identity:
            del lease["spec"]["holderIdentity"]
            lease["spec"]["leaseDurationSeconds"] = 1
            await self._client.replace(LEASES, lease, namespace=self._namespace)


def _reason(error: APIError | TimeoutError) -> str:
    return str(error) or "timed out"
