"""Intent of people: RebalancePolicies, approved recommendations, namespaces that opt in.

kopf's handlers (``handlers``) report every change here as it happens. Two things no stream of events can
promise are had by listing: to know everything when this replica begins to lead, and to act on nothing that
is gone, for after a 410 kopf's watch never tells of objects that vanished meanwhile. So everything is listed
once at the beginning, and the few policies and recommendations again before anything is done on their
strength (``confirm``).
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Protocol, Self

from numazones.api.meta import API_VERSION
from numazones.errors import NumazonesError
from numazones.rebalance.decisions import approval_problem
from numazones.rebalance.recommendation import Recommendation
from numazones_client import APIError, Client, Resource, UnknownResource
from numazones_client.resources import NAMESPACES, REBALANCE_POLICIES, REBALANCE_RECOMMENDATIONS
from numazones_client.table import Table
from numazones_operator.faults import ObjectFaults, of_subject
from numazones_operator.mirror.decoding import NamespaceLabels
from numazones_operator.rebalance.objects import PolicyObject

WRITTEN = (REBALANCE_POLICIES, REBALANCE_RECOMMENDATIONS)
"""Kinds of ours that people write."""

_log = logging.getLogger(__name__)


class _Read(Protocol):
    """Kind of objects that are read here."""

    KIND: ClassVar[str]

    @classmethod
    def from_api(cls, body: Mapping[str, Any], /) -> Self:
        """Read an object."""


class Intent:
    """Policies, recommendations and namespaces as last read; one that cannot be read counts as gone."""

    def __init__(
        self,
        client: Client,
        *,
        made_for_changed: Callable[[str], None] = lambda _uid: None,
        faults: ObjectFaults | None = None,
    ) -> None:
        """``made_for_changed`` is told the UIDs of pods of which ``made_for`` says something new."""
        self._client = client
        self._faults = faults or ObjectFaults()
        self._disregarded: set[tuple[str, str]] = set()
        """UID and version of plans about which something raised."""
        self._made_for_changed = made_for_changed
        self.made_for: dict[str, str] = {}
        """UID of a waiting pod → the recommendation in force that makes room for it."""
        self.policies: Table[PolicyObject] = Table(lambda item: item.name, outdated=_is_older)
        self.recommendations: Table[Recommendation] = Table(
            lambda item: item.name, self._take_change, outdated=_is_older
        )
        self.namespaces: Table[NamespaceLabels] = Table(lambda item: item.name)
        self.changed = asyncio.Event()
        """Set with every change that people make; cleared by who looks."""
        self.followed = asyncio.Event()
        """Set while everything is known and changes are reported."""

    def _take_change(self, old: Recommendation | None, new: Recommendation | None) -> None:
        for item in (new or old,):
            if item is not None:
                with self._faults.of(of_subject(item)):
                    self._recommendation_changed(old, new)

    def _recommendation_changed(self, _old: Recommendation | None, _new: Recommendation | None) -> None:
        """Keep ``made_for``; recommendations in force are few."""
        before, self.made_for = (
            self.made_for,
            {placement.pod.uid: item.name for item in self.in_force() for placement in item.spec.placements},
        )
        for uid in before.keys() | self.made_for.keys():
            if before.get(uid) != self.made_for.get(uid):
                with self._faults.of({"apiVersion": "v1", "kind": "Pod", "name": "", "uid": uid}):
                    self._made_for_changed(uid)

    def in_force(self) -> list[Recommendation]:
        """Return the plans that have not ended, without those about which something raised."""
        known = (one for one in self.recommendations if (one.uid, one.version) not in self._disregarded)
        return [item for item, active in self._faults.over(known, lambda item: item.active) if active]

    def disregard(self, item: Recommendation) -> None:
        """Let a plan not count as one in force as long as it stays as it is."""
        known = {(one.uid, one.version) for one in self.recommendations}
        self._disregarded = {*(self._disregarded & known), (item.uid, item.version)}

    async def read(self) -> frozenset[str]:
        """List everything, when this replica begins to lead; return what ``confirm`` does.

        Raises:
            APIError: the API server does not give it.
        """
        await self._list(NAMESPACES, NamespaceLabels, self.namespaces)
        return await self.confirm()

    async def confirm(self) -> frozenset[str]:
        """List policies and recommendations, so that what is done next is what people want now.

        Return which of the two the API server serves, by full names.

        Raises:
            APIError: the API server does not give it.
        """
        policies = await self._list(REBALANCE_POLICIES, PolicyObject, self.policies)
        recommendations = await self._list(REBALANCE_RECOMMENDATIONS, Recommendation, self.recommendations)
        served = zip(WRITTEN, (policies, recommendations), strict=True)
        return frozenset(resource.full_name for resource, known in served if known)

    async def is_current(self, policy: PolicyObject, item: Recommendation | None = None) -> bool:
        """Return whether the API server still has the policy, and the recommendation, as evaluated.

        Asked before anything is done on their strength: a watch may be behind, and after a 410 kopf's never
        tells of what was deleted meanwhile.
        """
        await self.confirm()
        known = self.policies.get(policy.name)
        if known is None or known.edition != policy.edition:
            return False
        if item is None:
            return True
        found = self.recommendations.get(item.name)
        return found is not None and (found.uid, found.version) == (item.uid, item.version)

    async def _list(self, resource: Resource, kind: type[_Read], table: Table[Any]) -> bool:
        """Replace what a table holds; return whether the cluster knows the resource."""
        seen, known = set(), True
        try:
            for body in await self._client.list(resource):
                if self._take(table, kind, body) == "":
                    seen.add(body["metadata"]["name"])
        except UnknownResource:
            _log.debug("the API server does not serve %s", resource.full_name)
            known = False
        table.retain(seen)
        return known

    # Called by kopf's handlers, on this loop; they live on another.

    async def take_policy(self, body: Mapping[str, Any]) -> str:
        """Take in a policy; one that cannot be read counts as gone, and the reason is returned."""
        return self._take(self.policies, PolicyObject, body)

    async def take_recommendation(self, body: Mapping[str, Any]) -> str:
        """Take in a recommendation; one that cannot be read counts as gone, and the reason is returned."""
        return self._take(self.recommendations, Recommendation, body)

    async def take_namespace(self, body: Mapping[str, Any]) -> None:
        """Take in the labels of a namespace."""
        self._take(self.namespaces, NamespaceLabels, body)

    async def approval_problem(self, body: Mapping[str, Any]) -> str:
        """Return why nothing will come of the approval of a recommendation; empty if the plan is next."""
        try:
            item = Recommendation.from_api(body)
        except (NumazonesError, ValueError) as error:
            return f"this recommendation cannot be read: {error}"
        policy = self.policies.get(item.spec.policy)
        return approval_problem(item.spec, item.status, None if policy is None else policy.spec.mode)

    async def wake(self) -> None:
        """Let rebalancing begin its next round now."""
        self.changed.set()

    async def drop_policy(self, body: Mapping[str, Any]) -> None:
        """Forget a policy that is gone; one of its name that has come since is listed again."""
        self._drop_same(self.policies, body)
        await self._confirm_after_deletion()

    async def drop_recommendation(self, body: Mapping[str, Any]) -> None:
        """Forget a recommendation that is gone; one of its name that has come since is listed again."""
        self._drop_same(self.recommendations, body)
        await self._confirm_after_deletion()

    async def drop_namespace(self, body: Mapping[str, Any]) -> None:
        """Forget a namespace that is gone, but none of its name that has come since."""
        self._drop_same(self.namespaces, body)

    async def _confirm_after_deletion(self) -> None:
        """List what is there: kopf tells of objects of one name in no particular order."""
        try:
            await self.confirm()
        except APIError as error:
            _log.info("could not list policies and recommendations after a deletion: %s", error)
        self.changed.set()

    def take_own_policy(self, body: Mapping[str, Any]) -> None:
        """Take in the API server's answer to our own write; it wakes nobody."""
        try:
            self.policies.put(PolicyObject.from_api(body))
        except (NumazonesError, ValueError):
            _log.debug("could not read policy %s", body["metadata"]["name"])

    def _take(self, table: Table[Any], kind: type[_Read], body: Mapping[str, Any]) -> str:
        try:
            table.put(kind.from_api(body))
        except Exception as error:  # noqa: BLE001 - whatever it is, it concerns this object alone
            self._drop(table, body["metadata"]["name"])
            return self._faults.take(_reference(kind.KIND, body["metadata"]), error)
        self.changed.set()
        return ""

    def _drop_same(self, table: Table[Any], body: Mapping[str, Any]) -> None:
        """Forget the very object that is gone, and none that has its name by now."""
        known = table.get(body["metadata"]["name"])
        if known is not None and known.uid == (body["metadata"].get("uid") or ""):
            table.remove(known)
            self.changed.set()

    def _drop(self, table: Table[Any], name: str) -> None:
        if table.get(name) is not None:
            table.discard(name)
            self.changed.set()


def _reference(kind: str, metadata: Mapping[str, Any]) -> dict[str, str]:
    """Return the reference to an object that may be unreadable."""
    version = "v1" if kind == NamespaceLabels.KIND else API_VERSION
    uid = str(metadata.get("uid") or "")
    return {"apiVersion": version, "kind": kind, "name": str(metadata["name"]), "uid": uid}


def _is_older(known: PolicyObject | Recommendation, item: PolicyObject | Recommendation) -> bool:
    """Return whether an event about an object is older than its known state, as after our own write."""
    return known.uid == item.uid and int(item.version or 0) < int(known.version or 0)
