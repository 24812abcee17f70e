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
from typing import Any, TypeVar

from numazones.errors import NumazonesError
from numazones.rebalance.decisions import approval_problem
from numazones.rebalance.recommendation import Recommendation
from numazones_client import APIError, Client, Resource, UnknownResource
from numazones_client.resources import NAMESPACES, REBALANCE_POLICIES, REBALANCE_RECOMMENDATIONS
from numazones_client.table import Table
from numazones_operator.faults import in_words
from numazones_operator.mirror.decoding import NamespaceLabels
from numazones_operator.rebalance.objects import PolicyObject

T = TypeVar("T")

WRITTEN = (REBALANCE_POLICIES, REBALANCE_RECOMMENDATIONS)
"""Kinds of ours that people write."""

_log = logging.getLogger(__name__)


class Intent:
    """Policies, recommendations and namespaces as last read; one that cannot be read counts as gone."""

    def __init__(
        self, client: Client, *, made_for_changed: Callable[[str], None] = lambda _uid: None
    ) -> None:
        """``made_for_changed`` is told the UIDs of pods of which ``made_for`` says something new."""
        self._client = client
        self._made_for_changed = made_for_changed
        self.made_for: dict[str, str] = {}
        """UID of a waiting pod → the recommendation in force that makes room for it."""
        self.policies: Table[PolicyObject] = Table(lambda item: item.name, outdated=_is_older)
        self.recommendations: Table[Recommendation] = Table(
            lambda item: item.name, self._recommendation_changed, outdated=_is_older
        )
        self.namespaces: Table[NamespaceLabels] = Table(lambda item: item.name)
        self.changed = asyncio.Event()
        """Set with every change that people make; cleared by who looks."""
        self.followed = asyncio.Event()
        """Set while everything is known and changes are reported."""

    def _recommendation_changed(self, _old: Recommendation | None, _new: Recommendation | None) -> None:
        """Keep ``made_for``; recommendations in force are few."""
        before, self.made_for = (
            self.made_for,
            {
                placement.pod.uid: item.name
                for item in self.recommendations
                if item.active
                for placement in item.spec.placements
            },
        )
        for uid in before.keys() | self.made_for.keys():
            if before.get(uid) != self.made_for.get(uid):
                self._made_for_changed(uid)

    async def read(self) -> frozenset[str]:
        """List everything, when this replica begins to lead; return what ``confirm`` does.

        Raises:
            APIError: the API server does not give it.
        """
        await self._list(NAMESPACES, NamespaceLabels.from_api, self.namespaces)
        return await self.confirm()

    async def confirm(self) -> frozenset[str]:
        """List policies and recommendations, so that what is done next is what people want now.

        Return which of the two the API server serves, by full names.

        Raises:
            APIError: the API server does not give it.
        """
        policies = await self._list(REBALANCE_POLICIES, PolicyObject.from_api, self.policies)
        recommendations = await self._list(
            REBALANCE_RECOMMENDATIONS, Recommendation.from_api, self.recommendations
        )
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

    async def _list(
        self, resource: Resource, read: Callable[[Mapping[str, Any]], T], table: Table[T]
    ) -> bool:
        """Replace what a table holds; return whether the cluster knows the resource."""
        seen, known = set(), True
        try:
            for body in await self._client.list(resource):
                if self._take(table, read, body) == "":
                    seen.add(body["metadata"]["name"])
        except UnknownResource:
            _log.debug("the API server knows no %s", resource.full_name)
            known = False
        table.retain(seen)
        return known

    # Called by kopf's handlers, on this loop; they live on another.

    async def take_policy(self, body: Mapping[str, Any]) -> str:
        """Take in a policy; one that cannot be read counts as gone, and the reason is returned."""
        return self._take(self.policies, PolicyObject.from_api, body)

    async def take_recommendation(self, body: Mapping[str, Any]) -> str:
        """Take in a recommendation; one that cannot be read counts as gone, and the reason is returned."""
        return self._take(self.recommendations, Recommendation.from_api, body)

    async def take_namespace(self, body: Mapping[str, Any]) -> None:
        """Take in the labels of a namespace."""
        self._take(self.namespaces, NamespaceLabels.from_api, body)

    async def approval_problem(self, body: Mapping[str, Any]) -> str:
        """Return why nothing will come of the approval of a recommendation; empty if the plan is next."""
        try:
            item = Recommendation.from_api(body)
        except (NumazonesError, ValueError) as error:
            return f"the recommendation cannot be read: {error}"
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
            _log.info("what people want could not be listed after a deletion: %s", error)
        self.changed.set()

    def take_own_policy(self, body: Mapping[str, Any]) -> None:
        """Take in the API server's answer to our own write; it wakes nobody."""
        try:
            self.policies.put(PolicyObject.from_api(body))
        except (NumazonesError, ValueError):
            _log.debug("policy %s cannot be read", body["metadata"]["name"])

    def _take(self, table: Table[T], read: Callable[[Mapping[str, Any]], T], body: Mapping[str, Any]) -> str:
        try:
            item = read(body)
        except Exception as error:  # noqa: BLE001 - whatever it is, it concerns this object alone
            self._drop(table, body["metadata"]["name"])
            return in_words(error)
        table.put(item)
        self.changed.set()
        return ""

    def _drop_same(self, table: Table[Any], body: Mapping[str, Any]) -> None:
        """Forget the very object that is gone, and none that has its name by now."""
        known = table.get(body["metadata"]["name"])
        if known is not None and known.uid == (body["metadata"].get("uid") or ""):
            table.remove(known)
            self.changed.set()

    def _drop(self, table: Table[Any], name: str) -> None:
        known = table.get(name)
        if known is not None:
            table.remove(known)
            self.changed.set()


def _is_older(known: PolicyObject | Recommendation, item: PolicyObject | Recommendation) -> bool:
    """Return whether an event about an object is older than its known state, as after our own write."""
    return known.uid == item.uid and int(item.version or 0) < int(known.version or 0)
