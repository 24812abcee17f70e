"""Leader election between replicas on a coordination.k8s.io Lease: the leader alone writes.

The rules are client-go's ``tools/leaderelection``: a Lease names its holder and when it renewed; others
judge its age by their own clocks, from when they saw it change, so clocks need not agree; every write
carries the resource version that was read, so that of two candidates one loses. A leader that cannot renew
within the deadline steps down before the others may take over. As there, a leader renews what it wrote last
without reading it first. Other than there, candidates watch the Lease instead of reading it again and again,
and a leader whose renewals succeed renews at every other try: a Lease whose holder dies then ends no later,
and a renewal that fails is repeated in time.

Written here, in a page, rather than taken from ``kubernetes.aio.leaderelection``, because that would bring
the official client with its own configuration, connections and some 20 MiB into a process that talks to
the API server in one way already (figures in docs/decisions.md).
"""

import asyncio
import logging
import random
import time
from collections.abc import Callable, Coroutine
from dataclasses import KW_ONLY, dataclass, field
from datetime import UTC, datetime
from typing import Any

from numazones.apimachinery import timestamp
from numazones_client import AlreadyExists, APIError, Client, Conflict, Forbidden, NotFound, Unreachable
from numazones_client.decoding import DELETED
from numazones_client.resources import LEASES

_RELEASE_PATIENCE = 10.0
"""Seconds; a Lease that is not given back is nobody's until it runs out."""
_CERTAIN = 2 / 3
"""Share of the Lease's time after which a leader does nothing more that cannot be taken back."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Term:
    """Times that candidates and leaders wait, in seconds."""

    lease_duration: float
    renew_deadline: float
    retry_period: float

    @property
    def renewal_period(self) -> float:
        """Time from a renewal that succeeded to the next one."""
        return min(2 * self.retry_period, self.renew_deadline / 2)

    @property
    def certainty(self) -> float:
        """Time from a renewal for which nobody else can lead, with a margin for requests under way."""
        return min(self.renew_deadline, _CERTAIN * self.lease_duration)


@dataclass
class Leadership:
    """Holds the Lease, or tries to get it, and leads for as long as it holds it."""

    client: Client
    _: KW_ONLY
    name: str
    namespace: str
    identity: str
    term: Term
    lead: Callable[[], Coroutine[Any, Any, None]]
    """Work of the leader: started with leadership, cancelled with its end."""
    clock: Callable[[], float] = time.monotonic
    _seen: tuple[Any, Any] | None = field(init=False, default=None)
    _seen_at: float = field(init=False, default=0.0)
    _known: dict[str, Any] = field(init=False, default_factory=dict)
    """The Lease as last read or written; empty: look at it."""
    _may_watch: bool = field(init=False, default=True)
    _problem: str = field(init=False, default="")
    """Why the Lease could not be read or written at the last try; empty: it could."""
    _renewed_at: float = field(init=False, default=0.0)
    """When the last renewal that succeeded was asked for."""
    _alone: bool = field(init=False, default=False)
    _reign: asyncio.Task[None] | None = field(init=False, default=None)

    @property
    def leading(self) -> bool:
        """Return whether this replica leads at this moment."""
        return self._reign is not None

    @property
    def certain(self) -> bool:
        """Return whether no other replica can lead at this moment.

        A process that was stopped goes on where it was, and its tasks may run before it has noticed that
        its Lease is over: what cannot be taken back is done only if this holds.
        """
        return self.leading and (self._alone or self._since_renewal() < self.term.certainty)

    def _since_renewal(self) -> float:
        return self.clock() - self._renewed_at

    async def run(self) -> None:
        """Campaign and lead until cancelled; then give the Lease back, so that another need not wait.

        What ``lead`` raises is raised here: a leader that cannot lead makes way for another.
        """
        try:
            while True:
                asked = self.clock()
                held = await self._try()
                if held:
                    # Others may have seen the write at once, however late its answer came.
                    self._renewed_at = asked
                    self._begin()
                elif held is False or self._since_renewal() >= self.term.renew_deadline:
                    await self._end()
                if held is False and await self._stand_by():
                    continue
                if held:
                    await self._pause(self.term.renewal_period)
                else:
                    await self._pause(self.term.retry_period * (0.8 + 0.4 * random.random()))
        finally:
            if self.leading:
                await self._end()
                await self._give_back()

    async def lead_alone(self) -> None:
        """Lead without a Lease, until cancelled."""
        self._alone = True
        self._begin()
        try:
            await self._pause(None)
        finally:
            await self._end()

    async def _try(self) -> bool | None:
        """Renew or acquire; None if that failed. A leader tries until its deadline and no longer."""
        patience = self.term.renew_deadline
        if self.leading:
            patience = max(0.0, self._renewed_at + patience - self.clock())
        try:
            async with asyncio.timeout(patience):
                held = await self._attempt()
        except (APIError, TimeoutError) as error:
            self._tell(error)
            return None
        self._problem = ""
        return held

    def _tell(self, error: APIError | TimeoutError) -> None:
        """Log why the Lease is not had; a problem that lasts was logged when it began."""
        reason = _reason(error)
        if isinstance(error, NotFound) and error.request.verb == "create":
            reason = (
                f"{error.request}: {error.message}; create the namespace, or set --namespace to one that "
                "exists"
            )
        level = logging.DEBUG if reason == self._problem else logging.WARNING
        if isinstance(error, Unreachable):
            self.client.reachability.lost(error)
            level = logging.DEBUG
        self._problem = reason
        _log.log(level, "could not read or write the leader election Lease: %s", reason)

    def _begin(self) -> None:
        if self._reign is None:
            _log.info("%s is now the leader", self.identity)
            self._reign = asyncio.create_task(self.lead(), name="leading")

    async def _end(self) -> None:
        reign, self._reign = self._reign, None
        if reign is not None:
            _log.info("%s is on standby", self.identity)
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
            _log.warning("could not release the leader election Lease: %s", _reason(error))

    async def _attempt(self) -> bool:
        """Renew or acquire; return whether this replica holds the Lease now."""
        known, self._known = self._known, {}
        if self.leading and known:
            try:
                self._known = await self._renewed(known)
            except (Conflict, NotFound):
                _log.debug(
                    "the leader election Lease was written by another process, or by a retry of our own "
                    "request"
                )
            else:
                return True
        try:
            lease = await self.client.get(LEASES, self.name, namespace=self.namespace)
        except NotFound:
            try:
                body = self._lease({}, 0)
                self._known = await self.client.create(LEASES, body, namespace=self.namespace)
            except AlreadyExists:
                return False
            return True
        spec = lease.get("spec") or {}
        holder = spec.get("holderIdentity") or ""
        if holder and holder != self.identity and not self._is_abandoned(spec):
            self._known = lease
            return False
        try:
            self._known = await self._renewed(lease)
        except Conflict:
            return False if holder != self.identity else await self._attempt()
        return True

    async def _renewed(self, lease: dict[str, Any]) -> dict[str, Any]:
        """Write that this replica holds the Lease now, unless it is not as it was read."""
        spec = lease.get("spec") or {}
        holder = spec.get("holderIdentity") or ""
        changes = int(spec.get("leaseTransitions") or 0) + (holder != self.identity)
        body = self._lease(spec if holder == self.identity else {}, changes)
        body["metadata"] |= {"resourceVersion": lease["metadata"]["resourceVersion"]}
        return await self.client.replace(LEASES, body, namespace=self.namespace)

    async def _stand_by(self) -> bool:
        """Watch the Lease that another holds until it may be had; False if it can no longer be watched."""
        lease, self._known = self._known, {}
        if not lease or not self._may_watch:
            return False
        watch = asyncio.create_task(self._watch(lease["metadata"]["resourceVersion"]), name="Lease")
        try:
            while not watch.done():
                if self._is_over(lease.get("spec") or {}):
                    return True
                await asyncio.wait((watch,), timeout=self.term.retry_period)
            return watch.result()
        finally:
            watch.cancel()
            await asyncio.wait((watch,))

    async def _watch(self, version: str) -> bool:
        """Note each renewal; True once the Lease was given back or deleted, False when the watch ended."""
        try:
            async for event in self.client.watch(
                LEASES,
                namespace=self.namespace,
                field_selector=f"metadata.name={self.name}",
                resource_version=version,
                silence=self.term.lease_duration,
            ):
                spec = (event.object or {}).get("spec") or {}
                if event.object is not None and (
                    event.type == DELETED or not spec.get("holderIdentity") or self._is_abandoned(spec)
                ):
                    return True
        except Forbidden as error:
            self._may_watch = False
            seconds = self.term.retry_period
            _log.warning(
                "cannot watch the leader election Lease, so it is read every %g s instead: %s", seconds, error
            )
        except APIError as error:
            _log.debug("the watch of the leader election Lease ended: %s", error)
        return False

    def _is_abandoned(self, spec: dict[str, Any]) -> bool:
        """Return whether the holder has not renewed the Lease for as long as the Lease lasts."""
        record = (spec.get("holderIdentity"), spec.get("renewTime"))
        if record != self._seen:
            self._seen, self._seen_at = record, self.clock()
        return self._is_over(spec)

    def _is_over(self, spec: dict[str, Any]) -> bool:
        """Return whether the last seen Lease has expired."""
        duration = float(spec.get("leaseDurationSeconds") or self.term.lease_duration)
        return self.clock() - self._seen_at >= duration

    def _lease(self, before: dict[str, Any], transitions: int) -> dict[str, Any]:
        now = timestamp.format_micro(datetime.now(UTC))
        return {
            "apiVersion": LEASES.api_version,
            "kind": "Lease",
            "metadata": {"name": self.name, "namespace": self.namespace},
            "spec": {
                "holderIdentity": self.identity,
                "leaseDurationSeconds": max(1, round(self.term.lease_duration)),
                "acquireTime": before.get("acquireTime") or now,
                "renewTime": now,
                "leaseTransitions": transitions,
            },
        }

    async def _release(self) -> None:
        lease = await self.client.get(LEASES, self.name, namespace=self.namespace)
        if (lease.get("spec") or {}).get("holderIdentity") == self.identity:
            del lease["spec"]["holderIdentity"]
            lease["spec"]["leaseDurationSeconds"] = 1
            await self.client.replace(LEASES, lease, namespace=self.namespace)


def _reason(error: APIError | TimeoutError) -> str:
    return str(error) or "timed out"
